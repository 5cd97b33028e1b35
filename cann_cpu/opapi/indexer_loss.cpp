// SPDX-License-Identifier: Apache-2.0
// The loss that an indexer is trained with, and its gradient: how far the softmax of its scores is from the attention
// that all heads together give to the keys.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "checks.h"

using namespace cann_cpu;

namespace {

// A query and the keys that it sees, as places among all tokens.
struct SeenKeys {
  int64_t query, first_key, keys;
};

// The queries of sequences in BSND or TND (the lengths are ends), with a causal mask to the last key.
std::vector<SeenKeys> seen_keys(In query, In key, at::OptionalIntArrayRef query_lengths,
                                at::OptionalIntArrayRef key_lengths, Text layout) {
  TORCH_CHECK(layout == "BSND" || layout == "TND", "layout is \"", layout, "\"; expected BSND or TND");
  const bool is_packed = layout == "TND";
  check_rank("query_index", query, is_packed ? 3 : 4);
  check_rank("key_index", key, is_packed ? 3 : 4);
  const auto lengths = [&](const char* name, at::OptionalIntArrayRef given, In tensor) {
    const bool has_values = given.has_value() && !given->empty();
    TORCH_CHECK(has_values || !is_packed, name, " is empty; layout TND needs it");
    const int64_t most = tensor.size(is_packed ? 0 : 1);
    std::vector<std::pair<int64_t, int64_t>> all;
    int64_t end = 0;
    for (int64_t i = 0; i < (is_packed ? static_cast<int64_t>(given->size()) : tensor.size(0)); ++i) {
      TORCH_CHECK(!has_values || static_cast<int64_t>(given->size()) > i, name, " has ", given->size(), " elements");
      const int64_t value = has_values ? (*given)[static_cast<size_t>(i)] : most, least = is_packed ? end : 0;
      TORCH_CHECK(value >= least && value <= most, name, "[", i, "] is ", value, "; expected ", least, " to ", most);
      all.emplace_back(is_packed ? end : i * most, value - least);
      end = value;
    }
    return all;
  };
  const auto queries = lengths("actual_seq_lengths_query", query_lengths, query);
  const auto keys = lengths("actual_seq_lengths_key", key_lengths, key);
  TORCH_CHECK(queries.size() == keys.size(), "actual_seq_lengths_query has ", queries.size(),
              " sequences, actual_seq_lengths_key ", keys.size());
  std::vector<SeenKeys> all;
  for (size_t i = 0; i < queries.size(); ++i) {
    for (int64_t t = 0; t < queries[i].second; ++t) {
      const int64_t seen = keys[i].second - queries[i].second + t + 1;
      if (seen > 0) all.push_back({queries[i].first + t, keys[i].first, seen});
    }
  }
  return all;
}

at::Tensor tokens_of(In tensor) { return tensor.reshape({-1, tensor.size(-2), tensor.size(-1)}); }

void check_indexer(In query, In key, In weights) {
  TORCH_CHECK(query.size(-1) == 128 && key.size(-1) == 128 && key.size(-2) == 1, "query_index has shape ",
              query.sizes(), ", key_index ", key.sizes(), "; expected a head size of 128 and one head of keys");
  check_shape("weights", weights, query.sizes().slice(0, query.dim() - 1));
  TORCH_CHECK(weights.scalar_type() == at::kFloat || weights.scalar_type() == query.scalar_type(), "weights has dtype ",
              weights.scalar_type(), "; expected float32 or that of query_index");
}

struct IndexerLoss {
  In query, key, query_index, key_index, weights;
  OptionalIn sparse_indices;
  In softmax_max, softmax_sum;
  OptionalIn softmax_max_index, softmax_sum_index, query_rope, key_rope;
  Ints query_lengths, key_lengths;
  double scale;
  Text layout;
  int64_t sparse_mode;
  In d_query_index, d_key_index, d_weights, loss;

  std::vector<SeenKeys> seen() const { return seen_keys(query_index, key_index, query_lengths, key_lengths, layout); }

