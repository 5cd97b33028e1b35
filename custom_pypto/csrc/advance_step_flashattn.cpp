// SPDX-License-Identifier: Apache-2.0
// advance_step_flashattn: the inputs of the next decode step, of the tokens that were sampled in the last one.
#include <c10/util/StringUtil.h>

#include "aclnn_advance_step_flashattn.h"
#include "operator.h"

namespace custom_pypto {
namespace {

using at::Tensor;

// Lengths and block tables are on the device; the kernel checks the lengths.
void check_advance_step(const Checks& checks, int64_t num_seqs, int64_t num_queries, int64_t block_size,
                        const Tensor& input_tokens, const Tensor& sampled_token_ids, const Tensor& input_positions,
                        const Tensor& seq_lens, const Tensor& slot_mapping, const Tensor& block_tables) {
  checks.at_least("num_seqs", num_seqs, 0);
  if (num_queries < 0 || num_queries > num_seqs) {
    checks.reject("num_queries", c10::str("lie between 0 and num_seqs (", num_seqs, ")"), c10::str("is ", num_queries));
  }
  checks.at_least("block_size", block_size, 1);
  const bool flat = sampled_token_ids.dim() == 1;
  const ArgumentTable table(
      checks, {{"input_tokens", input_tokens, {at::kLong}, {"num_seqs"}, Use::kWritten},
               {"sampled_token_ids",
                sampled_token_ids,
                {at::kLong},
                flat ? SizeNames{"num_queries"} : SizeNames{"num_queries", "1"}},
               {"input_positions", input_positions, {at::kLong}, {"num_seqs"}, Use::kWritten},
               {"seq_lens", seq_lens, {at::kInt, at::kLong}, {"num_seqs"}, Use::kWritten},
               {"slot_mapping", slot_mapping, {at::kInt, at::kLong}, {"num_seqs"}, Use::kWritten},
               {"block_tables", block_tables, {at::kInt, at::kLong}, {"num_seqs", "blocks per sequence"}}});
  table.check_equal("num_seqs", num_seqs, "num_seqs");
  table.check_equal("num_queries", num_queries, "num_queries");
}

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement<check_advance_step>(m, "custom_pypto::advance_step_flashattn", [](const auto&... arguments) {
    EXEC_NPU_CMD(aclnnAdvanceStepFlashattn, arguments...);
  });
}

}  // namespace
}  // namespace custom_pypto
