// SPDX-License-Identifier: Apache-2.0
// TensorFlow's strided slice, which aclnnStridedSlice and GE's node StridedSlice compute.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace cann_cpu {

// A bit of a mask is for the element of the lists in its place.
struct StridedSliceMasks {
  int64_t begin = 0, end = 0, ellipsis = 0, new_axis = 0, shrink_axis = 0;
};

// The view of self that begin, end and strides choose in each dimension.
inline at::Tensor strided_slice(const at::Tensor& self, at::IntArrayRef begin, at::IntArrayRef end,
                                at::IntArrayRef strides, const StridedSliceMasks& masks) {
  TORCH_CHECK(begin.size() == end.size() && begin.size() == strides.size(), "begin, end and strides have ",
              begin.size(), ", ", end.size(), " and ", strides.size(), " elements; expected as many of each");
  const auto is_set = [](int64_t mask, size_t i) { return (mask >> i & 1) != 0; };
  int64_t chosen = 0;  // dimensions of self that the lists have an element for
  for (size_t i = 0; i < begin.size(); ++i) chosen += !is_set(masks.ellipsis, i) && !is_set(masks.new_axis, i);
  TORCH_CHECK(chosen <= self.dim(), "begin has an element for ", chosen, " dimensions; self has ", self.dim());
  at::Tensor part = self;
  int64_t dim = 0;
  for (size_t i = 0; i < begin.size(); ++i) {
    if (is_set(masks.ellipsis, i)) {
      dim += self.dim() - chosen;
    } else if (is_set(masks.new_axis, i)) {
      part = part.unsqueeze(dim++);
    } else if (is_set(masks.shrink_axis, i)) {
      const int64_t size = part.size(dim);
      TORCH_CHECK(begin[i] >= -size && begin[i] < size, "begin[", i, "] is ", begin[i], "; expected ", -size, " to ",
                  size - 1);
      part = part.select(dim, begin[i]);
    } else {
      TORCH_CHECK(strides[i] > 0, "strides[", i, "] is ", strides[i], "; expected more than 0");
      part = part.slice(dim++, is_set(masks.begin, i) ? 0 : begin[i],
                        is_set(masks.end, i) ? std::numeric_limits<int64_t>::max() : end[i], strides[i]);
    }
  }
  return part;
}

}  // namespace cann_cpu
