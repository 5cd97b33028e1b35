// SPDX-License-Identifier: Apache-2.0
// The lightning indexer on the CPU: block by block, a matrix product of ATen (oneDNN), a fused sum over the heads, and
// a running selection of the best keys.
#include "cpu/lightning_indexer_pto.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/matmul.h"
#include "cpu/pairs.h"
#include "cpu/simd.h"
#include "cpu/tokens.h"
#include "cpu/top_k.h"

namespace opp {
namespace {

// Keys [first, first + count) of a sequence, which lie in one page from token `offset` on. A page of -1 has none.
struct Block {
  int64_t first;
  int64_t count;
  int64_t page;
  int64_t offset;
};

Block block_at(const LightningIndexerPto& call, const Tiling& tiling, const Tile& tile, int64_t index) {
  const int64_t offset = index % tiling.blocks_of_page() * tiling.block_size;
  const int64_t first = index / tiling.blocks_of_page() * tiling.page_size + offset;
  const KeyPlace place = KeyPlaces(call, tiling.sequences[tile.sequence])(first);
  const int64_t count = std::min({tiling.block_size, tiling.page_size - offset, tile.keys - first});
  return {first, count, place.page, place.token};
}

// What int8 queries and keys are to be multiplied by: tensors like the weights, and like the keys without their last
// dimension. Others have none.
struct Scales {
  at::Tensor query;
  at::Tensor key;
};

// Calls read(x), where x(i) is the i-th element in float.
template <class Read>
void in_float(const at::Tensor& tensor, Read&& read) {
  const auto of = [&]<class T>(const T* data) { read([=](int64_t i) { return static_cast<float>(data[i]); }); };
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return of(tensor.const_data_ptr<float>());
    case at::kHalf:
      return of(tensor.const_data_ptr<at::Half>());
    default:
      return of(tensor.const_data_ptr<at::BFloat16>());
  }
}

// The scores of one tile. Its keys and queries are of type Element; Multiply's operands are that or float, its products
// float or int32. Tiles, and dot products of pairs, multiply the keys with one query token after the other, add up the
// products at once, and write none.
template <class Element, class Multiply>
class TileScores {
  using Operand = typename Multiply::Operand;
  using Left = typename Multiply::Left;
  using Sum = typename Multiply::Sum;
  static constexpr bool kShifted = !std::is_same_v<Left, Operand>;
  static constexpr bool kWhole = std::is_same_v<Sum, int32_t>;
  static constexpr bool kTiles = std::is_same_v<Multiply, TileProducts>;
  static constexpr bool kPairs = std::is_same_v<Multiply, Products<at::BFloat16, Layout::kVnni>>;

 public:
  TileScores(const LightningIndexerPto& call, const Scales& scales, const Tiling& tiling)
      : call_(call),
        scales_(scales),
        tiling_(tiling),
        key_strides_(call.key.strides()),
        size_(call.query.size(-1)),
        depth_(round_up(size_, Multiply::kDepthStep)),
        heads_(call.query.size(-2) / call.key.size(-2)),
        padded_heads_(round_up(heads_, kLanes)),
        fused_(kTiles || (kPairs && has_pairs())),
        query_(tiling.tile_queries * padded_heads_ * depth_),
        keys_(kRowStep + round_up(tiling.block_size, kRowStep) * depth_),
        products_(fused_ ? 2 * kTileRows * padded_heads_
                         : round_up(tiling.block_size, kRowStep) * round_up(tiling.tile_queries * heads_, kLanes) +
                               kLanes),
        weights_(tiling.tile_queries * padded_heads_),
        shifts_(kWhole ? round_up(tiling.tile_queries * heads_, kLanes) + kLanes : 0),
        key_scales_(scales.key.defined() ? tiling.block_size : 0) {}

