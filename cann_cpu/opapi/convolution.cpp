// SPDX-License-Identifier: Apache-2.0
// Convolutions and pooling.
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward.h>
#include <ATen/ops/_adaptive_avg_pool3d.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool2d_backward.h>
#include <ATen/ops/adaptive_max_pool3d.h>
#include <ATen/ops/adaptive_max_pool3d_backward.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/avg_pool3d_backward.h>
#include <ATen/ops/conv_tbc.h>
#include <ATen/ops/conv_tbc_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "checks.h"
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

namespace {

// Time, batch, channels; the weight is [kernel, input channels, output channels].
std::array<int64_t, 3> convolved_shape(In input, In weight, In bias, int64_t pad) {
  check_rank("weight", weight, 3);
  check_shape("bias", bias, {weight.size(2)});
  const int64_t time = input.size(0) + 2 * pad - weight.size(0) + 1;
  TORCH_CHECK(input.size(2) == weight.size(1) && time >= 0, "weight has shape ", weight.sizes(),
              "; expected one for an input of shape ", input.sizes(), " and a pad of ", pad);
  return {time, input.size(1), weight.size(2)};
}

}  // namespace

ACLNN_TYPED_CHECKED(ConvTbc, "self: float32 float16 bfloat16; weight, bias, out: as self",
                    [](Phase phase, In self, In weight, In bias, int64_t pad, Out out, CubeMathType) {
                      check_rank("self", self, 3);
                      check_range("pad", pad, 0, 255);
                      check_shape("out", out, convolved_shape(self, weight, bias, pad));
                      if (phase == Phase::Check) return;
                      assign(out, at::conv_tbc(in_float(self), in_float(weight), in_float(bias), pad));
                    });
