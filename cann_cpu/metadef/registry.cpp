// SPDX-License-Identifier: Apache-2.0
// The definitions that libraries register when they are loaded, by library, and what op_build reads of them.
#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <stdexcept>

#include "cann_cpu/json.h"
#include "cann_cpu/open_library.h"
#include "definition.h"
#include "register/device_op_impl_registry.h"
#include "register/op_impl_registry.h"
#include "register/tilingdata_base.h"

namespace cann_cpu {
namespace {

struct TilingField {
  std::string type, name;
  size_t count;
  bool is_struct;
};
struct TilingClass {
  std::string type, struct_name;
  size_t bytes;
  std::vector<TilingField> fields;
};

struct Library {
  std::map<std::string, std::shared_ptr<ops::Definition>> definitions;
  std::vector<TilingClass> tiling;
  std::string error;

  // The functions of an operator may be registered before its definition.
  ops::Definition& of(const std::string& type) {
    auto& definition = definitions[type];
    if (definition == nullptr) definition = std::make_shared<ops::Definition>();
    return *definition;
  }
};

struct Registry {
  std::recursive_mutex mutex;
  std::map<std::string, Library> libraries;
  std::string loading;  // empty: the loader is not ours
  Library& current() { return libraries[loading]; }
};

Registry& registry() {
  static auto* const instance = new Registry;  // outlives the static objects of the libraries
  return *instance;
}

template <class List, class Describe>
Json listed(const List& list, const Describe& describe) {
  Json::Array array;
  for (const auto& each : list) array.push_back(describe(each));
  return array;
}

const char* text_of(ops::Option presence) {
  return presence == ops::OPTIONAL ? "optional" : presence == ops::DYNAMIC ? "dynamic" : "required";
}

template <class List>
Json numbers(const List& list) {
  return listed(list, [](auto value) { return static_cast<int>(value); });
}

Json json(const ops::ParamDefinition& parameter) {
  return Json::Object{{"name", parameter.name},
                      {"presence", text_of(parameter.presence)},
                      {"types", numbers(parameter.types)},
                      {"formats", numbers(parameter.formats)},
                      {"value_depends", static_cast<bool>(parameter.value_depends)}};
}

Json json(const ops::AttrDefinition& attribute) {
  return Json::Object{{"name", attribute.name},
                      {"presence", text_of(attribute.presence)},
                      {"type", attribute.type},
                      {"value", attribute.has_value ? Json(attribute.value) : Json()}};
}

Json::Object json(const std::string& type, const ops::Parameters& parameters) {
  const auto param = [](const auto& each) { return json(each); };
  return {{"inputs", listed(parameters.inputs, param)},
          {"outputs", listed(parameters.outputs, param)},
          {"combinations", listed(combinations(type, parameters), [&](const ops::Combination& each) {
             return Json(Json::Array{numbers(each.types), numbers(each.formats)});
           })}};
}

Json json(const ops::Definition& definition) {
  Json::Object socs;
  for (const auto& soc : definition.core.socs) {
    socs.emplace_back(soc.first, json(definition.type, definition.on(soc.first)));
  }
  Json::Object described = json(definition.type, definition);
  described.insert(described.end(),
                   {{"type", definition.type},
                    {"attributes", listed(definition.attributes, [](const auto& each) { return json(each); })},
                    {"ai_core", static_cast<bool>(definition.core.defined)},
                    {"read_inputs", numbers(definition.read_inputs)},
                    {"tiles", definition.core.tiler() != nullptr},
                    {"socs", std::move(socs)}});
  return described;
}

Json json(const TilingClass& tiling) {
  return Json::Object{{"type", tiling.type},
                      {"struct", tiling.struct_name},
                      {"bytes", tiling.bytes},
                      {"fields", listed(tiling.fields, [](const TilingField& field) {
                         return Json(Json::Array{field.type, field.name, field.count, field.is_struct});
                       })}};
}

}  // namespace

void load_definitions(const std::string& library) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (const auto known = r.libraries.find(library); known != r.libraries.end()) {
    if (!known->second.error.empty()) throw std::runtime_error(known->second.error);
    return;
  }
  r.loading = library;
  Library& loaded = r.current();
  const OpenedLibrary opened = open_library(library);
  if (opened.handle == nullptr) loaded.error = opened.error;
  r.loading.clear();
  if (!loaded.error.empty()) throw std::runtime_error(loaded.error);
}

void reject_library(const std::string& reason) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  if (r.current().error.empty()) r.current().error = reason;
}

std::shared_ptr<const ops::Definition> find_definition(const std::string& library, const std::string& type) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto& definitions = r.libraries[library].definitions;
  const auto found = definitions.find(type);
  return found == definitions.end() || found->second->type.empty() ? nullptr : found->second;
}

std::string snake_case(const std::string& type) {
  const auto is = [&](int (*kind)(int), size_t i) { return kind(static_cast<unsigned char>(type[i])) != 0; };
  std::string text;
  for (size_t i = 0; i < type.size(); ++i) {
    const bool after_word = i > 0 && !is(std::isupper, i - 1);
    const bool begins_word = i > 0 && i + 1 < type.size() && is(std::islower, i + 1);
    if (is(std::isupper, i) && (after_word || begins_word)) text += '_';
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(type[i])));
  }
  return text;
}

}  // namespace cann_cpu

