// SPDX-License-Identifier: Apache-2.0
// Routes tokens to experts and back. Each token has a row for each of its experts. `places` has the position of each
// row in the order of experts. A position past the last row means that the row was dropped.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "checks.h"
#include "quantization.h"

using namespace cann_cpu;

namespace {

void reject_padding(bool padded) { TORCH_CHECK(!padded, "paddedMode true is not implemented; expected false"); }

// The rows in the order of the tokens, in float; those dropped are 0.
at::Tensor fetched(const at::Tensor& rows, const at::Tensor& places) {
  const auto indices = places.reshape({-1}).to(at::kLong);
  const auto dropped = indices.ge(rows.size(0));
  const auto first = indices.masked_fill(dropped, 0);
  return in_float(rows).index_select(0, first).masked_fill_(dropped.unsqueeze(1), 0);
}

// The inverse of fetched: each row to its place among so many.
at::Tensor sent(const at::Tensor& rows, const at::Tensor& places, int64_t count) {
  const auto indices = places.reshape({-1}).to(at::kLong);
  const auto kept = indices.lt(count).nonzero().reshape({-1});
  auto result = at::zeros({count, rows.size(1)}, rows.options());
  result.index_copy_(0, indices.index_select(0, kept), rows.index_select(0, kept));
  return result;
}

// One row a token and expert, of tokens with so many rows in all.
at::Tensor by_token(const at::Tensor& rows, int64_t tokens) {
  TORCH_CHECK(tokens > 0 && rows.size(0) % tokens == 0, rows.size(0), " rows do not divide among ", tokens, " tokens");
  return rows.unflatten(0, {tokens, -1});
}

}  // namespace

ACLNN(MoeTokenPermute, [](In tokens, In experts, int64_t count, bool padded, Out permuted, Out places) {
  reject_padding(padded);
  TORCH_CHECK(permuted.size(0) == count, "numOutTokens is ", count, ", the given output has ", permuted.size(0),
              " rows");
  const int64_t each = experts.dim() > 1 ? experts.size(1) : 1;
  const auto order = at::argsort(experts.reshape({-1}), /*stable=*/true, 0, /*descending=*/false);
  const auto source = order.narrow(0, 0, count).div(each, "floor");
  assign(permuted, tokens.index_select(0, source));
  assign(places, at::argsort(order, /*stable=*/true, 0, /*descending=*/false).reshape(places.sizes()));
});
ACLNN(MoeTokenPermuteGrad, [](In grad, In places, int64_t each, bool padded, Out out) {
  reject_padding(padded);
  TORCH_CHECK(places.numel() == out.size(0) * each, "numTopk is ", each, ", so for ", out.size(0), " tokens ",
              out.size(0) * each, " indices are expected, got ", places.numel());
  assign(out, by_token(fetched(grad, places), out.size(0)).sum(1));
});
ACLNN(MoeTokenUnpermute,
      [](In permuted, In places, OptionalIn weights, bool padded, Ignored<OptionalInts> /* of padded rows */, Out out) {
        reject_padding(padded);
        auto rows = by_token(fetched(permuted, places), out.size(0));
        if (weights.has_value()) rows = rows * in_float(*weights).unsqueeze(2);
        assign(out, rows.sum(1));
      });
ACLNN(MoeTokenUnpermuteGrad,
      [](OptionalIn permuted, In grad, In places, OptionalIn weights, bool padded,
         Ignored<OptionalInts> /* of padded rows */, Out grad_permuted, OptionalOut grad_weights) {
        reject_padding(padded);
        const auto dy = in_float(grad).unsqueeze(1);  // of each of the token's rows
        const auto each = by_token(places.reshape({-1}), grad.size(0)).size(1);
        auto rows = dy.expand({-1, each, -1});
        if (weights.has_value()) rows = rows * in_float(*weights).unsqueeze(2);
        assign(grad_permuted, sent(rows.flatten(0, 1), places, grad_permuted.size(0)));
        if (!weights.has_value() || !grad_weights.has_value()) return;
        TORCH_CHECK(permuted.has_value(), "the gradient of probs takes permutedTokens, which are null");
        assign(grad_weights, (by_token(fetched(*permuted, places), grad.size(0)) * dy).sum(2));
      });

namespace {

constexpr int64_t kNumbers = 1 << 20;  // of rows at a time

int64_t rows_at_a_time(int64_t size) { return std::max<int64_t>(1, kNumbers / std::max<int64_t>(1, size)); }

// The rows of a tensor of two or three dimensions.
at::Tensor as_rows(const at::Tensor& tensor) { return tensor.view({-1, tensor.size(-1)}); }

enum RowQuantization : int64_t { kUnquantizedRows = -1, kStaticRows, kDynamicRows };

// Copies of the tokens in the order of their experts: of all of them, of the first `active` ones, or of up to
// `capacity` ones for each expert, one in each of its slots. Experts outside [first, end) are left out.
struct InitialRouting {
  In x, expert_idx;
  int64_t active, capacity, experts, drop_pad_mode;
  int64_t quantization = kUnquantizedRows;
  OptionalIn scale, offset;
  int64_t first = 0, end = 0;

  // With the results of those who have them.
  int64_t each() const { return expert_idx.size(1); }
  int64_t tokens() const { return x.size(0); }
  int64_t size() const { return x.size(1); }
  bool padded() const { return drop_pad_mode == 1; }
  int64_t slots() const {
    if (padded()) return experts * capacity;
    return active > 0 ? std::min(active, tokens() * each()) : tokens() * each();
  }

