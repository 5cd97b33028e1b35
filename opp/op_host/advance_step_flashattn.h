// SPDX-License-Identifier: Apache-2.0
// What advance_step_flashattn checks and decides before its kernel runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "op_host/advance_step_flashattn_tiling.h"

namespace opp {

// The arguments of one call; aclnn_advance_step_flashattn.h describes them.
struct AdvanceStepFlashattn {
  const at::Tensor& input_tokens;
  const at::Tensor& sampled_token_ids;
  const at::Tensor& input_positions;
  const at::Tensor& seq_lens;
  const at::Tensor& slot_mapping;
  const at::Tensor& block_tables;
  int64_t num_seqs;
  int64_t num_queries;
  int64_t block_size;
};

// Throws c10::Error unless dtypes, ranks and sizes fit together; reads no tensor's data.
void check(const AdvanceStepFlashattn& call);

AdvanceStepFlashattnTiling tile(const AdvanceStepFlashattn& call);

}  // namespace opp
