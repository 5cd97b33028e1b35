// SPDX-License-Identifier: Apache-2.0
// REG_OP: declares an operator's prototype (inputs, outputs and attributes in IR order) and registers it when its
// library is loaded.
//
//   REG_OP(AddCustom)
//       .INPUT(self, TensorType({DT_FLOAT, DT_FLOAT16}))
//       .OUTPUT(out, TensorType({DT_FLOAT, DT_FLOAT16}))
//       .ATTR(alpha, Float, 1.0)
//       .OP_END_FACTORY_REG(AddCustom)
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/operator.h"
#include "graph/operator_factory.h"

namespace ge {

// What REG_OP's class derives from: each macro of the chain is one call of these.
class OperatorPrototype : public Operator {
 public:
  OperatorPrototype(const AscendString& name, const char* type) : Operator(name, AscendString(type)) {}

  // The types are not evaluated, as in CANN: prototypes name some that have other names here, as DT_FP8_E5M2.
  OperatorPrototype& Input(const char* name, const char* types) {
    InputRegister(name, types);
    return *this;
  }
  OperatorPrototype& OptionalInput(const char* name, const char* types) {
    OptionalInputRegister(name, types);
    return *this;
  }
  OperatorPrototype& DynamicInput(const char* name, const char* types) {
    DynamicInputRegister(name, 0, types, true);
    return *this;
  }
  OperatorPrototype& Output(const char* name, const char* types) {
    OutputRegister(name, types);
    return *this;
  }
  OperatorPrototype& DynamicOutput(const char* name, const char* types) {
    DynamicOutputRegister(name, 0, types, true);
    return *this;
  }
  OperatorPrototype& DataTypeSymbol(const char* symbol, const TensorType& types) {
    DataTypeRegister(symbol, types);
    return *this;
  }
  template <typename T>
  OperatorPrototype& Attr(const char* name, const T& value) {
    AttrRegister(name, value);
    return *this;
  }
  OperatorPrototype& Attr(const char* name, const std::string& value) {
    AttrRegister(name, AscendString(value.c_str()));
    return *this;
  }
  OperatorPrototype& Attr(const char* name, const std::vector<std::string>& values) {
    std::vector<AscendString> strings;
    for (const auto& value : values) {
      strings.emplace_back(value.c_str());
    }
    AttrRegister(name, strings);
    return *this;
  }
  // `size` is there to have the compiler check the type that the macro was given.
  OperatorPrototype& RequiredAttr(const char* name, const char* type, size_t) {
    RequiredAttrWithTypeRegister(name, type);
    return *this;
  }
  OperatorPrototype& End() { return *this; }
};

}  // namespace ge

#define CANN_CPU_CONCAT_(a, b) a##b
#define CANN_CPU_CONCAT(a, b) CANN_CPU_CONCAT_(a, b)

#define REG_OP(type)                                                                 \
  namespace op {                                                                     \
  class type : public ::ge::OperatorPrototype {                                      \
   public:                                                                           \
    explicit type(const ::ge::AscendString& name) : OperatorPrototype(name, #type) { \
      (*this)

#define INPUT(name, types) Input(#name, #types)
#define OPTIONAL_INPUT(name, types) OptionalInput(#name, #types)
#define DYNAMIC_INPUT(name, types) DynamicInput(#name, #types)
#define OUTPUT(name, types) Output(#name, #types)
#define DYNAMIC_OUTPUT(name, types) DynamicOutput(#name, #types)
#define DATATYPE(symbol, types) DataTypeSymbol(#symbol, types)
#define ATTR(name, type, ...) Attr(#name, Op##type(__VA_ARGS__))
#define REQUIRED_ATTR(name, type) RequiredAttr(#name, #type, sizeof(Op##type))

#define OP_END_FACTORY_REG(type)                                                           \
  End();                                                                                   \
  }                                                                                        \
  }                                                                                        \
  ;                                                                                        \
  static const ::ge::OperatorCreatorRegister CANN_CPU_CONCAT(g_register, __COUNTER__)(     \
      #type, [](const ::ge::AscendString& name) -> ::ge::Operator { return type(name); }); \
  }
