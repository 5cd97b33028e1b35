// SPDX-License-Identifier: Apache-2.0
// The contents of an executor.
#pragma once

#include <memory>
#include <vector>

#include "cann_cpu/executor.h"
#include "cann_cpu/profiling.h"

namespace cann_cpu {

// Counts the executors that live, for the check `fault`.
struct LiveExecutor {
  LiveExecutor();
  LiveExecutor(const LiveExecutor&) = delete;
  ~LiveExecutor();
};

}  // namespace cann_cpu

struct aclOpExecutor {
  std::shared_ptr<const cann_cpu::Call> call;
  std::vector<void*> addresses;
  std::shared_ptr<const cann_cpu::TaskTensors> operands;  // null unless they are wanted
  bool repeatable = false;
  cann_cpu::LiveExecutor live{};
};
