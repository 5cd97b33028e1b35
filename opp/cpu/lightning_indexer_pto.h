// SPDX-License-Identifier: Apache-2.0
// The lightning indexers on the CPU: the arguments of a call, their checks, the division of the work, the kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/sequences.h"

namespace opp {

// The arguments of one call; aclnn_lightning_indexer_pto.h describes them.
struct LightningIndexerPto : SequenceArguments {
  const at::Tensor& weights;
  int64_t sparse_count;
  bool return_value;
  const at::Tensor& sparse_indices;
  const at::Tensor& sparse_values;
};

// The same on int8; aclnn_lightning_indexer_quant_pto.h describes them.
struct LightningIndexerQuantPto : LightningIndexerPto {
  const at::Tensor& query_dequant_scale;
  const at::Tensor& key_dequant_scale;
  int64_t query_quant_mode;
  int64_t key_quant_mode;
};

// Query tokens [first_query, first_query + queries) of a sequence, which share the heads of one key head.
struct Tile {
  int64_t sequence;
  int64_t key_head;
  int64_t first_query;
  int64_t queries;
  int64_t keys;  // seen by any of them
};

// The key blocks [first, last) of a tile.
struct Piece {
  int64_t tile;
  int64_t first;
  int64_t last;
};

struct Tiling {
  int64_t page_size;     // tokens
  int64_t block_size;    // keys that are scored at once; blocks do not cross pages
  int64_t tile_queries;  // the most that a tile has
  std::vector<Sequence> sequences;
  std::vector<Tile> tiles;
  std::vector<std::vector<Piece>> parts;  // what a thread takes at once, the largest first

  int64_t blocks_of_page() const { return (page_size + block_size - 1) / block_size; }
  int64_t blocks(const Tile& tile) const;
};

// Reads the sequence lengths and the block table, and divides the work among `threads`. Throws c10::Error for a length
// or a block number out of range.
Tiling tile(const LightningIndexerPto& call, int64_t threads);

// Runs a call that tiling takes on all cores. Throws c10::Error, before it writes anything, for a length or a
// block number out of range.
void lightning_indexer_pto(const LightningIndexerPto& call);
void lightning_indexer_quant_pto(const LightningIndexerQuantPto& call);

}  // namespace opp
