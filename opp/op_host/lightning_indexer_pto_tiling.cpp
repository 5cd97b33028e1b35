// Divides the lightning indexer's work: sequences into tiles of query tokens, and those among threads.
#include <c10/util/Exception.h>

#include <algorithm>

#include "op_host/lightning_indexer_pto.h"

namespace opp {
namespace {

constexpr int64_t kBlockSize = 128;
// A tile's scores of one block, and the candidates of its query tokens, are to stay in a core's L2 cache.
constexpr int64_t kTileColumns = 256;
constexpr int64_t kTileQueries = 16;
// What a tile costs beside its blocks (packing the query, sorting the result), measured in blocks.
constexpr int64_t kTileOverhead = 2;
// A tile is not cut in pieces of fewer blocks: each piece packs the query again, and its candidates have to be merged.
constexpr int64_t kLeastPiece = 16;
// More parts than threads, so that a thread that is slowed down leaves work to the others.
constexpr int64_t kPartsOfThread = 4;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t value(const at::Tensor& tensor, int64_t i) { return tensor.const_data_ptr<int>()[i * tensor.stride(0)]; }

// The number of tokens of entry i: given as counts, or as running totals when the tokens are packed (TND).
struct Lengths {
  const char* name;
  const std::optional<at::Tensor>& tensor;
  bool packed;
  int64_t limit;  // of a count or of the total
  const char* limit_name;

  int64_t start(int64_t i) const { return packed && i > 0 ? value(*tensor, i - 1) : 0; }

  int64_t count(int64_t i) const {
    if (!tensor) return limit;
    const int64_t first = start(i);
    const int64_t length = value(*tensor, i);
    TORCH_CHECK(first <= length && length <= limit, name, "[", i, "] is ", length, ", but must lie between ", first,
                packed ? " (the running total before it) and " : " and ", limit, " (", limit_name, ")");
    return length - first;
  }
};

std::vector<Sequence> read_sequences(const LightningIndexerPto& call) {
  const bool packed = call.layout_query == "TND";
  const bool paged = call.layout_key == "PA_BSND";
  const Lengths queries{"actual_seq_lengths_query", call.actual_seq_lengths_query, packed,
                        call.query.size(packed ? 0 : 1), packed ? "the tokens of query" : "S1 of query"};
  const Lengths keys{"actual_seq_lengths_key", call.actual_seq_lengths_key, packed && !paged,
                     paged    ? call.block_table->size(1) * call.key.size(1)
                     : packed ? call.key.size(0)
                              : call.key.size(1),
                     paged    ? "the tokens that a row of block_table holds"
                     : packed ? "the tokens of key"
                              : "S2 of key"};

  const int64_t batch = packed ? call.actual_seq_lengths_query->size(0) : call.query.size(0);
  std::vector<Sequence> sequences;
  sequences.reserve(batch + 1);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t count = queries.count(b);
    sequences.push_back({b, queries.start(b), keys.start(b), count, packed ? count : call.query.size(1), keys.count(b),
                         call.sparse_mode == 3});
  }
  if (packed) {  // the tokens past the last sequence
    const int64_t total = queries.start(batch);
    sequences.push_back({batch, total, 0, 0, call.query.size(0) - total, 0, false});
  }
  return sequences;
}

void check_block_table(const at::Tensor& table, const Sequence& sequence, int64_t block_size, int64_t block_num) {
  const int* row = table.const_data_ptr<int>() + sequence.batch * table.stride(0);
  for (int64_t page = 0; page * block_size < sequence.keys; ++page) {
    const int64_t block = row[page * table.stride(1)];
    TORCH_CHECK(-1 <= block && block < block_num, "block_table[", sequence.batch, "][", page, "] is ", block,
                ", but must lie between 0 and ", block_num - 1, " (the blocks of key), or be -1 for no block");
  }
}

void add_tiles(Tiling& tiling, int64_t sequence, int64_t key_head, int64_t first, int64_t last) {
  for (; first < last; first += tiling.tile_queries) {
    Tile tile{sequence, key_head, first, std::min(tiling.tile_queries, last - first), 0};
    const Sequence& of = tiling.sequences[sequence];
    for (int64_t i = 0; i < tile.queries; ++i) tile.keys = std::max(tile.keys, of.visible(first + i));
    tiling.tiles.push_back(tile);
  }
}

// Cuts the row of all tiles, laid one after the other, in parts of about equal cost.
void divide(Tiling& tiling, int64_t parts) {
  int64_t total = 0;
  for (const Tile& tile : tiling.tiles) total += (tiling.blocks(tile) + kTileOverhead) * tile.queries;
  tiling.parts.resize(parts);
  int64_t part = 0;
  int64_t used = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(tiling.tiles.size()); ++i) {
    const Tile& tile = tiling.tiles[i];
    const int64_t blocks = tiling.blocks(tile);
    int64_t first = 0;
    do {
      const auto room = [&] { return total * (part + 1) / parts - used; };
      while (part + 1 < parts && room() <= 0) ++part;
      int64_t take = blocks - first;
      if (part + 1 < parts && take >= 2 * kLeastPiece) {
        take = std::clamp(divide_up(room(), tile.queries), kLeastPiece, take - kLeastPiece);
      }
      tiling.parts[part].push_back({i, first, first + take});
      first += take;
      used += take * tile.queries;
    } while (first < blocks);
    used += kTileOverhead * tile.queries;
  }
}

}  // namespace

int64_t Sequence::visible(int64_t query) const {
  if (query >= queries) return 0;
  return causal ? std::max<int64_t>(0, keys - queries + query + 1) : keys;
}

int64_t Tiling::blocks(const Tile& tile) const {
  return tile.keys / page_size * blocks_of_page() + divide_up(tile.keys % page_size, block_size);
}

Tiling tile(const LightningIndexerPto& call, int64_t threads) {
  Tiling tiling;
  tiling.sequences = read_sequences(call);
  const bool paged = call.layout_key == "PA_BSND";
  // Without a block table the pages follow one another.
  tiling.page_size = paged ? call.key.size(1) : kBlockSize;
  tiling.block_size = std::min(tiling.page_size, kBlockSize);
  if (paged) {
    for (const Sequence& sequence : tiling.sequences) {
      check_block_table(*call.block_table, sequence, call.key.size(1), call.key.size(0));
    }
  }

  const int64_t key_heads = call.key.size(-2);
  tiling.tile_queries = std::clamp<int64_t>(kTileColumns * key_heads / call.query.size(-2), 1, kTileQueries);
  for (size_t i = 0; i < tiling.sequences.size(); ++i) {
    const Sequence& sequence = tiling.sequences[i];
    for (int64_t head = 0; head < key_heads; ++head) {
      add_tiles(tiling, static_cast<int64_t>(i), head, 0, sequence.queries);
      add_tiles(tiling, static_cast<int64_t>(i), head, sequence.queries, sequence.rows);
    }
  }
  divide(tiling, threads == 1 ? 1 : threads * kPartsOfThread);
  return tiling;
}

}  // namespace opp
