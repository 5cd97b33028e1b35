// SPDX-License-Identifier: Apache-2.0
// Convolution of each channel over the tokens before it, y[t] = sum of weight[k] * x[t - width + 1 + k], with what went
// before a sequence in a cache.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "checks.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kConvolved = 2 << 20;  // numbers at a time

// The results for the tokens that follow the first width - 1 of `padded`, (tokens, ..., channels) in float.
at::Tensor convolved(In padded, In weight) {
  const int64_t width = weight.size(0), tokens = padded.size(0) - width + 1;
  auto sum = padded.narrow(0, 0, tokens) * weight[0];
  for (int64_t k = 1; k < width; ++k) sum.add_(padded.narrow(0, k, tokens) * weight[k]);
  return sum;
}

// Convolves x (tokens, ..., channels) in parts; `before` is the width - 1 tokens before it, in float, and write() gets
// the results of a part and its x. x may be written over by then.
template <class Write>
void convolve_parts(In x, In weight, at::Tensor before, const Write& write) {
  const auto wide_weight = weight.to(at::kFloat);
  const int64_t step = std::max<int64_t>(kConvolved / std::max<int64_t>(x[0].numel(), 1), 1);
  for (int64_t first = 0; first < x.size(0); first += step) {
    const int64_t count = std::min(step, x.size(0) - first);
    const auto part = x.narrow(0, first, count).to(at::kFloat);
    const auto padded = at::cat({before, part}, 0);
    before = padded.narrow(0, count, before.size(0));
    write(first, convolved(padded, wide_weight), part);
  }
}

void check_convolution(const char* name, In x, In weight) {
  check_rank("weight", weight, 2);
  TORCH_CHECK(weight.size(0) == 3 && weight.size(1) == x.size(-1), "weight has shape ", weight.sizes(),
              "; expected [3, ", x.size(-1), "], as ", name, " has shape ", x.sizes());
}

int64_t entry(In tensor, int64_t i) { return tensor.const_data_ptr<int32_t>()[i]; }

struct CachedConvolution {
  In x, weight, conv_states;
  OptionalIn query_start_loc, cache_indices, num_accepted_tokens, num_computed_tokens, block_idx_first, block_idx_last,
      initial_state_idx;
  int64_t pad_slot_id, residual_connection, block_size, conv_mode;
  In y;

  // Blocks of a sequence have caches of their own (prefix caching).
  bool by_block() const { return cache_indices.has_value() && cache_indices->dim() == 2; }
  int64_t batch() const { return x.dim() == 3 ? x.size(0) : query_start_loc->size(0) - 1; }
  int64_t before() const { return weight.size(0) - 1; }
  int64_t cached() const { return conv_states.size(1); }

  void check() const {
    TORCH_CHECK(x.dim() == 2 || x.dim() == 3, "x has shape ", x.sizes(), "; expected 2 or 3 dimensions");
    check_convolution("x", x, weight);
    check_rank("conv_states", conv_states, 3);
    check_shape("conv_states", conv_states, {conv_states.size(0), cached(), x.size(-1)});
    TORCH_CHECK(cached() >= before(), "conv_states keep ", cached(), " tokens; expected at least ", before());
    TORCH_CHECK(x.dim() == 3 || query_start_loc.has_value(), "query_start_loc is null; x of 2 dimensions needs it");
    if (query_start_loc.has_value()) {
      check_rank("query_start_loc", *query_start_loc, 1);
      TORCH_CHECK(query_start_loc->size(0) == batch() + 1 && batch() >= 0, "query_start_loc has ",
                  query_start_loc->size(0), " elements; expected ", batch() + 1);
    }
    const auto check_each = [&](const char* name, OptionalIn tensor, bool is_needed) {
      TORCH_CHECK(tensor.has_value() || !is_needed, name, " is null; cache_indices of 2 dimensions need it");
      if (tensor.has_value()) check_shape(name, *tensor, {batch()});
    };
    if (!by_block()) check_each("cache_indices", cache_indices, false);
    TORCH_CHECK(!by_block() || cache_indices->size(0) == batch(), "cache_indices has ", cache_indices->size(0),
                " rows; expected ", batch());
    check_each("num_accepted_tokens", num_accepted_tokens, false);
    check_each("num_computed_tokens", num_computed_tokens, by_block());
    check_each("block_idx_first_scheduled_token", block_idx_first, by_block());
    check_each("block_idx_last_scheduled_token", block_idx_last, by_block());
    check_each("initial_state_idx", initial_state_idx, by_block());
    for (const auto& tensor : {query_start_loc, cache_indices, num_accepted_tokens, num_computed_tokens,
                               block_idx_first, block_idx_last, initial_state_idx}) {
      if (tensor.has_value()) check_contiguous("each index tensor", *tensor);
    }
    check_range("residual_connection", residual_connection, 0, 1);
    check_range("conv_mode", conv_mode, 0, 1);
    TORCH_CHECK(block_size >= 2 || !by_block(), "block_size is ", block_size, "; expected at least 2");
    TORCH_CHECK(conv_mode == 0 || num_computed_tokens.has_value(),
                "num_computed_tokens is null; conv_mode pangu needs it");
    check_shape("y", y, x.sizes());
  }

