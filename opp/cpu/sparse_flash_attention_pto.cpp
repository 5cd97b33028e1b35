// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention on the CPU: gathers the selected tokens block by block, multiplies with ATen (oneDNN), and
// keeps a running softmax and a running weighted sum of the values for each head, span by span. For tiles, see
// amx_attention.h.
#include "cpu/sparse_flash_attention_pto.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "cpu/amx_attention.h"
#include "cpu/attention_operands.h"
#include "cpu/matmul.h"
#include "cpu/simd.h"

namespace opp {
namespace {

// Selected tokens that are gathered, packed and multiplied at once. Their results stay in a core's L2 cache.
constexpr int64_t kBlock = 128;
// Tokens whose scores are all computed before they become weights.
constexpr int64_t kSpan = 2048;
// Up to so many heads are multiplied a second time as one product; more are padded to kRowStep.
constexpr int64_t kFewHeads = 4;
// How many tokens before it is packed a token begins to come to the cache.
constexpr int64_t kAhead = 64;

// The attention of one tile. Its tensors are of type Element; Multiply's operands are that or float. An Element is a
// coarse softmax weight, off by up to 2^-9. Spread over many tokens such errors average out; a head whose weights are
// not is multiplied a second time, with what the first time lacked.
template <class Element, class Multiply>
class TileAttention {
  using Operand = typename Multiply::Operand;
  static constexpr int64_t kOperandsOfWord = sizeof(float) / sizeof(Operand);
  // Tokens are columns of one product and the depth of the other.
  static constexpr int64_t kTokenStep = std::max(kRowStep, Multiply::kDepthStep);

 public:
  TileAttention(const SparseFlashAttentionPto& call, const AttentionTiling& tiling)
      : operands_(call, tiling),
        tile_heads_(tiling.tile_heads),
        scale_(static_cast<float>(call.scale_value)),
        depth_(round_up(call.depth(), std::max(kOperandsOfWord, Multiply::kDepthStep))),
        columns_(round_up(call.value.size(-1), kLanes)),
        values_are_keys_(operands_.keys_begin_with_values(columns_)),
        query_(tile_heads_ * depth_),
        keys_(kLanes * depth_),
        values_(values_are_keys_ ? 0 : kLanes * columns_),
        span_(std::min(kSpan, round_up(tiling.max_named(), kBlock))),
        packed_keys_(kBlock * depth_),
        packed_values_(span_ * columns_),
        mean_squares_(span_),
        weights_(tile_heads_ * span_),
        high_(kSplit ? tile_heads_ * span_ : 0),
        low_(kSplit ? tile_heads_ * span_ : 0),
        sums_(tile_heads_ * columns_),
        low_sums_(kSplit ? tile_heads_ * kPanel : 0),
        softmax_(tile_heads_),
        next_maxima_(tile_heads_),
        row_(columns_) {
    // What pads the rows stays zero.
    std::fill_n(query_.data(), tile_heads_ * depth_, Operand(0));
    std::fill_n(keys_.data(), kLanes * depth_, Operand(0));
    if (!values_are_keys_) std::fill_n(values_.data(), kLanes * columns_, Operand(0));
    std::fill_n(mean_squares_.data(), span_, 0.0F);
  }

  void run(const AttentionTile& tile) {
    operands_.open(tile);
    heads_ = tile.heads;
    for (int64_t head = 0; head < heads_; ++head) {
      softmax_[head] = {operands_.sink(head), 1};
      next_maxima_[head] = softmax_[head].maximum;
    }
    const int64_t size = operands_.tokens();
    if (size == 0) return write_zeros();
    operands_.load_queries(0, heads_, query_.data(), depth_);
    operands_.prefetch_keys(0, kAhead);
    for (int64_t first = 0; first < size; first += span_) {
      score(first, std::min(span_, size - first));
      weigh(first > 0);
      add_values(first > 0);
    }
    write();
  }

 private:
  static constexpr bool kSplit = !std::is_same_v<Operand, float>;

  // One block of the span: where it lies in the buffers, how many tokens it has, and how many with what pads them.
  struct Block {
    int64_t first;
    int64_t count;
    int64_t padded;
  };

  // A block's rows of weights_, high_ or low_.
  template <class T>
  T* rows(Buffer<T>& buffer, const Block& block) const {
    return buffer.data() + block.first * tile_heads_;
  }

