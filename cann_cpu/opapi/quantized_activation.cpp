// SPDX-License-Identifier: Apache-2.0
// Activation functions between the scales of quantised products, and a rotation before them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include "checks.h"
#include "hifloat8.h"
#include "quantization.h"

using namespace cann_cpu;

namespace {

enum Gate : int64_t { kSwish, kInterleaved, kHalves, kLimitedSwish };

struct GateConstants {
  double limit, alpha, bias;
};

// The activated half of each row times the other, which the modes choose and limit in their own ways.
at::Tensor gated(In rows, bool activate_left, int64_t mode, const GateConstants& constants) {
  const auto halves = mode == kInterleaved ? std::vector<at::Tensor>{rows.unflatten(-1, {-1, 2}).select(-1, 0),
                                                                     rows.unflatten(-1, {-1, 2}).select(-1, 1)}
                                           : rows.chunk(2, -1);
  at::Tensor gate = halves[activate_left ? 0 : 1], linear = halves[activate_left ? 1 : 0];
  if (mode == kSwish) return at::silu(gate) * linear;
  linear = linear.clamp(-constants.limit, constants.limit);
  if (mode == kLimitedSwish) return at::silu(gate).clamp_max(constants.limit) * linear;
  gate = gate.clamp_max(constants.limit);
  return gate * at::sigmoid(gate * at::Scalar(constants.alpha)) * (linear + at::Scalar(constants.bias));
}

// The rows of a group, of a list that holds the ends of the groups or their sizes; those past the last belong to none.
struct Groups {
  at::Tensor ends, of_row;  // both undefined where there is one group for all rows
  int64_t rows;             // that belong to a group

  Groups(const char* name, OptionalIn list, bool holds_sizes, int64_t all) : rows(all) {
    if (!list.has_value()) return;
    check_values(name, *list, 0, all);
    ends = list->to(at::kLong).contiguous();
    if (holds_sizes) ends = ends.cumsum(0);
    const auto* end = ends.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < ends.numel(); ++i) {
      const int64_t begin = i == 0 ? 0 : end[i - 1];
      TORCH_CHECK(end[i] >= begin && end[i] <= all, name, "[", i, "] ends group ", i, " at row ", end[i], "; expected ",
                  begin, " to ", all);
    }
    rows = end[ends.numel() - 1];
    of_row = group_of_rows(ends, all);
  }

  // The parameters of some rows, where there are some for each group. Vectors are for all.
  at::Tensor of(In parameters, int64_t begin, int64_t count) const {
    const at::Tensor wide = parameters.to(at::kFloat);
    if (!of_row.defined()) return wide.dim() == 2 ? wide.select(0, 0) : wide;
    return wide.index_select(0, of_row.narrow(0, begin, count));
  }
};

// A vector of columns, or one for each group.
void check_by_group(const char* name, OptionalIn parameters, OptionalIn group_index, int64_t columns,
                    bool may_be_number) {
  if (!parameters.has_value()) return;
  const auto sizes = parameters->sizes();
  const int64_t groups = group_index.has_value() ? group_index->size(0) : 1;
  const bool number = may_be_number && (sizes == at::IntArrayRef({groups}) || sizes == at::IntArrayRef({groups, 1}));
  const bool vector = !group_index.has_value() && sizes == at::IntArrayRef({columns});
  TORCH_CHECK(number || vector || sizes == at::IntArrayRef({groups, columns}), name, " has shape ", sizes,
              "; expected [", groups, ", ", columns, "]", group_index.has_value() ? "" : " or a vector",
              may_be_number ? ", or a number for each group" : "");
}

struct DequantSwigluQuantization {
  In x;
  OptionalIn weight_scale, activation_scale, bias, quant_scale, quant_offset, group_index;
  bool activate_left;
  Text quant_mode;
  int64_t swiglu_mode;
  GateConstants constants;
  Out y, scale;

  bool is_dynamic() const { return quant_mode == "dynamic"; }

