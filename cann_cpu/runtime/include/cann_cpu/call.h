// SPDX-License-Identifier: Apache-2.0
// Error reporting of all public functions: the body throws Failure, which becomes a code and a message.
#pragma once

#include <atomic>
#include <memory>
#include <new>
#include <string>

#include "cann_cpu/fault.h"
#include "cann_cpu/runtime.h"

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

template <class T>
void require_pointer(const T* pointer, const char* name) {
  if (pointer == nullptr) fail(ACL_ERROR_INVALID_PARAM, "%s is null", name);
}

}  // namespace cann_cpu
