// SPDX-License-Identifier: Apache-2.0
// The dtype of numbers that a kernel takes as float.
#pragma once

#include <cstdint>

namespace opp {

enum class FloatType : uint8_t { kFloat, kHalf, kBfloat16 };

}  // namespace opp
