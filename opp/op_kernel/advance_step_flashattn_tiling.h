// SPDX-License-Identifier: Apache-2.0
// The tiling data of advance_step_flashattn, in plain C++: the host computes it, the kernel reads it.
#pragma once

#include <cstdint>

namespace opp {

struct AdvanceStepFlashattnTiling {
  // All lengths are checked before any is written, and blocks cannot wait for each other.
  static constexpr uint32_t kBlocks = 1;
  static constexpr uint32_t kRowsAtATime = 128;  // that lie in the unified buffer

  int64_t num_seqs;
  int64_t num_queries;
  int64_t block_size;
  int64_t table_width;
  // The bytes of a number, 4 or 8. The tensors that are not named here have 8.
  uint32_t seq_lens_bytes;
  uint32_t slot_mapping_bytes;
  uint32_t block_tables_bytes;
};

}  // namespace opp
