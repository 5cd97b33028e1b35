// SPDX-License-Identifier: Apache-2.0
// Calls of public functions that need the device, and the message that a thread's latest error left.
#pragma once

#include <string>

#include "cann_cpu/call.h"
#include "cann_cpu/profiling.h"

namespace cann_cpu {

// The message that this thread's latest error() left, taken away.
std::string take_message();
// True until the message is taken.
bool has_message();
// Whether aclGetRecentErrMsg gives a thread that has no message the latest one of another thread.
void share_messages(bool shares);
// The number of device functions that this thread has called.
inline thread_local uint64_t calls_of_thread = 0;

// How far this thread's sleeps may stretch in nanoseconds, where that has to be restored when there is device memory.
inline thread_local int kept_slack = 0;
void set_timer_slack();
void restore_slack();

// True in a child forked after the parent started a device: its worker threads and locks did not come along.
bool is_dead_after_fork();

// code_of() for what needs the device.
template <class Body>
aclError code_on_device(const char* function, Body&& body) noexcept {
  ++calls_of_thread;
  if (kept_slack != 0) [[unlikely]]
    restore_slack();
  const profiler::Call profiled(function);
  if (is_dead_after_fork()) {
    return error(ACL_ERROR_RT_CONTEXT_NULL,
                 "%s: this process was forked after its parent had started using the NPU; start it with spawn instead",
                 function);
  }
  return code_of(function, body);
}

// host_call() for a function that needs the device.
template <class Body>
aclError call(const char* function, Body&& body) noexcept {
  aclError ended = ACL_SUCCESS;
  const aclError rejected = code_on_device(function, [&] { ended = host_call(function, body); });
  return rejected != ACL_SUCCESS ? rejected : ended;
}

}  // namespace cann_cpu
