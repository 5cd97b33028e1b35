// SPDX-License-Identifier: Apache-2.0
// Whether equal calls of an operator must have bitwise equal results: ACL_OPT_DETERMINISTIC.
#pragma once

#include "cann_cpu/export.h"

namespace cann_cpu {

// In a task of an aclnn function as it was set at its launch. The context's option counts before the process's.
CANN_EXPORT bool is_deterministic() noexcept;

// Sets is_deterministic() of this thread while it lives.
class CANN_EXPORT Deterministic {
 public:
  explicit Deterministic(bool of_call);
  ~Deterministic();
  Deterministic(const Deterministic&) = delete;
};

}  // namespace cann_cpu