  void check() const {
    check_range("the number of dimensions of x", x.dim(), 2, 8);
    const int64_t columns = x.size(-1);
    TORCH_CHECK(columns % 2 == 0, "x has ", columns, " columns; expected an even number");
    TORCH_CHECK(is_dynamic() || quant_mode == "static" || quant_mode.empty(), "quant_mode is '", quant_mode,
                "'; expected static or dynamic");
    check_range("swiglu_mode", swiglu_mode, kSwish, kLimitedSwish);
    TORCH_CHECK(swiglu_mode != kInterleaved || activate_left,
                "activate_left is false; expected true, since "
                "swiglu_mode is 1");
    TORCH_CHECK(swiglu_mode == kSwish || constants.limit > 0, "clamp_limit is ", constants.limit,
                "; expected more than 0");
    auto shape = x.sizes().vec();
    shape.back() /= 2;
    check_shape("y_out", y, shape);
    shape.pop_back();
    check_shape("scale_out", scale, shape);
    if (group_index.has_value()) {
      check_rank("group_index", *group_index, 1);
      TORCH_CHECK(group_index->size(0) > 0, "group_index is empty; expected a group");
    }
    const bool is_integer = x.scalar_type() == at::kInt;
    const char* why =
        is_integer ? "null; expected a tensor, since x is int32" : "given; expected null, since x is not int32";
    TORCH_CHECK(weight_scale.has_value() == is_integer, "weight_scale is ", why);
    TORCH_CHECK(is_integer || !activation_scale.has_value(), "activation_scale is ", why);
    TORCH_CHECK(is_integer || !bias.has_value(), "bias is ", why);
    check_by_group("weight_scale", weight_scale, group_index, columns, false);
    check_by_group("bias", bias, group_index, columns, false);
    check_by_group("quant_scale", quant_scale, group_index, columns / 2, !is_dynamic());
    TORCH_CHECK(!activation_scale.has_value() || activation_scale->numel() == scale.numel(),
                "activation_scale has shape ", activation_scale.has_value() ? activation_scale->sizes() : shape,
                "; expected an element for each of ", scale.numel(), " rows");
    if (is_dynamic()) {
      TORCH_CHECK(!quant_offset.has_value(), "quant_offset is given; expected null, since quant_mode is dynamic");
    } else {
      TORCH_CHECK(quant_scale.has_value(), "quant_scale is null; expected a tensor, since quant_mode is static");
      TORCH_CHECK(quant_offset.has_value(), "quant_offset is null; expected a tensor, since quant_mode is static");
      check_shape("quant_offset", *quant_offset, quant_scale->sizes());
    }
  }

  void run() const {
    const at::Tensor rows = as_rows(x);
    const Groups groups("group_index", group_index, /*holds_sizes=*/true, rows.size(0));
    const RowsOut out(y);
    const at::Tensor scales = at::zeros({rows.size(0)}, scale.options());
    out.part(groups.rows, rows.size(0) - groups.rows).zero_();
    in_blocks(groups.rows, rows.size(1), [&](int64_t begin, int64_t count) {
      at::Tensor part = rows.narrow(0, begin, count);
      const bool is_first = bias.has_value() && bias->scalar_type() == at::kInt;
      if (is_first) part = part.to(at::kFloat) + groups.of(*bias, begin, count);
      part = part.to(at::kFloat);
      if (weight_scale.has_value()) part = part * groups.of(*weight_scale, begin, count);
      if (activation_scale.has_value()) {
        part = part * activation_scale->reshape({-1, 1}).narrow(0, begin, count);
      }
      if (bias.has_value() && !is_first) part = part + groups.of(*bias, begin, count);
      const at::Tensor value = gated(part, activate_left, swiglu_mode, constants);
      if (is_dynamic()) {
        const Dynamic result = dynamically_quantized(
            quant_scale.has_value() ? value * groups.of(*quant_scale, begin, count) : value, y.scalar_type());
        out.part(begin, count).copy_(result.values);
        scales.narrow(0, begin, count).copy_(result.scale);
      } else {
        out.part(begin, count)
            .copy_(saturated(
                value / by_row(*quant_scale, groups, begin, count) + by_row(*quant_offset, groups, begin, count),
                y.scalar_type()));
      }
    });
    out.stored();
    scale.copy_(scales.view(scale.sizes()));
  }

