// SPDX-License-Identifier: Apache-2.0
// npu_lightning_indexer_pto: for every query the positions of the keys with the highest index scores.
#include "aclnn_lightning_indexer_pto.h"
#include "arguments/sequences.h"
#include "operator.h"

namespace custom_pypto {
namespace {

Results<2> check_lightning_indexer_pto(const Checks& checks, const at::Tensor& query, const at::Tensor& key,
                                       const at::Tensor& weights, const OptionalTensor& actual_seq_lengths_query,
                                       const OptionalTensor& actual_seq_lengths_key, const OptionalTensor& block_table,
                                       const std::string& layout_query, const std::string& layout_key,
                                       int64_t sparse_count, int64_t sparse_mode, bool return_value) {
  const Layouts layouts{layout_query, layout_key};
  layouts.check(checks, sparse_mode, actual_seq_lengths_query, actual_seq_lengths_key, block_table);
  checks.at_least("sparse_count", sparse_count, 1);
  ArgumentTable table(checks, {{"query", query, {at::kHalf, at::kBFloat16}, layouts.of_query({"N1", "D"})},
                               {"key", key, {}, layouts.of_key({"N2", "D"})},
                               {"weights", weights, {kSame, at::kFloat}, layouts.of_query({"N1"})},
                               {"actual_seq_lengths_query", actual_seq_lengths_query, {at::kInt}, {"B"}},
                               {"actual_seq_lengths_key", actual_seq_lengths_key, {at::kInt}, {"B"}},
                               {"block_table", block_table, {at::kInt}, {"B", "blocks per sequence"}}});
  check_heads(table);
  table.define("sparse_count", sparse_count);
  return table.results(
      {{"sparse_indices", at::kInt, layouts.of_query({"N2", "sparse_count"})},
       {"sparse_values", weights.scalar_type(), layouts.of_query_if(return_value, {"N2", "sparse_count"})}});
}

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement_optional_result<check_lightning_indexer_pto>(
      m, "custom_pypto::npu_lightning_indexer_pto",
      [](const auto&... arguments) { EXEC_NPU_CMD(aclnnLightningIndexerPto, arguments...); }, "return_value");
}

}  // namespace
}  // namespace custom_pypto
