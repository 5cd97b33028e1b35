// SPDX-License-Identifier: Apache-2.0
// ge::OperatorFactory: the registered prototypes by operator type.
#pragma once

#include <functional>

#include "graph/operator.h"

namespace ge {

using OpCreatorV2 = std::function<Operator(const AscendString&)>;

class CANN_EXPORT OperatorFactory {
 public:
  // An empty operator when the type is unknown.
  static Operator CreateOperator(const char_t* const operator_name, const char_t* const operator_type);
  static bool IsExistOp(const char_t* const operator_type);
#if !_GLIBCXX_USE_CXX11_ABI
  static Operator CreateOperator(const std::string& operator_name, const std::string& operator_type);
  static bool IsExistOp(const std::string& operator_type);
#endif
};

// Registers a prototype while its library is loaded.
class CANN_EXPORT OperatorCreatorRegister {
 public:
  OperatorCreatorRegister(const char_t* const operator_type, OpCreatorV2 const& op_creator);
#if !_GLIBCXX_USE_CXX11_ABI
  OperatorCreatorRegister(const std::string& operator_type,
                          const std::function<Operator(const std::string&)>& op_creator);
#endif
  ~OperatorCreatorRegister() = default;
};

#if !_GLIBCXX_USE_CXX11_ABI
// Registers a function that infers shapes of a graph's nodes; see Operator::InferFuncRegister.
class CANN_EXPORT InferShapeFuncRegister {
 public:
  InferShapeFuncRegister(const std::string& operator_type, const std::function<graphStatus(Operator&)>& infer);
  ~InferShapeFuncRegister() = default;
};
#endif

}  // namespace ge
