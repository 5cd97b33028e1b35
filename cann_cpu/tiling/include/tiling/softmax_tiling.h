// SPDX-License-Identifier: Apache-2.0
// The tilings of SoftMax and its relatives, as a host makes them: whole rows at once. The kernels on the CPU need the
// shapes alone, and a block of 32 bytes as a work buffer; on a device its size depends on the shapes.
#pragma once

#include "tiling/library_tiling.h"

namespace AscendC {

// Shapes are ge::Shape; the rows are those of the last dimension.
template <class Shape, class Tiling>
void SoftMaxTilingFunc(const Shape& shape, uint32_t type_size, uint32_t /*work_bytes*/, Tiling& tiling) {
  const auto sizes = shape.GetDims();
  uint64_t elements = 1;
  for (size_t i = 0; i < sizes.size(); ++i) elements *= static_cast<uint64_t>(sizes[i]);
  tiling.srcK = sizes.empty() ? 0 : static_cast<uint32_t>(sizes.back());
  tiling.srcM = tiling.srcK == 0 ? 0 : static_cast<uint32_t>(elements / tiling.srcK);
  tiling.srcSize = tiling.splitSize = static_cast<uint32_t>(elements);
  tiling.outMaxM = tiling.reduceM = tiling.splitM = tiling.srcM;
  tiling.outMaxK = tiling.reduceK = type_size == 0 ? 0 : 32 / type_size;
  tiling.outMaxSize = tiling.reduceSize = tiling.outMaxM * tiling.outMaxK;
  tiling.splitK = tiling.srcK;
  tiling.rangeM = 1;
  tiling.tailM = tiling.tailSplitSize = tiling.tailReduceSize = 0;
}
template <class Shape, class Tiling>
void LogSoftMaxTilingFunc(const Shape& shape, uint32_t type_size, uint32_t work_bytes, Tiling& tiling) {
  SoftMaxTilingFunc(shape, type_size, work_bytes, tiling);
}
template <class Shape, class Tiling>
void SoftMaxFlashTilingFunc(const Shape& shape, uint32_t type_size, uint32_t work_bytes, Tiling& tiling,
                            bool /*is_update*/ = false) {
  SoftMaxTilingFunc(shape, type_size, work_bytes, tiling);
}
template <class Shape, class Tiling>
void SoftMaxGradTilingFunc(const Shape& shape, uint32_t type_size, uint32_t work_bytes, Tiling& tiling,
                           bool /*is_front*/ = false) {
  SoftMaxTilingFunc(shape, type_size, work_bytes, tiling);
}
// The type of sums and maxima is the second one.
template <class Shape, class Tiling>
void SoftMaxFlashV2TilingFunc(const Shape& shape, uint32_t /*type_size*/, uint32_t sum_type_size, uint32_t work_bytes,
                              Tiling& tiling, bool /*is_update*/, bool /*is_basic_block*/ = false,
                              bool /*is_flash_output_brc*/ = false) {
  SoftMaxTilingFunc(shape, sum_type_size, work_bytes, tiling);
}

#define CANN_CPU_WORK_BYTES(Name, ...)                                                \
  template <class Shape>                                                              \
  uint32_t Get##Name##MaxTmpSize(const Shape&, uint32_t /*type_size*/, __VA_ARGS__) { \
    return 32;                                                                        \
  }                                                                                   \
  template <class Shape>                                                              \
  uint32_t Get##Name##MinTmpSize(const Shape&, uint32_t /*type_size*/, __VA_ARGS__) { \
    return 32;                                                                        \
  }
CANN_CPU_WORK_BYTES(SoftMax, bool /*is_reuse_source*/)
CANN_CPU_WORK_BYTES(LogSoftMax, bool /*is_reuse_source*/)
CANN_CPU_WORK_BYTES(SoftMaxFlash, bool /*is_update*/, bool /*is_reuse_source*/)
CANN_CPU_WORK_BYTES(SoftMaxGrad, bool /*is_front*/, bool /*is_reuse_source*/)
CANN_CPU_WORK_BYTES(SoftMaxFlashV2, uint32_t /*sum_type_size*/, bool /*is_update*/, bool /*is_basic_block*/ = false,
                    bool /*is_flash_output_brc*/ = false)
#undef CANN_CPU_WORK_BYTES

// Whether isBasicBlock may be said of such rows: 64 to 2048 elements in multiples of 64, their number a multiple of 8.
template <class Tiling>
bool IsBasicBlockInSoftMax(const Tiling& tiling, uint32_t /*type_size*/ = 2) {
  return tiling.srcK % 64 == 0 && tiling.srcK > 0 && tiling.srcK < 2048 && tiling.splitM % 8 == 0;
}

}  // namespace AscendC
