// SPDX-License-Identifier: Apache-2.0
// Convolutions, pooling, resampling and their gradients, over images of the layouts NCHW and NCDHW.
#include "aclnn.h"

#include <ATen/native/Pool.h>

#include "graph_engine/model/dtypes.h"

namespace cann_cpu::graph {
namespace {

// A node names the sizes of all dimensions, or of the spatial ones alone: those count.
std::vector<int64_t> spatial(std::vector<int64_t> sizes, size_t first, size_t count) {
  if (sizes.size() < first + count) {
    throw GraphError("a list of sizes has " + std::to_string(sizes.size()) + " elements");
  }
  return {sizes.begin() + static_cast<ptrdiff_t>(first), sizes.begin() + static_cast<ptrdiff_t>(first + count)};
}

// Pads come in pairs, before and after. ATen has one pad for both sides.
std::vector<int64_t> symmetric(const std::vector<int64_t>& pads) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i + 1 < pads.size(); i += 2) {
    reject_unless(pads[i] == pads[i + 1], "a padding that differs between the two sides");
    sizes.push_back(pads[i]);
  }
  return sizes;
}

using Sizes = std::function<std::vector<int64_t>(NodeCall&)>;
Parameter passed(Sizes sizes) {
  return [=](AclnnCall& c) { c.arguments.array(sizes(c.node)); };
}

// Convolutions: attributes of the form [1, 1, h, w] or [1, 1, d, h, w].
class Convolution {
 public:
  explicit Convolution(size_t rank) : rank_(rank) {}

  NodeFunction forward() const {
    return aclnn("Convolution", in(0), in(1), optional(2), common(), plain(false), zeros(), groups(),
                 out([*this](NodeCall& n) { return n_result(n); }), plain(kKeepPrecision), only("offset_x", 0));
  }
  // torchair numbers float16 as its protocol does.
  NodeFunction quantized() const {
    const auto result = [*this](NodeCall& n) {
      const bool is_half = dtype_of_model(n.integer("dtype")) == ge::DT_FLOAT16;
      return result_of(n, is_half ? at::kHalf : n.dtype("dtype"));
    };
    // A float in the lower half of an int64: TransQuantParam writes it.
    const auto scale = [](NodeCall& n) {
      const at::Tensor& given = n.in(2);
      return given.scalar_type() == at::kFloat ? given : given.to(at::kInt).view(at::kFloat);
    };
    return aclnn("QuantConvolution", in(0), in(1), optional(3), computed(scale), absent(), common(), plain(false),
                 zeros(), groups(), integer("offset_x", 0), text("round_mode", "rint"), out(result));
  }
  NodeFunction transposed() const {
    const Sizes output_padding = attribute("output_padding", 0);
    return aclnn("Convolution", in(1), in(2), optional(3), common(), plain(true), passed(output_padding), groups(),
                 out([](NodeCall& n) { return new_tensor(n.integers(0), n.in(1).scalar_type()); }),
                 plain(kKeepPrecision), only("offset_x", 0));
  }
  NodeFunction input_gradient() const {
    const auto x = [](NodeCall& n) { return new_tensor(n.integers(0), n.in(2).scalar_type()); };
    return gradient(in(2), computed(x), in(1), {true, false, false}, out(x), absent());
  }
  NodeFunction filter_gradient() const {
    const auto w = [](NodeCall& n) { return new_tensor(n.integers(1), n.in(0).scalar_type()); };
    return gradient(in(2), in(0), computed(w), {false, true, false}, absent(), out_as(at::kFloat, w));
  }

 private:
  static Parameter groups() { return integer("groups", 1); }
  Parameter zeros() const { return value(std::vector<int64_t>(rank_, 0)); }

  Sizes attribute(const char* name, int64_t fallback) const {
    return [=, rank = rank_](NodeCall& n) {
      return spatial(n.integers(name, std::vector<int64_t>(rank + 2, fallback)), 2, rank);
    };
  }
  static std::vector<int64_t> padding(NodeCall& n) { return symmetric(n.integers("pads", {})); }

  // Stride, padding and dilation, which all four functions take in this order.
  Parameter common() const {
    return [*this](AclnnCall& c) {
      c.node.only("data_format", std::string(rank_ == 2 ? "NCHW" : "NCDHW"));
      c.arguments.array(attribute("strides", 1)(c.node)).array(padding(c.node));
      c.arguments.array(attribute("dilations", 1)(c.node));
    };
  }