  void check(In expanded_x, In expanded_row_idx) const {
    check_rank("x", x, 2);
    check_rank("expert_idx", expert_idx, 2);
    check_shape("expert_idx", expert_idx, {tokens(), each()});
    check_range("drop_pad_mode", drop_pad_mode, 0, 1);
    check_range("expert_num", experts, padded() ? 1 : 0, 10240);
    if (padded()) check_range("expert_capacity", capacity, 1, tokens());
    check_range("active_num", active, -1, std::numeric_limits<int32_t>::max());
    if (padded()) {
      check_shape("expanded_x", expanded_x, {experts, capacity, size()});
    } else {
      check_shape("expanded_x", expanded_x, {slots(), size()});
    }
    check_contiguous("expanded_x", expanded_x);
    check_shape("expanded_row_idx", expanded_row_idx, {tokens() * each()});
    const auto expected = quantization == kUnquantizedRows ? x.scalar_type() : at::kChar;
    TORCH_CHECK(expanded_x.scalar_type() == expected, "expanded_x has dtype ", expanded_x.scalar_type(), "; expected ",
                expected);
    check_scale();
  }

  // The places of all rows in the order of their experts, and how many of them have an expert in [first, end).
  struct Order {
    at::Tensor experts, rows;
    int64_t count;
  };
  Order order() const {
    if (experts > 0) check_values("expert_idx", expert_idx, 0, experts - 1);
    const auto all = expert_idx.reshape({-1}).to(at::kLong);
    const auto kept = all.ge(first).logical_and(all.lt(end));
    const auto keys = at::where(kept, all, at::Scalar(std::numeric_limits<int64_t>::max()));
    const auto rows = at::argsort(keys, /*stable=*/true, 0, /*descending=*/false);
    return {keys.index_select(0, rows), rows, kept.sum().item<int64_t>()};
  }

  at::Tensor counts(const Order& order) const {
    return (order.experts.narrow(0, 0, order.count) - first).bincount({}, end - first);
  }

  // The rows that have a slot, and their slots.
  std::pair<at::Tensor, at::Tensor> placed(const Order& order) const {
    if (!padded()) {
      const int64_t count = std::min(slots(), order.count);
      return {order.rows.narrow(0, 0, count), at::arange(count, at::kLong)};
    }
    const auto experts_of_rows = order.experts.narrow(0, 0, order.count);
    const auto each_count = counts(order);
    const auto begins = (each_count.cumsum(0) - each_count).index_select(0, experts_of_rows - first);
    const auto turns = at::arange(order.count, at::kLong) - begins;
    const auto kept = turns.lt(capacity).nonzero().reshape({-1});
    const auto places = (experts_of_rows - first) * capacity + turns;
    return {order.rows.narrow(0, 0, order.count).index_select(0, kept), places.index_select(0, kept)};
  }

  // Where each row has gone: -1 for those without a slot. Without drops, rows past the active ones keep their place.
  void write_places(const Order& order, Out expanded_row_idx) const {
    expanded_row_idx.fill_(-1);
    if (padded()) {
      const auto [rows, places] = placed(order);
      expanded_row_idx.index_copy_(0, rows, places.to(at::kInt));
    } else {
      expanded_row_idx.index_copy_(0, order.rows.narrow(0, 0, order.count), at::arange(order.count, at::kInt));
    }
  }

  void write_rows(const Order& order, Out expanded_x, OptionalOut expanded_scale) const {
    const auto [rows, places] = placed(order);
    const auto tokens_of_rows = rows.div(each(), "floor");
    const auto experts_of_rows = expert_idx.reshape({-1}).to(at::kLong).index_select(0, rows) - first;
    const auto result = as_rows(expanded_x.zero_());
    const bool writes_scale = expanded_scale.has_value() && (quantization == kDynamicRows || scale.has_value()) &&
                              quantization != kStaticRows;
    if (writes_scale) expanded_scale->zero_();
    if (writes_scale && quantization == kUnquantizedRows) {
      expanded_scale->index_copy_(0, places, scale->index_select(0, tokens_of_rows));
    }
    const int64_t step = rows_at_a_time(size());
    for (int64_t begin = 0; begin < rows.size(0); begin += step) {
      const auto part = [&](In all) { return all.narrow(0, begin, std::min(step, rows.size(0) - begin)); };
      auto values = x.index_select(0, part(tokens_of_rows));
      if (quantization == kStaticRows) {
        values = quantized(values, *scale, offset, at::kChar);
      } else if (quantization == kDynamicRows) {
        values = values.to(at::kFloat);
        if (scale.has_value())
          values = values * (scale->size(0) == 1 ? *scale : scale->index_select(0, part(experts_of_rows)));
        const auto quantized_rows = dynamically_quantized(values, at::kChar);
        values = quantized_rows.values;
        if (writes_scale) expanded_scale->index_copy_(0, part(places), quantized_rows.scale.reshape({-1}));
      }
      result.index_copy_(0, part(places), values);
    }
  }

