// SPDX-License-Identifier: Apache-2.0
// Activation functions, softmax, and their gradients.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "checks.h"

using namespace cann_cpu;

UNARY(Relu, relu);
UNARY(Sigmoid, sigmoid);
UNARY(Tanh, tanh);
UNARY(Hardsigmoid, hardsigmoid);
UNARY(Hardswish, hardswish);
UNARY(Mish, mish);
ACLNN(Silu, [](In self, Out out) { at::silu_out(out, self); });
ACLNN(SiluBackward, [](In grad, In self, Out out) { at::silu_backward_out(out, grad, self); });
ACLNN(SigmoidBackward, [](In grad, In output, Out out) { at::sigmoid_backward_out(out, grad, output); });
ACLNN(TanhBackward, [](In grad, In output, Out out) { at::tanh_backward_out(out, grad, output); });
ACLNN(HardsigmoidBackward, [](In grad, In self, Out out) { at::hardsigmoid_backward_out(out, grad, self); });
ACLNN(HardswishBackward, [](In grad, In self, Out out) { assign(out, at::hardswish_backward(grad, self)); });
ACLNN(HardswishBackwardV2, [](In grad, In self, Out out) { assign(out, at::hardswish_backward(grad, self)); });
ACLNN(MishBackward, [](In grad, In self, Out out) { assign(out, at::mish_backward(grad, self)); });

// x * sigmoid(1.702 x)
ACLNN(FastGelu, [](In self, Out out) {
  const auto x = in_float(self);
  assign(out, x * at::sigmoid(x * at::Scalar(1.702)));
});
ACLNN(FastGeluBackward, [](In grad, In self, Out out) {
  const auto x = in_float(self) * at::Scalar(1.702);
  const auto sigmoid = at::sigmoid(x);
  assign(out, in_float(grad) * sigmoid * (x * (at::Scalar(1) - sigmoid) + at::Scalar(1)));
});

ACLNN(Threshold,
      [](In self, Scalar threshold, Scalar value, Out out) { at::threshold_out(out, self, threshold, value); });
ACLNN(InplaceThreshold, [](Out self, Scalar threshold, Scalar value) { at::threshold_(self, threshold, value); });
ACLNN(ThresholdBackward,
      [](In grad, In self, Scalar threshold, Out out) { at::threshold_backward_out(out, grad, self, threshold); });
ACLNN(LeakyRelu, [](In self, Scalar slope, Out out) { at::leaky_relu_out(out, self, slope); });
ACLNN(InplaceLeakyRelu, [](Out self, Scalar slope) { at::leaky_relu_(self, slope); });
ACLNN(LeakyReluBackward, [](In grad, In self, Scalar slope, bool self_is_result, Out out) {
  at::leaky_relu_backward_out(out, grad, self, slope, self_is_result);
});
ACLNN(Hardtanh, [](In self, Scalar min, Scalar max, Out out) { at::hardtanh_out(out, self, min, max); });
ACLNN(InplaceHardtanh, [](Out self, Scalar min, Scalar max) { at::hardtanh_(self, min, max); });
ACLNN(HardtanhBackward,
      [](In grad, In self, Scalar min, Scalar max, Out out) { at::hardtanh_backward_out(out, grad, self, min, max); });
ACLNN(Elu, [](In self, Scalar alpha, Scalar scale, Scalar input_scale, Out out) {
  at::elu_out(out, self, alpha, scale, input_scale);
});
ACLNN(InplaceElu,
      [](Out self, Scalar alpha, Scalar scale, Scalar input_scale) { at::elu_(self, alpha, scale, input_scale); });
ACLNN(EluBackward, [](In grad, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, In self, Out out) {
  at::elu_backward_out(out, grad, alpha, scale, input_scale, is_result, self);
});
ACLNN(Celu, [](In self, Scalar alpha, Out out) { assign(out, at::celu(self, alpha)); });
ACLNN(InplaceCelu, [](Out self, Scalar alpha) { at::celu_(self, alpha); });
ACLNN(Softplus, [](In self, Scalar beta, Scalar threshold, Out out) { at::softplus_out(out, self, beta, threshold); });
ACLNN(SoftplusBackward, [](In grad, In self, Scalar beta, Scalar threshold, Out out) {
  at::softplus_backward_out(out, grad, self, beta, threshold);
});
ACLNN(Softshrink, [](In self, Scalar lambd, Out out) { at::softshrink_out(out, self, lambd); });
ACLNN(SoftshrinkBackward,
      [](In grad, In self, Scalar lambd, Out out) { at::softshrink_backward_out(out, grad, self, lambd); });