  NodeFunction gradient(const Parameter& grad, const Parameter& x, const Parameter& w, std::vector<bool> mask,
                        const Parameter& grad_x, const Parameter& grad_w) const {
    return aclnn("ConvolutionBackward", grad, x, w, absent(), common(), plain(false), zeros(), groups(),
                 value(std::move(mask)), plain(kKeepPrecision), grad_x, grad_w, absent());
  }

  at::Tensor n_result(NodeCall& n) const { return result_of(n, n.in(0).scalar_type()); }

  at::Tensor result_of(NodeCall& n, at::ScalarType dtype) const {
    const auto strides = attribute("strides", 1)(n), dilations = attribute("dilations", 1)(n), pads = padding(n);
    std::vector<int64_t> shape = {n.in(0).size(0), n.in(1).size(0)};
    for (size_t d = 0; d < rank_; ++d) {
      reject_unless(strides.at(d) > 0, "a stride below 1");
      const int64_t extent = dilations.at(d) * (n.in(1).size(d + 2) - 1) + 1;
      shape.push_back((n.in(0).size(d + 2) + 2 * pads.at(d) - extent) / strides.at(d) + 1);
    }
    return new_tensor(shape, dtype);
  }

  size_t rank_;
};

// Pooling: the attributes name `first` other dimensions before the spatial ones.
class Pooling {
 public:
  Pooling(size_t rank, size_t first, const char* dilation) : rank_(rank), first_(first), dilation_(dilation) {}

  Sizes attribute(const char* name) const {
    return [*this, name](NodeCall& n) { return spatial(n.integers(name, {}), first_, rank_); };
  }
  Sizes dilation() const {
    return [*this](NodeCall& n) {
      return dilation_ == nullptr
                 ? std::vector<int64_t>(rank_, 1)
                 : spatial(n.integers(dilation_, std::vector<int64_t>(first_ + rank_ + 1, 1)), first_, rank_);
    };
  }

  Rule result(Sizes pads, const char* dtype) const {
    return [*this, pads, dtype](NodeCall& n) {
      auto shape = n.in(0).sizes().vec();
      for (size_t d = 0; d < rank_; ++d) {
        int64_t& size = shape.at(shape.size() - rank_ + d);
        size = at::native::pooling_output_shape<int64_t>(size, attribute("ksize")(n)[d], pads(n).at(d),
                                                         attribute("strides")(n)[d], dilation()(n)[d],
                                                         n.flag("ceil_mode", false));
      }
      return new_tensor(shape, dtype == nullptr ? n.in(0).scalar_type() : n.dtype(dtype, at::kInt));
    };
  }

  // With the places of the largest elements.
  NodeFunction maximum(const char* name) const {
    const Sizes pads = attribute("pads");
    return aclnn(name, in(0), passed(attribute("ksize")), passed(attribute("strides")), passed(pads),
                 passed(dilation()), flag("ceil_mode", false), out(result(pads, nullptr)), out(result(pads, "dtype")),
                 format());
  }
  NodeFunction maximum_gradient(const char* name) const {
    return aclnn(name, in(1), in(0), in(2), passed(attribute("ksize")), passed(attribute("strides")),
                 passed(attribute("pads")), passed(dilation()), flag("ceil_mode", false), out(like(0)), format(),
                 ignore("dtype"));
  }

 private:
  Parameter format() const { return only("data_format", std::string(rank_ == 2 ? "NCHW" : "NCDHW")); }

  size_t rank_, first_;
  const char* dilation_;
};

const Pooling kAverage(2, 2, nullptr);
std::vector<int64_t> average_pads(NodeCall& n) { return symmetric(n.integers("pads", {0, 0, 0, 0})); }

// What aclnnAvgPool2d and its gradient have in common.
void average_attributes(AclnnCall& c) {
  for (const Sizes& sizes : {kAverage.attribute("ksize"), kAverage.attribute("strides"), Sizes(average_pads)}) {
    passed(sizes)(c);
  }
  flag("ceil_mode", false)(c);
  plain(!c.node.flag("exclusive", true))(c);
  integer("divisor_override", 0)(c);
  plain(kKeepPrecision)(c);
  c.node.only("padding_mode", std::string("CALCULATED"));
  c.node.only("data_format", std::string("NCHW"));
  c.node.only("global_pooling", false);
}