 private:
  void check_scale() const {
    if (quantization == kUnquantizedRows) {
      TORCH_CHECK(!offset.has_value(), "offset is only for quant_mode 0");
      if (scale.has_value()) check_shape("scale", *scale, {tokens()});
      return;
    }
    TORCH_CHECK(at::isFloatingType(x.scalar_type()), "x has dtype ", x.scalar_type(),
                "; expected float16, bfloat16 or float32 to quantise");
    if (quantization == kStaticRows) {
      TORCH_CHECK(scale.has_value() && offset.has_value(), "scale and offset must be given for quant_mode 0");
      check_shape("scale", *scale, {1});
      check_shape("offset", *offset, {1});
      return;
    }
    TORCH_CHECK(!offset.has_value(), "offset is only for quant_mode 0");
    if (scale.has_value()) check_shape("scale", *scale, {scale->size(0) == 1 ? 1 : end - first, size()});
  }
};

// The results of versions that count for all experts: 1 asks for where each expert's rows end, 2 for their counts.
void check_expert_counts(const InitialRouting& routing, int64_t counts_flag, bool before_flag, OptionalOut counts,
                         OptionalOut before) {
  check_range("expert_tokens_count_or_cumsum_flag", counts_flag, 0, 2);
  const auto check = [&](const char* name, OptionalOut out) {
    TORCH_CHECK(out.has_value(), name, " must be given");
    check_range("expert_num", routing.experts, 1, 10240);
    check_shape(name, *out, {routing.experts});
  };
  if (!routing.padded() && counts_flag != 0) check("expert_tokens_count_or_cumsum", counts);
  if (routing.padded() && before_flag) check("expert_tokens_before_capacity", before);
}

void write_expert_counts(const InitialRouting& routing, const InitialRouting::Order& order, int64_t counts_flag,
                         bool before_flag, OptionalOut counts, OptionalOut before) {
  if (!routing.padded() && counts_flag != 0) {
    const auto each = routing.counts(order);
    counts->copy_(counts_flag == 1 ? each.cumsum(0) : each);
  }
  if (routing.padded() && before_flag) before->copy_(routing.counts(order));
}

int64_t past_the_last(int64_t experts) { return experts > 0 ? experts : std::numeric_limits<int64_t>::max(); }

}  // namespace

ACLNN_TYPED_CHECKED(
    MoeInitRouting,
    "x: float32 float16 bfloat16; row_idx, expert_idx, expanded_row_idx, expanded_expert_idx: int32; expanded_x: as x",
    [](Phase phase, In x, In row_idx, In expert_idx, int64_t active_num, Out expanded_x, Out expanded_row_idx,
       Out expanded_expert_idx) {
      check_rank("x", x, 2);
      check_rank("expert_idx", expert_idx, 2);
      const int64_t tokens = x.size(0);
      const int64_t each = expert_idx.size(1);
      check_shape("expert_idx", expert_idx, {tokens, each});
      check_shape("row_idx", row_idx, {tokens, each});
      check_range("active_num", active_num, 0, std::numeric_limits<int32_t>::max());
      check_shape("expanded_x", expanded_x, {std::min(active_num, tokens) * each, x.size(1)});
      check_shape("expanded_row_idx", expanded_row_idx, {tokens * each});
      check_shape("expanded_expert_idx", expanded_expert_idx, {tokens * each});
      if (phase == Phase::Check) return;

      const int64_t count = row_idx.numel();
      check_values("row_idx", row_idx, 0, count - 1);
      const auto experts = expert_idx.reshape({-1});
      const auto order = at::argsort(experts, /*stable=*/true, 0, /*descending=*/false);
      const auto rows = row_idx.reshape({-1}).to(at::kLong).index_select(0, order);
      assign(expanded_expert_idx, experts.index_select(0, order));
      expanded_row_idx.index_copy_(0, rows, at::arange(count, at::kInt));
      const int64_t active = std::min(active_num, tokens) * expert_idx.size(1);
      assign(expanded_x, x.index_select(0, rows.narrow(0, 0, active).remainder(std::max<int64_t>(1, tokens))));
    });
ACLNN_TYPED_CHECKED(
    MoeInitRoutingV2,
    "x: float32 float16 bfloat16; expert_idx, expanded_row_idx, expert_tokens_count_or_cumsum, "
    "expert_tokens_before_capacity: int32; expanded_x: as x",
    [](Phase phase, In x, In expert_idx, int64_t active_num, int64_t expert_capacity, int64_t expert_num,
       int64_t drop_pad_mode, int64_t expert_tokens_count_or_cumsum_flag, bool expert_tokens_before_capacity_flag,
       Out expanded_x, Out expanded_row_idx, OptionalOut expert_tokens_count_or_cumsum,
       OptionalOut expert_tokens_before_capacity) {
      const InitialRouting routing{
          x,  expert_idx, active_num, expert_capacity,          expert_num, drop_pad_mode, kUnquantizedRows,
          {}, {},         0,          past_the_last(expert_num)};
      routing.check(expanded_x, expanded_row_idx);
      check_expert_counts(routing, expert_tokens_count_or_cumsum_flag, expert_tokens_before_capacity_flag,
                          expert_tokens_count_or_cumsum, expert_tokens_before_capacity);
      if (phase == Phase::Check) return;
      const auto order = routing.order();
      std::optional<at::Tensor> none;
      routing.write_rows(order, expanded_x, none);
      routing.write_places(order, expanded_row_idx);
      write_expert_counts(routing, order, expert_tokens_count_or_cumsum_flag, expert_tokens_before_capacity_flag,
                          expert_tokens_count_or_cumsum, expert_tokens_before_capacity);
    });
