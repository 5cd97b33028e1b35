// SPDX-License-Identifier: Apache-2.0
// Products of float16 rows that are quantised first (QuantMatmulDequant), and quantised convolutions.
#include <ATen/TensorOperators.h>
#include <ATen/ops/convolution.h>

#include <numeric>

#include "checks.h"
#include "quantization.h"
#include "scaled_product.h"

using namespace cann_cpu;

namespace {

// x * smooth_scale, quantised to int8 by x_scale or by each row's own scale, times a weight of (n, k), or of (experts,
// n, k) where there is a list of groups.
struct QuantizingProduct {
  In x, weight, weight_scale;
  OptionalIn group_list;
  std::optional<at::Tensor> x_scale, smooth_scale;
  const std::string mode;
  bool transpose_weight;

  QuantizingProduct(In x, In weight, In weight_scale, OptionalIn group_list, OptionalIn x_scale,
                    OptionalIn smooth_scale, Text mode, bool transpose_weight)
      : x(x),
        weight(weight),
        weight_scale(weight_scale),
        group_list(group_list),
        mode(mode.empty() ? "pertoken" : mode),
        transpose_weight(transpose_weight) {
    if (x_scale.has_value() && x_scale->numel() > 0) this->x_scale = x_scale;
    if (smooth_scale.has_value() && smooth_scale->numel() > 0) this->smooth_scale = smooth_scale;
  }

  bool is_packed() const { return !at::isFloatingType(weight_scale.scalar_type()); }

  void check(In out) const {
    TORCH_CHECK(transpose_weight, "transpose_weight is false; expected true");
    TORCH_CHECK(mode == "pertoken" || mode == "pertensor", "x_quant_mode is '", mode,
                "'; expected pertoken or pertensor");
    check_rank("x", x, 2);
    const int64_t rank = group_list.has_value() ? 3 : 2, m = x.size(0), k = x.size(1);
    check_rank("weight", weight, rank);
    const int64_t n = weight.size(-2);
    TORCH_CHECK(weight.size(-1) == k, "weight has shape ", weight.sizes(), "; expected ", k, " columns");
    TORCH_CHECK(k % 16 == 0 && n % 16 == 0, "weight has shape ", weight.sizes(), "; expected multiples of 16");
    if (group_list.has_value()) {
      check_shape("group_list", *group_list, {weight.size(0)});
      check_shape("weight_scale", weight_scale, {weight.size(0), n});
    } else {
      check_shape("weight_scale", weight_scale, {n});
    }
    TORCH_CHECK(x_scale.has_value() || mode == "pertoken", "x_quant_mode is '", mode,
                "'; expected pertoken, where x_scale is null");
    if (x_scale.has_value()) check_shape("x_scale", *x_scale, {mode == "pertoken" ? m : 1});
    if (smooth_scale.has_value()) check_shape("smooth_scale", *smooth_scale, {k});
    const bool is_half = x_scale.has_value() && x_scale->scalar_type() == at::kHalf;
    TORCH_CHECK(is_packed() == is_half && (!is_packed() || mode == "pertensor"), "weight_scale is ",
                is_packed() ? "int64" : "float32", "; expected ", is_half ? "int64" : "float32",
                ", or float16 x_scale in mode pertensor with int64");
    check_shape("out", out, {m, n});
  }

  void run(Out out) const {
    if (!group_list.has_value()) return write_rows(out, 0, x.size(0), weight, weight_scale);
    const at::Tensor list = group_list->to(at::kLong).contiguous();
    const std::vector<int64_t> ends(list.const_data_ptr<int64_t>(), list.const_data_ptr<int64_t>() + list.numel());
    int64_t end = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      TORCH_CHECK(ends[i] >= end && ends[i] <= x.size(0), "group_list[", i, "] is ", ends[i], "; expected ", end,
                  " to ", x.size(0));
      end = ends[i];
    }
    for (size_t i = 0, first = 0; i < ends.size(); first = ends[i++]) {
      write_rows(out, first, ends[i] - first, weight[i], weight_scale[i]);
    }
  }

 private:
  void write_rows(Out out, int64_t first, int64_t count, In matrix, In scale) const {
    in_blocks(count, x.size(1), [&](int64_t begin, int64_t size) {
      at::Tensor rows = x.narrow(0, first + begin, size).to(at::kFloat);
      if (smooth_scale.has_value()) rows = rows * smooth_scale->to(at::kFloat);
      at::Tensor values, row_scale;
      if (x_scale.has_value()) {
        row_scale = x_scale->to(at::kFloat);
        row_scale = mode == "pertoken" ? row_scale.narrow(0, first + begin, size) : row_scale.expand({size});
        values = saturated(rows / row_scale.unsqueeze(1), at::kChar);
      } else {
        const Dynamic dynamic = dynamically_quantized(rows, at::kChar);
        values = dynamic.values;
        row_scale = dynamic.scale;
      }
      ScaledProduct product{.x = values, .weight = IntegerMatrix("weight", matrix.t(), x.size(1))};
      product.scale = float_scales(scale).unsqueeze(0);
      if (!is_packed()) product.row_scale = row_scale;  // otherwise the weight's scale has it
      at::Tensor part = out.narrow(0, first + begin, size);
      product.write(part);
    });
  }
};

}  // namespace

#define QUANTIZING_DTYPES \
  "x, smooth_scale, out: float16; weight: int8; weight_scale: float32 int64; x_scale: float32 float16"
