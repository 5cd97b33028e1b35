// SPDX-License-Identifier: Apache-2.0
// HiFloat8, which ATen does not have: its bytes are at::kBits8. After the sign, a prefix (11, 10, 01, 001, 0001) says
// that 4, 3, 2, 1 or 0 bits of exponent follow: a sign, and a magnitude without its highest bit. The rest is the
// mantissa. 0000 is the prefix of 2^(mantissa - 23), and of zero.
#pragma once

#include "table.h"

namespace cann_cpu {

constexpr at::ScalarType kHiFloat8 = at::kBits8;
constexpr double kHiFloat8Max = 32768;

// The numbers of any floating type, in float.
at::Tensor in_wide_float(In tensor);

// The nearest numbers, of two the one further from zero; infinite past the greatest.
at::Tensor in_hifloat8(In x);

}  // namespace cann_cpu
