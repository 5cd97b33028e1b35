// SPDX-License-Identifier: Apache-2.0
// A stand-in for CANN's header of that name: an Ascend910B3.
#pragma once

#include <cstdint>

namespace platform_ascendc {

struct PlatformAscendC {
  explicit PlatformAscendC(const void*) {}
  uint32_t GetCoreNumAiv() const { return 40; }
};

}  // namespace platform_ascendc
