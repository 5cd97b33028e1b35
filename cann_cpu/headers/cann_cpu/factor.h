// SPDX-License-Identifier: Apache-2.0
// How the factors of matrix products are given to ATen, by aclnn functions and graph nodes alike.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/strides.h>

namespace cann_cpu {

// The dtype that matrices are multiplied in. Where oneDNN has no products of a half type, as without AVX-512, ATen's
// own loops take many times as long as converting to float and back.
inline at::ScalarType product_dtype(at::ScalarType dtype) {
  static const auto supported = [](const char* question) {
    const auto schema = c10::Dispatcher::singleton().findSchema({question, ""});
    return schema.has_value() && schema->typed<bool()>().call();
  };
  static const bool bfloat16 = supported("mkldnn::_is_mkldnn_bf16_supported");
  static const bool float16 = supported("mkldnn::_is_mkldnn_fp16_supported");
  const bool slow = (dtype == at::kBFloat16 && !bfloat16) || (dtype == at::kHalf && !float16);
  return slow ? at::kFloat : dtype;
}

inline at::Tensor in_product_dtype(const at::Tensor& tensor) { return tensor.to(product_dtype(tensor.scalar_type())); }

// A small factor, row by row. The libraries below ATen add in another order where a factor of a small product is
// transposed in memory, and what a graph has saved for its backward pass does not lie as it does eagerly. The factors
// of large products they pack first; a copy of those would cost time and change no bits, but for products of a few rows
// or columns, where the order of a large factor is left as it is.
inline at::Tensor factor(const at::Tensor& tensor) {
  constexpr int64_t kSmall = 1 << 16;
  const at::Tensor matrix = in_product_dtype(tensor);
  if (matrix.numel() > kSmall) return matrix;
  // ATen looks at the strides of dimensions of size 1, too.
  return matrix.contiguous().as_strided(matrix.sizes(), c10::contiguous_strides(matrix.sizes()));
}

}  // namespace cann_cpu