  // A number for each group becomes a column.
  static at::Tensor by_row(In parameters, const Groups& groups, int64_t begin, int64_t count) {
    const at::Tensor values = groups.of(parameters, begin, count);
    return groups.of_row.defined() && values.dim() == 1 ? values.unsqueeze(1) : values;
  }
};

constexpr const char* kDequantSwigluQuant =
    "x: float16 bfloat16 int32; weight_scale, activation_scale, quant_scale, quant_offset: float32; "
    "bias: float32 float16 bfloat16 int32; group_index: int32 int64; "
    "y_out: int8 float8_e5m2 float8_e4m3fn; scale_out: float32";

}  // namespace

namespace {

void check_dequant_swiglu(In x, int64_t dst_type, Text round_mode, int64_t activate_dim, Out y_out) {
  TORCH_CHECK(x.dim() > 0 && x.size(-1) % 64 == 0, "x has shape ", x.sizes(),
              "; expected a multiple of 64 in the last dimension");
  check_dst_type(dst_type, "y_out", y_out);
  TORCH_CHECK(round_mode == "rint" || round_mode.empty(), "round_mode is '", round_mode, "'; expected rint");
  TORCH_CHECK(activate_dim == -1 || activate_dim == x.dim() - 1, "activate_dim is ", activate_dim,
              "; expected -1, the last dimension");
}

}  // namespace

ACLNN_TYPED_CHECKED(DequantSwigluQuant, kDequantSwigluQuant,
                    [](Phase phase, In x, OptionalIn weight_scale, OptionalIn activation_scale, OptionalIn bias,
                       OptionalIn quant_scale, OptionalIn quant_offset, OptionalIn group_index, bool activate_left,
                       Text quant_mode, Out y_out, Out scale_out) {
                      check_or_run(
                          phase, DequantSwigluQuantization(x, weight_scale, activation_scale, bias, quant_scale,
                                                           quant_offset, group_index, activate_left, quant_mode, kSwish,
                                                           GateConstants(), y_out, scale_out));
                    });
ACLNN_TYPED_CHECKED(DequantSwigluQuantV2, kDequantSwigluQuant,
                    [](Phase phase, In x, OptionalIn weight_scale, OptionalIn activation_scale, OptionalIn bias,
                       OptionalIn quant_scale, OptionalIn quant_offset, OptionalIn group_index, bool activate_left,
                       Text quant_mode, int64_t dst_type, Text round_mode, int64_t activate_dim, int64_t swiglu_mode,
                       double clamp_limit, double glu_alpha, double glu_bias, Out y_out, Out scale_out) {
                      check_dequant_swiglu(x, dst_type, round_mode, activate_dim, y_out);
                      check_or_run(phase, DequantSwigluQuantization(
                                              x, weight_scale, activation_scale, bias, quant_scale, quant_offset,
                                              group_index, activate_left, quant_mode, swiglu_mode,
                                              GateConstants(clamp_limit, glu_alpha, glu_bias), y_out, scale_out));
                    });

namespace {

constexpr int64_t kInt8Type = 2, kInt4Type = 29;

// Int4 in int8, two in each, the first in the lower bits.
at::Tensor paired_int4(In values) {
  const at::Tensor pairs = values.unflatten(-1, {-1, 2});
  return pairs.select(-1, 0).bitwise_and(15).bitwise_or(pairs.select(-1, 1).bitwise_left_shift(4));
}

}  // namespace

