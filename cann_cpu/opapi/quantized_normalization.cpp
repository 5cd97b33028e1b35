// SPDX-License-Identifier: Apache-2.0
// Root-mean-square normalisation whose result is quantised.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "checks.h"
#include "normalization.h"
#include "quantization.h"

using namespace cann_cpu;

namespace {

// The rows of x normalised, with beta added, in float, and 1 / rms of each.
std::tuple<at::Tensor, at::Tensor> normalized(In rows, In gamma, OptionalIn beta, double epsilon) {
  auto [value, rstd] = rms_norm(rows, gamma.reshape({-1}).to(at::kFloat), epsilon);
  if (beta.has_value()) value += beta->reshape({-1}).to(at::kFloat);
  return {value, rstd};
}

// A vector for the columns of x, or a matrix of one row.
void check_columns(const char* name, In vector, In x, bool may_be_one) {
  const int64_t columns = x.dim() > 0 ? x.size(-1) : 1;
  TORCH_CHECK(vector.sizes() == at::IntArrayRef({columns}) ||
                  (!may_be_one && vector.sizes() == at::IntArrayRef({1, columns})) ||
                  (may_be_one && vector.sizes() == at::IntArrayRef({1})),
              name, " has shape ", vector.sizes(), "; expected [", columns, "] or ",
              may_be_one ? "[1]" : "one row of them", ", as x has shape ", x.sizes());
}

// value * scale + offset or value / scale + offset, rounded and saturated.
at::Tensor with_scale(In value, In scale, OptionalIn offset, bool divides, at::ScalarType dtype) {
  const at::Tensor factor = scale.reshape({-1}).to(at::kFloat);
  at::Tensor scaled = divides ? value / factor : value * factor;
  if (offset.has_value()) scaled += offset->reshape({-1}).to(at::kFloat);
  return saturated(scaled, dtype);
}

}  // namespace

void QuantizedRmsNorm::check() const {
  check_range("the number of dimensions of x", x.dim(), 1, 8);
  check_columns("gamma", gamma, x, false);
  if (beta.has_value()) check_columns("beta", *beta, x, false);
  check_columns("scale", scale, x, true);
  if (offset.has_value()) check_shape("offset", *offset, scale.sizes());
  check_quantized_shape("y", y, x.sizes());
  if (rstd.has_value()) {
    auto shape = x.sizes().vec();
    shape.back() = 1;
    check_shape("rstd", *rstd, shape);
  }
}

void QuantizedRmsNorm::run() const {
  const at::Tensor rows = as_rows(x);
  const RowsOut out(y);
  const at::Tensor rstds = at::empty({rows.size(0), 1}, rows.options().dtype(at::kFloat));
  in_blocks(rows.size(0), rows.size(1), [&](int64_t begin, int64_t count) {
    auto [value, part] = normalized(rows.narrow(0, begin, count), gamma, beta, epsilon);
    assign_quantized(out.part(begin, count), with_scale(value, scale, offset, divides, quantized_dtype(y)));
    rstds.narrow(0, begin, count).copy_(part);
  });
  out.stored();
  if (rstd.has_value()) rstd->copy_(rstds.view(rstd->sizes()));
}

namespace {

void check_and_run(const QuantizedRmsNorm& norm) {
  norm.check();
  norm.run();
}

}  // namespace

ACLNN_TYPED(RmsNormQuant,
            "x: float16 bfloat16; gamma, beta, scale: as x; offset: int8; y: int8 int32 float8_e5m2 float8_e4m3fn",
            [](In x, In gamma, In beta, In scale, In offset, double epsilon, Out y) {
              check_shape("scale", scale, {1});
              check_and_run({x, gamma, beta, scale, offset, epsilon, /*divides=*/true, y, std::nullopt});
            });
ACLNN_TYPED(RmsNormQuantV3,
            "x: float32 float16 bfloat16; gamma, beta: as x; scale: float32 float16 bfloat16; "
            "offset: int8 int32 float32 float16 bfloat16; y: int8 int32 float8_e5m2 float8_e4m3fn; rstd: float32",
            [](In x, In gamma, In scale, OptionalIn offset, OptionalIn beta, double epsilon, bool div_mode,
               bool output_rstd, Out y, OptionalOut rstd) {
              TORCH_CHECK(!output_rstd || rstd.has_value(),
                          "rstd is null; expected a tensor, since output_rstd is true");
              check_and_run({x, gamma, beta, scale, offset, epsilon, div_mode, y,
                             output_rstd ? rstd : std::optional<at::Tensor>()});
            });

namespace {

// x = x1 + x2 of some rows, rounded to its dtype.
at::Tensor write_sum(In x1, In x2, const RowsOut& out, int64_t begin, int64_t count) {
  const at::Tensor sum = x1.narrow(0, begin, count) + x2.narrow(0, begin, count);
  out.part(begin, count).copy_(sum);
  return sum;
}

struct AddRmsNormQuantArguments {
  In x1, x2, gamma, scales1;
  OptionalIn scales2, zero_points1, zero_points2, beta;
  int64_t axis;
  double epsilon;
  bool div_mode;
  Out y1, y2, x_out;
  OptionalOut rms_norm_out;

