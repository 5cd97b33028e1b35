// SPDX-License-Identifier: Apache-2.0
// The work buffer of BroadCast: the libraries on the CPU ask for a block of 32 bytes and no more; on a device it
// depends on the shapes.
#pragma once

#include <cstdint>

#include "graph/tensor.h"
#include "tiling/platform/platform_ascendc.h"

namespace AscendC {

inline void GetBroadCastMaxMinTmpSize(const platform_ascendc::PlatformAscendC&, const ge::Shape&, const ge::Shape&,
                                      uint32_t /*type_size*/, bool /*is_reuse_source*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
}

}  // namespace AscendC
