// SPDX-License-Identifier: Apache-2.0
#include "findings.h"

#include <cstdio>

#include "runtime/checks/report.h"

namespace cann_cpu::memory {
namespace {

constexpr const char* kUseAfterFree = "use after free";

std::string size_and_address(const Buffer& buffer) {
  char text[96];
  std::snprintf(text, sizeof(text), "buffer of %zu bytes at 0x%zx of npu:%d", buffer.size, buffer.begin(),
                buffer.device);
  return text;
}

}  // namespace

std::string describe(const Buffer& buffer) {
  std::string text = size_and_address(buffer);
  if (!buffer.where.empty()) text += ", allocated at " + buffer.where;
  if (buffer.freed_at > 0 && !buffer.freed_where.empty()) text += ", freed at " + buffer.freed_where;
  return text;
}

std::string beside(const Buffer& buffer, uintptr_t first, uintptr_t last) {
  const std::string bytes = first == last ? "1 byte" : std::to_string(last - first + 1) + " bytes";
  if (first < buffer.begin()) {
    return bytes + ", " + std::to_string(buffer.begin() - first) + " in front of the buffer's first";
  }
  return bytes + ", " + std::to_string(first - buffer.end() + 1) + " past the buffer's last";
}

void report_finding(const char* fault, const std::string& what, const std::string& buffer, const std::string& task,
                    const std::string& advice) {
  std::string text = fault + (": " + what) + "\n  " + buffer;
  if (!task.empty()) text += "\n  " + task;
  // One report is enough for a freed buffer: a task may use it in many ways.
  const std::string key = std::string(fault) + "\n" + buffer + (fault == kUseAfterFree ? "" : "\n" + task);
  report(Check::kMemory, key, text + "\n  " + advice,
         {{"fault", fault}, {"what", what}, {"buffer", buffer}, {"task", task}, {"advice", advice}});
}

void report_use_after_free(const Buffer& buffer, const std::string& task) {
  report_finding(
      kUseAfterFree, "a task uses memory that was freed", describe(buffer), task,
      "Keep a tensor until the last task that uses its address has been launched, an allocation until that task has "
      "ended (aclrtFree waits for nothing), and both as long as a captured graph is replayed.");
}

}  // namespace cann_cpu::memory