  // Packs the tile's query tokens and converts its weights.
  void load(const Tile& tile) {
    tile_ = tile;
    columns_ = round_up(tile.queries * heads_, kLanes);
    pack_query();
    std::fill_n(weights_.data(), tile_.queries * padded_heads_, 0.0F);
    each_weight(call_.weights, [](float& weight, float x) { weight = x; });
    if (scales_.query.defined()) each_weight(scales_.query, [](float& weight, float x) { weight *= x; });
  }

  // Multiplies all the block's keys and all the tile's query tokens, and brings the next block's to the cache.
  void multiply(const Block& block, const Block* next) {
    const Element* keys = keys_of(block);
    const int64_t rows = round_up(block.count, kRowStep);
    next_ = nullptr;
    if (scales_.key.defined()) load_key_scales(block);
    if constexpr (std::is_same_v<Element, Left>) {
      if (key_strides_.element == 1 && key_strides_.token >= depth_ && size_ == depth_ && rows == block.count) {
        if (next != nullptr && next->page >= 0) next_ = keys_of(*next);
        return multiply(keys, key_strides_.token, rows);
      }
    }
    copy_keys(keys, block.count, rows);
    multiply(keys_.data(), depth_, rows);
  }

  // The scores of the first `count` keys of the multiplied block for one query token of the tile; writes up to the next
  // multiple of kRowStep.
  void write_scores(int64_t query, int64_t count, float* scores) {
    const Sum* products = products_.data() + query * heads_;
    const float* weights = weights_.data() + query * padded_heads_;
    if constexpr (kPairs) {
      if (fused_) {
        return weighted_relu_pairs(left_, left_stride_, query_of(query), weights, scores, round_up(count, kPairRows),
                                   heads_, depth_, std::exchange(next_, nullptr));
      }
    }
    if constexpr (kTiles) {
      weighted_relu_tiles(left_, left_stride_, query_of(query), weights, scores, round_up(count, kTileRows), heads_,
                          depth_, std::exchange(next_, nullptr), products_.data());
    } else if constexpr (kWhole) {
      simd().weighted_relu_sums(products, shifts_.data() + query * heads_, columns_, count, weights, heads_, scores);
    } else {
      simd().weighted_relu_sums(products, columns_, count, weights, heads_, scores);
    }
    if (scales_.key.defined()) {
      for (int64_t i = 0; i < count; ++i) scores[i] *= key_scales_.data()[i];
    }
  }

 private:
  const Element* keys_of(const Block& block) const {
    return call_.key.const_data_ptr<Element>() + key_strides_.offset(block.page, block.offset, tile_.key_head);
  }

  // A token's B.
  const Operand* query_of(int64_t token) { return query_.data() + token * padded_heads_ * depth_; }

  TokenStrides strides_of_tile(at::IntArrayRef strides, int64_t& offset) const {
    const Sequence& sequence = tiling_.sequences[tile_.sequence];
    const TokenStrides of(strides);
    offset = of.offset(sequence.batch, sequence.first_query + tile_.first_query, tile_.key_head * heads_);
    return of;
  }

  // Transposes the query tokens' heads to the columns of B. If fused, B has one column for each token. The columns past
  // the last are zero.
  void pack_query() {
    int64_t offset;
    const TokenStrides strides = strides_of_tile(call_.query.strides(), offset);
    const auto* query = call_.query.const_data_ptr<Element>() + offset;
    std::fill_n(query_.data(), tile_.queries * padded_heads_ * depth_, Operand(0));
    for (int64_t column = 0; column < tile_.queries * heads_; ++column) {
      const int64_t token = column / heads_;
      const int64_t head = column % heads_;
      const auto* from = query + strides.offset(0, token, head);
      for (int64_t d = 0; d < size_; ++d) {
        const int64_t place = fused_ ? token * padded_heads_ * depth_ + Multiply::place(d, head, depth_, padded_heads_)
                                     : Multiply::place(d, column, depth_, columns_);
        query_.data()[place] = static_cast<Operand>(from[d * strides.element]);
      }
      if constexpr (kWhole) shifts_.data()[column] = kShifted ? shift_of(from, strides.element) : 0;
    }
  }

