// SPDX-License-Identifier: Apache-2.0
// Experts on the ranks of a group: dispatch sends each token to the ranks of its experts, combine sends their results
// back and adds them by weight.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "checks.h"
#include "group.h"
#include "quantization.h"

using namespace cann_cpu;

namespace {

std::vector<int64_t> host_list(In tensor) {
  const auto all = tensor.to(at::kLong).contiguous();
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

// Where the experts are: copies of the shared ones on the first ranks, one on each, the others divided among the rest.
// Experts past the last one are on no rank.
struct Deployment {
  Text group;
  int64_t world, rank, experts;
  int64_t tp_world, tp_rank, shard_type, shared, shared_ranks;
  int64_t zero_experts, copy_experts, constant_experts;

  int64_t special() const { return zero_experts + copy_experts + constant_experts; }
  int64_t experts_of_rank() const { return experts / (world - shared_ranks); }
  bool is_shared() const { return rank < shared_ranks; }
  int64_t local_experts() const { return is_shared() ? 1 : experts_of_rank(); }
  int64_t copies_of_shared() const { return shared_ranks > 0 ? shared : 0; }

  void check() const {
    const Group found(group);
    TORCH_CHECK(world == found.size() && rank == found.rank(), "ep_world_size is ", world, " and ep_rank_id ", rank,
                "; expected ", found.size(), " and ", found.rank(), ", as in the group ", group);
    check_range("tp_world_size", tp_world, 0, 1);
    check_range("tp_rank_id", tp_rank, 0, 0);
    check_range("expert_shard_type", shard_type, 0, 0);
    check_range("shared_expert_num", shared, 0, 4);
    check_range("shared_expert_rank_num", shared_ranks, 0, world - 1);
    TORCH_CHECK(shared_ranks == 0 ? shared <= 1 : (shared > 0 && shared_ranks % shared == 0), "shared_expert_num is ",
                shared, "; expected a divisor of the ", shared_ranks, " ranks of shared experts");
    check_range("moe_expert_num", experts, 1, 1024);
    TORCH_CHECK(experts % (world - shared_ranks) == 0, "moe_expert_num is ", experts, "; expected a multiple of the ",
                world - shared_ranks, " ranks that divide the experts");
    check_range("zero_expert_num", zero_experts, 0, std::numeric_limits<int32_t>::max());
    check_range("copy_expert_num", copy_experts, 0, std::numeric_limits<int32_t>::max());
    check_range("const_expert_num", constant_experts, 0, std::numeric_limits<int32_t>::max());
  }
};

void check_tokens_of_experts(const Deployment& deployment, In expert_ids, int64_t tokens, OptionalIn active) {
  check_rank("expert_ids", expert_ids, 2);
  check_shape("expert_ids", expert_ids, {tokens, expert_ids.size(1)});
  check_range("the columns of expert_ids", expert_ids.size(1), 1,
              std::min<int64_t>(16, deployment.experts + deployment.special()));
  if (!active.has_value()) return;
  TORCH_CHECK(active->sizes() == expert_ids.sizes() || active->sizes() == at::IntArrayRef{tokens},
              "x_active_mask has shape ", active->sizes(), "; expected [", tokens, "] or ", expert_ids.sizes());
}

void check_token_values_of_experts(const Deployment& deployment, In expert_ids, OptionalIn active) {
  check_values("expert_ids", expert_ids, 0, deployment.experts + deployment.special() - 1);
  if (!active.has_value() || active->dim() != 1) return;
  const auto flags = active->to(at::kLong);
  TORCH_CHECK((flags - std::get<0>(flags.cummin(0))).eq(0).all().item<bool>(),
              "x_active_mask has a token that takes part behind one that does not; expected those that do first");
}

// The rows that this rank sends, by destination, expert and token. Row (token, choice) has the number token * choices +
// choice; the choices of a token are its experts and, behind them, the shared ones.
struct Outgoing {
  at::Tensor rows;                 // in the order in which they are sent
  at::Tensor experts;              // of all ranks, shared ones first, by row
  std::vector<int64_t> counts;     // by rank
  std::vector<int64_t> by_expert;  // by rank and local expert
  int64_t choices;

  Outgoing(const Deployment& d, In expert_ids, OptionalIn active) : choices(expert_ids.size(1) + d.copies_of_shared()) {
    const int64_t tokens = expert_ids.size(0), each = d.experts_of_rank();
    const auto ids = expert_ids.to(at::kLong);
    auto keys = (ids + d.shared_ranks * each).masked_fill(ids.ge(d.experts), -1);
    if (d.copies_of_shared() > 0) {
      const int64_t replicas = d.shared_ranks / d.shared;
      const auto ranks = at::arange(d.shared, at::kLong) * replicas + d.rank % replicas;
      keys = at::cat({keys, (ranks * each).expand({tokens, d.shared})}, 1);
    }
    if (active.has_value()) {
      const auto mask = active->to(at::kBool);
      const auto chosen = mask.dim() == 1 ? mask.unsqueeze(1).expand(ids.sizes()) : mask;
      const auto any = chosen.any(1, /*keepdim=*/true).expand({tokens, d.copies_of_shared()});
      keys = keys.masked_fill(at::cat({chosen, any}, 1).logical_not(), -1);
    }
    const auto flat = keys.reshape({-1});
    const auto order = at::argsort(flat, /*stable=*/true, 0, /*descending=*/false);
    rows = order.narrow(0, flat.lt(0).sum().item<int64_t>(), flat.ge(0).sum().item<int64_t>());
    experts = flat.index_select(0, rows);
    const auto all = experts.bincount({}, d.world * each).view({d.world, each});
    by_expert = host_list(all);
    counts = host_list(all.sum(1));
  }

  at::Tensor tokens() const { return rows.div(choices, "floor"); }
};

enum TransportQuantization : int64_t { kNoQuantization = 0, kStepsOfRows = 2 };

struct Dispatch {
  In x, expert_ids;
  OptionalIn scales, active, expert_scales;
  Deployment deployment;
  int64_t quant_mode, global_batch, nums_type;
  Out expand_x;
  OptionalOut dynamic_scales;
  Out assist_info, expert_token_nums, ep_recv_counts;
  OptionalOut tp_recv_counts, expand_scales;

  int64_t tokens() const { return x.size(0); }

  void check() const {
    deployment.check();
    check_rank("x", x, 2);
    check_tokens_of_experts(deployment, expert_ids, tokens(), active);
    TORCH_CHECK(quant_mode == kNoQuantization || quant_mode == kStepsOfRows, "quant_mode is ", quant_mode,
                "; expected 0 or 2 (int8, a step for each token)");
    check_range("expert_token_nums_type", nums_type, 0, 1);
    const int64_t local = deployment.local_experts();
    TORCH_CHECK(global_batch == 0 || global_batch >= tokens() * deployment.world, "global_bs is ", global_batch,
                "; expected 0, or the largest batch of a rank times ", deployment.world);
    check_rank("expand_x", expand_x, 2);
    check_shape("expand_x", expand_x, {expand_x.size(0), x.size(1)});
    const auto expected = quant_mode == kNoQuantization ? x.scalar_type() : at::kChar;
    TORCH_CHECK(expand_x.scalar_type() == expected, "expand_x has dtype ", expand_x.scalar_type(), "; expected ",
                expected);
    if (scales.has_value()) {
      TORCH_CHECK(quant_mode == kStepsOfRows, "scales is given; expected null for quant_mode 0");
      check_shape("scales", *scales, {deployment.copies_of_shared() + deployment.experts, x.size(1)});
    }
    if (expert_scales.has_value()) check_shape("expert_scales", *expert_scales, expert_ids.sizes());
    if (quant_mode == kStepsOfRows) {
      TORCH_CHECK(dynamic_scales.has_value(), "dynamic_scales must be given for quant_mode 2");
      check_shape("dynamic_scales", *dynamic_scales, {expand_x.size(0)});
    }
    check_shape("expert_token_nums", expert_token_nums, {local});
    TORCH_CHECK(ep_recv_counts.dim() == 1 && ep_recv_counts.size(0) >= deployment.world * local,
                "ep_recv_counts has shape ", ep_recv_counts.sizes(), "; expected at least ", deployment.world * local,
                " numbers");
  }

  void run() const {
    check_token_values_of_experts(deployment, expert_ids, active);
    const Group group(deployment.group);
    const int64_t each = deployment.experts_of_rank(), local = deployment.local_experts();
    const Outgoing out(deployment, expert_ids, active);
    const std::vector<int64_t> equal(static_cast<size_t>(deployment.world), 1);
    const auto mine = at::empty({deployment.world, each}, at::kLong);
    std::copy(out.by_expert.begin(), out.by_expert.end(), mine.mutable_data_ptr<int64_t>());
    const auto counts = group.exchanged(mine, equal, equal).narrow(1, 0, local);  // by rank and local expert
    const auto received_counts = host_list(counts.sum(1));
    const int64_t received = std::accumulate(received_counts.begin(), received_counts.end(), int64_t{0});
    // All ranks exchange what they have to, so that one that has no place for its rows does not keep the others.
    const auto order = order_by_expert(counts);
    const auto moved = [&](In rows) {
      return group.exchanged(rows, out.counts, received_counts).index_select(0, order);
    };
    auto rows = x.index_select(0, out.tokens());
    at::Tensor steps;
    if (quant_mode == kStepsOfRows) {
      auto wide = rows.to(at::kFloat);
      if (scales.has_value()) wide = wide * scales->index_select(0, out_scale_rows(out));
      const auto quantized = dynamically_quantized(wide, at::kChar);
      rows = quantized.values;
      steps = moved(quantized.scale);
    }
    rows = moved(rows);
    at::Tensor weights;
    if (expert_scales.has_value() && expand_scales.has_value()) weights = moved(of_rows(*expert_scales, out));
    TORCH_CHECK(received <= expand_x.size(0), "expand_x has ", expand_x.size(0), " rows; expected at least ", received,
                ", as many as the ranks send");
    expand_x.narrow(0, 0, received).copy_(rows);
    if (steps.defined()) dynamic_scales->narrow(0, 0, received).copy_(steps);
    if (weights.defined()) expand_scales->reshape({-1}).narrow(0, 0, received).copy_(weights);
    const auto of_expert = counts.sum(0);
    expert_token_nums.copy_(nums_type == 0 ? of_expert.cumsum(0) : of_expert);
    ep_recv_counts.zero_().narrow(0, 0, deployment.world * local).copy_(counts.t().reshape({-1}));
    if (tp_recv_counts.has_value()) tp_recv_counts->fill_(received);
    assist_info.zero_();
  }

 private:
  // The row of scales for each row: those of shared experts come first.
  at::Tensor out_scale_rows(const Outgoing& out) const {
    const int64_t each = deployment.experts_of_rank(), first = deployment.shared_ranks * each;
    const int64_t replicas =
        deployment.shared > 0 ? std::max<int64_t>(1, deployment.shared_ranks / deployment.shared) : 1;
    const auto of_shared = out.experts.div(each * replicas, "floor");
    return at::where(out.experts.lt(first), of_shared, out.experts - first + deployment.copies_of_shared());
  }
  // The weight of each row; that of a shared expert is 1.
  at::Tensor of_rows(In weights, const Outgoing& out) const {
    const auto ones = at::full({tokens(), deployment.copies_of_shared()}, 1, weights.options());
    return at::cat({weights, ones}, 1).reshape({-1}).index_select(0, out.rows);
  }
};

// The sums and a residual are added, and normalised by their root mean square.
struct Normalization {
  In residual_x, gamma;
  double epsilon;
  Out y, rstd, x;

  void check(In expand_x, In expert_ids) const {
    const int64_t tokens = expert_ids.size(0), size = expand_x.size(1);
    check_shape("residual_x", residual_x, {tokens, 1, size});
    check_shape("gamma", gamma, {size});
    check_shape("y", y, {tokens, 1, size});
    check_shape("x", x, {tokens, 1, size});
    check_shape("rstd", rstd, {tokens, 1, 1});
  }
  void write(int64_t begin, In sums) const {
    const auto part = [&](In all) { return all.narrow(0, begin, sums.size(0)).select(1, 0); };
    const auto wide = sums + part(residual_x);
    const auto inverse = at::rsqrt(wide.square().mean({-1}, /*keepdim=*/true) + epsilon);
    part(x).copy_(wide);
    part(rstd).copy_(inverse);
    part(y).copy_(wide * inverse * gamma);
  }
};

struct Combine {
  In expand_x, expert_ids, ep_send_counts, expert_scales;
  OptionalIn active, shared_x, own_x, alpha1, alpha2, constant;
  Deployment deployment;
  int64_t global_batch, quant_mode;

  int64_t tokens() const { return expert_ids.size(0); }
  int64_t size() const { return expand_x.size(1); }

  void check() const {
    deployment.check();
    check_rank("expand_x", expand_x, 2);
    check_rank("expert_ids", expert_ids, 2);
    check_tokens_of_experts(deployment, expert_ids, tokens(), active);
    check_shape("expert_scales", expert_scales, expert_ids.sizes());
    TORCH_CHECK(quant_mode == kNoQuantization || quant_mode == kStepsOfRows, "comm_quant_mode is ", quant_mode,
                "; expected 0 or 2 (int8, a step for each token)");
    TORCH_CHECK(global_batch == 0 || global_batch >= tokens() * deployment.world, "global_bs is ", global_batch,
                "; expected 0, or the largest batch of a rank times ", deployment.world);
    const int64_t counts = deployment.world * deployment.local_experts();
    TORCH_CHECK(ep_send_counts.dim() == 1 && ep_send_counts.size(0) >= counts, "ep_send_counts has shape ",
                ep_send_counts.sizes(), "; expected at least ", counts, " numbers");
    if (shared_x.has_value()) {
      TORCH_CHECK(shared_x->numel() == tokens() * size() && shared_x->size(-1) == size(), "shared_expert_x has shape ",
                  shared_x->sizes(), "; expected ", tokens(), " tokens of ", size());
      check_range("shared_expert_rank_num", deployment.shared_ranks, 0, 0);
    }
    TORCH_CHECK(own_x.has_value() || deployment.copy_experts + deployment.constant_experts == 0,
                "ori_x must be given for experts that return their token");
    if (own_x.has_value()) check_shape("ori_x", *own_x, {tokens(), size()});
    if (deployment.constant_experts == 0) return;
    TORCH_CHECK(alpha1.has_value() && alpha2.has_value() && constant.has_value(),
                "const_expert_alpha_1, const_expert_alpha_2 and const_expert_v must be given for const_expert_num ",
                deployment.constant_experts);
    check_shape("const_expert_alpha_1", *alpha1, {deployment.constant_experts});
    check_shape("const_expert_alpha_2", *alpha2, {deployment.constant_experts});
    check_shape("const_expert_v", *constant, {deployment.constant_experts, size()});
  }

  void write(Phase phase, Out x) const {
    check();
    check_shape("x", x, {tokens(), size()});
    if (phase == Phase::Check) return;
    for_sums([&](int64_t begin, In sums) { x.narrow(0, begin, sums.size(0)).copy_(sums); });
  }
  void write(Phase phase, const Normalization& normalization) const {
    check();
    normalization.check(expand_x, expert_ids);
    if (phase == Phase::Check) return;
    for_sums([&](int64_t begin, In sums) { normalization.write(begin, sums); });
  }

  // Calls write(begin, sums) with the sums of tokens from begin on, in float.
  void for_sums(const std::function<void(int64_t begin, In sums)>& write) const {
    check_token_values_of_experts(deployment, expert_ids, active);
    const int64_t local = deployment.local_experts();
    const auto counts = ep_send_counts.narrow(0, 0, deployment.world * local).to(at::kLong).view({local, -1}).t();
    check_values("ep_send_counts", counts, 0, expand_x.size(0));
    const auto sent_counts = host_list(counts.sum(1));
    const int64_t sent = std::accumulate(sent_counts.begin(), sent_counts.end(), int64_t{0});
    TORCH_CHECK(sent <= expand_x.size(0), "ep_send_counts has the sum ", sent, "; expected up to ", expand_x.size(0),
                ", the rows of expand_x");
    const Group group(deployment.group);
    const Outgoing out(deployment, expert_ids, active);
    const auto order = order_by_expert(counts);
    const auto by_rank = at::empty_like(order).index_copy_(0, order, at::arange(sent, at::kLong));
    auto rows = expand_x.narrow(0, 0, sent).index_select(0, by_rank);
    at::Tensor steps;
    if (quant_mode == kStepsOfRows) {
      const auto quantized = dynamically_quantized(rows.to(at::kFloat), at::kChar);
      rows = quantized.values;
      steps = group.exchanged(quantized.scale, sent_counts, out.counts);
    }
    rows = group.exchanged(rows, sent_counts, out.counts);
    // The place of the row of each choice; those without one share a row of zeros.
    const int64_t received = rows.size(0);
    auto places = at::full({tokens() * out.choices}, received, at::kLong);
    places.index_copy_(0, out.rows, at::arange(received, at::kLong));
    places = places.view({tokens(), out.choices});
    const auto ones = at::full({tokens(), out.choices - expert_ids.size(1)}, 1, at::kFloat);
    const auto weights = at::cat({expert_scales.to(at::kFloat), ones}, 1);
    const int64_t step = std::max<int64_t>(1, (1 << 20) / std::max<int64_t>(1, size() * out.choices));
    for (int64_t begin = 0; begin < tokens(); begin += step) {
      const int64_t count = std::min(step, tokens() - begin);
      const auto part = [&](In all) { return all.narrow(0, begin, count); };
      const auto flat = part(places).reshape({-1});
      auto sums = at::zeros({count, size()}, at::kFloat);
      if (received > 0) {
        const auto taken = flat.clamp_max(received - 1);
        auto values = rows.index_select(0, taken).to(at::kFloat);
        if (steps.defined()) values = values * steps.index_select(0, taken).unsqueeze(1);
        values.masked_fill_(flat.eq(received).unsqueeze(1), 0);
        sums = (values.view({count, out.choices, size()}) * part(weights).unsqueeze(2)).sum(1);
      }
      if (deployment.special() > 0) sums = sums + of_special(begin, count);
      if (shared_x.has_value()) sums = sums + part(shared_x->reshape({tokens(), size()}));
      write(begin, sums);
    }
  }

 private:
  // What the experts on no rank return: nothing, their token, or a mixture of it with a constant.
  at::Tensor of_special(int64_t begin, int64_t count) const {
    const auto part = [&](In all) { return all.narrow(0, begin, count); };
    const auto ids = part(expert_ids).to(at::kLong) - (deployment.experts + deployment.zero_experts);
    auto weights = part(expert_scales).to(at::kFloat);
    if (active.has_value()) {
      const auto mask = part(*active).to(at::kBool);
      weights = weights.masked_fill((mask.dim() == 1 ? mask.unsqueeze(1) : mask).logical_not(), 0);
    }
    auto sums = at::zeros({count, size()}, at::kFloat);
    const auto share_of = [&](In chosen) { return weights.masked_fill(chosen.logical_not(), 0); };
    if (deployment.copy_experts > 0) {
      const auto share = share_of(ids.ge(0).logical_and(ids.lt(deployment.copy_experts))).sum(1, /*keepdim=*/true);
      sums = sums + part(*own_x) * share;
    }
    for (int64_t i = 0; i < deployment.constant_experts; ++i) {
      const auto share = share_of(ids.eq(deployment.copy_experts + i)).sum(1, /*keepdim=*/true);
      const auto value = part(*own_x).to(at::kFloat) * (*alpha1)[i] + (*alpha2)[i].to(at::kFloat) * (*constant)[i];
      sums = sums + value * share;
    }
    return sums;
  }
};

using TokenRoute = Ignored<Text>;  // which way the tokens take
using ElasticInfo = Absent<"elasticInfo", OptionalIn>;
using PerformanceInfo = Absent<"performanceInfo", OptionalIn>;
using AssistInfo = Ignored<In>;                    // follow from expert_ids
using RowWeights = Ignored<OptionalIn>;            // of the rows, from expert_scales
using TensorParallelCounts = Ignored<OptionalIn>;  // of a group of one rank
using ActivationScale = Absent<"activationScale", OptionalIn>;
using WeightScale = Absent<"weightScale", OptionalIn>;
using GroupList = Absent<"groupList", OptionalIn>;
using TensorParallelGroup = Ignored<Text>;  // of one rank
using OutputType = Ignored<int64_t>;        // reserved
using GroupListType = Ignored<int64_t>;     // reserved

constexpr const char* kDispatchDtypes =
    "x: float16 bfloat16; expert_ids, assist_info, ep_recv_counts, tp_recv_counts: int32; scales, expert_scales, "
    "dynamic_scales, expand_scales: float32; x_active_mask: bool; expand_x: float16 bfloat16 int8; expert_token_nums: "
    "int64";
constexpr const char* kCombineDtypes =
    "expand_x: float16 bfloat16; expert_ids, ep_send_counts: int32; expert_scales: float32; x_active_mask: bool; x: as "
    "expand_x";
constexpr const char* kCombineV2Dtypes =
    "expand_x: float16 bfloat16; expert_ids, ep_send_counts: int32; expert_scales: float32; x_active_mask: bool; "
    "shared_expert_x, x: as expand_x";
constexpr const char* kCombineV3Dtypes =
    "expand_x: float16 bfloat16; expert_ids, ep_send_counts: int32; expert_scales: float32; x_active_mask: bool; "
    "shared_expert_x, ori_x, const_expert_alpha_1, const_expert_alpha_2, const_expert_v, x: as expand_x";
constexpr const char* kNormDtypes =
    "expand_x: float16 bfloat16; expert_ids, ep_send_counts: int32; expert_scales, rstd: float32; x_active_mask: bool; "
    "residual_x, gamma, shared_expert_x, y, x: as expand_x";
constexpr const char* kNormV2Dtypes =
    "expand_x: float16 bfloat16; expert_ids, ep_send_counts: int32; expert_scales, rstd: float32; x_active_mask: bool; "
    "residual_x, gamma, shared_expert_x, ori_x, const_expert_alpha_1, const_expert_alpha_2, const_expert_v, y, x: as "
    "expand_x";

}  // namespace

ACLNN_TYPED_OF_GROUP(
    MoeDistributeDispatch, kDispatchDtypes,
    [](Phase phase, In x, In expert_ids, OptionalIn scales, OptionalIn x_active_mask, OptionalIn expert_scales,
       Text group_ep, int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num, TensorParallelGroup,
       int64_t tp_world_size, int64_t tp_rank_id, int64_t expert_shard_type, int64_t shared_expert_num,
       int64_t shared_expert_rank_num, int64_t quant_mode, int64_t global_bs, int64_t expert_token_nums_type,
       Out expand_x, OptionalOut dynamic_scales, Out assist_info, Out expert_token_nums, Out ep_recv_counts,
       OptionalOut tp_recv_counts, OptionalOut expand_scales) {
      check_or_run(phase,
                   Dispatch({x, expert_ids, scales, x_active_mask, expert_scales,
                             Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size, tp_rank_id,
                                         expert_shard_type, shared_expert_num, shared_expert_rank_num, 0, 0, 0}),
                             quant_mode, global_bs, expert_token_nums_type, expand_x, dynamic_scales, assist_info,
                             expert_token_nums, ep_recv_counts, tp_recv_counts, expand_scales}));
    });
