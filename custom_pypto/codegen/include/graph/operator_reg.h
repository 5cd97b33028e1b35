// SPDX-License-Identifier: Apache-2.0
// The collecting stand-in for CANN's operator_reg.h: a header of prototypes that is compiled against it records what it
// says in prototypes(). A macro that the generated Python API cannot express (GRAPH, OPTIONAL_OUTPUT, ...) or an
// attribute type that torchair has not (Tensor, NamedAttrs, ...) is not defined: the compiler names it and the line.
#pragma once

#include "prototype.h"

// The C++ type of each attribute type, as ATTR and REQUIRED_ATTR name it.
namespace ge::attribute {
using Int = int64_t;
using Float = float;
using Bool = bool;
using String = std::string;
using Type = DataType;
using ListInt = std::vector<Int>;
using ListFloat = std::vector<Float>;
using ListBool = std::vector<Bool>;
using ListString = std::vector<String>;
using ListType = std::vector<Type>;
using ListListInt = std::vector<ListInt>;
using ListListFloat = std::vector<ListFloat>;
}  // namespace ge::attribute

#define REG_OP(type) REG_OP_AT(type, __COUNTER__)
#define REG_OP_AT(type, count) REG_OP_NAMED(type, count)
#define REG_OP_NAMED(type, count) \
  [[maybe_unused]] static const bool g_prototype_##count = ::ge::codegen::PrototypeBuilder(#type, __FILE__, __LINE__)
#define OP_END_FACTORY_REG(type) End(#type);

#define INPUT(name, types) AddInput(#name, #types, ::ge::codegen::Presence::kRequired)
#define OPTIONAL_INPUT(name, types) AddInput(#name, #types, ::ge::codegen::Presence::kOptional)
#define DYNAMIC_INPUT(name, types) AddInput(#name, #types, ::ge::codegen::Presence::kDynamic)
#define OUTPUT(name, types) AddOutput(#name, #types, false)
#define DYNAMIC_OUTPUT(name, types) AddOutput(#name, #types, true)
#define DATATYPE(symbol, types) AddTypeSymbol(#symbol, #types)
#define ATTR(name, type, ...) AddAttribute(#name, ::ge::attribute::type(__VA_ARGS__))
#define REQUIRED_ATTR(name, type) AddRequiredAttribute<::ge::attribute::type>(#name)
