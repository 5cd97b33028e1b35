// SPDX-License-Identifier: Apache-2.0
// The names of the Graph Engine's element types and formats, which tiling functions print as well.
#include "graph/utils/type_utils.h"

const char* cann_cpu::data_type_name(ge::DataType type) {
  using namespace ge;
  switch (type) {
#define NAME(type) \
  case type:       \
    return #type;
    NAME(DT_FLOAT)
    NAME(DT_FLOAT16)
    NAME(DT_INT8)
    NAME(DT_INT32)
    NAME(DT_UINT8)
    NAME(DT_INT16)
    NAME(DT_UINT16)
    NAME(DT_UINT32)
    NAME(DT_INT64)
    NAME(DT_UINT64)
    NAME(DT_DOUBLE)
    NAME(DT_BOOL)
    NAME(DT_STRING)
    NAME(DT_DUAL_SUB_INT8)
    NAME(DT_DUAL_SUB_UINT8)
    NAME(DT_COMPLEX64)
    NAME(DT_COMPLEX128)
    NAME(DT_QINT8)
    NAME(DT_QINT16)
    NAME(DT_QINT32)
    NAME(DT_QUINT8)
    NAME(DT_QUINT16)
    NAME(DT_RESOURCE)
    NAME(DT_STRING_REF)
    NAME(DT_DUAL)
    NAME(DT_VARIANT)
    NAME(DT_BF16)
    NAME(DT_UNDEFINED)
    NAME(DT_INT4)
    NAME(DT_UINT1)
    NAME(DT_INT2)
    NAME(DT_UINT2)
    NAME(DT_COMPLEX32)
    NAME(DT_HIFLOAT8)
    NAME(DT_FLOAT8_E5M2)
    NAME(DT_FLOAT8_E4M3FN)
    NAME(DT_FLOAT8_E8M0)
    NAME(DT_FLOAT6_E3M2)
    NAME(DT_FLOAT6_E2M3)
    NAME(DT_FLOAT4_E2M1)
    NAME(DT_FLOAT4_E1M2)
#undef NAME
    default:
      return "UNDEFINED";
  }
}

const ge::char_t* ge::GetFormatName(Format format) {
  switch (format) {
#define NAME(format)    \
  case FORMAT_##format: \
    return #format;
    NAME(NCHW)
    NAME(NHWC)
    NAME(ND)
    NAME(NC1HWC0)
    NAME(FRACTAL_Z)
    NAME(HWCN)
    NAME(NDHWC)
    NAME(FRACTAL_NZ)
    NAME(NCDHW)
    NAME(NDC1HWC0)
    NAME(FRACTAL_Z_3D)
    NAME(NCL)
    NAME(FRACTAL_NZ_C0_16)
    NAME(FRACTAL_NZ_C0_32)
#undef NAME
    default:
      return "RESERVED";
  }
}
