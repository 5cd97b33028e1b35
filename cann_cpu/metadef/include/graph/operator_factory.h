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
};

// Registers a prototype while its library is loaded.
class CANN_EXPORT OperatorCreatorRegister {
 public:
  OperatorCreatorRegister(const char_t* const operator_type, OpCreatorV2 const& op_creator);
  ~OperatorCreatorRegister() = default;
};

}  // namespace ge
