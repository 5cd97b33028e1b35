// SPDX-License-Identifier: Apache-2.0
// The tiling data of CollectiveAdd.
#pragma once

#include <cstdint>

#include "kernel_tiling/kernel_tiling.h"

// What the kernel is to do wrong.
enum Fault : uint32_t {
  NO_FAULT,
  NO_COMMIT,
  BAD_HANDLE,
  COMMITS_TOO_OFTEN,
  WAITS_TOO_OFTEN,
  NO_FINALIZE,
  FINALIZES_TOO_EARLY,
  NO_TILING,
  NO_INIT,
  PRODUCT,
  STRIDE,
  OTHER_COUNT,     // on rank 1
  RANK_FAILS,      // rank 1, before it prepares anything
  NO_SECOND_RANK,  // rank 1 prepares nothing; the first core of rank 0 prepares after the second waits
  READS_EARLY,     // before it has waited
  CORES_APART,     // the input is written by another core, which does not wait
};

class CollectiveAddTilingData {
 public:
  Mc2InitTiling init;
  Mc2CcTiling cc;
  uint32_t command;
  uint32_t repeat;
  uint32_t count;  // of a rank and a turn
  uint32_t size;   // of the result
  uint32_t type;
  uint32_t commits;  // the Prepare function does
  uint32_t fault;
};
