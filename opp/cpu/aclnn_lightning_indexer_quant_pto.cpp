// SPDX-License-Identifier: Apache-2.0
// Binds the kernel to the arguments of a call.
#include "aclnn_lightning_indexer_quant_pto.h"

#include "cann_cpu/op.h"
#include "cpu/lightning_indexer_pto.h"

namespace {

void with_quant_indexer_arguments(const at::Tensor& query, const at::Tensor& key, const at::Tensor& weights,
                                  const at::Tensor& query_dequant_scale, const at::Tensor& key_dequant_scale,
                                  const std::optional<at::Tensor>& actual_seq_lengths_query,
                                  const std::optional<at::Tensor>& actual_seq_lengths_key,
                                  const std::optional<at::Tensor>& block_table, int64_t query_quant_mode,
                                  int64_t key_quant_mode, const std::string& layout_query,
                                  const std::string& layout_key, int64_t sparse_count, int64_t sparse_mode,
                                  bool return_value, at::Tensor& sparse_indices, at::Tensor& sparse_values) {
  opp::lightning_indexer_quant_pto({{{query, key, actual_seq_lengths_query, actual_seq_lengths_key, block_table,
                                      layout_query, layout_key, sparse_mode},
                                     weights,
                                     sparse_count,
                                     return_value,
                                     sparse_indices,
                                     sparse_values},
                                    query_dequant_scale,
                                    key_dequant_scale,
                                    query_quant_mode,
                                    key_quant_mode});
}

}  // namespace

CPU_KERNEL(LightningIndexerQuantPto, with_quant_indexer_arguments);