  void run() {
    check_range("the number of dimensions of x1", x1.dim(), 1, 8);
    check_shape("x2", x2, x1.sizes());
    check_normalized("gamma", gamma, "x1", x1);
    check_shape("scales1", scales1, gamma.sizes());
    check_vector("scales2", scales2);
    check_vector("zero_points1", zero_points1);
    check_vector("zero_points2", zero_points2);
    check_vector("beta", beta);
    TORCH_CHECK(scales2.has_value() || !zero_points2.has_value(),
                "zero_points2 is given; expected null, as scales2 is");
    TORCH_CHECK(axis == -1, "axis is ", axis, "; expected -1");
    TORCH_CHECK(div_mode, "div_mode is false; expected true");
    check_shape("y1_out", y1, x1.sizes());
    if (scales2.has_value()) check_shape("y2_out", y2, x1.sizes());
    check_shape("x_out", x_out, x1.sizes());
    if (rms_norm_out.has_value()) check_shape("rms_norm_out", *rms_norm_out, x1.sizes());
    const int64_t columns = gamma.numel(), count_of_rows = columns == 0 ? 0 : x1.numel() / columns;
    const auto rows_of = [&](const at::Tensor& t) { return t.reshape({count_of_rows, columns}); };
    const at::Tensor first = rows_of(x1), second = rows_of(x2);
    const at::Tensor out1 = at::empty({count_of_rows, columns}, y1.options());
    const at::Tensor out2 = scales2.has_value() ? at::empty_like(out1) : at::Tensor();
    const at::Tensor sums = at::empty({count_of_rows, columns}, x_out.options());
    const at::Tensor norms = rms_norm_out.has_value() ? at::empty_like(sums) : at::Tensor();
    in_blocks(count_of_rows, columns, [&](int64_t begin, int64_t count) {
      const at::Tensor sum = first.narrow(0, begin, count) + second.narrow(0, begin, count);
      sums.narrow(0, begin, count).copy_(sum);
      auto [value, rstd] = normalized(sum, gamma, std::nullopt, epsilon);
      if (norms.defined()) norms.narrow(0, begin, count).copy_(value);
      if (beta.has_value()) value += beta->reshape({-1}).to(at::kFloat);
      const auto dtype = y1.scalar_type();
      out1.narrow(0, begin, count).copy_(with_scale(value, scales1, zero_points1, div_mode, dtype));
      if (out2.defined())
        out2.narrow(0, begin, count).copy_(with_scale(value, *scales2, zero_points2, div_mode, dtype));
    });
    y1.copy_(out1.view(y1.sizes()));
    if (out2.defined())
      y2.copy_(out2.view(y2.sizes()));
    else
      y2.zero_();
    x_out.copy_(sums.view(x_out.sizes()));
    if (norms.defined()) rms_norm_out->copy_(norms.view(rms_norm_out->sizes()));
  }

  void check_vector(const char* name, OptionalIn vector) const {
    if (vector.has_value()) check_shape(name, *vector, gamma.sizes());
  }
};

constexpr const char* kAddRmsNormQuant =
    "x1: float16 bfloat16; x2, gamma: as x1; scales1: float32 bfloat16; scales2: as scales1; "
    "zero_points1, zero_points2: int32 bfloat16; y1_out, y2_out: int8; x_out: as x1";
constexpr const char* kAddRmsNormQuantV2 =
    "x1: float16 bfloat16; x2, gamma, beta: as x1; scales1: float32 bfloat16; scales2: as scales1; "
    "zero_points1, zero_points2: int32 bfloat16; y1_out, y2_out: int8; x_out, rms_norm_out: as x1";

const std::optional<at::Tensor> kNoBeta;

}  // namespace

ACLNN_TYPED(AddRmsNormQuant, kAddRmsNormQuant,
            [](In x1, In x2, In gamma, In scales1, OptionalIn scales2, OptionalIn zero_points1, OptionalIn zero_points2,
               int64_t axis, double epsilon, bool div_mode, Out y1_out, Out y2_out, Out x_out) {
              std::optional<at::Tensor> no_norm;
              AddRmsNormQuantArguments{x1,   x2,      gamma,    scales1, scales2, zero_points1, zero_points2, kNoBeta,
                                       axis, epsilon, div_mode, y1_out,  y2_out,  x_out,        no_norm}
                  .run();
            });
ACLNN_TYPED(AddRmsNormQuantV2, kAddRmsNormQuantV2,
            [](In x1, In x2, In gamma, In scales1, OptionalIn scales2, OptionalIn zero_points1, OptionalIn zero_points2,
               OptionalIn beta, int64_t axis, double epsilon, bool div_mode, Out y1_out, Out y2_out, Out x_out,
               OptionalOut rms_norm_out) {
              AddRmsNormQuantArguments{x1,   x2,      gamma,    scales1, scales2, zero_points1, zero_points2, beta,
                                       axis, epsilon, div_mode, y1_out,  y2_out,  x_out,        rms_norm_out}
                  .run();
            });