ACLNN_TYPED_OF_GROUP(
    MoeDistributeDispatchV2, kDispatchDtypes,
    [](Phase phase, In x, In expert_ids, OptionalIn scales, OptionalIn x_active_mask, OptionalIn expert_scales,
       Text group_ep, int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num, TensorParallelGroup,
       int64_t tp_world_size, int64_t tp_rank_id, int64_t expert_shard_type, int64_t shared_expert_num,
       int64_t shared_expert_rank_num, int64_t quant_mode, int64_t global_bs, int64_t expert_token_nums_type,
       TokenRoute, Out expand_x, OptionalOut dynamic_scales, Out assist_info, Out expert_token_nums, Out ep_recv_counts,
       OptionalOut tp_recv_counts, OptionalOut expand_scales) {
      check_or_run(phase,
                   Dispatch({x, expert_ids, scales, x_active_mask, expert_scales,
                             Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size, tp_rank_id,
                                         expert_shard_type, shared_expert_num, shared_expert_rank_num, 0, 0, 0}),
                             quant_mode, global_bs, expert_token_nums_type, expand_x, dynamic_scales, assist_info,
                             expert_token_nums, ep_recv_counts, tp_recv_counts, expand_scales}));
    });
ACLNN_TYPED_OF_GROUP(
    MoeDistributeDispatchV3, kDispatchDtypes,
    [](Phase phase, In x, In expert_ids, OptionalIn scales, OptionalIn x_active_mask, OptionalIn expert_scales,
       ElasticInfo, Text group_ep, int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num,
       TensorParallelGroup, int64_t tp_world_size, int64_t tp_rank_id, int64_t expert_shard_type,
       int64_t shared_expert_num, int64_t shared_expert_rank_num, int64_t quant_mode, int64_t global_bs,
       int64_t expert_token_nums_type, TokenRoute, int64_t zero_expert_num, int64_t copy_expert_num,
       int64_t const_expert_num, Out expand_x, OptionalOut dynamic_scales, Out assist_info, Out expert_token_nums,
       Out ep_recv_counts, OptionalOut tp_recv_counts, OptionalOut expand_scales) {
      check_or_run(phase,
                   Dispatch({x, expert_ids, scales, x_active_mask, expert_scales,
                             Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size, tp_rank_id,
                                         expert_shard_type, shared_expert_num, shared_expert_rank_num, zero_expert_num,
                                         copy_expert_num, const_expert_num}),
                             quant_mode, global_bs, expert_token_nums_type, expand_x, dynamic_scales, assist_info,
                             expert_token_nums, ep_recv_counts, tp_recv_counts, expand_scales}));
    });
