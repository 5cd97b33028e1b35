// SPDX-License-Identifier: Apache-2.0
// Data types of ACL: the size of an element, and half precision as 16 bits.
#include <cmath>

#include "acl/acl_base.h"

size_t aclDataTypeSize(aclDataType dataType) {
  switch (dataType) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0:
      return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
      return 4;
    case ACL_DOUBLE:
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_COMPLEX64:
      return 8;
    case ACL_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

float aclFloat16ToFloat(aclFloat16 value) {
  float sign = (value & 0x8000) != 0 ? -1.0f : 1.0f;
  int exponent = (value >> 10) & 0x1f;
  int fraction = value & 0x3ff;
  if (exponent == 0x1f) return sign * (fraction == 0 ? INFINITY : NAN);
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction | 0x400), exponent - 25);
}

aclFloat16 aclFloatToFloat16(float value) {
  aclFloat16 sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00;                        // rounds past the largest half
  int exponent = magnitude < 0x1p-14f ? -13 : std::ilogb(magnitude) + 1;  // halves below 2^-14 are multiples of 2^-24
  // In units of the last place; the default rounding mode is to nearest, ties to even. A carry moves into the exponent.
  auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 11 - exponent)));
  return sign | static_cast<aclFloat16>(units + ((exponent + 13) << 10));
}