  void check() const {
    check_range("sparse_mode", sparse_mode, 3, 3);
    (void)seen();
    check_indexer(query_index, key_index, weights);
    const bool is_packed = layout == "TND";
    check_rank("query", query, is_packed ? 3 : 4);
    check_rank("key", key, is_packed ? 3 : 4);
    const int64_t heads = query.size(-2), key_heads = key.size(-2);
    TORCH_CHECK(key_heads > 0 && heads % key_heads == 0 && query.size(-1) == key.size(-1), "query has shape ",
                query.sizes(), ", key ", key.sizes());
    const auto check_tokens = [&](const char* name, In tensor, In like) {
      const auto tokens = static_cast<size_t>(like.dim() - 2);
      TORCH_CHECK(tensor.dim() == like.dim() && tensor.sizes().slice(0, tokens) == like.sizes().slice(0, tokens), name,
                  " has shape ", tensor.sizes(), "; expected the tokens of ", like.sizes());
    };
    check_tokens("query", query, query_index);
    check_tokens("key", key, key_index);
    TORCH_CHECK(query_rope.has_value() == key_rope.has_value(), "query_rope and key_rope must both be given, or null");
    if (query_rope.has_value()) {
      check_tokens("query_rope", *query_rope, query);
      check_tokens("key_rope", *key_rope, key);
      TORCH_CHECK(query_rope->size(-2) == heads && key_rope->size(-2) == key_heads &&
                      query_rope->size(-1) == key_rope->size(-1),
                  "query_rope has shape ", query_rope->sizes(), ", key_rope ", key_rope->sizes());
    }
    const int64_t group = heads / key_heads;
    std::vector<int64_t> statistics{key_heads, query.size(0), group}, of_index{1, query.size(0)};
    if (!is_packed) {
      statistics = {query.size(0), key_heads, query.size(1), group};
      of_index = {query.size(0), 1, query.size(1)};
    }
    check_shape("softmax_max", softmax_max, statistics);
    check_shape("softmax_sum", softmax_sum, statistics);
    if (softmax_max_index.has_value()) check_shape("softmax_max_index", *softmax_max_index, of_index);
    if (softmax_sum_index.has_value()) check_shape("softmax_sum_index", *softmax_sum_index, of_index);
    if (sparse_indices.has_value()) {
      auto expected = query_index.sizes().vec();
      expected[expected.size() - 2] = 1;
      expected.back() = sparse_indices->size(-1);
      check_shape("sparse_indices", *sparse_indices, expected);
    }
    check_shape("d_query_index", d_query_index, query_index.sizes());
    check_shape("d_key_index", d_key_index, key_index.sizes());
    check_shape("d_weights", d_weights, weights.sizes());
    check_shape("loss", loss, {1});
  }

  // (tokens, heads of keys, heads of queries of each)
  at::Tensor statistics(In tensor) const {
    return layout == "TND" ? tensor.transpose(0, 1) : tensor.transpose(1, 2).flatten(0, 1);
  }

