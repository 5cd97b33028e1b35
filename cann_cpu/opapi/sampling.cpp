// SPDX-License-Identifier: Apache-2.0
// The choice of the next token from its scores, and the step to it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <limits>

#include "checks.h"

using namespace cann_cpu;

namespace {

constexpr double kFilteredScore = -std::numeric_limits<double>::infinity();

void check_by_row(const char* name, OptionalIn tensor, int64_t rows) {
  if (!tensor.has_value()) return;
  TORCH_CHECK(tensor->numel() == rows && tensor->dim() <= 2, name, " has shape ", tensor->sizes(), "; expected [", rows,
              "], a number for each row of logits");
}

// A row of scores whose k largest, and then the largest that together are as probable as p, are kept.
at::Tensor without_improbable(In row, std::optional<int64_t> k, std::optional<float> p) {
  const int64_t size = row.size(0);
  at::Tensor scores = row.to(at::kFloat);
  if (k.has_value() && *k > 0 && *k < size) {
    const auto least = std::get<0>(at::topk(scores, *k)).select(0, *k - 1);
    scores = scores.masked_fill(scores.lt(least), kFilteredScore);
  }
  if (!p.has_value()) return scores;
  const auto [sorted, places] = at::sort(scores, /*stable=*/true, 0, /*descending=*/false);
  auto left_out = at::cumsum(at::softmax(sorted, 0), 0).le(1 - *p);
  left_out.select(0, size - 1).fill_(false);
  return at::empty_like(scores).index_copy_(0, places, sorted.masked_fill(left_out, kFilteredScore));
}

}  // namespace

ACLNN_TYPED(ApplyTopKTopP, "logits: float32 float16 bfloat16; p, out: as logits; k: int32",
            [](In logits, OptionalIn p, OptionalIn k, Out out) {
              check_rank("logits", logits, 2);
              TORCH_CHECK(p.has_value() || k.has_value(), "p and k are null; expected one of them");
              check_by_row("p", p, logits.size(0));
              check_by_row("k", k, logits.size(0));
              check_shape("out", out, logits.sizes());
              if (logits.numel() == 0) return;
              for (int64_t i = 0; i < logits.size(0); ++i) {
                std::optional<int64_t> most;
                std::optional<float> probability;
                if (k.has_value()) most = k->reshape({-1})[i].item<int64_t>();
                if (p.has_value()) probability = p->reshape({-1})[i].item<float>();
                out[i].copy_(without_improbable(logits[i], most, probability));
              }
            });

namespace {

// The tokens that a row of scores leaves after the filters, with their probabilities: by probability where k or p
// filters, otherwise in their order.
struct Sampling {
  In logits, top_k, top_p;
  OptionalIn q, min_ps;
  double epsilon;
  int64_t most;  // of k; a larger one does not filter
  bool input_is_logits = true;

  void check(In selected, OptionalOut filtered) const {
    check_rank("logits", logits, 2);
    check_range("the columns of logits", logits.size(1), 1, 1 << 20);
    check_by_row("top_k", top_k, logits.size(0));
    check_by_row("top_p", top_p, logits.size(0));
    check_by_row("min_ps", min_ps, logits.size(0));
    if (q.has_value()) check_shape("q", *q, logits.sizes());
    TORCH_CHECK(selected.numel() == logits.size(0), "logits_select_idx has shape ", selected.sizes(), "; expected [",
                logits.size(0), "]");
    if (filtered.has_value()) check_shape("logits_top_kp_select", *filtered, logits.sizes());
  }

  struct Left {
    at::Tensor tokens, probabilities;
  };
  Left left(int64_t i) const {
    const auto scores = logits[i].to(at::kFloat);
    const auto k = of_row<int64_t>(top_k, i);
    const auto p = of_row<float>(top_p, i);
    const bool by_k = k >= 1 && k <= std::min(most, scores.size(0));
    Left result{at::arange(scores.size(0), at::kLong), scores};
    if (by_k) {
      const auto least = std::get<0>(at::topk(scores, k)).select(0, k - 1);
      result.tokens = scores.ge(least).nonzero().reshape({-1});
      result.probabilities = scores.index_select(0, result.tokens);
    }
    if (by_k || p < 1) {
      const auto [sorted, places] = at::sort(result.probabilities, /*stable=*/true, 0, /*descending=*/true);
      result = {result.tokens.index_select(0, places), sorted};
    }
    if (by_k) result = first(result, k);
    if (input_is_logits) result.probabilities = at::softmax(result.probabilities, 0);
    if (p < 1) {
      const auto before = at::cumsum(result.probabilities, 0) - result.probabilities;
      result = first(result, p > 0 ? before.le(p).sum().item<int64_t>() : 1);
    }
    return min_ps.has_value() ? probable(result, of_row<float>(*min_ps, i)) : result;
  }

