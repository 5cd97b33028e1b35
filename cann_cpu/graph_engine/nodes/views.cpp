// SPDX-License-Identifier: Apache-2.0
// Reshaping, slicing, joining and copying. An output is a view of its input where that is possible, as in eager.
#include "aclnn.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/unbind.h>
#include <ATen/ops/zeros.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <numeric>

#include "cann_cpu/strided_slice.h"

namespace cann_cpu::graph {
namespace {

Outputs reshape(NodeCall& n) {
  n.only("axis", 0);
  n.only("num_axes", -1);
  return n.in(0).reshape(n.integers(1));
}

Outputs unpack(NodeCall& n) {
  n.ignore("num");  // how many there are
  return at::unbind(n.in(0), n.integer("axis", 0));
}

// Elements of another size: a new last dimension of parts, or one that is joined, unless the last is to be scaled.
Outputs bitcast(NodeCall& n) {
  const at::Tensor x = n.in(0).contiguous();
  if (is_int4(n, "type")) {
    reject_unless(x.scalar_type() == at::kInt, "int4 from what is not int32");
    return n.flag("keep_dim", false) ? int4_values(x).flatten(-2) : int4_values(x);
  }
  const auto type = n.dtype("type");
  // Int8 fills an int32 four times.
  if (type == at::kInt && x.scalar_type() == at::kChar && x.dim() > 0 && x.size(-1) == 8) return packed_int4(x);
  const auto size = static_cast<int64_t>(c10::elementSize(type));
  if (n.flag("keep_dim", false) || size == x.element_size()) {
    return x.view(type);
  }
  return size < x.element_size() ? x.unsqueeze(-1).view(type) : x.view(type).squeeze(-1);
}

Outputs squeeze(NodeCall& n) {
  const auto axes = n.integers("axis", {});
  return axes.empty() ? n.in(0).squeeze() : n.in(0).squeeze(axes);
}

Outputs unsqueeze(NodeCall& n) {
  auto axes = n.integers("axes", {});
  at::Tensor x = n.in(0);
  const size_t rank = x.dim() + axes.size();
  for (int64_t& axis : axes) {
    axis = wrapped(axis, rank);
  }
  std::sort(axes.begin(), axes.end());
  for (const int64_t axis : axes) {
    x = x.unsqueeze(axis);
  }
  return x;
}

// Like BroadcastTo, but a dimension of the shape may also be the smaller one.
Outputs expand(NodeCall& n) { return n.in(0).expand(at::infer_size(n.in(0).sizes(), n.integers(1))); }

std::vector<int64_t> strides_of(const NodeCall& n, size_t input, size_t count) {
  return n.has(input) ? n.integers(input) : std::vector<int64_t>(count, 1);
}

at::Tensor strided_slice_of(const at::Tensor& x, NodeCall& n, size_t strides_input) {
  const auto begin = n.integers(1), end = n.integers(2), strides = strides_of(n, strides_input, begin.size());
  const StridedSliceMasks masks = {n.integer("begin_mask", 0), n.integer("end_mask", 0), n.integer("ellipsis_mask", 0),
                                   n.integer("new_axis_mask", 0), n.integer("shrink_axis_mask", 0)};
  return strided_slice(x, begin, end, strides, masks);
}

// Input 0 is the shape of what was sliced.
Outputs strided_slice_gradient(NodeCall& n) {
  const at::Tensor& of_slice = n.in(4);
  at::Tensor gradient = at::zeros(n.integers(0), of_slice.options());
  const at::Tensor place = strided_slice_of(gradient, n, 3);
  TORCH_CHECK(place.sizes() == of_slice.sizes(), "dy has shape ", of_slice.sizes(), "; expected ", place.sizes(),
              ", as the slice has");
  place.copy_(of_slice);
  return gradient;
}

Outputs strided_slice_of_axes(NodeCall& n) {
  if (!n.has(3)) return strided_slice_of(n.in(0), n, 4);
  for (const char* mask : {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"}) {
    n.only(mask, 0);
  }
  const auto axes = n.integers(3), begin = n.integers(1), end = n.integers(2);
  const auto strides = strides_of(n, 4, begin.size());
  reject_unless(end.size() == begin.size() && axes.size() == begin.size() && strides.size() == begin.size(),
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
  n.ignore("num_split");  // how many there are
  auto sizes = n.integers(1);
  const int64_t axis = n.integer(2);
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    *open = n.in(0).size(axis) - (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) + 1);
  }
  return at::split_with_sizes(n.in(0), sizes, axis);
}

NodeFunction joined(const char* name, const std::vector<at::Tensor>& tensors, int64_t axis,
                    std::vector<int64_t> shape) {
  auto dtype = tensors.at(0).scalar_type();
  for (const at::Tensor& tensor : tensors) {
    dtype = at::promoteTypes(dtype, tensor.scalar_type());
  }
  return aclnn(name, value(tensors), plain(axis), out([=](NodeCall&) { return new_tensor(shape, dtype); }));
}

// Sizes come as scalars from constants and as one element each from graph inputs, even to the same node.
Outputs pack(NodeCall& n) {
  n.ignore("N");  // how many there are
  auto tensors = n.in_from(0);
  if (std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.dim() == 0; })) {
    for (at::Tensor& tensor : tensors) {
      tensor = without_dimensions(tensor);
    }
  }
  auto shape = tensors.at(0).sizes().vec();
  const int64_t axis = wrapped(n.integer("axis", 0), shape.size() + 1);
  shape.insert(shape.begin() + axis, static_cast<int64_t>(tensors.size()));
  return joined("Stack", tensors, axis, shape)(n);
}