  // What 128 added to each number of a key adds to its product with a query.
  int32_t shift_of(const Element* query, int64_t stride) const {
    int32_t sum = 0;
    for (int64_t d = 0; d < size_; ++d) sum += query[d * stride];
    return static_cast<int32_t>(static_cast<uint32_t>(sum) * 128);
  }

  // For tensors (..., N1): a token is a row of heads, and a head one element.
  static std::vector<int64_t> with_element(at::IntArrayRef strides) {
    auto with = strides.vec();
    with.push_back(1);
    return with;
  }

  // Calls visit(weight, x) for the weight of each query token and head, and that element of a tensor like the weights.
  template <class Visit>
  void each_weight(const at::Tensor& tensor, Visit visit) {
    int64_t offset;
    const TokenStrides strides = strides_of_tile(with_element(tensor.strides()), offset);
    in_float(tensor, [&](const auto& x) {
      for (int64_t query = 0; query < tile_.queries; ++query) {
        for (int64_t head = 0; head < heads_; ++head) {
          visit(weights_.data()[query * padded_heads_ + head], x(offset + strides.offset(0, query, head)));
        }
      }
    });
  }

  void load_key_scales(const Block& block) {
    const TokenStrides strides(with_element(scales_.key.strides()));
    const int64_t first = strides.offset(block.page, block.offset, tile_.key_head);
    in_float(scales_.key, [&](const auto& x) {
      for (int64_t i = 0; i < block.count; ++i) key_scales_.data()[i] = x(first + i * strides.token);
    });
  }

  void copy_keys(const Element* keys, int64_t count, int64_t rows) {
    for (int64_t row = 0; row < count; ++row) {
      Left* to = keys_.data() + row * depth_;
      copy_left(keys + row * key_strides_.token, key_strides_.element, size_, to);
      std::fill(to + size_, to + depth_, Left(0));
    }
    std::fill(keys_.data() + count * depth_, keys_.data() + rows * depth_, Left(0));
  }

  void multiply(const Left* keys, int64_t stride, int64_t rows) {
    left_ = keys;
    left_stride_ = stride;
    if (!fused_) multiply_.multiply(keys, stride, query_.data(), products_.data(), columns_, rows, columns_, depth_);
  }

