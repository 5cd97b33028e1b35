// SPDX-License-Identifier: Apache-2.0
// The log: lines in CANN's form, on stdout with ASCEND_SLOG_PRINT_TO_STDOUT=1, or else in plog files below
// ASCEND_PROCESS_LOG_PATH, where that is set. Errors go to stderr as well.
#include "log.h"

#include <dlfcn.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <utility>

#include "acl/acl_base.h"
#include "cann_cpu/log.h"

namespace cann_cpu {
namespace {

thread_local std::string last_error;

constexpr const char* kLevelNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};

bool is_logged(aclLogLevel level) {
  const char* min_level = std::getenv("ASCEND_GLOBAL_LOG_LEVEL");
  const bool is_level = min_level != nullptr && std::strlen(min_level) == 1 && *min_level >= '0' && *min_level <= '4';
  return level >= (is_level ? *min_level - '0' : ACL_ERROR);
}

bool is_on_stdout() {
  const char* print = std::getenv("ASCEND_LOG_PRINT_TO_STDOUT");
  if (print == nullptr) print = std::getenv("ASCEND_SLOG_PRINT_TO_STDOUT");  // the name of older versions
  return print != nullptr && std::strcmp(print, "1") == 0;
}

// The time as 2026-01-31-23:59:59.123.456, or for names of files as 20260131235959123.
std::string now(bool of_file) {
  timeval time{};
  gettimeofday(&time, nullptr);
  tm local{};
  localtime_r(&time.tv_sec, &local);
  char text[32], fraction[16];
  std::strftime(text, sizeof(text), of_file ? "%Y%m%d%H%M%S" : "%Y-%m-%d-%H:%M:%S", &local);
  const long milliseconds = time.tv_usec / 1000, microseconds = time.tv_usec % 1000;
  std::snprintf(fraction, sizeof(fraction), of_file ? "%03ld" : ".%03ld.%03ld", milliseconds, microseconds);
  return std::string(text) + fraction;
}

// The process's file, null without ASCEND_PROCESS_LOG_PATH; a forked child opens another. The caller has the lock.
std::FILE* plog() {
  static std::FILE* file = nullptr;
  static pid_t owner = 0;
  if (owner == getpid()) return file;
  owner = getpid();
  file = nullptr;
  const char* folder = std::getenv("ASCEND_PROCESS_LOG_PATH");
  if (folder == nullptr || *folder == 0) return nullptr;
  const auto path = std::filesystem::path(folder) / "debug/plog";
  const std::string name = path / ("plog-" + std::to_string(owner) + "_" + now(true) + ".log");
  std::error_code error;
  std::filesystem::create_directories(path, error);
  file = std::fopen(name.c_str(), "ae");
  if (file == nullptr) std::fprintf(stderr, "ASCEND_PROCESS_LOG_PATH: %s: %s\n", name.c_str(), std::strerror(errno));
  return file;
}

std::mutex& mutex() {
  static auto* const made = new std::mutex;
  return *made;
}

void write(aclLogLevel level, const char* module, const char* file, uint32_t line, const std::string& text) {
  const std::lock_guard lock(mutex());
  std::FILE* to = is_on_stdout() ? stdout : plog();
  if (to == nullptr) return;
  std::fprintf(to, "[%s] %s(%d,%s):%s [%s:%u]%d %s\n", kLevelNames[level], module, getpid(),
               program_invocation_short_name, now(false).c_str(), file, line, gettid(), text.c_str());
  std::fflush(to);
}

// A line that a program logs, or a library of its operators.
void log_line(int level, const char* module, const char* function, const char* file, uint32_t line, const char* format,
              va_list arguments) {
  if (level < ACL_DEBUG || level > ACL_ERROR || format == nullptr) return;
  const auto known = static_cast<aclLogLevel>(level);
  const bool logged = is_logged(known);
  if (known < ACL_ERROR && !logged) return;
  char text[1024];
  std::vsnprintf(text, sizeof(text), format, arguments);
  if (known == ACL_ERROR) last_error = text;
  if (!logged) return;
  const std::string begin = function == nullptr ? "" : std::string(function) + ": ";
  write(known, module, file == nullptr ? "" : file, line, begin + text);
}

constexpr int kEvent = 0x10;  // DLOG_EVENT
int level_of(int level) { return level == kEvent ? ACL_INFO : level; }

}  // namespace

std::string take_logged_error() { return std::exchange(last_error, {}); }

bool is_torch_npu_loaded() {
  void* torch_npu = dlopen("libtorch_npu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch_npu != nullptr) dlclose(torch_npu);
  return torch_npu != nullptr;
}

bool errors_are_printed() {
  return !errors_are_hidden && is_logged(ACL_ERROR) && !is_on_stdout() && !is_torch_npu_loaded();
}

void log_error(const std::string& text) {
  if (!is_logged(ACL_ERROR)) return;
  write(ACL_ERROR, "ASCENDCL", "cann_cpu", 0, text);
  if (!errors_are_printed()) return;
  // Once, though a failure passes several functions, and a program may repeat the same error.
  static auto* const printed = new std::string;
  const std::lock_guard lock(mutex());
  if (!printed->empty() && text.find(*printed) != std::string::npos) return;
  *printed = text;
  std::fprintf(stderr, "[ERROR] %s\n", text.c_str());
}

}  // namespace cann_cpu

using namespace cann_cpu;

void aclAppLog(aclLogLevel logLevel, const char* func, const char* file, uint32_t line, const char* fmt, ...) {
  va_list arguments;
  va_start(arguments, fmt);
  log_line(logLevel, "APP", func, file, line, fmt, arguments);
  va_end(arguments);
}

// Whether lines of this level are logged, for libraries that ask before they make one.
extern "C" CANN_EXPORT int32_t CheckLogLevel(int32_t, int32_t level) {
  level = level_of(level);
  return level >= ACL_DEBUG && level <= ACL_ERROR && is_logged(static_cast<aclLogLevel>(level));
}

extern "C" CANN_EXPORT int32_t AlogCheckDebugLevel(uint32_t, int32_t level) { return CheckLogLevel(0, level); }

extern "C" CANN_EXPORT void DlogRecord(int32_t, int32_t level, const char* fmt, ...) {
  va_list arguments;
  va_start(arguments, fmt);
  log_line(level_of(level), "OP", nullptr, nullptr, 0, fmt, arguments);
  va_end(arguments);
}

extern "C" CANN_EXPORT void AlogRecord(uint32_t, uint32_t, int32_t level, const char* fmt, ...) {
  va_list arguments;
  va_start(arguments, fmt);
  log_line(level_of(level), "OP", nullptr, nullptr, 0, fmt, arguments);
  va_end(arguments);
}

extern "C" CANN_EXPORT int32_t mmGetTid() { return gettid(); }
