// SPDX-License-Identifier: Apache-2.0
// The tiling data of GatherMatmul.
#pragma once

#include <cstdint>

#include "kernel_tiling/kernel_tiling.h"

class GatherMatmulTilingData {
 public:
  Mc2InitTiling init;
  Mc2CcTiling cc;
  TCubeTiling matmul;  // of one rank's rows
  uint32_t rows, depth, columns;
};
