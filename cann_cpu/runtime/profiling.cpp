// SPDX-License-Identifier: Apache-2.0
// The profiler's hooks, as they are while no profiler runs: callbacks are taken and never called, reports are dropped.
#include <chrono>
#include <functional>
#include <string_view>

#include "cann_cpu/export.h"

// CANN's own header of these is not public; torch_npu carries their declarations.
extern "C" {

using ProfCommandHandle = int32_t (*)(uint32_t type, void* data, uint32_t length);

CANN_EXPORT int32_t MsprofRegisterCallback(uint32_t, ProfCommandHandle handle) { return handle == nullptr ? -1 : 0; }

CANN_EXPORT int32_t MsprofReportApi(uint32_t, const void*) { return 0; }

CANN_EXPORT int32_t MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return 0; }

CANN_EXPORT int32_t MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return 0; }

CANN_EXPORT uint64_t MsprofGetHashId(const char* text, size_t length) {
  return text == nullptr ? 0 : std::hash<std::string_view>{}({text, length});
}

CANN_EXPORT uint64_t MsprofSysCycleTime() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // extern "C"
