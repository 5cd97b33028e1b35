// SPDX-License-Identifier: Apache-2.0
// Reshaping, slicing, joining and copying. What can be a view of its input is one, as in eager.
#include "table.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/flatten.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/slice.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/unbind.h>

#include <algorithm>
#include <numeric>

namespace cann_cpu::graph {
namespace {

Outputs squeeze(NodeCall& n) {
  const auto axes = n.integers("axis", {});
  return axes.empty() ? n.in(0).squeeze() : n.in(0).squeeze(axes);
}

Outputs unsqueeze(NodeCall& n) {
  auto axes = n.integers("axes", {});
  at::Tensor x = n.in(0);
  const int64_t rank = x.dim() + static_cast<int64_t>(axes.size());
  for (int64_t& axis : axes) {
    axis = axis < 0 ? axis + rank : axis;
  }
  std::sort(axes.begin(), axes.end());
  for (const int64_t axis : axes) {
    x = x.unsqueeze(axis);
  }
  return x;
}

// Like BroadcastTo, but a dimension of the shape may also be the smaller one.
Outputs expand(NodeCall& n) { return n.in(0).expand(at::infer_size(n.in(0).sizes(), n.integers(1))); }

// Paddings are pairs from the first dimension on; ATen's begin with the last.
Outputs pad(NodeCall& n) {
  const auto paddings = n.integers(1);
  std::vector<int64_t> last_first;
  for (size_t i = paddings.size(); i >= 2; i -= 2) {
    last_first.push_back(paddings[i - 2]);
    last_first.push_back(paddings[i - 1]);
  }
  const std::string mode = n.text("mode", "constant");
  refuse_unless(mode == "constant", "a padding mode other than constant");
  return at::constant_pad_nd(n.in(0), last_first, n.has(2) ? scalar(n.in(2)) : at::Scalar(0));
}

Outputs strided_slice(NodeCall& n) {
  for (const char* mask : {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"}) {
    refuse_unless(n.integer(mask, 0) == 0, mask);
  }
  const auto begin = n.integers(1);
  const auto end = n.integers(2);
  std::vector<int64_t> axes(begin.size());
  std::iota(axes.begin(), axes.end(), 0);
  axes = n.has(3) ? n.integers(3) : axes;
  const auto strides = n.has(4) ? n.integers(4) : std::vector<int64_t>(begin.size(), 1);
  refuse_unless(end.size() == begin.size() && axes.size() == begin.size() && strides.size() == begin.size(),
                "a slice whose bounds differ in number");
  at::Tensor x = n.in(0);
  for (size_t i = 0; i < axes.size(); ++i) {
    x = x.slice(axes[i], begin[i], end[i], strides[i]);
  }
  return x;
}

Outputs slice(NodeCall& n) {
  const auto offsets = n.integers(1);
  const auto sizes = n.integers(2);
  at::Tensor x = n.in(0);
  for (size_t d = 0; d < std::min(offsets.size(), sizes.size()); ++d) {
    x = x.slice(static_cast<int64_t>(d), offsets[d], sizes[d] < 0 ? x.size(d) : offsets[d] + sizes[d]);
  }
  return x;
}

// One size may be -1: what the others leave.
Outputs split_by_sizes(NodeCall& n) {
  auto sizes = n.integers(1);
  const int64_t axis = n.integer(2);
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    *open = n.in(0).size(axis) - (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) + 1);
  }
  return at::split_with_sizes(n.in(0), sizes, axis);
}

// Sizes come as scalars from constants and as one element each from graph inputs, even to the same node.
Outputs pack(NodeCall& n) {
  auto tensors = n.in_from(0);
  if (std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.dim() == 0; })) {
    for (at::Tensor& tensor : tensors) {
      tensor = tensor.numel() == 1 ? tensor.reshape({}) : tensor;
    }
  }
  return at::stack(tensors, n.integer("axis", 0));
}

// Joins the inputs before the last, which is the dimension; a scalar joins as one element.
Outputs concatenate(NodeCall& n) {
  const size_t count = n.input_count() - 1;
  auto tensors = n.in_range(0, count);
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  }
  return at::cat(tensors, n.integer(count));
}

