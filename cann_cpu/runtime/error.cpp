// SPDX-License-Identifier: Apache-2.0
// The error of a call: its code, and the text that aclGetRecentErrMsg gives once in the thread that failed.
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

#include "acl/acl_rt.h"
#include "device_call.h"
#include "log.h"

namespace cann_cpu {
namespace {

struct ThreadError {
  aclError last = ACL_SUCCESS;
  std::string message;  // not given out yet
  std::string given;    // keeps the latest answer of aclGetRecentErrMsg alive
};
thread_local ThreadError thread_error;

std::atomic<bool> messages_are_shared{false};

// The latest message of any thread, while messages are shared.
struct SharedMessage {
  std::mutex mutex;
  std::string text;
};
SharedMessage& shared_message() {
  static auto* const message = new SharedMessage;
  return *message;
}

// The text was given out if it is the latest of all.
void forget_shared(const std::string& text) {
  if (!messages_are_shared) return;
  const std::lock_guard lock(shared_message().mutex);
  if (shared_message().text == text) shared_message().text.clear();
}

std::string format_text(const char* format, va_list arguments) {
  va_list copy;
  va_copy(copy, arguments);
  int length = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  std::string text(length < 0 ? 0 : length, '\0');
  if (length > 0) std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  return text;
}

}  // namespace

void fail(aclError code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = format_text(format, arguments);
  va_end(arguments);
  throw Failure{code, std::move(text)};
}

aclError error(aclError code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  thread_error.message = format_text(format, arguments);
  va_end(arguments);
  log_error(thread_error.message);
  if (messages_are_shared) {
    const std::lock_guard lock(shared_message().mutex);
    shared_message().text = thread_error.message;
  }
  // torch_npu takes a last error in place of the code it was given and forgives this one, which would hide later
  // errors.
  if (code != ACL_ERROR_RT_FEATURE_NOT_SUPPORT) thread_error.last = code;
  return code;
}

aclError unsupported(const char* function) {
  return error(ACL_ERROR_FEATURE_UNSUPPORTED, "%s is not supported by cann_cpu, the CPU implementation of CANN",
               function);
}

std::string take_message() { return std::exchange(thread_error.message, {}); }

bool has_message() { return !thread_error.message.empty(); }

void share_messages(bool shares) {
  const std::lock_guard lock(shared_message().mutex);
  shared_message().text.clear();
  messages_are_shared = shares;
}

}  // namespace cann_cpu

using namespace cann_cpu;

const char* aclGetRecentErrMsg() {
  if (has_message()) {
    thread_error.given = take_message();
    forget_shared(thread_error.given);
    return thread_error.given.c_str();
  }
  if (!messages_are_shared) return nullptr;
  const std::lock_guard lock(shared_message().mutex);
  thread_error.given = std::exchange(shared_message().text, {});
  return thread_error.given.empty() ? nullptr : thread_error.given.c_str();
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
  return level == ACL_RT_THREAD_LEVEL ? thread_error.last : ACL_ERROR_INVALID_PARAM;
}

aclError aclrtGetErrorVerbose(int32_t, aclrtErrorInfo* errorInfo) {
  if (errorInfo == nullptr) return error(ACL_ERROR_INVALID_PARAM, "aclrtGetErrorVerbose: errorInfo is null");
  *errorInfo = {};
  return ACL_SUCCESS;
}

aclError aclrtGetLastError(aclrtLastErrLevel level) {
  return level == ACL_RT_THREAD_LEVEL ? std::exchange(thread_error.last, ACL_SUCCESS) : ACL_ERROR_INVALID_PARAM;
}
