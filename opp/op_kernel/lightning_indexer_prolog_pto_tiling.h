// SPDX-License-Identifier: Apache-2.0
// The tiling data of lightning_indexer_prolog_pto, in plain C++: the host computes it, the kernel reads it.
#pragma once

#include <cstdint>

namespace opp {

struct LightningIndexerPrologPtoTiling {
  static constexpr int64_t kMaxDepth = 2048;  // of rows, which lie in the unified buffer in one piece
  static constexpr int64_t kMaxTokens = 256;  // that go through together

  int64_t tokens;
  int64_t chunk;  // tokens that go through together
  int64_t hidden;
  int64_t q_lora;
  int64_t heads;
  int64_t depth;
  int64_t rope_depth;
  int64_t capacity;      // slots of the cache
  int64_t slots_of_row;  // of idx_k_cache_index [B, S1]; 0 of [T]
  uint32_t slot_bytes;   // 4 or 8
  float epsilon;
  float weights_scale;
  uint8_t interleaved;     // rope_mode
  uint8_t wq_b_in_blocks;  // FRACTAL_NZ
  uint8_t wk_in_blocks;
  uint8_t weights_proj_in_blocks;

  // A chunk's intermediate results, in bytes from the start of its part of the workspace. Rows of query_products and
  // key_products are `product_pitch` elements apart, rows of keys key_pitch. Others lie side by side.
  int64_t queries;  // int32 sums
  int64_t keys;     // float
  int64_t weights;
  int64_t rotated_queries;  // and dequantised
  int64_t rotated_keys;     // and normalised
  int64_t query_products;   // with the Hadamard matrices
  int64_t key_products;
  int64_t chunk_bytes;
  int64_t key_pitch;
  int64_t product_pitch;
};

}  // namespace opp
