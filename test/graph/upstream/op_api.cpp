// SPDX-License-Identifier: Apache-2.0
// What the nodes of these prototypes compute, by their formulas, with ATen: one list in, one list out, and every
// size, epsilon and count that the prototypes do not speak of as in cann-recipes-infer's kernels.
#include <ATen/ATen.h>

#include <cmath>

#include "cann_cpu/op.h"

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

constexpr int64_t kCount = 2048;  // of the tokens that are selected
constexpr int64_t kRope = 64;

Tensor product(const Tensor& x, const Tensor& weight) {
  return at::matmul(x.to(at::kFloat), weight.to(at::kFloat)).to(x.scalar_type());
}

Tensor rms_norm(const Tensor& x, const Tensor& gamma) {
  const Tensor wide = x.to(at::kFloat);
  return (wide / (wide.square().mean(-1, true) + 1e-5).sqrt() * gamma).to(x.scalar_type());
}

// A key of the indexer before its rotation.
Tensor index_key(const Tensor& x, const Tensor& weight, const Tensor& gamma, const Tensor& beta) {
  const Tensor wide = at::matmul(x.to(at::kFloat), weight.to(at::kFloat));
  return at::layer_norm(wide, {wide.size(-1)}, gamma.to(at::kFloat), beta.to(at::kFloat), 1e-6).to(x.scalar_type());
}

// Neighbours are pairs, whose results lie a half apart.
Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor first = x.slice(-1, 0, std::nullopt, 2).to(at::kFloat);
  const Tensor second = x.slice(-1, 1, std::nullopt, 2).to(at::kFloat);
  return (at::cat({first, second}, -1) * cos + at::cat({-second, first}, -1) * sin).to(x.scalar_type());
}

Tensor first_rotated(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  return at::cat({rotated(x.slice(-1, 0, kRope), cos, sin), x.slice(-1, kRope)}, -1);
}

void write(const Tensor& cache, const Tensor& slots, const Tensor& rows) {
  Tensor tokens = cache.flatten(0, 1);
  std::vector<int64_t> sizes = tokens.sizes().vec();
  sizes[0] = slots.numel();
  tokens.index_copy_(0, slots.flatten().to(at::kLong), rows.reshape(sizes));
}

// The tokens of a sequence at these positions.
Tensor taken(const Tensor& cache, const Tensor& pages, const Tensor& positions) {
  const Tensor page = pages.index_select(0, positions.div(cache.size(1), "floor")).to(at::kLong);
  return cache.flatten(0, 1).index_select(0, page * cache.size(1) + positions.remainder(cache.size(1))).squeeze(1);
}

// The positions of the best of the first `seen` keys of a sequence for a query token.
Tensor selected(const Tensor& query, const Tensor& key, const Tensor& weights, const Tensor& pages, int64_t seen) {
  const Tensor keys = taken(key, pages, at::arange(seen, at::kLong)).to(at::kFloat);
  const Tensor products = at::matmul(query.to(at::kFloat), keys.t()).relu();
  const Tensor scores = at::matmul(weights.to(at::kFloat), products);
  return std::get<1>(scores.sort(/*stable=*/true, -1, /*descending=*/true)).slice(0, 0, kCount);
}

// Calls `visit` for every query token with the positions that are selected for it.
template <class Visit>
void each_selection(const Tensor& query, const Tensor& key, const Tensor& weights, const Tensor& lengths,
                    const Tensor& table, const Visit& visit) {
  for (int64_t b = 0; b < query.size(0); ++b) {
    for (int64_t s = 0; s < query.size(1); ++s) {
      const int64_t seen = lengths[b].item<int64_t>() - (query.size(1) - 1 - s);
      if (seen > 0) {
        visit(b, s, selected(query[b][s], key, weights[b][s], table[b], seen));
      }
    }
  }
}

ACLNN(LightningIndexerPto, [](const Tensors& x, double, Tensors& y) {
  y[0].fill_(-1);
  each_selection(x[0], x[1], x[2], x[3], x[4], [&](int64_t b, int64_t s, const Tensor& positions) {
    y[0][b][s][0].slice(0, 0, positions.numel()).copy_(positions);
  });
});

