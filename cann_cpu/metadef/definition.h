// SPDX-License-Identifier: Apache-2.0
// The contents of OpDef and its parts, and the registry of definitions.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "register/op_def.h"

namespace ops {

struct ParamDefinition {
  std::string name;
  Option presence = REQUIRED;
  std::vector<ge::DataType> types;
  std::vector<ge::Format> formats;
  bool types_combine = false;  // DataTypeList: any of them with any of the others'
  bool formats_combine = false;
  bool value_depends = false;
  bool any_strides = false;  // IgnoreContiguous: the kernel takes views as they lie
};

struct AttrDefinition {
  std::string name;
  Option presence = REQUIRED;
  std::string type;  // "Int", "ListFloat", ...
  bool has_value = false;
  std::string value;  // as REG_OP's ATTR writes it
  // The value itself. Only the member of the type is used.
  int64_t integer = 0;
  float real = 0;
  std::string text;
  std::vector<int64_t> integers;
  std::vector<float> reals;
  std::vector<char> flags;
};

struct Parameters {
  // Lists, for OpParamDef keeps pointers to their elements.
  std::list<ParamDefinition> inputs, outputs;
};

struct ConfigDefinition : Parameters {};

struct CoreDefinition {
  bool defined = false;  // AICore() was called: there is a kernel for it
  TilingFunction tiling = nullptr;
  TilingFunction device_tiling = nullptr;  // by DEVICE_IMPL_OP_OPTILING
  TilingFunction tiler() const { return tiling != nullptr ? tiling : device_tiling; }
  std::vector<std::pair<std::string, std::shared_ptr<ConfigDefinition>>> socs;
};

struct GroupDefinition {
  static constexpr size_t kMost = 2;
  std::vector<std::string> attributes;  // that name the groups
};

struct Definition : Parameters {
  std::string type;
  std::list<AttrDefinition> attributes;
  CoreDefinition core;
  GroupDefinition groups;
  InferShapeFunction infer_shape = nullptr;
  InferDataTypeFunction infer_data_type = nullptr;
  ge::graphStatus (*parse)(gert::TilingParseContext*) = nullptr;
  void* (*make_compile_info)() = nullptr;
  std::vector<int32_t> read_inputs;  // InputsDataDependency: whose values these functions read

  // The parameters on a SoC: those of its configuration go before.
  CANN_EXPORT Parameters on(const std::string& family) const;
};

// One dtype and one format for each parameter, inputs then outputs.
struct Combination {
  std::vector<ge::DataType> types;
  std::vector<ge::Format> formats;
};
// Throws std::invalid_argument for lists that do not fit each other.
CANN_EXPORT std::vector<Combination> combinations(const std::string& type, const Parameters& parameters);

}  // namespace ops

namespace cann_cpu {

// Opens the library whose definitions are not yet known, and keeps them under its path. Throws std::runtime_error.
CANN_EXPORT void load_definitions(const std::string& library);
// Lets load_definitions of the library that is being loaded fail, with this reason.
void reject_library(const std::string& reason);
// Null if the library has none of this type.
CANN_EXPORT std::shared_ptr<const ops::Definition> find_definition(const std::string& library, const std::string& type);

// AddCustom -> add_custom: the name of an operator's files and of its kernel.
CANN_EXPORT std::string snake_case(const std::string& type);

}  // namespace cann_cpu
