// SPDX-License-Identifier: Apache-2.0
// The schemas of all operators.
#include "registration.h"

namespace {

using custom_pypto::define;

// Every operator but for its kernels: what it takes, what it gives, what it writes to.
TORCH_LIBRARY(custom_pypto, m) {
  define(m, "add_custom(Tensor self, Tensor other) -> Tensor");
  define(m, "add_custom_backward(Tensor self) -> (Tensor, Tensor)");
  define(
      m,
      "npu_lightning_indexer_pto(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, "
      "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query='BSND', "
      "str layout_key='PA_BSND', int sparse_count=2048, int sparse_mode=3) -> Tensor");
  define(m,
         "npu_lightning_indexer_pto.return_value(Tensor query, Tensor key, Tensor weights, *, "
         "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, "
         "str layout_query='BSND', str layout_key='PA_BSND', int sparse_count=2048, int sparse_mode=3, "
         "bool return_value) -> (Tensor, Tensor)");
  define(m,
         "npu_lightning_indexer_quant_pto(Tensor query, Tensor key, Tensor weights, Tensor query_dequant_scale, "
         "Tensor key_dequant_scale, int query_quant_mode=0, int key_quant_mode=0, *, "
         "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, "
         "str layout_query='BSND', str layout_key='PA_BSND', int sparse_count=2048, int sparse_mode=3) -> Tensor");
  define(m,
         "npu_lightning_indexer_quant_pto.return_value(Tensor query, Tensor key, Tensor weights, "
         "Tensor query_dequant_scale, Tensor key_dequant_scale, int query_quant_mode=0, int key_quant_mode=0, *, "
         "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, "
         "str layout_query='BSND', str layout_key='PA_BSND', int sparse_count=2048, int sparse_mode=3, "
         "bool return_value) -> (Tensor, Tensor)");
  define(
      m,
      "npu_lightning_indexer_prolog_pto(Tensor token_x, Tensor q_norm, Tensor q_norm_scale, Tensor wq_b, "
      "Tensor wq_b_scale, Tensor wk, Tensor weights_proj, Tensor ln_gamma_k, Tensor ln_beta_k, Tensor cos_idx_rope, "
      "Tensor sin_idx_rope, Tensor hadamard_q, Tensor hadamard_k, Tensor(a!) idx_k_cache, "
      "Tensor(b!) idx_k_scale_cache, Tensor idx_k_cache_index, float layernorm_epsilon_k, *, str? layout_query='TND', "
      "str? layout_key='PA_BSND', str rope_mode='interleave') -> (Tensor, Tensor, Tensor)");
  define(
      m,
      "npu_sparse_attention_pto(Tensor x, Tensor w_dq, Tensor w_uq_qr, Tensor w_uk, Tensor w_dkv_kr, Tensor gamma_cq, "
      "Tensor gamma_ckv, Tensor sin, Tensor cos, Tensor cache_index, Tensor(a!) kv_cache, Tensor(b!) kr_cache, "
      "Tensor block_table, Tensor act_seqs, Tensor w_idx_qb, Tensor w_idx_k, Tensor w_idx_proj, Tensor in_gamma_k, "
      "Tensor in_beta_k, Tensor(c!) index_k_cache, *, int sparse_count=2048, float? softmax_scale=None, "
      "float rms_norm_eps=1e-5, float layer_norm_eps=1e-6, str rope_mode='interleave', "
      "str indexer_rope_mode='interleave') -> Tensor");
  define(m,
         "npu_sparse_flash_attention_pto(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, "
         "float scale_value, *, Tensor? block_table=None, Tensor? actual_seq_lengths_query=None, "
         "Tensor? actual_seq_lengths_kv=None, Tensor? query_rope=None, Tensor? key_rope=None, str layout_query='BSND', "
         "str layout_kv='PA_BSND', int sparse_mode=3, Tensor? attention_sinks=None) -> Tensor");
  define(m,
         "npu_sparse_flash_attention_pto.return_softmax_lse(Tensor query, Tensor key, Tensor value, "
         "Tensor sparse_indices, float scale_value, *, Tensor? block_table=None, "
         "Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, Tensor? query_rope=None, "
         "Tensor? key_rope=None, str layout_query='BSND', str layout_kv='PA_BSND', int sparse_mode=3, "
         "Tensor? attention_sinks=None, bool return_softmax_lse) -> (Tensor, Tensor)");
  // Composed of the next two, which reject and count for it.
  m.def(
      "reshape_and_cache(Tensor key, Tensor? value, Tensor(a!) key_cache, Tensor(b!)? value_cache, "
      "Tensor slot_mapping, *, str cache_layout='ND') -> ()",
      {at::Tag::pt2_compliant_tag});
  define(m,
         "reshape_and_cache.key_value(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
         "Tensor slot_mapping, *, str cache_layout='ND') -> ()");
  define(
      m,
      "reshape_and_cache.key(Tensor key, Tensor(a!) key_cache, Tensor slot_mapping, *, str cache_layout='ND') -> ()");
  define(m,
         "advance_step_flashattn(int num_seqs, int num_queries, int block_size, Tensor(a!) input_tokens, "
         "Tensor sampled_token_ids, Tensor(b!) input_positions, Tensor(c!) seq_lens, Tensor(d!) slot_mapping, "
         "Tensor block_tables) -> ()");
}

}  // namespace
