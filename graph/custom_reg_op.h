// SPDX-License-Identifier: Apache-2.0
// The Graph Engine prototypes of custom_pypto's operators: the one place that says what a node of each type takes and
// gives. The comment above a prototype is the docstring of its function in the generated Python API, and stands in the
// generated header of its aclnn function, which takes the inputs, the attributes and the outputs in the order written
// here. The formulas are in custom_pypto/ops.py.
#pragma once

#include "graph/operator_reg.h"

namespace ge {

// out = self + other, broadcast. The sum of two bools is their logical or, as in torch.add.
REG_OP(AddCustom)
    .INPUT(self, "T")
    .INPUT(other, "T")
    .OUTPUT(out, "T")
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_DOUBLE, DT_INT8, DT_UINT8, DT_INT16, DT_INT32, DT_INT64,
                             DT_BOOL}))
    .OP_END_FACTORY_REG(AddCustom);

// The gradients of AddCustom by its inputs, not yet summed to their sizes: two copies of self, the gradient of its
// output.
REG_OP(AddCustomGrad)
    .INPUT(self, "T")
    .OUTPUT(grad_self, "T")
    .OUTPUT(grad_other, "T")
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT, DT_DOUBLE, DT_INT8, DT_UINT8, DT_INT16, DT_INT32, DT_INT64,
                             DT_BOOL}))
    .OP_END_FACTORY_REG(AddCustomGrad);

// DeepSeek's lightning indexer: for each query the positions of the sparse_count keys with the highest scores, best
// first, and -1 where there are fewer keys. The score is the sum, over the N1 / N2 query heads that share a key head,
// of relu(query . key) * weights.
//
// query is [B, S1, N1, D] (BSND) or [T, N1, D] (TND), weights the same without D and maybe in float32, sparse_indices
// [B, S1, N2, sparse_count] or [T, N2, sparse_count]. key is [blocks, block_size, N2, D] (PA_BSND: the pages that
// block_table [B, max_blocks] names), [B, S2, N2, D] (BSND) or [T2, N2, D] (TND). The lengths are [B]: counts, or
// running sums in TND. With sparse_mode 0 a query sees every key of its sequence, with 3 those up to its own position,
// the last query standing at the last key.
REG_OP(LightningIndexerPto)
    .INPUT(query, "T")
    .INPUT(key, "T")
    .INPUT(weights, TensorType({DT_FLOAT16, DT_BF16, DT_FLOAT}))
    .OPTIONAL_INPUT(actual_seq_lengths_query, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(actual_seq_lengths_key, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(block_table, TensorType({DT_INT32}))
    .OUTPUT(sparse_indices, TensorType({DT_INT32}))
    .ATTR(layout_query, String, "BSND")
    .ATTR(layout_key, String, "PA_BSND")
    .ATTR(sparse_count, Int, 2048)
    .ATTR(sparse_mode, Int, 3)
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_BF16}))
    .OP_END_FACTORY_REG(LightningIndexerPto);

