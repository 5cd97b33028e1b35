// SPDX-License-Identifier: Apache-2.0
// Reads and writes a call's tensors for sparse flash attention, tile by tile.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "cpu/prefetch.h"
#include "cpu/sparse_flash_attention_pto.h"
#include "cpu/tokens.h"

namespace opp {

// A head's softmax so far: the sum of exp(score - maximum), with the sink's. `maximum` may be less than the largest.
struct Softmax {
  float maximum;
  float sum;
};

// The largest variance that rounded softmax weights may give an element of the result, over the square of their
// rounding error: it keeps 99 % of the elements within atol 1e-4 (2.8 standard deviations) of exact weights' results in
// bfloat16, and within an eighth of that in float16, whose rounding error is an eighth.
constexpr float kLargestVariance = 0x1p-9F;

// Where a token's rows begin.
template <class Element>
struct Token {
  const Element* key;
  const Element* rope;  // if there are any
  const Element* value;
};

template <class Element>
class AttentionOperands {
 public:
  AttentionOperands(const SparseFlashAttentionPto& call, const AttentionTiling& tiling)
      : call_(call),
        tiling_(tiling),
        keys_(call.key),
        values_(call.value),
        values_are_keys_(call.value.const_data_ptr() == call.key.const_data_ptr() &&
                         call.value.strides() == call.key.strides()),
        lse_(call.return_softmax_lse ? call.softmax_lse.unsqueeze(-1) : at::Tensor()) {
    if (call.key_rope) ropes_.emplace(*call.key_rope);
  }

  // Goes to a tile, and finds the tokens that its row names and its query sees, in the order of its indices. Those that
  // the block table has no page for are left out. Meanwhile the tile's queries come to the cache.
  void open(const AttentionTile& tile) {
    tile_ = tile;
    const TokenStrides strides(call_.sparse_indices.strides());
    const int* indices = call_.sparse_indices.const_data_ptr<int>() +
                         strides.offset(sequence().batch, sequence().first_query + row().query, row().key_head);
    const int64_t visible = sequence().visible(row().query);
    const KeyPlaces place_of(call_, sequence());
    const Tokens queries(call_.query);
    const bool whole_lines = queries.lies_in_chunks(kCacheLine / static_cast<int64_t>(sizeof(Element)));
    const int64_t lines = whole_lines ? heads() * queries.bytes() / kCacheLine : 0;
    RowsAhead ahead(queries.data + offset(queries.strides, 0),
                    queries.strides.head * static_cast<int64_t>(sizeof(Element)), queries.bytes());
    tokens_.clear();
    for (int64_t i = 0; i < row().named; ++i) {
      if (i < lines) ahead.bring<1>();
      const int64_t index = indices[i * strides.element];
      if (index >= visible) continue;
      const KeyPlace place = place_of(index);
      if (place.page < 0) continue;
      const int64_t head = row().key_head;
      const Element* rope = ropes_ ? ropes_->at(place, head) : nullptr;
      tokens_.push_back({keys_.at(place, head), rope, values_.at(place, head)});
    }
  }

  const AttentionTile& tile() const { return tile_; }
  int64_t heads() const { return tile_.heads; }
  // Leaves the tile no more than its first heads.
  void keep(int64_t heads) { tile_.heads = heads; }
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }

  // The score that counts without a value; without sinks it weighs nothing.
  float sink(int64_t head) const {
    if (!call_.attention_sinks) return -std::numeric_limits<float>::infinity();
    return call_.attention_sinks->const_data_ptr<float>()[head_of_query(head) * call_.attention_sinks->stride(0)];
  }

  // Copies queries of the tile's heads to rows.
  template <class Operand>
  void load_queries(int64_t first, int64_t count, Operand* to, int64_t stride) const {
    const auto load = [&](const at::Tensor& tensor, int64_t column) {
      const TokenStrides strides(tensor.strides());
      for (int64_t i = 0; i < count; ++i) {
        copy_row(tensor.const_data_ptr<Element>() + offset(strides, first + i), strides.element, tensor.size(-1),
                 to + i * stride + column);
      }
    };
    load(call_.query, 0);
    if (call_.query_rope) load(*call_.query_rope, call_.query.size(-1));
  }

