// SPDX-License-Identifier: Apache-2.0
// Calls the instance of a kernel that a tiling key selects. The code that is generated after the kernel's file provides
// the instances: a struct with `templates`, `instances` and, for each instance, `kernel<i>`.
#pragma once

#include <cstdio>
#include <string>

#include "ascendc/api.h"
#include "ascendc/kernel_entry.h"
#include "ascendc/template_variants.h"

namespace AscendC::cpu {
template <auto kernel>
struct Entry;  // entry.h is there where instances are called
}

namespace AscendC::tpl {

template <uint64_t type>
struct TypeOfNumber;
// clang-format off
template <> struct TypeOfNumber<C_DT_FLOAT> { using type = float; };
template <> struct TypeOfNumber<C_DT_FLOAT16> { using type = half; };
template <> struct TypeOfNumber<C_DT_INT8> { using type = int8_t; };
template <> struct TypeOfNumber<C_DT_INT32> { using type = int32_t; };
template <> struct TypeOfNumber<C_DT_UINT8> { using type = uint8_t; };
template <> struct TypeOfNumber<C_DT_INT16> { using type = int16_t; };
template <> struct TypeOfNumber<C_DT_UINT16> { using type = uint16_t; };
template <> struct TypeOfNumber<C_DT_UINT32> { using type = uint32_t; };
template <> struct TypeOfNumber<C_DT_INT64> { using type = int64_t; };
template <> struct TypeOfNumber<C_DT_UINT64> { using type = uint64_t; };
template <> struct TypeOfNumber<C_DT_DOUBLE> { using type = double; };
template <> struct TypeOfNumber<C_DT_BOOL> { using type = bool; };
template <> struct TypeOfNumber<C_DT_BF16> { using type = bfloat16_t; };
// clang-format on
template <uint64_t type>
using TypeOf = typename TypeOfNumber<type>::type;

// A kernel that says first which cores it runs on.
template <class Function>
struct Typed;
template <class... Parameters>
struct Typed<void (*)(Parameters...)> {
  template <auto kernel, KernelMetaType type>
  static void run(Parameters... parameters) {
    cpu::declare_type(cpu::Where::current(), type);
    kernel(parameters...);
  }
};
static_assert(static_cast<uint64_t>(KERNEL_TYPE_MIX_AIC_1_2) == ASCENDC_TPL_MIX_AIC_1_2, "numbered alike");

template <class Kernel, size_t i>
constexpr auto instance() {
  constexpr auto kernel = Kernel::template kernel<i>;
  constexpr uint64_t type = Kernel::instances[i].kernel_type;
  if constexpr (type == kAnyKernelType) {
    return kernel;
  } else {
    return &Typed<std::remove_const_t<decltype(kernel)>>::template run<kernel, static_cast<KernelMetaType>(type)>;
  }
}

template <class Kernel>
bool call(const char* name, const cpu::Call& call, char* error, size_t error_size) {
  static_assert(problem_of(Kernel::templates).what == nullptr, "op_build says what is wrong with ASCENDC_TPL_SEL");
  bool (*found)(const char*, const cpu::Call&, char*, size_t) = nullptr;
  [&]<size_t... i>(std::index_sequence<i...>) {
    ((Kernel::instances[i].key == call.tiling_key && (found = cpu::Entry<instance<Kernel, i>()>::call)) || ...);
  }(std::make_index_sequence<Kernel::instances.size()>());
  if (found != nullptr) return found(name, call, error, error_size);
  std::snprintf(error, error_size, "%s: no instance that ASCENDC_TPL_SEL selects has the tiling key %llu", name,
                static_cast<unsigned long long>(call.tiling_key));
  return false;
}

// The tiling keys of all instances, with blanks between them.
template <class Kernel>
std::string keys() {
  std::string text;
  for (const Instance& each : Kernel::instances) text += (text.empty() ? "" : " ") + std::to_string(each.key);
  return text;
}

}  // namespace AscendC::tpl
