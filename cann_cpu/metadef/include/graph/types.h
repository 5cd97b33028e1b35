// SPDX-License-Identifier: Apache-2.0
// Element types, formats and placements of the Graph Engine, with CANN's numbers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "cann_cpu/export.h"

namespace ge {

constexpr int64_t UNKNOWN_DIM = -1;
constexpr int64_t UNKNOWN_DIM_NUM = -2;  // the only one of a shape of unknown rank

using char_t = char;
using float32_t = float;
using float64_t = double;

enum DataType {
  DT_FLOAT = 0,
  DT_FLOAT16 = 1,
  DT_INT8 = 2,
  DT_INT32 = 3,
  DT_UINT8 = 4,
  DT_INT16 = 6,
  DT_UINT16 = 7,
  DT_UINT32 = 8,
  DT_INT64 = 9,
  DT_UINT64 = 10,
  DT_DOUBLE = 11,
  DT_BOOL = 12,
  DT_STRING = 13,
  DT_DUAL_SUB_INT8 = 14,
  DT_DUAL_SUB_UINT8 = 15,
  DT_COMPLEX64 = 16,
  DT_COMPLEX128 = 17,
  DT_QINT8 = 18,
  DT_QINT16 = 19,
  DT_QINT32 = 20,
  DT_QUINT8 = 21,
  DT_QUINT16 = 22,
  DT_RESOURCE = 23,
  DT_STRING_REF = 24,
  DT_DUAL = 25,
  DT_VARIANT = 26,
  DT_BF16 = 27,
  DT_UNDEFINED = 28,
  DT_INT4 = 29,
  DT_UINT1 = 30,
  DT_INT2 = 31,
  DT_UINT2 = 32,
  DT_COMPLEX32 = 33,
  DT_HIFLOAT8 = 34,
  DT_FLOAT8_E5M2 = 35,
  DT_FLOAT8_E4M3FN = 36,
  DT_FLOAT8_E8M0 = 37,
  DT_FLOAT6_E3M2 = 38,
  DT_FLOAT6_E2M3 = 39,
  DT_FLOAT4_E2M1 = 40,
  DT_FLOAT4_E1M2 = 41,
  DT_MAX = 42,
};

// The formats that a graph of torchair can name; tensors are computed in their row-major order (ND) whatever the name.
enum Format {
  FORMAT_NCHW = 0,
  FORMAT_NHWC = 1,
  FORMAT_ND = 2,
  FORMAT_NC1HWC0 = 3,
  FORMAT_FRACTAL_Z = 4,
  FORMAT_HWCN = 16,
  FORMAT_NDHWC = 27,
  FORMAT_FRACTAL_NZ = 29,
  FORMAT_NCDHW = 30,
  FORMAT_NDC1HWC0 = 32,
  FORMAT_FRACTAL_Z_3D = 33,
  FORMAT_RESERVED = 40,
  FORMAT_ALL = 41,
  FORMAT_NULL = 42,
  FORMAT_NCL = 47,
  FORMAT_FRACTAL_NZ_C0_16 = 50,
  FORMAT_FRACTAL_NZ_C0_32 = 51,
  FORMAT_END = 52,
  FORMAT_MAX = 0xff,
};

// The format without its sub-format and C0, which CANN packs into the higher bits.
inline int32_t GetPrimaryFormat(int32_t format) { return format & 0xff; }

constexpr int kDataTypeSizeBitOffset = 1000;

// Bytes of an element; of a type of less than a byte its bits and kDataTypeSizeBitOffset; -1 for a type without a size.
inline int GetSizeByDataType(DataType type) {
  switch (type) {
    case DT_UINT1:
      return kDataTypeSizeBitOffset + 1;
    case DT_INT2:
    case DT_UINT2:
      return kDataTypeSizeBitOffset + 2;
    case DT_INT4:
    case DT_FLOAT4_E2M1:
    case DT_FLOAT4_E1M2:
      return kDataTypeSizeBitOffset + 4;
    case DT_FLOAT6_E3M2:
    case DT_FLOAT6_E2M3:
      return kDataTypeSizeBitOffset + 6;
    case DT_INT8:
    case DT_UINT8:
    case DT_BOOL:
    case DT_QINT8:
    case DT_QUINT8:
    case DT_HIFLOAT8:
    case DT_FLOAT8_E5M2:
    case DT_FLOAT8_E4M3FN:
    case DT_FLOAT8_E8M0:
      return 1;
    case DT_FLOAT16:
    case DT_BF16:
    case DT_INT16:
    case DT_UINT16:
    case DT_QINT16:
    case DT_QUINT16:
      return 2;
    case DT_FLOAT:
    case DT_INT32:
    case DT_UINT32:
    case DT_QINT32:
    case DT_COMPLEX32:
      return 4;
    case DT_INT64:
    case DT_UINT64:
    case DT_DOUBLE:
    case DT_COMPLEX64:
      return 8;
    case DT_COMPLEX128:
      return 16;
    default:
      return -1;
  }
}

enum Placement { kPlacementHost = 0, kPlacementDevice = 1, kPlacementEnd };

// The name of a format, "RESERVED" for one that has none here.
CANN_EXPORT const char_t* GetFormatName(Format format);

class TensorTypeImpl;

// The set of element types that an input or output of a prototype may have.
struct CANN_EXPORT TensorType {
  explicit TensorType(DataType type);
  TensorType(const std::initializer_list<DataType>& types);

  static TensorType ALL();
  static TensorType QuantifiedType();
  static TensorType OrdinaryType();
  static TensorType BasicType();
  static TensorType NumberType();
  static TensorType RealNumberType();
  static TensorType ComplexDataType();
  static TensorType IntegerDataType();
  static TensorType SignedDataType();
  static TensorType UnsignedDataType();
  static TensorType FloatingDataType();
  static TensorType IndexNumberType();
  static TensorType UnaryDataType();
  static TensorType FLOAT();

  std::shared_ptr<TensorTypeImpl> tensor_type_impl_;
};

}  // namespace ge
