// SPDX-License-Identifier: Apache-2.0
// The application log.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "acl/acl_base.h"
#include "cann_cpu/log.h"

namespace {

thread_local std::string last_error;

bool is_printed(aclLogLevel level) {
  const char* print = std::getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
  if (print == nullptr || std::strcmp(print, "1") != 0) return false;
  const char* min_level = std::getenv("ASCEND_GLOBAL_LOG_LEVEL");
  return level >= (min_level == nullptr ? ACL_ERROR : std::atoi(min_level));
}

}  // namespace

void aclAppLog(aclLogLevel logLevel, const char* func, const char* file, uint32_t line, const char* fmt, ...) {
  static constexpr const char* kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  if (logLevel < ACL_DEBUG || logLevel > ACL_ERROR || fmt == nullptr) return;
  const bool printed = is_printed(logLevel);
  if (logLevel < ACL_ERROR && !printed) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, fmt);
  std::vsnprintf(text, sizeof(text), fmt, arguments);
  va_end(arguments);
  if (logLevel == ACL_ERROR) last_error = text;
  if (!printed) return;
  std::printf("[%s] %s:%u %s: %s\n", kNames[logLevel], file == nullptr ? "" : file, line, func == nullptr ? "" : func,
              text);
}

namespace cann_cpu {

std::string take_logged_error() { return std::exchange(last_error, {}); }

}  // namespace cann_cpu