// Sparse flash attention: each query attends to the key tokens whose positions sparse_indices names up to its first
// -1, with scores of scale_value * (query . key + query_rope . key_rope). Without a token the result is zero.
//
// query is [B, S1, N1, D] (BSND) or [T, N1, D] (TND), query_rope and attention_out the same with a last dimension of
// their own, sparse_indices [B, S1, N2, k] or [T, N2, k]. key, value and key_rope are [blocks, block_size, N2, .]
// (PA_BSND), [B, S2, N2, .] (BSND) or [T2, N2, .] (TND); value may be key. Lengths, block_table and sparse_mode are
// those of LightningIndexerPto: positions that a query does not see are left out.
REG_OP(SparseFlashAttentionPto)
    .INPUT(query, "T")
    .INPUT(key, "T")
    .INPUT(value, "T")
    .INPUT(sparse_indices, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(block_table, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(actual_seq_lengths_query, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(actual_seq_lengths_kv, TensorType({DT_INT32}))
    .OPTIONAL_INPUT(query_rope, "T")
    .OPTIONAL_INPUT(key_rope, "T")
    .OUTPUT(attention_out, "T")
    .REQUIRED_ATTR(scale_value, Float)
    .ATTR(layout_query, String, "BSND")
    .ATTR(layout_kv, String, "PA_BSND")
    .ATTR(sparse_mode, Int, 3)
    .DATATYPE(T, TensorType({DT_FLOAT16, DT_BF16}))
    .OP_END_FACTORY_REG(SparseFlashAttentionPto);

// The prolog of DeepSeek's quantised lightning indexer: from hidden states to int8 queries, int8 keys in the paged
// cache, and the weights of the query heads, with a scale for each quantised row. RoPE, Hadamard and quantisation
// are those of custom_pypto.ops.npu_lightning_indexer_prolog_pto.
//
// token_x is [T, h] (TND) or [B, S1, h] (BSND), and so are the leading dimensions of q_norm [., q_lora],
// q_norm_scale [., 1], cos_idx_rope and sin_idx_rope [., R], idx_k_cache_index [.], query [., N, D], query_scale
// [., N, 1] and weights [., N]. wq_b is [q_lora, N D], wq_b_scale [N D, 1], wk [h, D], weights_proj [h, N]; these
// three matrices may lie in FRACTAL_NZ. idx_k_cache is [blocks, block_size, 1, D] (PA_BSND), [B, S2, 1, D] (BSND)
// or [T2, 1, D] (TND), its scales the same without D; both are written at the slots of idx_k_cache_index, of which
// -1 is skipped.
REG_OP(LightningIndexerPrologPto)
    .INPUT(token_x, "T")
    .INPUT(q_norm, TensorType({DT_INT8}))
    .INPUT(q_norm_scale, TensorType({DT_FLOAT}))
    .INPUT(wq_b, TensorType({DT_INT8}))
    .INPUT(wq_b_scale, TensorType({DT_FLOAT}))
    .INPUT(wk, "T")
    .INPUT(weights_proj, "T")
    .INPUT(ln_gamma_k, "T")
    .INPUT(ln_beta_k, "T")
    .INPUT(cos_idx_rope, "T")
    .INPUT(sin_idx_rope, "T")
    .INPUT(hadamard_q, "T")
    .INPUT(hadamard_k, "T")
    .INPUT(idx_k_cache, TensorType({DT_INT8}))
    .INPUT(idx_k_scale_cache, TensorType({DT_FLOAT16}))
    .INPUT(idx_k_cache_index, TensorType({DT_INT64, DT_INT32}))
    .OUTPUT(query, TensorType({DT_INT8}))
    .OUTPUT(query_scale, TensorType({DT_FLOAT16}))
    .OUTPUT(weights, TensorType({DT_FLOAT16}))
    .OUTPUT(idx_k_cache, TensorType({DT_INT8}))
    .OUTPUT(idx_k_scale_cache, TensorType({DT_FLOAT16}))
    .REQUIRED_ATTR(layernorm_epsilon_k, Float)
    .ATTR(layout_query, String, "TND")
    .ATTR(layout_key, String, "PA_BSND")
    .ATTR(rope_mode, String, "interleave")
    .DATATYPE(T, TensorType({DT_BF16, DT_FLOAT16}))
    .OP_END_FACTORY_REG(LightningIndexerPrologPto);

// DeepSeek's sparse attention layer in decode, from hidden states to what the heads read: the MLA prolog, the
// lightning indexer and the attention over the tokens that it selects, with three paged caches written on the way.
//
// x is [B, S1, h], w_dq [h, q_lora], w_uq_qr [q_lora, N (Dn + R)], w_uk [N, Dn, Dkv], w_dkv_kr [h, Dkv + R],
// gamma_cq [q_lora], gamma_ckv [Dkv], sin and cos [B, S1, R], w_idx_qb [q_lora, Ni Di], w_idx_k [h, Di], w_idx_proj
// [h, Ni], in_gamma_k and in_beta_k [Di]; the matrices, but for w_uk, may lie in FRACTAL_NZ. kv_cache is [blocks,
// block_size, 1, Dkv], kr_cache and index_k_cache the same with R and Di; they are written at the slots of
// cache_index [B, S1], of which -1 is skipped. block_table [B, blocks a sequence] and act_seqs [B], which counts
// the new tokens too, say where a sequence's keys are. attn_out is [B, S1, N, Dkv]. A softmax_scale of 0 stands for
// 1 / sqrt(Dkv + R).
REG_OP(SparseAttentionPto)
    .INPUT(x, "T")
    .INPUT(w_dq, "T")
    .INPUT(w_uq_qr, "T")
    .INPUT(w_uk, "T")
    .INPUT(w_dkv_kr, "T")
    .INPUT(gamma_cq, "T")
    .INPUT(gamma_ckv, "T")
    .INPUT(sin, "T")
    .INPUT(cos, "T")
    .INPUT(cache_index, TensorType({DT_INT64, DT_INT32}))
    .INPUT(kv_cache, "T")
    .INPUT(kr_cache, "T")
    .INPUT(block_table, TensorType({DT_INT32}))
    .INPUT(act_seqs, TensorType({DT_INT32}))
    .INPUT(w_idx_qb, "T")
    .INPUT(w_idx_k, "T")
    .INPUT(w_idx_proj, "T")
    .INPUT(in_gamma_k, "T")
    .INPUT(in_beta_k, "T")
    .INPUT(index_k_cache, "T")
    .OUTPUT(attn_out, "T")
    .OUTPUT(kv_cache, "T")
    .OUTPUT(kr_cache, "T")
    .OUTPUT(index_k_cache, "T")
    .ATTR(sparse_count, Int, 2048)
    .ATTR(softmax_scale, Float, 0)
    .ATTR(rms_norm_eps, Float, 1e-5)
    .ATTR(layer_norm_eps, Float, 1e-6)
    .ATTR(rope_mode, String, "interleave")
    .ATTR(indexer_rope_mode, String, "interleave")
    .DATATYPE(T, TensorType({DT_BF16, DT_FLOAT16}))
    .OP_END_FACTORY_REG(SparseAttentionPto);

// Writes the keys of new tokens, and their values if there are any, to paged caches.
//
// key is [T, N, D], [T, hidden], [B, S, N, D] or [B, S, hidden], value the same with sizes and a type of its own.
// key_cache and value_cache are [blocks, block_size, N, D] or [blocks, block_size, hidden] (cache_layout ND), or
// [blocks, hidden / c0, block_size, c0] (NZ), c0 being the elements of 32 bytes; they are written at the slots of
// slot_mapping [T] or [B, S], of which negative ones are skipped. Without value there is no value_cache, and its
// output is empty.
REG_OP(ReshapeAndCache)
    .INPUT(key, "K")
    .OPTIONAL_INPUT(value, "V")
    .INPUT(key_cache, "K")
    .OPTIONAL_INPUT(value_cache, "V")
    .INPUT(slot_mapping, TensorType({DT_INT64, DT_INT32}))
    .OUTPUT(key_cache, "K")
    .OUTPUT(value_cache, "V")
    .ATTR(cache_layout, String, "ND")
    .DATATYPE(K, TensorType({DT_FLOAT16, DT_BF16, DT_INT8, DT_FLOAT}))
    .DATATYPE(V, TensorType({DT_FLOAT16, DT_BF16, DT_INT8, DT_FLOAT}))
    .OP_END_FACTORY_REG(ReshapeAndCache);

// Moves num_queries sequences on by the token that was sampled for each, and clears the rows of padding behind.
//
// input_tokens, input_positions, seq_lens and slot_mapping are [num_seqs], sampled_token_ids is [num_queries, 1] or
// [num_queries], block_tables [num_seqs, blocks a sequence]. A sequence's new position is its length, which grows by
// one; its slot is block * block_size + offset of that position, or -1 where the block table names no block.
REG_OP(AdvanceStepFlashattn)
    .INPUT(input_tokens, TensorType({DT_INT64}))
    .INPUT(sampled_token_ids, TensorType({DT_INT64}))
    .INPUT(input_positions, TensorType({DT_INT64}))
    .INPUT(seq_lens, TensorType({DT_INT32, DT_INT64}))
    .INPUT(slot_mapping, TensorType({DT_INT32, DT_INT64}))
    .INPUT(block_tables, TensorType({DT_INT32, DT_INT64}))
    .OUTPUT(input_tokens, TensorType({DT_INT64}))
    .OUTPUT(input_positions, TensorType({DT_INT64}))
    .OUTPUT(seq_lens, TensorType({DT_INT32, DT_INT64}))
    .OUTPUT(slot_mapping, TensorType({DT_INT32, DT_INT64}))
    .REQUIRED_ATTR(num_seqs, Int)
    .REQUIRED_ATTR(num_queries, Int)
    .REQUIRED_ATTR(block_size, Int)
    .OP_END_FACTORY_REG(AdvanceStepFlashattn);

}  // namespace ge