// The dynamic scale is the reciprocal of what other functions give: the highest value by the largest of a row.
ACLNN_TYPED_CHECKED(
    SwiGluQuantV2,
    "x: float32 float16 bfloat16; smooth_scales, offsets: float32; group_index: int32; y_out: int8; "
    "scale_out: float32",
    [](Phase phase, In x, OptionalIn smooth_scales, OptionalIn offsets, OptionalIn group_index, bool activate_left,
       Text quant_mode, int64_t group_list_type, int64_t dst_type, Out y_out, Out scale_out) {
      TORCH_CHECK(x.dim() > 1, "x has ", x.dim(), " dimensions; expected more than 1");
      const int64_t columns = x.size(-1);
      const int64_t divisor = dst_type == kInt4Type ? 4 : 2;
      TORCH_CHECK(dst_type == kInt8Type || dst_type == kInt4Type, "dst_type is ", dst_type,
                  "; expected 2 (int8) or 29 (int4)");
      TORCH_CHECK(columns % divisor == 0 && columns <= 8192, "x has ", columns, " columns; expected a multiple of ",
                  divisor, " up to 8192");
      check_range("group_list_type", group_list_type, 0, 1);
      TORCH_CHECK(quant_mode == "static" || quant_mode == "dynamic", "quant_mode is '", quant_mode,
                  "'; expected static or dynamic");
      if (group_index.has_value()) {
        check_rank("group_index", *group_index, 1);
        TORCH_CHECK(group_index->size(0) > 0, "group_index is empty; expected a group");
      }
      check_by_group("smooth_scales", smooth_scales, group_index, columns / 2, true);
      const bool is_static = quant_mode == "static";
      TORCH_CHECK(is_static || !offsets.has_value(), "offsets is given; expected null, since quant_mode is dynamic");
      TORCH_CHECK(!is_static || smooth_scales.has_value(),
                  "smooth_scales is null; expected a tensor, since quant_mode is static");
      TORCH_CHECK(!is_static || offsets.has_value(), "offsets is null; expected a tensor, since quant_mode is static");
      if (is_static) check_shape("offsets", *offsets, smooth_scales->sizes());
      auto shape = x.sizes().vec();
      shape.back() /= divisor;
      check_shape("y_out", y_out, shape);
      shape.pop_back();
      check_shape("scale_out", scale_out, shape);
      if (phase == Phase::Check) return;
      const at::Tensor rows = as_rows(x);
      const Groups groups("group_index", group_index, group_list_type == 1, rows.size(0));
      const auto dtype = dst_type == kInt4Type ? kInt4 : at::kChar;
      const RowsOut out(y_out);
      out.part(groups.rows, rows.size(0) - groups.rows).zero_();
      const at::Tensor scales = at::zeros({rows.size(0)}, scale_out.options());
      in_blocks(groups.rows, rows.size(1), [&](int64_t begin, int64_t count) {
        at::Tensor value = gated(rows.narrow(0, begin, count).to(at::kFloat), activate_left, kSwish, {});
        const auto by_row = [&](In given) { return DequantSwigluQuantization::by_row(given, groups, begin, count); };
        if (smooth_scales.has_value()) value = value * by_row(*smooth_scales);
        if (quant_mode == "static") {
          value = value + by_row(*offsets);
        } else {
          const at::Tensor largest = value.abs().amax(-1);
          const at::Tensor found = at::Scalar(range_of(dtype).second) / largest.masked_fill(largest.eq(0), 1);
          scales.narrow(0, begin, count).copy_(found);
          value = value * found.unsqueeze(1);
        }
        const at::Tensor values = saturated(value, dtype);
        out.part(begin, count).copy_(dtype == kInt4 ? paired_int4(values) : values);
      });
      out.stored();
      scale_out.copy_(scales.view(scale_out.sizes()));
    });

