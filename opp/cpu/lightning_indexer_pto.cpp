// The lightning indexer on the CPU: block by block, a matrix product of ATen (oneDNN), a fused sum over the heads, and
// a running selection of the best keys.
#include "cpu/lightning_indexer_pto.h"

#include <ATen/Parallel.h>
#include <ATen/native/CPUBlas.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/simd.h"
#include "cpu/top_k.h"

namespace opp {
namespace {

namespace cpublas = at::native::cpublas;

// B of the matrix product lies in panels of this many columns, the widest that oneDNN takes in packed form.
constexpr int64_t kPanel = 64;
// Keys are multiplied in multiples of this, so that oneDNN generates few kernels.
constexpr int64_t kRowStep = 16;

int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// Strides in elements of a tensor whose tokens lie BSND, PA_BSND (a page for a batch entry) or TND.
struct TokenStrides {
  int64_t batch;
  int64_t token;
  int64_t head;
  int64_t element;

  TokenStrides(at::IntArrayRef strides)
      : batch(strides.size() == 4 ? strides[0] : 0),
        token(strides[strides.size() - 3]),
        head(strides[strides.size() - 2]),
        element(strides.back()) {}

  int64_t offset(int64_t b, int64_t t, int64_t h) const { return b * batch + t * token + h * head; }
};

// Memory for `count` elements, aligned for vectors.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count) : memory_(c10::GetCPUAllocator()->allocate(count * sizeof(T))) {}
  T* data() { return static_cast<T*>(memory_.get()); }

 private:
  at::DataPtr memory_;
};

// Keys [first, first + count) of a sequence, which lie in one page from token `offset` on. A page of -1 has none.
struct Block {
  int64_t first;
  int64_t count;
  int64_t page;
  int64_t offset;
};

Block block_at(const LightningIndexerPto& call, const Tiling& tiling, const Tile& tile, int64_t index) {
  Block block;
  block.page = index / tiling.blocks_of_page();
  block.offset = index % tiling.blocks_of_page() * tiling.block_size;
  block.first = block.page * tiling.page_size + block.offset;
  block.count = std::min({tiling.block_size, tiling.page_size - block.offset, tile.keys - block.first});
  const Sequence& sequence = tiling.sequences[tile.sequence];
  if (call.block_table) {
    const auto& table = *call.block_table;
    block.page = table.const_data_ptr<int>()[sequence.batch * table.stride(0) + block.page * table.stride(1)];
  } else {
    block.page = sequence.batch;
    block.offset = sequence.first_key + block.first;
  }
  return block;
}

// The scores of one tile. Its keys and queries are of type Element; they are multiplied as Operand, Element itself
// where brgemm takes it on this machine, float elsewhere; products are float.
template <class Element, class Operand>
class TileScores {
 public:
  TileScores(const LightningIndexerPto& call, const Tiling& tiling)
      : call_(call),
        tiling_(tiling),
        key_strides_(call.key.strides()),
        depth_(call.query.size(-1)),
        heads_(call.query.size(-2) / call.key.size(-2)),
        padded_heads_(round_up(heads_, kLanes)),
        query_(round_up(tiling.tile_queries * heads_, kLanes) * depth_),
        keys_(kRowStep + round_up(tiling.block_size, kRowStep) * depth_),
        products_(round_up(tiling.block_size, kRowStep) * round_up(tiling.tile_queries * heads_, kLanes) + kLanes),
        weights_(tiling.tile_queries * padded_heads_) {}

  ~TileScores() { cpublas::brgemm_release(kPacked); }

  // Packs the tile's query tokens and converts its weights.
  void load(const Tile& tile) {
    tile_ = tile;
    columns_ = round_up(tile.queries * heads_, kLanes);
    pack_query();
    if (call_.weights.scalar_type() == at::kFloat) {
      load_weights<float>();
    } else {
      load_weights<Element>();
    }
  }

  // Multiplies all the block's keys and all the tile's query tokens.
  void multiply(const Block& block) {
    const auto* keys =
        call_.key.const_data_ptr<Element>() + key_strides_.offset(block.page, block.offset, tile_.key_head);
    const int64_t rows = round_up(block.count, kRowStep);
    if constexpr (std::is_same_v<Element, Operand>) {
      if (key_strides_.element == 1 && key_strides_.token >= depth_ && rows == block.count) {
        return multiply(keys, key_strides_.token, rows);
      }
    }
    copy_keys(keys, block.count, rows);
    multiply(keys_.data(), depth_, rows);
  }