at::Tensor pooled_from(NodeCall& n) { return new_tensor(n.integers(0), n.in(1).scalar_type()); }

// The last two dimensions become those of a list.
Rule resized(Sizes sizes) {
  return [=](NodeCall& n) {
    auto shape = n.in(0).sizes().vec();
    const auto last = sizes(n);
    if (shape.size() < last.size()) {
      throw GraphError("its input has fewer dimensions than are resized");
    }
    std::copy(last.begin(), last.end(), shape.end() - static_cast<ptrdiff_t>(last.size()));
    return new_tensor(shape, n.in(0).scalar_type());
  };
}
std::vector<int64_t> second_input(NodeCall& n) { return n.integers(1); }
std::vector<int64_t> output_size(NodeCall& n) { return n.integers("output_size", {}); }
at::Tensor original(NodeCall& n) { return new_tensor(n.integers("orig_input_shape", {}), n.in(0).scalar_type()); }

NodeFunction nearest(const char* name, const Parameter& sizes) {
  return aclnn(name, in(0), sizes, out(resized(second_input)), only("align_corners", false),
               only("half_pixel_centers", false));
}
// The output's size, the input's shape, and no scales: the sizes say them.
void nearest_gradient_sizes(AclnnCall& c) {
  const auto input = resized(second_input)(c.node).sizes().vec();
  const auto grad = c.node.in(0).sizes();
  c.arguments.array(grad.slice(grad.size() - c.node.integers(1).size()).vec());
  c.arguments.array(input);
  c.arguments.real(0).real(0);
}

// The points of a grid, for each of them a pixel of every channel.
at::Tensor sampled(NodeCall& n) {
  std::vector<int64_t> shape = {n.in(0).size(0), n.in(0).size(1)};
  const auto grid = n.in(1).sizes();
  reject_unless(grid.size() >= 2, "a grid of fewer than two dimensions");
  shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
  return new_tensor(shape, n.in(0).scalar_type());
}
Parameter interpolation() { return choice("interpolation_mode", {"bilinear", "nearest", "bicubic"}); }
Parameter padding_mode() { return choice("padding_mode", {"zeros", "border", "reflection"}); }
Parameter align_corners() { return flag("align_corners", false); }

// Paddings are pairs from the first dimension on; ATen's begin with the last.
std::vector<int64_t> last_first(const std::vector<int64_t>& paddings, size_t dimensions) {
  std::vector<int64_t> pads;
  for (size_t i = paddings.size(); i >= 2; i -= 2) {
    const bool kept = pads.size() < 2 * dimensions;
    reject_unless(kept || (paddings[i - 2] == 0 && paddings[i - 1] == 0), "a padding of the batch or the channels");
    if (kept) {
      pads.insert(pads.end(), {paddings[i - 2], paddings[i - 1]});
    }
  }
  return pads;
}
Rule padded(int64_t sign) {
  return [=](NodeCall& n) {
    auto shape = n.in(0).sizes().vec();
    const auto paddings = n.integers(1);
    for (size_t d = 0; d < shape.size() && 2 * d + 1 < paddings.size(); ++d) {
      shape[d] += sign * (paddings[2 * d] + paddings[2 * d + 1]);
    }
    return new_tensor(shape, n.in(0).scalar_type());
  };
}

// By the neighbours: all dimensions but two are padded.
std::string mirror(NodeCall& n, const std::string& mode) {
  const bool edge = mode == "edge";
  reject_unless(edge || mode == "reflect" || mode == "REFLECT", "this padding mode");
  reject_unless(n.in(0).dim() >= 3 && n.in(0).dim() <= 5, "a padding by neighbours of this number of dimensions");
  return (edge ? "ReplicationPad" : "ReflectionPad") + std::to_string(n.in(0).dim() - 2) + "d";
}

Outputs pad(NodeCall& n) {
  n.only("paddings_contiguous", true);
  const std::string mode = n.text("mode", "constant");
  if (mode == "constant") {
    const auto pads = last_first(n.integers(1), n.in(0).dim());
    return aclnn("ConstantPadNd", in(0), value(pads), number(2, kZero), out(padded(1)))(n);
  }
  n.ignore(2);  // the constant
  const auto pads = last_first(n.integers(1), n.in(0).dim() - 2);
  return aclnn(mirror(n, mode).c_str(), in(0), value(pads), out(padded(1)))(n);
}