ACLNN_TYPED_CHECKED(
    MoeInitRoutingQuantV2,
    "x: float32 float16 bfloat16; expert_idx, expanded_row_idx, expert_tokens_count_or_cumsum, "
    "expert_tokens_before_capacity: int32; scale, offset, dynamic_quant_scale: float32; expanded_x: int8",
    [](Phase phase, In x, In expert_idx, OptionalIn scale, OptionalIn offset, int64_t active_num,
       int64_t expert_capacity, int64_t expert_num, int64_t drop_pad_mode, int64_t expert_tokens_count_or_cumsum_flag,
       bool expert_tokens_before_capacity_flag, int64_t quant_mode, Out expanded_x, Out expanded_row_idx,
       OptionalOut expert_tokens_count_or_cumsum, OptionalOut expert_tokens_before_capacity,
       OptionalOut dynamic_quant_scale) {
      const InitialRouting routing{
          x,     expert_idx, active_num, expert_capacity,          expert_num, drop_pad_mode, quant_mode,
          scale, offset,     0,          past_the_last(expert_num)};
      if (phase == Phase::Check) {
        check_range("quant_mode", quant_mode, kStaticRows, kDynamicRows);
        routing.check(expanded_x, expanded_row_idx);
        check_expert_counts(routing, expert_tokens_count_or_cumsum_flag, expert_tokens_before_capacity_flag,
                            expert_tokens_count_or_cumsum, expert_tokens_before_capacity);
        if (quant_mode != kDynamicRows) return;
        TORCH_CHECK(dynamic_quant_scale.has_value(), "dynamic_quant_scale must be given for quant_mode 1");
        check_shape("dynamic_quant_scale", *dynamic_quant_scale, {routing.slots()});
        return;
      }
      const auto order = routing.order();
      routing.write_rows(order, expanded_x, dynamic_quant_scale);
      routing.write_places(order, expanded_row_idx);
      write_expert_counts(routing, order, expert_tokens_count_or_cumsum_flag, expert_tokens_before_capacity_flag,
                          expert_tokens_count_or_cumsum, expert_tokens_before_capacity);
    });

namespace {

// The experts that a rank has: of an empty list, all of them.
std::pair<int64_t, int64_t> active_range(OptionalInts range, int64_t experts) {
  if (!range.has_value() || range->empty()) return {0, past_the_last(experts)};
  TORCH_CHECK(
      range->size() == 2 && (*range)[0] >= 0 && (*range)[1] > (*range)[0] && (*range)[1] <= past_the_last(experts),
      "active_expert_range is ", *range, "; expected [first, end) within the ", experts, " experts");
  return {(*range)[0], (*range)[1]};
}

enum CountType : int64_t { kCountEnds, kCountEach, kCountPairs };

void init_routing(Phase phase, In x, In expert_idx, OptionalIn scale, OptionalIn offset, int64_t active_num,
                  int64_t expert_capacity, int64_t expert_num, int64_t drop_pad_mode, int64_t expert_tokens_num_type,
                  bool expert_tokens_num_flag, int64_t quant_mode, OptionalInts active_expert_range,
                  int64_t row_idx_type, Out expanded_x, Out expanded_row_idx, Out expert_tokens_count_or_cumsum,
                  OptionalOut expanded_scale) {
  check_range("quant_mode", quant_mode, kUnquantizedRows, kDynamicRows);
  check_range("expert_tokens_num_type", expert_tokens_num_type, kCountEnds, kCountPairs);
  check_range("row_idx_type", row_idx_type, 0, drop_pad_mode == 1 ? 0 : 1);
  const auto range = active_range(active_expert_range, expert_num);
  const int64_t first = range.first;
  const int64_t end = range.second;
  const InitialRouting routing{x,          expert_idx, active_num, expert_capacity, expert_num, drop_pad_mode,
                               quant_mode, scale,      offset,     first,           end};
  routing.check(expanded_x, expanded_row_idx);
  TORCH_CHECK(!routing.padded() || (first == 0 && end == expert_num), "active_expert_range is [", first, ", ", end,
              "]; expected all experts in drop_pad_mode 1");
  if (expert_tokens_num_flag) {
    check_range("expert_num", expert_num, 1, expert_tokens_num_type == kCountPairs ? 5120 : 10240);
    if (expert_tokens_num_type == kCountPairs) {
      check_shape("expert_tokens_count_or_cumsum", expert_tokens_count_or_cumsum, {expert_num, 2});
    } else {
      check_shape("expert_tokens_count_or_cumsum", expert_tokens_count_or_cumsum, {end - first});
    }
  }
  const bool scaled = quant_mode == kDynamicRows || (quant_mode == kUnquantizedRows && scale.has_value());
  TORCH_CHECK(!scaled || expanded_scale.has_value(), "expanded_scale must be given");
  if (scaled) check_shape("expanded_scale", *expanded_scale, {routing.slots()});
  if (phase == Phase::Check) return;

  const auto order = routing.order();
  routing.write_rows(order, expanded_x, expanded_scale);
  if (row_idx_type == 1) {
    expanded_row_idx.copy_(order.rows);
  } else {
    routing.write_places(order, expanded_row_idx);
  }
  if (!expert_tokens_num_flag) return;
  const auto counts = routing.counts(order);
  if (expert_tokens_num_type == kCountPairs) {
    const auto present = counts.nonzero().reshape({-1});
    const auto pairs = expert_tokens_count_or_cumsum.zero_().narrow(0, 0, present.size(0));
    pairs.select(1, 0).copy_(present + first);
    pairs.select(1, 1).copy_(counts.index_select(0, present));
  } else {
    expert_tokens_count_or_cumsum.copy_(expert_tokens_num_type == kCountEnds ? counts.cumsum(0) : counts);
  }
}

}  // namespace

#define INIT_ROUTING(Op)                                                                                            \
  ACLNN_TYPED_CHECKED(                                                                                              \
      Op,                                                                                                           \
      "x: float32 float16 bfloat16 int8; expert_idx, expanded_row_idx: int32; scale, offset, expanded_scale: "      \
      "float32; "                                                                                                   \
      "expanded_x: float32 float16 bfloat16 int8; expert_tokens_count_or_cumsum: int64",                            \
      [](Phase phase, In x, In expert_idx, OptionalIn scale, OptionalIn offset, int64_t active_num,                 \
         int64_t expert_capacity, int64_t expert_num, int64_t drop_pad_mode, int64_t expert_tokens_num_type,        \
         bool expert_tokens_num_flag, int64_t quant_mode, OptionalInts active_expert_range, int64_t row_idx_type,   \
         Out expanded_x, Out expanded_row_idx, Out expert_tokens_count_or_cumsum, OptionalOut expanded_scale) {     \
        init_routing(phase, x, expert_idx, scale, offset, active_num, expert_capacity, expert_num, drop_pad_mode,   \
                     expert_tokens_num_type, expert_tokens_num_flag, quant_mode, active_expert_range, row_idx_type, \
                     expanded_x, expanded_row_idx, expert_tokens_count_or_cumsum, expanded_scale);                  \
      })