  void select(Out selected, OptionalOut filtered) const {
    for (int64_t i = 0; i < logits.size(0); ++i) {
      const auto kept = left(i);
      auto weights = kept.probabilities;
      if (q.has_value()) weights = weights / ((*q)[i].narrow(0, 0, weights.size(0)) + epsilon);
      selected.reshape({-1})[i].copy_(kept.tokens[weights.argmax()]);
      if (!filtered.has_value()) continue;
      (*filtered)[i].fill_(input_is_logits ? kFilteredScore : 0);
      (*filtered)[i].index_copy_(0, kept.tokens, logits[i].to(at::kFloat).index_select(0, kept.tokens));
    }
  }

  // The tokens and their probabilities, with zeros behind them.
  void list(Out tokens, Out probabilities) const {
    tokens.zero_();
    probabilities.zero_();
    for (int64_t i = 0; i < logits.size(0); ++i) {
      const auto kept = left(i);
      const int64_t count = kept.tokens.size(0);
      tokens[i].narrow(0, 0, count).copy_(kept.tokens);
      probabilities[i].narrow(0, 0, count).copy_(kept.probabilities);
    }
  }

 private:
  template <class T>
  static T of_row(In tensor, int64_t i) {
    return tensor.reshape({-1})[i].item<T>();
  }
  static Left first(const Left& all, int64_t count) {
    return {all.tokens.narrow(0, 0, count), all.probabilities.narrow(0, 0, count)};
  }
  // Those with at least this share of the largest probability.
  static Left probable(const Left& all, float share) {
    if (share <= 0) return all;
    const auto places = share < 1 ? all.probabilities.ge(all.probabilities.max() * share).nonzero().reshape({-1})
                                  : all.probabilities.argmax().reshape({1});
    return {all.tokens.index_select(0, places), all.probabilities.index_select(0, places)};
  }
};

std::optional<at::Tensor> if_wanted(bool wanted, OptionalOut out) {
  if (!wanted) return std::nullopt;
  TORCH_CHECK(out.has_value(), "logits_top_kp_select must be given for is_need_logits");
  return out;
}

using GuessedTokens = Ignored<int64_t>;  // how many tokens to sort at first, in the hope that they are enough

}  // namespace

ACLNN_TYPED_CHECKED(
    TopKTopPSample,
    "logits: float16 bfloat16; top_k: int32; top_p: as logits; q, logits_top_kp_select: float32; logits_select_idx: "
    "int64",
    [](Phase phase, In logits, In top_k, In top_p, OptionalIn q, double eps, bool is_need_logits, GuessedTokens,
       Out logits_select_idx, OptionalOut logits_top_kp_select) {
      auto filtered = if_wanted(is_need_logits, logits_top_kp_select);
      const Sampling sampling{logits, top_k, top_p, q, {}, eps, 1024};
      phase == Phase::Check ? sampling.check(logits_select_idx, filtered)
                            : sampling.select(logits_select_idx, filtered);
    });
ACLNN_TYPED_CHECKED(
    TopKTopPSampleV2,
    "logits: float32 float16 bfloat16; top_k: int32; top_p, min_ps: as logits; q, logits_top_kp_select, "
    "logits_sort_masked: float32; logits_select_idx, logits_idx: int64",
    [](Phase phase, In logits, In top_k, In top_p, OptionalIn q, OptionalIn min_ps, double eps, bool is_need_logits,
       GuessedTokens, int64_t ks_max, bool input_is_logits, bool is_need_sample_result, Out logits_select_idx,
       OptionalOut logits_top_kp_select, OptionalOut logits_idx, OptionalOut logits_sort_masked) {
      check_range("ks_max", ks_max, 1, 1024);
      auto filtered = if_wanted(is_need_logits, logits_top_kp_select);
      const Sampling sampling{logits, top_k, top_p, q, min_ps, eps, (ks_max + 7) / 8 * 8, input_is_logits};
      if (phase == Phase::Check) {
        sampling.check(logits_select_idx, filtered);
        if (!is_need_sample_result) return;
        TORCH_CHECK(!q.has_value(), "q must be null for is_need_sample_result");
        TORCH_CHECK(logits_idx.has_value() && logits_sort_masked.has_value(),
                    "logits_idx and logits_sort_masked must be given for is_need_sample_result");
        check_shape("logits_idx", *logits_idx, logits.sizes());
        check_shape("logits_sort_masked", *logits_sort_masked, logits.sizes());
        return;
      }
      if (is_need_sample_result) {
        sampling.list(*logits_idx, *logits_sort_masked);
      } else {
        sampling.select(logits_select_idx, filtered);
      }
    });