  // The scores of the first `count` keys of the multiplied block for one query token of the tile.
  void write_scores(int64_t query, int64_t count, float* scores) {
    weighted_relu_sums(products_.data() + query * heads_, columns_, count, weights_.data() + query * padded_heads_,
                       heads_, scores);
  }

 private:
  // Operands narrower than float lie in pairs of rows (VNNI).
  static constexpr bool kPacked = !std::is_same_v<Operand, float>;
  static constexpr int64_t kPair = kPacked ? 2 : 1;

  TokenStrides strides_of_tile(at::IntArrayRef strides, int64_t& offset) const {
    const Sequence& sequence = tiling_.sequences[tile_.sequence];
    const TokenStrides of(strides);
    offset = of.offset(sequence.batch, sequence.first_query + tile_.first_query, tile_.key_head * heads_);
    return of;
  }

  // Transposes the query tokens' heads to the columns of B; the columns past the last are zero.
  void pack_query() {
    int64_t offset;
    const TokenStrides strides = strides_of_tile(call_.query.strides(), offset);
    const auto* query = call_.query.const_data_ptr<Element>() + offset;
    std::fill_n(query_.data(), columns_ * depth_, Operand(0));
    for (int64_t column = 0; column < tile_.queries * heads_; ++column) {
      const auto* from = query + strides.offset(0, column / heads_, column % heads_);
      const int64_t panel = column / kPanel * kPanel;
      const int64_t width = std::min(kPanel, columns_ - panel);
      Operand* to = query_.data() + panel * depth_ + (column - panel) * kPair;
      for (int64_t d = 0; d < depth_; ++d) {
        to[d / kPair * kPair * width + d % kPair] = static_cast<Operand>(from[d * strides.element]);
      }
    }
  }

  template <class Weight>
  void load_weights() {
    const auto weights = call_.weights.strides();
    int64_t offset;
    // Weights are (..., N1): a token is a row of heads, and a head one element.
    auto with_element = weights.vec();
    with_element.push_back(1);
    const TokenStrides strides = strides_of_tile(with_element, offset);
    const auto* from = call_.weights.const_data_ptr<Weight>() + offset;
    std::fill_n(weights_.data(), tile_.queries * padded_heads_, 0.0F);
    for (int64_t query = 0; query < tile_.queries; ++query) {
      for (int64_t head = 0; head < heads_; ++head) {
        weights_.data()[query * padded_heads_ + head] = static_cast<float>(from[strides.offset(0, query, head)]);
      }
    }
  }

  void copy_keys(const Element* keys, int64_t count, int64_t rows) {
    for (int64_t row = 0; row < count; ++row) {
      const Element* from = keys + row * key_strides_.token;
      Operand* to = keys_.data() + row * depth_;
      if constexpr (!kPacked) {
        if (key_strides_.element == 1) {
          to_float(from, depth_, to);
          continue;
        }
      }
      for (int64_t d = 0; d < depth_; ++d) to[d] = static_cast<Operand>(from[d * key_strides_.element]);
    }
    std::fill(keys_.data() + count * depth_, keys_.data() + rows * depth_, Operand(0));
  }

  void multiply(const Operand* keys, int64_t stride, int64_t rows) {
    for (int64_t panel = 0; panel < columns_; panel += kPanel) {
      const int64_t width = std::min(kPanel, columns_ - panel);
      cpublas::brgemm(rows, width, depth_, stride, width, columns_, false, keys, query_.data() + panel * depth_,
                      products_.data() + panel, kPacked);
    }
  }

