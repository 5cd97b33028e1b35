// SPDX-License-Identifier: Apache-2.0
// The table of element types.
#include "dtypes.h"

#include "model.h"

namespace cann_cpu::graph {
namespace {

struct Row {
  int64_t model;
  ge::DataType ge;
  const char* name;
  at::ScalarType aten;  // Undefined: ATen cannot compute with it
};

constexpr auto kNone = at::ScalarType::Undefined;

constexpr Row kTable[] = {
    {1, ge::DT_FLOAT, "DT_FLOAT", at::kFloat},
    {2, ge::DT_FLOAT16, "DT_FLOAT16", at::kHalf},
    {3, ge::DT_INT8, "DT_INT8", at::kChar},
    {4, ge::DT_UINT8, "DT_UINT8", at::kByte},
    {5, ge::DT_INT16, "DT_INT16", at::kShort},
    {6, ge::DT_UINT16, "DT_UINT16", at::kUInt16},
    {7, ge::DT_INT32, "DT_INT32", at::kInt},
    {8, ge::DT_INT64, "DT_INT64", at::kLong},
    {9, ge::DT_UINT32, "DT_UINT32", at::kUInt32},
    {10, ge::DT_UINT64, "DT_UINT64", at::kUInt64},
    {11, ge::DT_BOOL, "DT_BOOL", at::kBool},
    {12, ge::DT_DOUBLE, "DT_DOUBLE", at::kDouble},
    {13, ge::DT_STRING, "DT_STRING", kNone},
    {16, ge::DT_COMPLEX64, "DT_COMPLEX64", at::kComplexFloat},
    {17, ge::DT_COMPLEX128, "DT_COMPLEX128", at::kComplexDouble},
    {18, ge::DT_QINT8, "DT_QINT8", kNone},
    {27, ge::DT_BF16, "DT_BF16", at::kBFloat16},
    {28, ge::DT_INT4, "DT_INT4", kNone},
    {32, ge::DT_COMPLEX32, "DT_COMPLEX32", at::kComplexHalf},
    {33, ge::DT_HIFLOAT8, "DT_HIFLOAT8", kNone},
    {34, ge::DT_FLOAT8_E5M2, "DT_FLOAT8_E5M2", at::kFloat8_e5m2},
    {35, ge::DT_FLOAT8_E4M3FN, "DT_FLOAT8_E4M3FN", at::kFloat8_e4m3fn},
    {36, ge::DT_FLOAT8_E8M0, "DT_FLOAT8_E8M0", kNone},
};

}  // namespace

ge::DataType dtype_of_model(int64_t number) {
  for (const Row& row : kTable) {
    if (row.model == number) {
      return row.ge;
    }
  }
  return ge::DT_UNDEFINED;
}

std::string dtype_name(ge::DataType dtype) {
  for (const Row& row : kTable) {
    if (row.ge == dtype) {
      return row.name;
    }
  }
  return dtype == ge::DT_UNDEFINED ? "DT_UNDEFINED" : "data type " + std::to_string(static_cast<int>(dtype));
}

at::ScalarType scalar_type(ge::DataType dtype) {
  for (const Row& row : kTable) {
    if (row.ge == dtype && row.aten != kNone) {
      return row.aten;
    }
  }
  throw GraphError(dtype_name(dtype) + " is not supported on the CPU");
}

ge::DataType ge_dtype(at::ScalarType type) {
  for (const Row& row : kTable) {
    if (row.aten == type && type != kNone) {
      return row.ge;
    }
  }
  throw GraphError(std::string("the Graph Engine has no data type for ") + c10::toString(type));
}

}  // namespace cann_cpu::graph
