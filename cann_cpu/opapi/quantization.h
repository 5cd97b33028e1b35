// SPDX-License-Identifier: Apache-2.0
// What all quantised functions have in common (quantization.cpp). A dtype to quantise to is int8, uint8, int32 or an
// 8-bit float; QUInt4x2, as in torch_npu, stands for int4, whose values are computed as int8 and then packed.
#pragma once

#include <c10/util/FunctionRef.h>

#include "table.h"

namespace cann_cpu {

constexpr auto kInt4 = at::ScalarType::QUInt4x2;

enum class Rounding { HalfToEven, Up, Down, ToZero };

// "round" (or "rint"), "ceil", "floor" or "trunc".
Rounding rounding_of(const char* name, Text mode);

// The least and the greatest value of a dtype.
std::pair<double, double> range_of(at::ScalarType dtype);

// x rounded and saturated; not a number becomes 0.
at::Tensor saturated(In x, at::ScalarType dtype, Rounding rounding = Rounding::HalfToEven);

// saturated(x * scale + offset), in float.
at::Tensor quantized(In x, In scale, OptionalIn offset, at::ScalarType dtype, Rounding rounding = Rounding::HalfToEven);

// (values + offset) * scale, in float.
at::Tensor dequantized(In values, In scale, OptionalIn offset);

struct Dynamic {
  at::Tensor values, scale, offset;  // the offset is undefined where the quantisation is symmetric
};

// Quantises with one scale for each row (the last dimension):
//   symmetric   scale = max(|x|) / highest,                     values = saturated(x / scale)
//   otherwise   scale = (max(x) - min(x)) / (highest - lowest), values = saturated(x / scale + offset),
//               offset = highest - max(x) / scale
// A row without a range has scale 0 and the values that a quotient of 0 gives. `highest` stands for the dtype's own.
Dynamic dynamically_quantized(In x, at::ScalarType dtype, bool symmetric = true, double highest = 0);

// Int4, eight in an int32, the first in the lowest bits; the last dimension holds them.
at::Tensor packed_int4(In values);
at::Tensor unpacked_int4(In packed);  // to int8

// The dtype to compute that an output stands for: an int32 output holds int4.
inline at::ScalarType quantized_dtype(const at::Tensor& out) {
  return out.scalar_type() == at::kInt ? kInt4 : out.scalar_type();
}

// The shape of quantised x, and of an output of this shape as given: an eighth of the columns in int32.
void check_quantized_shape(const char* name, const at::Tensor& out, at::IntArrayRef x);

// Values of quantized_dtype(out), packed where it is int4.
void assign_quantized(const at::Tensor& out, const at::Tensor& values);

// The dtype that a call names, 2 for int8 and so on, is that of its output.
void check_dst_type(int64_t dst_type, const char* name, const at::Tensor& out);

// A tensor as a matrix: its last dimension is kept.
at::Tensor as_rows(const at::Tensor& tensor);

// The rows of an output, a view or a copy of it; stored() writes a copy back.
class RowsOut {
 public:
  explicit RowsOut(const at::Tensor& out);
  at::Tensor part(int64_t begin, int64_t count) const { return rows_.narrow(0, begin, count); }
  void stored() const;

 private:
  at::Tensor out_, rows_;
};

// A tensor that broadcasts to a shape, as rows that broadcast to the shape's rows, in float.
class RowsIn {
 public:
  RowsIn(const at::Tensor& tensor, at::IntArrayRef shape);
  at::Tensor part(int64_t begin, int64_t count) const { return each_ ? rows_.narrow(0, begin, count) : rows_; }

 private:
  at::Tensor rows_;
  bool each_;
};

// Calls body(begin, count) for one block of rows after the other, so that temporaries stay small.
void in_blocks(int64_t rows, int64_t columns, c10::function_ref<void(int64_t, int64_t)> body);

// The float scales in a tensor of 64-bit quantisation parameters (aclnnTransQuantParam), or as they are given.
at::Tensor float_scales(In parameters);

// The group of each row, where group_ends holds the end of each group: [0, 0, 1, 2, 2]; -1 past the last.
at::Tensor group_of_rows(In group_ends, int64_t rows);

}  // namespace cann_cpu
