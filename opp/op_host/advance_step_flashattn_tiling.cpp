// SPDX-License-Identifier: Apache-2.0
// Divides the work of advance_step_flashattn.
#include "op_host/advance_step_flashattn_tiling.h"

#include <algorithm>

namespace opp {
namespace {

constexpr int64_t kLeastRowsOfABlock = 16;  // each block reads the lengths of all

}  // namespace

void divide(AdvanceStepFlashattnTiling& tiling, uint32_t cores) {
  const int64_t shares = std::max<int64_t>(1, cores);
  tiling.rows_of_block = std::max(kLeastRowsOfABlock, (tiling.num_seqs + shares - 1) / shares);
  tiling.blocks = static_cast<uint32_t>((tiling.num_seqs + tiling.rows_of_block - 1) / tiling.rows_of_block);
}

}  // namespace opp
