// SPDX-License-Identifier: Apache-2.0
// Binds the kernel to the arguments of a call.
#include "aclnn_sparse_attention_pto.h"

#include "cann_cpu/op.h"
#include "cpu/sparse_attention_pto.h"

namespace {

using at::Tensor;
using cann_cpu::InOut;
using cann_cpu::StoredTensor;

void with_layer_arguments(const Tensor& x, const StoredTensor& w_dq, const StoredTensor& w_uq_qr, const Tensor& w_uk,
                          const StoredTensor& w_dkv_kr, const Tensor& gamma_cq, const Tensor& gamma_ckv,
                          const Tensor& sin, const Tensor& cos, const Tensor& cache_index, InOut kv_cache,
                          InOut kr_cache, const Tensor& block_table, const Tensor& act_seqs,
                          const StoredTensor& w_idx_qb, const StoredTensor& w_idx_k, const StoredTensor& w_idx_proj,
                          const Tensor& in_gamma_k, const Tensor& in_beta_k, InOut index_k_cache, int64_t sparse_count,
                          double softmax_scale, double rms_norm_eps, double layer_norm_eps,
                          const std::string& rope_mode, const std::string& indexer_rope_mode, Tensor& attn_out) {
  opp::sparse_attention_pto({x,
                             w_dq,
                             w_uq_qr,
                             w_uk,
                             w_dkv_kr,
                             gamma_cq,
                             gamma_ckv,
                             sin,
                             cos,
                             cache_index,
                             kv_cache,
                             kr_cache,
                             block_table,
                             act_seqs,
                             w_idx_qb,
                             w_idx_k,
                             w_idx_proj,
                             in_gamma_k,
                             in_beta_k,
                             index_k_cache,
                             sparse_count,
                             softmax_scale,
                             rms_norm_eps,
                             layer_norm_eps,
                             rope_mode,
                             indexer_rope_mode,
                             attn_out});
}

}  // namespace

CPU_KERNEL(SparseAttentionPto, with_layer_arguments);
