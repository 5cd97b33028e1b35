// SPDX-License-Identifier: Apache-2.0
// All that a block has while it runs.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "ascendc/block.h"

namespace AscendC::cpu {

struct RunningBlock : Block {
  explicit RunningBlock(const Block& block) : Block(block) {}

  std::deque<std::vector<Buffer>> buffers;
  uint32_t buffer_count = 0;
  uint32_t bytes_used = 0;  // of the unified buffer

  using EventIds = uint8_t;  // a bit each
  std::array<EventIds, kPipes * kPipes> flags_set = {};
  std::array<EventIds, kPipes * kPipes> ids_taken = {};
};

// Other threads see what this one has stored past its caches.
void finish_stores();

inline RunningBlock& running_block(Where where) { return static_cast<RunningBlock&>(block(where)); }

}  // namespace AscendC::cpu
