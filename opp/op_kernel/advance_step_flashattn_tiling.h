// SPDX-License-Identifier: Apache-2.0
// What advance_step_flashattn's kernel is told of its tensors, in plain C++: the host computes it, the kernel reads it.
#pragma once

#include <cstdint>

namespace opp {

// The numbers of a tensor with one dimension.
struct NumbersTiling {
  int64_t bytes;   // of one, 4 or 8
  int64_t stride;  // bytes
};

struct AdvanceStepFlashattnTiling {
  // All lengths are checked before any is written, and blocks cannot wait for each other.
  static constexpr uint32_t kBlocks = 1;
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
};

}  // namespace opp