ACLNN_TYPED(GeluQuant,
            "self: float32 float16 bfloat16; input_scale: float32 float16 bfloat16; input_offset: as input_scale; "
            "y: int8 float8_e5m2 float8_e4m3fn; out_scale: float32",
            [](In self, OptionalIn input_scale, OptionalIn input_offset, Text approximate, Text quant_mode,
               Text round_mode, int64_t dst_type, Out y, OptionalOut out_scale) {
              const bool is_dynamic = quant_mode == "dynamic";
              TORCH_CHECK(is_dynamic || quant_mode == "static", "quant_mode is '", quant_mode,
                          "'; expected static or dynamic");
              check_range("the number of dimensions of self", self.dim(), is_dynamic ? 2 : 1, 8);
              TORCH_CHECK(approximate == "none" || approximate == "tanh", "approximate is '", approximate,
                          "'; expected none or tanh");
              TORCH_CHECK(round_mode == "rint", "round_mode is '", round_mode, "'; expected rint");
              check_dst_type(dst_type, "y", y);
              check_shape("y", y, self.sizes());
              TORCH_CHECK(is_dynamic || input_scale.has_value(),
                          "input_scale is null; expected a tensor, since quant_mode is static");
              TORCH_CHECK(!input_offset.has_value() || input_scale.has_value(),
                          "input_offset is given; expected null, as input_scale is");
              if (input_scale.has_value()) {
                const auto sizes = input_scale->sizes();
                TORCH_CHECK(sizes == at::IntArrayRef({1}) || sizes == at::IntArrayRef({self.size(-1)}),
                            "input_scale has shape ", sizes, "; expected [1] or [", self.size(-1), "]");
              }
              if (input_offset.has_value()) check_shape("input_offset", *input_offset, input_scale->sizes());
              TORCH_CHECK(is_dynamic == out_scale.has_value(), "out_scale is ",
                          out_scale.has_value() ? "given" : "null", "; expected ", is_dynamic ? "a tensor" : "null",
                          ", since quant_mode is ", quant_mode);
              if (is_dynamic) check_shape("out_scale", *out_scale, self.sizes().slice(0, self.dim() - 1));
              const at::Tensor rows = as_rows(self);
              const RowsOut out(y);
              const at::Tensor scales = at::empty({rows.size(0)}, rows.options().dtype(at::kFloat));
              in_blocks(rows.size(0), rows.size(1), [&](int64_t begin, int64_t count) {
                at::Tensor value = at::gelu(rows.narrow(0, begin, count).to(at::kFloat), approximate);
                if (!is_dynamic) {
                  out.part(begin, count).copy_(quantized(value, *input_scale, input_offset, y.scalar_type()));
                  return;
                }
                if (input_scale.has_value()) value = value * input_scale->to(at::kFloat);
                const Dynamic result = dynamically_quantized(value, y.scalar_type());
                out.part(begin, count).copy_(result.values);
                scales.narrow(0, begin, count).copy_(result.scale);
              });
              out.stored();
              if (is_dynamic) out_scale->copy_(scales.view(out_scale->sizes()));
            });

namespace {

// The gate of SwigluGroupQuant, and what it limits.
at::Tensor limited(In half, double limit, bool both_sides) {
  if (limit <= 0) return half;
  return both_sides ? half.clamp(-limit, limit) : half.clamp_max(limit);
}

void check_clamp_limit(double limit) {
  TORCH_CHECK(limit == -1 || limit >= 0, "clamp_limit is ", limit, "; expected -1 (none) or more than 0");
}

int64_t counted_rows(OptionalIn group_index, int64_t rows) {
  if (!group_index.has_value()) return rows;
  check_values("group_index", *group_index, 0, std::numeric_limits<int64_t>::max());
  return std::min(group_index->sum().item<int64_t>(), rows);
}

enum GroupQuantMode : int64_t { kBlocks, kMicroscaling, kStaticHiFloat8, kDynamicHiFloat8 };

constexpr double kLeastMaximum = 1e-4;  // of the numbers that share a scale

// silu(a) * b * weight of the rows of x, in float.
struct WeightedGate {
  In x;
  OptionalIn weight;
  double limit;

