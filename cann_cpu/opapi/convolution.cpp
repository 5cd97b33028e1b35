// SPDX-License-Identifier: Apache-2.0
// Convolutions and pooling.
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward.h>
#include <ATen/ops/_adaptive_avg_pool3d.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool2d_backward.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices_backward.h>

#include "table.h"

using namespace cann_cpu;

namespace {

// torch_npu says 0 where there is no divisor.
std::optional<int64_t> divisor(int64_t given) { return given == 0 ? std::nullopt : std::optional<int64_t>(given); }

}  // namespace

ACLNN(Convolution, [](In input, In weight, OptionalIn bias, Ints stride, Ints padding, Ints dilation, bool transposed,
                      Ints output_padding, int64_t groups, Out out, CubeMathType) {
  assign(out, at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups));
});
ACLNN(ConvolutionBackward,
      [](In grad, In input, In weight, at::OptionalIntArrayRef bias_sizes, Ints stride, Ints padding, Ints dilation,
         bool transposed, Ints output_padding, int64_t groups, Bools mask, CubeMathType, OptionalOut grad_input,
         OptionalOut grad_weight, OptionalOut grad_bias) {
        TORCH_CHECK(mask.size() == 3, "the output mask has ", mask.size(), " elements instead of 3");
        auto [input_value, weight_value, bias_value] =
            at::convolution_backward(grad, input, weight, bias_sizes, stride, padding, dilation, transposed,
                                     output_padding, groups, {mask[0], mask[1], mask[2]});
        if (mask[0]) assign(grad_input, input_value);
        if (mask[1]) assign(grad_weight, weight_value);
        if (mask[2]) assign(grad_bias, bias_value);
      });
ACLNN(ConvDepthwise2d, [](In input, In weight, Ints kernel, OptionalIn bias, Ints stride, Ints padding, Ints dilation,
                          Out out, CubeMathType) {
  TORCH_CHECK(kernel == weight.sizes().slice(2), "the kernel's size is ", kernel, ", the weight has shape ",
              weight.sizes());
  assign(out, at::convolution(input, weight, bias, stride, padding, dilation, false, {0, 0}, input.size(1)));
});

ACLNN(AvgPool2d, [](In self, Ints kernel, Ints stride, Ints padding, bool ceil_mode, bool count_include_pad,
                    int64_t divisor_override, CubeMathType, Out out) {
  at::avg_pool2d_out(out, self, kernel, stride, padding, ceil_mode, count_include_pad, divisor(divisor_override));
});
ACLNN(AvgPool2dBackward, [](In grad, In self, Ints kernel, Ints stride, Ints padding, bool ceil_mode,
                            bool count_include_pad, int64_t divisor_override, CubeMathType, Out out) {
  at::avg_pool2d_backward_out(out, grad, self, kernel, stride, padding, ceil_mode, count_include_pad,
                              divisor(divisor_override));
});
ACLNN(AvgPool3d, [](In self, Ints kernel, Ints stride, Ints padding, bool ceil_mode, bool count_include_pad,
                    int64_t divisor_override, Out out) {
  assign(out, at::avg_pool3d(in_float(self), kernel, stride, padding, ceil_mode, count_include_pad,
                             divisor(divisor_override)));
});
ACLNN(AvgPool3dBackward, [](In grad, In self, Ints kernel, Ints stride, Ints padding, bool ceil_mode,
                            bool count_include_pad, int64_t divisor_override, Out out) {
  assign(out, at::avg_pool3d_backward(in_float(grad), in_float(self), kernel, stride, padding, ceil_mode,
                                      count_include_pad, divisor(divisor_override)));
});
// In the mask, CANN keeps the positions of the largest elements in its own format. Here the gradient finds them again,
// and the mask stays zero.
using Mask = Ignored<In>;
ACLNN(MaxPool2dWithMask,
      [](In self, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil_mode, Out out, Out mask) {
        assign(out, std::get<0>(at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode)));
        mask.zero_();
      });
ACLNN(MaxPool2dWithMaskBackward, [](In grad, In self, Mask, Ints kernel, Ints stride, Ints padding, Ints dilation,
                                    bool ceil_mode, Out out) {
  const auto indices = std::get<1>(at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode));
  at::max_pool2d_with_indices_backward_out(out, grad, self, kernel, stride, padding, dilation, ceil_mode, indices);
});
ACLNN(MaxPool2dWithIndices,
      [](In self, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil_mode, Out out, Out indices) {
        auto [value, index] = at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode);
        assign(out, value);
        assign(indices, index);
      });
ACLNN(MaxPool2dWithIndicesBackward,
      [](In grad, In self, In indices, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil_mode, Out out) {
        at::max_pool2d_with_indices_backward_out(out, grad, self, kernel, stride, padding, dilation, ceil_mode,
                                                 indices.to(at::kLong));
      });
ACLNN(MaxPool3dWithArgmax,
      [](In self, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil_mode, Out out, Out indices) {
        auto [value, index] = at::max_pool3d_with_indices(self, kernel, stride, padding, dilation, ceil_mode);
        assign(out, value);
        assign(indices, index);
      });
ACLNN(MaxPool3dWithArgmaxBackward,
      [](In grad, In self, In indices, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil_mode, Out out) {
        at::max_pool3d_with_indices_backward_out(out, grad, self, kernel, stride, padding, dilation, ceil_mode,
                                                 indices.to(at::kLong));
      });
namespace {

// ATen takes it for granted.
void require_same_channels(In grad, In self, int64_t pooled) {
  TORCH_CHECK(self.numel() > 0 || grad.numel() == 0, "the pooled tensor has no elements, the gradient has");
  TORCH_CHECK(grad.dim() == self.dim() && self.dim() > pooled &&
                  grad.sizes().slice(0, grad.dim() - pooled) == self.sizes().slice(0, self.dim() - pooled),
              "the gradient has shape ", grad.sizes(), ", the pooled tensor ", self.sizes(), "; all but the last ",
              pooled, " dimensions must be the same");
}

}  // namespace

ACLNN(AdaptiveAvgPool2d, [](In self, Ints size, Out out) { assign(out, at::_adaptive_avg_pool2d(self, size)); });
ACLNN(AdaptiveAvgPool2dBackward, [](In grad, In self, Out out) {
  require_same_channels(grad, self, 2);
  assign(out, at::_adaptive_avg_pool2d_backward(grad, self));
});
ACLNN(AdaptiveAvgPool3d, [](In self, Ints size, Out out) { assign(out, at::_adaptive_avg_pool3d(self, size)); });
ACLNN(AdaptiveAvgPool3dBackward, [](In grad, In self, Out out) {
  require_same_channels(grad, self, 3);
  assign(out, at::_adaptive_avg_pool3d_backward(grad, self));
});
ACLNN(AdaptiveMaxPool2d,
      [](In self, Ints size, Out out, Out indices) { at::adaptive_max_pool2d_out(out, indices, self, size); });
ACLNN(AdaptiveMaxPool2dBackward,
      [](In grad, In self, In indices, Out out) { at::adaptive_max_pool2d_backward_out(out, grad, self, indices); });
