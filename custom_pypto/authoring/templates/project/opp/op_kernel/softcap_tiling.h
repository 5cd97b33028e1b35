// How the work of Softcap is divided among blocks, and its attribute; plain C++, for the host and the kernel.
#pragma once

#include <cstdint>

namespace opp {

struct SoftcapTiling {
  static constexpr uint32_t kTile = 8192;  // elements that a block has in the unified buffer at a time

  uint64_t elements;
  uint64_t per_block;  // a multiple of kTile
  float cap;
};

}  // namespace opp