namespace ops {

namespace {

void check_groups(const Definition& definition) {
  const auto& groups = definition.groups.attributes;
  if (groups.size() > GroupDefinition::kMost) {
    cann_cpu::reject_library(definition.type + ": MC2().HcclGroup names " + std::to_string(groups.size()) +
                             " groups; a kernel has at most " + std::to_string(GroupDefinition::kMost));
  }
  for (const std::string& group : groups) {
    const auto is_it = [&](const auto& each) { return each.name == group && each.type == "String"; };
    if (std::none_of(definition.attributes.begin(), definition.attributes.end(), is_it)) {
      cann_cpu::reject_library(definition.type + ": MC2().HcclGroup(\"" + group +
                               "\") names no attribute that is a String");
    }
  }
}

}  // namespace

OpDefRegistration::OpDefRegistration(const char* type, const OpDef& op) {
  check_groups(*op.definition());
  auto& r = cann_cpu::registry();
  const std::lock_guard lock(r.mutex);
  Definition& definition = r.current().of(type);
  const Definition functions = definition;
  definition = *op.definition();
  if (functions.core.tiling) definition.core.tiling = functions.core.tiling;
  definition.core.device_tiling = functions.core.device_tiling;
  if (functions.infer_shape) definition.infer_shape = functions.infer_shape;
  if (functions.infer_data_type) definition.infer_data_type = functions.infer_data_type;
  if (functions.parse) definition.parse = functions.parse;
  if (functions.make_compile_info) definition.make_compile_info = functions.make_compile_info;
  if (!functions.read_inputs.empty()) definition.read_inputs = functions.read_inputs;
}

}  // namespace ops

namespace gert {
namespace {

template <class Change>
void change(const char* type, const Change& apply) {
  auto& r = cann_cpu::registry();
  const std::lock_guard lock(r.mutex);
  apply(r.current().of(type));
}

}  // namespace

OpImplRegister& OpImplRegister::InferShape(ops::InferShapeFunction function) {
  return change(type_, [&](auto& definition) { definition.infer_shape = function; }), *this;
}
OpImplRegister& OpImplRegister::InferDataType(ops::InferDataTypeFunction function) {
  return change(type_, [&](auto& definition) { definition.infer_data_type = function; }), *this;
}
OpImplRegister& OpImplRegister::Tiling(ops::TilingFunction function) {
  return change(type_, [&](auto& definition) { definition.core.tiling = function; }), *this;
}
DeviceOpImplRegister& DeviceOpImplRegister::Tiling(ops::TilingFunction function) {
  return change(type_, [&](auto& definition) { definition.core.device_tiling = function; }), *this;
}
OpImplRegister& OpImplRegister::InputsDataDependency(std::initializer_list<int32_t> inputs) {
  const auto add = [&](auto& definition) {
    definition.read_inputs.insert(definition.read_inputs.end(), inputs.begin(), inputs.end());
  };
  return change(type_, add), *this;
}
OpImplRegister& OpImplRegister::parse(ge::graphStatus (*function)(TilingParseContext*), void* (*make)(),
                                      void (*)(void*)) {
  return change(type_,
                [&](auto& definition) {
                  definition.parse = function;
                  definition.make_compile_info = make;
                }),
         *this;
}

}  // namespace gert

namespace optiling {

const TilingFields*& tiling_fields() {
  static thread_local const TilingFields* fields = nullptr;
  return fields;
}

TilingDataRegistration::TilingDataRegistration(const char* type, const char* struct_name, size_t bytes,
                                               void (*describe)()) {
  cann_cpu::TilingClass tiling{type, struct_name, bytes, {}};
  const TilingFields fields{
      &tiling.fields, [](void* to, const char* field_type, const char* name, size_t count, bool is_struct) {
        static_cast<std::vector<cann_cpu::TilingField>*>(to)->push_back({field_type, name, count, is_struct});
      }};
  tiling_fields() = &fields;
  describe();
  tiling_fields() = nullptr;
  auto& r = cann_cpu::registry();
  const std::lock_guard lock(r.mutex);
  auto& known = r.current().tiling;
  // A header registers it in every file that includes it.
  const auto same = [&](const auto& each) { return each.type == tiling.type && each.struct_name == struct_name; };
  if (std::none_of(known.begin(), known.end(), same)) known.push_back(std::move(tiling));
}

}  // namespace optiling

// What a library defines, as JSON: for op_build, which opens it. Null, with the reason in `error`, if it does not load.
extern "C" CANN_EXPORT const char* cann_cpu_definitions(const char* library, const char** error) {
  static auto* const text = new std::string;
  try {
    cann_cpu::load_definitions(library);
    auto& r = cann_cpu::registry();
    const std::lock_guard lock(r.mutex);
    const auto& loaded = r.libraries[library];
    cann_cpu::Json::Array definitions;
    for (const auto& each : loaded.definitions) {
      if (!each.second->type.empty()) definitions.push_back(cann_cpu::json(*each.second));
    }
    const auto tiling = cann_cpu::listed(loaded.tiling, [](const auto& each) { return cann_cpu::json(each); });
    *text = cann_cpu::to_text(cann_cpu::Json::Object{{"operators", std::move(definitions)}, {"tiling", tiling}});
    return text->c_str();
  } catch (const std::exception& e) {
    *text = e.what();
    *error = text->c_str();
    return nullptr;
  }
}
