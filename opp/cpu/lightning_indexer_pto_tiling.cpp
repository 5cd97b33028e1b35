// SPDX-License-Identifier: Apache-2.0
// Divides the lightning indexer's work: sequences into tiles of query tokens, and those among threads.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "cpu/lightning_indexer_pto.h"

namespace opp {
namespace {

constexpr int64_t kBlockSize = 128;
// A tile's scores of one block, and the candidates of its query tokens, are to stay in a core's L2 cache.
constexpr int64_t kTileColumns = 256;
constexpr int64_t kTileQueries = 16;
// What a tile costs beside its blocks (packing the query, sorting the result), measured in blocks.
constexpr int64_t kTileOverhead = 2;
// A tile is not cut in pieces of fewer blocks: each piece packs the query again, and its candidates have to be merged.
constexpr int64_t kMinPiece = 16;
// The parts of a thread, in eighths of its work: several, so that a thread that is slowed down leaves work to the
// others, and the smallest last, so that they end together.
constexpr std::array<int64_t, 4> kShares = {4, 2, 1, 1};
constexpr int64_t kWhole = 8;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

void add_tiles(Tiling& tiling, int64_t sequence, int64_t key_head, int64_t first, int64_t last) {
  for (; first < last; first += tiling.tile_queries) {
    Tile tile{sequence, key_head, first, std::min(tiling.tile_queries, last - first), 0};
    const Sequence& of = tiling.sequences[sequence];
    for (int64_t i = 0; i < tile.queries; ++i) tile.keys = std::max(tile.keys, of.visible(first + i));
    tiling.tiles.push_back(tile);
  }
}

// Cuts the row of all tiles, laid one after the other, in parts: for each thread one of each share.
void divide(Tiling& tiling, int64_t threads) {
  int64_t total = 0;
  for (const Tile& tile : tiling.tiles) total += (tiling.blocks(tile) + kTileOverhead) * tile.queries;
  std::vector<int64_t> ends;
  for (int64_t eighths = 0; const int64_t share : threads == 1 ? std::span(&kWhole, 1) : std::span(kShares)) {
    for (int64_t thread = 0; thread < threads; ++thread) {
      eighths += share;
      ends.push_back(total * eighths / (kWhole * threads));
    }
  }
  const auto parts = static_cast<int64_t>(ends.size());
  tiling.parts.resize(parts);
  int64_t part = 0;
  int64_t used = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(tiling.tiles.size()); ++i) {
    const Tile& tile = tiling.tiles[i];
    const int64_t blocks = tiling.blocks(tile);
    int64_t first = 0;
    do {
      const auto room = [&] { return ends[part] - used; };
      while (part + 1 < parts && room() <= 0) ++part;
      int64_t take = blocks - first;
      if (part + 1 < parts && take * tile.queries > room() && take >= 2 * kMinPiece) {
        take = std::clamp(divide_up(room(), tile.queries), kMinPiece, take - kMinPiece);
      }
      tiling.parts[part].push_back({i, first, first + take});
      first += take;
      used += take * tile.queries;
    } while (first < blocks);
    used += kTileOverhead * tile.queries;
  }
}

}  // namespace

int64_t Tiling::blocks(const Tile& tile) const {
  return tile.keys / page_size * blocks_of_page() + divide_up(tile.keys % page_size, block_size);
}

Tiling tile(const LightningIndexerPto& call, int64_t threads) {
  Tiling tiling;
  tiling.sequences = read_sequences(call);
  // Without a block table the pages follow one another.
  tiling.page_size = call.paged() ? call.key.size(1) : kBlockSize;
  tiling.block_size = std::min(tiling.page_size, kBlockSize);

  const int64_t key_heads = call.key.size(-2);
  tiling.tile_queries = std::clamp<int64_t>(kTileColumns * key_heads / call.query.size(-2), 1, kTileQueries);
  for (size_t i = 0; i < tiling.sequences.size(); ++i) {
    const Sequence& sequence = tiling.sequences[i];
    for (int64_t head = 0; head < key_heads; ++head) {
      add_tiles(tiling, static_cast<int64_t>(i), head, 0, sequence.queries);
      add_tiles(tiling, static_cast<int64_t>(i), head, sequence.queries, sequence.rows);
    }
  }
  divide(tiling, threads);
  return tiling;
}

}  // namespace opp