ACLNN_TYPED_OF_GROUP(
    MoeDistributeDispatchV4, kDispatchDtypes,
    [](Phase phase, In x, In expert_ids, OptionalIn scales, OptionalIn x_active_mask, OptionalIn expert_scales,
       ElasticInfo, PerformanceInfo, Text group_ep, int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num,
       TensorParallelGroup, int64_t tp_world_size, int64_t tp_rank_id, int64_t expert_shard_type,
       int64_t shared_expert_num, int64_t shared_expert_rank_num, int64_t quant_mode, int64_t global_bs,
       int64_t expert_token_nums_type, TokenRoute, int64_t zero_expert_num, int64_t copy_expert_num,
       int64_t const_expert_num, Out expand_x, OptionalOut dynamic_scales, Out assist_info, Out expert_token_nums,
       Out ep_recv_counts, OptionalOut tp_recv_counts, OptionalOut expand_scales) {
      check_or_run(phase,
                   Dispatch({x, expert_ids, scales, x_active_mask, expert_scales,
                             Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size, tp_rank_id,
                                         expert_shard_type, shared_expert_num, shared_expert_rank_num, zero_expert_num,
                                         copy_expert_num, const_expert_num}),
                             quant_mode, global_bs, expert_token_nums_type, expand_x, dynamic_scales, assist_info,
                             expert_token_nums, ep_recv_counts, tp_recv_counts, expand_scales}));
    });
