// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of the matrix operators' aclnn functions, by the tables that their operators are checked by.
#include <ATen/EmptyTensor.h>

#include "arguments/lightning_indexer_prolog_pto.h"
#include "arguments/lightning_indexer_pto.h"
#include "arguments/lightning_indexer_quant_pto.h"
#include "arguments/sparse_attention_pto.h"
#include "arguments/sparse_flash_attention_pto.h"
#include "cpu/lightning_indexer_prolog_pto.h"
#include "cpu/lightning_indexer_pto.h"
#include "cpu/sparse_attention_pto.h"
#include "cpu/sparse_flash_attention_pto.h"

namespace opp {
namespace {

const custom_pypto::Checks checks;

// A tensor of the sizes and dtype of a weight, whichever way it lies.
at::Tensor form(const Weight& weight) { return at::detail::empty_meta(weight.sizes, weight.dtype); }

}  // namespace

void check(const LightningIndexerPto& call) {
  custom_pypto::check_lightning_indexer_pto(checks, call.query, call.key, call.weights, call.actual_seq_lengths_query,
                                            call.actual_seq_lengths_key, call.block_table, call.layout_query,
                                            call.layout_key, call.sparse_count, call.sparse_mode, call.return_value)
      .check(checks, call.sparse_indices, call.sparse_values);
}

void check(const LightningIndexerQuantPto& call) {
  custom_pypto::check_lightning_indexer_quant_pto(
      checks, call.query, call.key, call.weights, call.query_dequant_scale, call.key_dequant_scale,
      call.query_quant_mode, call.key_quant_mode, call.actual_seq_lengths_query, call.actual_seq_lengths_key,
      call.block_table, call.layout_query, call.layout_key, call.sparse_count, call.sparse_mode, call.return_value)
      .check(checks, call.sparse_indices, call.sparse_values);
}

void check(const SparseFlashAttentionPto& call) {
  custom_pypto::check_sparse_flash_attention_pto(
      checks, call.query, call.key, call.value, call.sparse_indices, call.scale_value, call.block_table,
      call.actual_seq_lengths_query, call.actual_seq_lengths_key, call.query_rope, call.key_rope, call.layout_query,
      call.layout_key, call.sparse_mode, call.attention_sinks, call.return_softmax_lse)
      .check(checks, call.attention_out, call.softmax_lse);
}

void check(const LightningIndexerPrologPto& call) {
  custom_pypto::check_lightning_indexer_prolog_pto(
      checks, call.token_x, call.q_norm, call.q_norm_scale, form(call.wq_b), call.wq_b_scale, form(call.wk),
      form(call.weights_proj), call.ln_gamma_k, call.ln_beta_k, call.cos_idx_rope, call.sin_idx_rope, call.hadamard_q,
      call.hadamard_k, call.idx_k_cache, call.idx_k_scale_cache, call.idx_k_cache_index, call.layernorm_epsilon_k,
      call.layout_query, call.layout_key, call.rope_mode)
      .check(checks, call.query, call.query_scale, call.weights);
}

void check(const SparseAttentionPto& call) {
  const auto scale = call.softmax_scale == 0 ? std::nullopt : std::optional(call.softmax_scale);  // 0 is the default
  custom_pypto::check_sparse_attention_pto(
      checks, call.x, form(call.w_dq), form(call.w_uq_qr), call.w_uk, form(call.w_dkv_kr), call.gamma_cq,
      call.gamma_ckv, call.sin, call.cos, call.cache_index, call.kv_cache, call.kr_cache, call.block_table,
      call.act_seqs, form(call.w_idx_qb), form(call.w_idx_k), form(call.w_idx_proj), call.in_gamma_k, call.in_beta_k,
      call.index_k_cache, call.sparse_count, scale, call.rms_norm_eps, call.layer_norm_eps, call.rope_mode,
      call.indexer_rope_mode)
      .check(checks, call.attn_out);
}

}  // namespace opp

namespace custom_pypto {

// cann_cpu has seen to devices and formats when it made tensors of the arguments.
void check_placement(const Checks&, c10::ArrayRef<ArgumentRow>) {}

}  // namespace custom_pypto
