// SPDX-License-Identifier: Apache-2.0
// The division of AddCustom's and AddCustomGrad's work among blocks, in plain C++ for the host and the kernel.
#pragma once

#include <cstdint>

namespace opp {

// Rows of `inner` elements that lie side by side in the result. In an operand, a row also lies side by side, or it is a
// single element that is added to the whole row.
struct AddCustomTiling {
  static constexpr uint32_t kMaxDimensions = 24;    // and `inner`: as many as CANN's shapes have
  enum Single : uint32_t { kNone, kSelf, kOther };  // which operand's rows are single elements

  uint32_t tile;       // elements that a block has in the unified buffer at a time
  uint64_t tiles;      // of a row
  uint64_t all_tiles;  // of all rows
  uint64_t per_block;  // tiles
  uint64_t inner;
  uint32_t single;
  uint32_t dimensions;  // of the rows
  uint64_t sizes[kMaxDimensions];
  uint64_t self_strides[kMaxDimensions];  // elements; 0 where self is broadcast
  uint64_t other_strides[kMaxDimensions];
};

struct AddCustomGradTiling {
  static constexpr uint32_t kTileBytes = 64 * 1024;  // that a block has in the unified buffer at a time, twice

  uint64_t bytes;
  uint64_t per_block;  // a multiple of kTileBytes
};

}  // namespace opp
