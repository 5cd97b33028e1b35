// SPDX-License-Identifier: Apache-2.0
// The one table of element types. ACL and the Graph Engine number them alike: ACL_FLOAT16 is DT_FLOAT16.
#pragma once

#include <cstddef>
#include <string>

#include "acl/acl_base.h"

// X(name, what PyTorch calls it, bytes, number in a model file (ge.proto.DataType), at::ScalarType)
// 0 bytes: less than a byte, or no size; Undefined: ATen does not have it. Bits8 are bytes without a meaning to ATen.
#define CANN_CPU_DTYPES(X)                                \
  X(FLOAT, "float32", 4, 1, Float)                        \
  X(FLOAT16, "float16", 2, 2, Half)                       \
  X(INT8, "int8", 1, 3, Char)                             \
  X(UINT8, "uint8", 1, 4, Byte)                           \
  X(INT16, "int16", 2, 5, Short)                          \
  X(UINT16, "uint16", 2, 6, UInt16)                       \
  X(INT32, "int32", 4, 7, Int)                            \
  X(INT64, "int64", 8, 8, Long)                           \
  X(UINT32, "uint32", 4, 9, UInt32)                       \
  X(UINT64, "uint64", 8, 10, UInt64)                      \
  X(BOOL, "bool", 1, 11, Bool)                            \
  X(DOUBLE, "float64", 8, 12, Double)                     \
  X(STRING, "string", 0, 13, Undefined)                   \
  X(COMPLEX64, "complex64", 8, 16, ComplexFloat)          \
  X(COMPLEX128, "complex128", 16, 17, ComplexDouble)      \
  X(BF16, "bfloat16", 2, 27, BFloat16)                    \
  X(INT4, "int4", 0, 28, Undefined)                       \
  X(COMPLEX32, "complex32", 4, 32, ComplexHalf)           \
  X(HIFLOAT8, "hifloat8", 1, 33, Bits8)                   \
  X(FLOAT8_E5M2, "float8_e5m2", 1, 34, Float8_e5m2)       \
  X(FLOAT8_E4M3FN, "float8_e4m3fn", 1, 35, Float8_e4m3fn) \
  X(FLOAT8_E8M0, "float8_e8m0fnu", 1, 36, Float8_e8m0fnu)

namespace cann_cpu {

// Bytes of one element; 0 for a type without a fixed number of bytes.
constexpr size_t dtype_size(aclDataType dtype) {
  switch (dtype) {
#define X(name, pytorch, bytes, model, aten) \
  case ACL_##name:                           \
    return bytes;
    CANN_CPU_DTYPES(X)
#undef X
    default:
      return 0;
  }
}

// "float16", "int64", ...; the number of an unknown type.
inline std::string dtype_name(aclDataType dtype) {
  switch (dtype) {
#define X(name, pytorch, bytes, model, aten) \
  case ACL_##name:                           \
    return pytorch;
    CANN_CPU_DTYPES(X)
#undef X
    default:
      return std::to_string(static_cast<int>(dtype));
  }
}

}  // namespace cann_cpu
