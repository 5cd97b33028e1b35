// SPDX-License-Identifier: Apache-2.0
// Checks the memory accesses of tasks and of the runtime's own copies, before and after each.
#pragma once

#include <string>

namespace cann_cpu::memory {

// The task that the thread runs; of a thread that runs none, the one that has started it, if only one runs.
std::string running_task();

// The runtime's own copies and fills that the thread is in.
inline thread_local int host_accesses = 0;

// The thread runs a function of the host's that a stream was given.
inline thread_local bool is_in_host_function = false;

}  // namespace cann_cpu::memory
