// SPDX-License-Identifier: Apache-2.0
// The data that contexts pass to PlatformAscendC: a chip, and the number of its cores to use.
#pragma once

#include "cann_cpu/core_limits.h"
#include "cann_cpu/soc.h"

namespace fe {

class PlatFormInfos {
 public:
  explicit PlatFormInfos(const cann_cpu::Soc& chip) : chip(chip), cores{chip.cube_cores, chip.vector_cores} {}
  const cann_cpu::Soc& chip;
  cann_cpu::Cores cores;
};

}  // namespace fe
