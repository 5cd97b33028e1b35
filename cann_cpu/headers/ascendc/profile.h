// SPDX-License-Identifier: Apache-2.0
// What a launch asks of the device's pipes, counted while it is checked. No cycle model.
#pragma once

#include <cstdint>

#include "ascendc/types.h"

namespace AscendC::cpu {

struct Profile {
  // Of all cores, for each pipe. Its work: bytes that MTE1, MTE2, MTE3 and FIX copy, repeats of V, elements that S
  // reads or writes, products of fractals of M.
  uint64_t instructions[kPipes] = {};
  uint64_t work[kPipes] = {};

  // Of the block that takes longest if each instruction takes one step and a pipe waits where its flags let it: steps,
  // steps if nothing ran beside anything else, its pipe with the most instructions, and these.
  uint64_t steps = 0;
  uint64_t steps_one_by_one = 0;
  uint64_t busiest = PIPE_S;
  uint64_t steps_of_busiest = 0;

  uint64_t buffer_bytes = 0;  // of the unified buffer, in the block that takes most
  uint64_t buffer_limit = 0;  // what a kernel may take of it
};

}  // namespace AscendC::cpu