ACLNN_TYPED_OF_GROUP(MoeDistributeCombine, kCombineDtypes,
                     [](Phase phase, In expand_x, In expert_ids, AssistInfo, In ep_send_counts, In expert_scales,
                        TensorParallelCounts, OptionalIn x_active_mask, ActivationScale, WeightScale, GroupList,
                        RowWeights, Text group_ep, int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num,
                        TensorParallelGroup, int64_t tp_world_size, int64_t tp_rank_id, int64_t expert_shard_type,
                        int64_t shared_expert_num, int64_t shared_expert_rank_num, int64_t global_bs, OutputType,
                        int64_t comm_quant_mode, GroupListType, Out x) {
                       Combine(
                           {expand_x,
                            expert_ids,
                            ep_send_counts,
                            expert_scales,
                            x_active_mask,
                            {},
                            {},
                            {},
                            {},
                            {},
                            Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size, tp_rank_id,
                                        expert_shard_type, shared_expert_num, shared_expert_rank_num, 0, 0, 0}),
                            global_bs,
                            comm_quant_mode})
                           .write(phase, x);
                     });
ACLNN_TYPED_OF_GROUP(MoeDistributeCombineV2, kCombineV2Dtypes,
                     [](Phase phase, In expand_x, In expert_ids, AssistInfo, In ep_send_counts, In expert_scales,
                        TensorParallelCounts, OptionalIn x_active_mask, ActivationScale, WeightScale, GroupList,
                        RowWeights, OptionalIn shared_expert_x, Text group_ep, int64_t ep_world_size,
                        int64_t ep_rank_id, int64_t moe_expert_num, TensorParallelGroup, int64_t tp_world_size,
                        int64_t tp_rank_id, int64_t expert_shard_type, int64_t shared_expert_num,
                        int64_t shared_expert_rank_num, int64_t global_bs, OutputType, int64_t comm_quant_mode,
                        GroupListType, TokenRoute, Out x) {
                       Combine(
                           {expand_x,
                            expert_ids,
                            ep_send_counts,
                            expert_scales,
                            x_active_mask,
                            shared_expert_x,
                            {},
                            {},
                            {},
                            {},
                            Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size, tp_rank_id,
                                        expert_shard_type, shared_expert_num, shared_expert_rank_num, 0, 0, 0}),
                            global_bs,
                            comm_quant_mode})
                           .write(phase, x);
                     });