  // Computes the products of the queries with the span's keys, and the largest for each head. Also packs the values.
  void score(int64_t first, int64_t count) {
    blocks_.clear();
    for (int64_t i = 0; i < count; i += kBlock) {
      const int64_t size = std::min(kBlock, count - i);
      const Block& block = blocks_.emplace_back(i, size, round_up(size, kTokenStep));
      load(first + i, block);
      multiply_.multiply(query_.data(), depth_, packed_keys_.data(), rows(weights_, block), kBlock, heads_,
                         block.padded, depth_);
      for (int64_t head = 0; head < heads_; ++head) {
        float& largest = next_maxima_[head];
        float* row = rows(weights_, block) + head * kBlock;
        largest = simd().scale_and_find_largest(row, size, scale_, largest);
        std::fill(row + round_up(size, kLanes), row + block.padded, -std::numeric_limits<float>::infinity());
      }
    }
  }

  // Packs the block's keys and values, a few tokens at a time, which stay in the cache closest to the core meanwhile.
  void load(int64_t first, const Block& block) {
    for (int64_t token = 0; token < block.padded; token += kLanes) {
      const int64_t count = std::clamp<int64_t>(block.count - token, 0, kLanes);
      load_keys(first + token, count, token, block);
      load_values(first + token, count, token, block);
    }
  }

  // Transposes keys to columns of B, from `column` on; what pads them is zero.
  void load_keys(int64_t first, int64_t count, int64_t column, const Block& block) {
    operands_.load_keys(first, count, keys_.data(), depth_);
    std::fill(keys_.data() + count * depth_, keys_.data() + kLanes * depth_, Operand(0));
    const int64_t words = depth_ / kOperandsOfWord;
    Operand* to = packed_keys_.data() + Multiply::place(0, column, depth_, block.padded);
    const int64_t width = std::min(kPanel, block.padded - column / kPanel * kPanel);
    if constexpr (Multiply::kGroup == kOperandsOfWord) {
      simd().transpose_words(keys_.data(), words, words, to, width);
    } else {
      simd().transpose_pairs(keys_.data(), words, words, to, width);
    }
  }

  // Values as rows of B, from `first_row` on, and how large they are.
  void load_values(int64_t first, int64_t count, int64_t first_row, const Block& block) {
    Operand* rows = values_are_keys_ ? keys_.data() : values_.data();
    const int64_t stride = values_are_keys_ ? depth_ : columns_;
    if (!values_are_keys_) {
      operands_.load_values(first, count, rows, stride);
      std::fill(rows + count * stride, rows + kLanes * stride, Operand(0));
    }
    if constexpr (kSplit) {
      float* squares = mean_squares_.data() + block.first + first_row;
      for (int64_t i = 0; i < count; ++i) squares[i] = simd().mean_square(rows + i * stride, operands_.value_size());
      std::fill(squares + count, squares + kLanes, 0.0F);
    }
    constexpr int64_t kGroup = Multiply::kGroup;
    Operand* packed = packed_values_.data() + block.first * columns_;
    for (int64_t row = 0; row < kLanes; row += kGroup) {
      operands_.prefetch_keys(first + kAhead + row, kGroup);  // a few at a time: many would be dropped
      for (int64_t column = 0; column < columns_; column += kPanel) {
        const Operand* from = rows + row * stride + column;
        const int64_t width = std::min(kPanel, columns_ - column);
        Operand* to = packed + Multiply::place(first_row + row, column, block.padded, columns_);
        if constexpr (kGroup == 2) {
          simd().interleave(from, from + stride, width, to);
        } else {
          std::copy_n(from, width, to);
        }
      }
    }
  }

  // Turns the scores into softmax weights, relative to each head's largest score so far.
  void weigh(bool add) {
    fine_.clear();
    for (int64_t head = 0; head < heads_; ++head) {
      Softmax& softmax = softmax_[head];
      const float factor = std::exp(softmax.maximum - next_maxima_[head]);
      softmax.maximum = next_maxima_[head];
      softmax.sum *= factor;
      if (add && factor != 1) simd().multiply(sums_.data() + head * columns_, columns_, factor);
      float variance = 0;
      for (const Block& block : blocks_) {
        simd().exponentials(rows(weights_, block) + head * kBlock, block.padded, softmax.maximum,
                            mean_squares_.data() + block.first, &softmax.sum, &variance);
      }
      if constexpr (kSplit) round(head, variance);
    }
  }

  // Rounds a head's weights, and keeps what that takes away if it may be seen in the result.
  void round(int64_t head, float variance) {
    const float sum = softmax_[head].sum;
    const bool coarse = variance <= kLargestVariance * sum * sum;
    if (!coarse) fine_.push_back(head);
    for (const Block& block : blocks_) {
      const float* weights = rows(weights_, block) + head * kBlock;
      Operand* high = rows(high_, block) + head * kBlock;
      if (coarse) {
        simd().from_float(weights, block.padded, high);
      } else {
        simd().split(weights, block.padded, high, rows(low_, block) + (fine_.size() - 1) * kBlock);
      }
    }
  }

