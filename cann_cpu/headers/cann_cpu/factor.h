// SPDX-License-Identifier: Apache-2.0
// How the factors of matrix products are given to ATen, by aclnn functions and graph nodes alike.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/strides.h>

namespace cann_cpu {

// A small factor, row by row. The libraries below ATen add in another order where a factor of a small product is
// transposed in memory, and what a graph has saved for its backward pass does not lie as it does eagerly. The factors
// of large products they pack first; a copy of those would cost time and change no bits, but for products of a few rows
// or columns, where the order of a large factor is left as it is.
inline at::Tensor factor(const at::Tensor& matrix) {
  constexpr int64_t kSmall = 1 << 16;
  if (matrix.numel() > kSmall) return matrix;
  // ATen looks at the strides of dimensions of size 1, too.
  return matrix.contiguous().as_strided(matrix.sizes(), c10::contiguous_strides(matrix.sizes()));
}

}  // namespace cann_cpu
