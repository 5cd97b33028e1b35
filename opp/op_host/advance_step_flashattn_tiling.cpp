// SPDX-License-Identifier: Apache-2.0
// Divides the work of advance_step_flashattn.
#include "op_host/advance_step_flashattn_tiling.h"

namespace opp {
// One block: all lengths are checked before any is written, and blocks cannot wait for each other.
void divide(AdvanceStepFlashattnTiling& tiling, uint32_t) {
  tiling.rows_of_block = tiling.num_seqs;
  tiling.blocks = tiling.num_seqs == 0 ? 0 : 1;
}

}  // namespace opp
