// SPDX-License-Identifier: Apache-2.0
// A pipe's knowledge of the progress of others, in its own core and, by messages, in other cores.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ascendc/types.h"

namespace AscendC::cpu {

// An epoch of each pipe up to which its instructions have ended.
using Clock = std::array<uint32_t, kPipes>;

// Clocks of cores, in the order of their numbers. Null where nothing is known or nothing is checked.
using Knowledge = std::vector<std::pair<uint32_t, Clock>>;
using Message = std::shared_ptr<const Knowledge>;

Message merged(const Message& one, const Message& other);

// Whether an epoch of a core's pipe has ended, as far as is known.
bool knows(const Message& knowledge, uint32_t core, pipe_t pipe, uint32_t epoch);

}  // namespace AscendC::cpu
