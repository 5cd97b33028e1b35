// SPDX-License-Identifier: Apache-2.0
// The Graph Engine's side of the table of element types.
#include "dtypes.h"

#include "cann_cpu/scalar_types.h"
#include "model.h"

namespace cann_cpu::graph {

#define X(name, pytorch, bytes, model, aten) \
  static_assert(static_cast<int>(ge::DT_##name) == static_cast<int>(ACL_##name), "GE and ACL number types alike");
CANN_CPU_DTYPES(X)
#undef X

ge::DataType dtype_of_model(int64_t number) {
  switch (number) {
#define X(name, pytorch, bytes, model, aten) \
  case model:                                \
    return ge::DT_##name;
    CANN_CPU_DTYPES(X)
#undef X
    default:
      return ge::DT_UNDEFINED;
  }
}

std::string dtype_name(ge::DataType dtype) {
  switch (dtype) {
#define X(name, pytorch, bytes, model, aten) \
  case ge::DT_##name:                        \
    return "DT_" #name;
    CANN_CPU_DTYPES(X)
#undef X
    case ge::DT_UNDEFINED:
      return "DT_UNDEFINED";
    default:
      return "data type " + std::to_string(static_cast<int>(dtype));
  }
}

at::ScalarType scalar_type(ge::DataType dtype) {
  const at::ScalarType type = scalar_type_or_undefined(static_cast<aclDataType>(dtype));
  if (type == at::ScalarType::Undefined) {
    throw GraphError(dtype_name(dtype) + " is not supported on the CPU");
  }
  return type;
}

ge::DataType ge_dtype(at::ScalarType type) {
  const aclDataType dtype = acl_dtype(type);
  if (dtype == ACL_DT_UNDEFINED) {
    throw GraphError(std::string("the Graph Engine has no data type for ") + c10::toString(type));
  }
  return static_cast<ge::DataType>(dtype);
}

}  // namespace cann_cpu::graph
