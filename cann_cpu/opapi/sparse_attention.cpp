// SPDX-License-Identifier: Apache-2.0
// Attention to the keys that an indexer has selected for each query, with one head of keys: keys and values are the
// same rows (MLA, absorbed), with a part that is turned by position.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <limits>

#include "token_sequences.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kSelectedKeys = 4096;  // at a time
constexpr int64_t kLatentSize = 512;     // of a key or value without its turned part
constexpr int64_t kTurnedSize = 64;
constexpr int64_t kTileSize = 128;  // numbers that share a scale
constexpr int64_t kQuantizedSize = kLatentSize + 2 * kTurnedSize + 4 * kLatentSize / kTileSize;  // bytes of a key

// Keys (keys, size) and values (keys, latent size), in float.
struct KeysAndValues {
  at::Tensor keys, values;
};

// The keys and values at so many places.
using Fetch = std::function<KeysAndValues(const at::Tensor& places)>;

// Attention of the heads of one query to one block of keys after the other.
struct RunningAttention {
  at::Tensor query;  // (heads, size), scaled
  at::Tensor maximum, sum, value;

  RunningAttention(at::Tensor scaled, OptionalIn sinks) : query(std::move(scaled)) {
    const int64_t heads = query.size(0);
    // A sink is a key with a score and no value.
    maximum = sinks.has_value() ? sinks->to(at::kFloat, false, true).view({heads, 1})
                                : at::full({heads, 1}, -std::numeric_limits<double>::infinity(), at::kFloat);
    sum = at::full({heads, 1}, sinks.has_value() ? 1 : 0, at::kFloat);
    value = at::zeros({heads, kLatentSize}, at::kFloat);
  }

  void add(const KeysAndValues& block) {
    const auto scores = at::matmul(query, block.keys.t());
    const auto highest = at::maximum(maximum, scores.amax({-1}, /*keepdim=*/true));
    scores.sub_(highest).exp_();
    const auto kept = (maximum - highest).exp_();
    sum.mul_(kept).add_(scores.sum({-1}, /*keepdim=*/true));
    value.mul_(kept).addmm_(scores, block.values);
    maximum = highest;
  }
};

struct SelectedAttention {
  const TokenArguments& tokens;
  In sparse_indices;
  int64_t block_size;
  int64_t sparse_mode;

  void check(int64_t pre_tokens, int64_t next_tokens, int64_t largest_block, int64_t attention_mode) const {
    tokens.check();
    check_mask(sparse_mode, pre_tokens, next_tokens);
    check_range("attention_mode", attention_mode, 2, 2);
    const int64_t heads = tokens.query.size(-2);
    TORCH_CHECK(heads >= 1 && heads <= 128 && (heads & (heads - 1)) == 0, "query has ", heads,
                " heads; expected a power of two up to 128");
    TORCH_CHECK(block_size >= 1 && block_size <= largest_block && (block_size & (block_size - 1)) == 0,
                "sparse_block_size is ", block_size, "; expected a power of two up to ", largest_block);
    TORCH_CHECK(!tokens.is_paged() || tokens.key.size(1) % block_size == 0, "sparse_block_size is ", block_size,
                ", which does not divide the blocks of key, of ", tokens.key.size(1), " tokens");
    auto expected = tokens.query.sizes().vec();
    TORCH_CHECK(sparse_indices.dim() == tokens.query.dim() && sparse_indices.size(-1) > 0, "sparse_indices has shape ",
                sparse_indices.sizes(), "; expected ", tokens.query.dim(), " dimensions, the last not empty");
    expected[expected.size() - 2] = 1;
    expected.back() = sparse_indices.size(-1);
    check_shape("sparse_indices", sparse_indices, expected);
  }

