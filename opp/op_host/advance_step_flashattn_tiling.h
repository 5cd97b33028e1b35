// SPDX-License-Identifier: Apache-2.0
// The division of advance_step_flashattn's work, in plain C++: the host computes it, the kernel reads it.
#pragma once

#include <cstdint>

namespace opp {

// The numbers of a tensor with one dimension.
struct NumbersTiling {
  int64_t bytes;   // of one, 4 or 8
  int64_t stride;  // bytes
};

struct AdvanceStepFlashattnTiling {
  static constexpr uint32_t kRowsAtATime = 128;  // that lie in the unified buffer

  int64_t num_seqs;
  int64_t num_queries;
  int64_t block_size;
  int64_t table_width;
  NumbersTiling input_tokens;
  NumbersTiling sampled_token_ids;
  NumbersTiling input_positions;
  NumbersTiling seq_lens;
  NumbersTiling slot_mapping;
  NumbersTiling block_table;  // a row of it
  int64_t block_table_row;    // bytes from row to row
  int64_t rows_of_block;
  uint32_t blocks;
};

// Sets the rows of a block and the blocks to launch.
void divide(AdvanceStepFlashattnTiling& tiling, uint32_t cores);

}  // namespace opp