  struct Sequence {
    int64_t begin, tokens;
    int64_t read, write;  // caches
    int64_t offset;       // of the tokens before it in its cache
    int64_t known;        // tokens of the cache that count
    bool is_padding, is_new;
  };

  int64_t cache(int64_t sequence, int64_t column) const {
    const int64_t columns = by_block() ? cache_indices->size(1) : 1;
    TORCH_CHECK(column >= 0 && column < columns, "sequence ", sequence, " uses cache ", column,
                " of cache_indices, which has ", columns, " columns");
    const int64_t place = cache_indices.has_value() ? entry(*cache_indices, sequence * columns + column) : sequence;
    TORCH_CHECK(place == pad_slot_id || (place >= 0 && place < conv_states.size(0)), "cache_indices[", sequence,
                by_block() ? ", " + std::to_string(column) : std::string(), "] is ", place, "; expected 0 to ",
                conv_states.size(0) - 1, ", or pad_slot_id ", pad_slot_id);
    return place;
  }

  Sequence sequence(int64_t i) const {
    Sequence found{};
    const int64_t all = x.dim() == 3 ? x.size(0) * x.size(1) : x.size(0);
    found.begin = x.dim() == 3 ? i * x.size(1) : entry(*query_start_loc, i);
    const int64_t end = x.dim() == 3 ? found.begin + x.size(1) : entry(*query_start_loc, i + 1);
    TORCH_CHECK(found.begin >= 0 && end >= found.begin && end <= all, "query_start_loc[", i + 1, "] is ", end,
                "; expected ", found.begin, " to ", all);
    found.tokens = end - found.begin;
    found.read = cache(i, by_block() ? entry(*initial_state_idx, i) : 0);
    found.write = by_block() ? cache(i, entry(*block_idx_last, i)) : found.read;
    found.is_padding = found.read == pad_slot_id || found.write == pad_slot_id;
    found.is_new = num_computed_tokens.has_value() && entry(*num_computed_tokens, i) == 0;
    if (found.is_new) {
      found.offset = 0;
    } else if (num_accepted_tokens.has_value() && entry(*num_accepted_tokens, i) != 0) {  // 0 of a whole prompt
      const int64_t accepted = entry(*num_accepted_tokens, i);
      TORCH_CHECK(accepted >= 1 && accepted <= cached() - before() + 1, "num_accepted_tokens[", i, "] is ", accepted,
                  "; expected 0 to ", cached() - before() + 1);
      found.offset = accepted - 1;
    } else {
      found.offset = cached() - before();
    }
    found.known = found.offset + before();
    if (by_block()) {
      const int64_t first = entry(*block_idx_first, i), last = entry(*block_idx_last, i);
      TORCH_CHECK(first <= last, "block_idx_first_scheduled_token[", i, "] is ", first, ", past the last, ", last);
      for (int64_t block = first; block < last; ++block) {
        (void)cache(i, block);
        TORCH_CHECK(boundary(found, i, block - first, last - first) >= 0, "sequence ", i, " has ", found.tokens,
                    " tokens, too few for its blocks ", first, " to ", last);
      }
    }
    return found;
  }

  // How many of a sequence's tokens lie before the end of one of its blocks.
  int64_t boundary(const Sequence& sequence, int64_t i, int64_t chunk, int64_t chunks) const {
    const int64_t completed = block_size - entry(*num_computed_tokens, i) % block_size;
    const int64_t rest = ((sequence.tokens - completed) % block_size + block_size) % block_size;
    const int64_t last = rest == 0 ? sequence.tokens - block_size : sequence.tokens - rest;
    return last - (chunks - chunk - 1) * block_size;
  }