  const LightningIndexerPto& call_;
  const Scales& scales_;
  const Tiling& tiling_;
  const TokenStrides key_strides_;
  const int64_t size_;   // of a key
  const int64_t depth_;  // with what pads it
  const int64_t heads_;  // of the query that share a key head
  const int64_t padded_heads_;
  const bool fused_;  // no products are written
  const Multiply multiply_;
  Tile tile_{};
  int64_t columns_ = 0;
  const Left* left_ = nullptr;  // of the products, and so the next
  int64_t left_stride_ = 0;
  const Element* next_ = nullptr;  // keys to bring to the cache
  Buffer<Operand> query_;
  Buffer<Left> keys_;
  Buffer<Sum> products_;
  Buffer<float> weights_;     // times the scales of the queries
  Buffer<int32_t> shifts_;    // of the products
  Buffer<float> key_scales_;  // of the block
};

// Writes the result of one query token of a tile.
void write_row(const LightningIndexerPto& call, const Tiling& tiling, const Tile& tile, int64_t query, TopK& row) {
  const Sequence& sequence = tiling.sequences[tile.sequence];
  const TokenStrides strides(call.sparse_indices.strides());
  const int64_t token = sequence.first_query + tile.first_query + query;
  row.write(call.sparse_indices.mutable_data_ptr<int>() + strides.offset(sequence.batch, token, tile.key_head),
            strides.element);
  if (call.return_value) {
    const TokenStrides of_values(call.sparse_values.strides());
    const int64_t first = of_values.offset(sequence.batch, token, tile.key_head);
    const auto write = [&](auto* values) { row.write_scores(values + first, of_values.element); };
    switch (call.sparse_values.scalar_type()) {
      case at::kFloat:
        return write(call.sparse_values.mutable_data_ptr<float>());
      case at::kHalf:
        return write(call.sparse_values.mutable_data_ptr<at::Half>());
      default:
        return write(call.sparse_values.mutable_data_ptr<at::BFloat16>());
    }
  }
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
  Buffer<float> block_scores(round_up(tiling.block_size, kRowStep));
  Block block = block_at(call, tiling, tile, piece.first);
  for (int64_t index = piece.first; index < piece.last; ++index) {
    const Block now = block;
    const bool is_last = index + 1 == piece.last;
    if (!is_last) block = block_at(call, tiling, tile, index + 1);
    if (now.page < 0) continue;
    scores.multiply(now, is_last ? nullptr : &block);
    for (int64_t query = 0; query < tile.queries; ++query) {
      const int64_t count = std::min(now.count, sequence.visible(tile.first_query + query) - now.first);
      if (count <= 0) continue;
      scores.write_scores(query, count, block_scores.data());
      rows[query].push(block_scores.data(), count, now.first);
    }
  }
}

bool is_whole(const Tiling& tiling, const Piece& piece) {
  return piece.last - piece.first == tiling.blocks(tiling.tiles[piece.tile]);
}

// Merges the pieces of each tile that was cut, in the order of their keys, into the first of them.
void merge_pieces(const LightningIndexerPto& call, const Tiling& tiling, std::vector<std::pair<Piece, Rows>>& cut) {
  struct Row {
    size_t first;  // of the pieces of its tile, and past the last
    size_t last;
    int64_t query;
  };
  std::vector<Row> rows;
  for (size_t first = 0, last = 0; first < cut.size(); first = last) {
    const int64_t tile = cut[first].first.tile;
    while (last < cut.size() && cut[last].first.tile == tile) ++last;
    for (int64_t query = 0; query < tiling.tiles[tile].queries; ++query) rows.push_back({first, last, query});
  }
  at::parallel_for(0, static_cast<int64_t>(rows.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [first, last, query] = rows[i];
      TopK& row = cut[first].second[query];
      for (size_t piece = first + 1; piece < last; ++piece) row.merge(cut[piece].second[query]);
      write_row(call, tiling, tiling.tiles[cut[first].first.tile], query, row);
    }
  });
}

template <class Element, class Multiply>
void run(const LightningIndexerPto& call, const Scales& scales, const Tiling& tiling, int64_t threads) {
  std::vector<std::vector<std::pair<Piece, Rows>>> cut(tiling.parts.size());
  std::atomic<size_t> next = 0;
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    TileScores<Element, Multiply> scores(call, scales, tiling);
    Rows rows(tiling.tile_queries);
    for (size_t part = next++; part < tiling.parts.size(); part = next++) {
      for (const Piece& piece : tiling.parts[part]) {
        select_piece(call, tiling, piece, scores, rows);
        if (is_whole(tiling, piece)) {
          const Tile& tile = tiling.tiles[piece.tile];
          for (int64_t query = 0; query < tile.queries; ++query) {
            write_row(call, tiling, tile, query, rows[query]);
          }
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

template <class Element>
void run(const LightningIndexerPto& call, const Scales& scales = {}) {
  const int64_t threads = at::get_num_threads();
  const Tiling tiling = tile(call, threads);
  with_products<Element>([&]<class Multiply>() { run<Element, Multiply>(call, scales, tiling, threads); });
}

}  // namespace

void lightning_indexer_pto(const LightningIndexerPto& call) {
  if (call.query.scalar_type() == at::kHalf) {
    run<at::Half>(call);
  } else {
    run<at::BFloat16>(call);
  }
}

void lightning_indexer_quant_pto(const LightningIndexerQuantPto& call) {
  const at::Tensor& query = call.query_dequant_scale;
  run<int8_t>(call, {query.dim() == call.query.dim() ? query.squeeze(-1) : query, call.key_dequant_scale});
}

}  // namespace opp
