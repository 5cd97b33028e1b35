// SPDX-License-Identifier: Apache-2.0
// The tilings of Pad and UnPad, as a host makes them. The kernels on the CPU need the shapes alone, and a block of 32
// bytes as a work buffer.
#pragma once

#include "tiling/library_tiling.h"

namespace AscendC {

// Shapes are ge::Shape, of two dimensions; ori_shape has the elements of a row that count.
template <class Shape>
void GetPadMaxMinTmpSize(const Shape&, uint32_t /*type_size*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
}
template <class Platform, class Shape>
void GetUnPadMaxMinTmpSize(const Platform&, const Shape&, uint32_t /*type_size*/, uint32_t& max, uint32_t& min) {
  max = min = 32;
}

template <class Shape>
void PadTilingFunc(const Shape& shape, const Shape& ori_shape, uint32_t /*work_bytes*/, uint32_t /*type_size*/,
                   optiling::PadTiling& tiling) {
  tiling.srcHeight = static_cast<uint32_t>(shape.GetDims()[0]);
  tiling.srcWidth = static_cast<uint32_t>(shape.GetDims()[1]);
  tiling.srcOriWidth = static_cast<uint32_t>(ori_shape.GetDims()[1]);
}

template <class Shape>
void UnPadTilingFunc(const Shape& shape, uint32_t /*work_bytes*/, uint32_t /*type_size*/,
                     optiling::UnPadTiling& tiling) {
  tiling.srcHeight = static_cast<uint32_t>(shape.GetDims()[0]);
  tiling.srcWidth = static_cast<uint32_t>(shape.GetDims()[1]);
}

}  // namespace AscendC