  at::Tensor rows(int64_t begin, int64_t count) const {
    const auto halves = as_rows(x).narrow(0, begin, count).to(at::kFloat).chunk(2, -1);
    at::Tensor value = at::silu(limited(halves[0], limit, false)) * limited(halves[1], limit, true);
    return weight.has_value() ? value * weight->reshape({-1, 1}).narrow(0, begin, count) : value;
  }
};

// Float8 with a float scale for 128 numbers, or with an exponent for 32.
void quantize_in_blocks(const WeightedGate& gate, int64_t mode, bool round_scale, int64_t counted, Out y_out,
                        Out y_scale_out) {
  const int64_t block = mode == kBlocks ? 128 : 32;
  const at::Tensor rows = as_rows(gate.x);
  const RowsOut out(y_out);
  const at::Tensor scales = at::zeros({rows.size(0), rows.size(1) / 2 / block}, at::kFloat);
  out.part(counted, rows.size(0) - counted).zero_();
  in_blocks(counted, rows.size(1), [&](int64_t begin, int64_t count) {
    const at::Tensor blocks = gate.rows(begin, count).unflatten(-1, {-1, block});
    const at::Tensor magnitude = blocks.abs();
    const at::Tensor largest =
        magnitude.masked_fill(magnitude.isfinite().logical_not(), 0).amax(-1).clamp_min(kLeastMaximum);
    const double highest = range_of(y_out.scalar_type()).second;
    at::Tensor scale = largest / at::Scalar(highest);
    at::Tensor inverse = at::Scalar(highest) / largest;
    if (round_scale) {  // up to a power of two
      const at::Tensor bits = scale.view(at::kInt);
      const at::Tensor exponent = bits.bitwise_right_shift(23) + bits.bitwise_and(0x7FFFFF).ne(0);
      scale = exponent.bitwise_left_shift(23).view(at::kFloat);
      inverse = (at::Scalar(254) - exponent).bitwise_left_shift(23).to(at::kInt).view(at::kFloat);
    }
    scales.narrow(0, begin, count).copy_(scale);
    const at::Tensor scaled = blocks * inverse.unsqueeze(-1);
    out.part(begin, count).copy_(saturated(scaled.where(scaled.isfinite(), blocks).flatten(-2), y_out.scalar_type()));
  });
  out.stored();
  if (mode == kBlocks) {
    y_scale_out.copy_(scales.view(y_scale_out.sizes()));
  } else {
    y_scale_out.view(at::kByte).copy_(scales.view(at::kInt).bitwise_right_shift(23).view(y_scale_out.sizes()));
  }
}

// HiFloat8 with a scale for each group of rows: a factor that is given, or the divisor that makes the largest number
// `highest`.
void quantize_by_group(const WeightedGate& gate, OptionalIn counts, OptionalIn factors, double highest, int64_t counted,
                       Out y_out, Out y_scale_out, const std::optional<at::Tensor>& y_origin) {
  const at::Tensor rows = as_rows(gate.x);
  const RowsOut out(y_out.view(at::kByte));
  out.part(counted, rows.size(0) - counted).zero_();
  const int64_t groups = counts.has_value() ? counts->size(0) : 1;
  int64_t first = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t given = counts.has_value() ? (*counts)[group].item<int64_t>() : rows.size(0);
    const int64_t length = std::min(given, counted - first);
    float factor = 1, divisor = 1;
    if (factors.has_value()) {
      factor = (*factors)[group].item<float>();
    } else {
      double largest = kLeastMaximum;
      in_blocks(length, rows.size(1), [&](int64_t begin, int64_t count) {
        largest = std::max(largest, gate.rows(first + begin, count).abs().max().item<double>());
      });
      divisor = static_cast<float>(largest) / static_cast<float>(highest);
      y_scale_out[group].fill_(divisor);
    }
    in_blocks(length, rows.size(1), [&](int64_t begin, int64_t count) {
      const auto value = gate.rows(first + begin, count);
      out.part(first + begin, count).copy_(saturated(value * factor / divisor, kHiFloat8).view(at::kByte));
      if (y_origin.has_value()) y_origin->view({rows.size(0), -1}).narrow(0, first + begin, count).copy_(value);
    });
    first += length;
  }
  out.stored();
}

}  // namespace