// Always a copy: an operator that works in place may write to it.
Outputs as_strided(NodeCall& n) {
  const at::Tensor x = n.in(0).contiguous();
  return x.as_strided(n.integers(1), n.integers(2), x.storage_offset() + n.integer(3))
      .clone(at::MemoryFormat::Contiguous);
}

Outputs view_copy(NodeCall& n) {
  const at::Tensor src = n.in(4).contiguous();
  const at::Tensor values = src.as_strided(n.integers(5), n.integers(6), src.storage_offset() + n.integer(7));
  at::Tensor& dst = n.writable(0);
  dst.as_strided(n.integers(1), n.integers(2), dst.storage_offset() + n.integer(3)).copy_(values);
  return dst;
}

Outputs assign(NodeCall& n) {
  at::Tensor& ref = n.writable(0);
  ref.copy_(n.in(1));
  return ref;
}

}  // namespace

const NodeTable kViewNodes = {
    {"Reshape", [](NodeCall& n) -> Outputs { return n.in(0).reshape(n.integers(1)); }},
    {"Transpose", [](NodeCall& n) -> Outputs { return n.in(0).permute(n.integers(1)); }},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"ExpandDims", [](NodeCall& n) -> Outputs { return n.in(0).unsqueeze(n.integer(1)); }},
    {"Flatten", [](NodeCall& n) -> Outputs { return n.in(0).flatten(n.integer("axis", 1)); }},
    {"FlattenV2",
     [](NodeCall& n) -> Outputs { return n.in(0).flatten(n.integer("axis", 1), n.integer("end_axis", -1)); }},
    {"BroadcastTo", [](NodeCall& n) -> Outputs { return n.in(0).expand(n.integers(1)); }},
    {"Expand", expand},
    {"Tile", [](NodeCall& n) -> Outputs { return n.in(0).repeat(n.integers(1)); }},
    {"Pad", pad},
    {"PadV3", pad},
    {"StridedSliceV2", strided_slice},
    {"StridedSlice",
     [](NodeCall& n) -> Outputs {
       at::Tensor x = n.in(0);
       const auto begin = n.integers(1), end = n.integers(2), strides = n.integers(3);
       refuse_unless(n.integer("begin_mask", 0) == 0 && n.integer("end_mask", 0) == 0 &&
                         n.integer("ellipsis_mask", 0) == 0 && n.integer("new_axis_mask", 0) == 0 &&
                         n.integer("shrink_axis_mask", 0) == 0,
                     "a mask");
       for (size_t d = 0; d < begin.size(); ++d) {
         x = x.slice(static_cast<int64_t>(d), begin[d], end.at(d), strides.at(d));
       }
       return x;
     }},
    {"Slice", slice},
    {"SplitV", split_by_sizes},
    {"Split",
     [](NodeCall& n) -> Outputs {
       const int64_t axis = n.integer(0);
       return n.in(1).split(n.in(1).size(axis) / n.integer("num_split"), axis);
     }},
    {"Unpack", [](NodeCall& n) -> Outputs { return at::unbind(n.in(0), n.integer("axis", 0)); }},
    {"ConcatV2", concatenate},
    {"ConcatD", [](NodeCall& n) -> Outputs { return at::cat(n.in_from(0), n.integer("concat_dim")); }},
    {"Pack", pack},
    {"ReverseV2", [](NodeCall& n) -> Outputs { return at::flip(n.in(0), n.integers(1)); }},
    {"Roll",
     [](NodeCall& n) -> Outputs { return at::roll(n.in(0), n.integers("shifts", {}), n.integers("dims", {})); }},
    {"Tril", [](NodeCall& n) -> Outputs { return at::tril(n.in(0), n.integer("diagonal", 0)); }},
    {"Triu", [](NodeCall& n) -> Outputs { return at::triu(n.in(0), n.integer("diagonal", 0)); }},
    {"Bitcast", [](NodeCall& n) -> Outputs { return n.in(0).contiguous().view(n.dtype("type")); }, "", "type keep_dim"},
    {"Identity", [](NodeCall& n) -> Outputs { return n.in(0); }},
    {"TensorMove", [](NodeCall& n) -> Outputs { return n.moved(0); }},
    {"AsStrided", as_strided},
    {"ViewCopy", view_copy},
    {"Assign", assign},
};

}  // namespace cann_cpu::graph