  // Adds the weighted values to the sums, panel by panel.
  void add_values(bool add) {
    for (int64_t panel = 0; panel < columns_; panel += kPanel) {
      if constexpr (kSplit) {
        multiply_values(high_, heads_, panel, sums_.data() + panel, columns_, add);
        add_low(panel);
      } else {
        multiply_values(weights_, heads_, panel, sums_.data() + panel, columns_, add);
      }
    }
  }

  void add_low(int64_t panel) {
    if (fine_.empty()) return;
    const int64_t width = std::min(kPanel, columns_ - panel);
    // The sums of padding rows are not read.
    const auto count = static_cast<int64_t>(fine_.size());
    const int64_t heads = round_up(count, count <= kFewHeads ? kFewHeads : kRowStep);
    multiply_values(low_, heads, panel, low_sums_.data(), kPanel, false);
    for (size_t i = 0; i < fine_.size(); ++i) {
      simd().add(low_sums_.data() + i * kPanel, width, sums_.data() + fine_[i] * columns_ + panel);
    }
  }

  // out = weights values, or out += weights values, for `heads` rows and a panel of the values' columns.
  template <class T>
  void multiply_values(Buffer<T>& weights, int64_t heads, int64_t panel, float* out, int64_t stride, bool add) {
    for (const Block& block : blocks_) {
      const Operand* values = packed_values_.data() + block.first * columns_ + panel * block.padded;
      multiply_.multiply(rows(weights, block), kBlock, values, out, stride, heads, std::min(kPanel, columns_ - panel),
                         block.padded, add || block.first > 0);
    }
  }

  void write() {
    for (int64_t head = 0; head < heads_; ++head) {
      simd().divide(sums_.data() + head * columns_, columns_, softmax_[head].sum, row_.data());
      operands_.write(head, row_.data(), softmax_[head]);
    }
  }

  void write_zeros() {
    std::fill_n(row_.data(), columns_, Element(0));
    for (int64_t head = 0; head < heads_; ++head) operands_.write(head, row_.data(), softmax_[head]);
  }

  AttentionOperands<Element> operands_;
  const int64_t tile_heads_;  // the most that a tile has
  const float scale_;
  const int64_t depth_;
  const int64_t columns_;
  const bool values_are_keys_;
  const Multiply multiply_;
  int64_t heads_ = 0;  // of the tile
  Buffer<Operand> query_;
  Buffer<Operand> keys_;
  Buffer<Operand> values_;
  const int64_t span_;
  std::vector<Block> blocks_;
  Buffer<Operand> packed_keys_;
  Buffer<Operand> packed_values_;
  Buffer<float> mean_squares_;  // of the tokens' values
  Buffer<float> weights_;       // for each block, rows of kBlock for each head, and so the next two
  Buffer<Operand> high_;
  Buffer<Operand> low_;
  Buffer<float> sums_;
  Buffer<float> low_sums_;
  std::vector<int64_t> fine_;     // the heads in low_
  std::vector<Softmax> softmax_;  // of the tile's heads
  std::vector<float> next_maxima_;
  Buffer<Element> row_;
};

template <class Element, class Multiply>
void run(const SparseFlashAttentionPto& call, const AttentionTiling& tiling, int64_t threads) {
  std::atomic<size_t> next = 0;
  [[maybe_unused]] Helpers helpers;
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    const auto run_tiles = [&](auto& attention) {
      for (size_t i = next++; i < tiling.tiles.size(); i = next++) attention.run(tiling.tiles[i]);
    };
    if constexpr (std::is_same_v<Multiply, TileProducts>) {
      Helpers::Thread thread(helpers);
      AmxAttention attention(call, tiling, helpers);
      run_tiles(attention);
      while (const auto part = thread.wait()) attention.run(*part);
    } else {
      TileAttention<Element, Multiply> attention(call, tiling);
      run_tiles(attention);
    }
  });
}

template <class Element>
void run(const SparseFlashAttentionPto& call, const AttentionTiling& tiling, int64_t threads) {
  with_products<Element>([&]<class Multiply>() { run<Element, Multiply>(call, tiling, threads); });
}

}  // namespace

void sparse_flash_attention_pto(const SparseFlashAttentionPto& call) {
  const int64_t threads = at::get_num_threads();
  const AttentionTiling tiling = tile(call, threads);
  if (call.query.scalar_type() == at::kHalf) {
    run<at::Half>(call, tiling, threads);
  } else {
    run<at::BFloat16>(call, tiling, threads);
  }
}

}  // namespace opp