Outputs pad_gradient(NodeCall& n) {
  n.only("paddings_contiguous", true);
  const std::string name = mirror(n, n.text("mode", "reflect")) + "Backward";
  const auto pads = last_first(n.integers(1), n.in(0).dim() - 2);
  return aclnn(name.c_str(), in(0), computed(padded(-1)), value(pads), out(padded(-1)))(n);
}

// A row for each box of the second input, where aclnnIou has a column.
Outputs overlaps(NodeCall& n) {
  const Rule of_boxes = [](NodeCall& call) { return call.in(0).new_empty({call.in(0).size(0), call.in(1).size(0)}); };
  Outputs outputs = aclnn("Iou", in(0), in(1), text("mode", "iou"), real32("eps", 1), plain(false), out(of_boxes))(n);
  outputs[0] = outputs[0].t();
  return outputs;
}

at::Tensor for_each_box(NodeCall& n) { return n.in(0).new_empty({1, n.in(0).size(1)}); }

}  // namespace

const NodeTable kVisionNodes = {
    {"Iou", overlaps},
    {"CIoU", aclnn("CIoU", in(0), in(1), flag("trans", false), flag("is_cross", true), text("mode", "iou"),
                   out(0, for_each_box), out(1, for_each_box), ignore("atan_sub_flag"))},
    {"Conv2D", Convolution(2).forward()},
    {"QuantConv2D", Convolution(2).quantized()},
    {"Conv2DTranspose", Convolution(2).transposed()},
    {"Conv2DBackpropInput", Convolution(2).input_gradient()},
    {"Conv2DBackpropFilter", Convolution(2).filter_gradient()},
    {"Conv3D", Convolution(3).forward()},
    {"Conv3DTranspose", Convolution(3).transposed()},
    {"Conv3DBackpropInput", Convolution(3).input_gradient()},
    {"Conv3DBackpropFilter", Convolution(3).filter_gradient()},
    {"AvgPoolV2",
     aclnn("AvgPool2d", in(0), Parameter(average_attributes), out(kAverage.result(average_pads, nullptr)))},
    {"AvgPoolV2Grad",
     aclnn("AvgPool2dBackward", in(1), computed(pooled_from), Parameter(average_attributes), out(pooled_from))},
    {"MaxPoolWithArgmaxV1", Pooling(2, 1, "dilation").maximum("MaxPool2dWithIndices")},
    {"MaxPoolGradWithArgmaxV1", Pooling(2, 1, "dilation").maximum_gradient("MaxPool2dWithIndicesBackward")},
    {"MaxPoolWithArgmaxV3", Pooling(2, 0, "dilation").maximum("MaxPool2dWithIndices"), "",
     "dtype dilation ceil_mode data_format"},
    {"MaxPoolGradWithArgmaxV3", Pooling(2, 0, "dilation").maximum_gradient("MaxPool2dWithIndicesBackward"), "",
     "dtype dilation ceil_mode data_format"},
    {"MaxPool3DWithArgmaxV2", Pooling(3, 0, "dilation").maximum("MaxPool3dWithArgmax")},
    {"AdaptiveAvgPool2d", aclnn("AdaptiveAvgPool2d", in(0), integers("output_size", {}), out(resized(output_size)))},
    {"AdaptiveAvgPool2dGrad", aclnn("AdaptiveAvgPool2dBackward", in(0), computed(original), out(original))},
    {"ResizeNearestNeighborV2", nearest("UpsampleNearest2d", integers(1))},
    {"ResizeNearestNeighborV2Grad", nearest("UpsampleNearest2dBackward", Parameter(nearest_gradient_sizes))},
    {"GridSampler2D",
     aclnn("GridSampler2D", in(0), in(1), interpolation(), padding_mode(), align_corners(), out(sampled))},
    {"GridSampler2DGrad", aclnn("GridSampler2DBackward", in(0), in(1), in(2), interpolation(), padding_mode(),
                                align_corners(), value(std::vector<bool>{true, true}), out(like(1)), out(like(2)))},
    {"GridSampler3D", aclnn("GridSampler3D", in(0), in(1), interpolation(), padding_mode(), align_corners(),
                            out(sampled), only("data_format", std::string("NCDHW")))},
    {"Pad", pad},
    {"PadV3", pad},
    {"MirrorPad", [](NodeCall& n) { return pad(n); }},
    {"PadV3Grad", pad_gradient},
};

}  // namespace cann_cpu::graph
