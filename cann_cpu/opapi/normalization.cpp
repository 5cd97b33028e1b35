// SPDX-License-Identifier: Apache-2.0
// Layer, group, batch and root-mean-square normalisation, and their gradients.
#include <ATen/TensorOperators.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros_like.h>

#include <array>

#include "checks.h"
#include "normalization.h"

using namespace cann_cpu;

namespace {

std::array<bool, 3> three(at::ArrayRef<bool> mask) {
  TORCH_CHECK(mask.size() == 3, "the output mask has ", mask.size(), " elements instead of 3");
  return {mask[0], mask[1], mask[2]};
}

// ATen keeps the statistics in the dtype of the parameters, or of the input where there are none; torch_npu in float.
at::ScalarType statistics_dtype(const at::Tensor& input, const std::optional<at::Tensor>& weight) {
  return weight.has_value() ? weight->scalar_type() : input.scalar_type();
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> cann_cpu::rms_norm(const at::Tensor& x, const at::Tensor& gamma, double epsilon) {
  std::vector<int64_t> dims;
  for (int64_t i = x.dim() - gamma.dim(); i < x.dim(); ++i) dims.push_back(i);
  const auto wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  const auto rstd = at::rsqrt(wide.square().mean(dims, /*keepdim=*/true) + epsilon);
  return {wide * rstd * gamma, rstd};
}

std::vector<int64_t> cann_cpu::statistics_shape(const at::Tensor& x, const at::Tensor& gamma) {
  auto shape = x.sizes().vec();
  std::fill(shape.end() - std::min(gamma.dim(), x.dim()), shape.end(), 1);
  return shape;
}

void cann_cpu::check_normalized(const char* name, const at::Tensor& gamma, const char* x_name, const at::Tensor& x) {
  TORCH_CHECK(gamma.dim() > 0 && gamma.dim() <= x.dim() && gamma.sizes() == x.sizes().slice(x.dim() - gamma.dim()),
              name, " has shape ", gamma.sizes(), "; expected the last dimensions of ", x_name, ", ", x.sizes());
}

LayerNorm cann_cpu::layer_norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double epsilon) {
  auto [value, mean, rstd] = at::native_layer_norm(x.to(at::kFloat).contiguous(), gamma.sizes(), gamma.to(at::kFloat),
                                                   beta.to(at::kFloat), epsilon);
  return {value, mean, rstd};
}

RmsNormGradient cann_cpu::rms_norm_gradient(In dy, In x, In rstd, In gamma) {
  std::vector<int64_t> kept, summed;
  const int64_t split = x.dim() - gamma.dim();
  for (int64_t i = 0; i < x.dim(); ++i) (i < split ? summed : kept).push_back(i);
  const auto scale = rstd.reshape(statistics_shape(x, gamma));
  const auto grad = dy.to(scale.scalar_type()), normalized = x.to(scale.scalar_type()) * scale;
  const auto weighted = grad * gamma, product = grad * normalized;
  return {scale * (weighted - normalized * (weighted * normalized).mean(kept, /*keepdim=*/true)),
          summed.empty() ? product : product.sum(summed)};
}

namespace {

void write_layer_norm(In input, Ints normalized_shape, OptionalIn weight, OptionalIn bias, double eps, Out out,
                      OptionalOut mean, OptionalOut rstd) {
  auto [value, mean_value, rstd_value] = at::native_layer_norm(input, normalized_shape, weight, bias, eps);
  assign(out, value);
  if (mean.has_value()) assign(mean, mean_value.reshape(mean->sizes()));
  if (rstd.has_value()) assign(rstd, rstd_value.reshape(rstd->sizes()));
}

}  // namespace

ACLNN(LayerNorm,
      [](In input, Ints normalized_shape, OptionalIn weight, OptionalIn bias, double eps, Out out, OptionalOut mean,
         OptionalOut rstd) { write_layer_norm(input, normalized_shape, weight, bias, eps, out, mean, rstd); });
ACLNN_TYPED(FastLayerNorm,
            "input: float32 float16 bfloat16; weight: float32 float16 bfloat16; bias: float32 float16 bfloat16; "
            "out: as input; mean_out, rstd_out: float32 float16 bfloat16",
            [](In input, Ints normalized_shape, OptionalIn weight, OptionalIn bias, double eps, Out out,
               OptionalOut mean_out, OptionalOut rstd_out) {
              write_layer_norm(input, normalized_shape, weight, bias, eps, out, mean_out, rstd_out);
            });
ACLNN(LayerNormBackward,
      [](In grad, In input, Ints normalized_shape, In mean, In rstd, OptionalIn weight, OptionalIn bias, Bools mask,
         OptionalOut grad_input, OptionalOut grad_weight, OptionalOut grad_bias) {
        const auto dtype = statistics_dtype(input, weight);
        auto [input_value, weight_value, bias_value] = at::native_layer_norm_backward(
            grad, input, normalized_shape, mean.to(dtype), rstd.to(dtype), weight, bias, three(mask));
        assign(grad_input, input_value);
        assign(grad_weight, weight_value);
        assign(grad_bias, bias_value);
      });

ACLNN(GroupNorm, [](In input, OptionalIn weight, OptionalIn bias, int64_t n, int64_t c, int64_t hw, int64_t group,
                    double eps, Out out, Out mean, Out rstd) {
  auto [value, mean_value, rstd_value] = at::native_group_norm(input, weight, bias, n, c, hw, group, eps);
  assign(out, value);
  assign(mean, mean_value);
  assign(rstd, rstd_value);
});
ACLNN(GroupNormBackward, [](In grad, In input, In mean, In rstd, OptionalIn weight, int64_t n, int64_t c, int64_t hw,
                            int64_t group, Bools mask, OptionalOut grad_input, OptionalOut grad_weight,
                            OptionalOut grad_bias) {
  const auto dtype = statistics_dtype(input, weight);
  auto [input_value, weight_value, bias_value] = at::native_group_norm_backward(
      grad.contiguous(), input.contiguous(), mean.to(dtype), rstd.to(dtype), weight, n, c, hw, group, three(mask));
  assign(grad_input, input_value);
  assign(grad_weight, weight_value);
  assign(grad_bias, bias_value);
});

ACLNN(BatchNorm,
      [](In input, OptionalIn weight, OptionalIn bias, OptionalOut running_mean, OptionalOut running_var, bool training,
         double momentum, double eps, Out out, OptionalOut save_mean, OptionalOut save_invstd) {
        auto [value, mean_value, invstd_value] =
            at::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
        assign(out, value);
        if (!training) {  // ATen gives no statistics, and eager asks for none: those that were given
          if (!save_mean.has_value() || save_mean->numel() == 0) return;
          mean_value = running_mean.value();
          invstd_value = at::rsqrt(running_var.value() + eps);
        }
        assign(save_mean, mean_value);
        assign(save_invstd, invstd_value);
      });
ACLNN(BatchNormBackward, [](In grad, In input, OptionalIn weight, OptionalIn running_mean, OptionalIn running_var,
                            OptionalIn save_mean, OptionalIn save_invstd, bool training, double eps, Bools mask,
                            OptionalOut grad_input, OptionalOut grad_weight, OptionalOut grad_bias) {
  auto [input_value, weight_value, bias_value] = at::native_batch_norm_backward(
      grad, input, weight, running_mean, running_var, save_mean, save_invstd, training, eps, three(mask));
  assign(grad_input, input_value);
  assign(grad_weight, weight_value);
  assign(grad_bias, bias_value);
});

ACLNN(RmsNorm, [](In x, In gamma, double epsilon, Out out, Out rstd) {
  auto [value, rstd_value] = rms_norm(x, gamma, epsilon);
  assign(out, value);
  assign(rstd, rstd_value.reshape(rstd.sizes()));
});
ACLNN(AddRmsNorm, [](In x1, In x2, In gamma, double epsilon, Out out, Out rstd, Out sum) {
  assign(sum, x1 + x2);
  auto [value, rstd_value] = rms_norm(sum, gamma, epsilon);
  assign(out, value);
  assign(rstd, rstd_value.reshape(rstd.sizes()));
});
// vllm-ascend's own: AddRmsNorm, then a bias that may be missing.
ACLNN_TYPED(AddRmsNormBias, "x1: float32 float16 bfloat16; x2, gamma, beta, y, x: as x1; rstd: float32",
            [](In x1, In x2, In gamma, OptionalIn beta, double epsilon, Out y, Out rstd, Out x) {
              check_shape("x2", x2, x1.sizes());
              check_normalized("gamma", gamma, "x1", x1);
              if (beta.has_value()) check_shape("beta", *beta, gamma.sizes());
              assign(x, x1 + x2);
              auto [value, rstd_value] = rms_norm(x, gamma, epsilon);
              assign(y, beta.has_value() ? value + beta->to(value.scalar_type()) : value);
              assign(rstd, rstd_value.reshape(rstd.sizes()));
            });
ACLNN(RmsNormGrad, [](In grad, In x, In rstd, In gamma, Out grad_x, Out grad_gamma) {
  const RmsNormGradient gradient = rms_norm_gradient(grad, x, rstd, gamma);
  assign(grad_x, gradient.x);
  assign(grad_gamma, gradient.gamma);
});

// The sum is normalised before it is rounded.
ACLNN_TYPED(AddRmsNormCast, "x1: float16 bfloat16; x2, gamma: as x1; y1_out, rstd_out: float32; y2_out, x_out: as x1",
            [](In x1, In x2, In gamma, double epsilon, Out y1_out, Out y2_out, Out rstd_out, Out x_out) {
              check_shape("x2", x2, x1.sizes());
              check_normalized("gamma", gamma, "x1", x1);
              const at::Tensor sum = x1.to(at::kFloat) + x2.to(at::kFloat);
              auto [value, rstd] = rms_norm(sum, gamma, epsilon);
              assign(y1_out, value);
              assign(y2_out, value);
              assign(x_out, sum);
              assign(rstd_out, rstd);
            });
ACLNN_TYPED(InplaceAddRmsNorm, "x1: float32 float16 bfloat16; x2, gamma: as x1; rstd_out: float32",
            [](InOut x1, InOut x2, In gamma, double epsilon, Out rstd_out) {
              check_shape("x2", x2, x1.sizes());
              check_normalized("gamma", gamma, "x1", x1);
              x2.copy_(x1 + x2);
              auto [value, rstd] = rms_norm(x2, gamma, epsilon);
              x1.copy_(value);
              assign(rstd_out, rstd);
            });
ACLNN_TYPED(GemmaRmsNorm, "x: float32 float16 bfloat16; gamma, y_out: as x; rstd_out: float32",
            [](In x, In gamma, double epsilon, Out y_out, Out rstd_out) {
              check_normalized("gamma", gamma, "x", x);
              auto [value, rstd] = rms_norm(x, gamma.to(at::kFloat) + at::Scalar(1), epsilon);
              assign(y_out, value);
              assign(rstd_out, rstd.reshape(rstd_out.sizes()));
            });

ACLNN_TYPED(AddLayerNorm,
            "x1, x2, gamma: float32 float16 bfloat16; beta: as gamma; bias: float32 float16 bfloat16; "
            "y_out: float32 float16 bfloat16; mean_out, rstd_out: float32; x_out: as y_out",
            [](In x1, In x2, In gamma, In beta, OptionalIn bias, double epsilon, bool additional_output, Out y_out,
               Out mean_out, Out rstd_out, OptionalOut x_out) {
              check_shape("x2", x2, x1.sizes());
              check_normalized("gamma", gamma, "x1", x1);
              check_shape("beta", beta, gamma.sizes());
              const auto dtype = x1.scalar_type() == x2.scalar_type() ? x1.scalar_type() : at::kFloat;
              TORCH_CHECK(y_out.scalar_type() == dtype, "y_out has dtype ", y_out.scalar_type(), "; expected ", dtype,
                          ", since x1 has dtype ", x1.scalar_type(), " and x2 ", x2.scalar_type());
              at::Tensor sum = x1.to(at::kFloat) + x2.to(at::kFloat);
              if (bias.has_value()) {
                TORCH_CHECK(bias->sizes() == gamma.sizes() || bias->sizes() == x1.sizes(), "bias has shape ",
                            bias->sizes(), "; expected ", gamma.sizes(), " as gamma, or ", x1.sizes(), " as x1");
                sum = sum + bias->to(at::kFloat);
              }
              const LayerNorm result = layer_norm(sum, gamma, beta, epsilon);
              assign(y_out, result.value);
              assign(mean_out, result.mean.reshape(mean_out.sizes()));
              assign(rstd_out, result.rstd.reshape(rstd_out.sizes()));
              if (!additional_output) return;
              TORCH_CHECK(x_out.has_value(), "x_out is null; expected a tensor, since additional_output is true");
              assign(*x_out, sum);
            });

namespace {

// The gradients of a layer normalisation of x, in float, by x, gamma and beta.
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_gradient(In dy, In x, In mean, In rstd, In gamma) {
  const auto shape = statistics_shape(x, gamma);
  return at::native_layer_norm_backward(dy.to(at::kFloat).contiguous(), x.contiguous(), gamma.sizes(),
                                        mean.reshape(shape).contiguous(), rstd.reshape(shape).contiguous(),
                                        gamma.to(at::kFloat), at::zeros_like(gamma, at::kFloat), {true, true, true});
}

}  // namespace

ACLNN_TYPED(AddLayerNormGrad,
            "dy: float32 float16 bfloat16; x1, x2, gamma, dsum: as dy; rstd, mean: float32; dx_out: as dy; "
            "dgamma_out, dbeta_out: float32",
            [](In dy, In x1, In x2, In rstd, In mean, In gamma, OptionalIn dsum, Out dx_out, Out dgamma_out,
               Out dbeta_out) {
              check_shape("x1", x1, dy.sizes());
              check_shape("x2", x2, dy.sizes());
              check_normalized("gamma", gamma, "x1", x1);
              auto [dx, dgamma, dbeta] =
                  layer_norm_gradient(dy, x1.to(at::kFloat) + x2.to(at::kFloat), mean, rstd, gamma);
              if (dsum.has_value()) {
                check_shape("dsum", *dsum, dy.sizes());
                dx += *dsum;
              }
              assign(dx_out, dx);
              assign(dgamma_out, dgamma);
              assign(dbeta_out, dbeta);
            });

ACLNN_TYPED(DeepNorm, "x: float32 float16 bfloat16; gx, beta, gamma: as x; mean_out, rstd_out: float32; y_out: as x",
            [](In x, In gx, In beta, In gamma, double alpha, double epsilon, Out mean_out, Out rstd_out, Out y_out) {
              check_shape("gx", gx, x.sizes());
              check_normalized("gamma", gamma, "x", x);
              check_shape("beta", beta, gamma.sizes());
              const at::Tensor sum = x.to(at::kFloat) * at::Scalar(alpha) + gx.to(at::kFloat);
              const LayerNorm result = layer_norm(sum, gamma, beta, epsilon);
              assign(y_out, result.value);
              assign(mean_out, result.mean.reshape(mean_out.sizes()));
              assign(rstd_out, result.rstd.reshape(rstd_out.sizes()));
            });
ACLNN_TYPED(DeepNormGrad,
            "dy: float32 float16 bfloat16; x, gx, gamma: as dy; mean, rstd: float32; dx_out, dgx_out: as dy; "
            "dbeta_out, dgamma_out: float32",
            [](In dy, In x, In gx, In gamma, In mean, In rstd, double alpha, Out dx_out, Out dgx_out, Out dbeta_out,
               Out dgamma_out) {
              check_shape("x", x, dy.sizes());
              check_shape("gx", gx, dy.sizes());
              check_normalized("gamma", gamma, "x", x);
              const at::Tensor sum = x.to(at::kFloat) * at::Scalar(alpha) + gx.to(at::kFloat);
              auto [dgx, dgamma, dbeta] = layer_norm_gradient(dy, sum, mean, rstd, gamma);
              assign(dgx_out, dgx);
              assign(dx_out, dgx * at::Scalar(alpha));
              assign(dgamma_out, dgamma);
              assign(dbeta_out, dbeta);
            });

namespace {

struct GroupNorm {
  at::Tensor value, mean, rstd;  // in float
};

// Gamma and beta may be absent.
GroupNorm group_norm(In x, OptionalIn gamma, OptionalIn beta, int64_t groups, double epsilon) {
  TORCH_CHECK(x.dim() >= 2 && x.dim() <= 8, "x has shape ", x.sizes(), "; expected 2 to 8 dimensions");
  TORCH_CHECK(groups > 0 && x.size(1) % groups == 0, "group is ", groups, "; expected a divisor of ", x.size(1),
              ", the second dimension of x");
  const auto wide = [&](const char* name, OptionalIn vector) -> std::optional<at::Tensor> {
    if (!vector.has_value()) return std::nullopt;
    check_shape(name, *vector, {x.size(1)});
    return vector->to(at::kFloat);
  };
  const int64_t area = x.numel() == 0 ? 0 : x.numel() / x.size(0) / x.size(1);
  auto [value, mean, rstd] = at::native_group_norm(x.to(at::kFloat).contiguous(), wide("gamma", gamma),
                                                   wide("beta", beta), x.size(0), x.size(1), area, groups, epsilon);
  return {value, mean, rstd};
}

void check_data_format(Text data_format) {
  TORCH_CHECK(data_format == "NCHW" || data_format.empty(), "data_format is '", data_format, "'; expected NCHW");
}

}  // namespace

ACLNN_TYPED(GroupNormSilu,
            "self: float32 float16 bfloat16; gamma, beta: float32 float16 bfloat16; out: as self; "
            "mean_out, rstd_out: float32 float16 bfloat16",
            [](In self, OptionalIn gamma, OptionalIn beta, int64_t group, double eps, Out out, Out mean_out,
               Out rstd_out) {
              TORCH_CHECK(eps > 0, "eps is ", eps, "; expected more than 0");
              const GroupNorm result = group_norm(self, gamma, beta, group, eps);
              assign(out, at::silu(result.value));
              assign(mean_out, result.mean);
              assign(rstd_out, result.rstd);
            });
ACLNN_TYPED(GroupNormSwish,
            "x: float32 float16 bfloat16; gamma: float32 float16 bfloat16; beta: as gamma; y_out: as x; "
            "mean_out, rstd_out: as gamma",
            [](In x, In gamma, In beta, int64_t num_groups, Text data_format, double eps, bool activate_swish,
               double swish_scale, Out y_out, Out mean_out, Out rstd_out) {
              check_data_format(data_format);
              const GroupNorm result = group_norm(x, gamma, beta, num_groups, eps);
              const at::Tensor& value = result.value;
              assign(y_out, activate_swish ? value * at::sigmoid(value * at::Scalar(swish_scale)) : value);
              assign(mean_out, result.mean);
              assign(rstd_out, result.rstd);
            });
ACLNN_TYPED(
    GroupNormSwishGrad,
    "dy: float32 float16 bfloat16; mean, rstd, gamma: float32 float16 bfloat16; x: as dy; beta: as gamma; "
    "dx_out: as dy; dgamma_out, dbeta_out: as gamma",
    [](In dy, In mean, In rstd, In x, In gamma, In beta, int64_t num_groups, Text data_format, double swish_scale,
       bool dgamma_is_require, bool dbeta_is_require, Out dx_out, OptionalOut dgamma_out, OptionalOut dbeta_out) {
      check_data_format(data_format);
      check_shape("x", x, dy.sizes());
      TORCH_CHECK(x.dim() >= 2 && num_groups > 0 && x.size(1) % num_groups == 0 && x.size(1) / num_groups <= 4000,
                  "num_groups is ", num_groups, "; expected a divisor of the second dimension of x, ", x.sizes());
      check_shape("gamma", gamma, {x.size(1)});
      check_shape("beta", beta, {x.size(1)});
      const int64_t n = x.size(0), c = x.size(1), area = x.numel() == 0 ? 0 : x.numel() / n / c;
      std::vector<int64_t> by_channel(x.dim(), 1);
      by_channel[1] = c;
      const at::Tensor wide = x.to(at::kFloat).contiguous(), scale = gamma.to(at::kFloat);
      const at::Tensor mean_of = mean.to(at::kFloat).reshape({n, num_groups}).contiguous();
      const at::Tensor rstd_of = rstd.to(at::kFloat).reshape({n, num_groups}).contiguous();
      const at::Tensor normalized = (wide.reshape({n, num_groups, -1}) - mean_of.unsqueeze(2)) * rstd_of.unsqueeze(2);
      const at::Tensor value =
          normalized.reshape(x.sizes()) * scale.reshape(by_channel) + beta.to(at::kFloat).reshape(by_channel);
      const at::Tensor scaled = value * at::Scalar(swish_scale), sigmoid = at::sigmoid(scaled);
      const at::Tensor grad = dy.to(at::kFloat) * sigmoid * (scaled * (at::Scalar(1) - sigmoid) + at::Scalar(1));
      auto [dx, dgamma, dbeta] = at::native_group_norm_backward(grad.contiguous(), wide, mean_of, rstd_of, scale, n, c,
                                                                area, num_groups, {true, true, true});
      assign(dx_out, dx);
      if (dgamma_is_require) assign(dgamma_out, dgamma);
      if (dbeta_is_require) assign(dbeta_out, dbeta);
    });