  void run() const {
    const auto queries = tokens_of(query), keys = tokens_of(key);
    const auto turned_queries = query_rope.has_value() ? tokens_of(*query_rope) : at::Tensor();
    const auto turned_keys = key_rope.has_value() ? tokens_of(*key_rope) : at::Tensor();
    const auto of_index = tokens_of(query_index), index_keys = tokens_of(key_index).squeeze(1);
    const auto weight = weights.reshape({of_index.size(0), -1});
    const auto maxima = statistics(softmax_max), sums = statistics(softmax_sum);
    const auto dq = at::zeros(of_index.sizes(), of_index.options()), dw = at::zeros(weight.sizes(), weight.options());
    const auto dk = at::zeros(index_keys.sizes(), at::kFloat);
    const auto selected = sparse_indices.has_value() ? sparse_indices->contiguous() : at::Tensor();
    const auto all = seen();
    const int64_t count = selected.defined() ? selected.size(-1) : 0, key_heads = keys.size(1);
    for (const SeenKeys& each : all) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t value = selected.const_data_ptr<int32_t>()[each.query * count + i];
        TORCH_CHECK(value >= -1, "sparse_indices of query ", each.query, " has ", value, " at ", i);
      }
    }
    double total = 0;
    for (const SeenKeys& each : all) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t value = selected.const_data_ptr<int32_t>()[each.query * count + i];
        if (value < 0) break;
        if (value < each.keys) places.push_back(each.first_key + value);
      }
      if (selected.defined() && places.empty()) continue;
      const auto at = at::from_blob(places.data(), {static_cast<int64_t>(places.size())}, at::kLong);
      const auto rows = [&](In tensor) {
        return selected.defined() ? tensor.index_select(0, at) : tensor.narrow(0, each.first_key, each.keys);
      };
      const auto target = this->target(each.query, rows(keys), turned_keys.defined() ? rows(turned_keys) : turned_keys,
                                       queries, turned_queries, maxima, sums, key_heads);
      const auto k = rows(index_keys).to(at::kFloat), q = of_index[each.query].to(at::kFloat);
      const auto w = weight[each.query].to(at::kFloat);
      const auto products = at::matmul(q, k.t()).clamp_min_(0);  // (heads, keys)
      const auto scores = at::matmul(w, products);
      const auto highest = softmax_max_index.has_value() ? softmax_max_index->flatten()[each.query] : scores.amax();
      auto exponentials = (scores - highest).exp_();
      const auto sum = softmax_sum_index.has_value() ? softmax_sum_index->flatten()[each.query] : exponentials.sum();
      // p log(p / softmax), where p log p is 0 for p = 0
      const auto log_ratio = target.log().masked_fill_(target.eq(0), 0) - (scores - highest) + sum.log();
      total += (target * log_ratio).to(at::kDouble).sum().item<double>();
      const auto of_scores = exponentials.div_(sum).sub_(target);
      dw[each.query].copy_(at::matmul(products, of_scores));
      const auto of_products = (w.unsqueeze(1) * of_scores.unsqueeze(0)).masked_fill_(products.le(0), 0);
      dq[each.query].copy_(at::matmul(of_products, k));
      const auto of_keys = at::matmul(of_products.t(), q);
      if (selected.defined()) {
        dk.index_add_(0, at, of_keys);
      } else {
        dk.narrow(0, each.first_key, each.keys).add_(of_keys);
      }
    }
    d_query_index.copy_(dq.view(d_query_index.sizes()));
    d_weights.copy_(dw.view(d_weights.sizes()));
    d_key_index.copy_(dk.view(d_key_index.sizes()));
    loss.fill_(total);
  }

  // What all heads together attend to, of keys (keys, heads, size); sums to 1.
  at::Tensor target(int64_t token, In k, In turned_k, In queries, In turned_queries, In maxima, In sums,
                    int64_t key_heads) const {
    auto target = at::zeros({k.size(0)}, at::kFloat);
    const int64_t group = queries.size(1) / key_heads;
    for (int64_t head = 0; head < key_heads; ++head) {
      const auto of_heads = [&](In tensor) { return tensor[token].narrow(0, head * group, group).to(at::kFloat); };
      auto scores = at::matmul(of_heads(queries), k.select(1, head).to(at::kFloat).t());
      if (turned_k.defined()) {
        scores.add_(at::matmul(of_heads(turned_queries), turned_k.select(1, head).to(at::kFloat).t()));
      }
      const auto column = [&](In tensor) { return tensor[token][head].unsqueeze(1); };
      target.add_(scores.mul_(scale).sub_(column(maxima)).exp_().div_(column(sums)).sum(0));
    }
    return target.div_(target.sum());
  }
};

using TokensOfModes = Ignored<int64_t>;   // pre_tokens and next_tokens belong to sparse modes that are rejected
using DeterministicSums = Ignored<bool>;  // the CPU always is
using SinksInSums = Ignored<OptionalIn>;  // softmax_sum has their share

}  // namespace

ACLNN_TYPED_CHECKED(
    DenseLightningIndexerGradKLLoss,
    "query: float16 bfloat16; key, query_index, key_index, query_rope, key_rope, d_query_index, d_key_index: as query; "
    "weights: float16 bfloat16 float32; d_weights: as weights; softmax_max, softmax_sum, softmax_max_index, "
    "softmax_sum_index, loss: float32",
    [](Phase phase, In query, In key, In query_index, In key_index, In weights, In softmax_max, In softmax_sum,
       In softmax_max_index, In softmax_sum_index, OptionalIn query_rope, OptionalIn key_rope,
       Ints actual_seq_lengths_query, Ints actual_seq_lengths_key, double scale_value, Text layout, int64_t sparse_mode,
       TokensOfModes, TokensOfModes, Out d_query_index, Out d_key_index, Out d_weights, Out loss) {
      check_or_run(phase, IndexerLoss(query, key, query_index, key_index, weights, std::nullopt, softmax_max,
                                      softmax_sum, softmax_max_index, softmax_sum_index, query_rope, key_rope,
                                      actual_seq_lengths_query, actual_seq_lengths_key, scale_value, layout,
                                      sparse_mode, d_query_index, d_key_index, d_weights, loss));
    });