  // The keys that a query selects and sees, as places among all tokens.
  std::vector<int64_t> places(const TokenSequences& sequences, const TokenSequence& sequence, int64_t query,
                              const int32_t* indices, int64_t count) const {
    std::vector<int64_t> found;
    const int64_t visible = sequence.visible(query, sparse_mode == 3);
    for (int64_t i = 0; i < count && indices[i] >= 0; ++i) {
      const int64_t begin = int64_t{indices[i]} * block_size, end = std::min(begin + block_size, visible);
      for (int64_t key = begin; key < end; ++key) found.push_back(sequences.place(sequence, key));
    }
    return found;
  }

  // Indices of the sequences' own queries: blocks that there are, then -1. A causal mask hides those past the end.
  void check_indices(const TokenSequences& sequences, const int32_t* indices, int64_t count) const {
    for (const TokenSequence& sequence : sequences) {
      const int64_t blocks = (sequence.keys + block_size - 1) / block_size;
      for (int64_t i = 0; i < sequence.queries * count; ++i) {
        const int64_t row = sequence.first_query + i / count, value = indices[row * count + i % count];
        TORCH_CHECK(value >= -1 && (value < blocks || sparse_mode == 3), "sparse_indices of query ", row, " has ",
                    value, " at ", i % count, "; expected 0 to ", blocks - 1, ", or -1");
      }
    }
  }

  // With the scaled queries, (tokens, heads, size); writes 0 where a query sees nothing.
  void run(const std::function<at::Tensor(int64_t)>& query, const Fetch& fetch, OptionalIn sinks, Out attention_out,
           at::Tensor* softmax_max, at::Tensor* softmax_sum) const {
    const TokenSequences sequences(tokens);
    const int64_t count = sparse_indices.size(-1), heads = tokens.query.size(-2);
    const auto rows = sparse_indices.contiguous();
    const auto* indices = rows.const_data_ptr<int32_t>();
    check_indices(sequences, indices, count);
    const auto out = attention_out.view({tokens.tokens(), heads, -1});
    out.zero_();
    const auto statistics = [&](at::Tensor* tensor) {
      return tensor != nullptr ? tensor->zero_().view({tokens.tokens(), heads, 1}) : at::Tensor();
    };
    const auto maxima = statistics(softmax_max), sums = statistics(softmax_sum);
    for (const TokenSequence& sequence : sequences) {
      for (int64_t i = 0; i < sequence.queries; ++i) {
        const int64_t token = sequence.first_query + i;
        auto selected = places(sequences, sequence, i, indices + token * count, count);
        if (selected.empty()) continue;
        RunningAttention attention(query(token), sinks);
        const auto total = static_cast<int64_t>(selected.size());
        const auto all = at::from_blob(selected.data(), {total}, at::kLong);
        for (int64_t begin = 0; begin < total; begin += kSelectedKeys) {
          attention.add(fetch(all.narrow(0, begin, std::min(kSelectedKeys, total - begin))));
        }
        out[token].copy_(attention.value.div_(attention.sum));
        if (softmax_max == nullptr) continue;
        maxima[token].copy_(attention.maximum);
        sums[token].copy_(attention.sum);
      }
    }
  }
};

TokenArguments token_arguments(In query, In key, OptionalIn query_lengths, OptionalIn key_lengths,
                               OptionalIn block_table, Text layout_query, Text layout_kv) {
  return {query,        key,       query_lengths,           key_lengths, block_table,
          layout_query, layout_kv, "actual_seq_lengths_kv", "layout_kv"};
}

