// SPDX-License-Identifier: Apache-2.0
// The threads that run blocks of kernels.
#pragma once

#include <cstdint>
#include <functional>

namespace AscendC::cpu {

// Calls task(0), ..., task(count - 1), in this thread and in those of the pool that are idle, and returns when all have
// returned. Of what they throw it throws that of the lowest number; what has not begun by then does not begin.
void run_in_parallel(uint32_t count, const std::function<void(uint32_t)>& task);

// Called by a task that is about to wait for other tasks of its call: makes a thread that takes over what has not
// begun.
void add_worker();

}  // namespace AscendC::cpu