namespace {

// The slot of each position, in the blocks of its request.
at::Tensor slots_of_positions(In block_tables, In requests, In positions, int64_t block_size) {
  const auto blocks = positions.div(block_size, "floor");
  check_values("the block of input_positions", blocks, 0, block_tables.size(1) - 1);
  const auto numbers = block_tables.reshape({-1}).index_select(0, requests * block_tables.size(1) + blocks);
  return numbers * block_size + positions.remainder(block_size);
}

void check_step(In block_tables, int64_t sequences, int64_t block_size) {
  check_rank("block_tables", block_tables, 2);
  check_shape("block_tables", block_tables, {sequences, block_tables.size(1)});
  check_range("block_size", block_size, 1, std::numeric_limits<int32_t>::max());
}

}  // namespace

// The sampled token of each query becomes its input, at the position behind its sequence. Further sequences are
// padding.
ACLNN_TYPED_CHECKED(AdvanceStep,
                    "input_tokens, sampled_token_ids, input_positions, seq_lens, slot_mapping, block_tables: int64",
                    [](Phase phase, InOut input_tokens, In sampled_token_ids, InOut input_positions, InOut seq_lens,
                       InOut slot_mapping, In block_tables, int64_t num_seqs, int64_t num_queries, int64_t block_size) {
                      check_range("num_queries", num_queries, 0, num_seqs);
                      check_shape("input_tokens", input_tokens, {num_seqs});
                      check_shape("sampled_token_ids", sampled_token_ids, {num_queries, 1});
                      check_shape("input_positions", input_positions, {num_seqs});
                      check_shape("seq_lens", seq_lens, {num_seqs});
                      check_shape("slot_mapping", slot_mapping, {num_seqs});
                      check_step(block_tables, num_seqs, block_size);
                      if (phase == Phase::Check) return;
                      const auto of_queries = [&](const at::Tensor& all) { return all.narrow(0, 0, num_queries); };
                      const auto positions = of_queries(seq_lens).clone();
                      const auto slots =
                          slots_of_positions(block_tables, at::arange(num_queries, at::kLong), positions, block_size);
                      const auto padding = [&](const at::Tensor& all) {
                        return all.narrow(0, num_queries, num_seqs - num_queries);
                      };
                      of_queries(input_tokens).copy_(sampled_token_ids.select(1, 0));
                      of_queries(input_positions).copy_(positions);
                      of_queries(seq_lens).add_(1);
                      of_queries(slot_mapping).copy_(slots);
                      padding(input_tokens).zero_();
                      padding(input_positions).zero_();
                      padding(slot_mapping).fill_(-1);
                    });
// With speculation a request has several tokens: the last that was accepted, and those of the draft behind it.
ACLNN_TYPED_CHECKED(
    AdvanceStepV2,
    "input_tokens, sampled_token_ids, input_positions, seq_lens, slot_mapping, block_tables, spec_token, accepted_num: "
    "int64",
    [](Phase phase, InOut input_tokens, In sampled_token_ids, InOut input_positions, InOut seq_lens, InOut slot_mapping,
       In block_tables, In spec_token, In accepted_num, int64_t num_seqs, int64_t num_queries, int64_t block_size) {
      check_range("num_queries", num_queries, num_seqs, num_seqs);
      check_rank("spec_token", spec_token, 2);
      const int64_t each = spec_token.size(1) + 1;
      check_shape("spec_token", spec_token, {num_seqs, each - 1});
      check_shape("accepted_num", accepted_num, {num_seqs});
      check_shape("sampled_token_ids", sampled_token_ids, {num_seqs, each});
      TORCH_CHECK(input_tokens.numel() == num_seqs * each, "input_tokens has shape ", input_tokens.sizes(),
                  "; expected ", num_seqs * each, " tokens");
      check_contiguous("input_tokens", input_tokens);
      check_shape("input_positions", input_positions, {num_seqs * each});
      check_shape("seq_lens", seq_lens, {num_seqs * each});
      check_shape("slot_mapping", slot_mapping, {num_seqs * each});
      check_step(block_tables, num_seqs, block_size);
      if (phase == Phase::Check) return;

      check_values("the first of sampled_token_ids", sampled_token_ids.select(1, 0), 0,
                   std::numeric_limits<int64_t>::max());
      const auto positions = input_positions + accepted_num.repeat_interleave(each) + 1;
      const auto requests = at::arange(num_seqs, at::kLong).repeat_interleave(each);
      const auto slots = slots_of_positions(block_tables, requests, positions, block_size);
      const auto valid = sampled_token_ids.ge(0).to(at::kLong).cumprod(1).sum(1, /*keepdim=*/true);
      const auto tokens = input_tokens.view({num_seqs, each});
      tokens.narrow(1, 0, 1).copy_(sampled_token_ids.gather(1, valid - 1));
      tokens.narrow(1, 1, each - 1).copy_(spec_token);
      input_positions.copy_(positions);
      seq_lens.copy_(positions + 1);
      slot_mapping.copy_(slots);
    });
