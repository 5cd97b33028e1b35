// SPDX-License-Identifier: Apache-2.0
// How AddCustom's work is divided among blocks.
#include "op_host/add_custom_tiling.h"

#include <algorithm>

namespace opp {

// Two inputs and an output with two buffers each, and bfloat16's two intermediate results in float, take 160 KiB.
constexpr uint64_t kTileBytes = 16 * 1024;

AddCustomTiling tile_add_custom(uint64_t elements, uint32_t itemsize, uint32_t cores) {
  const uint64_t tile = kTileBytes / itemsize;
  const uint64_t tiles = (elements + tile - 1) / tile;
  const uint64_t per_block = std::max<uint64_t>((tiles + cores - 1) / cores, 1);
  const uint64_t blocks = (tiles + per_block - 1) / per_block;
  return {static_cast<uint32_t>(blocks), static_cast<uint32_t>(tile), per_block * tile, elements};
}

}  // namespace opp