ACLNN(Hardshrink, [](In self, Scalar lambd, Out out) { at::hardshrink_out(out, self, lambd); });
ACLNN(HardshrinkBackward,
      [](In grad, In self, Scalar lambd, Out out) { at::hardshrink_backward_out(out, grad, self, lambd); });
namespace {

// A weight for each channel, dimension 1, may come as a vector.
at::Tensor by_channel(In weight, In self) {
  if (weight.dim() != 1 || weight.numel() == 1 || self.dim() < 2) return weight;
  std::vector<int64_t> shape(self.dim(), 1);
  shape[1] = weight.numel();
  return weight.reshape(shape);
}

}  // namespace

ACLNN(Prelu, [](In self, In weight, Out out) { assign(out, at::_prelu_kernel(self, by_channel(weight, self))); });
ACLNN(PreluBackward, [](In grad, In self, In weight, Out grad_self, Out grad_weight) {
  const auto shaped = by_channel(weight, self);
  auto [self_value, weight_value] = at::_prelu_kernel_backward(grad, self, shaped);
  assign(grad_self, self_value);
  const bool summed = grad_weight.numel() == shaped.numel();
  assign(grad_weight, summed ? weight_value.sum_to_size(shaped.sizes()).reshape(grad_weight.sizes()) : weight_value);
});
ACLNN(Glu, [](In self, int64_t dim, Out out) { at::glu_out(out, self, dim); });
ACLNN(GluBackward, [](In grad, In self, int64_t dim, Out out) { at::glu_backward_out(out, grad, self, dim); });
ACLNN(Logit, [](In self, double eps, Out out) {
  at::logit_out(out, self, eps < 0 ? std::nullopt : std::optional<double>(eps));
});
ACLNN(LogitGrad, [](In self, In grad, double eps, Out out) {
  at::logit_backward_out(out, grad, self, eps < 0 ? std::nullopt : std::optional<double>(eps));
});

// ATen's CPU kernels keep exp(-|x|) in a buffer, which is empty on a device: the gradient computes it again.
using Buffer = Ignored<In>;
using OutBuffer = Ignored<Out>;
ACLNN(LogSigmoid, [](In self, Out out) { assign(out, at::log_sigmoid(self)); });
ACLNN(LogSigmoidForward, [](In self, Out out, OutBuffer) { assign(out, at::log_sigmoid(self)); });
ACLNN(LogSigmoidBackward, [](In grad, In self, Buffer, Out out) {
  auto [value, buffer] = at::log_sigmoid_forward(self);
  assign(out, at::log_sigmoid_backward(grad, self, buffer));
});

// Without a choice it is the formula with tanh.
ACLNN(Gelu, [](In self, Out out) { at::gelu_out(out, self, "tanh"); });
ACLNN(GeluBackward, [](In grad, In self, Out out) { at::gelu_backward_out(out, grad, self, "tanh"); });
ACLNN(GeluV2, [](In self, int64_t tanh, Out out) { at::gelu_out(out, self, tanh == 0 ? "none" : "tanh"); });
ACLNN(GeluBackwardV2,
      [](In grad, In self, Text approximate, Out out) { at::gelu_backward_out(out, grad, self, approximate); });

namespace {

std::vector<at::Tensor> halves_of(In self, int64_t dim) {
  TORCH_CHECK(self.size(dim) % 2 == 0, "dimension ", dim, " of ", self.sizes(), " cannot be halved");
  return self.chunk(2, dim);
}

}  // namespace

ACLNN(SwiGlu, [](In self, int64_t dim, Out out) {
  const auto halves = halves_of(in_float(self), dim);
  assign(out, at::silu(halves[0]) * halves[1]);
});
ACLNN(SwiGluGrad, [](In grad, In self, int64_t dim, Out out) {
  const auto halves = halves_of(in_float(self), dim);
  const auto gate = at::silu_backward(grad * halves[1], halves[0]);
  const auto value = grad * at::silu(halves[0]);
  assign(out, at::cat(std::vector<at::Tensor>{gate, value}, dim));
});

namespace {

// A half-precision softmax into a float output is ATen's half_to_float, which the CPU does by a cast first.
at::Tensor in_dtype_of(const at::Tensor& tensor, const at::Tensor& out) { return tensor.to(out.scalar_type()); }

void require_same_shape(In grad, In output) {
  TORCH_CHECK(grad.sizes() == output.sizes(), "the gradient has shape ", grad.sizes(), ", the output ", output.sizes());
}

}  // namespace

