// SPDX-License-Identifier: Apache-2.0
// Gates of mixtures of experts: the experts with the highest scores of each token, and their weights.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "checks.h"
#include "gating.h"

using namespace cann_cpu;

std::pair<at::Tensor, at::Tensor> cann_cpu::highest_scores(In scores, int64_t k) {
  const auto [values, places] = at::sort(scores, /*stable=*/true, -1, /*descending=*/true);
  return {values.narrow(-1, 0, k), places.narrow(-1, 0, k)};
}

at::Tensor cann_cpu::with_best_groups(In scores, int64_t groups, int64_t k, int64_t n, double hidden) {
  const auto grouped = scores.unflatten(-1, {groups, -1});
  const auto of_group = n == 1 ? grouped.amax({-1}) : std::get<0>(grouped.topk(n, -1)).sum({-1});
  const auto left_out = at::ones(of_group.sizes(), at::kBool).scatter_(-1, highest_scores(of_group, k).second, 0);
  return grouped.masked_fill(left_out.unsqueeze(-1), hidden).flatten(-2);
}

namespace {

constexpr int64_t kGateScores = 1 << 20;  // at a time

enum ScoreFunction : int64_t { kSoftmaxScore, kSigmoidScore };

// With a table, the experts of a token are those of its identifier; otherwise those with the highest scores, in
// the groups with the highest scores where there are several. A bias takes part in the choice alone.
struct Gate {
  In x;
  OptionalIn bias, input_ids, table;
  int64_t k, chosen_groups, groups, group_score, renorm, score_function;
  double factor, epsilon;
  bool can_renorm;
  Out y, expert_idx, out;
  bool out_flag;

  int64_t tokens() const { return x.size(0); }
  int64_t experts() const { return x.size(1); }

  void check() const {
    check_rank("x", x, 2);
    check_range("norm_type", score_function, kSoftmaxScore, kSigmoidScore);
    check_range("group_select_mode", group_score, 0, 1);
    check_range("renorm", renorm, 0, can_renorm && score_function == kSoftmaxScore ? 1 : 0);
    TORCH_CHECK(groups > 0 && experts() % groups == 0 && experts() / groups > group_score, "group_count is ", groups,
                "; expected a divisor of the ", experts(), " experts, with more than ", group_score, " in a group");
    const int64_t size = experts() / groups;
    TORCH_CHECK((size + 31) / 32 * 32 * groups <= 2048, "x has ", experts(), " experts in ", groups,
                " groups; expected at most 2048, each group rounded up to 32");
    check_range("k_group", chosen_groups, 1, groups);
    check_range("k", k, 1, size * chosen_groups);
    if (bias.has_value()) check_shape("bias", *bias, {experts()});
    TORCH_CHECK(input_ids.has_value() == table.has_value(), "input_ids and tid2eid must be given together");
    if (table.has_value()) {
      check_shape("input_ids", *input_ids, {tokens()});
      check_rank("tid2eid", *table, 2);
      check_shape("tid2eid", *table, {table->size(0), k});
    }
    check_shape("y", y, {tokens(), k});
    check_shape("expert_idx", expert_idx, {tokens(), k});
    if (out_flag) check_shape("out", out, x.sizes());
  }

  void run() const {
    if (table.has_value()) {
      check_values("input_ids", *input_ids, 0, table->size(0) - 1);
      check_values("tid2eid", *table, 0, experts() - 1);
    }
    const int64_t step = std::max<int64_t>(1, kGateScores / experts());
    for (int64_t begin = 0; begin < tokens(); begin += step) {
      const auto part = [&](In all) { return all.narrow(0, begin, std::min(step, tokens() - begin)); };
      const auto wide = part(x).to(at::kFloat);
      const auto scores = score_function == kSoftmaxScore ? at::softmax(wide, -1) : at::sigmoid(wide);
      const auto places = table.has_value() ? table->index_select(0, part(*input_ids).to(at::kLong)).to(at::kLong)
                                            : best(bias.has_value() ? scores + *bias : scores);
      auto weights = scores.gather(-1, places);
      if (score_function == kSigmoidScore || renorm == 1) {
        weights = weights / (weights.sum({-1}, /*keepdim=*/true) + epsilon);
      }
      part(y).copy_(weights * factor);
      part(expert_idx).copy_(places);
      if (out_flag) part(out).copy_(scores);
    }
  }

