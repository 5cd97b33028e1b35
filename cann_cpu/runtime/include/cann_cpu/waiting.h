// SPDX-License-Identifier: Apache-2.0
// Waits of the other libraries of cann_cpu that the runtime has to know of (Scheduler of observer.h), and where they
// are.
#pragma once

#include "acl/acl_base.h"
#include "cann_cpu/export.h"

namespace cann_cpu {

// Waits until the stream has done what it was given. Its failure stays.
CANN_EXPORT void wait_for(aclrtStream stream) noexcept;

// The stream whose task the calling thread runs; null outside of tasks.
CANN_EXPORT aclrtStream stream_of_task() noexcept;

// While it lives, the task that made it waits for others than this process's streams, such as the other ranks of a
// collective.
class CANN_EXPORT BlockingRegion {
 public:
  BlockingRegion();
  ~BlockingRegion();
  BlockingRegion(const BlockingRegion&) = delete;
};

}  // namespace cann_cpu
