// SPDX-License-Identifier: Apache-2.0
// The matrix products that functions of several steps have in common.
#pragma once

#include <algorithm>

#include "table.h"

namespace cann_cpu {

// Whether the processor's products of a half type are faster than those of floats (matmul.cpp).
bool multiplies_halves(at::ScalarType dtype);

// first x second + bias, rounded once, to the dtype of out (matmul.cpp).
void write_product(Out out, In first, In second, OptionalIn bias);

// The exact sums, in int32, of the product of two int8 matrices (integer_product.cpp).
at::Tensor integer_product(In first, In second);

// Calls body(first, count) for one range of [0, size) after the other, of at most `step` each.
template <class Body>
void by_steps(int64_t size, int64_t step, Body body) {
  for (int64_t first = 0; first < size; first += step) body(first, std::min(step, size - first));
}

}  // namespace cann_cpu
