// SPDX-License-Identifier: Apache-2.0
// advance_step_flashattn: the inputs of the next decode step, of the tokens that were sampled in the last one.
#include <c10/util/StringUtil.h>
#include <torch/library.h>

#include "aclnn_advance_step_flashattn.h"
#include "argument_table.h"
#include "ops_common.h"

namespace custom_pypto {
namespace {

using at::Tensor;

// Checks the arguments, under eager and on Meta alike. Lengths and block tables are on the device; the kernel checks
// the lengths.
void advance_meta(int64_t num_seqs, int64_t num_queries, int64_t block_size, const Tensor& input_tokens,
                  const Tensor& sampled_token_ids, const Tensor& input_positions, const Tensor& seq_lens,
                  const Tensor& slot_mapping, const Tensor& block_tables) {
  const Checks checks("custom_pypto::advance_step_flashattn");
  checks.defined({{"sampled_token_ids", &sampled_token_ids}});
  checks.at_least("num_seqs", num_seqs, 0);
  if (num_queries < 0 || num_queries > num_seqs) {
    checks.reject("num_queries", c10::str("lie between 0 and num_seqs (", num_seqs, ")"), c10::str("is ", num_queries));
  }
  checks.at_least("block_size", block_size, 1);
  const Sizes sizes(checks, {{"input_tokens", input_tokens, {at::kLong}, {"num_seqs"}, Use::kWritten},
                             {"sampled_token_ids",
                              sampled_token_ids,
                              {at::kLong},
                              sampled_token_ids.dim() == 1 ? SizeNames{"num_queries"} : SizeNames{"num_queries", "1"}},
                             {"input_positions", input_positions, {at::kLong}, {"num_seqs"}, Use::kWritten},
                             {"seq_lens", seq_lens, {at::kInt, at::kLong}, {"num_seqs"}, Use::kWritten},
                             {"slot_mapping", slot_mapping, {at::kInt, at::kLong}, {"num_seqs"}, Use::kWritten},
                             {"block_tables", block_tables, {at::kInt, at::kLong}, {"num_seqs", "blocks a sequence"}}});
  sizes.check_equal("num_seqs", num_seqs, "num_seqs");
  sizes.check_equal("num_queries", num_queries, "num_queries");
}

void advance_npu(int64_t num_seqs, int64_t num_queries, int64_t block_size, const Tensor& input_tokens,
                 const Tensor& sampled_token_ids, const Tensor& input_positions, const Tensor& seq_lens,
                 const Tensor& slot_mapping, const Tensor& block_tables) {
  advance_meta(num_seqs, num_queries, block_size, input_tokens, sampled_token_ids, input_positions, seq_lens,
               slot_mapping, block_tables);
  if (num_seqs != 0) {
    EXEC_NPU_CMD(aclnnAdvanceStepFlashattn, input_tokens, sampled_token_ids, input_positions, seq_lens, slot_mapping,
                 block_tables, num_seqs, num_queries, block_size);
  }
}

TORCH_LIBRARY_IMPL(custom_pypto, PrivateUse1, m) { m.impl("advance_step_flashattn", &advance_npu); }
TORCH_LIBRARY_IMPL(custom_pypto, Meta, m) { m.impl("advance_step_flashattn", &advance_meta); }

}  // namespace
}  // namespace custom_pypto
