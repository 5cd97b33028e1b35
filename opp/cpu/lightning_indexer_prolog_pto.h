// SPDX-License-Identifier: Apache-2.0
// The prolog of the lightning indexer on the CPU: the arguments of a call, their checks, the kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "cpu/linear.h"

namespace opp {

// The arguments of one call; aclnn_lightning_indexer_prolog_pto.h describes them.
struct LightningIndexerPrologPto {
  const at::Tensor& token_x;
  const at::Tensor& q_norm;
  const at::Tensor& q_norm_scale;
  const Weight wq_b;
  const at::Tensor& wq_b_scale;
  const Weight wk;
  const Weight weights_proj;
  const at::Tensor& ln_gamma_k;
  const at::Tensor& ln_beta_k;
  const at::Tensor& cos_idx_rope;
  const at::Tensor& sin_idx_rope;
  const at::Tensor& hadamard_q;
  const at::Tensor& hadamard_k;
  const at::Tensor& idx_k_cache;
  const at::Tensor& idx_k_scale_cache;
  const at::Tensor& idx_k_cache_index;
  double layernorm_epsilon_k;
  const std::string& layout_query;
  const std::string& layout_key;
  const std::string& rope_mode;
  const at::Tensor& query;
  const at::Tensor& query_scale;
  const at::Tensor& weights;

  int64_t tokens() const { return idx_k_cache_index.numel(); }
  int64_t hidden() const { return token_x.size(-1); }
  int64_t q_lora() const { return q_norm.size(-1); }
  int64_t heads() const { return weights_proj.columns; }
  int64_t depth() const { return wk.columns; }
  int64_t rope_depth() const { return cos_idx_rope.size(-1); }
  int64_t slots() const { return idx_k_scale_cache.numel(); }
};

// Runs a call, whose arguments tiling has checked, on all cores. Throws c10::Error, before it writes anything, for a
// slot out of range.
void lightning_indexer_prolog_pto(const LightningIndexerPrologPto& call);

}  // namespace opp
