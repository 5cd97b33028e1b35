// SPDX-License-Identifier: Apache-2.0
// Tells the program's function of each task that fails.
#include <unistd.h>

#include <atomic>
#include <limits>

#include "acl/acl_rt.h"
#include "cann_cpu/call.h"
#include "stream.h"

struct rtExceptionInfo {
  uint32_t task, stream, thread, device, code;
};

namespace cann_cpu {
namespace {

std::atomic<aclrtExceptionInfoCallback> exception_callback{nullptr};

uint32_t field_of(const aclrtExceptionInfo* info, uint32_t rtExceptionInfo::* field) {
  return info == nullptr ? std::numeric_limits<uint32_t>::max() : info->*field;
}

}  // namespace

void report_failed_task(const Stream& stream, uint64_t number, aclError code) {
  const aclrtExceptionInfoCallback callback = exception_callback;
  if (callback == nullptr) return;
  rtExceptionInfo info{static_cast<uint32_t>(number), static_cast<uint32_t>(stream.id), static_cast<uint32_t>(gettid()),
                       static_cast<uint32_t>(stream.context->device), static_cast<uint32_t>(code)};
  callback(&info);
}

}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback) {
  return host_call(__func__, [&] { exception_callback = callback; });
}

uint32_t aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return field_of(info, &rtExceptionInfo::task);
}
uint32_t aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return field_of(info, &rtExceptionInfo::stream);
}
uint32_t aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return field_of(info, &rtExceptionInfo::thread);
}
uint32_t aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return field_of(info, &rtExceptionInfo::device);
}
uint32_t aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo* info) {
  return field_of(info, &rtExceptionInfo::code);
}
