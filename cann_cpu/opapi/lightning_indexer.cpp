// SPDX-License-Identifier: Apache-2.0
// Scores each key for each query, weights . relu(query x key), and selects the best.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "best_keys.h"
#include "token_sequences.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kScoredKeys = 1024;            // at a time
constexpr int64_t kHeadScores = 4LL << 20;       // of all heads, at a time: 16 MiB
constexpr int64_t kScoresOfQueries = 6LL << 20;  // 24 MiB

struct Indexer {
  const TokenArguments& tokens;
  In weights;
  OptionalIn query_scale, key_scale;
  int64_t sparse_count;
  int64_t sparse_mode;

  void check(int64_t pre_tokens, int64_t next_tokens, Out sparse_indices) const {
    tokens.check();
    check_mask(sparse_mode, pre_tokens, next_tokens);
    auto by_head = tokens.query.sizes().vec();
    TORCH_CHECK(by_head.back() == 128 && tokens.key.size(-1) == 128, "query has shape ", tokens.query.sizes(), ", key ",
                tokens.key.sizes(), "; expected a head size of 128");
    by_head.pop_back();
    check_range("the number of query's heads", by_head.back(), 1, 64);
    check_shape("weights", weights, by_head);
    if (query_scale.has_value()) check_shape("query_dequant_scale", *query_scale, by_head);
    if (key_scale.has_value())
      check_shape("key_dequant_scale", *key_scale, tokens.key.sizes().slice(0, tokens.key.dim() - 1));
    by_head.back() = 1;
    by_head.push_back(sparse_count);
    check_shape("sparse_indices", sparse_indices, by_head);
  }

  // The scores, (queries, keys), of some of a sequence's queries for its first keys.
  at::Tensor scores(const TokenSequences& sequences, const TokenSequence& sequence, int64_t first, int64_t count,
                    int64_t keys) const {
    const auto of_queries = [&](In tensor) {
      return tensor.narrow(0, sequence.first_query + first, count).to(at::kFloat);
    };
    const auto query = of_queries(tokens.queries()).flatten(0, 1);  // (queries * heads, size)
    const auto weight = of_queries(weights.reshape({tokens.tokens(), -1}));
    const int64_t heads = weight.size(1);
    const auto result = at::empty({count, keys}, weight.options());
    for (int64_t begin = 0; begin < keys; begin += kScoredKeys) {
      const int64_t block = std::min(kScoredKeys, keys - begin);
      const auto key = at::empty({block, 1, query.size(1)}, query.options());
      sequences.copy_keys(key, tokens.key, sequence, begin);
      auto products = at::matmul(query, key.squeeze(1).t());
      if (key_scale.has_value()) {
        const auto scale = at::empty({block, 1}, query.options());
        sequences.copy_keys(scale, *key_scale, sequence, begin);
        products.mul_(of_queries(query_scale->reshape({tokens.tokens(), -1})).view({-1, 1})).mul_(scale.t());
      }
      const auto sums = at::bmm(weight.unsqueeze(1), products.clamp_min_(0).view({count, heads, block}));
      result.narrow(1, begin, block).copy_(sums.squeeze(1));
    }
    return result;
  }

