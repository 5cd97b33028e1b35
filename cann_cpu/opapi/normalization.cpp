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

#include <array>

#include "table.h"

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

// y = x * rstd * gamma with rstd = 1 / sqrt(mean(x ^ 2) + epsilon) over the dimensions of gamma, in float.
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& gamma, double epsilon) {
  std::vector<int64_t> dims;
  for (int64_t i = x.dim() - gamma.dim(); i < x.dim(); ++i) dims.push_back(i);
  const auto wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  const auto rstd = at::rsqrt(wide.square().mean(dims, /*keepdim=*/true) + epsilon);
  return {wide * rstd * gamma, rstd};
}

}  // namespace

ACLNN(LayerNorm, [](In input, Ints normalized_shape, OptionalIn weight, OptionalIn bias, double eps, Out out,
                    OptionalOut mean, OptionalOut rstd) {
  auto [value, mean_value, rstd_value] = at::native_layer_norm(input, normalized_shape, weight, bias, eps);
  assign(out, value);
  if (mean.has_value()) assign(mean, mean_value.reshape(mean->sizes()));
  if (rstd.has_value()) assign(rstd, rstd_value.reshape(rstd->sizes()));
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
// With n = x * rstd: dgamma = sum(dy * n), dx = rstd * (dy * gamma - n * mean(dy * gamma * n)).
ACLNN(RmsNormGrad, [](In grad, In x, In rstd, In gamma, Out grad_x, Out grad_gamma) {
  std::vector<int64_t> kept, summed;
  const int64_t split = x.dim() - gamma.dim();
  for (int64_t i = 0; i < x.dim(); ++i) (i < split ? summed : kept).push_back(i);
  std::vector<int64_t> rstd_shape(x.sizes().begin(), x.sizes().begin() + split);
  rstd_shape.resize(x.dim(), 1);
  const auto scale = rstd.reshape(rstd_shape);
  const auto normalized = x.to(scale.scalar_type()) * scale;
  const auto weighted = grad.to(scale.scalar_type()) * gamma;
  assign(grad_x, scale * (weighted - normalized * (weighted * normalized).mean(kept, /*keepdim=*/true)));
  const auto product = grad.to(scale.scalar_type()) * normalized;
  assign(grad_gamma, summed.empty() ? product : product.sum(summed));
});