ACLNN_TYPED_CHECKED(
    SwigluGroupQuant,
    "x: float16 bfloat16 float32; weight, scale: float32; group_index: int64; "
    "y_out: float8_e5m2 float8_e4m3fn hifloat8; y_scale_out: float32 float8_e8m0fnu; y_origin_out: as x",
    [](Phase phase, In x, OptionalIn weight, OptionalIn group_index, OptionalIn scale, int64_t dst_type,
       int64_t quant_mode, int64_t block_size, bool round_scale, double clamp_limit, double dst_type_max,
       bool output_origin, Out y_out, Out y_scale_out, Out y_origin_out) {
      check_range("quant_mode", quant_mode, kBlocks, kDynamicHiFloat8);
      const bool by_group = quant_mode >= kStaticHiFloat8;
      const int64_t columns = x.size(-1) / 2, block = quant_mode == kBlocks ? 128 : 32;
      check_range("the number of dimensions of x", x.dim(), 2, quant_mode == kMicroscaling ? 7 : 8);
      TORCH_CHECK(x.size(-1) % 256 == 0, "x has ", x.size(-1), " columns; expected a multiple of 256");
      check_clamp_limit(clamp_limit);
      auto shape = x.sizes().vec();
      shape.back() = columns;
      check_shape("y_out", y_out, shape);
      TORCH_CHECK(by_group == (y_out.scalar_type() == kHiFloat8), "y_out must ", by_group ? "" : "not ",
                  "be hifloat8, since quant_mode is ", quant_mode);
      TORCH_CHECK(!weight.has_value() || weight->numel() * columns == y_out.numel(),
                  "weight has another number of elements than x has rows");
      if (group_index.has_value()) check_rank("group_index", *group_index, 1);
      const bool is_given = scale.has_value() && scale->numel() > 0;
      TORCH_CHECK(is_given == (quant_mode == kStaticHiFloat8), "scale is ", is_given ? "given" : "null",
                  ", and quant_mode is ", quant_mode);
      const bool has_exponents = quant_mode == kMicroscaling;
      TORCH_CHECK((y_scale_out.scalar_type() == at::kFloat) == !has_exponents, "y_scale_out has dtype ",
                  y_scale_out.scalar_type(), "; expected ", has_exponents ? "float8_e8m0fnu" : "float32");
      if (by_group) {
        const int64_t groups = group_index.has_value() ? group_index->size(0) : 1;
        if (is_given) check_shape("scale", *scale, {groups});
        if (quant_mode == kDynamicHiFloat8) {
          check_shape("y_scale_out", y_scale_out, {groups});
          TORCH_CHECK(dst_type_max > 0, "dst_type_max is ", dst_type_max, "; expected more than 0");
        }
        if (output_origin) check_shape("y_origin_out", y_origin_out, shape);
      } else {
        check_dst_type(dst_type, "y_out", y_out);
        TORCH_CHECK(block_size == 0 || block_size == block, "block_size is ", block_size, "; expected 0 or ", block);
        TORCH_CHECK(quant_mode == kBlocks || round_scale, "round_scale is false; expected true, since quant_mode is 1");
        TORCH_CHECK(!output_origin, "output_origin is true; expected false, since quant_mode is ", quant_mode);
        shape.back() = quant_mode == kBlocks ? columns / 128 : columns / 64;
        if (has_exponents) shape.push_back(2);
        check_shape("y_scale_out", y_scale_out, shape);
      }
      if (phase == Phase::Check) return;
      const int64_t counted = counted_rows(group_index, as_rows(x).size(0));
      const WeightedGate gate{x, weight, clamp_limit};
      if (!by_group) return quantize_in_blocks(gate, quant_mode, round_scale, counted, y_out, y_scale_out);
      quantize_by_group(gate, group_index, is_given ? scale : std::optional<at::Tensor>(), dst_type_max, counted, y_out,
                        y_scale_out, output_origin ? std::optional(y_origin_out) : std::nullopt);
    });

