// SPDX-License-Identifier: Apache-2.0
// The prolog of the lightning indexer on the CPU: some hundred tokens at a time go through linear layers, rotary
// embedding, Hadamard matrices and quantisation.
#include "cpu/lightning_indexer_prolog_pto.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/matmul.h"
#include "cpu/prolog.h"
#include "cpu/simd.h"
#include "cpu/slots.h"
#include "cpu/tokens.h"

namespace opp {
namespace {

// Tokens that go through together: enough to make packing a weight cheap, few enough to stay in the cache.
constexpr int64_t kTokens = 256;
// What they may take.
constexpr int64_t kScratch = 32 << 20;
// The max number of heads of tokens that a thread takes at once, and what it is a multiple of.
constexpr int64_t kRows = 256;
constexpr int64_t kRowsStep = 16;

// A call whose tokens, weights and Hadamard matrices are of type Element.
template <class Element>
class Prolog {
 public:
  Prolog(const LightningIndexerPrologPto& call, const std::vector<int64_t>& slots)
      : call_(call),
        slots_(slots),
        heads_(call.heads()),
        depth_(call.depth()),
        most_tokens_(std::clamp<int64_t>(kScratch / bytes_of_token(), 1, kTokens)),
        x_(call.token_x),
        q_norm_(call.q_norm),
        q_norm_scale_(call.q_norm_scale.contiguous()),
        wq_b_scale_(call.wq_b_scale.contiguous()),
        queries_(most_tokens_ * heads_ * depth_),
        keys_(most_tokens_ * depth_),
        weights_(most_tokens_ * heads_) {}

  void run() {
    for (int64_t first = 0; first < call_.tokens(); first += most_tokens_) {
      first_ = first;
      count_ = std::min(most_tokens_, call_.tokens() - first);
      project();
      finish();
    }
  }

 private:
  int64_t bytes_of_token() const {
    return (heads_ * (depth_ + 1) + call_.hidden()) * sizeof(Element) + depth_ * sizeof(float) + call_.q_lora();
  }

  // The products of the chunk's tokens with the weights, those with wk not rounded.
  void project() {
    const auto dtype = call_.token_x.scalar_type();
    const auto x = x_.chunk(first_, count_);
    const auto q_norm = q_norm_.chunk(first_, count_);
    linear(count_, {{q_norm.data, q_norm.stride, call_.wq_b, queries_.data(), dtype, heads_ * depth_,
                     q_norm_scale_.const_data_ptr<float>() + first_, wq_b_scale_.const_data_ptr<float>()},
                    {x.data, x.stride, call_.wk, keys_.data(), at::kFloat, depth_},
                    {x.data, x.stride, call_.weights_proj, weights_.data(), dtype, heads_}});
  }

  // Makes the results of them: first of blocks of queries, then of blocks of tokens.
  void finish() {
    const int64_t queries = count_ * heads_;
    const int64_t max_heads = std::clamp(round_up(queries / (2 * at::get_num_threads()), kRowsStep), kRowsStep, kRows);
    const int64_t blocks = (queries + max_heads - 1) / max_heads;
    at::parallel_for(0, blocks + (count_ + max_heads - 1) / max_heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = (block < blocks ? block : block - blocks) * max_heads;
        if (block < blocks) {
          write_queries(first, std::min(first + max_heads, queries));
        } else {
          write_keys(first, std::min(first + max_heads, count_));
          write_weights(first, std::min(first + max_heads, count_));
        }
      }
    });
  }

  void write_queries(int64_t begin, int64_t end) {
    const TokenRows<int8_t> queries(call_.query, true);
    const TokenRows<at::Half> scales(call_.query_scale, true);
    Element* rows = queries_.data() + begin * depth_;
    quantise(rows, begin, end, heads_, call_.hadamard_q, [&](int64_t row, const int8_t* query, at::Half scale) {
      queries.write(first_ + row / heads_, query, row % heads_);
      scales.write(first_ + row / heads_, &scale, row % heads_);
    });
  }

  void write_keys(int64_t begin, int64_t end) {
    const TokenRows<int8_t> cache(call_.idx_k_cache, true);
    const TokenRows<at::Half> scales(call_.idx_k_scale_cache);
    LayerNorm<Element> norm(call_.ln_gamma_k, call_.ln_beta_k, static_cast<float>(call_.layernorm_epsilon_k));
    Buffer<Element> keys((end - begin) * depth_);
    for (int64_t row = begin; row < end; ++row) {
      norm.apply(keys_.data() + row * depth_, keys.data() + (row - begin) * depth_);
    }
    quantise(keys.data(), begin, end, 1, call_.hadamard_k, [&](int64_t row, const int8_t* key, at::Half scale) {
      const int64_t slot = slots_[first_ + row];
      if (slot < 0) return;
      cache.write(slot, key);
      scales.write(slot, &scale);
    });
  }

  // Rotates rows [begin, end), of which each token has `heads`, multiplies them with a matrix and quantises them.
  template <class Write>
  void quantise(Element* rows, int64_t begin, int64_t end, int64_t heads, const at::Tensor& matrix,
                const Write& write) {
    Rope<Element> rope(call_.cos_idx_rope, call_.sin_idx_rope, call_.rope_mode == "interleave");
    for (int64_t row = begin; row < end; ++row) {
      if (row == begin || row % heads == 0) rope.load(first_ + row / heads);
      Element* x = rows + (row - begin) * depth_;
      rope.apply(x, x);
    }
    Buffer<Element> products((end - begin) * depth_);
    linear(end - begin, {{rows, depth_, Weight(matrix), products.data(), call_.token_x.scalar_type(), depth_}});
    Quantiser<Element> quantiser(depth_);
    Buffer<int8_t> quantised(depth_);
    for (int64_t row = begin; row < end; ++row) {
      const float scale = quantiser.apply(products.data() + (row - begin) * depth_, quantised.data());
      write(row, quantised.data(), at::Half(scale));
    }
  }

  void write_weights(int64_t begin, int64_t end) {
    const TokenRows<at::Half> weights(call_.weights);
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(heads_ * depth_)));
    Buffer<at::Half> scaled(heads_);
    for (int64_t token = begin; token < end; ++token) {
      const Element* row = weights_.data() + token * heads_;
      for (int64_t head = 0; head < heads_; ++head) scaled.data()[head] = static_cast<float>(row[head]) * scale;
      weights.write(first_ + token, scaled.data());
    }
  }

  const LightningIndexerPrologPto& call_;
  const std::vector<int64_t>& slots_;
  const int64_t heads_;
  const int64_t depth_;
  const int64_t most_tokens_;
  const TokenRows<Element> x_;
  const TokenRows<int8_t> q_norm_;
  const at::Tensor q_norm_scale_;
  const at::Tensor wq_b_scale_;
  int64_t first_ = 0;  // token of the chunk
  int64_t count_ = 0;  // of the chunk's tokens
  Buffer<Element> queries_;
  Buffer<float> keys_;
  Buffer<Element> weights_;
};

}  // namespace

void lightning_indexer_prolog_pto(const LightningIndexerPrologPto& call) {
  const std::vector<int64_t> slots = read_slots("idx_k_cache_index", call.idx_k_cache_index, call.slots());
  if (call.token_x.scalar_type() == at::kHalf) {
    Prolog<at::Half>(call, slots).run();
  } else {
    Prolog<at::BFloat16>(call, slots).run();
  }
}

}  // namespace opp