// (all tokens, size), of keys with one head.
at::Tensor flattened(In tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

struct SparseFlashAttentionArguments {
  In query, key;
  OptionalIn value;
  In sparse_indices;
  OptionalIn block_table, query_lengths, key_lengths, query_rope, key_rope, sinks;
  double scale;
  int64_t block_size;
  Text query_layout, key_layout;
  int64_t sparse_mode, pre_tokens, next_tokens, attention_mode;
  bool return_softmax_lse;
  Out attention_out, softmax_max, softmax_sum;

  TokenArguments tokens() const {
    return token_arguments(query, key, query_lengths, key_lengths, block_table, query_layout, key_layout);
  }

  void check() const {
    const auto arguments = tokens();
    const SelectedAttention attention{arguments, sparse_indices, block_size, sparse_mode};
    attention.check(pre_tokens, next_tokens, 128, attention_mode);
    TORCH_CHECK(query.size(-1) == kLatentSize && key.size(-1) == kLatentSize, "query has shape ", query.sizes(),
                ", key ", key.sizes(), "; expected a head size of 512");
    if (value.has_value()) check_shape("value", *value, key.sizes());
    const auto turned = [](const char* name, OptionalIn tensor, In like) {
      TORCH_CHECK(tensor.has_value(), name, " is null; attention_mode 2 needs it");
      auto expected = like.sizes().vec();
      expected.back() = kTurnedSize;
      check_shape(name, *tensor, expected);
    };
    turned("query_rope", query_rope, query);
    turned("key_rope", key_rope, key);
    if (sinks.has_value()) check_shape("sinks", *sinks, {query.size(-2)});
    check_shape("attention_out", attention_out, query.sizes());
    if (!return_softmax_lse) return;
    TORCH_CHECK(!arguments.is_paged(), "return_softmax_lse is true; it is not supported with layout_kv PA_BSND");
    std::vector<int64_t> expected{1, query.size(0), query.size(1)};
    if (query_layout != "TND") expected = {query.size(0), 1, query.size(1), query.size(2)};
    check_shape("softmax_max", softmax_max, expected);
    check_shape("softmax_sum", softmax_sum, expected);
  }

  void run() const {
    const auto arguments = tokens();
    const auto queries = arguments.queries(), turned_queries = query_rope->flatten(0, query_rope->dim() - 3);
    const auto keys = flattened(key), turned_keys = flattened(*key_rope);
    const bool has_values = value.has_value() && value->const_data_ptr() != key.const_data_ptr();
    const auto values = has_values ? flattened(*value) : at::Tensor();
    const auto scaled_query = [&](int64_t token) {
      return at::cat({queries[token].to(at::kFloat), turned_queries[token].to(at::kFloat)}, 1).mul_(scale);
    };
    const auto fetch = [&](const at::Tensor& places) -> KeysAndValues {
      const auto rows = at::empty({places.numel(), kLatentSize + kTurnedSize}, at::kFloat);
      rows.narrow(1, 0, kLatentSize).copy_(keys.index_select(0, places));
      rows.narrow(1, kLatentSize, kTurnedSize).copy_(turned_keys.index_select(0, places));
      return {rows, has_values ? values.index_select(0, places).to(at::kFloat) : rows.narrow(1, 0, kLatentSize)};
    };
    SelectedAttention{arguments, sparse_indices, block_size, sparse_mode}.run(
        scaled_query, fetch, sinks, attention_out, return_softmax_lse ? &softmax_max : nullptr,
        return_softmax_lse ? &softmax_sum : nullptr);
  }
};

struct QuantizedArguments {
  In query, key, value, sparse_indices;
  OptionalIn block_table, query_lengths, key_lengths, sinks;
  double scale;
  int64_t key_quant_mode, value_quant_mode, block_size;
  Text query_layout, key_layout;
  int64_t sparse_mode, pre_tokens, next_tokens, attention_mode, quant_scale_repo_mode, tile_size, rope_head_dim;
  Out attention_out;

  TokenArguments tokens() const {
    return token_arguments(query, key, query_lengths, key_lengths, block_table, query_layout, key_layout);
  }

  void check() const {
    const auto arguments = tokens();
    check_range("key_quant_mode", key_quant_mode, 2, 2);
    check_range("value_quant_mode", value_quant_mode, 2, 2);
    check_range("quant_scale_repo_mode", quant_scale_repo_mode, 1, 1);
    check_range("tile_size", tile_size, kTileSize, kTileSize);
    check_range("rope_head_dim", rope_head_dim, kTurnedSize, kTurnedSize);
    const SelectedAttention attention{arguments, sparse_indices, block_size, sparse_mode};
    attention.check(pre_tokens, next_tokens, 16, attention_mode);
    TORCH_CHECK(query.size(-1) == kLatentSize + kTurnedSize, "query has shape ", query.sizes(),
                "; expected a head size of 576");
    TORCH_CHECK(key.size(-1) == kQuantizedSize, "key has shape ", key.sizes(), "; expected a head size of 656");
    check_shape("value", value, key.sizes());
    if (sinks.has_value()) check_shape("sinks", *sinks, {query.size(-2)});
    auto expected = query.sizes().vec();
    expected.back() = kLatentSize;
    check_shape("attention_out", attention_out, expected);
  }

  // The numbers of int8 rows times the scales of their tiles, which lie at the rows' ends.
  static void dequantize(const at::Tensor& to, const at::Tensor& rows) {
    const auto scales = rows.narrow(1, kLatentSize + 2 * kTurnedSize, kQuantizedSize - kLatentSize - 2 * kTurnedSize);
    to.copy_(rows.narrow(1, 0, kLatentSize));
    to.unflatten(1, {-1, kTileSize}).mul_(scales.contiguous().view(at::kFloat).unsqueeze(2));
  }

  void run() const {
    const auto arguments = tokens();
    const auto queries = arguments.queries(), keys = flattened(key), values = flattened(value);
    const bool has_values = value.const_data_ptr() != key.const_data_ptr();
    const auto scaled_query = [&](int64_t token) { return queries[token].to(at::kFloat).mul_(scale); };
    const auto fetch = [&](const at::Tensor& places) -> KeysAndValues {
      const auto stored = keys.index_select(0, places);
      const auto rows = at::empty({places.numel(), kLatentSize + kTurnedSize}, at::kFloat);
      const auto latent = rows.narrow(1, 0, kLatentSize);
      dequantize(latent, stored);
      const auto turned = stored.narrow(1, kLatentSize, 2 * kTurnedSize).contiguous().view(query.scalar_type());
      rows.narrow(1, kLatentSize, kTurnedSize).copy_(turned);
      if (!has_values) return {rows, latent};
      const auto other = at::empty({places.numel(), kLatentSize}, at::kFloat);
      dequantize(other, values.index_select(0, places));
      return {rows, other};
    };
    SelectedAttention{arguments, sparse_indices, block_size, sparse_mode}.run(scaled_query, fetch, sinks, attention_out,
                                                                              nullptr, nullptr);
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(SparseFlashAttention,
                    "query: float16 bfloat16; key, value, query_rope, key_rope, attention_out: as query; "
                    "sparse_indices, block_table, actual_seq_lengths_query, actual_seq_lengths_kv: int32; softmax_max, "
                    "softmax_sum: float32",
                    [](Phase phase, In query, In key, OptionalIn value, In sparse_indices, OptionalIn block_table,
                       OptionalIn actual_seq_lengths_query, OptionalIn actual_seq_lengths_kv, OptionalIn query_rope,
                       OptionalIn key_rope, double scale_value, int64_t sparse_block_size, Text layout_query,
                       Text layout_kv, int64_t sparse_mode, int64_t pre_tokens, int64_t next_tokens,
                       int64_t attention_mode, bool return_softmax_lse, Out attention_out, Out softmax_max,
                       Out softmax_sum) {
                      check_or_run(phase,
                                   SparseFlashAttentionArguments(
                                       query, key, value, sparse_indices, block_table, actual_seq_lengths_query,
                                       actual_seq_lengths_kv, query_rope, key_rope, std::nullopt, scale_value,
                                       sparse_block_size, layout_query, layout_kv, sparse_mode, pre_tokens, next_tokens,
                                       attention_mode, return_softmax_lse, attention_out, softmax_max, softmax_sum));
                    });

ACLNN_TYPED_CHECKED(SparseFlashAttentionV2,
                    "query: float16 bfloat16; key, value, query_rope, key_rope, attention_out: as query; "
                    "sparse_indices, block_table, actual_seq_lengths_query, actual_seq_lengths_kv: int32; sinks, "
                    "softmax_max, softmax_sum: float32",
                    [](Phase phase, In query, In key, OptionalIn value, In sparse_indices, OptionalIn block_table,
                       OptionalIn actual_seq_lengths_query, OptionalIn actual_seq_lengths_kv, OptionalIn query_rope,
                       OptionalIn key_rope, OptionalIn sinks, double scale_value, int64_t sparse_block_size,
                       Text layout_query, Text layout_kv, int64_t sparse_mode, int64_t pre_tokens, int64_t next_tokens,
                       int64_t attention_mode, bool return_softmax_lse, Out attention_out, Out softmax_max,
                       Out softmax_sum) {
                      check_or_run(
                          phase, SparseFlashAttentionArguments(
                                     query, key, value, sparse_indices, block_table, actual_seq_lengths_query,
                                     actual_seq_lengths_kv, query_rope, key_rope, sinks, scale_value, sparse_block_size,
                                     layout_query, layout_kv, sparse_mode, pre_tokens, next_tokens, attention_mode,
                                     return_softmax_lse, attention_out, softmax_max, softmax_sum));
                    });

using KeyDequantScale = Absent<"key_dequant_scale", OptionalIn>;  // the scales lie beside the numbers
using ValueDequantScale = Absent<"value_dequant_scale", OptionalIn>;

ACLNN_TYPED_CHECKED(KvQuantSparseFlashAttention,
                    "query: float16 bfloat16; key, value: int8; attention_out: as query; sparse_indices, block_table, "
                    "actual_seq_lengths_query, actual_seq_lengths_kv: int32",
                    [](Phase phase, In query, In key, In value, In sparse_indices, KeyDequantScale, ValueDequantScale,
                       OptionalIn block_table, OptionalIn actual_seq_lengths_query, OptionalIn actual_seq_lengths_kv,
                       double scale_value, int64_t key_quant_mode, int64_t value_quant_mode, int64_t sparse_block_size,
                       Text layout_query, Text layout_kv, int64_t sparse_mode, int64_t pre_tokens, int64_t next_tokens,
                       int64_t attention_mode, int64_t quant_scale_repo_mode, int64_t tile_size, int64_t rope_head_dim,
                       Out attention_out) {
                      check_or_run(
                          phase, QuantizedArguments(
                                     query, key, value, sparse_indices, block_table, actual_seq_lengths_query,
                                     actual_seq_lengths_kv, std::nullopt, scale_value, key_quant_mode, value_quant_mode,
                                     sparse_block_size, layout_query, layout_kv, sparse_mode, pre_tokens, next_tokens,
                                     attention_mode, quant_scale_repo_mode, tile_size, rope_head_dim, attention_out));
                    });

namespace {

constexpr int64_t kGradientKeys = 12 * 1024;  // whose sums are kept at a time: 50 MiB

struct SparseGradient {
  In query, key;
  OptionalIn value;
  In sparse_indices, d_out, out, softmax_max, softmax_sum;
  OptionalIn query_lengths, key_lengths, query_rope, key_rope;
  double scale;
  int64_t block_size;
  Text layout;
  int64_t sparse_mode;
  Out d_query, d_key;
  OptionalOut d_value, d_query_rope, d_key_rope;

  void check(const TokenArguments& tokens) const {
    TORCH_CHECK(!tokens.is_paged(), "layout is PA_BSND; expected BSND or TND");
    constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
    SelectedAttention{tokens, sparse_indices, block_size, sparse_mode}.check(kAll, kAll, 64, 2);
    TORCH_CHECK(query.size(-1) == kLatentSize && key.size(-1) == kLatentSize, "query has shape ", query.sizes(),
                ", key ", key.sizes(), "; expected a head size of 512");
    TORCH_CHECK(value.has_value() == d_value.has_value(), "value and d_value must both be given, or both be null");
    TORCH_CHECK(query_rope.has_value() && key_rope.has_value() && d_query_rope.has_value() && d_key_rope.has_value(),
                "query_rope, key_rope, d_query_rope or d_key_rope is null; attention without them is not implemented");
    const auto turned = [](In like) {
      auto expected = like.sizes().vec();
      expected.back() = kTurnedSize;
      return expected;
    };
    check_shape("query_rope", *query_rope, turned(query));
    check_shape("key_rope", *key_rope, turned(key));
    check_shape("d_query_rope", *d_query_rope, turned(query));
    check_shape("d_key_rope", *d_key_rope, turned(key));
    check_shape("d_out", d_out, query.sizes());
    check_shape("out", out, query.sizes());
    check_shape("d_query", d_query, query.sizes());
    check_shape("d_key", d_key, key.sizes());
    if (value.has_value()) {
      check_shape("value", *value, key.sizes());
      check_shape("d_value", *d_value, key.sizes());
    }
    const std::vector<int64_t> packed{1, query.size(0), query.size(1)};
    const auto statistics =
        layout == "TND" ? packed : std::vector<int64_t>{query.size(0), 1, query.size(1), query.size(2)};
    check_shape("softmax_max", softmax_max, statistics);
    check_shape("softmax_sum", softmax_sum, statistics);
  }

  void run(const TokenArguments& tokens) const {
    const SelectedAttention attention{tokens, sparse_indices, block_size, sparse_mode};
    const TokenSequences sequences(tokens);
    const int64_t count = sparse_indices.size(-1), all = tokens.tokens(), heads = query.size(-2);
    const auto indices = sparse_indices.contiguous();
    attention.check_indices(sequences, indices.const_data_ptr<int32_t>(), count);
    const auto by_query = [&](In tensor) { return tensor.reshape({all, heads, -1}); };
    const auto queries = by_query(query), turned_queries = by_query(*query_rope), outs = by_query(out);
    const auto gradients = by_query(d_out), maxima = by_query(softmax_max), sums = by_query(softmax_sum);
    const auto keys = key.reshape({-1, kLatentSize}), turned_keys = key_rope->reshape({-1, kTurnedSize});
    const auto values = value.has_value() ? value->reshape({-1, kLatentSize}) : keys;
    const auto dq = at::zeros(queries.sizes(), query.options());
    const auto dq_turned = at::zeros(turned_queries.sizes(), query.options());
    const int64_t key_tokens = keys.size(0), ranges = (key_tokens + kGradientKeys - 1) / kGradientKeys;
    // Of the keys [begin, end) among all; the queries' gradients need all keys at once.
    const auto pass = [&](int64_t begin, int64_t end, bool of_queries, const at::Tensor& dk, const at::Tensor& dv) {
      for (const TokenSequence& sequence : sequences) {
        for (int64_t i = 0; i < sequence.queries; ++i) {
          const int64_t token = sequence.first_query + i;
          auto places =
              attention.places(sequences, sequence, i, indices.const_data_ptr<int32_t>() + token * count, count);
          std::erase_if(places, [&](int64_t place) { return place < begin || place >= end; });
          if (places.empty()) continue;
          const auto at = at::from_blob(places.data(), {static_cast<int64_t>(places.size())}, at::kLong);
          const auto k = at::cat({keys.index_select(0, at), turned_keys.index_select(0, at)}, 1).to(at::kFloat);
          const auto v = value.has_value() ? values.index_select(0, at).to(at::kFloat) : k.narrow(1, 0, kLatentSize);
          const auto q = at::cat({queries[token], turned_queries[token]}, 1).to(at::kFloat);
          const auto dy = gradients[token].to(at::kFloat);
          const auto p = at::matmul(q, k.t()).mul_(scale).sub_(maxima[token]).exp_().div_(sums[token]);
          const auto total = (dy * outs[token]).sum({-1}, /*keepdim=*/true);
          const auto ds = (at::matmul(dy, v.t()) - total).mul_(p).mul_(scale);
          if (of_queries) {
            const auto of_query = at::matmul(ds, k);
            dq[token].copy_(of_query.narrow(1, 0, kLatentSize));
            dq_turned[token].copy_(of_query.narrow(1, kLatentSize, kTurnedSize));
          }
          if (!dk.defined()) continue;
          const auto rows = at - at::Scalar(begin);
          dk.index_add_(0, rows, at::matmul(ds.t(), q));
          const auto of_values = at::matmul(p.t(), dy);
          (value.has_value() ? dv : dk.narrow(1, 0, kLatentSize)).index_add_(0, rows, of_values);
        }
      }
    };
    if (ranges > 1) pass(0, key_tokens, true, at::Tensor(), at::Tensor());
    const auto dk_all = at::empty(keys.sizes(), key.options()),
               dk_turned = at::empty(turned_keys.sizes(), key.options());
    const auto dv_all = value.has_value() ? at::empty(keys.sizes(), key.options()) : at::Tensor();
    for (int64_t begin = 0; begin < key_tokens; begin += kGradientKeys) {
      const int64_t part = std::min(kGradientKeys, key_tokens - begin);
      const auto dk = at::zeros({part, kLatentSize + kTurnedSize}, at::kFloat);
      const auto dv = value.has_value() ? at::zeros({part, kLatentSize}, at::kFloat) : at::Tensor();
      pass(begin, begin + part, ranges == 1, dk, dv);
      dk_all.narrow(0, begin, part).copy_(dk.narrow(1, 0, kLatentSize));
      dk_turned.narrow(0, begin, part).copy_(dk.narrow(1, kLatentSize, kTurnedSize));
      if (value.has_value()) dv_all.narrow(0, begin, part).copy_(dv);
    }
    assign(d_query, dq.view(query.sizes()));
    assign(d_query_rope, dq_turned.view(query_rope->sizes()));
    assign(d_key, dk_all.view(key.sizes()));
    assign(d_key_rope, dk_turned.view(key_rope->sizes()));
    if (value.has_value()) assign(d_value, dv_all.view(key.sizes()));
  }
};

using UnusedTokens = Ignored<int64_t>;  // pre_tokens and next_tokens belong to sparse modes that are rejected
using Deterministic = Ignored<bool>;    // the CPU always is

}  // namespace

ACLNN_TYPED_CHECKED(SparseFlashAttentionGrad,
                    "query: float16 bfloat16; key, value, d_out, out, query_rope, key_rope, d_query, d_key, d_value, "
                    "d_query_rope, d_key_rope: as query; sparse_indices, actual_seq_lengths_query, "
                    "actual_seq_lengths_kv: int32; softmax_max, softmax_sum: float32",
                    [](Phase phase, In query, In key, OptionalIn value, In sparse_indices, In d_out, In out,
                       In softmax_max, In softmax_sum, OptionalIn actual_seq_lengths_query,
                       OptionalIn actual_seq_lengths_kv, OptionalIn query_rope, OptionalIn key_rope, double scale_value,
                       int64_t sparse_block_size, Text layout, int64_t sparse_mode, UnusedTokens, UnusedTokens,
                       Deterministic, Out d_query, Out d_key, OptionalOut d_value, OptionalOut d_query_rope,
                       OptionalOut d_key_rope) {
                      const std::optional<at::Tensor> no_pages;
                      const TokenArguments tokens = token_arguments(query, key, actual_seq_lengths_query,
                                                                    actual_seq_lengths_kv, no_pages, layout, layout);
                      check_or_run(phase,
                                   SparseGradient(query, key, value, sparse_indices, d_out, out, softmax_max,
                                                  softmax_sum, actual_seq_lengths_query, actual_seq_lengths_kv,
                                                  query_rope, key_rope, scale_value, sparse_block_size, layout,
                                                  sparse_mode, d_query, d_key, d_value, d_query_rope, d_key_rope),
                                   tokens);
                    });
