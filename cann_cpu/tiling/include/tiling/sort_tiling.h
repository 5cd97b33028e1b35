// SPDX-License-Identifier: Apache-2.0
// The tiling of TopK and the work buffers of Sort and Concat, as a host makes them.
#pragma once

#include "tiling/library_tiling.h"
#include "tiling/platform/platform_ascendc.h"

namespace AscendC {

#ifndef TILING_KEY_IS  // a kernel has it with TopK
enum class TopKMode : uint8_t { TOPK_NORMAL, TOPK_NSMALL };
#endif

template <class Tiling>
bool TopKTilingFunc(const platform_ascendc::PlatformAscendC&, int32_t inner, int32_t outter, int32_t /*k*/,
                    uint32_t /*type_size*/, bool /*is_init_index*/, TopKMode, bool /*is_largest*/, Tiling& tiling) {
  tiling.innerDataSize = inner;
  tiling.allDataSize = inner * outter;
  tiling.tmpLocalSize = 32;
  return true;
}
inline bool GetTopKMaxMinTmpSize(const platform_ascendc::PlatformAscendC&, int32_t /*inner*/, int32_t /*outter*/,
                                 bool /*is_reuse_source*/, bool /*is_init_index*/, TopKMode, bool /*is_largest*/,
                                 uint32_t /*type_size*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
  return true;
}

// Sort writes its runs of pairs, of 8 bytes each, to a work buffer and back; Concat needs none.
inline uint32_t GetSortTmpSize(const platform_ascendc::PlatformAscendC&, uint32_t elements, uint32_t /*type_size*/) {
  return elements * 8;
}
inline uint32_t GetConcatTmpSize(const platform_ascendc::PlatformAscendC&, uint32_t /*elements*/,
                                 uint32_t /*type_size*/) {
  return 0;
}

}  // namespace AscendC