ACLNN_TYPED_OF_GROUP(MoeDistributeCombineV3, kCombineV3Dtypes,
                     [](Phase phase, In expand_x, In expert_ids, AssistInfo, In ep_send_counts, In expert_scales,
                        TensorParallelCounts, OptionalIn x_active_mask, ActivationScale, WeightScale, GroupList,
                        RowWeights, OptionalIn shared_expert_x, ElasticInfo, OptionalIn ori_x,
                        OptionalIn const_expert_alpha_1, OptionalIn const_expert_alpha_2, OptionalIn const_expert_v,
                        Text group_ep, int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num,
                        TensorParallelGroup, int64_t tp_world_size, int64_t tp_rank_id, int64_t expert_shard_type,
                        int64_t shared_expert_num, int64_t shared_expert_rank_num, int64_t global_bs, OutputType,
                        int64_t comm_quant_mode, GroupListType, TokenRoute, int64_t zero_expert_num,
                        int64_t copy_expert_num, int64_t const_expert_num, Out x) {
                       Combine({expand_x, expert_ids, ep_send_counts, expert_scales, x_active_mask, shared_expert_x,
                                ori_x, const_expert_alpha_1, const_expert_alpha_2, const_expert_v,
                                Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size,
                                            tp_rank_id, expert_shard_type, shared_expert_num, shared_expert_rank_num,
                                            zero_expert_num, copy_expert_num, const_expert_num}),
                                global_bs, comm_quant_mode})
                           .write(phase, x);
                     });