#define SPARSE_LOSS_DTYPES                                                                                      \
  "query: float16 bfloat16; key, query_index, key_index, query_rope, key_rope, d_query_index, d_key_index: as " \
  "query; weights: float16 bfloat16 float32; d_weights: as weights; sparse_indices: int32; softmax_max, "       \
  "softmax_sum, loss: float32"
ACLNN_TYPED_CHECKED(SparseLightningIndexerGradKLLoss, SPARSE_LOSS_DTYPES,
                    [](Phase phase, In query, In key, In query_index, In key_index, In weights, In sparse_indices,
                       In softmax_max, In softmax_sum, OptionalIn query_rope, OptionalIn key_rope,
                       Ints actual_seq_lengths_query, Ints actual_seq_lengths_key, double scale_value, Text layout,
                       int64_t sparse_mode, TokensOfModes, TokensOfModes, DeterministicSums, Out d_query_index,
                       Out d_key_index, Out d_weights, Out loss) {
                      check_or_run(phase,
                                   IndexerLoss(query, key, query_index, key_index, weights, sparse_indices, softmax_max,
                                               softmax_sum, std::nullopt, std::nullopt, query_rope, key_rope,
                                               actual_seq_lengths_query, actual_seq_lengths_key, scale_value, layout,
                                               sparse_mode, d_query_index, d_key_index, d_weights, loss));
                    });
ACLNN_TYPED_CHECKED(SparseLightningIndexerGradKLLossV2, SPARSE_LOSS_DTYPES,
                    [](Phase phase, In query, In key, In query_index, In key_index, In weights, In sparse_indices,
                       In softmax_max, In softmax_sum, OptionalIn query_rope, OptionalIn key_rope,
                       Ints actual_seq_lengths_query, Ints actual_seq_lengths_key, SinksInSums, double scale_value,
                       Text layout, int64_t sparse_mode, TokensOfModes, TokensOfModes, DeterministicSums,
                       Out d_query_index, Out d_key_index, Out d_weights, Out loss) {
                      check_or_run(phase,
                                   IndexerLoss(query, key, query_index, key_index, weights, sparse_indices, softmax_max,
                                               softmax_sum, std::nullopt, std::nullopt, query_rope, key_rope,
                                               actual_seq_lengths_query, actual_seq_lengths_key, scale_value, layout,
                                               sparse_mode, d_query_index, d_key_index, d_weights, loss));
                    });

ACLNN_TYPED(DenseLightningIndexerSoftmaxLse,
            "query_index: float16 bfloat16; key_index: as query_index; weight: float16 bfloat16 float32; softmax_max, "
            "softmax_sum: float32",
            [](In query_index, In key_index, In weight, OptionalInts actual_seq_lengths_query,
               OptionalInts actual_seq_lengths_key, Text layout, int64_t sparse_mode, TokensOfModes, TokensOfModes,
               Out softmax_max, Out softmax_sum) {
              check_range("sparse_mode", sparse_mode, 3, 3);
              const auto all =
                  seen_keys(query_index, key_index, actual_seq_lengths_query, actual_seq_lengths_key, layout);
              check_indexer(query_index, key_index, weight);
              std::vector<int64_t> expected{1, query_index.size(0)};
              if (layout != "TND") expected = {query_index.size(0), 1, query_index.size(1)};
              check_shape("softmax_max", softmax_max, expected);
              check_shape("softmax_sum", softmax_sum, expected);
              const auto queries = tokens_of(query_index), keys = tokens_of(key_index).squeeze(1);
              const auto weights = weight.reshape({queries.size(0), -1});
              const auto maxima = at::zeros({queries.size(0)}, at::kFloat),
                         sums = at::zeros({queries.size(0)}, at::kFloat);
              for (const SeenKeys& each : all) {
                const auto k = keys.narrow(0, each.first_key, each.keys).to(at::kFloat);
                const auto products = at::matmul(queries[each.query].to(at::kFloat), k.t()).clamp_min_(0);
                const auto scores = at::matmul(weights[each.query].to(at::kFloat), products);
                const auto highest = scores.amax();
                maxima[each.query].copy_(highest);
                sums[each.query].copy_((scores - highest).exp_().sum());
              }
              softmax_max.copy_(maxima.view(softmax_max.sizes()));
              softmax_sum.copy_(sums.view(softmax_sum.sizes()));
            });
