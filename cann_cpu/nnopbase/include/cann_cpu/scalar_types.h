// SPDX-License-Identifier: Apache-2.0
// ATen's element types for ACL's and the Graph Engine's numbers.
#pragma once

#include <c10/core/ScalarType.h>

#include "cann_cpu/dtypes.h"

namespace cann_cpu {

// Undefined for a type that ATen does not have.
constexpr at::ScalarType scalar_type_or_undefined(aclDataType dtype) {
  switch (dtype) {
#define X(name, pytorch, bytes, model, aten) \
  case ACL_##name:                           \
    return at::ScalarType::aten;
    CANN_CPU_DTYPES(X)
#undef X
    default:
      return at::ScalarType::Undefined;
  }
}

// ACL_DT_UNDEFINED for a type that ACL does not have.
constexpr aclDataType acl_dtype(at::ScalarType type) {
  if (type != at::ScalarType::Undefined) {
#define X(name, pytorch, bytes, model, aten) \
  if (type == at::ScalarType::aten) return ACL_##name;
    CANN_CPU_DTYPES(X)
#undef X
  }
  return ACL_DT_UNDEFINED;
}

}  // namespace cann_cpu