ACLNN_TYPED_OF_GROUP(MoeDistributeCombineV4, kCombineV3Dtypes,
                     [](Phase phase, In expand_x, In expert_ids, AssistInfo, In ep_send_counts, In expert_scales,
                        TensorParallelCounts, OptionalIn x_active_mask, ActivationScale, WeightScale, GroupList,
                        RowWeights, OptionalIn shared_expert_x, ElasticInfo, OptionalIn ori_x,
                        OptionalIn const_expert_alpha_1, OptionalIn const_expert_alpha_2, OptionalIn const_expert_v,
                        PerformanceInfo, Text group_ep, int64_t ep_world_size, int64_t ep_rank_id,
                        int64_t moe_expert_num, TensorParallelGroup, int64_t tp_world_size, int64_t tp_rank_id,
                        int64_t expert_shard_type, int64_t shared_expert_num, int64_t shared_expert_rank_num,
                        int64_t global_bs, OutputType, int64_t comm_quant_mode, GroupListType, TokenRoute,
                        int64_t zero_expert_num, int64_t copy_expert_num, int64_t const_expert_num, Out x) {
                       Combine({expand_x, expert_ids, ep_send_counts, expert_scales, x_active_mask, shared_expert_x,
                                ori_x, const_expert_alpha_1, const_expert_alpha_2, const_expert_v,
                                Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size,
                                            tp_rank_id, expert_shard_type, shared_expert_num, shared_expert_rank_num,
                                            zero_expert_num, copy_expert_num, const_expert_num}),
                                global_bs, comm_quant_mode})
                           .write(phase, x);
                     });
