// SPDX-License-Identifier: Apache-2.0
// Data types of ACL: the size of an element, and half precision as 16 bits.
#include <cmath>

#include "cann_cpu/dtypes.h"

size_t aclDataTypeSize(aclDataType dataType) {
  const bool is_part_of_a_byte = dataType == ACL_INT4 || dataType == ACL_UINT1;
  return is_part_of_a_byte ? 1 : cann_cpu::dtype_size(dataType);
}

// The two functions have neither infinities nor NaNs in any mode of the device: the largest exponent is for numbers.
float aclFloat16ToFloat(aclFloat16 value) {
  float sign = (value & 0x8000) != 0 ? -1.0f : 1.0f;
  int exponent = (value >> 10) & 0x1f;
  int fraction = value & 0x3ff;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction | 0x400), exponent - 25);
}

aclFloat16 aclFloatToFloat16(float value) {
  constexpr aclFloat16 kLargest = 0x7bff;
  if (std::isnan(value)) return kLargest;
  aclFloat16 sign = std::signbit(value) ? 0x8000 : 0;
  float magnitude = std::fabs(value);
  if (magnitude > 65504.0f) return sign | kLargest;
  int exponent = magnitude < 0x1p-14f ? -13 : std::ilogb(magnitude) + 1;  // halves below 2^-14 are multiples of 2^-24
  // In units of the last place; the default rounding mode is to nearest, ties to even. A carry moves into the exponent.
  auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 11 - exponent)));
  return sign | static_cast<aclFloat16>(units + ((exponent + 13) << 10));
}
