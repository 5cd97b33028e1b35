// SPDX-License-Identifier: Apache-2.0
// Calls that phase one has stored under a key of the caller's, to be repeated without phase one.
#pragma once

#include <memory>
#include <string>

#include "cann_cpu/executor.h"
#include "cann_cpu/profiling.h"

namespace cann_cpu {

// Stores the call under the key that this thread has set, if it has set one.
void store_in_executor_cache(const std::shared_ptr<const Call>& call, std::shared_ptr<const TaskTensors> operands);

// While it lives, this thread's calls are not stored: those of a phase one for its checks alone. The key stays for the
// one that follows.
class ExecutorCachePause {
 public:
  ExecutorCachePause();
  ~ExecutorCachePause();
  ExecutorCachePause(const ExecutorCachePause&) = delete;
  ExecutorCachePause& operator=(const ExecutorCachePause&) = delete;

 private:
  std::string key_;
};

}  // namespace cann_cpu
