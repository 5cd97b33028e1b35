// SPDX-License-Identifier: Apache-2.0
// How AddCustom's work is divided among blocks; plain C++, for the host and the kernel.
#pragma once

#include <cstdint>

namespace opp {

// Rows of `inner` elements that lie side by side in the result. In an operand a row is one that lies side by side, too,
// or a single element, which is added to all of it.
struct AddCustomTiling {
  static constexpr uint32_t kMaxDimensions = 8;
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

}  // namespace opp
