// SPDX-License-Identifier: Apache-2.0
// The tiling data of the lightning indexers' kernels.
#pragma once

#include "float_type.h"
#include "sequences_tiling.h"

namespace opp {

struct LightningIndexerTiling {
  static constexpr uint32_t kMaxKept = 4064;      // MrgSort takes runs of 4095 pairs
  static constexpr uint32_t kMaxPairs = 4096;     // kept for the query tokens of a tile
  static constexpr uint32_t kMaxTileQueries = 4;  // tokens
  static constexpr uint32_t kMaxRows = 128;       // of queries at a time, as L0A holds them
  static constexpr uint32_t kSums = 16384;        // in half of L0C
  static constexpr uint32_t kMaxColumns = 256;    // keys at a time

  SequencesTiling sequences;
  int64_t heads;  // of query that share a key head
  int64_t key_heads;
  int64_t depth;
  int64_t tokens;         // of query
  int64_t count;          // sparse_count
  uint32_t kept;          // best keys at a time: count, rounded up to whole blocks of Sort32, or kMaxKept
  uint32_t rounds;        // that find count of them
  uint32_t tile_queries;  // query tokens that are scored together
  uint32_t columns;       // for keys that are scored at a time, the runs of each page rounded up to fractals
  uint32_t unit_keys;     // that certainly fit there
  uint32_t blocks;
  FloatType weights;
  FloatType query_scales;
  FloatType key_scales;
  uint8_t return_value;

  constexpr uint32_t vector_cores() const { return 2 * blocks; }
  constexpr uint64_t rows() const { return static_cast<uint64_t>(tile_queries) * heads; }
  // In the workspace each vector core has two places for products, which take turns. After all of these it has two for
  // the pairs of tiles that it has in part. After those each row of the result has the last pairs of a round.
  static constexpr uint32_t kLastPairs = 4;  // 32 bytes
  constexpr uint64_t products_of_turn() const { return rows() * columns; }
  constexpr uint64_t bytes_of_products() const { return 2 * products_of_turn() * vector_cores() * sizeof(float); }
  constexpr uint64_t floats_of_piece() const { return uint64_t{tile_queries} * kept * 2; }
  constexpr uint64_t bytes_of_pieces() const { return 2 * floats_of_piece() * vector_cores() * sizeof(float); }
  constexpr uint64_t bytes_of_workspace() const {
    return bytes_of_products() + bytes_of_pieces() + (rounds > 1 ? tokens * key_heads * kLastPairs * 8 : 0);
  }
};

}  // namespace opp
