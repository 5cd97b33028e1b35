// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of the fused layer: dtypes, ranks, sizes and attributes.
#include <c10/util/Exception.h>

#include "cpu/checks.h"
#include "cpu/sequences.h"
#include "cpu/slots.h"
#include "cpu/sparse_attention_pto.h"

namespace opp {
namespace {

void check_attributes(const SparseAttentionPto& call) {
  TORCH_CHECK(call.sparse_count >= 1, "sparse_count must be at least 1, but is ", call.sparse_count);
  check_finite("softmax_scale", call.softmax_scale);
  check_finite("rms_norm_eps", call.rms_norm_eps);
  check_finite("layer_norm_eps", call.layer_norm_eps);
  check_rope_mode("rope_mode", call.rope_mode);
  check_rope_mode("indexer_rope_mode", call.indexer_rope_mode);
}

void check_dtypes(const SparseAttentionPto& call) {
  const auto dtype = call.x.scalar_type();
  TORCH_CHECK(dtype == at::kBFloat16 || dtype == at::kHalf, "x must be bfloat16 or float16, but is ", dtype);
  const auto like_x = [=](const char* name, at::ScalarType actual) { check_dtype(name, actual, dtype, "x"); };
  like_x("w_dq", call.w_dq.dtype);
  like_x("w_uq_qr", call.w_uq_qr.dtype);
  like_x("w_uk", call.w_uk.scalar_type());
  like_x("w_dkv_kr", call.w_dkv_kr.dtype);
  like_x("gamma_cq", call.gamma_cq.scalar_type());
  like_x("gamma_ckv", call.gamma_ckv.scalar_type());
  like_x("sin", call.sin.scalar_type());
  like_x("cos", call.cos.scalar_type());
  like_x("kv_cache", call.kv_cache.scalar_type());
  like_x("kr_cache", call.kr_cache.scalar_type());
  check_dtype("block_table", call.block_table.scalar_type(), at::kInt);
  check_dtype("act_seqs", call.act_seqs.scalar_type(), at::kInt);
  like_x("w_idx_qb", call.w_idx_qb.dtype);
  like_x("w_idx_k", call.w_idx_k.dtype);
  like_x("w_idx_proj", call.w_idx_proj.dtype);
  like_x("in_gamma_k", call.in_gamma_k.scalar_type());
  like_x("in_beta_k", call.in_beta_k.scalar_type());
  like_x("index_k_cache", call.index_k_cache.scalar_type());
  like_x("attn_out", call.attn_out.scalar_type());
}

// The tensors that the sizes of all others follow from.
void check_sizes_given(const SparseAttentionPto& call) {
  check_rank("x", call.x, 3, "(B, S1, hidden)");
  check_rank("w_uk", call.w_uk, 3, "(N, Dn, Dkv)");
  check_rank("cos", call.cos, 3, "(B, S1, R)");
  check_rank("kv_cache", call.kv_cache, 4, "(block_num, block_size, 1, Dkv)");
  check_rank("block_table", call.block_table, 2, "(B, max_blocks)");
  check_at_least_1("x", "hidden", call.x.size(2));
  check_at_least_1("w_dq", "q_lora", call.q_lora());
  check_at_least_1("w_uk", "N", call.heads());
  check_at_least_1("w_uk", "Dn", call.depth());
  check_at_least_1("w_uk", "Dkv", call.kv_lora());
  check_at_least_1("kv_cache", "block_size", call.kv_cache.size(1));
  check_at_least_1("w_idx_k", "D", call.index_depth());
  check_at_least_1("w_idx_proj", "Ni", call.index_heads());
  const int64_t rope = call.rope_depth();
  TORCH_CHECK(rope >= 2 && rope % 2 == 0 && rope <= call.index_depth(),
              "cos must have an even last size R from 2 to D = ", call.index_depth(), ", but has shape ",
              call.cos.sizes());
}

void check_weights(const SparseAttentionPto& call) {
  const int64_t hidden = call.x.size(2);
  const int64_t depth = call.index_depth();
  check_weight("w_dq", call.w_dq, hidden, call.q_lora(), "(hidden, q_lora)");
  check_weight("w_uq_qr", call.w_uq_qr, call.q_lora(), call.heads() * (call.depth() + call.rope_depth()),
               "(q_lora, N * (Dn + R))");
  check_weight("w_dkv_kr", call.w_dkv_kr, hidden, call.kv_lora() + call.rope_depth(), "(hidden, Dkv + R)");
  check_sizes("gamma_cq", call.gamma_cq, {call.q_lora()}, "(q_lora)");
  check_sizes("gamma_ckv", call.gamma_ckv, {call.kv_lora()}, "(Dkv)");
  check_weight("w_idx_qb", call.w_idx_qb, call.q_lora(), call.index_heads() * depth, "(q_lora, Ni * D)");
  check_weight("w_idx_k", call.w_idx_k, hidden, depth, "(hidden, D)");
  check_weight("w_idx_proj", call.w_idx_proj, hidden, call.index_heads(), "(hidden, Ni)");
  check_sizes("in_gamma_k", call.in_gamma_k, {depth}, "(D)");
  check_sizes("in_beta_k", call.in_beta_k, {depth}, "(D)");
}

void check_tokens(const SparseAttentionPto& call) {
  const int64_t batch = call.x.size(0);
  const int64_t queries = call.x.size(1);
  check_sizes("sin", call.sin, {batch, queries, call.rope_depth()}, "(B, S1, R)");
  check_sizes("cos", call.cos, {batch, queries, call.rope_depth()}, "(B, S1, R)");
  check_slots("cache_index", call.cache_index, {batch, queries}, "(B, S1)");
  check_sizes("block_table", call.block_table, {batch, call.block_table.size(1)}, "(B, max_blocks)");
  check_sizes("act_seqs", call.act_seqs, {batch}, "(B)");
  check_sizes("attn_out", call.attn_out, {batch, queries, call.heads(), call.kv_lora()}, "(B, S1, N, Dkv)");
}

void check_caches(const SparseAttentionPto& call) {
  const int64_t blocks = call.kv_cache.size(0);
  const int64_t size = call.kv_cache.size(1);
  check_sizes("kv_cache", call.kv_cache, {blocks, size, 1, call.kv_lora()}, "(block_num, block_size, 1, Dkv)");
  check_sizes("kr_cache", call.kr_cache, {blocks, size, 1, call.rope_depth()}, "(block_num, block_size, 1, R)");
  check_sizes("index_k_cache", call.index_k_cache, {blocks, size, 1, call.index_depth()},
              "(block_num, block_size, 1, D)");
}

}  // namespace

void check(const SparseAttentionPto& call) {
  check_attributes(call);
  check_dtypes(call);
  check_sizes_given(call);
  check_weights(call);
  check_tokens(call);
  check_caches(call);
}

}  // namespace opp
