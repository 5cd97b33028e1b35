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
#include "cpu/tokens.h"
#include "op_host/slots.h"

namespace opp {
namespace {

// Tokens that go through together: enough to make packing a weight cheap, few enough to stay in the cache.
constexpr int64_t kTokens = 256;
// What they may take.
constexpr int64_t kScratch = 32 << 20;
// Rows of one head that a thread takes at once.
constexpr int64_t kGrain = 16;

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
        rotated_queries_(most_tokens_ * heads_ * depth_),
        products_(most_tokens_ * depth_),
        keys_(most_tokens_ * depth_),
        rotated_keys_(most_tokens_ * depth_),
        weights_(most_tokens_ * heads_) {}

  void run() {
    for (int64_t first = 0; first < call_.tokens(); first += most_tokens_) {
      first_ = first;
      count_ = std::min(most_tokens_, call_.tokens() - first);
      project();
      rotate();
      multiply(queries_, call_.hadamard_q, count_ * heads_, rotated_queries_);
      multiply(keys_, call_.hadamard_k, count_, rotated_keys_);
      write();
    }
  }

 private:
  int64_t bytes_of_token() const {
    return depth_ * (2 * (heads_ + 1) * sizeof(Element) + sizeof(float)) + (call_.hidden() + heads_) * sizeof(Element) +
           call_.q_lora();
  }

  // Queries, products with wk and weights of the chunk's tokens.
  void project() {
    const auto dtype = call_.token_x.scalar_type();
    const auto x = x_.chunk(first_, count_);
    const auto q_norm = q_norm_.chunk(first_, count_);
    linear(count_, {{q_norm.data, q_norm.stride, call_.wq_b, queries_.data(), dtype, heads_ * depth_,
                     q_norm_scale_.const_data_ptr<float>() + first_, wq_b_scale_.const_data_ptr<float>()},
                    {x.data, x.stride, call_.wk, products_.data(), at::kFloat, depth_},
                    {x.data, x.stride, call_.weights_proj, weights_.data(), dtype, heads_}});
  }

  // Rotates the queries; normalises and rotates the keys.
  void rotate() {
    at::parallel_for(0, count_ * heads_, kGrain, [&](int64_t begin, int64_t end) {
      Rope<Element> rope = make_rope();
      for (int64_t row = begin; row < end; ++row) {
        if (row == begin || row % heads_ == 0) rope.load(first_ + row / heads_);
        Element* query = queries_.data() + row * depth_;
        rope.apply(query, query);
      }
    });
    at::parallel_for(0, count_, kGrain, [&](int64_t begin, int64_t end) {
      Rope<Element> rope = make_rope();
      LayerNorm<Element> norm(call_.ln_gamma_k, call_.ln_beta_k, static_cast<float>(call_.layernorm_epsilon_k));
      for (int64_t token = begin; token < end; ++token) {
        Element* key = keys_.data() + token * depth_;
        norm.apply(products_.data() + token * depth_, key);
        rope.load(first_ + token);
        rope.apply(key, key);
      }
    });
  }

  Rope<Element> make_rope() const { return {call_.cos_idx_rope, call_.sin_idx_rope, call_.rope_mode == "interleave"}; }

  void multiply(Buffer<Element>& rows, const at::Tensor& matrix, int64_t count, Buffer<Element>& out) {
    linear(count, {{rows.data(), depth_, Weight(matrix), out.data(), call_.token_x.scalar_type(), depth_}});
  }

  void write() {
    at::parallel_for(0, count_ * heads_, kGrain, [&](int64_t begin, int64_t end) { write_queries(begin, end); });
    at::parallel_for(0, count_, kGrain, [&](int64_t begin, int64_t end) {
      write_keys(begin, end);
      write_weights(begin, end);
    });
  }

  void write_queries(int64_t begin, int64_t end) {
    const TokenRows<int8_t> queries(call_.query, true);
    const TokenRows<at::Half> scales(call_.query_scale, true);
    Quantiser<Element> quantiser(depth_);
    Buffer<int8_t> quantised(depth_);
    for (int64_t row = begin; row < end; ++row) {
      const at::Half scale = quantiser.apply(rotated_queries_.data() + row * depth_, quantised.data());
      queries.write(first_ + row / heads_, quantised.data(), row % heads_);
      scales.write(first_ + row / heads_, &scale, row % heads_);
    }
  }

  void write_keys(int64_t begin, int64_t end) {
    const TokenRows<int8_t> cache(call_.idx_k_cache, true);
    const TokenRows<at::Half> scales(call_.idx_k_scale_cache);
    Quantiser<Element> quantiser(depth_);
    Buffer<int8_t> quantised(depth_);
    for (int64_t token = begin; token < end; ++token) {
      const int64_t slot = slots_[first_ + token];
      if (slot < 0) continue;
      const at::Half scale = quantiser.apply(rotated_keys_.data() + token * depth_, quantised.data());
      cache.write(slot, quantised.data());
      scales.write(slot, &scale);
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
  Buffer<Element> rotated_queries_;
  Buffer<float> products_;
  Buffer<Element> keys_;
  Buffer<Element> rotated_keys_;
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