  // Writes the indices, and scores if they are asked for, best first; of equal scores the first key is better. What a
  // query does not fill is -1, and -infinity.
  void select(Out sparse_indices, at::Tensor* sparse_values) const {
    const TokenSequences sequences(tokens);
    const auto indices = at::full({tokens.tokens(), sparse_count}, -1, at::kInt);
    const auto values = at::full({sparse_values != nullptr ? tokens.tokens() : 0, sparse_count},
                                 -std::numeric_limits<double>::infinity(), at::kFloat);
    const int64_t heads = tokens.query.size(-2);
    for (const TokenSequence& sequence : sequences) {
      const int64_t most =
          std::min(kHeadScores / (heads * kScoredKeys), kScoresOfQueries / std::max<int64_t>(sequence.keys, 1));
      const int64_t step = std::max<int64_t>(most, 1);
      for (int64_t first = 0; first < sequence.queries; first += step) {
        const int64_t count = std::min(step, sequence.queries - first);
        const int64_t keys = sequence.visible(first + count - 1, sparse_mode == 3);
        const auto rows = scores(sequences, sequence, first, count, keys);
        at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t place = sequence.first_query + first + i;
            write_best(rows.const_data_ptr<float>() + i * keys, sequence.visible(first + i, sparse_mode == 3),
                       sparse_count, indices.mutable_data_ptr<int32_t>() + place * sparse_count,
                       sparse_values != nullptr ? values.mutable_data_ptr<float>() + place * sparse_count : nullptr);
          }
        });
      }
    }
    assign(sparse_indices, indices.view(sparse_indices.sizes()));
    if (sparse_values != nullptr) assign(*sparse_values, values.view(sparse_indices.sizes()));
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(
    LightningIndexer,
    "query: float16 bfloat16; key: as query; weights: float16 bfloat16 float32; actual_seq_lengths_query, "
    "actual_seq_lengths_key, block_table, sparse_indices: int32; sparse_values: as query",
    [](Phase phase, In query, In key, In weights, OptionalIn actual_seq_lengths_query,
       OptionalIn actual_seq_lengths_key, OptionalIn block_table, Text layout_query, Text layout_key,
       int64_t sparse_count, int64_t sparse_mode, int64_t pre_tokens, int64_t next_tokens, bool return_value,
       Out sparse_indices, Out sparse_values) {
      const TokenArguments tokens(query, key, actual_seq_lengths_query, actual_seq_lengths_key, block_table,
                                  layout_query, layout_key, "actual_seq_lengths_key", "layout_key");
      if (phase == Phase::Check) {
        TORCH_CHECK((sparse_count >= 1 && sparse_count <= 2048) || (sparse_count % 1024 == 0 && sparse_count <= 8192),
                    "sparse_count is ", sparse_count, "; expected 1 to 2048, or 3072 to 8192 in steps of 1024");
        Indexer(tokens, weights, std::nullopt, std::nullopt, sparse_count, sparse_mode)
            .check(pre_tokens, next_tokens, sparse_indices);
        TORCH_CHECK(weights.scalar_type() == at::kFloat || weights.scalar_type() == query.scalar_type(),
                    "weights has dtype ", weights.scalar_type(), "; expected float32 or that of query, ",
                    query.scalar_type());
        if (!return_value) return;
        TORCH_CHECK(!tokens.is_paged(), "return_value is true; it is not supported with layout_key PA_BSND");
        check_shape("sparse_values", sparse_values, sparse_indices.sizes());
        return;
      }
      Indexer(tokens, weights, std::nullopt, std::nullopt, sparse_count, sparse_mode)
          .select(sparse_indices, return_value ? &sparse_values : nullptr);
    });

ACLNN_TYPED_CHECKED(
    QuantLightningIndexer,
    "query, key: int8; weights, query_dequant_scale, key_dequant_scale: float16; actual_seq_lengths_query, "
    "actual_seq_lengths_key, block_table, sparse_indices: int32",
    [](Phase phase, In query, In key, In weights, In query_dequant_scale, In key_dequant_scale,
       OptionalIn actual_seq_lengths_query, OptionalIn actual_seq_lengths_key, OptionalIn block_table,
       int64_t query_quant_mode, int64_t key_quant_mode, Text layout_query, Text layout_key, int64_t sparse_count,
       int64_t sparse_mode, int64_t pre_tokens, int64_t next_tokens, Out sparse_indices) {
      const TokenArguments tokens(query, key, actual_seq_lengths_query, actual_seq_lengths_key, block_table,
                                  layout_query, layout_key, "actual_seq_lengths_key", "layout_key");
      if (phase == Phase::Check) {
        check_range("query_quant_mode", query_quant_mode, 0, 0);
        check_range("key_quant_mode", key_quant_mode, 0, 0);
        check_range("sparse_count", sparse_count, 1, 2048);
        Indexer(tokens, weights, query_dequant_scale, key_dequant_scale, sparse_count, sparse_mode)
            .check(pre_tokens, next_tokens, sparse_indices);
        if (tokens.is_paged()) return;  // pages may lie apart
        check_contiguous("key", key);
        check_contiguous("key_dequant_scale", key_dequant_scale);
        return;
      }
      Indexer(tokens, weights, query_dequant_scale, key_dequant_scale, sparse_count, sparse_mode)
          .select(sparse_indices, nullptr);
    });

namespace {

// The gradient of the scores that were selected, dy, as sparse_indices name their keys up to the first -1.
struct IndexerGradient {
  const TokenArguments& tokens;
  In dy, sparse_indices, weights;
  int64_t sparse_mode;

  void check(int64_t head_num, In dq, In dk, In dw) const {
    tokens.check();
    TORCH_CHECK(!tokens.is_paged(), "layout is PA_BSND; expected BSND or TND");
    TORCH_CHECK(sparse_mode == 0 || sparse_mode == 3, "sparse_mode is ", sparse_mode, "; expected 0 or 3");
    auto expected = tokens.query.sizes().vec();
    TORCH_CHECK(expected.back() == 128 && tokens.key.size(-1) == 128, "query has shape ", tokens.query.sizes(),
                ", key ", tokens.key.sizes(), "; expected a head size of 128");
    expected.pop_back();
    TORCH_CHECK((head_num == 0 || head_num == expected.back()) && expected.back() <= 64, "head_num is ", head_num,
                ", query has shape ", tokens.query.sizes(), "; expected up to 64 heads, or 0 for those of query");
    check_shape("weights", weights, expected);
    expected.back() = 1;
    expected.push_back(sparse_indices.size(-1));
    check_shape("sparse_indices", sparse_indices, expected);
    check_shape("dy", dy, expected);
    check_shape("d_query", dq, tokens.query.sizes());
    check_shape("d_key", dk, tokens.key.sizes());
    check_shape("d_weights", dw, weights.sizes());
  }

