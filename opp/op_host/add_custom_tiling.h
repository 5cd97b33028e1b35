// SPDX-License-Identifier: Apache-2.0
// How AddCustom's work is divided among blocks; plain C++, which the kernel includes, too.
#pragma once

#include <cstdint>

namespace opp {

struct AddCustomTiling {
  uint32_t blocks;
  uint32_t tile;       // elements that a block has in the unified buffer at a time
  uint64_t per_block;  // elements; a multiple of tile
  uint64_t elements;
};

AddCustomTiling tile_add_custom(uint64_t elements, uint32_t itemsize, uint32_t cores);

}  // namespace opp