ACLNN_TYPED_CHECKED(
    SwigluGroupQuantGrad,
    "grad_y: float32 float16 bfloat16; x, y_origin, grad_x_out: as grad_y; weight, grad_weight_out: float32; "
    "group_index: int64",
    [](Phase phase, In grad_y, In x, OptionalIn weight, OptionalIn y_origin, OptionalIn group_index, double clamp_limit,
       Out grad_x_out, OptionalOut grad_weight_out) {
      if (phase == Phase::Check) {
        check_range("the number of dimensions of x", x.dim(), 2, 8);
        TORCH_CHECK(x.size(-1) % 2 == 0, "x has ", x.size(-1), " columns; expected an even number");
        auto shape = x.sizes().vec();
        check_shape("grad_x_out", grad_x_out, shape);
        shape.back() /= 2;
        check_shape("grad_y", grad_y, shape);
        check_clamp_limit(clamp_limit);
        if (group_index.has_value()) check_rank("group_index", *group_index, 1);
        if (!weight.has_value()) return;
        TORCH_CHECK(y_origin.has_value(), "y_origin is null; expected a tensor, since weight is given");
        check_shape("y_origin", *y_origin, shape);
        TORCH_CHECK(weight->numel() * shape.back() == grad_y.numel(), "weight has shape ", weight->sizes(),
                    "; expected an element for each row of x, ", x.sizes());
        TORCH_CHECK(grad_weight_out.has_value(), "grad_weight_out is null; expected a tensor, since weight is given");
        check_shape("grad_weight_out", *grad_weight_out, weight->sizes());
        return;
      }
      const at::Tensor rows = as_rows(x), grads = as_rows(grad_y);
      const int64_t counted = counted_rows(group_index, rows.size(0));
      const RowsOut out(grad_x_out);
      out.part(counted, rows.size(0) - counted).zero_();
      const at::Tensor sums = at::zeros({rows.size(0)}, rows.options().dtype(at::kFloat));
      in_blocks(counted, rows.size(1), [&](int64_t begin, int64_t count) {
        const auto halves = rows.narrow(0, begin, count).to(at::kFloat).chunk(2, -1);
        at::Tensor grad = grads.narrow(0, begin, count).to(at::kFloat);
        if (weight.has_value()) {
          const at::Tensor origin = as_rows(*y_origin).narrow(0, begin, count).to(at::kFloat);
          sums.narrow(0, begin, count).copy_((grad * origin).sum(-1));
          grad = grad * weight->reshape({-1, 1}).narrow(0, begin, count);
        }
        const at::Tensor gate = limited(halves[0], clamp_limit, false), linear = limited(halves[1], clamp_limit, true);
        const at::Tensor sigmoid = at::sigmoid(gate);
        at::Tensor of_gate = grad * linear * sigmoid * (gate * (at::Scalar(1) - sigmoid) + at::Scalar(1));
        at::Tensor of_linear = grad * gate * sigmoid;
        if (clamp_limit > 0) {
          of_gate = of_gate.masked_fill(halves[0].ge(clamp_limit), 0);
          of_linear = of_linear.masked_fill(halves[1].abs().ge(clamp_limit), 0);
        }
        out.part(begin, count).copy_(at::cat({of_gate, of_linear}, -1));
      });
      out.stored();
      if (weight.has_value()) grad_weight_out->copy_(sums.view(grad_weight_out->sizes()));
    });

// Each part of a row times the rotation, and then a scale for the row.
ACLNN_TYPED(RotateQuant, "x: float16 bfloat16; rotation: as x; y_out: int8 int32; scale_out: float32",
            [](In x, In rotation, Absent<"alpha", In>, int64_t axis, Text round_mode, int64_t scale_alg,
               double dst_type_max, bool trans, Out y_out, Out scale_out) {
              check_rank("x", x, 2);
              check_rank("rotation", rotation, 2);
              const int64_t size = rotation.size(0);
              check_shape("rotation", rotation, {size, size});
              check_range("the size of rotation", size, 16, 1024);
              check_range("the number of columns of x", x.size(1), 128, 16000);
              TORCH_CHECK(x.size(1) % size == 0 && x.size(1) % 8 == 0, "x has ", x.size(1),
                          " columns; expected a multiple of 8 and of ", size, ", the size of rotation");
              TORCH_CHECK(axis == -1 || axis == 1, "axis is ", axis, "; expected -1 or 1");
              check_range("scale_alg", scale_alg, 0, 0);
              TORCH_CHECK(dst_type_max == 0, "dst_type_max is ", dst_type_max, "; expected 0");
              TORCH_CHECK(!trans, "trans is true; expected false");
              TORCH_CHECK(round_mode != "ceil" && round_mode != "trunc", "round_mode is '", round_mode,
                          "'; expected rint, round or floor");
              const Rounding mode = rounding_of("round_mode", round_mode);
              check_quantized_shape("y_out", y_out, x.sizes());
              check_shape("scale_out", scale_out, {x.size(0)});
              const at::Tensor factor = rotation.to(at::kFloat);
              in_blocks(x.size(0), x.size(1), [&](int64_t begin, int64_t count) {
                const at::Tensor parts = x.narrow(0, begin, count).to(at::kFloat).unflatten(1, {-1, size});
                const at::Tensor value = at::matmul(parts, factor).flatten(1);
                const auto dtype = quantized_dtype(y_out);
                const at::Tensor scale = value.abs().amax(1) / at::Scalar(range_of(dtype).second);
                scale_out.narrow(0, begin, count).copy_(scale);
                assign_quantized(y_out.narrow(0, begin, count),
                                 saturated(value / scale.masked_fill(scale.eq(0), 1).unsqueeze(1), dtype, mode));
              });
            });
