// SPDX-License-Identifier: Apache-2.0
// A stand-in for CANN's header of that name: it keeps what a definition says, and has the contexts that tiling
// functions read. Written from CANN's documentation; only what the definitions in opp/device use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ge {

using graphStatus = uint32_t;
constexpr graphStatus GRAPH_SUCCESS = 0, GRAPH_FAILED = 0xFFFFFFFF;

enum Format { FORMAT_ND = 2 };
enum DataType {
  DT_FLOAT = 0,
  DT_FLOAT16 = 1,
  DT_INT8 = 2,
  DT_INT32 = 3,
  DT_UINT8 = 4,
  DT_INT16 = 6,
  DT_INT64 = 9,
  DT_DOUBLE = 11,
  DT_BOOL = 12,
  DT_BF16 = 27,
  DT_UNDEFINED = 28,
};

inline int GetSizeByDataType(DataType type) {
  const std::map<DataType, int> sizes = {{DT_FLOAT, 4}, {DT_FLOAT16, 2}, {DT_INT8, 1},   {DT_INT32, 4}, {DT_UINT8, 1},
                                         {DT_INT16, 2}, {DT_INT64, 8},   {DT_DOUBLE, 8}, {DT_BOOL, 1},  {DT_BF16, 2}};
  return sizes.at(type);
}

}  // namespace ge

namespace gert {

struct Shape {
  std::vector<int64_t> sizes;
  std::size_t GetDimNum() const { return sizes.size(); }
  int64_t GetDim(std::size_t i) const { return sizes.at(i); }
  void SetDim(std::size_t i, int64_t size) { sizes.at(i) = size; }
};

struct StorageShape {
  Shape shape;
  const Shape& GetStorageShape() const { return shape; }
};

struct CompileTimeTensorDesc {
  ge::DataType type;
  ge::DataType GetDataType() const { return type; }
};

struct RuntimeAttrs {
  std::vector<int64_t> integers;
  std::vector<std::string> strings;
  const int64_t* GetInt(std::size_t i) const { return &integers.at(i); }
  const char* GetStr(std::size_t i) const { return strings.at(i).c_str(); }
};

struct Tensor {
  StorageShape shape;
  CompileTimeTensorDesc desc;
};

// The inputs are counted as the definition names them; one that is not given is null.
struct TilingContext {
  std::vector<std::unique_ptr<Tensor>> inputs;
  RuntimeAttrs attributes;
  alignas(8) char tiling[4096] = {};
  uint32_t blocks = 0;
  uint64_t key = 0;
  std::size_t workspaces[1] = {1};

  const StorageShape* GetRequiredInputShape(std::size_t i) const { return &inputs.at(i)->shape; }
  const StorageShape* GetOptionalInputShape(std::size_t i) const { return inputs.at(i) ? &inputs[i]->shape : nullptr; }
  const CompileTimeTensorDesc* GetRequiredInputDesc(std::size_t i) const { return &inputs.at(i)->desc; }
  const CompileTimeTensorDesc* GetOptionalInputDesc(std::size_t i) const {
    return inputs.at(i) ? &inputs[i]->desc : nullptr;
  }
  const RuntimeAttrs* GetAttrs() const { return &attributes; }
  template <class T>
  T* GetTilingData() {
    static_assert(sizeof(T) <= sizeof(tiling));
    return reinterpret_cast<T*>(tiling);
  }
  const void* GetPlatformInfo() const { return nullptr; }
  std::size_t* GetWorkspaceSizes(std::size_t) { return workspaces; }
  void SetBlockDim(uint32_t count) { blocks = count; }
  void SetTilingKey(uint64_t value) { key = value; }
};

struct InferShapeContext {
  std::vector<std::unique_ptr<Shape>> inputs;
  std::vector<Shape> outputs;
  const Shape* GetRequiredInputShape(std::size_t i) const { return inputs.at(i).get(); }
  const Shape* GetOptionalInputShape(std::size_t i) const { return inputs.at(i).get(); }
  Shape* GetOutputShape(std::size_t i) { return &outputs.at(i); }
};

struct InferDataTypeContext {
  std::vector<ge::DataType> inputs, outputs;
  ge::DataType GetRequiredInputDataType(std::size_t i) const { return inputs.at(i); }
  ge::DataType GetOptionalInputDataType(std::size_t i) const { return inputs.at(i); }
  void SetOutputDataType(std::size_t i, ge::DataType type) { outputs.at(i) = type; }
};

}  // namespace gert

namespace ops {

enum Option { IGNORE, OPTIONAL, REQUIRED, DYNAMIC };

struct OpParamDef {
  std::string name;
  Option presence = REQUIRED;
  std::vector<ge::DataType> types;
  std::vector<ge::Format> formats, formats_of_unknown_shapes;

  OpParamDef& ParamType(Option option) { return presence = option, *this; }
  OpParamDef& DataType(std::vector<ge::DataType> list) { return types = std::move(list), *this; }
  OpParamDef& Format(std::vector<ge::Format> list) { return formats = std::move(list), *this; }
  OpParamDef& UnknownShapeFormat(std::vector<ge::Format> list) {
    return formats_of_unknown_shapes = std::move(list), *this;
  }
};

struct OpAttrDef {
  std::string name, type, value;
  Option presence = REQUIRED;

  OpAttrDef& AttrType(Option option) { return presence = option, *this; }
  OpAttrDef& Int() { return type = "Int", *this; }
  OpAttrDef& String(const char* text) { return type = "String", value = text, *this; }
};

struct OpAICoreDef {
  ge::graphStatus (*tiling)(gert::TilingContext*) = nullptr;
  std::vector<std::string> socs;

  OpAICoreDef& SetTiling(ge::graphStatus (*function)(gert::TilingContext*)) { return tiling = function, *this; }
  void AddConfig(const char* soc) { socs.emplace_back(soc); }
};

struct OpDef {
  explicit OpDef(const char* name) : type(name) {}

  std::string type;
  std::vector<OpParamDef> inputs, outputs;
  std::vector<OpAttrDef> attributes;
  OpAICoreDef core;
  ge::graphStatus (*shape)(gert::InferShapeContext*) = nullptr;
  ge::graphStatus (*data_type)(gert::InferDataTypeContext*) = nullptr;

  OpParamDef& Input(const char* name) { return inputs.push_back({name, {}, {}, {}, {}}), inputs.back(); }
  OpParamDef& Output(const char* name) { return outputs.push_back({name, {}, {}, {}, {}}), outputs.back(); }
  OpAttrDef& Attr(const char* name) { return attributes.push_back({name, {}, {}, {}}), attributes.back(); }
  OpDef& SetInferShape(ge::graphStatus (*function)(gert::InferShapeContext*)) { return shape = function, *this; }
  OpDef& SetInferDataType(ge::graphStatus (*function)(gert::InferDataTypeContext*)) {
    return data_type = function, *this;
  }
  OpAICoreDef& AICore() { return core; }
};

inline std::map<std::string, OpDef>& definitions() {
  static std::map<std::string, OpDef> all;
  return all;
}

}  // namespace ops

#define OP_ADD(Type) \
  [[maybe_unused]] static const bool g_added_##Type = ops::definitions().emplace(#Type, Type(#Type)).second