INIT_ROUTING(MoeInitRoutingV3);
INIT_ROUTING(MoeInitRoutingCustom);  // vllm-ascend's name for it
#undef INIT_ROUTING

namespace {

// Each token's rows from its experts, with their biases, times their scales, and up to two further tensors.
struct FinalRouting {
  In rows, places;
  OptionalIn first, second, bias, scales, expert_idx;
  int64_t drop_pad_mode, k;

  int64_t size() const { return rows.size(-1); }
  int64_t each() const { return scales.has_value() ? scales->size(1) : k; }
  int64_t tokens() const { return places.numel() / std::max<int64_t>(1, each()); }
  bool padded() const { return drop_pad_mode == 1 || drop_pad_mode == 3; }

  void check(In out) const {
    check_range("drop_pad_mode", drop_pad_mode, 0, 3);
    check_rank("expanded_x", rows, padded() ? 3 : 2);
    check_rank("expanded_row_idx", places, 1);
    if (scales.has_value()) check_rank("scales", *scales, 2);
    TORCH_CHECK(each() > 0 && places.numel() % each() == 0, "expanded_row_idx has ", places.numel(),
                " elements; expected a multiple of the ", each(), " experts of a token");
    check_shape("out", out, {tokens(), size()});
    if (first.has_value()) check_shape("x1", *first, out.sizes());
    if (second.has_value()) check_shape("x2", *second, out.sizes());
    TORCH_CHECK(first.has_value() || !second.has_value(), "x2 is given without x1");
    if (scales.has_value()) check_shape("scales", *scales, {tokens(), each()});
    if (expert_idx.has_value()) check_shape("expert_idx", *expert_idx, {tokens(), each()});
    if (!bias.has_value()) return;
    check_rank("bias", *bias, 2);
    check_shape("bias", *bias, {bias->size(0), size()});
    TORCH_CHECK(expert_idx.has_value(), "expert_idx must be given with bias");
  }

  void run(Out out) const {
    const auto all = rows.flatten(0, -2);
    check_values("expanded_row_idx", places, 0, all.size(0) - 1, padded() ? std::optional<int64_t>(-1) : std::nullopt);
    if (bias.has_value()) check_values("expert_idx", *expert_idx, 0, bias->size(0) - 1);
    const bool by_column = drop_pad_mode < 2;
    const auto by_token = by_column ? places.view({each(), tokens()}).t() : places.view({tokens(), each()});
    const int64_t step = rows_at_a_time(size() * each());
    for (int64_t begin = 0; begin < tokens(); begin += step) {
      const int64_t count = std::min(step, tokens() - begin);
      const auto part = [&](In tensor) { return tensor.narrow(0, begin, count); };
      const auto of_part = [&](In indices) { return part(indices).reshape({-1}).to(at::kLong); };
      const auto sources = of_part(by_token);
      auto values = all.index_select(0, sources.clamp_min(0)).to(at::kFloat);
      if (padded()) values.masked_fill_(sources.lt(0).unsqueeze(1), 0);
      if (bias.has_value()) values.add_(bias->index_select(0, of_part(*expert_idx)));
      values = values.view({count, each(), size()});
      if (scales.has_value()) values = values * part(*scales).unsqueeze(2);
      values = values.sum(1);
      if (first.has_value()) values.add_(part(*first));
      if (second.has_value()) values.add_(part(*second));
      part(out).copy_(values);
    }
  }
};

constexpr const char* kFinalDtypes =
    "expanded_x: float32 float16 bfloat16; x1, x2, bias, scales, out: as expanded_x; expanded_row_idx, expert_idx: "
    "int32";

}  // namespace

ACLNN_TYPED_CHECKED(MoeFinalizeRouting, kFinalDtypes,
                    [](Phase phase, In expanded_x, In x1, OptionalIn x2, In bias, In scales, In expanded_row_idx,
                       In expert_idx, Out out) {
                      check_or_run(phase,
                                   FinalRouting({expanded_x, expanded_row_idx, x1, x2, bias, scales, expert_idx, 0, 1}),
                                   out);
                    });
ACLNN_TYPED_CHECKED(MoeFinalizeRoutingV2, kFinalDtypes,
                    [](Phase phase, In expanded_x, In expanded_row_idx, OptionalIn x1, OptionalIn x2, OptionalIn bias,
                       OptionalIn scales, OptionalIn expert_idx, int64_t drop_pad_mode, Out out) {
                      check_or_run(phase,
                                   FinalRouting({expanded_x, expanded_row_idx, x1, x2, bias, scales, expert_idx,
                                                 drop_pad_mode, 1}),
                                   out);
                    });

// Experts that return 0, their token or a mixture of it with a constant.
using OwnToken = Absent<"xOptional", OptionalIn>;
using FirstShare = Absent<"alpha1Optional", OptionalIn>;
using SecondShare = Absent<"alpha2Optional", OptionalIn>;
using ConstantVector = Absent<"vOptional", OptionalIn>;
using ZeroExperts = Absent<"zeroExpertRange", OptionalInts>;
using CopyExperts = Absent<"copyExpertRange", OptionalInts>;
using ConstantExperts = Absent<"constantExpertRange", OptionalInts>;

