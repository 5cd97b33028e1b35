// SPDX-License-Identifier: Apache-2.0
// Divides the work of sparse flash attention: rows of indices into tiles of heads.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cpu/sparse_flash_attention_pto.h"

namespace opp {
namespace {

// The accumulators of this many heads stay in a core's L2 cache, and make packing the keys cheap beside multiplying.
constexpr int64_t kMaxHeads = 128;
// What the matrix product takes at once: fewer would save little.
constexpr int64_t kMinHeads = 16;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The indices of one row.
struct Indices {
  const int* first;
  int64_t stride;

  Indices(const SparseFlashAttentionPto& call, const Sequence& sequence, const AttentionRow& row)
      : stride(call.sparse_indices.stride(-1)) {
    const auto strides = call.sparse_indices.strides();
    const int64_t token = (sequence.first_query + row.query) * strides.end()[-3];
    const int64_t batch = call.packed() ? 0 : sequence.batch * strides[0];
    first = call.sparse_indices.const_data_ptr<int>() + batch + token + row.key_head * strides.end()[-2];
  }

  int operator[](int64_t i) const { return first[i * stride]; }
};

// How many indices come before the first -1, or before one that is below it.
int64_t count_named(const Indices& indices, int64_t size) {
  int64_t i = 0;
  while (i < size && indices[i] >= 0) ++i;
  return i;
}

void check_end(const SparseFlashAttentionPto& call, const Sequence& sequence, const AttentionRow& row) {
  const Indices indices(call, sequence, row);
  if (row.named == call.sparse_indices.size(-1) || indices[row.named] == -1) return;
  const std::string batch = call.packed() ? std::string() : c10::str('[', sequence.batch, ']');
  TORCH_CHECK(false, "sparse_indices", batch, "[", sequence.first_query + row.query, "][", row.key_head, "][",
              row.named, "] is ", indices[row.named], ", but must be the position of a key, or -1 to end the row");
}

// Rows of padded query tokens name nothing; their indices are not read.
void read_rows(const SparseFlashAttentionPto& call, AttentionTiling& tiling) {
  for (size_t s = 0; s < tiling.sequences.size(); ++s) {
    for (int64_t query = 0; query < tiling.sequences[s].rows; ++query) {
      for (int64_t head = 0; head < call.key.size(-2); ++head) {
        tiling.rows.push_back({static_cast<int64_t>(s), query, head, 0});
      }
    }
  }
  constexpr int64_t kGrain = 16;
  at::parallel_for(0, static_cast<int64_t>(tiling.rows.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      AttentionRow& row = tiling.rows[i];
      const Sequence& sequence = tiling.sequences[row.sequence];
      if (row.query >= sequence.queries) continue;
      row.named = count_named(Indices(call, sequence, row), call.sparse_indices.size(-1));
    }
  });
  for (const AttentionRow& row : tiling.rows) {
    const Sequence& sequence = tiling.sequences[row.sequence];
    if (row.query < sequence.queries) check_end(call, sequence, row);
  }
}

// Each tile packs the keys of its row again, so there are no more tiles than threads need. What a head's result is does
// not depend on its tile.
int64_t heads_of_tiles(int64_t heads, int64_t rows, int64_t threads) {
  const int64_t tiles_of_row = std::max(divide_up(heads, kMaxHeads), divide_up(threads, std::max<int64_t>(rows, 1)));
  return std::max(kMinHeads, divide_up(divide_up(heads, tiles_of_row), kMinHeads) * kMinHeads);
}

}  // namespace

int64_t AttentionTiling::max_named() const {
  int64_t max = 0;
  for (const AttentionRow& row : rows) max = std::max(max, row.named);
  return max;
}

AttentionTiling tile(const SparseFlashAttentionPto& call, int64_t threads) {
  AttentionTiling tiling;
  tiling.sequences = read_sequences(call);
  read_rows(call, tiling);
  const int64_t heads = call.heads_of_key_head();
  const int64_t rows = std::ranges::count_if(tiling.rows, [](const AttentionRow& row) { return row.named > 0; });
  tiling.tile_heads = heads_of_tiles(heads, rows, threads);
  for (size_t row = 0; row < tiling.rows.size(); ++row) {
    for (int64_t first = 0; first < heads; first += tiling.tile_heads) {
      tiling.tiles.push_back({static_cast<int64_t>(row), first, std::min(tiling.tile_heads, heads - first)});
    }
  }
  return tiling;
}

}  // namespace opp
