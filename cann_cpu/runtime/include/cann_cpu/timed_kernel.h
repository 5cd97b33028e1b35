// SPDX-License-Identifier: Apache-2.0
// The time that a kernel may take: aclrtSetOpExecuteTimeOut's, or that of its launch.
#pragma once

#include <cstdint>
#include <list>
#include <optional>

#include "cann_cpu/export.h"

namespace cann_cpu {

// Lives while a kernel runs in a task of a stream. When its time is over, the task ends with 507014, except in the
// thread that hangs. The stream continues in another thread, and memory that the kernel may use is never freed.
class CANN_EXPORT TimedKernel {
 public:
  // `microseconds` is of the launch; 0 is without end.
  explicit TimedKernel(const char* kernel, std::optional<uint64_t> microseconds = {});
  ~TimedKernel();
  TimedKernel(const TimedKernel&) = delete;
  TimedKernel& operator=(const TimedKernel&) = delete;

  struct Watched;

 private:
  std::optional<std::list<Watched>::iterator> watched_;
};

}  // namespace cann_cpu
