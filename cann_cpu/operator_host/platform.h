// SPDX-License-Identifier: Apache-2.0
// What contexts give PlatformAscendC.
#pragma once

#include "cann_cpu/soc.h"

namespace fe {

class PlatFormInfos {
 public:
  const cann_cpu::Soc& chip;
};

}  // namespace fe
