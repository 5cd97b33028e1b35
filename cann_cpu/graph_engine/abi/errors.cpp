// SPDX-License-Identifier: Apache-2.0
// Keeps the text of each thread's last error.
#include "errors.h"

#include "acl/acl_rt.h"
#include "cann_cpu/fault.h"
#include "cann_cpu/runtime.h"

namespace cann_cpu::graph {
namespace {

thread_local std::string text_of_thread;

}  // namespace

// It is also the thread's message for ACL, from which MindSpore reads it; this code is not kept as its last error.
void set_last_error(const std::string& text) {
  text_of_thread = text;
  error(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s", text.c_str());
}

ge::Status injected_failure(const char* function) {
  const int code = fault_of(function, static_cast<int>(ge::FAILED));
  if (code != 0) set_last_error(aclGetRecentErrMsg());
  return code;
}

const char* last_error() { return text_of_thread.c_str(); }

}  // namespace cann_cpu::graph