ACLNN_TYPED_CHECKED(ConvTbcBackward,
                    "self: float32 float16 bfloat16; input, weight, bias, grad_input, grad_weight, grad_bias: as self",
                    [](Phase phase, In self, In input, In weight, In bias, int64_t pad, CubeMathType, Out grad_input,
                       Out grad_weight, Out grad_bias) {
                      check_rank("input", input, 3);
                      check_range("pad", pad, 0, INT32_MAX);
                      check_shape("self", self, convolved_shape(input, weight, bias, pad));
                      check_shape("grad_input", grad_input, input.sizes());
                      check_shape("grad_weight", grad_weight, weight.sizes());
                      check_shape("grad_bias", grad_bias, bias.sizes());
                      if (phase == Phase::Check) return;
                      auto [input_value, weight_value, bias_value] =
                          at::conv_tbc_backward(in_float(self), in_float(input), in_float(weight), in_float(bias), pad);
                      assign(grad_input, input_value);
                      assign(grad_weight, weight_value);
                      assign(grad_bias, bias_value);
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
ACLNN_TYPED(AdaptiveMaxPool3d, "self: float32 float16 bfloat16; output_out: as self; indices_out: int32",
            [](In self, Ints output_size, Out output_out, Out indices_out) {
              auto [value, index] = at::adaptive_max_pool3d(in_float(self), output_size);
              assign(output_out, value);
              assign(indices_out, index);
            });
ACLNN_TYPED_CHECKED(AdaptiveMaxPool3dBackward,
                    "grad_output: float32 float16 bfloat16; self, grad_input: as grad_output; indices: int32",
                    [](Phase phase, In grad_output, In self, In indices, Out grad_input) {
                      TORCH_CHECK(self.dim() == 4 || self.dim() == 5, "self has ", self.dim(),
                                  " dimensions; expected 4 or 5");
                      require_same_channels(grad_output, self, 3);
                      check_shape("indices", indices, grad_output.sizes());
                      check_shape("grad_input", grad_input, self.sizes());
                      if (phase == Phase::Check) return;
                      check_values("indices", indices, 0, self.size(-3) * self.size(-2) * self.size(-1) - 1);
                      assign(grad_input, at::adaptive_max_pool3d_backward(in_float(grad_output), in_float(self),
                                                                          indices.to(at::kLong)));
                    });

namespace {

#define UNPOOLED_DTYPES "self: float32 float16 int16 int32 int64 int8 uint8 float64; indices: int64 int32; out: as self"

void check_unpooling(In self, In indices, Ints output_size, In out, int64_t pooled) {
  TORCH_CHECK(self.dim() == pooled + 1 || self.dim() == pooled + 2, "self has ", self.dim(), " dimensions; expected ",
              pooled + 1, " or ", pooled + 2);
  check_shape("indices", indices, self.sizes());
  TORCH_CHECK(static_cast<int64_t>(output_size.size()) == pooled, "output_size has ", output_size.size(),
              " elements; expected ", pooled);
  auto shape = self.sizes().vec();
  std::copy(output_size.begin(), output_size.end(), shape.end() - pooled);
  check_shape("out", out, shape);
  const auto given = self.sizes().slice(self.dim() - pooled);
  TORCH_CHECK(c10::multiply_integers(output_size) >= c10::multiply_integers(given), "output_size is ", output_size,
              "; expected at least as many elements as in ", given);
}

void unpool(In self, In indices, Out out, int64_t pooled) {
  const auto size = c10::multiply_integers(out.sizes().slice(out.dim() - pooled));
  check_values("indices", indices, 0, size - 1);
  const auto value = at::zeros(out.sizes(), out.options());
  if (self.numel() > 0) {
    value.flatten(-pooled).scatter_(-1, indices.flatten(-pooled).to(at::kLong), self.flatten(-pooled));
  }
  assign(out, value);
}

}  // namespace

ACLNN_TYPED_CHECKED(MaxUnpool2d, UNPOOLED_DTYPES, [](Phase phase, In self, In indices, Ints output_size, Out out) {
  check_unpooling(self, indices, output_size, out, 2);
  if (phase == Phase::Check) return;
  unpool(self, indices, out, 2);
});
// Stride and padding say how the maxima were found; the indices say where they go.
ACLNN_TYPED_CHECKED(MaxUnpool3d, UNPOOLED_DTYPES,
                    [](Phase phase, In self, In indices, Ints output_size, Ints stride, Ints padding, Out out) {
                      check_unpooling(self, indices, output_size, out, 3);
                      TORCH_CHECK(stride.size() == 3 && padding.size() == 3, "stride is ", stride, " and padding is ",
                                  padding, "; expected 3 elements in each");
                      for (const int64_t step : stride)
                        TORCH_CHECK(step > 0, "stride is ", stride, "; expected positive elements");
                      if (phase == Phase::Check) return;
                      unpool(self, indices, out, 3);
                    });

namespace {

// A convolution whose kernel reads the input at moved points: offset is [n, 3, deformable groups, kernel elements,
// height, width] with x, y and a factor for each point. The points read make an image that a plain convolution takes.
struct DeformableConvolution {
  In input, weight, offset;
  Ints kernel, stride, padding, dilation;
  int64_t groups, deformable_groups;

  int64_t elements() const { return kernel[0] * kernel[1]; }

  int64_t size(int64_t dim) const {
    const int64_t pads = padding[2 * (dim - 2)] + padding[2 * (dim - 2) + 1];
    const int64_t extent = (kernel[dim - 2] - 1) * dilation[dim] + 1;
    return (input.size(dim) + pads - extent) / stride[dim] + 1;
  }

  std::vector<int64_t> points_shape() const {
    return {input.size(0), input.size(1), size(2) * kernel[0], size(3) * kernel[1]};
  }
  std::vector<int64_t> output_shape() const { return {input.size(0), weight.size(0), size(2), size(3)}; }

  void check(bool modulated) const {
    TORCH_CHECK(modulated, "modulated is false; expected true");
    check_rank("input", input, 4);
    check_rank("weight", weight, 4);
    TORCH_CHECK(kernel.size() == 2 && kernel[0] > 0 && kernel[1] > 0, "kernel_size is ", kernel,
                "; expected 2 positive elements");
    const auto check_list = [](const char* name, Ints list) {
      TORCH_CHECK(list.size() == 4 && list[0] == 1 && list[1] == 1 && list[2] > 0 && list[3] > 0, name, " is ", list,
                  "; expected 4 positive elements that begin with 1, 1");
    };
    check_list("stride", stride);
    check_list("dilation", dilation);
    TORCH_CHECK(padding.size() == 4, "padding is ", padding, "; expected 4 elements");
    TORCH_CHECK(groups > 0 && input.size(1) % groups == 0 && weight.size(0) % groups == 0, "groups is ", groups,
                "; expected a divisor of ", input.size(1), " and ", weight.size(0), " channels");
    TORCH_CHECK(deformable_groups > 0 && input.size(1) % deformable_groups == 0, "deformable_groups is ",
                deformable_groups, "; expected a divisor of ", input.size(1), " channels");
    check_shape("weight", weight, {weight.size(0), input.size(1) / groups, kernel[0], kernel[1]});
    TORCH_CHECK(elements() <= 2048 && elements() * weight.size(1) <= 65535, "kernel_size is ", kernel,
                "; expected at most 2048 elements, and 65535 with the channels of a group");
    check_shape("offset", offset, {input.size(0), 3 * deformable_groups * elements(), size(2), size(3)});
  }

  // Some rows of the output of an image, few enough that the points that are read for them take little memory.
  struct OutputRows {
    int64_t image, first, count, width;
    Ints kernel;

    // The part of a tensor of points or of one like the output, a batch of one image.
    at::Tensor of_points(const at::Tensor& all) const {
      return all.narrow(0, image, 1).narrow(2, first * kernel[0], count * kernel[0]);
    }
    at::Tensor of_output(const at::Tensor& all) const { return all.narrow(0, image, 1).narrow(2, first, count); }
  };

  template <class Body>
  void for_each_rows(int64_t image, const Body& body) const {
    constexpr int64_t kPoints = 1 << 20;
    const int64_t height = size(2), width = size(3), each = input.size(1) * elements() * width;
    const int64_t most = std::max<int64_t>(kPoints / std::max<int64_t>(each, 1), 1);
    for (int64_t first = 0; first < height; first += most) {
      body(OutputRows{image, first, std::min(most, height - first), width, kernel});
    }
  }

  // The moves of some rows in float: x, y and the factor of each point lie a plane apart.
  struct Moves {
    at::Tensor all;
    const float* numbers;
    int64_t plane;
  };
  Moves moves_of(const OutputRows& rows) const {
    Moves moves{rows.of_output(offset).to(at::kFloat).contiguous(), nullptr, 0};
    moves.numbers = moves.all.const_data_ptr<float>();
    moves.plane = deformable_groups * elements() * rows.count * rows.width;
    return moves;
  }

  // Calls body(point, move, x, y) for each point that is read from a channel.
  template <class Body>
  void for_each(const OutputRows& rows, const Moves& moves, int64_t c, const Body& body) const {
    const int64_t per_group = input.size(1) / deformable_groups, width = rows.width, places = rows.count * width;
    for (int64_t k = 0; k < elements(); ++k) {
      const int64_t ky = k / kernel[1], kx = k % kernel[1];
      for (int64_t place = 0; place < places; ++place) {
        const int64_t oy = place / width, ox = place % width;
        const int64_t at = (c / per_group * elements() + k) * places + place;
        const float x = static_cast<float>(ox * stride[3] - padding[2] + kx * dilation[3]) + moves.numbers[at];
        const float y = static_cast<float>((rows.first + oy) * stride[2] - padding[0] + ky * dilation[2]) +
                        moves.numbers[moves.plane + at];
        body(((c * rows.count + oy) * kernel[0] + ky) * width * kernel[1] + ox * kernel[1] + kx, at, x, y);
      }
    }
  }

  at::Tensor channel(int64_t image, int64_t c) const { return input[image][c].to(at::kFloat).contiguous(); }

  // The four neighbours of a point, where they are inside the image: body(pixel, weight, d weight / dx, d weight / dy).
  template <class Body>
  void for_neighbours(float x, float y, const Body& body) const {
    const int64_t height = input.size(2), width = input.size(3);
    if (!(x > -1 && y > -1 && x < static_cast<float>(width) && y < static_cast<float>(height))) return;
    const auto left = static_cast<int64_t>(std::floor(x)), top = static_cast<int64_t>(std::floor(y));
    const float right_part = x - static_cast<float>(left), bottom_part = y - static_cast<float>(top);
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t column = left + i % 2, row = top + i / 2;
      if (column < 0 || row < 0 || column >= width || row >= height) continue;
      const float across = i % 2 == 1 ? right_part : 1 - right_part, down = i / 2 == 1 ? bottom_part : 1 - bottom_part;
      body(row * width + column, across * down, i % 2 == 1 ? down : -down, i / 2 == 1 ? across : -across);
    }
  }

  // The points that the kernel reads for some rows, [1, channels, rows * kernel height, width * kernel width].
  at::Tensor points(const OutputRows& rows) const {
    const auto result = at::empty({1, input.size(1), rows.count * kernel[0], rows.width * kernel[1]}, at::kFloat);
    const Moves moves = moves_of(rows);
    float* to = result.mutable_data_ptr<float>();
    for (int64_t c = 0; c < input.size(1); ++c) {
      const auto image = channel(rows.image, c);
      const float* from = image.const_data_ptr<float>();
      for_each(rows, moves, c, [&](int64_t point, int64_t at, float x, float y) {
        float sum = 0;
        for_neighbours(x, y, [&](int64_t pixel, float w, float, float) { sum += w * from[pixel]; });
        to[point] = sum * moves.numbers[2 * moves.plane + at];
      });
    }
    return result;
  }

  // Adds the gradient of the image to image_sum, and gives that of the offsets of some rows.
  at::Tensor offset_gradient(const OutputRows& rows, const at::Tensor& points_grad, const at::Tensor& image_sum) const {
    const Moves moves = moves_of(rows);
    const auto result = at::zeros_like(moves.all);
    const float* given = points_grad.const_data_ptr<float>();
    float* to_moves = result.mutable_data_ptr<float>();
    const int64_t plane = moves.plane, pixels = input.size(2) * input.size(3);
    for (int64_t c = 0; c < input.size(1); ++c) {
      const auto image = channel(rows.image, c);
      const float* from = image.const_data_ptr<float>();
      float* to_image = image_sum.mutable_data_ptr<float>() + c * pixels;
      for_each(rows, moves, c, [&](int64_t point, int64_t at, float x, float y) {
        const float slope = given[point], factor = moves.numbers[2 * plane + at];
        for_neighbours(x, y, [&](int64_t pixel, float w, float dx, float dy) {
          const float value = from[pixel];
          to_image[pixel] += slope * factor * w;
          to_moves[at] += slope * factor * dx * value;
          to_moves[plane + at] += slope * factor * dy * value;
          to_moves[2 * plane + at] += slope * w * value;
        });
      });
    }
    return result;
  }
};

}  // namespace

ACLNN_TYPED_CHECKED(DeformableConv2d, "x: float32 float16 bfloat16; weight, offset, bias, out, deform_out: as x",
                    [](Phase phase, In x, In weight, In offset, OptionalIn bias, Ints kernel_size, Ints stride,
                       Ints padding, Ints dilation, int64_t groups, int64_t deformable_groups, bool modulated, Out out,
                       OptionalOut deform_out) {
                      const DeformableConvolution conv{x,       weight,   offset, kernel_size,      stride,
                                                       padding, dilation, groups, deformable_groups};
                      conv.check(modulated);
                      if (bias.has_value()) check_shape("bias", *bias, {weight.size(0)});
                      check_shape("out", out, conv.output_shape());
                      if (deform_out.has_value()) check_shape("deform_out", *deform_out, conv.points_shape());
                      if (phase == Phase::Check) return;
                      const auto matrix = in_float(weight);
                      const auto constant =
                          bias.has_value() ? std::optional<at::Tensor>(in_float(*bias)) : std::nullopt;
                      for (int64_t n = 0; n < x.size(0); ++n) {
                        conv.for_each_rows(n, [&](const DeformableConvolution::OutputRows& rows) {
                          const auto points = conv.points(rows);
                          if (deform_out.has_value()) rows.of_points(*deform_out).copy_(points);
                          rows.of_output(out).copy_(at::convolution(points, matrix, constant, kernel_size, {0, 0},
                                                                    {1, 1}, false, {0, 0}, groups));
                        });
                      }
                    });
ACLNN_TYPED_CHECKED(
    DeformableConv2dBackward,
    "input: float32 float16 bfloat16; grad_output, offset_out, weight, offset, grad_input, grad_weight, grad_offset, "
    "grad_bias: as input",
    [](Phase phase, In input, In grad_output, In offset_out, In weight, In offset, Ints kernel_size, Ints stride,
       Ints padding, Ints dilation, int64_t groups, int64_t deformable_groups, bool modulated, Out grad_input,
       Out grad_weight, Out grad_offset, Out grad_bias) {
      const DeformableConvolution conv{input,   weight,   offset, kernel_size,      stride,
                                       padding, dilation, groups, deformable_groups};
      conv.check(modulated);
      check_shape("grad_output", grad_output, conv.output_shape());
      check_shape("offset_out", offset_out, conv.points_shape());
      check_shape("grad_input", grad_input, input.sizes());
      check_shape("grad_weight", grad_weight, weight.sizes());
      check_shape("grad_offset", grad_offset, offset.sizes());
      check_shape("grad_bias", grad_bias, {weight.size(0)});
      if (phase == Phase::Check) return;
      const auto matrix = in_float(weight);
      const auto weight_sum = at::zeros(weight.sizes(), at::kFloat);
      for (int64_t n = 0; n < input.size(0); ++n) {
        const auto image_sum = at::zeros(input[n].sizes(), at::kFloat);
        conv.for_each_rows(n, [&](const DeformableConvolution::OutputRows& rows) {
          const auto read = in_float(rows.of_points(offset_out)), grad = in_float(rows.of_output(grad_output));
          const auto [points_grad, weight_grad, bias_grad] =
              at::convolution_backward(grad, read, matrix, std::nullopt, kernel_size, {0, 0}, {1, 1}, false, {0, 0},
                                       groups, {true, true, false});
          weight_sum.add_(weight_grad);
          rows.of_output(grad_offset).copy_(conv.offset_gradient(rows, points_grad.contiguous(), image_sum));
        });
        grad_input[n].copy_(image_sum);
      }
      assign(grad_weight, weight_sum);
      assign(grad_bias, grad_output.sum({0, 2, 3}, /*keepdim=*/false, at::kFloat));
    });