ACLNN_TYPED_CHECKED(QuantMatmulDequant, QUANTIZING_DTYPES,
                    [](Phase phase, In x, In weight, In weight_scale, Absent<"bias", OptionalIn>, OptionalIn x_scale,
                       Absent<"x_offset", OptionalIn>, OptionalIn smooth_scale, Text x_quant_mode,
                       bool transpose_weight, Out out) {
                      check_or_run(phase,
                                   QuantizingProduct(x, weight, weight_scale, {}, x_scale, smooth_scale, x_quant_mode,
                                                     transpose_weight),
                                   out);
                    });

#define QUANTIZING_GROUPED(op)                                                                                         \
  ACLNN_TYPED_CHECKED(                                                                                                 \
      op, QUANTIZING_DTYPES "; group_list: int64",                                                                     \
      [](Phase phase, In x, In weight, In weight_scale, In group_list, Absent<"bias", OptionalIn>, OptionalIn x_scale, \
         Absent<"x_offset", OptionalIn>, OptionalIn smooth_scale, Text x_quant_mode, bool transpose_weight, Out out) { \
        check_or_run(phase,                                                                                            \
                     QuantizingProduct(x, weight, weight_scale, std::optional(group_list), x_scale, smooth_scale,      \
                                       x_quant_mode, transpose_weight),                                                \
                     out);                                                                                             \
      })
QUANTIZING_GROUPED(QuantGroupedMatmulDequant);
QUANTIZING_GROUPED(QuantGroupedMatmulDequantWeightNZ);

namespace {

// Exact sums of int8, scaled by output channel.
struct QuantConvolution {
  In input, weight;
  OptionalIn bias;
  In scale;
  Ints stride, padding, dilation;
  bool transposed;
  int64_t groups;
  int32_t offset_x;
  Text round_mode;

  void check(In output) const {
    const int64_t rank = input.dim(), spatial = rank - 2;
    TORCH_CHECK(rank == 4 || rank == 5, "input has ", rank, " dimensions, shape ", input.sizes(), "; expected 4 or 5");
    check_rank("weight", weight, rank);
    TORCH_CHECK(!transposed, "transposed is true; expected false");
    check_range("groups", groups, 1, 1);
    check_range("offset_x", offset_x, 0, 0);
    TORCH_CHECK(round_mode.empty() || round_mode == "rint" || round_mode == "round", "round_mode is '", round_mode,
                "'; expected rint, round or null");
    TORCH_CHECK(weight.size(1) == input.size(1), "weight has shape ", weight.sizes(), "; expected ", input.size(1),
                " input channels");
    check_list("stride", stride, spatial, 1);
    check_list("padding", padding, spatial, 0);
    check_list("dilation", dilation, spatial, 1);
    check_shape("scale", scale, {weight.size(0)});
    if (bias.has_value()) check_shape("bias", *bias, {weight.size(0)});
    std::vector<int64_t> expected{input.size(0), weight.size(0)};
    for (int64_t i = 0; i < spatial; ++i) {
      const int64_t size = input.size(i + 2) + 2 * padding[i], kernel = dilation[i] * (weight.size(i + 2) - 1) + 1;
      TORCH_CHECK(size >= kernel, "weight has shape ", weight.sizes(), "; expected a kernel within the padded input ",
                  input.sizes());
      expected.push_back((size - kernel) / stride[i] + 1);
    }
    check_shape("output", output, expected);
  }

  // One image after the other: float32 has all sums of 1024 products, float64 those of any kernel.
  void run(Out output) const {
    const auto dtype = weight.numel() / weight.size(0) <= 1024 ? at::kFloat : at::kDouble;
    const at::Tensor kernels = weight.to(dtype);
    std::vector<int64_t> by_channel(input.dim(), 1);
    by_channel[1] = -1;
    const std::vector<int64_t> no_padding(stride.size(), 0);
    for (int64_t i = 0; i < input.size(0); ++i) {
      at::Tensor sums = at::convolution(input.narrow(0, i, 1).to(dtype), kernels, {}, stride, padding, dilation, false,
                                        no_padding, groups);
      sums = sums.to(at::kFloat) * scale.view(by_channel);
      if (bias.has_value()) sums = sums + bias->to(at::kFloat).view(by_channel);
      output.narrow(0, i, 1).copy_(sums);
    }
  }

 private:
  static void check_list(const char* name, Ints given, int64_t size, int64_t least) {
    TORCH_CHECK(static_cast<int64_t>(given.size()) == size, name, " is ", given, "; expected ", size, " numbers");
    check_values(name, given, least, 1000000);
  }
};

}  // namespace

// Only transposed convolutions have an output padding, and those are rejected.
ACLNN_TYPED_CHECKED(QuantConvolution,
                    "input, weight: int8; bias: float32 float16 bfloat16; scale: float32; output: float16 bfloat16",
                    [](Phase phase, In input, In weight, OptionalIn bias, In scale, Absent<"offset", OptionalIn>,
                       Ints stride, Ints padding, Ints dilation, bool transposed, Ignored<OptionalInts>, int64_t groups,
                       int32_t offset_x, Text round_mode, Out output) {
                      check_or_run(phase,
                                   QuantConvolution({input, weight, bias, scale, stride, padding, dilation, transposed,
                                                     groups, offset_x, round_mode}),
                                   output);
                    });
