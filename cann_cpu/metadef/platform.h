// SPDX-License-Identifier: Apache-2.0
// The data that contexts pass to PlatformAscendC: a chip, and the number of its cores to use.
#pragma once

#include <optional>

#include "cann_cpu/core_limits.h"
#include "cann_cpu/soc.h"
#include "tiling/platform/platform_infos.h"

namespace fe {

class PlatFormInfosImpl {
 public:
  explicit PlatFormInfosImpl(const cann_cpu::Soc& chip) : chip(chip), cores{chip.cube_cores, chip.vector_cores} {}

  // No strings here: code for either ABI of them calls these.
  struct Text {
    char characters[32];
  };
  std::optional<Text> find(const char* section, const char* key) const;
  uint32_t cores_of_type(const char* core_type) const;

  const cann_cpu::Soc& chip;
  cann_cpu::Cores cores;
};

}  // namespace fe
