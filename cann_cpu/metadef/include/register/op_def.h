// SPDX-License-Identifier: Apache-2.0
// ops::OpDef: what an author says of an operator. Compiles as C++11 and with either ABI of std::string, as the builds
// of operator projects ask for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cann_cpu/export.h"
#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"
#include "exe_graph/runtime/tiling_context.h"
#include "graph/ge_error_codes.h"
#include "graph/types.h"

namespace gert {
class TilingParseContext;
}

namespace ops {

enum Option { IGNORE = 0, OPTIONAL = 1, REQUIRED = 2, DYNAMIC = 3, VIRTUAL = 4 };
enum class ItemFindStatus { ITEM_FIND = 0, ITEM_NOEXIST = 1 };
enum class DependScope { ALL = 0, TILING = 1, INVALID_SCOPE };

struct ParamDefinition;
struct AttrDefinition;
struct CoreDefinition;
struct GroupDefinition;
struct ConfigDefinition;
struct Definition;

using InferShapeFunction = ge::graphStatus (*)(gert::InferShapeContext*);
using InferDataTypeFunction = ge::graphStatus (*)(gert::InferDataTypeContext*);
using TilingFunction = ge::graphStatus (*)(gert::TilingContext*);

class CANN_EXPORT OpParamDef {
 public:
  explicit OpParamDef(ParamDefinition* definition) : definition_(definition) {}

  OpParamDef& ParamType(Option presence);
  OpParamDef& DataType(std::vector<ge::DataType> types);
  OpParamDef& DataTypeList(std::vector<ge::DataType> types);
  OpParamDef& Format(std::vector<ge::Format> formats);
  OpParamDef& FormatList(std::vector<ge::Format> formats);
  OpParamDef& DataTypeForBinQuery(std::vector<ge::DataType>) { return *this; }
  OpParamDef& FormatForBinQuery(std::vector<ge::Format>) { return *this; }
  OpParamDef& UnknownShapeFormat(std::vector<ge::Format> formats);
  OpParamDef& ValueDepend(Option depends);
  OpParamDef& ValueDepend(Option depends, DependScope) { return ValueDepend(depends); }
  OpParamDef& AutoContiguous();
  OpParamDef& IgnoreContiguous();
  OpParamDef& Scalar();
  OpParamDef& ScalarList();
  OpParamDef& To(ge::DataType type);
  OpParamDef& To(const char* name);
  OpParamDef& Follow(const char* name);
  OpParamDef& InitValue(uint64_t value);
  OpParamDef& OutputShapeDependOnCompute();
  OpParamDef& Version(uint32_t) { return *this; }
  OpParamDef& Comment(const char*) { return *this; }

 private:
  ParamDefinition* definition_;
};

class CANN_EXPORT OpAttrDef {
 public:
  explicit OpAttrDef(AttrDefinition* definition) : definition_(definition) {}

  OpAttrDef& AttrType(Option presence);
  OpAttrDef& Bool();
  OpAttrDef& Bool(bool value);
  OpAttrDef& Int();
  OpAttrDef& Int(int64_t value);
  OpAttrDef& Float();
  OpAttrDef& Float(float value);
  OpAttrDef& String();
  OpAttrDef& String(const char* value);
  OpAttrDef& ListBool();
  OpAttrDef& ListBool(std::vector<bool> value);
  OpAttrDef& ListInt();
  OpAttrDef& ListInt(std::vector<int64_t> value);
  OpAttrDef& ListFloat();
  OpAttrDef& ListFloat(std::vector<float> value);
  OpAttrDef& ListListInt();
  OpAttrDef& ListListInt(std::vector<std::vector<int64_t>> value);
  OpAttrDef& Version(uint32_t) { return *this; }
  OpAttrDef& Comment(const char*) { return *this; }

 private:
  AttrDefinition* definition_;
};

// What differs for one SoC.
class CANN_EXPORT OpAICoreConfig {
 public:
  OpAICoreConfig();
  explicit OpAICoreConfig(const char* soc);

  OpParamDef& Input(const char* name);
  OpParamDef& Output(const char* name);
  OpAICoreConfig& DynamicCompileStaticFlag(bool) { return *this; }
  OpAICoreConfig& DynamicFormatFlag(bool) { return *this; }
  OpAICoreConfig& DynamicRankSupportFlag(bool) { return *this; }
  OpAICoreConfig& DynamicShapeSupportFlag(bool) { return *this; }
  OpAICoreConfig& NeedCheckSupportFlag(bool) { return *this; }
  OpAICoreConfig& PrecisionReduceFlag(bool) { return *this; }
  OpAICoreConfig& ExtendCfgInfo(const char* key, const char* value);

 private:
  friend class OpAICoreDef;
  std::shared_ptr<ConfigDefinition> definition_;
};

class CANN_EXPORT OpAICoreDef {
 public:
  explicit OpAICoreDef(CoreDefinition* definition) : definition_(definition) {}

  OpAICoreDef& SetTiling(TilingFunction function);
  OpAICoreDef& SetCheckSupport(ge::graphStatus (*)(const void*, void*)) { return *this; }
  OpAICoreDef& AddConfig(const char* soc);
  OpAICoreDef& AddConfig(const char* soc, const OpAICoreConfig& config);

 private:
  CoreDefinition* definition_;
};

enum HcclServerType : uint32_t { AICPU = 0, AICORE, CCU, MAX };

// The groups of communicators of an operator, by the names of the attributes that name them.
class CANN_EXPORT OpMC2Def {
 public:
  explicit OpMC2Def(GroupDefinition* definition) : definition_(definition) {}

  OpMC2Def& HcclGroup(const char* value);
  OpMC2Def& HcclGroup(std::vector<const char*> value);
  // Who runs the collectives is one on the CPU.
  void HcclServerType(enum HcclServerType, const char* /*soc*/ = nullptr) {}

 private:
  GroupDefinition* definition_;
};

class CANN_EXPORT OpDef {
 public:
  explicit OpDef(const char* type);

  OpParamDef& Input(const char* name);
  OpParamDef& Output(const char* name);
  OpAttrDef& Attr(const char* name);
  OpDef& SetInferShape(InferShapeFunction function);
  OpDef& SetInferDataType(InferDataTypeFunction function);
  OpDef& SetInferShapeRange(ge::graphStatus (*)(void*)) { return *this; }
  OpDef& Comment(const char*) { return *this; }
  OpAICoreDef& AICore();
  OpMC2Def& MC2();

  const std::shared_ptr<Definition>& definition() const { return definition_; }

 private:
  std::shared_ptr<Definition> definition_;
};

struct CANN_EXPORT OpDefRegistration {
  OpDefRegistration(const char* type, const OpDef& definition);
};

}  // namespace ops
