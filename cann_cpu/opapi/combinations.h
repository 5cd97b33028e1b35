// SPDX-License-Identifier: Apache-2.0
// Which dtypes the tensors of a call may have together, where each by itself says too little.
#pragma once

#include <span>

#include "table.h"

namespace cann_cpu {

struct GivenDtype {
  const char* name;
  std::optional<at::ScalarType> dtype;  // nothing for a tensor that is null
};

template <class T>
GivenDtype given(const char* name, const T& tensor) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return {name, tensor.scalar_type()};
  } else {
    return {name, tensor.has_value() ? std::optional(tensor->scalar_type()) : std::nullopt};
  }
}

// A row has an entry for each tensor, in their order: its dtypes, or null.
//
//   "int8; int8; float16 bfloat16; null float32"
//
// Throws where no row has all that is given: "bias has dtype float16; expected null or int32, where x1 is int8, x2 is
// int8 and out is int8". It names the first tensor that no row has after those before it.
void check_combination(std::span<const GivenDtype> given, std::span<const char* const> rows);

}  // namespace cann_cpu