// ATen's out= functions of both write as if the output were contiguous.
ACLNN(Softmax, [](In self, int64_t dim, Out out) { assign(out, at::_softmax(in_dtype_of(self, out), dim, false)); });
ACLNN(SoftmaxBackward, [](In grad, In output, int64_t dim, Out out) {
  require_same_shape(grad, output);
  assign(out, at::_softmax_backward_data(grad, output, dim, output.scalar_type()));
});
ACLNN(LogSoftmax,
      [](In self, int64_t dim, Out out) { assign(out, at::_log_softmax(in_dtype_of(self, out), dim, false)); });
ACLNN(LogSoftmaxBackward, [](In grad, In output, int64_t dim, Out out) {
  require_same_shape(grad, output);
  assign(out, at::_log_softmax_backward_data(grad, output, dim, output.scalar_type()));
});

namespace {

void check_halves(const char* name, In self, int64_t dim, const char* half_name, In half) {
  TORCH_CHECK(dim >= -self.dim() && dim < self.dim(), "dim is ", dim, "; expected ", -self.dim(), " to ",
              self.dim() - 1);
  TORCH_CHECK(self.size(dim) % 2 == 0, name, " has shape ", self.sizes(), "; expected an even size in dimension ", dim);
  auto shape = self.sizes().vec();
  shape[dim < 0 ? dim + self.dim() : dim] /= 2;
  check_shape(half_name, half, shape);
}

const char* approximation(int64_t approximate) {
  check_range("approximate", approximate, 0, 1);
  return approximate == 0 ? "none" : "tanh";
}

constexpr const char* kGeGlu = "self: float32 float16 bfloat16; out, out_gelu: as self";

}  // namespace

ACLNN_TYPED(GeGluV3, kGeGlu, [](In self, int64_t dim, int64_t approximate, bool activate_left, Out out, Out out_gelu) {
  check_halves("self", self, dim, "out", out);
  check_shape("out_gelu", out_gelu, out.sizes());
  const auto halves = in_float(self).chunk(2, dim);
  const auto gelu = at::gelu(halves[activate_left ? 0 : 1], approximation(approximate));
  assign(out, gelu * halves[activate_left ? 1 : 0]);
  assign(out_gelu, gelu);
});
ACLNN_TYPED(GeGluV3Backward, "grad_output: float32 float16 bfloat16; self, gelu, grad_input: as grad_output",
            [](In grad_output, In self, In gelu, int64_t dim, int64_t approximate, bool activate_left, Out grad_input) {
              check_halves("self", self, dim, "grad_output", grad_output);
              check_shape("gelu", gelu, grad_output.sizes());
              const auto halves = in_float(self).chunk(2, dim);
              const auto grad = in_float(grad_output);
              const auto of_gate = at::gelu_backward(grad * halves[activate_left ? 1 : 0],
                                                     halves[activate_left ? 0 : 1], approximation(approximate));
              const auto of_other = grad * in_float(gelu);
              assign(grad_input, activate_left ? at::cat({of_gate, of_other}, dim) : at::cat({of_other, of_gate}, dim));
            });
ACLNN_TYPED(GeluMul, "input: float32 float16 bfloat16; out: as input", [](In input, Text approximate, Out out) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh" || approximate.empty(), "approximate is '", approximate,
              "'; expected none or tanh");
  check_halves("input", input, -1, "out", out);
  const auto halves = in_float(input).chunk(2, -1);
  assign(out, at::gelu(halves[0], approximate.empty() ? "none" : approximate) * halves[1]);
});

// What lies past the rows that the groups count is 0.
ACLNN_TYPED_CHECKED(ClippedSwiglu, "x: float32 float16 bfloat16; group_index: int64; out: as x",
                    [](Phase phase, In x, OptionalIn group_index, int64_t dim, double alpha, double limit, double bias,
                       bool interleaved, Out out) {
                      if (phase == Phase::Check) {
                        TORCH_CHECK(x.dim() > 0, "x has no dimension; expected one to divide");
                        check_halves("x", x, dim, "out", out);
                        TORCH_CHECK(limit > 0, "limit is ", limit, "; expected more than 0");
                        if (!group_index.has_value()) return;
                        check_rank("group_index", *group_index, 1);
                        check_range("the size of group_index", group_index->size(0), 1, 8192);
                        return;
                      }
                      dim = dim < 0 ? dim + x.dim() : dim;
                      const int64_t before = c10::multiply_integers(x.sizes().slice(0, dim));
                      int64_t counted = before;
                      if (group_index.has_value()) {
                        check_values("group_index", *group_index, 0, std::numeric_limits<int64_t>::max());
                        counted = std::min(counted, group_index->sum().item<int64_t>());
                      }
                      const int64_t size = x.size(dim), after = c10::multiply_integers(x.sizes().slice(dim + 1));
                      const auto rows = x.reshape({before, size, after}).narrow(0, 0, counted).to(at::kFloat);
                      const auto pairs = interleaved ? rows.unflatten(1, {size / 2, 2})
                                                     : rows.unflatten(1, {2, size / 2}).transpose(1, 2);
                      const auto gate = pairs.select(2, 0).clamp_max(limit);
                      const auto linear = pairs.select(2, 1).clamp(-limit, limit) + at::Scalar(bias);
                      const auto result = at::zeros({before, size / 2, after}, out.options());
                      result.narrow(0, 0, counted).copy_(gate * at::sigmoid(gate * at::Scalar(alpha)) * linear);
                      assign(out, result.view(out.sizes()));
                    });