  // Copies the tokens' keys, with their rope parts, or values to rows.
  template <class Operand>
  void load_keys(int64_t first, int64_t count, Operand* to, int64_t stride) const {
    for (int64_t i = 0; i < count; ++i, to += stride) {
      copy_row(token(first + i).key, keys_.strides.element, keys_.size, to);
      if (ropes_) copy_row(token(first + i).rope, ropes_->strides.element, ropes_->size, to + keys_.size);
    }
  }
  template <class Operand>
  void load_values(int64_t first, int64_t count, Operand* to, int64_t stride) const {
    for (int64_t i = 0; i < count; ++i, to += stride) {
      copy_row(token(first + i).value, values_.strides.element, values_.size, to);
    }
  }

  int64_t key_size() const { return keys_.size; }
  int64_t rope_size() const { return ropes_ ? ropes_->size : 0; }
  int64_t value_size() const { return values_.size; }
  // Whether a key begins with `columns` numbers whose first ones are its value.
  bool keys_begin_with_values(int64_t columns) const { return values_are_keys_ && columns <= keys_.size; }

  // Whether the elements of keys and rope parts, or of values, lie side by side in chunks of this size.
  bool keys_lie_in_chunks(int64_t size) const {
    return keys_.lies_in_chunks(size) && (!ropes_ || ropes_->lies_in_chunks(size));
  }
  bool values_lie_in_chunks(int64_t size) const { return values_.lies_in_chunks(size); }

  const Token<Element>& token(int64_t i) const { return tokens_[i]; }

  // Starts to bring the keys of these tokens to the cache, as many of them as there are.
  void prefetch_keys(int64_t first, int64_t count) const {
    const int64_t last = std::min(first + count, tokens());
    for (int64_t i = first; i < last; ++i) prefetch(token(i).key, keys_.bytes());
    for (int64_t i = first; i < last && ropes_; ++i) prefetch(token(i).rope, ropes_->bytes());
  }

  // Writes a head's result.
  void write(int64_t head, const Element* row, const Softmax& softmax) const {
    const TokenStrides strides(call_.attention_out.strides());
    Element* to = call_.attention_out.template mutable_data_ptr<Element>() + offset(strides, head);
    if (strides.element == 1) {
      std::copy_n(row, values_.size, to);
    } else {
      for (int64_t i = 0; i < values_.size; ++i) to[i * strides.element] = row[i];
    }
    if (call_.return_softmax_lse) {
      lse_.mutable_data_ptr<float>()[offset(lse_.strides(), head)] = softmax.maximum + std::log(softmax.sum);
    }
  }

 private:
  // The tokens of a query, a key, a rope part or a value.
  struct Tokens {
    const Element* data;
    TokenStrides strides;
    int64_t size;  // of a token

    explicit Tokens(const at::Tensor& tensor)
        : data(tensor.const_data_ptr<Element>()), strides(tensor.strides()), size(tensor.size(-1)) {}

    const Element* at(KeyPlace place, int64_t head) const {
      return data + strides.offset(place.page, place.token, head);
    }
    int64_t bytes() const { return size * static_cast<int64_t>(sizeof(Element)); }
    bool lies_in_chunks(int64_t of) const { return strides.element == 1 && size % of == 0; }
  };

  const AttentionRow& row() const { return tiling_.rows[tile_.row]; }
  const Sequence& sequence() const { return tiling_.sequences[row().sequence]; }
  int64_t head_of_query(int64_t head) const {
    return row().key_head * call_.heads_of_key_head() + tile_.first_head + head;
  }

  // The offset of a head of the tile in query, query_rope or attention_out.
  int64_t offset(const TokenStrides& strides, int64_t head) const {
    return strides.offset(sequence().batch, sequence().first_query + row().query, head_of_query(head));
  }

  const SparseFlashAttentionPto& call_;
  const AttentionTiling& tiling_;
  const Tokens keys_;
  const Tokens values_;
  std::optional<Tokens> ropes_;
  const bool values_are_keys_;
  const at::Tensor lse_;  // a row of one element for each head
  AttentionTile tile_{};
  std::vector<Token<Element>> tokens_;
};

}  // namespace opp
