// SPDX-License-Identifier: Apache-2.0
// Computes when each instruction of a launch would run on the chip, by the costs of costs.h. Every pipe of every core
// runs its instructions in order. An instruction starts when its unit has issued it and all that the pipe waits for has
// ended. Copies share the bandwidth of device memory and of L2 with the simultaneous copies of all cores.
#pragma once

#include <array>
#include <vector>

#include "ascendc/block.h"
#include "cann_cpu/soc.h"
#include "costs.h"
#include "recorder.h"

namespace AscendC::cpu {

struct Span {
  double begin = 0, end = 0;  // in cycles of the launch
};

struct Timeline {
  std::vector<std::vector<Span>> operations;  // by core, in the order of its recorder's
  double cycles = 0;                          // until all has ended
  double one_by_one = 0;                      // if nothing ran beside anything else
  double device_memory_bytes = 0;             // that L2 did not have, in whole lines
  double l2_bytes = 0;                        // all that cores read and wrote
};

// Bytes a cycle of device memory, as its specification has it, and of L2.
double device_memory_rate(const cann_cpu::Soc& soc);
double l2_rate(const cann_cpu::Soc& soc);

Timeline timeline_of(const std::vector<Recorder>& programs, const std::vector<Core>& cores, const cann_cpu::Soc& soc);

}  // namespace AscendC::cpu