  const LightningIndexerPto& call_;
  const Tiling& tiling_;
  const TokenStrides key_strides_;
  const int64_t depth_;
  const int64_t heads_;  // of the query that share a key head
  const int64_t padded_heads_;
  Tile tile_{};
  int64_t columns_ = 0;
  Buffer<Operand> query_;
  Buffer<Operand> keys_;
  Buffer<float> products_;
  Buffer<float> weights_;
};

// Writes the result of one query token of a tile.
void write_row(const LightningIndexerPto& call, const Tiling& tiling, const Tile& tile, int64_t query, TopK& row) {
  const Sequence& sequence = tiling.sequences[tile.sequence];
  const TokenStrides strides(call.sparse_indices.strides());
  const int64_t token = sequence.first_query + tile.first_query + query;
  row.write(call.sparse_indices.mutable_data_ptr<int>() + strides.offset(sequence.batch, token, tile.key_head),
            strides.element);
}

using Rows = std::vector<TopK>;

// The best keys of one piece, for each query token of its tile.
template <class Scores>
void select_piece(const LightningIndexerPto& call, const Tiling& tiling, const Piece& piece, Scores& scores,
                  Rows& rows) {
  const Tile& tile = tiling.tiles[piece.tile];
  const Sequence& sequence = tiling.sequences[tile.sequence];
  const int64_t keys = std::min(tile.keys, (piece.last - piece.first) * tiling.block_size);
  for (int64_t query = 0; query < tile.queries; ++query) rows[query].reset(call.sparse_count, keys);
  if (piece.first == piece.last) return;

  scores.load(tile);
  Buffer<float> block_scores(tiling.block_size);
  for (int64_t index = piece.first; index < piece.last; ++index) {
    const Block block = block_at(call, tiling, tile, index);
    if (block.page < 0) continue;
    scores.multiply(block);
    for (int64_t query = 0; query < tile.queries; ++query) {
      const int64_t count = std::min(block.count, sequence.visible(tile.first_query + query) - block.first);
      if (count <= 0) continue;
      scores.write_scores(query, count, block_scores.data());
      rows[query].push(block_scores.data(), count, block.first);
    }
  }
}

bool is_whole(const Tiling& tiling, const Piece& piece) {
  return piece.last - piece.first == tiling.blocks(tiling.tiles[piece.tile]);
}

// Merges the pieces of each tile that was cut, in the order of their keys, into the first of them.
void merge_pieces(const LightningIndexerPto& call, const Tiling& tiling, std::vector<std::pair<Piece, Rows>>& cut) {
  for (size_t first = 0; first < cut.size();) {
    const Tile& tile = tiling.tiles[cut[first].first.tile];
    size_t last = first + 1;
    while (last < cut.size() && cut[last].first.tile == cut[first].first.tile) ++last;
    at::parallel_for(0, tile.queries, 1, [&](int64_t begin, int64_t end) {
      for (int64_t query = begin; query < end; ++query) {
        TopK& row = cut[first].second[query];
        for (size_t i = first + 1; i < last; ++i) row.merge(cut[i].second[query]);
        write_row(call, tiling, tile, query, row);
      }
    });
    first = last;
  }
}

template <class Element, class Operand>
void run(const LightningIndexerPto& call, const Tiling& tiling, int64_t threads) {
  std::vector<std::vector<std::pair<Piece, Rows>>> cut(tiling.parts.size());
  std::atomic<size_t> next = 0;
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    TileScores<Element, Operand> scores(call, tiling);
    Rows rows(tiling.tile_queries);
    for (size_t part = next++; part < tiling.parts.size(); part = next++) {
      for (const Piece& piece : tiling.parts[part]) {
        select_piece(call, tiling, piece, scores, rows);
        if (is_whole(tiling, piece)) {
          const Tile& tile = tiling.tiles[piece.tile];
          for (int64_t query = 0; query < tile.queries; ++query) write_row(call, tiling, tile, query, rows[query]);
        } else {
          cut[part].emplace_back(piece, std::exchange(rows, Rows(tiling.tile_queries)));
        }
      }
    }
  });
  std::vector<std::pair<Piece, Rows>> in_order;
  for (auto& part : cut) std::move(part.begin(), part.end(), std::back_inserter(in_order));
  merge_pieces(call, tiling, in_order);
}

// Whether brgemm multiplies this type on this machine. Only oneDNN knows, and ATen tells by throwing.
template <class Element>
bool has_brgemm() {
  static const bool has = [] {
    Element a[kRowStep * 2]{};
    Element b[kRowStep * 2]{};
    float c[kRowStep * kRowStep];
    try {
      cpublas::brgemm(kRowStep, kRowStep, 2, 2, kRowStep, kRowStep, false, a, b, c, true);
      cpublas::brgemm_release(true);
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  }();
  return has;
}

template <class Element>
void run(const LightningIndexerPto& call, const Tiling& tiling, int64_t threads) {
  if (has_brgemm<Element>() && call.query.size(-1) % 2 == 0) {
    run<Element, Element>(call, tiling, threads);
  } else {
    run<Element, float>(call, tiling, threads);
  }
}

}  // namespace

void lightning_indexer_pto(const LightningIndexerPto& call) {
  const int64_t threads = at::get_num_threads();
  const Tiling tiling = tile(call, threads);
  if (call.query.scalar_type() == at::kHalf) {
    run<at::Half>(call, tiling, threads);
  } else {
    run<at::BFloat16>(call, tiling, threads);
  }
}

}  // namespace opp
