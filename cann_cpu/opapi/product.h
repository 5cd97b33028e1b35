// SPDX-License-Identifier: Apache-2.0
// The matrix product that functions of several steps have in common (matmul.cpp).
#pragma once

#include "table.h"

namespace cann_cpu {

// first x second + bias, rounded once, to the dtype of out.
void write_product(Out out, In first, In second, OptionalIn bias);

}  // namespace cann_cpu