ACLNN_TYPED_CHECKED(MoeFinalizeRoutingV4, kFinalDtypes,
                    [](Phase phase, In expanded_x, In expanded_row_idx, OptionalIn x1, OptionalIn x2, OptionalIn bias,
                       OptionalIn scales, OptionalIn expert_idx, OwnToken, FirstShare, SecondShare, ConstantVector,
                       int64_t drop_pad_mode, ZeroExperts, CopyExperts, ConstantExperts, int64_t k, Out out) {
                      check_or_run(phase,
                                   FinalRouting({expanded_x, expanded_row_idx, x1, x2, bias, scales, expert_idx,
                                                 drop_pad_mode, k}),
                                   out);
                    });

// From the order of the ranks that have sent the rows, and of their experts, to that of the experts alone.
ACLNN_TYPED_CHECKED(
    MoeReRouting,
    "tokens: float16 bfloat16 int8; expert_token_num_per_rank: int32 int64; per_token_scales: float32; permute_tokens: "
    "as tokens; permute_per_token_scales: float32; permute_token_idx: int32; expert_token_num: as "
    "expert_token_num_per_rank",
    [](Phase phase, In tokens, In expert_token_num_per_rank, OptionalIn per_token_scales, int64_t expert_token_num_type,
       int64_t idx_type, Out permute_tokens, OptionalOut permute_per_token_scales, Out permute_token_idx,
       Out expert_token_num) {
      if (phase == Phase::Check) {
        check_rank("tokens", tokens, 2);
        check_rank("expert_token_num_per_rank", expert_token_num_per_rank, 2);
        check_range("expert_token_num_type", expert_token_num_type, 1, 1);
        check_range("idx_type", idx_type, 0, 0);
        check_shape("permute_tokens", permute_tokens, tokens.sizes());
        check_shape("permute_token_idx", permute_token_idx, {tokens.size(0)});
        check_shape("expert_token_num", expert_token_num, {expert_token_num_per_rank.size(1)});
        if (!per_token_scales.has_value()) return;
        check_shape("per_token_scales", *per_token_scales, {tokens.size(0)});
        TORCH_CHECK(permute_per_token_scales.has_value(), "permute_per_token_scales must be given");
        check_shape("permute_per_token_scales", *permute_per_token_scales, {tokens.size(0)});
        return;
      }
      const int64_t count = tokens.size(0);
      check_values("expert_token_num_per_rank", expert_token_num_per_rank, 0, count);
      const auto counts = expert_token_num_per_rank.to(at::kLong);
      const int64_t sum = counts.sum().item<int64_t>();
      TORCH_CHECK(sum == count, "expert_token_num_per_rank has the sum ", sum, "; expected ", count,
                  ", the rows of tokens");
      const auto experts = at::arange(counts.size(1), at::kLong).repeat({counts.size(0)});
      const auto of_rows = experts.repeat_interleave(counts.flatten());
      const auto order = at::argsort(of_rows, /*stable=*/true, 0, /*descending=*/false);
      permute_tokens.copy_(tokens.index_select(0, order));
      permute_token_idx.copy_(order);
      expert_token_num.copy_(counts.sum(0));
      if (per_token_scales.has_value()) permute_per_token_scales->copy_(per_token_scales->index_select(0, order));
    });

namespace {

// Which experts have which tokens: a map of (tokens, experts). An expert has its own number of tokens, or each has
// `capacity` ones, with tokens that are not its own at the end where it has fewer.
at::Tensor by_expert(In map) { return map.to(at::kBool).t(); }

void check_map(In map, int64_t tokens) {
  check_rank("routing_map", map, 2);
  check_shape("routing_map", map, {tokens, map.size(1)});
}

// Each token has as many experts.
void check_map_values(In map, int64_t each) {
  check_values("the experts of a token in routing_map", map.to(at::kLong).sum(1), each, each);
}

// Rows of a table of (experts, tokens), by the place of their row in the order of experts.
at::Tensor at_places(In by_expert_table, In tokens, int64_t capacity) {
  const auto experts = at::arange(tokens.size(0), at::kLong).div(capacity, "floor");
  return by_expert_table.reshape({-1}).index_select(0, experts * by_expert_table.size(1) + tokens);
}

}  // namespace

ACLNN_TYPED_CHECKED(
    MoeTokenPermuteWithRoutingMap,
    "tokens: float32 float16 bfloat16; routing_map: int8 bool; probs: float32 float16 bfloat16; permuted_tokens: as "
    "tokens; permute_probs: as probs; sorted_indices: int32",
    [](Phase phase, In tokens, In routing_map, OptionalIn probs, int64_t num_out_tokens, bool drop_and_pad,
       Out permuted_tokens, OptionalOut permute_probs, Out sorted_indices) {
      if (phase == Phase::Check) {
        check_rank("tokens", tokens, 2);
        check_map(routing_map, tokens.size(0));
        const int64_t parts = routing_map.size(drop_and_pad ? 1 : 0);
        TORCH_CHECK(parts > 0, "routing_map has shape ", routing_map.sizes(), "; expected tokens and experts");
        const int64_t each = num_out_tokens / parts;
        check_range(drop_and_pad ? "the capacity in num_out_tokens" : "the experts of a token in num_out_tokens", each,
                    0, drop_and_pad ? tokens.size(0) : std::min<int64_t>(512, routing_map.size(1)));
        check_shape("permuted_tokens", permuted_tokens, {each * parts, tokens.size(1)});
        check_shape("sorted_indices", sorted_indices, {each * parts});
        if (!probs.has_value()) return;
        check_shape("probs", *probs, routing_map.sizes());
        TORCH_CHECK(permute_probs.has_value(), "permute_probs must be given with probs");
        check_shape("permute_probs", *permute_probs, {each * parts});
        return;
      }
      const auto map = by_expert(routing_map);
      at::Tensor sources;
      if (drop_and_pad) {
        const int64_t capacity = num_out_tokens / map.size(0);
        sources = at::argsort(map.to(at::kByte), /*stable=*/true, 1, /*descending=*/true)
                      .narrow(1, 0, capacity)
                      .reshape({-1});
        sorted_indices.copy_(sources);
        if (probs.has_value()) permute_probs->copy_(at_places(probs->t(), sources, std::max<int64_t>(1, capacity)));
      } else {
        check_map_values(routing_map, num_out_tokens / map.size(1));
        sources = map.nonzero().select(1, 1);
        sorted_indices.copy_(at::argsort(sources, /*stable=*/true, 0, /*descending=*/false));
        if (probs.has_value()) permute_probs->copy_(probs->t().masked_select(map));
      }
      permuted_tokens.copy_(tokens.index_select(0, sources));
    });
