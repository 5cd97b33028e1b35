// SPDX-License-Identifier: Apache-2.0
// libhccl.so: the one function of the collective library that torchair needs; collectives are not supported.
#include <atomic>
#include <cstdint>

#include "call.h"
#include "cann_cpu/export.h"

namespace {

constexpr int kSuccess = 0;
constexpr int kErrorPara = 1;
constexpr int kDeterministic = 0;

std::atomic<int32_t> deterministic{0};

}  // namespace

union HcclConfigValue {
  int32_t value;
};

// HCCL_DETERMINISTIC is the only option there is: 0, 1 or 2 (strict).
extern "C" CANN_EXPORT int HcclSetConfig(int config, HcclConfigValue value) {
  if (config != kDeterministic || value.value < 0 || value.value > 2) {
    cann_cpu::error(ACL_ERROR_INVALID_PARAM, "HcclSetConfig: config %d with value %d is unknown", config, value.value);
    return kErrorPara;
  }
  deterministic = value.value;
  return kSuccess;
}
