// SPDX-License-Identifier: Apache-2.0
// The instances of a kernel template, as ASCENDC_TPL_SEL selects them, by tiling key. The host checks the selection,
// and the functions that follow a kernel's file call the instances.
#pragma once

#include <array>
#include <string_view>

#include "ascendc/template_declaration.h"

namespace AscendC::tpl {

// What is wrong with a header, and where.
struct Problem {
  const char* what = nullptr;  // follows the parameter's name in the message
  const char* parameter = "";
};

constexpr size_t kMostValues = 256;

struct ValueList {
  uint64_t at[kMostValues] = {};
  size_t count = 0;
  bool broken = false;

  constexpr void add(uint64_t value) { count == kMostValues ? broken = true : (at[count++] = value, false); }
  constexpr size_t index_of(uint64_t value) const {
    size_t i = 0;
    while (i < count && at[i] != value) ++i;
    return i;
  }
};

// The values that an argument names. Those of a UINT begin with how they are written.
constexpr ValueList values_of(const Argument& argument) {
  ValueList values;
  size_t next = 0;
  if (argument.kind == Kind::Uint) {
    if (argument.count == 0 || argument.values[0] > ASCENDC_TPL_UI_MIX) return values.broken = true, values;
    const uint64_t mode = argument.values[next++];
    uint64_t ranges = 0;
    if (mode != ASCENDC_TPL_UI_LIST) {
      if (next == argument.count || argument.values[next] > (argument.count - next - 1) / 2) {
        return values.broken = true, values;
      }
      ranges = argument.values[next++];
    }
    for (; ranges > 0 && !values.broken; --ranges, next += 2) {
      for (uint64_t value = argument.values[next]; value <= argument.values[next + 1] && !values.broken; ++value) {
        values.add(value);
      }
    }
    if (mode == ASCENDC_TPL_UI_RANGE && next != argument.count) values.broken = true;
  }
  for (; next < argument.count; ++next) {
    if (argument.values[next] < kOfTensor) values.add(argument.values[next]);
  }
  return values;
}

constexpr bool is_parameter(const Argument& argument) { return argument.kind <= Kind::KernelType; }

// What a selection says of a parameter; null: nothing.
constexpr const Argument* find(const Selection& selection, std::string_view name) {
  for (const Argument& each : selection.arguments) {
    if (each.name != nullptr && is_parameter(each) && each.name == name) return &each;
  }
  return nullptr;
}

// The field of a value in the key: the place of a UINT in its declaration, others themselves.
constexpr uint64_t field(const Argument& declared, uint64_t value) {
  return declared.kind == Kind::Uint ? values_of(declared).index_of(value) : value;
}

template <class Values>
constexpr uint64_t key_of(const Templates& templates, const Values& values) {
  uint64_t key = 0;
  uint32_t shift = 0;
  for (size_t i = 0; i < templates.declared_count; shift += templates.declared[i++].bits) {
    key |= field(templates.declared[i], values[i]) << shift;
  }
  return key;
}

constexpr Problem problem_of_declaration(const Templates& templates) {
  uint32_t bits = 0;
  for (size_t i = 0; i < templates.declared_count; ++i) {
    const Argument& declared = templates.declared[i];
    const ValueList values = values_of(declared);
    if (values.broken) return {" does not say its values as ASCENDC_TPL_UI_RANGE, _LIST or _MIX does", declared.name};
    const uint64_t limit = declared.bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << declared.bits) - 1;
    for (size_t k = 0; k < values.count; ++k) {
      if (values.index_of(values.at[k]) != k) return {" declares a value twice", declared.name};
      if ((declared.kind == Kind::Uint ? k : values.at[k]) > limit) {
        return {" has fewer bits than its values take", declared.name};
      }
    }
    bits += declared.bits;
  }
  if (bits > 64) return {": the fields of the tiling key take more than 64 bits", templates.name};
  return {};
}

constexpr bool is_kernel_type(uint64_t value) { return value <= ASCENDC_TPL_MIX_AIC_1_2; }

// The argument that says which cores a selection runs on, as a parameter of the kernel or beside those; null: none.
constexpr const Argument* kernel_type(const Selection& selection, Kind kind) {
  for (const Argument& each : selection.arguments) {
    if (each.name != nullptr && each.kind == kind) return &each;
  }
  return nullptr;
}

