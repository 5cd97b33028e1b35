// SPDX-License-Identifier: Apache-2.0
// Error reporting of all public functions: the body throws Failure, and call() turns it into a code and a message.
#pragma once

#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "cann_cpu/fault.h"
#include "cann_cpu/runtime.h"
#include "profiler/recorder.h"

namespace cann_cpu {

struct CANN_EXPORT Failure {
  aclError code;
  std::string message;
  // For a stream's failure: whether a synchronisation has returned it. Streams that waited for the failed work share
  // it.
  std::shared_ptr<std::atomic<bool>> taken{};
};

// Throws Failure with a printf-formatted message.
[[noreturn]] CANN_EXPORT void fail(aclError code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The message that this thread's latest error() left, taken away.
std::string take_message();
// True until the message is taken.
bool has_message();
// The number of device functions that this thread has called.
inline thread_local uint64_t calls_of_thread = 0;

// How far this thread's sleeps may stretch in nanoseconds, where that has to be restored when there is device memory.
inline thread_local int kept_slack = 0;
void restore_slack();

// True in a child forked after the parent started a device: its worker threads and locks did not come along.
bool is_dead_after_fork();

// What a body ends with; never lets an exception out.
template <class Body>
aclError code_of(const char* function, Body&& body) noexcept {
  try {
    body();
    return ACL_SUCCESS;
  } catch (const Failure& failure) {
    return error(failure.code, "%s: %s", function, failure.message.c_str());
  } catch (const std::bad_alloc&) {
    return error(ACL_ERROR_BAD_ALLOC, "%s: out of host memory", function);
  } catch (const std::exception& exception) {
    return error(ACL_ERROR_INTERNAL_ERROR, "%s: %s", function, exception.what());
  }
}

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

// Runs the body of a public function, which fails where the check `fault` has it fail.
template <class Body>
aclError host_call(const char* function, Body&& body) noexcept {
  int code = 0;
  const aclError ended = code_of(function, [&] {
    code = fault_of(function, ACL_ERROR_RT_INTERNAL_ERROR);
    if (code == 0) body();
  });
  return code != 0 ? code : ended;
}

// host_call() for a function that needs the device.
template <class Body>
aclError call(const char* function, Body&& body) noexcept {
  aclError ended = ACL_SUCCESS;
  const aclError rejected = code_on_device(function, [&] { ended = host_call(function, body); });
  return rejected != ACL_SUCCESS ? rejected : ended;
}

template <class T>
void require_pointer(const T* pointer, const char* name) {
  if (pointer == nullptr) fail(ACL_ERROR_INVALID_PARAM, "%s is null", name);
}

}  // namespace cann_cpu
