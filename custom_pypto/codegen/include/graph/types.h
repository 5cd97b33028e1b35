// SPDX-License-Identifier: Apache-2.0
// The data types that a prototype may name, numbered as in Graph Engine's IR.
#pragma once

// X(name, number)
#define GE_DATA_TYPES(X)  \
  X(DT_FLOAT, 0)          \
  X(DT_FLOAT16, 1)        \
  X(DT_INT8, 2)           \
  X(DT_INT32, 3)          \
  X(DT_UINT8, 4)          \
  X(DT_INT16, 6)          \
  X(DT_UINT16, 7)         \
  X(DT_UINT32, 8)         \
  X(DT_INT64, 9)          \
  X(DT_UINT64, 10)        \
  X(DT_DOUBLE, 11)        \
  X(DT_BOOL, 12)          \
  X(DT_STRING, 13)        \
  X(DT_COMPLEX64, 16)     \
  X(DT_COMPLEX128, 17)    \
  X(DT_QINT8, 18)         \
  X(DT_QINT16, 19)        \
  X(DT_QINT32, 20)        \
  X(DT_QUINT8, 21)        \
  X(DT_QUINT16, 22)       \
  X(DT_RESOURCE, 23)      \
  X(DT_VARIANT, 26)       \
  X(DT_BF16, 27)          \
  X(DT_UNDEFINED, 28)     \
  X(DT_INT4, 29)          \
  X(DT_UINT1, 30)         \
  X(DT_INT2, 31)          \
  X(DT_UINT2, 32)         \
  X(DT_COMPLEX32, 33)     \
  X(DT_HIFLOAT8, 34)      \
  X(DT_FLOAT8_E5M2, 35)   \
  X(DT_FLOAT8_E4M3FN, 36) \
  X(DT_FLOAT8_E8M0, 37)   \
  X(DT_FLOAT6_E3M2, 38)   \
  X(DT_FLOAT6_E2M3, 39)   \
  X(DT_FLOAT4_E2M1, 40)   \
  X(DT_FLOAT4_E1M2, 41)

namespace ge {

enum DataType {
#define X(name, number) name = number,
  GE_DATA_TYPES(X)
#undef X
};

inline const char* data_type_name(DataType type) {
  switch (type) {
#define X(name, number) \
  case name:            \
    return #name;
    GE_DATA_TYPES(X)
#undef X
  }
  return "DT_UNDEFINED";
}

}  // namespace ge
