// SPDX-License-Identifier: Apache-2.0
// All that a block has while it runs.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "ascendc/queue.h"

namespace AscendC::cpu {

class Team;

struct RunningBlock : Block {
  RunningBlock(const Block& block, Team& team) : Block(block), team(&team) {}

  Team* team;

  std::deque<std::vector<Buffer>> buffers;
  uint32_t buffer_count = 0;
  Region region = {0, kKernelBufferBytes, 0};  // of the unified buffer
  uint64_t bytes_used = 0;                     // of it, at most at a time

  using EventIds = uint8_t;                              // a bit each
  std::array<EventIds, kPipes * kPipes> ids_taken = {};  // by AllocEventID and by queues
  Buffer static_memory = {};                             // the whole, for tensors that are made of addresses
};

// Other threads see what this one has stored past its caches.
void finish_stores();

inline RunningBlock& running_block(Where where) { return static_cast<RunningBlock&>(block(where)); }

}  // namespace AscendC::cpu