// int8 in the last dimension, and its scale.
std::pair<Tensor, Tensor> quantised(const Tensor& x) {
  const Tensor amax = std::get<0>(x.to(at::kFloat).abs().max(-1, true));
  return {(x.to(at::kFloat) * 127 / amax).nan_to_num(0).round().to(at::kChar), (amax / 127).to(at::kHalf)};
}

ACLNN(LightningIndexerPrologPto, [](const Tensors& x, double, const std::string&, const std::string&, Tensors& y) {
  const Tensor &tokens = x[0], &cos = x[9], &sin = x[10];
  const auto dtype = tokens.scalar_type();
  const Tensor sums = at::matmul(x[1].to(at::kDouble), x[3].to(at::kDouble));
  const Tensor query = (sums.to(at::kFloat) * x[2] * x[4].squeeze(1)).to(dtype).unflatten(-1, {64, 128});
  const auto [q, q_scale] = quantised(product(first_rotated(query, cos.unsqueeze(1), sin.unsqueeze(1)), x[11]));
  const Tensor key = index_key(tokens, x[5], x[7], x[8]);
  const auto [k, k_scale] = quantised(product(first_rotated(key, cos, sin), x[12]));
  y[0].copy_(q);
  y[1].copy_(q_scale);
  y[2].copy_(product(tokens, x[6]).to(at::kFloat) / std::sqrt(64.0 * 128.0));
  write(x[13], x[15], k);
  write(x[14], x[15], k_scale);
});

// A matrix whose elements lie in the order of FRACTAL_NZ.
Tensor of_blocks(const Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  return matrix.reshape({columns / 16, rows, 16}).transpose(0, 1).reshape({rows, columns});
}

ACLNN(SparseAttentionPto, [](const Tensors& x, Tensors& y) {
  const Tensor &tokens = x[0], &w_uk = x[3], &sin = x[7], &cos = x[8], &slots = x[9];
  const Tensor &kv_cache = x[10], &kr_cache = x[11], &table = x[12], &lengths = x[13], &index_cache = x[19];
  const Tensor cos_of_heads = cos.unsqueeze(2), sin_of_heads = sin.unsqueeze(2);
  const Tensor latent = rms_norm(product(tokens, of_blocks(x[1])), x[5]);
  const Tensor heads = product(latent, of_blocks(x[2])).unflatten(-1, {128, 192});
  const Tensor q = product(heads.slice(-1, 0, 128).unsqueeze(-2), w_uk).squeeze(-2);
  const Tensor q_rope = rotated(heads.slice(-1, 128), cos_of_heads, sin_of_heads);
  const Tensor kv = product(tokens, of_blocks(x[4]));
  write(kv_cache, slots, rms_norm(kv.slice(-1, 0, 512), x[6]));
  write(kr_cache, slots, rotated(kv.slice(-1, 512), cos, sin));
  write(index_cache, slots, first_rotated(index_key(tokens, of_blocks(x[15]), x[17], x[18]), cos, sin));
  const Tensor index_q = product(latent, of_blocks(x[14])).unflatten(-1, {64, 128});
  y[0].zero_();
  each_selection(first_rotated(index_q, cos_of_heads, sin_of_heads), index_cache, product(tokens, of_blocks(x[16])),
                 lengths, table, [&](int64_t b, int64_t s, const Tensor& positions) {
                   const Tensor value = taken(kv_cache, table[b], positions).to(at::kFloat);
                   const Tensor key = at::cat({value, taken(kr_cache, table[b], positions).to(at::kFloat)}, -1);
                   const Tensor query = at::cat({q[b][s], q_rope[b][s]}, -1).to(at::kFloat);
                   const Tensor scores = at::matmul(query, key.t()) / std::sqrt(512.0 + 64.0);
                   y[0][b][s].copy_(at::matmul(scores.softmax(-1).to(tokens.scalar_type()).to(at::kFloat), value));
                 });
});

}  // namespace