ACLNN_TYPED_CHECKED(
    MoeTokenPermuteWithRoutingMapGrad,
    "permuted_token_output_grad: float32 float16 bfloat16; permuted_probs_output_grad: float32 float16 bfloat16; "
    "sorted_indices: int32; routing_map: int8 bool; tokens_grad: as permuted_token_output_grad; probs_grad: as "
    "permuted_probs_output_grad",
    [](Phase phase, In permuted_token_output_grad, OptionalIn permuted_probs_output_grad, In sorted_indices,
       In routing_map, int64_t num_experts, int64_t tokens_num, bool drop_and_pad, Out tokens_grad,
       OptionalOut probs_grad) {
      if (phase == Phase::Check) {
        check_rank("permuted_token_output_grad", permuted_token_output_grad, 2);
        const int64_t rows = permuted_token_output_grad.size(0);
        check_shape("sorted_indices", sorted_indices, {rows});
        check_shape("routing_map", routing_map, {tokens_num, num_experts});
        const int64_t parts = drop_and_pad ? num_experts : tokens_num;
        TORCH_CHECK(parts > 0 && rows % parts == 0, "permuted_token_output_grad has ", rows,
                    " rows; expected a multiple of ", parts, drop_and_pad ? " experts" : " tokens");
        check_shape("tokens_grad", tokens_grad, {tokens_num, permuted_token_output_grad.size(1)});
        if (!permuted_probs_output_grad.has_value()) return;
        check_shape("permuted_probs_output_grad", *permuted_probs_output_grad, {rows});
        TORCH_CHECK(probs_grad.has_value(), "probs_grad must be given");
        check_shape("probs_grad", *probs_grad, routing_map.sizes());
        return;
      }
      const int64_t rows = sorted_indices.size(0);
      check_values("sorted_indices", sorted_indices, 0, (drop_and_pad ? tokens_num : rows) - 1);
      const auto indices = sorted_indices.to(at::kLong);
      const auto dy = in_float(permuted_token_output_grad);
      if (drop_and_pad) {
        assign(tokens_grad, at::zeros(tokens_grad.sizes(), dy.options()).index_add(0, indices, dy));
      } else {
        check_map_values(routing_map, rows / tokens_num);
        assign(tokens_grad, dy.index_select(0, indices).view({tokens_num, -1, dy.size(1)}).sum(1));
      }
      if (!permuted_probs_output_grad.has_value()) return;
      auto result = at::zeros({num_experts, tokens_num}, permuted_probs_output_grad->options());
      if (drop_and_pad) {
        const int64_t capacity = rows / num_experts;
        const auto experts = at::arange(rows, at::kLong).div(std::max<int64_t>(1, capacity), "floor");
        result.view({-1}).index_copy_(0, experts * tokens_num + indices, *permuted_probs_output_grad);
      } else {
        result = result.masked_scatter(by_expert(routing_map), *permuted_probs_output_grad);
      }
      assign(*probs_grad, result.t());
    });
