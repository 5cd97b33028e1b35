// SPDX-License-Identifier: Apache-2.0
// The prolog of the lightning indexer on the CPU: blocks of tokens go through a linear layer, rotary embedding, a
// Hadamard matrix and quantisation, each while it lies in a core's cache.
#include "cpu/lightning_indexer_prolog_pto.h"

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

// What tokens that have to be copied may take.
constexpr int64_t kScratch = 32 << 20;

// A call whose tokens, weights and Hadamard matrices are of type Element.
template <class Element>
class Prolog {
 public:
  Prolog(const LightningIndexerPrologPto& call, const std::vector<int64_t>& slots)
      : call_(call),
        slots_(slots),
        heads_(call.heads()),
        depth_(call.depth()),
        most_tokens_(std::max<int64_t>(kScratch / bytes_of_token(), 1)),
        x_(call.token_x),
        q_norm_(call.q_norm),
        q_norm_scale_(call.q_norm_scale.contiguous()),
        wq_b_scale_(call.wq_b_scale.contiguous()) {}

  void run() const {
    for (int64_t first = 0; first < call_.tokens(); first += most_tokens_) {
      project(first, std::min(most_tokens_, call_.tokens() - first));
    }
  }

 private:
  int64_t bytes_of_token() const { return call_.hidden() * sizeof(Element) + call_.q_lora(); }

  // Multiplies tokens with the weights, with wk not rounded, and makes the results of the products.
  void project(int64_t first, int64_t count) const {
    const auto dtype = call_.token_x.scalar_type();
    const auto x = x_.chunk(first, count);
    const auto q_norm = q_norm_.chunk(first, count);
    const auto by = [=, this](auto write) {
      return [=, this](const LinearBlock& block) { (this->*write)(first + block.first_row, block); };
    };
    linear(count,
           {{q_norm.data, q_norm.stride, call_.wq_b, nullptr, dtype, 0, q_norm_scale_.const_data_ptr<float>() + first,
             wq_b_scale_.const_data_ptr<float>(), by(&Prolog::write_queries), depth_},
            {x.data, x.stride, call_.wk, nullptr, at::kFloat, 0, nullptr, nullptr, by(&Prolog::write_keys), depth_},
            {x.data, x.stride, call_.weights_proj, nullptr, dtype, 0, nullptr, nullptr, by(&Prolog::write_weights),
             heads_}});
  }

  void write_queries(int64_t token, const LinearBlock& block) const {
    const TokenRows<int8_t> queries(call_.query, true);
    const TokenRows<at::Half> scales(call_.query_scale, true);
    const int64_t heads = block.columns / depth_;
    const int64_t first_head = block.first_column / depth_;
    quantise(static_cast<Element*>(block.data), token, block.rows, heads, call_.hadamard_q,
             [&](int64_t row, const int8_t* query, at::Half scale) {
               queries.write(token + row / heads, query, first_head + row % heads);
               scales.write(token + row / heads, &scale, first_head + row % heads);
             });
  }

  void write_keys(int64_t token, const LinearBlock& block) const {
    const TokenRows<int8_t> cache(call_.idx_k_cache, true);
    const TokenRows<at::Half> scales(call_.idx_k_scale_cache);
    LayerNorm<Element> norm(call_.ln_gamma_k, call_.ln_beta_k, static_cast<float>(call_.layernorm_epsilon_k));
    Buffer<Element> keys(block.rows * depth_);
    for (int64_t row = 0; row < block.rows; ++row) {
      norm.apply(static_cast<const float*>(block.data) + row * depth_, keys.data() + row * depth_);
    }
    quantise(keys.data(), token, block.rows, 1, call_.hadamard_k, [&](int64_t row, const int8_t* key, at::Half scale) {
      const int64_t slot = slots_[token + row];
      if (slot < 0) return;
      cache.write(slot, key);
      scales.write(slot, &scale);
    });
  }

  // Rotates `heads` rows of each of so many tokens, multiplies them with a matrix and quantises them.
  template <class Write>
  void quantise(Element* rows, int64_t token, int64_t tokens, int64_t heads, const at::Tensor& matrix,
                const Write& write) const {
    Rope<Element> rope(call_.cos_idx_rope, call_.sin_idx_rope, call_.rope_mode == "interleave");
    for (int64_t i = 0; i < tokens; ++i) {
      rope.load(token + i);
      for (int64_t head = 0; head < heads; ++head) {
        Element* row = rows + (i * heads + head) * depth_;
        rope.apply(row, row);
      }
    }
    const auto take = [&](const LinearBlock& block) {
      Quantiser<Element> quantiser(depth_);
      Buffer<int8_t> quantised(depth_);
      for (int64_t row = 0; row < block.rows; ++row) {
        const auto* product = static_cast<const Element*>(block.data) + row * depth_;
        const float scale = quantiser.apply(product, quantised.data());
        write(block.first_row + row, quantised.data(), at::Half(scale));
      }
    };
    linear(tokens * heads,
           {{rows, depth_, Weight(matrix), nullptr, call_.token_x.scalar_type(), 0, nullptr, nullptr, take, depth_}});
  }

  void write_weights(int64_t token, const LinearBlock& block) const {
    const TokenRows<at::Half> weights(call_.weights);
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(heads_ * depth_)));
    Buffer<at::Half> scaled(heads_);
    for (int64_t i = 0; i < block.rows; ++i) {
      const Element* row = static_cast<const Element*>(block.data) + i * heads_;
      for (int64_t head = 0; head < heads_; ++head) scaled.data()[head] = static_cast<float>(row[head]) * scale;
      weights.write(token + i, scaled.data());
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