// Without a mask, there is a second result where both smooth scales are given. A result that the mask leaves out is not
// written.
ACLNN_TYPED(AddRmsNormDynamicQuantV2,
            "x1: float16 bfloat16; x2, gamma, smooth_scale1, smooth_scale2, beta: as x1; "
            "y1_out: int8 int32 float8_e5m2 float8_e4m3fn; y2_out: as y1_out; x_out: as x1; "
            "scale1_out, scale2_out: float32",
            [](In x1, In x2, In gamma, OptionalIn smooth_scale1, OptionalIn smooth_scale2, OptionalIn beta,
               double epsilon, std::optional<Bools> output_mask, Out y1_out, Out y2_out, Out x_out, Out scale1_out,
               Out scale2_out) {
              check_range("the number of dimensions of x1", x1.dim(), 2, 8);
              check_shape("x2", x2, x1.sizes());
              check_shape("gamma", gamma, {x1.size(-1)});
              if (smooth_scale1.has_value()) check_shape("smooth_scale1", *smooth_scale1, gamma.sizes());
              if (smooth_scale2.has_value()) check_shape("smooth_scale2", *smooth_scale2, gamma.sizes());
              if (beta.has_value()) check_shape("beta", *beta, gamma.sizes());
              check_shape("x_out", x_out, x1.sizes());
              TORCH_CHECK(!output_mask.has_value() || output_mask->size() == 2, "output_mask has ",
                          output_mask.has_value() ? output_mask->size() : 0, " elements; expected 2");
              struct Result {
                const char *y_name, *scale_name;
                bool given;
                OptionalIn smooth_scale;
                Out y, scale;
                at::Tensor values, scales;
              };
              const bool both = smooth_scale1.has_value() && smooth_scale2.has_value();
              Result results[] = {{"y1_out",
                                   "scale1_out",
                                   output_mask.has_value() ? (*output_mask)[0] : true,
                                   smooth_scale1,
                                   y1_out,
                                   scale1_out,
                                   {},
                                   {}},
                                  {"y2_out",
                                   "scale2_out",
                                   output_mask.has_value() ? (*output_mask)[1] : both,
                                   smooth_scale2,
                                   y2_out,
                                   scale2_out,
                                   {},
                                   {}}};
              const at::Tensor first = as_rows(x1), second = as_rows(x2);
              const int64_t rows = first.size(0);
              for (Result& result : results) {
                if (!result.given) continue;
                check_quantized_shape(result.y_name, result.y, x1.sizes());
                TORCH_CHECK(result.scale.numel() == rows, result.scale_name, " has shape ", result.scale.sizes(),
                            "; expected an element for each of ", rows, " rows");
                result.values = at::empty({rows, result.y.size(-1)}, result.y.options());
                result.scales = at::empty({rows}, result.scale.options());
              }
              const RowsOut sums(x_out);
              in_blocks(rows, first.size(1), [&](int64_t begin, int64_t count) {
                const at::Tensor sum = write_sum(first, second, sums, begin, count);
                const auto [value, rstd] = normalized(sum, gamma, beta, epsilon);
                for (Result& result : results) {
                  if (!result.given) continue;
                  const bool smooth = result.smooth_scale.has_value();
                  const Dynamic dynamic = dynamically_quantized(
                      smooth ? value * result.smooth_scale->to(at::kFloat) : value, quantized_dtype(result.y));
                  assign_quantized(result.values.narrow(0, begin, count), dynamic.values);
                  result.scales.narrow(0, begin, count).copy_(dynamic.scale);
                }
              });
              sums.stored();
              for (Result& result : results) {
                if (!result.given) continue;
                result.y.copy_(result.values.view(result.y.sizes()));
                result.scale.copy_(result.scales.view(result.scale.sizes()));
              }
            });

ACLNN_TYPED(RmsNormGradQuant,
            "dy: float32 float16 bfloat16; x: as dy; rstd: float32; gamma, scales_x: float32 float16 bfloat16; "
            "offset_x: int32; dx_out: int8; dgamma_out: float32",
            [](In dy, In x, In rstd, In gamma, In scales_x, OptionalIn offset_x, Text quant_mode, bool div_mode,
               Out dx_out, Out dgamma_out) {
              check_range("the number of dimensions of dy", dy.dim(), 2, 8);
              check_shape("x", x, dy.sizes());
              check_normalized("gamma", gamma, "x", x);
              check_shape("scales_x", scales_x, {1});
              if (offset_x.has_value()) check_shape("offset_x", *offset_x, {1});
              TORCH_CHECK(quant_mode == "static", "quant_mode is '", quant_mode, "'; expected static");
              const RmsNormGradient gradient = rms_norm_gradient(dy, x, rstd, gamma.to(at::kFloat));
              assign(dx_out, with_scale(gradient.x, scales_x, offset_x, div_mode, dx_out.scalar_type()));
              assign(dgamma_out, gradient.gamma);
            });