ACLNN_TYPED_CHECKED(
    MoeTokenUnpermuteWithRoutingMap,
    "permuted_tokens: float32 float16 bfloat16; sorted_indices, out_index, permute_token_id: int32; routing_map: int8 "
    "bool; probs: float32 float16 bfloat16; unpermuted_tokens: as permuted_tokens; permute_probs: as probs",
    [](Phase phase, In permuted_tokens, In sorted_indices, OptionalIn routing_map, OptionalIn probs, bool padded_mode,
       OptionalInts restore_shape, Out unpermuted_tokens, Out out_index, Out permute_token_id,
       OptionalOut permute_probs) {
      if (phase == Phase::Check) {
        check_rank("permuted_tokens", permuted_tokens, 2);
        check_rank("unpermuted_tokens", unpermuted_tokens, 2);
        const int64_t rows = permuted_tokens.size(0);
        const int64_t tokens = unpermuted_tokens.size(0);
        check_shape("sorted_indices", sorted_indices, {rows});
        check_shape("unpermuted_tokens", unpermuted_tokens, {tokens, permuted_tokens.size(1)});
        TORCH_CHECK(!restore_shape.has_value() || *restore_shape == unpermuted_tokens.sizes(), "restore_shape is ",
                    *restore_shape, "; expected ", unpermuted_tokens.sizes());
        TORCH_CHECK(padded_mode || (tokens > 0 && rows % tokens == 0), "permuted_tokens has ", rows,
                    " rows; expected a multiple of ", tokens, " tokens");
        check_shape("out_index", out_index, {rows});
        check_shape("permute_token_id", permute_token_id, {rows});
        if (!probs.has_value()) return;
        check_rank("probs", *probs, 2);
        check_shape("probs", *probs, {tokens, probs->size(1)});
        TORCH_CHECK(permute_probs.has_value(), "permute_probs must be given with probs");
        check_shape("permute_probs", *permute_probs, {rows});
        TORCH_CHECK(padded_mode || routing_map.has_value(), "routing_map must be given with probs");
        if (routing_map.has_value()) check_shape("routing_map", *routing_map, probs->sizes());
        TORCH_CHECK(!padded_mode || (probs->size(1) > 0 && rows % probs->size(1) == 0), "permuted_tokens has ", rows,
                    " rows; expected a multiple of ", probs->size(1), " experts");
        return;
      }
      const int64_t rows = permuted_tokens.size(0);
      const int64_t tokens = unpermuted_tokens.size(0);
      check_values("sorted_indices", sorted_indices, 0, (padded_mode ? tokens : rows) - 1);
      const auto indices = sorted_indices.to(at::kLong);
      auto values = in_float(permuted_tokens);
      if (probs.has_value()) {
        if (!padded_mode) check_map_values(*routing_map, rows / tokens);
        permute_probs->copy_(padded_mode ? at_places(probs->t(), indices, std::max<int64_t>(1, rows / probs->size(1)))
                                         : probs->t().masked_select(by_expert(*routing_map)));
        values = values * permute_probs->unsqueeze(1);
      }
      if (padded_mode) {
        const auto order = at::argsort(indices, /*stable=*/true, 0, /*descending=*/false);
        out_index.copy_(order);
        permute_token_id.copy_(indices.index_select(0, order));
        assign(unpermuted_tokens, at::zeros(unpermuted_tokens.sizes(), values.options()).index_add(0, indices, values));
      } else {
        const int64_t each = rows / tokens;
        out_index.copy_(indices);
        permute_token_id.copy_(at::arange(rows, at::kLong).div(std::max<int64_t>(1, each), "floor"));
        assign(unpermuted_tokens, values.index_select(0, indices).view({tokens, each, values.size(1)}).sum(1));
      }
    });
ACLNN_TYPED_CHECKED(
    MoeTokenUnpermuteWithRoutingMapGrad,
    "unpermuted_tokens_grad: float32 float16 bfloat16; out_index, permute_token_id: int32; routing_map: int8 bool; "
    "permuted_tokens: as unpermuted_tokens_grad; probs: float32 float16 bfloat16; permuted_tokens_grad: as "
    "unpermuted_tokens_grad; probs_grad: float32 float16 bfloat16",
    [](Phase phase, In unpermuted_tokens_grad, In out_index, In permute_token_id, OptionalIn routing_map,
       OptionalIn permuted_tokens, OptionalIn probs, bool padded_mode,
       Ignored<OptionalInts> /* the shape of unpermuted_tokens_grad */, Out permuted_tokens_grad,
       OptionalOut probs_grad) {
      if (phase == Phase::Check) {
        check_rank("unpermuted_tokens_grad", unpermuted_tokens_grad, 2);
        const int64_t rows = out_index.numel();
        const int64_t tokens = unpermuted_tokens_grad.size(0);
        check_shape("out_index", out_index, {rows});
        check_shape("permute_token_id", permute_token_id, {rows});
        check_shape("permuted_tokens_grad", permuted_tokens_grad, {rows, unpermuted_tokens_grad.size(1)});
        if (!probs.has_value()) return;
        check_rank("probs", *probs, 2);
        check_shape("probs", *probs, {tokens, probs->size(1)});
        TORCH_CHECK(routing_map.has_value() && permuted_tokens.has_value() && probs_grad.has_value(),
                    "routing_map, permuted_tokens and probs_grad must be given with probs");
        check_shape("routing_map", *routing_map, probs->sizes());
        check_shape("permuted_tokens", *permuted_tokens, permuted_tokens_grad.sizes());
        check_shape("probs_grad", *probs_grad, probs->sizes());
        const int64_t parts = padded_mode ? probs->size(1) : tokens;
        TORCH_CHECK(parts > 0 && rows % parts == 0, "out_index has ", rows, " elements; expected a multiple of ", parts,
                    padded_mode ? " experts" : " tokens");
        return;
      }
      const int64_t rows = out_index.numel();
      const int64_t tokens = unpermuted_tokens_grad.size(0);
      check_values("out_index", out_index, 0, rows - 1);
      check_values("permute_token_id", permute_token_id, 0, tokens - 1);
      const auto places = out_index.to(at::kLong), ids = permute_token_id.to(at::kLong);
      auto result = at::zeros(permuted_tokens_grad.sizes(), at::kFloat);
      result.index_copy_(0, places, unpermuted_tokens_grad.index_select(0, ids).to(at::kFloat));
      if (!probs.has_value()) return permuted_tokens_grad.copy_(result), void();
      const auto of_row = (result * *permuted_tokens).sum(1);
      auto of_probs = at::zeros({probs->size(1), tokens}, at::kFloat);
      auto shares = at::zeros({rows}, at::kFloat);
      if (padded_mode) {
        const auto experts = places.div(std::max<int64_t>(1, rows / probs->size(1)), "floor");
        const auto cells = experts * tokens + ids;
        of_probs.view({-1}).index_copy_(0, cells, of_row.index_select(0, places));
        shares.index_copy_(0, places, probs->t().reshape({-1}).index_select(0, cells).to(at::kFloat));
      } else {
        check_map_values(*routing_map, rows / tokens);
        of_probs = of_probs.masked_scatter(by_expert(*routing_map), of_row);
        shares = probs->t().masked_select(by_expert(*routing_map)).to(at::kFloat);
      }
      permuted_tokens_grad.copy_(result * shares.unsqueeze(1));
      probs_grad->copy_(of_probs.t());
    });
