// SPDX-License-Identifier: Apache-2.0
// Checks of arguments. Those of shapes are for phase one, those of values for phase two, before anything is written.
#pragma once

#include "table.h"

namespace cann_cpu {

// "key has 3 dimensions, shape [2, 3, 4]; expected 4"
inline void check_rank(const char* name, const at::Tensor& tensor, int64_t rank) {
  TORCH_CHECK(tensor.dim() == rank, name, " has ", tensor.dim(), " dimensions, shape ", tensor.sizes(), "; expected ",
              rank);
}

// "key has shape [2, 3]; expected [2, 4]"
inline void check_shape(const char* name, const at::Tensor& tensor, at::IntArrayRef expected) {
  TORCH_CHECK(tensor.sizes() == expected, name, " has shape ", tensor.sizes(), "; expected ", expected);
}

inline void check_contiguous(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous, has shape ", tensor.sizes(), " and strides ",
              tensor.strides());
}

// "sparse_mode is 7; expected 0 to 4"
inline void check_range(const char* name, int64_t value, int64_t first, int64_t last) {
  TORCH_CHECK(value >= first && value <= last, name, " is ", value, "; expected ", first, " to ", last);
}

// Checks that each element of an integer tensor is in a range or equals `absent`: "block_table[3, 2] is 17; expected 0
// to 15".
CANN_EXPORT void check_values(const char* name, const at::Tensor& tensor, int64_t first, int64_t last,
                              std::optional<int64_t> absent = std::nullopt);
CANN_EXPORT void check_values(const char* name, at::IntArrayRef list, int64_t first, int64_t last);

}  // namespace cann_cpu
