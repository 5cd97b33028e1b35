// SPDX-License-Identifier: Apache-2.0
// The fused layer of DeepSeek's sparse attention on the CPU: the arguments of a call, their checks, the division of the
// tokens, the kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/linear.h"

namespace opp {

// The arguments of one call; aclnn_sparse_attention_pto.h describes them.
struct SparseAttentionPto {
  const at::Tensor& x;
  const Weight w_dq;
  const Weight w_uq_qr;
  const at::Tensor& w_uk;
  const Weight w_dkv_kr;
  const at::Tensor& gamma_cq;
  const at::Tensor& gamma_ckv;
  const at::Tensor& sin;
  const at::Tensor& cos;
  const at::Tensor& cache_index;
  const at::Tensor& kv_cache;
  const at::Tensor& kr_cache;
  const at::Tensor& block_table;
  const at::Tensor& act_seqs;
  const Weight w_idx_qb;
  const Weight w_idx_k;
  const Weight w_idx_proj;
  const at::Tensor& in_gamma_k;
  const at::Tensor& in_beta_k;
  const at::Tensor& index_k_cache;
  int64_t sparse_count;
  double softmax_scale;
  double rms_norm_eps;
  double layer_norm_eps;
  const std::string& rope_mode;
  const std::string& indexer_rope_mode;
  const at::Tensor& attn_out;

  int64_t tokens() const { return x.size(0) * x.size(1); }
  int64_t q_lora() const { return w_dq.columns; }
  int64_t heads() const { return w_uk.size(0); }
  int64_t depth() const { return w_uk.size(1); }
  int64_t rope_depth() const { return cos.size(-1); }
  int64_t kv_lora() const { return w_uk.size(2); }
  int64_t index_depth() const { return w_idx_k.columns; }
  int64_t index_heads() const { return w_idx_proj.columns; }
  // The selected keys of a token, at most: no more than a row of the block table has room for.
  int64_t selected() const { return std::clamp<int64_t>(block_table.size(1) * index_k_cache.size(1), 1, sparse_count); }
};

// Tokens [first, first + count), counted over the batch entries, and the tokens of their entries that they attend to.
struct TokenChunk {
  int64_t first;
  int64_t count;
  int64_t first_entry;
  std::vector<int> query_totals;  // running totals of the chunk's tokens, entry by entry
  std::vector<int> key_lengths;   // up to the chunk's last token
};

struct SparseAttentionTiling {
  std::vector<int64_t> slots;  // of all tokens
  int64_t chunk_tokens;        // the most that a chunk has
  std::vector<TokenChunk> chunks;
};

// Reads slots, lengths and block table, and divides the tokens in chunks whose scratch memory is bounded for each of
// `threads`. Throws c10::Error for a slot, a length or a block number out of range.
SparseAttentionTiling tile(const SparseAttentionPto& call, int64_t threads);

// Runs a call that tiling takes on all cores. Throws c10::Error, before it writes anything, for a slot, a length
// or a block number out of range.
void sparse_attention_pto(const SparseAttentionPto& call);

}  // namespace opp
