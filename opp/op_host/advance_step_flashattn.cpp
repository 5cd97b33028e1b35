// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of advance_step_flashattn, and says where its numbers lie.
#include "op_host/advance_step_flashattn.h"

#include <c10/util/Exception.h>

#include "cpu/checks.h"
#include "cpu/sequences.h"

namespace opp {
namespace {

void check_integers(const char* name, const at::Tensor& tensor, at::IntArrayRef sizes, const char* dimensions) {
  const auto dtype = tensor.scalar_type();
  TORCH_CHECK(dtype == at::kInt || dtype == at::kLong, name, " must be int32 or int64, but is ", dtype);
  check_sizes(name, tensor, sizes, dimensions);
}

void check_tokens(const char* name, const at::Tensor& tensor, at::IntArrayRef sizes, const char* dimensions) {
  check_dtype(name, tensor.scalar_type(), at::kLong);
  check_sizes(name, tensor, sizes, dimensions);
}

NumbersTiling numbers(const at::Tensor& tensor, int64_t dim) {
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  return {bytes, tensor.stride(dim) * bytes};
}

}  // namespace

void check(const AdvanceStepFlashattn& call) {
  TORCH_CHECK(call.num_queries >= 0 && call.num_queries <= call.num_seqs,
              "num_queries must lie between 0 and num_seqs (", call.num_seqs, "), but is ", call.num_queries);
  TORCH_CHECK(call.block_size >= 1, "block_size must be at least 1, but is ", call.block_size);
  check_tokens("input_tokens", call.input_tokens, {call.num_seqs}, "(num_seqs)");
  if (call.sampled_token_ids.dim() == 1) {
    check_tokens("sampled_token_ids", call.sampled_token_ids, {call.num_queries}, "(num_queries)");
  } else {
    check_tokens("sampled_token_ids", call.sampled_token_ids, {call.num_queries, 1}, "(num_queries, 1)");
  }
  check_tokens("input_positions", call.input_positions, {call.num_seqs}, "(num_seqs)");
  check_integers("seq_lens", call.seq_lens, {call.num_seqs}, "(num_seqs)");
  check_integers("slot_mapping", call.slot_mapping, {call.num_seqs}, "(num_seqs)");
  check_rank("block_tables", call.block_tables, 2, "(num_seqs, max_blocks)");
  check_integers("block_tables", call.block_tables, {call.num_seqs, call.block_tables.size(1)},
                 "(num_seqs, max_blocks)");
}

AdvanceStepFlashattnTiling tile(const AdvanceStepFlashattn& call) {
  AdvanceStepFlashattnTiling tiling{};
  tiling.num_seqs = call.num_seqs;
  tiling.num_queries = call.num_queries;
  tiling.block_size = call.block_size;
  tiling.table_width = call.block_tables.size(1);
  tiling.input_tokens = numbers(call.input_tokens, 0);
  tiling.sampled_token_ids = numbers(call.sampled_token_ids, 0);
  tiling.input_positions = numbers(call.input_positions, 0);
  tiling.seq_lens = numbers(call.seq_lens, 0);
  tiling.slot_mapping = numbers(call.slot_mapping, 0);
  tiling.block_table = numbers(call.block_tables, 1);
  tiling.block_table_row = call.block_tables.stride(0) * tiling.block_table.bytes;
  return tiling;
}

}  // namespace opp
