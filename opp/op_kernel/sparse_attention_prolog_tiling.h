// SPDX-License-Identifier: Apache-2.0
// The tiling data of sparse_attention_pto's prolog, in plain C++: the host computes it, the kernel reads it.
#pragma once

#include <cstdint>

namespace opp {

struct SparseAttentionPrologTiling {
  static constexpr int64_t kMaxWidth = 2048;  // of rows, which lie in the unified buffer in one piece
  static constexpr int64_t kMaxTokens = 256;  // that go through together

  int64_t tokens;
  int64_t chunk;  // tokens that go through together
  int64_t hidden;
  int64_t q_lora;
  int64_t heads;
  int64_t depth;       // of a head, without what is rotated
  int64_t rope_depth;  // of cos, sin, a head's rotated part and kr_cache
  int64_t kv_lora;
  int64_t index_heads;
  int64_t index_depth;
  int64_t capacity;      // slots of the caches
  int64_t slots_of_row;  // of cache_index [B, S1]
  uint32_t slot_bytes;   // 4 or 8
  float rms_epsilon;
  float layer_epsilon;
  uint8_t interleaved;        // rope_mode
  uint8_t index_interleaved;  // indexer_rope_mode
  uint8_t w_dq_in_blocks;     // FRACTAL_NZ
  uint8_t w_uq_qr_in_blocks;
  uint8_t w_dkv_kr_in_blocks;
  uint8_t w_idx_qb_in_blocks;
  uint8_t w_idx_k_in_blocks;
  uint8_t w_idx_proj_in_blocks;

  // What the prolog makes of all tokens, in bytes from the start of the workspace; rows lie side by side.
  int64_t absorbed;       // [T, N, Dkv]: the first Dn of each head, multiplied with w_uk
  int64_t query_rope;     // [T, N, R]
  int64_t index_query;    // [T, Ni, Di]
  int64_t index_weights;  // [T, Ni]

  // A chunk's intermediate results, in bytes from the start of its part of the workspace. There are two parts, from
  // `chunks` on.
  int64_t latent;          // [., q_lora]
  int64_t normal;          // the same, normalised
  int64_t kv;              // [., Dkv + R]
  int64_t index_keys;      // [., index_pitch] of float
  int64_t query;           // [., N, Dn + R]
  int64_t index_products;  // [., Ni, Di]
  int64_t index_pitch;
  int64_t chunks;
  int64_t chunk_bytes;
  int64_t bytes;  // of the workspace
};

}  // namespace opp
