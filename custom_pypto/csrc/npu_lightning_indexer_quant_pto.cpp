// SPDX-License-Identifier: Apache-2.0
// npu_lightning_indexer_quant_pto: npu_lightning_indexer_pto on int8 queries and keys with their scales.
#include "aclnn_lightning_indexer_quant_pto.h"
#include "arguments/int8.h"
#include "arguments/sequences.h"
#include "operator.h"

namespace custom_pypto {
namespace {

Results<2> check_lightning_indexer_quant_pto(const Checks& checks, const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& weights, const at::Tensor& query_dequant_scale,
                                             const at::Tensor& key_dequant_scale, int64_t query_quant_mode,
                                             int64_t key_quant_mode, const OptionalTensor& actual_seq_lengths_query,
                                             const OptionalTensor& actual_seq_lengths_key,
                                             const OptionalTensor& block_table, const std::string& layout_query,
                                             const std::string& layout_key, int64_t sparse_count, int64_t sparse_mode,
                                             bool return_value) {
  const Layouts layouts{layout_query, layout_key};
  layouts.check(checks, sparse_mode, actual_seq_lengths_query, actual_seq_lengths_key, block_table);
  checks.one_of("query_quant_mode", query_quant_mode, {0}, "0 is a scale for each token and head");
  checks.one_of("key_quant_mode", key_quant_mode, {0}, "0 is a scale for each token and head");
  checks.at_least("sparse_count", sparse_count, 1);
  // As npu_lightning_indexer_prolog_pto gives them, or without the last dimension.
  const bool as_prolog = query_dequant_scale.dim() == query.dim();
  ArgumentTable table(checks,
                      {{"query", query, {at::kChar}, layouts.of_query({"N1", "D"})},
                       {"key", key, {at::kChar}, layouts.of_key({"N2", "D"})},
                       {"weights", weights, {at::kHalf, at::kBFloat16, at::kFloat}, layouts.of_query({"N1"})},
                       {"query_dequant_scale",
                        query_dequant_scale,
                        {at::kHalf, at::kFloat},
                        as_prolog ? layouts.of_query({"N1", "1"}) : layouts.of_query({"N1"})},
                       {"key_dequant_scale", key_dequant_scale, {at::kHalf, at::kFloat}, layouts.of_key({"N2"})},
                       {"actual_seq_lengths_query", actual_seq_lengths_query, {at::kInt}, {"B"}},
                       {"actual_seq_lengths_key", actual_seq_lengths_key, {at::kInt}, {"B"}},
                       {"block_table", block_table, {at::kInt}, {"B", "blocks per sequence"}}});
  check_heads(table);
  table.check_at_most("D", kMaxProducts, ", whose products int32 can sum");
  table.define("sparse_count", sparse_count);
  return table.results({{"sparse_indices", at::kInt, layouts.of_query({"N2", "sparse_count"})},
                        {"sparse_values", at::kFloat, layouts.of_query_if(return_value, {"N2", "sparse_count"})}});
}

TORCH_LIBRARY_FRAGMENT(custom_pypto, m) {
  implement_optional_result<check_lightning_indexer_quant_pto>(
      m, "custom_pypto::npu_lightning_indexer_quant_pto",
      [](const auto&... arguments) { EXEC_NPU_CMD(aclnnLightningIndexerQuantPto, arguments...); }, "return_value");
}

}  // namespace
}  // namespace custom_pypto