ACLNN_TYPED_OF_GROUP(MoeDistributeCombineAddRmsNorm, kNormDtypes,
                     [](Phase phase, In expand_x, In expert_ids, AssistInfo, In ep_send_counts, In expert_scales,
                        In residual_x, In gamma, TensorParallelCounts, OptionalIn x_active_mask, ActivationScale,
                        WeightScale, GroupList, RowWeights, OptionalIn shared_expert_x, Text group_ep,
                        int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num, TensorParallelGroup,
                        int64_t tp_world_size, int64_t tp_rank_id, int64_t expert_shard_type, int64_t shared_expert_num,
                        int64_t shared_expert_rank_num, int64_t global_bs, OutputType, int64_t comm_quant_mode,
                        GroupListType, TokenRoute, float norm_eps, Out y, Out rstd, Out x) {
                       Combine(
                           {expand_x,
                            expert_ids,
                            ep_send_counts,
                            expert_scales,
                            x_active_mask,
                            shared_expert_x,
                            {},
                            {},
                            {},
                            {},
                            Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size, tp_rank_id,
                                        expert_shard_type, shared_expert_num, shared_expert_rank_num, 0, 0, 0}),
                            global_bs,
                            comm_quant_mode})
                           .write(phase, Normalization({residual_x, gamma, norm_eps, y, rstd, x}));
                     });
