// SPDX-License-Identifier: Apache-2.0
// ops::OpDef and its parts. They record an author's definition.
#include "register/op_def.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <stdexcept>

#include "definition.h"

namespace ops {
namespace {

OpParamDef& parameter(std::list<ParamDefinition>& parameters, const char* name) {
  // OpParamDef has nothing but the pointer: one for each parameter lives as long as the process.
  static auto* const handles = new std::list<OpParamDef>;
  auto found = std::find_if(parameters.begin(), parameters.end(), [&](const auto& each) { return each.name == name; });
  if (found == parameters.end()) {
    parameters.emplace_back();
    found = std::prev(parameters.end());
    found->name = name;
  }
  handles->emplace_back(&*found);
  return handles->back();
}

// How ATTR of REG_OP writes a float: with a point, and enough digits to be read back.
std::string written(float value) {
  char text[48];
  char* const end = std::to_chars(text, std::end(text), value, std::chars_format::general).ptr;
  const std::string result(text, end);
  return result.find_first_of(".en") == std::string::npos ? result + ".0" : result;
}
std::string written(int64_t value) { return std::to_string(value); }
std::string written(bool value) { return value ? "true" : "false"; }
std::string written(const char* value) {
  std::string text = "\"";
  for (; *value != '\0'; ++value) {
    if (*value == '"' || *value == '\\') text += '\\';
    if (std::iscntrl(static_cast<unsigned char>(*value))) {
      char octal[5];
      std::snprintf(octal, sizeof(octal), "\\%03o", *value);
      text += octal;
    } else {
      text += *value;
    }
  }
  return text + '"';
}
template <class T>
std::string written(const std::vector<T>& values) {
  std::string text;
  for (const T value : values) text += (text.empty() ? "" : ", ") + written(value);
  return "{" + text + "}";
}
template <>
std::string written(const std::vector<std::vector<int64_t>>& values) {
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : ", ") + written(value);
  return "{" + text + "}";
}

}  // namespace

OpParamDef& OpParamDef::ParamType(Option presence) { return definition_->presence = presence, *this; }
OpParamDef& OpParamDef::DataType(std::vector<ge::DataType> types) {
  return definition_->types = std::move(types), definition_->types_combine = false, *this;
}
OpParamDef& OpParamDef::DataTypeList(std::vector<ge::DataType> types) {
  return definition_->types = std::move(types), definition_->types_combine = true, *this;
}
OpParamDef& OpParamDef::Format(std::vector<ge::Format> formats) {
  return definition_->formats = std::move(formats), definition_->formats_combine = false, *this;
}
OpParamDef& OpParamDef::FormatList(std::vector<ge::Format> formats) {
  return definition_->formats = std::move(formats), definition_->formats_combine = true, *this;
}
OpParamDef& OpParamDef::UnknownShapeFormat(std::vector<ge::Format>) { return *this; }
OpParamDef& OpParamDef::ValueDepend(Option) { return definition_->value_depends = true, *this; }
OpParamDef& OpParamDef::AutoContiguous() { return definition_->any_strides = false, *this; }
OpParamDef& OpParamDef::IgnoreContiguous() { return definition_->any_strides = true, *this; }

namespace {
[[noreturn]] void not_served(const ParamDefinition& parameter, const char* what) {
  std::fprintf(stderr, "cann_cpu: %s of parameter %s in an OpDef is not served\n", what, parameter.name.c_str());
  throw std::invalid_argument(parameter.name + ": " + what + " in an OpDef is not served by cann_cpu");
}
}  // namespace
OpParamDef& OpParamDef::Scalar() { not_served(*definition_, "Scalar()"); }
OpParamDef& OpParamDef::ScalarList() { not_served(*definition_, "ScalarList()"); }
OpParamDef& OpParamDef::To(ge::DataType) { not_served(*definition_, "To()"); }
OpParamDef& OpParamDef::To(const char*) { not_served(*definition_, "To()"); }
OpParamDef& OpParamDef::Follow(const char*) { not_served(*definition_, "Follow()"); }
OpParamDef& OpParamDef::InitValue(uint64_t) { not_served(*definition_, "InitValue()"); }
OpParamDef& OpParamDef::OutputShapeDependOnCompute() { not_served(*definition_, "OutputShapeDependOnCompute()"); }

OpAttrDef& OpAttrDef::AttrType(Option presence) { return definition_->presence = presence, *this; }