// ATen's rule: an empty vector joins with anything.
bool is_nothing(const at::Tensor& tensor) { return tensor.dim() == 1 && tensor.numel() == 0; }

Outputs concatenate(NodeCall& n, std::vector<at::Tensor> tensors, int64_t axis) {
  n.ignore("N");
  const auto some = std::find_if_not(tensors.begin(), tensors.end(), is_nothing);
  auto shape = (some == tensors.end() ? tensors.at(0) : *some).sizes().vec();
  axis = wrapped(axis, shape.size());
  shape[axis] = 0;
  for (const at::Tensor& tensor : tensors) {
    shape[axis] += is_nothing(tensor) ? 0 : tensor.size(axis);
  }
  return joined("Cat", tensors, axis, shape)(n);
}

// Joins the inputs before the last, which is the dimension; a scalar joins as one element.
Outputs concatenate_along_input(NodeCall& n) {
  const size_t count = n.input_count() - 1;
  auto tensors = n.in_range(0, count);
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
  }
  return concatenate(n, tensors, n.integer(count));
}

// A copy: an operator that works in place may write to it. Or the place itself, where ViewCopy would write it back.
Outputs as_strided(NodeCall& n) {
  const auto view = [&](const at::Tensor& x) {
    return x.as_strided(n.integers(1), n.integers(2), x.storage_offset() + n.integer(3));
  };
  return n.in_place() ? view(n.writable(0)) : view(n.in(0).contiguous()).clone(at::MemoryFormat::Contiguous);
}

Outputs view_copy(NodeCall& n) {
  at::Tensor& dst = n.writable(0);
  const at::Tensor place = dst.as_strided(n.integers(1), n.integers(2), dst.storage_offset() + n.integer(3));
  const at::Tensor& given = n.in(4);
  const auto sizes = n.integers(5), strides = n.integers(6);
  const int64_t offset = n.integer(7);
  const bool is_whole =
      given.sizes() == sizes && offset == 0 && c10::contiguous_strides(sizes) == at::IntArrayRef(strides);
  if (!is_whole || !is_same_memory(place, given)) {
    const at::Tensor src = given.contiguous();
    place.copy_(src.as_strided(sizes, strides, src.storage_offset() + offset));
  }
  return dst;
}

