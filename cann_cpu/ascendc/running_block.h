// SPDX-License-Identifier: Apache-2.0
// The state of a core while it runs a block.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "ascendc/queue.h"
#include "cann_cpu/soc.h"

namespace cann_cpu {
class KernelCommunicator;
}

namespace AscendC::cpu {

class Team;

struct RunningBlock : Block {
  RunningBlock(const Block& block, Team& team) : Block(block), team(&team) {
    for (size_t i = 0; i < kHardwares; ++i) {
      const auto hardware = static_cast<Hardware>(i);
      regions[i] = {0, bytes_of(chip.architecture(), hardware), 0, hardware};
    }
  }

  Team* team;

  std::deque<std::vector<Buffer>> buffers;
  uint32_t buffer_count = 0;
  std::array<Region, kHardwares> regions;
  uint64_t bytes_used = 0;  // of the unified buffer, at most at a time

  using EventIds = uint8_t;                              // a bit each
  std::array<EventIds, kPipes * kPipes> ids_taken = {};  // by AllocEventID and by queues
  std::array<Buffer, kHardwares> static_memory = {};     // the whole memory, for tensors created from addresses

  struct Turns {
    uint32_t begun = 0;
    bool is_open = false;
  };
  std::map<const cann_cpu::KernelCommunicator*, Turns> turns = {};  // of Hccl objects, from Init to Finalize
};

// Other threads see what this one has stored past its caches.
void finish_stores();

inline RunningBlock& running_block(Where where) { return static_cast<RunningBlock&>(block(where)); }

}  // namespace AscendC::cpu
