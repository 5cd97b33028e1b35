// SPDX-License-Identifier: Apache-2.0
// All that a core has while it runs a block.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "ascendc/queue.h"

namespace AscendC::cpu {

class Team;

struct RunningBlock : Block {
  RunningBlock(const Block& block, Team& team) : Block(block), team(&team) {}

  static constexpr std::array<Region, kHardwares> whole_memories() {
    std::array<Region, kHardwares> all;
    for (size_t i = 0; i < kHardwares; ++i) {
      const auto hardware = static_cast<Hardware>(i);
      all[i] = {0, hardware == Hardware::UB ? kKernelBufferBytes : bytes_of(hardware), 0, hardware};
    }
    return all;
  }

  Team* team;

  std::deque<std::vector<Buffer>> buffers;
  uint32_t buffer_count = 0;
  std::array<Region, kHardwares> regions = whole_memories();
  uint64_t bytes_used = 0;  // of the unified buffer, at most at a time

  using EventIds = uint8_t;                              // a bit each
  std::array<EventIds, kPipes * kPipes> ids_taken = {};  // by AllocEventID and by queues
  std::array<Buffer, kHardwares> static_memory = {};     // the whole, for tensors that are made of addresses
};

// Other threads see what this one has stored past its caches.
void finish_stores();

inline RunningBlock& running_block(Where where) { return static_cast<RunningBlock&>(block(where)); }

}  // namespace AscendC::cpu
