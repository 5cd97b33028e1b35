// SPDX-License-Identifier: Apache-2.0
// The definitions that libraries register when they are loaded, by library, and what op_build reads of them.
#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <stdexcept>

#include "cann_cpu/json_text.h"
#include "cann_cpu/open_library.h"
#include "definition.h"
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

template <class List, class Print>
std::string listed(const List& list, const Print& print) {
  std::string text = "[";
  for (const auto& each : list) {
    if (text.size() > 1) text += ", ";
    text += print(each);
  }
  return text += "]";
}

const char* text_of(ops::Option presence) {
  return presence == ops::OPTIONAL ? "optional" : presence == ops::DYNAMIC ? "dynamic" : "required";
}

std::string json(const ops::ParamDefinition& parameter) {
  const auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
  return std::string("{\"name\": ") + quote(parameter.name) + ", \"presence\": \"" + text_of(parameter.presence) +
         "\", \"types\": " + listed(parameter.types, number) + ", \"formats\": " + listed(parameter.formats, number) +
         ", \"value_depends\": " + (parameter.value_depends ? "true" : "false") + "}";
}

std::string json(const ops::AttrDefinition& attribute) {
  return std::string("{\"name\": ") + quote(attribute.name) + ", \"presence\": \"" + text_of(attribute.presence) +
         "\", \"type\": " + quote(attribute.type) +
         ", \"value\": " + (attribute.has_value ? quote(attribute.value) : "null") + "}";
}

std::string json(const std::string& type, const ops::Parameters& parameters) {
  const auto param = [](const auto& each) { return json(each); };
  const auto numbers = [](const auto& list) {
    return listed(list, [](auto value) { return std::to_string(static_cast<int>(value)); });
  };
  return std::string("\"inputs\": ") + listed(parameters.inputs, param) +
         ", \"outputs\": " + listed(parameters.outputs, param) +
         ", \"combinations\": " + listed(combinations(type, parameters), [&](const ops::Combination& each) {
           return std::string("[") + numbers(each.types) + ", " + numbers(each.formats) + "]";
         });
}

std::string json(const ops::Definition& definition) {
  std::string socs;
  for (const auto& soc : definition.core.socs) {
    socs +=
        (socs.empty() ? "" : ", ") + quote(soc.first) + ": {" + json(definition.type, definition.on(soc.first)) + "}";
  }
  return std::string("{\"type\": ") + quote(definition.type) + ", " + json(definition.type, definition) +
         ", \"attributes\": " + listed(definition.attributes, [](const auto& each) { return json(each); }) +
         ", \"ai_core\": " + (definition.core.defined ? "true" : "false") +
         ", \"read_inputs\": " + listed(definition.read_inputs, [](int32_t i) { return std::to_string(i); }) +
         ", \"tiles\": " + (definition.core.tiling ? "true" : "false") + ", \"socs\": {" + socs + "}}";
}

std::string json(const TilingClass& tiling) {
  return std::string("{\"type\": ") + quote(tiling.type) + ", \"struct\": " + quote(tiling.struct_name) +
         ", \"bytes\": " + std::to_string(tiling.bytes) + ", \"fields\": " +
         listed(tiling.fields,
                [](const TilingField& field) {
                  return std::string("[") + quote(field.type) + ", " + quote(field.name) + ", " +
                         std::to_string(field.count) + ", " + (field.is_struct ? "true" : "false") + "]";
                }) +
         "}";
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

OpDefRegistration::OpDefRegistration(const char* type, const OpDef& op) {
  auto& r = cann_cpu::registry();
  const std::lock_guard lock(r.mutex);
  Definition& definition = r.current().of(type);
  const Definition functions = definition;
  definition = *op.definition();
  if (functions.core.tiling) definition.core.tiling = functions.core.tiling;
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
    std::string definitions;
    for (const auto& each : loaded.definitions) {
      if (!each.second->type.empty()) definitions += (definitions.empty() ? "" : ", ") + cann_cpu::json(*each.second);
    }
    *text = std::string("{\"operators\": [") + definitions +
            "], \"tiling\": " + cann_cpu::listed(loaded.tiling, [](const auto& each) { return cann_cpu::json(each); }) +
            "}";
    return text->c_str();
  } catch (const std::exception& e) {
    *text = e.what();
    *error = text->c_str();
    return nullptr;
  }
}
