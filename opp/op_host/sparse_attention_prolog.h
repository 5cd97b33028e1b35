// SPDX-License-Identifier: Apache-2.0
// The tiling of the prolog in sparse_attention_pto's kernel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "op_kernel/sparse_attention_prolog_tiling.h"
#include "workspace.h"

namespace opp {

// Places a chunk's intermediate results in its part of the workspace.
inline int64_t place_chunk(SparseAttentionPrologTiling& tiling, int64_t itemsize) {
  Workspace part;
  const int64_t tokens = tiling.chunk;
  tiling.latent = part.place(tokens * tiling.q_lora * itemsize);
  tiling.normal = part.place(tokens * tiling.q_lora * itemsize);
  tiling.kv = part.place(tokens * (tiling.kv_lora + tiling.rope_depth) * itemsize);
  tiling.index_keys = part.place(tokens * tiling.index_pitch * static_cast<int64_t>(sizeof(float)));
  tiling.query = part.place(tokens * tiling.heads * (tiling.depth + tiling.rope_depth) * itemsize);
  tiling.index_products = part.place(tokens * tiling.index_heads * tiling.index_depth * itemsize);
  return tiling.chunk_bytes = part.bytes();
}

// Divides the tokens of a call, whose sizes the tiling has, in chunks, and the workspace.
inline void divide(SparseAttentionPrologTiling& tiling, int64_t itemsize) {
  constexpr int64_t kMaxBytesOfAChunk = 32 << 20;
  tiling.index_pitch = round_up(tiling.index_depth, 16);  // blocks of 32 bytes, also after rounding to 16 bits
  tiling.chunk = 1;
  tiling.chunk = std::clamp<int64_t>(std::min(kMaxBytesOfAChunk / place_chunk(tiling, itemsize), tiling.tokens), 1,
                                     SparseAttentionPrologTiling::kMaxTokens);
  Workspace workspace;
  const int64_t heads = tiling.tokens * tiling.heads, index_heads = tiling.tokens * tiling.index_heads;
  tiling.absorbed = workspace.place(heads * tiling.kv_lora * itemsize);
  tiling.query_rope = workspace.place(heads * tiling.rope_depth * itemsize);
  tiling.index_query = workspace.place(index_heads * tiling.index_depth * itemsize);
  tiling.index_weights = workspace.place(index_heads * itemsize);
  tiling.chunks = workspace.place(2 * place_chunk(tiling, itemsize));
  tiling.bytes = workspace.bytes();
}

}  // namespace opp
