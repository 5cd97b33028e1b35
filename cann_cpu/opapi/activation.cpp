// SPDX-License-Identifier: Apache-2.0
// Activation functions, softmax, and their gradients.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "table.h"

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

ACLNN(Gelu, [](In self, Out out) { at::gelu_out(out, self); });
ACLNN(GeluBackward, [](In grad, In self, Out out) { at::gelu_backward_out(out, grad, self); });
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