constexpr Problem problem_of(const Templates& templates, const Selection& selection) {
  const Argument* const of_all = kernel_type(selection, Kind::OfAll);
  if (of_all != nullptr && (of_all->count != 1 || !is_kernel_type(of_all->values[0]))) {
    return {" does not say one of ASCENDC_TPL_AIV_ONLY to ASCENDC_TPL_MIX_AIC_1_2", of_all->name};
  }
  if ((of_all != nullptr) != (kernel_type(templates.selected[0], Kind::OfAll) != nullptr)) {
    return {" is in some ASCENDC_TPL_ARGS_SEL and not in others", "ASCENDC_TPL_KERNEL_TYPE_SEL"};
  }
  if (of_all != nullptr && kernel_type(selection, Kind::KernelType) != nullptr) {
    return {" stands beside ASCENDC_TPL_SHARED_KERNEL_TYPE_SEL; say one of them", of_all->name};
  }
  for (const Argument& each : selection.arguments) {
    if (each.name == nullptr) break;
    if (each.kind == Kind::Deterministic && each.count != 0 && each.values[0] != 0) {
      return {"(true) is not supported on the CPU", each.name};
    }
    if (!is_parameter(each)) continue;
    bool known = false;
    for (size_t i = 0; i < templates.declared_count; ++i) {
      known = known || std::string_view(templates.declared[i].name) == each.name;
    }
    if (!known) return {" is selected, and ASCENDC_TPL_ARGS_DECL does not declare it", each.name};
  }
  for (size_t i = 0; i < templates.declared_count; ++i) {
    const Argument& declared = templates.declared[i];
    const Argument* chosen = find(selection, declared.name);
    if (chosen == nullptr) return {" is declared, and an ASCENDC_TPL_ARGS_SEL does not select it", declared.name};
    if (chosen->kind != declared.kind) return {" is selected as another kind than it is declared", declared.name};
    const ValueList values = values_of(*chosen), all = values_of(declared);
    if (values.broken) return {" does not say its values as ASCENDC_TPL_UI_RANGE, _LIST or _MIX does", declared.name};
    if (values.count == 0) return {" is selected without a value", declared.name};
    for (size_t k = 0; k < values.count && declared.kind == Kind::KernelType; ++k) {
      if (!is_kernel_type(values.at[k])) return {" is selected with a value that names no cores", declared.name};
    }
    for (size_t k = 0; k < values.count && all.count != 0; ++k) {
      if (all.index_of(values.at[k]) == all.count) {
        return {" is selected with a value that ASCENDC_TPL_ARGS_DECL does not declare", declared.name};
      }
    }
  }
  return {};
}

constexpr Problem problem_of(const Templates& templates) {
  if (const Problem found = problem_of_declaration(templates); found.what != nullptr) return found;
  for (size_t i = 0; i < templates.selected_count; ++i) {
    if (const Problem found = problem_of(templates, templates.selected[i]); found.what != nullptr) return found;
  }
  return {};
}

// ---- the instances, of a header without a problem

constexpr size_t count_of(const Templates& templates, const Selection& selection) {
  size_t count = 1;
  for (size_t i = 0; i < templates.declared_count; ++i) {
    count *= values_of(*find(selection, templates.declared[i].name)).count;
  }
  return count;
}

constexpr size_t count_of(const Templates& templates) {
  size_t count = 0;
  for (size_t i = 0; i < templates.selected_count; ++i) count += count_of(templates, templates.selected[i]);
  return count;
}

constexpr uint64_t kAnyKernelType = ~uint64_t{0};

struct Instance {
  uint64_t key = 0;
  uint64_t values[kMostArguments] = {};
  uint64_t kernel_type = kAnyKernelType;  // if it says which cores it runs on
};

// Calls `add` with every instance.
template <class Add>
constexpr void for_each_instance(const Templates& templates, const Add& add) {
  for (size_t s = 0; s < templates.selected_count; ++s) {
    const Selection& selection = templates.selected[s];
    const size_t count = count_of(templates, selection);
    for (size_t i = 0; i < count; ++i) {
      Instance instance;
      if (const Argument* type = kernel_type(selection, Kind::OfAll)) instance.kernel_type = type->values[0];
      size_t rest = i;
      for (size_t p = 0; p < templates.declared_count; ++p) {
        const ValueList values = values_of(*find(selection, templates.declared[p].name));
        instance.values[p] = values.at[rest % values.count];
        if (templates.declared[p].kind == Kind::KernelType) instance.kernel_type = instance.values[p];
        rest /= values.count;
      }
      instance.key = key_of(templates, instance.values);
      add(instance);
    }
  }
}

template <size_t count>
constexpr std::array<Instance, count> instances_of(const Templates& templates) {
  std::array<Instance, count> all{};
  size_t next = 0;
  for_each_instance(templates, [&](const Instance& instance) { all[next++] = instance; });
  return all;
}

}  // namespace AscendC::tpl
