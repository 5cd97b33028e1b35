// SPDX-License-Identifier: Apache-2.0
// Binds the kernel to the arguments of a call.
#include "aclnn_lightning_indexer_prolog_pto.h"

#include "cann_cpu/op.h"
#include "cpu/lightning_indexer_prolog_pto.h"

namespace {

using at::Tensor;
using cann_cpu::InOut;
using cann_cpu::StoredTensor;

void with_prolog_arguments(const Tensor& token_x, const Tensor& q_norm, const Tensor& q_norm_scale,
                           const StoredTensor& wq_b, const Tensor& wq_b_scale, const StoredTensor& wk,
                           const StoredTensor& weights_proj, const Tensor& ln_gamma_k, const Tensor& ln_beta_k,
                           const Tensor& cos_idx_rope, const Tensor& sin_idx_rope, const Tensor& hadamard_q,
                           const Tensor& hadamard_k, InOut idx_k_cache, InOut idx_k_scale_cache,
                           const Tensor& idx_k_cache_index, double layernorm_epsilon_k, const std::string& layout_query,
                           const std::string& layout_key, const std::string& rope_mode, Tensor& query,
                           Tensor& query_scale, Tensor& weights) {
  opp::lightning_indexer_prolog_pto({token_x,
                                     q_norm,
                                     q_norm_scale,
                                     wq_b,
                                     wq_b_scale,
                                     wk,
                                     weights_proj,
                                     ln_gamma_k,
                                     ln_beta_k,
                                     cos_idx_rope,
                                     sin_idx_rope,
                                     hadamard_q,
                                     hadamard_k,
                                     idx_k_cache,
                                     idx_k_scale_cache,
                                     idx_k_cache_index,
                                     layernorm_epsilon_k,
                                     layout_query,
                                     layout_key,
                                     rope_mode,
                                     query,
                                     query_scale,
                                     weights});
}

}  // namespace

CPU_KERNEL(LightningIndexerPrologPto, with_prolog_arguments);
