// SPDX-License-Identifier: Apache-2.0
// Common checks of the arguments of operators on int8.
#pragma once

#include <cstdint>

namespace custom_pypto {

// Sums of that many products of int8 fit into int32.
constexpr int64_t kMaxProducts = (int64_t{1} << 31) / (128 * 128) - 1;

}  // namespace custom_pypto
