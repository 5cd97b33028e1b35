// SPDX-License-Identifier: Apache-2.0
// Divides the work of sparse flash attention, which two operators contain.
#pragma once

#include "op_kernel/sparse_flash_attention_pto_tiling.h"

#include <algorithm>
#include <limits>

namespace opp {

struct AttentionSizes {
  int64_t tokens;  // of query
  int64_t heads;
  int64_t key_heads;
  int64_t depth;
  int64_t rope_depth;
  int64_t value_depth;
  int64_t named;  // indices of a token and a key head
};

namespace attention {

constexpr int64_t kMinProductsOfABlock = 1 << 20;         // fewer are not worth one more block
constexpr uint64_t kMaxPartialBytes = uint64_t{1} << 29;  // what dividing rows may take of the device's memory
constexpr uint64_t kAlignment = 512;

inline int64_t whole(int64_t size, int64_t unit) { return (size + unit - 1) / unit; }
inline uint32_t fractals(int64_t size) { return static_cast<uint32_t>(whole(size, 16) * 16); }

// Rows that each block has equally many of are not divided, and neither are those whose pieces would take too much
// memory.
inline int64_t whole_rows(const SparseFlashAttentionTiling& tiling) {
  if (tiling.pieces == 1) return tiling.rows;
  const int64_t rest = tiling.rows % tiling.blocks;
  const bool fits = rest * tiling.pieces * tiling.partial_elements * sizeof(float) <= kMaxPartialBytes;
  return fits ? tiling.rows - rest : tiling.rows;
}

inline uint32_t blocks_of(const SparseFlashAttentionTiling& tiling, uint32_t cores) {
  const int64_t products = static_cast<int64_t>(tiling.height) * fractals(tiling.named) *
                           (tiling.key_pitch + tiling.rope_pitch + tiling.value_pitch);
  const int64_t worth = whole(tiling.rows * products, kMinProductsOfABlock);
  return static_cast<uint32_t>(std::clamp<int64_t>(std::min(worth, tiling.rows * tiling.pieces), 1, cores));
}

// Divides the columns of divided rows so that all vector cores have as equal a share of the merging as there is.
inline uint32_t merged_columns(const SparseFlashAttentionTiling& tiling) {
  using Tiling = SparseFlashAttentionTiling;
  const int64_t cores = int64_t{tiling.blocks} * Tiling::kVectorCores;
  const int64_t heads = (tiling.rows - tiling.whole_rows) * whole(tiling.height, Tiling::kMergedHeads);
  const int64_t parts = whole(tiling.value_pitch, Tiling::kElements / Tiling::kMergedHeads);
  int64_t best = 0, least = std::numeric_limits<int64_t>::max();
  for (int64_t part = parts; part < parts + 4; ++part) {
    const int64_t columns = fractals(whole(tiling.value_pitch, part));
    const int64_t work = whole(heads * whole(tiling.value_pitch, columns), cores) * columns;
    if (work < least) best = columns, least = work;
  }
  return static_cast<uint32_t>(best);
}

// The consecutive parts of the workspace.
inline void lay_out(SparseFlashAttentionTiling& tiling, uint64_t itemsize) {
  using Tiling = SparseFlashAttentionTiling;
  uint64_t end = 0;
  const auto take = [&](uint64_t bytes) {
    const uint64_t begin = end;
    end += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return begin;
  };
  const uint64_t blocks = tiling.blocks, of_scores = uint64_t{Tiling::kWeighed} * tiling.height * Tiling::kScoreRow;
  const uint64_t divided = (tiling.rows - tiling.whole_rows) * tiling.pieces;
  tiling.own_partials = tiling.whole_rows > 0 ? int64_t{tiling.blocks} * Tiling::kSummed : 0;
  tiling.gathered = take(blocks * Tiling::kGathered * tiling.gathered_elements * itemsize);
  tiling.notes = take(blocks * Tiling::kGathered * Tiling::kNoteBytes);
  tiling.scores = take(blocks * of_scores * sizeof(float));
  tiling.partials = take((tiling.own_partials + divided) * tiling.partial_elements * sizeof(float));
  tiling.merged = take(blocks * Tiling::kVectorCores * tiling.height * tiling.value_pitch * sizeof(float));
  tiling.workspace = end;
}

}  // namespace attention

// Divides the work, whose sizes the tiling has, among so many blocks.
inline void use_blocks(SparseFlashAttentionTiling& tiling, uint64_t itemsize, uint32_t blocks) {
  tiling.blocks = blocks;
  tiling.whole_rows = attention::whole_rows(tiling);
  tiling.merged_columns = attention::merged_columns(tiling);
  attention::lay_out(tiling, itemsize);
}

// `itemsize` is that of queries and keys. The rest of the tiling is the caller's.
inline void divide(SparseFlashAttentionTiling& tiling, const AttentionSizes& sizes, uint64_t itemsize, uint32_t cores) {
  using Tiling = SparseFlashAttentionTiling;
  tiling.heads = sizes.heads;
  tiling.key_heads = sizes.key_heads;
  tiling.group = sizes.heads / sizes.key_heads;
  tiling.tiles = attention::whole(tiling.group, Tiling::kHeads);
  tiling.depth = sizes.depth;
  tiling.rope_depth = sizes.rope_depth;
  tiling.value_depth = sizes.value_depth;
  tiling.named = sizes.named;
  tiling.rows = sizes.tokens * sizes.key_heads * tiling.tiles;
  tiling.pieces = attention::whole(sizes.named, Tiling::kPiece);
  tiling.height = attention::fractals(std::min<int64_t>(tiling.group, Tiling::kHeads));
  tiling.key_pitch = attention::fractals(sizes.depth);
  tiling.rope_pitch = attention::fractals(sizes.rope_depth);
  tiling.value_pitch = attention::fractals(sizes.value_depth);
  tiling.gathered_elements = uint64_t{Tiling::kPiece} * (tiling.key_pitch + tiling.rope_pitch + tiling.value_pitch);
  tiling.partial_elements = uint64_t{tiling.height} * (2 + tiling.value_pitch);
  use_blocks(tiling, itemsize, attention::blocks_of(tiling, cores));
}

}  // namespace opp