  void run(Out d_query, Out d_key, Out d_weights) const {
    const TokenSequences sequences(tokens);
    const int64_t count = sparse_indices.size(-1), all = tokens.tokens();
    const auto query = tokens.query.reshape({all, -1, 128}), key = tokens.key.reshape({-1, 128});
    const auto grad = dy.reshape({all, count}), weight = weights.reshape({all, -1});
    const auto indices = sparse_indices.contiguous();
    const auto* rows = indices.const_data_ptr<int32_t>();
    const auto by_query = [&](const auto& run) {
      for (const TokenSequence& sequence : sequences) {
        for (int64_t i = 0; i < sequence.queries; ++i) run(sequence, sequence.first_query + i, i);
      }
    };
    by_query([&](const TokenSequence& sequence, int64_t token, int64_t) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t value = rows[token * count + i];
        TORCH_CHECK(value >= -1 && value < sequence.keys, "sparse_indices of query ", token, " has ", value, " at ", i,
                    "; expected 0 to ", sequence.keys - 1, ", or -1");
      }
    });
    const auto dq = at::zeros(query.sizes(), query.options()), dw = at::zeros(weight.sizes(), weight.options());
    const auto dk = at::zeros(key.sizes(), at::kFloat);
    by_query([&](const TokenSequence& sequence, int64_t token, int64_t i) {
      const int64_t visible = sequence.visible(i, sparse_mode == 3);
      std::vector<int64_t> places, columns;
      for (int64_t j = 0; j < count && rows[token * count + j] >= 0; ++j) {
        if (rows[token * count + j] >= visible) continue;
        places.push_back(sequences.place(sequence, rows[token * count + j]));
        columns.push_back(j);
      }
      if (places.empty()) return;
      const auto number = static_cast<int64_t>(places.size());
      const auto at = at::from_blob(places.data(), {number}, at::kLong);
      const auto of_keys = key.index_select(0, at).to(at::kFloat), q = query[token].to(at::kFloat);
      const auto of_scores =
          grad[token].index_select(0, at::from_blob(columns.data(), {number}, at::kLong)).to(at::kFloat).unsqueeze(0);
      const auto products = at::matmul(q, of_keys.t()).clamp_min_(0);  // (heads, keys)
      dw[token].copy_((products * of_scores).sum(1));
      const auto of_products = (weight[token].to(at::kFloat).unsqueeze(1) * of_scores).masked_fill_(products.le(0), 0);
      dq[token].copy_(at::matmul(of_products, of_keys));
      dk.index_add_(0, at, at::matmul(of_products.t(), q));
    });
    assign(d_query, dq.view(d_query.sizes()));
    assign(d_key, dk.view(d_key.sizes()));
    assign(d_weights, dw.view(d_weights.sizes()));
  }
};

using Tokens = Ignored<int64_t>;        // pre_tokens and next_tokens belong to sparse modes that are rejected
using IsDeterministic = Ignored<bool>;  // the CPU always is

}  // namespace

ACLNN_TYPED_CHECKED(
    LightningIndexerGrad,
    "query: float16 bfloat16; key, d_query, d_key: as query; weights: float16 bfloat16 float32; d_weights: "
    "as weights; dy: float16 bfloat16 float32; sparse_indices, actual_seq_lengths_query, "
    "actual_seq_lengths_key: int32",
    [](Phase phase, In query, In key, In dy, In sparse_indices, In weights, OptionalIn actual_seq_lengths_query,
       OptionalIn actual_seq_lengths_key, int64_t head_num, Text layout, int64_t sparse_mode, Tokens, Tokens,
       IsDeterministic, Out d_query, Out d_key, Out d_weights) {
      const std::optional<at::Tensor> no_pages;
      const TokenArguments tokens(query, key, actual_seq_lengths_query, actual_seq_lengths_key, no_pages, layout,
                                  layout, "actual_seq_lengths_key", "layout");
      const IndexerGradient gradient(tokens, dy, sparse_indices, weights, sparse_mode);
      gradient.check(head_num, d_query, d_key, d_weights);
      if (phase == Phase::Check) return;
      gradient.run(d_query, d_key, d_weights);
    });
