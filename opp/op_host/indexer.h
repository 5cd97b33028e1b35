// SPDX-License-Identifier: Apache-2.0
// Shared by the definitions of the indexers: results with a number for each selected token, and tiling.
#pragma once

#include "op_kernel/lightning_indexer_tiling.h"

#include <algorithm>

#include "sequences.h"

namespace opp {

// query and key come first; without values the second result is empty.
inline ge::graphStatus infer_top_k_shapes(gert::InferShapeContext& context, int64_t sparse_count, bool with_values) {
  std::vector<int64_t> sizes = sizes_of(*context.GetRequiredInputShape(0));
  const gert::Shape& key = *context.GetRequiredInputShape(1);
  if (sizes.size() < 3 || key.GetDimNum() < 3) return reject("query and key must have 3 or 4 dimensions");
  sizes.end()[-2] = key.GetDim(key.GetDimNum() - 2);
  sizes.back() = sparse_count;
  *context.GetOutputShape(0) = shape_of(sizes);
  *context.GetOutputShape(1) = shape_of(with_values ? sizes : std::vector<int64_t>{0});
  return ge::GRAPH_SUCCESS;
}

inline FloatType float_type_of(const gert::TilingContext& context, std::size_t input) {
  switch (context.GetRequiredInputDesc(input)->GetDataType()) {
    case ge::DT_FLOAT16:
      return FloatType::kHalf;
    case ge::DT_BF16:
      return FloatType::kBfloat16;
    default:
      return FloatType::kFloat;
  }
}

// The most keys whose runs, each in whole fractals, fit into so many columns.
inline uint32_t keys_in(uint32_t columns, const SequencesTiling& sequences) {
  constexpr int64_t kFractal = 16;
  if (!sequences.paged || sequences.page_size % kFractal == 0) return columns;
  int64_t keys = columns;
  while (keys + (kFractal - 1) * std::min(keys, keys / sequences.page_size + 2) > columns) keys /= 2;
  return static_cast<uint32_t>(keys);
}

struct IndexerSizes {
  int64_t tokens;  // of query
  int64_t heads;   // of query
  int64_t key_heads;
  int64_t depth;
  int64_t count;  // sparse_count
};

// Divides the work of a call, whose sequences are known, among at most so many blocks.
inline void divide(LightningIndexerTiling& tiling, const IndexerSizes& sizes, uint32_t cores) {
  constexpr int64_t kBlock = 32;  // of Sort32
  tiling.tokens = sizes.tokens;
  tiling.depth = sizes.depth;
  tiling.key_heads = sizes.key_heads;
  tiling.heads = sizes.heads / sizes.key_heads;
  tiling.count = sizes.count;
  const int64_t kept =
      std::min<int64_t>((sizes.count + kBlock - 1) / kBlock * kBlock, LightningIndexerTiling::kMaxKept);
  tiling.kept = static_cast<uint32_t>(kept);
  tiling.rounds = static_cast<uint32_t>((sizes.count + kept - 1) / kept);
  const int64_t queries =
      std::min<int64_t>({LightningIndexerTiling::kMaxRows / tiling.heads, LightningIndexerTiling::kMaxPairs / kept,
                         LightningIndexerTiling::kMaxTileQueries, tiling.sequences.queries});
  tiling.tile_queries = static_cast<uint32_t>(std::max<int64_t>(1, queries));
  const auto rows = std::min<uint64_t>(LightningIndexerTiling::kMaxRows, tiling.rows());
  tiling.columns = rows * LightningIndexerTiling::kMaxColumns <= LightningIndexerTiling::kSums
                       ? LightningIndexerTiling::kMaxColumns
                       : LightningIndexerTiling::kMaxColumns / 2;
  tiling.unit_keys = keys_in(tiling.columns, tiling.sequences);
  const int64_t units_of_tile = (tiling.sequences.keys + tiling.unit_keys - 1) / tiling.unit_keys;
  const int64_t units =
      (sizes.tokens + tiling.tile_queries - 1) * sizes.key_heads * std::max<int64_t>(1, units_of_tile);
  tiling.blocks = static_cast<uint32_t>(std::clamp<int64_t>(units / 2, 1, cores));
}

// Checks and fills in what both indexers have, and launches as many blocks as the call can have work for.
inline ge::graphStatus tile_indexer(gert::TilingContext& context, Arguments& arguments, const Sequences& sequences,
                                    int64_t sparse_count, bool return_value, LightningIndexerTiling& tiling) {
  arguments.at_least("sparse_count", sparse_count, 1);
  arguments.define("sparse_count", sparse_count);
  arguments.outputs({{"sparse_indices", sequences.of_query({"N2", "sparse_count"})},
                     {"sparse_values", sequences.of_query_if(return_value, {"N2", "sparse_count"})}});
  if (!arguments.error().empty()) return reject(arguments.error());
  tiling.sequences = sequences.tiling();
  tiling.return_value = return_value;
  divide(tiling, {sequences.tokens(), arguments["N1"], arguments["N2"], arguments["D"], sparse_count},
         cube_cores(context));
  return launch_together(context, tiling.blocks, tiling.bytes_of_workspace());
}

}  // namespace opp