#define DEFINE_ATTRIBUTE(Type, Parameter, member)                           \
  OpAttrDef& OpAttrDef::Type() { return definition_->type = #Type, *this; } \
  OpAttrDef& OpAttrDef::Type(Parameter value) {                             \
    definition_->value = written(value);                                    \
    definition_->has_value = true;                                          \
    definition_->member;                                                    \
    return Type();                                                          \
  }
DEFINE_ATTRIBUTE(Bool, bool, integer = value)
DEFINE_ATTRIBUTE(Int, int64_t, integer = value)
DEFINE_ATTRIBUTE(Float, float, real = value)
DEFINE_ATTRIBUTE(String, const char*, text = value)
DEFINE_ATTRIBUTE(ListBool, std::vector<bool>, flags.assign(value.begin(), value.end()))
DEFINE_ATTRIBUTE(ListInt, std::vector<int64_t>, integers = value)
DEFINE_ATTRIBUTE(ListFloat, std::vector<float>, reals = value)
DEFINE_ATTRIBUTE(ListListInt, std::vector<std::vector<int64_t>>, integers.clear())
#undef DEFINE_ATTRIBUTE

OpAICoreConfig::OpAICoreConfig() : definition_(std::make_shared<ConfigDefinition>()) {}
OpAICoreConfig::OpAICoreConfig(const char*) : OpAICoreConfig() {}
OpParamDef& OpAICoreConfig::Input(const char* name) { return parameter(definition_->inputs, name); }
OpParamDef& OpAICoreConfig::Output(const char* name) { return parameter(definition_->outputs, name); }
// It chooses among CANN's ways to compile and find a kernel. Here there is only one.
OpAICoreConfig& OpAICoreConfig::ExtendCfgInfo(const char*, const char*) { return *this; }

OpAICoreDef& OpAICoreDef::SetTiling(TilingFunction function) { return definition_->tiling = function, *this; }
OpAICoreDef& OpAICoreDef::AddConfig(const char* soc) { return definition_->socs.emplace_back(soc, nullptr), *this; }
OpAICoreDef& OpAICoreDef::AddConfig(const char* soc, const OpAICoreConfig& config) {
  return definition_->socs.emplace_back(soc, config.definition_), *this;
}

OpMC2Def& OpMC2Def::HcclGroup(const char* value) { return HcclGroup(std::vector<const char*>{value}); }
OpMC2Def& OpMC2Def::HcclGroup(std::vector<const char*> value) {
  return definition_->attributes.assign(value.begin(), value.end()), *this;
}

OpDef::OpDef(const char* type) : definition_(std::make_shared<Definition>()) { definition_->type = type; }
OpParamDef& OpDef::Input(const char* name) { return parameter(definition_->inputs, name); }
OpParamDef& OpDef::Output(const char* name) { return parameter(definition_->outputs, name); }
OpAttrDef& OpDef::Attr(const char* name) {
  static auto* const handles = new std::list<OpAttrDef>;
  definition_->attributes.emplace_back();
  definition_->attributes.back().name = name;
  handles->emplace_back(&definition_->attributes.back());
  return handles->back();
}
OpDef& OpDef::SetInferShape(InferShapeFunction function) { return definition_->infer_shape = function, *this; }
OpDef& OpDef::SetInferDataType(InferDataTypeFunction function) {
  return definition_->infer_data_type = function, *this;
}
OpAICoreDef& OpDef::AICore() {
  static auto* const handles = new std::list<OpAICoreDef>;
  definition_->core.defined = true;
  handles->emplace_back(&definition_->core);
  return handles->back();
}
OpMC2Def& OpDef::MC2() {
  static auto* const handles = new std::list<OpMC2Def>;
  handles->emplace_back(&definition_->groups);
  return handles->back();
}

Parameters Definition::on(const std::string& family) const {
  Parameters all = *this;
  for (const auto& [soc, config] : core.socs) {
    if (soc != family || config == nullptr) continue;
    const auto replace = [](std::list<ParamDefinition>& to, const std::list<ParamDefinition>& from) {
      for (ParamDefinition& each : to) {
        for (const ParamDefinition& special : from) {
          if (special.name == each.name) each = special;
        }
      }
    };
    replace(all.inputs, config->inputs);
    replace(all.outputs, config->outputs);
  }
  return all;
}

std::vector<Combination> combinations(const std::string& type, const Parameters& parameters) {
  std::vector<const ParamDefinition*> all;
  for (const auto& each : parameters.inputs) all.push_back(&each);
  for (const auto& each : parameters.outputs) all.push_back(&each);
  // Lists that go side by side have one length.
  size_t length = 1;
  const ParamDefinition* first = nullptr;
  for (const ParamDefinition* each : all) {
    if (each->types.empty()) throw std::invalid_argument(type + ": " + each->name + " has no dtype");
    if (each->types_combine) continue;
    if (first == nullptr) first = each, length = each->types.size();
    if (each->types.size() != length) {
      throw std::invalid_argument(type + ": DataType of " + each->name + " has " + std::to_string(each->types.size()) +
                                  " entries, that of " + first->name + " has " + std::to_string(length));
    }
    if (!each->formats_combine && !each->formats.empty() && each->formats.size() != length) {
      throw std::invalid_argument(type + ": Format of " + each->name + " has " + std::to_string(each->formats.size()) +
                                  " entries, its DataType has " + std::to_string(length));
    }
  }
  std::vector<Combination> result(length);
  for (const ParamDefinition* each : all) {
    const std::vector<ge::Format> nd{ge::FORMAT_ND}, &formats = each->formats.empty() ? nd : each->formats;
    const size_t types = each->types_combine ? each->types.size() : 1;
    const size_t layouts = each->formats_combine ? formats.size() : 1;
    std::vector<Combination> longer;  // choice by choice what there is, so that its column stays i % length
    for (size_t choice = 0; choice < types * layouts; ++choice) {
      for (size_t i = 0; i < result.size(); ++i) {
        const size_t column = i % length;
        longer.push_back(result[i]);
        longer.back().types.push_back(each->types[each->types_combine ? choice / layouts : column]);
        longer.back().formats.push_back(formats[each->formats_combine     ? choice % layouts
                                                : column < formats.size() ? column
                                                                          : 0]);
      }
    }
    result = std::move(longer);
  }
  return result;
}

}  // namespace ops