// In one order or the other.
Outputs transpose_and_reshape(NodeCall& n) {
  const auto perm = n.integers("perm", {}), shape = n.integers("shape", {});
  if (n.flag("transpose_first", false)) return n.in(0).permute(perm).reshape(shape);
  return n.in(0).reshape(shape).permute(perm);
}

// Sizes come as they are: ATen rejects what does not fit, and a stream's work needs no lock.
Outputs assign(NodeCall& n) {
  n.ignore("validate_shape");
  n.ignore("use_locking");
  at::Tensor& ref = n.flag("_writes_through", false) ? n.referenced(0) : n.writable(0);
  ref.copy_(n.in(1));
  return ref;
}

NodeFunction add_in_place(const at::Scalar& factor) {
  return [factor](NodeCall& n) -> Outputs {
    n.ignore("use_locking");
    at::Tensor& ref = n.referenced(0);
    ref.add_(n.in(1), factor);
    return ref;
  };
}

}  // namespace

const NodeTable kViewNodes = {
    {"Reshape", reshape},
    {"Transpose", [](NodeCall& n) -> Outputs { return n.in(0).permute(n.integers(1)); }},
    {"Permute", [](NodeCall& n) -> Outputs { return n.in(0).permute(n.integers("order", {0})); }},
    {"ConfusionTransposeD", transpose_and_reshape},
    {"Squeeze", squeeze},
    {"Unsqueeze", unsqueeze},
    {"ExpandDims", [](NodeCall& n) -> Outputs { return n.in(0).unsqueeze(n.integer(1)); }},
    {"Flatten", [](NodeCall& n) -> Outputs { return n.in(0).flatten(n.integer("axis", 1)); }},
    {"FlattenV2",
     [](NodeCall& n) -> Outputs { return n.in(0).flatten(n.integer("axis", 1), n.integer("end_axis", -1)); }},
    {"BroadcastTo", [](NodeCall& n) -> Outputs { return n.in(0).expand(n.integers(1)); }},
    {"Expand", expand},
    {"Tile", [](NodeCall& n) -> Outputs { return n.in(0).repeat(n.integers(1)); }},
    {"StridedSliceV2", strided_slice_of_axes},
    {"StridedSlice", [](NodeCall& n) -> Outputs { return strided_slice_of(n.in(0), n, 3); }},
    {"StridedSliceGrad", strided_slice_gradient},
    {"Slice", slice},
    {"SplitV", split_by_sizes},
    {"Split",
     [](NodeCall& n) -> Outputs {
       const int64_t axis = n.integer(0), size = n.in(1).size(axis), count = n.integer("num_split");
       reject_unless(count > 0 && size % count == 0, "a split into parts of different sizes");
       return n.in(1).split(size / count, axis);
     }},
    {"Unpack", unpack},
    {"ConcatV2", concatenate_along_input},
    {"ConcatD", [](NodeCall& n) { return concatenate(n, n.in_from(0), n.integer("concat_dim")); }},
    {"Pack", pack},
    {"ReverseV2", aclnn("Flip", in(0), integers(1), out(like(0)))},
    {"Roll", aclnn("Roll", in(0), integers("shifts", {}), integers("dims", {}), out(like(0)))},
    {"Tril", aclnn("Tril", in(0), integer("diagonal", 0), out(like(0)))},
    {"Triu", aclnn("Triu", in(0), integer("diagonal", 0), out(like(0)))},
    {"Bitcast", bitcast, "", "type keep_dim"},
    {"NoOp", [](NodeCall&) -> Outputs { return std::vector<at::Tensor>(); }},
    {"IdentityN", [](NodeCall& n) -> Outputs { return n.in_from(0); }},
    {"Identity", [](NodeCall& n) -> Outputs { return n.in(0); }},
    {"TensorMove", [](NodeCall& n) -> Outputs { return n.contiguous(0); }},
    {"AsStrided", as_strided},
    {"ViewCopy", view_copy},
    {"Assign", assign},
    {"AssignAdd", add_in_place(1), "", "use_locking"},
    {"AssignSub", add_in_place(-1), "", "use_locking"},
};

}  // namespace cann_cpu::graph
