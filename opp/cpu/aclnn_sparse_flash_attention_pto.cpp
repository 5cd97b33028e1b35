// SPDX-License-Identifier: Apache-2.0
// Binds the kernel to the arguments of a call.
#include "aclnn_sparse_flash_attention_pto.h"

#include "cann_cpu/op.h"
#include "cpu/sparse_flash_attention_pto.h"

namespace {

void with_attention_arguments(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const at::Tensor& sparse_indices, const std::optional<at::Tensor>& block_table,
                              const std::optional<at::Tensor>& actual_seq_lengths_query,
                              const std::optional<at::Tensor>& actual_seq_lengths_kv,
                              const std::optional<at::Tensor>& query_rope, const std::optional<at::Tensor>& key_rope,
                              const std::optional<at::Tensor>& attention_sinks, double scale_value,
                              const std::string& layout_query, const std::string& layout_kv, int64_t sparse_mode,
                              bool return_softmax_lse, at::Tensor& attention_out, at::Tensor& softmax_lse) {
  opp::sparse_flash_attention_pto({{query, key, actual_seq_lengths_query, actual_seq_lengths_kv, block_table,
                                    layout_query, layout_kv, sparse_mode, "actual_seq_lengths_kv"},
                                   value,
                                   sparse_indices,
                                   query_rope,
                                   key_rope,
                                   attention_sinks,
                                   scale_value,
                                   return_softmax_lse,
                                   attention_out,
                                   softmax_lse});
}

}  // namespace

CPU_KERNEL(SparseFlashAttentionPto, with_attention_arguments);