ACLNN_TYPED_OF_GROUP(MoeDistributeCombineAddRmsNormV2, kNormV2Dtypes,
                     [](Phase phase, In expand_x, In expert_ids, AssistInfo, In ep_send_counts, In expert_scales,
                        In residual_x, In gamma, TensorParallelCounts, OptionalIn x_active_mask, ActivationScale,
                        WeightScale, GroupList, RowWeights, OptionalIn shared_expert_x, ElasticInfo, OptionalIn ori_x,
                        OptionalIn const_expert_alpha_1, OptionalIn const_expert_alpha_2, OptionalIn const_expert_v,
                        Text group_ep, int64_t ep_world_size, int64_t ep_rank_id, int64_t moe_expert_num,
                        TensorParallelGroup, int64_t tp_world_size, int64_t tp_rank_id, int64_t expert_shard_type,
                        int64_t shared_expert_num, int64_t shared_expert_rank_num, int64_t global_bs, OutputType,
                        int64_t comm_quant_mode, GroupListType, TokenRoute, float norm_eps, int64_t zero_expert_num,
                        int64_t copy_expert_num, int64_t const_expert_num, Out y, Out rstd, Out x) {
                       Combine({expand_x, expert_ids, ep_send_counts, expert_scales, x_active_mask, shared_expert_x,
                                ori_x, const_expert_alpha_1, const_expert_alpha_2, const_expert_v,
                                Deployment({group_ep, ep_world_size, ep_rank_id, moe_expert_num, tp_world_size,
                                            tp_rank_id, expert_shard_type, shared_expert_num, shared_expert_rank_num,
                                            zero_expert_num, copy_expert_num, const_expert_num}),
                                global_bs, comm_quant_mode})
                           .write(phase, Normalization({residual_x, gamma, norm_eps, y, rstd, x}));
                     });

namespace {

using Dependency = Ignored<InOut>;  // a tensor that others wait for

void barrier(Phase phase, Text name, int64_t world_size) {
  const Group group(name);
  TORCH_CHECK(world_size == group.size(), "world_size is ", world_size, "; expected ", group.size(),
              ", as in the group ", name);
  if (phase == Phase::Run) group.wait_for_all();
}

}  // namespace

ACLNN_OF_GROUP(DistributeBarrier,
               [](Phase phase, Dependency, Text group, int64_t world_size) { barrier(phase, group, world_size); });
ACLNN_OF_GROUP(DistributeBarrierV2, [](Phase phase, Dependency, Absent<"timeOut", OptionalIn>, ElasticInfo, Text group,
                                       int64_t world_size) { barrier(phase, group, world_size); });