  void run() const {
    const auto tokens = x.dim() == 3 ? x.flatten(0, 1) : x, results = x.dim() == 3 ? y.flatten(0, 1) : y;
    std::vector<Sequence> sequences;
    for (int64_t i = 0; i < batch(); ++i) sequences.push_back(sequence(i));
    int64_t done = 0;  // tokens of no sequence, and of padding, give 0
    const bool in_place = results.const_data_ptr() == tokens.const_data_ptr();
    for (int64_t i = 0; i < batch(); ++i) {
      const Sequence& each = sequences[static_cast<size_t>(i)];
      if (!in_place && each.begin > done) results.narrow(0, done, each.begin - done).zero_();
      done = std::max(done, each.begin + each.tokens);
      if (each.tokens == 0) continue;
      if (each.is_padding) {
        if (!in_place) results.narrow(0, each.begin, each.tokens).zero_();
        continue;
      }
      convolve(each, i, tokens.narrow(0, each.begin, each.tokens), results.narrow(0, each.begin, each.tokens));
    }
    if (!in_place && done < results.size(0)) results.narrow(0, done, results.size(0) - done).zero_();
  }

  void convolve(const Sequence& sequence, int64_t i, In from, In to) const {
    const auto known = sequence.is_new ? at::zeros({sequence.known, x.size(-1)}, x.options())
                                       : conv_states[sequence.read].narrow(0, 0, sequence.known).clone();
    const auto start = known.narrow(0, sequence.offset, before());
    // The tokens [first, first + count) of the cache's followed by the sequence's.
    const auto joined = [&](const at::Tensor& first_part, int64_t first, int64_t count) {
      const int64_t old = std::clamp<int64_t>(first_part.size(0) - first, 0, count);
      const int64_t next = std::max<int64_t>(first - first_part.size(0), 0);
      return at::cat(
          {first_part.narrow(0, std::min(first, first_part.size(0)), old), from.narrow(0, next, count - old)});
    };
    const int64_t length = known.size(0) + from.size(0), kept = std::min(cached(), length);
    conv_states[sequence.write].narrow(0, cached() - kept, kept).copy_(joined(known, length - kept, kept));
    if (by_block()) {
      const int64_t first = entry(*block_idx_first, i), chunks = entry(*block_idx_last, i) - first;
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int64_t place = cache(i, first + chunk);
        if (place == pad_slot_id) continue;
        conv_states[place]
            .narrow(0, cached() - before(), before())
            .copy_(joined(start, boundary(sequence, i, chunk, chunks), before()));
      }
    }
    const int64_t reset = conv_mode == 1 ? std::max<int64_t>(before() - entry(*num_computed_tokens, i), 0) : 0;
    convolve_parts(from, weight, start.to(at::kFloat), [&](int64_t first, at::Tensor result, const at::Tensor& part) {
      if (reset > first) result.narrow(0, 0, std::min(reset - first, result.size(0))).zero_();
      if (residual_connection == 1) result.add_(part);
      to.narrow(0, first, result.size(0)).copy_(result);
    });
  }
};

// Arguments that CANN documents as without effect in this function.
using InitialStateMode = Ignored<OptionalIn>;
using Bias = Ignored<OptionalIn>;
using Activation = Ignored<int64_t>;
using RunMode = Ignored<int64_t>;
using LongestQuery = Ignored<int64_t>;  // the lengths say it as well

}  // namespace

ACLNN_TYPED_CHECKED(FusedCausalConv1d,
                    "x: float16 bfloat16; weight, conv_states, y: as x; query_start_loc, cache_indices, "
                    "num_accepted_tokens, num_computed_tokens, block_idx_first_scheduled_token, "
                    "block_idx_last_scheduled_token, initial_state_idx: int32",
                    [](Phase phase, In x, In weight, InOut conv_states, OptionalIn query_start_loc,
                       OptionalIn cache_indices, InitialStateMode, Bias, OptionalIn num_accepted_tokens,
                       OptionalIn num_computed_tokens, OptionalIn block_idx_first_scheduled_token,
                       OptionalIn block_idx_last_scheduled_token, OptionalIn initial_state_idx, Activation,
                       int64_t pad_slot_id, RunMode, LongestQuery, int64_t residual_connection, int64_t block_size,
                       int64_t conv_mode, Out y) {
                      check_or_run(phase, CachedConvolution(
                                              x, weight, conv_states, query_start_loc, cache_indices,
                                              num_accepted_tokens, num_computed_tokens, block_idx_first_scheduled_token,
                                              block_idx_last_scheduled_token, initial_state_idx, pad_slot_id,
                                              residual_connection, block_size, conv_mode, y));
                    });

