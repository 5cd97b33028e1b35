// SPDX-License-Identifier: Apache-2.0
// npu_sparse_flash_attention_pto: attention of every query token over the key tokens that its indices name.
#include "aclnn_sparse_flash_attention_pto.h"
#include "arguments/sequences.h"
#include "operator.h"

namespace custom_pypto {
namespace {

Results<2> check_sparse_flash_attention_pto(
    const Checks& checks, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& sparse_indices, double /*scale_value*/, const OptionalTensor& block_table,
    const OptionalTensor& actual_seq_lengths_query, const OptionalTensor& actual_seq_lengths_kv,
    const OptionalTensor& query_rope, const OptionalTensor& key_rope, const std::string& layout_query,
    const std::string& layout_kv, int64_t sparse_mode, const OptionalTensor& attention_sinks, bool return_softmax_lse) {
  const Layouts layouts{layout_query, layout_kv, "layout_kv", "actual_seq_lengths_kv"};
  layouts.check(checks, sparse_mode, actual_seq_lengths_query, actual_seq_lengths_kv, block_table);
  checks.together("query_rope", query_rope.has_value(), "key_rope", key_rope.has_value());
  const ArgumentTable table(checks, {{"query", query, {at::kHalf, at::kBFloat16}, layouts.of_query({"N1", "D"})},
                                     {"key", key, {}, layouts.of_key({"N2", "D"})},
                                     {"value", value, {}, layouts.of_key({"N2", "Dv"})},
                                     {"sparse_indices", sparse_indices, {at::kInt}, layouts.of_query({"N2", "k"})},
                                     {"block_table", block_table, {at::kInt}, {"B", "blocks per sequence"}},
                                     {"actual_seq_lengths_query", actual_seq_lengths_query, {at::kInt}, {"B"}},
                                     {"actual_seq_lengths_kv", actual_seq_lengths_kv, {at::kInt}, {"B"}},
                                     {"query_rope", query_rope, {}, layouts.of_query({"N1", "Dr"})},
                                     {"key_rope", key_rope, {}, layouts.of_key({"N2", "Dr"})},
                                     {"attention_sinks", attention_sinks, {at::kFloat}, {"N1"}}});
  check_heads(table);
  table.check_positive({"Dv", "k", "Dr"});
  return table.results({{"attention_out", kSame, layouts.of_query({"N1", "Dv"})},
                        {"softmax_lse", at::kFloat, layouts.of_query_if(return_softmax_lse, {"N1"})}});
}

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement_optional_result<check_sparse_flash_attention_pto>(
      m, "custom_pypto::npu_sparse_flash_attention_pto",
      [](const auto&... arguments) { EXEC_NPU_CMD(aclnnSparseFlashAttentionPto, arguments...); }, "return_softmax_lse");
}

}  // namespace
}  // namespace custom_pypto