ACLNN_TYPED(MaskedSoftmaxWithRelPosBias, "x: float32 float16 bfloat16; atten_mask, relative_pos_bias, out: as x",
            [](In x, OptionalIn atten_mask, In relative_pos_bias, double scale_value, Ignored<int64_t>, Out out) {
              TORCH_CHECK(x.dim() == 4 || x.dim() == 5, "x has shape ", x.sizes(), "; expected 4 or 5 dimensions");
              const auto heads = x.sizes().slice(x.dim() - 3);
              TORCH_CHECK(relative_pos_bias.dim() >= 3 && relative_pos_bias.dim() <= 5 &&
                              relative_pos_bias.sizes().slice(relative_pos_bias.dim() - 3) == heads &&
                              relative_pos_bias.numel() == c10::multiply_integers(heads),
                          "relative_pos_bias has shape ", relative_pos_bias.sizes(), "; expected ", heads);
              at::Tensor scores = in_float(x) * at::Scalar(scale_value);
              if (atten_mask.has_value()) {
                const auto sizes = atten_mask->sizes();
                const int64_t windows = atten_mask->dim() == 5 ? sizes[1] : sizes[0];
                const std::vector<int64_t> shape{windows, 1, heads[1], heads[2]};
                const bool fits = atten_mask->dim() >= 3 && atten_mask->dim() <= 5 &&
                                  atten_mask->numel() == c10::multiply_integers(shape) &&
                                  sizes.slice(atten_mask->dim() - 2) == heads.slice(1) &&
                                  (x.dim() == 5 ? x.size(1) == windows : windows > 0 && x.size(0) % windows == 0);
                TORCH_CHECK(fits, "atten_mask has shape ", sizes, "; expected [windows, ", heads[1], ", ", heads[2],
                            "], where x has shape ", x.sizes());
                const auto by_window = scores.reshape({-1, windows, heads[0], heads[1], heads[2]});
                scores = (by_window + in_float(*atten_mask).reshape(shape)).reshape(x.sizes());
              }
              assign(out, at::_softmax(scores + in_float(relative_pos_bias).reshape(heads), -1, false));
            });

namespace {

void check_scaled_mask(In x, In mask, bool fix_triu_mask) {
  check_rank("x", x, 4);
  check_range("the last dimension of x", x.size(3), 1, 4096);
  TORCH_CHECK(!fix_triu_mask, "fix_triu_mask is true; expected false");
  check_rank("mask", mask, 4);
  const auto fits = [&](int64_t dim) { return mask.size(dim) == x.size(dim) || (dim < 2 && mask.size(dim) == 1); };
  TORCH_CHECK(fits(0) && fits(1) && fits(2) && fits(3), "mask has shape ", mask.sizes(), "; expected ", x.sizes(),
              ", or 1 in the first two dimensions");
}

constexpr double kMasked = -10000;  // what stands for a number that is masked: a row that all is, is uniform

}  // namespace

ACLNN_TYPED(ScaledMaskedSoftmax, "x: float32 float16 bfloat16; mask: bool; y: as x",
            [](In x, In mask, double scale, bool fix_triu_mask, Out y) {
              check_scaled_mask(x, mask, fix_triu_mask);
              const auto scores = (in_float(x) * at::Scalar(scale)).masked_fill(mask, kMasked);
              assign(y, at::_softmax(scores, -1, false));
            });
ACLNN_TYPED(ScaledMaskedSoftmaxBackward, "grad_output: float32 float16 bfloat16; y, out: as grad_output; mask: bool",
            [](In grad_output, In y, In mask, double scale, bool fix_triu_mask, Out out) {
              check_scaled_mask(y, mask, fix_triu_mask);
              check_shape("grad_output", grad_output, y.sizes());
              const auto product = in_float(grad_output) * in_float(y);
              const auto gradient = product - product.sum(-1, /*keepdim=*/true) * in_float(y);
              assign(out, (gradient * at::Scalar(scale)).masked_fill(mask, 0));
            });
