// SPDX-License-Identifier: Apache-2.0
// Binds the kernel to the arguments of a call.
#include "aclnn_lightning_indexer_pto.h"

#include "cann_cpu/op.h"
#include "cpu/lightning_indexer_pto.h"

namespace {

void with_indexer_arguments(const at::Tensor& query, const at::Tensor& key, const at::Tensor& weights,
                            const std::optional<at::Tensor>& actual_seq_lengths_query,
                            const std::optional<at::Tensor>& actual_seq_lengths_key,
                            const std::optional<at::Tensor>& block_table, const std::string& layout_query,
                            const std::string& layout_key, int64_t sparse_count, int64_t sparse_mode, bool return_value,
                            at::Tensor& sparse_indices, at::Tensor& sparse_values) {
  opp::lightning_indexer_pto({{query, key, actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query,
                               layout_key, sparse_mode},
                              weights,
                              sparse_count,
                              return_value,
                              sparse_indices,
                              sparse_values});
}

}  // namespace

CPU_KERNEL(LightningIndexerPto, with_indexer_arguments);
