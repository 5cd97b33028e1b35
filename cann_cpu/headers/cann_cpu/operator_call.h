// SPDX-License-Identifier: Apache-2.0
// What the generated aclnn function of a defined operator calls: op_build writes these calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aclnn/acl_meta.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

// An argument as C passes it: a pointer to one of ACL's objects or to text, an integer, or a number.
struct OperatorArgument {
  OperatorArgument(const void* object) : object(object), integer(0), real(0) {}
  OperatorArgument(int64_t value) : object(nullptr), integer(value), real(0) {}
  OperatorArgument(bool value) : object(nullptr), integer(value ? 1 : 0), real(0) {}
  OperatorArgument(double value) : object(nullptr), integer(0), real(value) {}

  const void* object;
  int64_t integer;
  double real;
};

// Phase one of operator `type`. `in_library` lies in the library of the function, by which its package is found.
CANN_EXPORT aclnnStatus operator_phase_one(const char* type, const void* in_library, const OperatorArgument* arguments,
                                           size_t count, uint64_t* workspace_size, aclOpExecutor** executor);
CANN_EXPORT aclnnStatus operator_phase_two(void* workspace, uint64_t workspace_size, aclOpExecutor* executor,
                                           aclrtStream stream);

}  // namespace cann_cpu
