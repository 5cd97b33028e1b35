// SPDX-License-Identifier: Apache-2.0
// The tilings of LayerNorm and RmsNorm, as a host makes them: all rows at once. The kernels on the CPU need the shapes
// alone, and a block of 32 bytes as a work buffer; on a device its size depends on the shapes.
#pragma once

#include "tiling/library_tiling.h"

namespace AscendC {

// The shape has four sizes: batch, sequence, a row as it lies, and how much of it counts.
template <class Shape, class Tiling>
void GetLayerNormNDTilingInfo(const Shape& shape, uint32_t /*work_bytes*/, uint32_t /*type_size*/,
                              bool /*is_reuse_source*/, Tiling& tiling) {
  const auto sizes = shape.GetDims();
  tiling.bLength = static_cast<uint32_t>(sizes[0]);
  tiling.sLength = static_cast<uint32_t>(sizes[1]);
  tiling.hLength = static_cast<uint32_t>(sizes[2]);
  tiling.originalHLength = static_cast<uint32_t>(sizes[3]);
  tiling.meanVarSize = tiling.bLength * tiling.sLength;
  tiling.inputXSize = tiling.meanVarSize * tiling.hLength;
  tiling.lastDimValueBack = 1 / static_cast<float>(tiling.originalHLength);
}
template <class Shape, class Tiling>
void GetLayerNormNDTillingInfo(const Shape& shape, uint32_t work_bytes, uint32_t type_size, bool is_reuse_source,
                               Tiling& tiling) {
  GetLayerNormNDTilingInfo(shape, work_bytes, type_size, is_reuse_source, tiling);
}

// The two shapes of RmsNorm have three sizes: the layout of the rows, and the part of them that is used.
template <class Shape, class Tiling>
bool GetRmsNormTilingInfo(const Shape& shape, const Shape& original_shape, uint32_t /*work_bytes*/,
                          uint32_t /*type_size*/, Tiling& tiling, bool /*is_basic_block*/ = false) {
  const auto sizes = shape.GetDims();
  tiling.bLength = static_cast<uint32_t>(sizes[0]);
  tiling.sLength = static_cast<uint32_t>(sizes[1]);
  tiling.hLength = static_cast<uint32_t>(sizes[2]);
  tiling.originalHLength = static_cast<uint32_t>(original_shape.GetDims()[2]);
  tiling.reciprocalOfHLength = 1 / static_cast<float>(tiling.originalHLength);
  tiling.mainBsLength = tiling.mainBsLengthAlign = tiling.bLength * tiling.sLength;
  tiling.mainBshLength = tiling.mainBsLength * tiling.hLength;
  tiling.loopRound = 1;
  return true;
}

template <class Shape>
void GetLayerNormMaxMinTmpSize(const Shape&, uint32_t /*type_size*/, bool /*is_reuse_source*/, uint32_t& max,
                               uint32_t& min) {
  max = min = 32;
}
template <class Shape>
bool GetRmsNormMaxMinTmpSize(const Shape&, uint32_t /*type_size*/, uint32_t& max, uint32_t& min,
                             bool /*is_basic_block*/ = false) {
  max = min = 32;
  return true;
}

}  // namespace AscendC