ACLNN_TYPED_CHECKED(InplaceFusedCausalConv1d,
                    "x: float16 bfloat16; weight, conv_states: as x; query_start_loc, cache_indices, "
                    "num_accepted_tokens, num_computed_tokens, block_idx_first_scheduled_token, "
                    "block_idx_last_scheduled_token, initial_state_idx: int32",
                    [](Phase phase, InOut x, In weight, InOut conv_states, OptionalIn query_start_loc,
                       OptionalIn cache_indices, InitialStateMode, Bias, OptionalIn num_accepted_tokens,
                       OptionalIn num_computed_tokens, OptionalIn block_idx_first_scheduled_token,
                       OptionalIn block_idx_last_scheduled_token, OptionalIn initial_state_idx, Activation,
                       int64_t pad_slot_id, RunMode, LongestQuery, int64_t residual_connection, int64_t block_size,
                       int64_t conv_mode) {
                      check_or_run(phase, CachedConvolution(
                                              x, weight, conv_states, query_start_loc, cache_indices,
                                              num_accepted_tokens, num_computed_tokens, block_idx_first_scheduled_token,
                                              block_idx_last_scheduled_token, initial_state_idx, pad_slot_id,
                                              residual_connection, block_size, conv_mode, x));
                    });

namespace {

void check_masked(In x, In weight, OptionalIn mask) {
  check_rank("x", x, 3);
  check_convolution("x", x, weight);
  if (mask.has_value()) check_shape("mask", *mask, {x.size(1), x.size(0)});
}

// Rows (tokens, batch, channels), with 0 where the mask (batch, tokens) is false.
void apply_mask(const at::Tensor& rows, OptionalIn mask, int64_t first) {
  if (!mask.has_value()) return;
  rows.masked_fill_(mask->t().narrow(0, first, rows.size(0)).logical_not().unsqueeze(2), 0);
}

}  // namespace

ACLNN_TYPED(MaskedCausalConv1d, "x: float16 bfloat16; weight, out: as x; mask: bool",
            [](In x, In weight, OptionalIn mask, Out out) {
              check_masked(x, weight, mask);
              check_shape("out", out, x.sizes());
              if (x.numel() == 0) return;
              const auto before = at::zeros({weight.size(0) - 1, x.size(1), x.size(2)}, at::kFloat);
              convolve_parts(x, weight, before, [&](int64_t first, const at::Tensor& result, const at::Tensor&) {
                apply_mask(result, mask, first);
                out.narrow(0, first, result.size(0)).copy_(result);
              });
            });

ACLNN_TYPED(MaskedCausalConv1dBackward,
            "grad_y: float16 bfloat16; x, weight, grad_x, grad_weight: as grad_y; mask: bool",
            [](In grad_y, In x, In weight, OptionalIn mask, Out grad_x, Out grad_weight) {
              check_masked(x, weight, mask);
              check_shape("grad_y", grad_y, x.sizes());
              check_shape("grad_x", grad_x, x.sizes());
              check_shape("grad_weight", grad_weight, weight.sizes());
              const int64_t width = weight.size(0), tokens = x.size(0);
              const auto wide = weight.to(at::kFloat);
              auto sums = at::zeros({width, weight.size(1)}, at::kFloat);
              const int64_t step = std::max<int64_t>(kConvolved / std::max<int64_t>(x.size(1) * x.size(2), 1), 1);
              for (int64_t first = 0; first < tokens; first += step) {
                const int64_t count = std::min(step, tokens - first), end = first + count;
                const int64_t seen = std::min(end + width - 1, tokens);  // the gradients that these tokens reach
                auto dy = grad_y.narrow(0, first, seen - first).to(at::kFloat, false, true);
                apply_mask(dy, mask, first);
                auto dx = at::zeros({count, x.size(1), x.size(2)}, at::kFloat);
                const auto wide_x = x.narrow(0, first, count).to(at::kFloat);
                for (int64_t k = 0; k < width; ++k) {
                  const int64_t ahead = width - 1 - k, reached = std::clamp<int64_t>(seen - first - ahead, 0, count);
                  const auto part = dy.narrow(0, std::min(ahead, dy.size(0)), reached);
                  dx.narrow(0, 0, reached).add_(part * wide[k]);
                  sums[k].add_((part * wide_x.narrow(0, 0, reached)).sum(at::IntArrayRef({0, 1})));
                }
                grad_x.narrow(0, first, count).copy_(dx);
              }
              grad_weight.copy_(sums);
            });
