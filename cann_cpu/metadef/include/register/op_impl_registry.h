// SPDX-License-Identifier: Apache-2.0
// IMPL_OP_OPTILING(Type).Tiling(function), IMPL_OP_INFERSHAPE(Type).InferShape(function): the functions of an operator,
// where they stand apart from its definition.
#pragma once

#include "exe_graph/runtime/tiling_parse_context.h"
#include "register/op_def.h"
#include "register/tilingdata_base.h"

namespace gert {

class CANN_EXPORT OpImplRegister {
 public:
  explicit OpImplRegister(const char* type) : type_(type) {}

  OpImplRegister& InferShape(ops::InferShapeFunction function);
  OpImplRegister& InferDataType(ops::InferDataTypeFunction function);
  OpImplRegister& Tiling(ops::TilingFunction function);
  template <class CompileInfo>
  OpImplRegister& TilingParse(ge::graphStatus (*function)(TilingParseContext*)) {
    return parse(
        function, []() -> void* { return new CompileInfo(); },
        [](void* info) { delete static_cast<CompileInfo*>(info); });
  }
  OpImplRegister& InputsDataDependency(std::initializer_list<int32_t> inputs);
  OpImplRegister& TilingInputsDataDependency(std::initializer_list<int32_t> inputs) {
    return InputsDataDependency(inputs);
  }

 private:
  OpImplRegister& parse(ge::graphStatus (*function)(TilingParseContext*), void* (*make)(), void (*remove)(void*));

  const char* type_;
};

}  // namespace gert

#ifndef CANN_CPU_JOIN
#define CANN_CPU_JOIN_(a, b) a##b
#define CANN_CPU_JOIN(a, b) CANN_CPU_JOIN_(a, b)
#endif
#define IMPL_OP(Type) \
  static const ::gert::OpImplRegister CANN_CPU_JOIN(g_implementation_, __COUNTER__) = ::gert::OpImplRegister(#Type)
#define IMPL_OP_INFERSHAPE(Type) IMPL_OP(Type)
#define IMPL_OP_INFERDATATYPE(Type) IMPL_OP(Type)
#define IMPL_OP_OPTILING(Type) IMPL_OP(Type)