 private:
  at::Tensor best(In scores) const {
    if (chosen_groups == groups) return highest_scores(scores, k).second;
    const double hidden = -std::numeric_limits<double>::infinity();
    return highest_scores(with_best_groups(scores, groups, chosen_groups, group_score + 1, hidden), k).second;
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(MoeGatingTopK, "x: float32 float16 bfloat16; bias, y: as x; expert_idx: int32; out: float32",
                    [](Phase phase, In x, OptionalIn bias, int64_t k, int64_t k_group, int64_t group_count,
                       int64_t group_select_mode, int64_t renorm, int64_t norm_type, bool out_flag,
                       double routed_scaling_factor, double eps, Out y, Out expert_idx, Out out) {
                      check_or_run(phase, Gate({x,
                                                bias,
                                                {},
                                                {},
                                                k,
                                                k_group,
                                                group_count,
                                                group_select_mode,
                                                renorm,
                                                norm_type,
                                                routed_scaling_factor,
                                                eps,
                                                /*can_renorm=*/false,
                                                y,
                                                expert_idx,
                                                out,
                                                out_flag}));
                    });
ACLNN_TYPED_CHECKED(
    MoeGatingTopKV2,
    "x: float32 float16 bfloat16; bias, y: as x; input_ids, tid2eid: int32 int64; expert_idx: int32; out: float32",
    [](Phase phase, In x, OptionalIn bias, OptionalIn input_ids, OptionalIn tid2eid, int64_t k, int64_t k_group,
       int64_t group_count, int64_t group_select_mode, int64_t renorm, int64_t norm_type, bool out_flag,
       double routed_scaling_factor, double eps, Out y, Out expert_idx, Out out) {
      check_or_run(phase,
                   Gate({x, bias, input_ids, tid2eid, k, k_group, group_count, group_select_mode, renorm, norm_type,
                         routed_scaling_factor, eps, /*can_renorm=*/true, y, expert_idx, out, out_flag}));
    });

// The gradient by way of the weights: each is its score over the sum of those chosen.
ACLNN_TYPED_CHECKED(MoeGatingTopKBackward,
                    "x_norm: float32; grad_y: float32 float16 bfloat16; expert_idx: int32; out: as grad_y",
                    [](Phase phase, In x_norm, In grad_y, In expert_idx, int64_t renorm, int64_t norm_type,
                       double routed_scaling_factor, double eps, Out out) {
                      check_rank("x_norm", x_norm, 2);
                      check_rank("grad_y", grad_y, 2);
                      check_range("norm_type", norm_type, kSigmoidScore, kSigmoidScore);
                      check_range("renorm", renorm, 0, 1);
                      check_range("the columns of grad_y", grad_y.size(1), 1, x_norm.size(1));
                      check_shape("grad_y", grad_y, {x_norm.size(0), grad_y.size(1)});
                      check_shape("expert_idx", expert_idx, grad_y.sizes());
                      check_shape("out", out, x_norm.sizes());
                      if (phase == Phase::Check) return;
                      check_values("expert_idx", expert_idx, 0, x_norm.size(1) - 1);
                      const auto places = expert_idx.to(at::kLong);
                      const auto chosen = x_norm.gather(1, places);
                      const auto sum = chosen.sum({1}, /*keepdim=*/true) + eps;
                      const auto dy = grad_y.to(at::kFloat) * routed_scaling_factor;
                      const auto of_chosen = (dy - (dy * chosen / sum).sum({1}, /*keepdim=*/true)) / sum;
                      const auto of_score =
                          at::zeros(x_norm.sizes(), x_norm.options()).scatter_add_(1, places, of_chosen);
                      assign(out, of_score * x_norm * (1 - x_norm));
                    });

namespace {

constexpr int64_t kMostExperts = 1024;  // of a token, in a gate by softmax

void check_softmax_gate(In x, OptionalIn finished, int64_t k, In y, In expert_idx) {
  TORCH_CHECK(x.dim() == 2 || x.dim() == 3, "x has ", x.dim(), " dimensions, shape ", x.sizes(), "; expected 2 or 3");
  check_range("k", k, 1, std::min(x.size(-1), kMostExperts));
  auto sizes = x.sizes().vec();
  if (finished.has_value()) check_shape("finished", *finished, x.sizes().slice(0, x.dim() - 1));
  sizes.back() = k;
  check_shape("y", y, sizes);
  check_shape("expert_idx", expert_idx, sizes);
}

// Softmax before the choice, or after it. A finished row has an expert past the last one.
void choose_by_softmax(In x, OptionalIn finished, int64_t k, bool after, Out y, Out expert_idx, OptionalOut softmax) {
  const auto rows = x.flatten(0, -2);
  const auto by_row = [](const at::Tensor& tensor) { return tensor.view({-1, tensor.size(-1)}); };
  const auto weights = by_row(y), experts = by_row(expert_idx);
  const int64_t step = std::max<int64_t>(1, kGateScores / x.size(-1));
  for (int64_t begin = 0; begin < rows.size(0); begin += step) {
    const auto part = [&](In all) { return all.narrow(0, begin, std::min(step, rows.size(0) - begin)); };
    const auto wide = part(rows).to(at::kFloat);
    const auto scores = after ? wide : at::softmax(wide, -1);
    const auto [values, places] = highest_scores(scores, k);
    part(weights).copy_(after ? at::softmax(values, -1) : values);
    part(experts).copy_(finished.has_value() ? places.masked_fill(part(finished->flatten()).unsqueeze(1), x.size(-1))
                                             : places);
    if (softmax.has_value()) part(by_row(*softmax)).copy_(scores);
  }
}

constexpr const char* kSoftmaxGateDtypes =
    "x: float32 float16 bfloat16; finished: bool; y: as x; expert_idx, row_idx: int32";

}  // namespace

ACLNN_TYPED(MoeGatingTopKSoftmax, kSoftmaxGateDtypes,
            [](In x, OptionalIn finished, int64_t k, Out y, Out expert_idx, Out row_idx) {
              check_softmax_gate(x, finished, k, y, expert_idx);
              check_shape("row_idx", row_idx, y.sizes());
              std::optional<at::Tensor> none;
              choose_by_softmax(x, finished, k, /*after=*/false, y, expert_idx, none);
              const int64_t rows = y.numel() / k;
              row_idx.copy_(at::arange(y.numel()).view({k, rows}).t().reshape(y.sizes()));
            });
ACLNN_TYPED(MoeGatingTopKSoftmaxV2,
            "x: float32 float16 bfloat16; finished: bool; y: as x; expert_idx: int32; softmax_result: float32",
            [](In x, OptionalIn finished, int64_t k, int64_t renorm, bool output_softmax_result_flag, Out y,
               Out expert_idx, OptionalOut softmax_result) {
              check_softmax_gate(x, finished, k, y, expert_idx);
              check_range("renorm", renorm, 0, 1);
              const bool wanted = output_softmax_result_flag && renorm == 0;
              TORCH_CHECK(!wanted || softmax_result.has_value(), "softmax_result must be given");
              if (wanted) check_shape("softmax_result", *softmax_result, x.sizes());
              std::optional<at::Tensor> softmax;
              if (wanted) softmax = *softmax_result;
              choose_by_softmax(x, finished, k, /*after=*/renorm == 1, y, expert_idx, softmax);
            });

// The places where each expert's rows end.
ACLNN_TYPED_CHECKED(MoeComputeExpertTokens, "sorted_experts, out: int32",
                    [](Phase phase, In sorted_experts, int64_t num_experts, Out out) {
                      check_rank("sorted_experts", sorted_experts, 1);
                      check_range("num_experts", num_experts, 1, 2048);
                      check_shape("out", out, {num_experts});
                      if (phase == Phase::Check) return;
                      check_values("sorted_experts", sorted_experts, 0, num_experts - 1);
                      out.copy_(sorted_experts.to(at::kLong).bincount({}, num_experts).cumsum(0));
                    });

// The place of each expert among the ranks that have a copy, by the rank or by the token that asks, and which of a
// token's experts are worth the exchange.
ACLNN_TYPED_CHECKED(
    MoeUpdateExpert,
    "expert_ids: int32 int64; eplb_table: int32; expert_scales: float32 float16 bfloat16; pruning_threshold: float32; "
    "active_mask, balanced_active_mask: bool; balanced_expert_ids: as expert_ids",
    [](Phase phase, In expert_ids, In eplb_table, OptionalIn expert_scales, OptionalIn pruning_threshold,
       OptionalIn active_mask, int64_t local_rank_id, int64_t world_size, int64_t balance_mode, Out balanced_expert_ids,
       OptionalOut balanced_active_mask) {
      if (phase == Phase::Check) {
        check_rank("expert_ids", expert_ids, 2);
        check_rank("eplb_table", eplb_table, 2);
        check_range("balance_mode", balance_mode, 0, 1);
        if (balance_mode == 0) {
          check_range("world_size", world_size, 2, 768);
          check_range("local_rank_id", local_rank_id, 0, world_size - 1);
        }
        check_shape("balanced_expert_ids", balanced_expert_ids, expert_ids.sizes());
        TORCH_CHECK(expert_scales.has_value() == pruning_threshold.has_value(),
                    "expert_scales and pruning_threshold must be given together");
        TORCH_CHECK(expert_scales.has_value() || !active_mask.has_value(),
                    "active_mask is given without expert_scales");
        if (!expert_scales.has_value()) return;
        check_shape("expert_scales", *expert_scales, expert_ids.sizes());
        TORCH_CHECK(pruning_threshold->numel() == expert_ids.size(1), "pruning_threshold has shape ",
                    pruning_threshold->sizes(), "; expected ", expert_ids.size(1), " numbers");
        if (active_mask.has_value()) check_shape("active_mask", *active_mask, {expert_ids.size(0)});
        TORCH_CHECK(balanced_active_mask.has_value(), "balanced_active_mask must be given");
        check_shape("balanced_active_mask", *balanced_active_mask, expert_ids.sizes());
        return;
      }
      check_values("expert_ids", expert_ids, 0, eplb_table.size(0) - 1);
      check_values("the counts of eplb_table", eplb_table.select(1, 0), 1, eplb_table.size(1) - 1);
      const auto table = eplb_table.to(at::kLong);
      const auto ids = expert_ids.to(at::kLong);
      const auto counts = table.select(1, 0).index_select(0, ids.flatten()).view(ids.sizes());
      const auto ranks_of_copy = (counts + (world_size - 1)).div(counts, "floor");
      const auto place = balance_mode == 0
                             ? at::full(ids.sizes(), local_rank_id, ids.options()).div(ranks_of_copy, "floor")
                             : at::arange(ids.size(0), at::kLong).unsqueeze(1).remainder(counts);
      balanced_expert_ids.copy_(table.flatten().take(ids * table.size(1) + place + 1));
      if (!expert_scales.has_value()) return;
      const auto scales = expert_scales->to(at::kFloat);
      auto kept = scales.ge(scales.sum({1}, /*keepdim=*/true) * pruning_threshold->flatten());
      if (active_mask.has_value()) kept = kept.logical_and(active_mask->unsqueeze(1));
      balanced_active_mask->copy_(kept);
    });
