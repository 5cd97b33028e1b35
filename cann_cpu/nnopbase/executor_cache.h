// SPDX-License-Identifier: Apache-2.0
// Calls that phase one has stored under a key of the caller's, to be repeated without phase one.
#pragma once

#include <memory>

#include "cann_cpu/executor.h"
#include "cann_cpu/profiling.h"

namespace cann_cpu {

// Stores the call under the key that this thread has set, if it has set one.
void store_in_executor_cache(const std::shared_ptr<const Call>& call, std::shared_ptr<const TaskTensors> operands);

}  // namespace cann_cpu
