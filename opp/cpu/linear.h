// SPDX-License-Identifier: Apache-2.0
// Products of rows with weight matrices, as linear layers compute them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>

#include "cann_cpu/op.h"

namespace opp {

// A matrix of weights, [depth, columns], as it lies in memory: in blocks of columns, which in FRACTAL_NZ are apart and
// in ND follow one another.
struct Weight {
  const void* data;
  at::ScalarType dtype;  // bfloat16, float16 or int8
  int64_t depth;
  int64_t columns;
  int64_t row_stride;  // strides count elements
  int64_t column_stride;
  int64_t block_columns;
  int64_t block_stride;
  at::IntArrayRef sizes;  // where they are not two, the rest is not set

  explicit Weight(const at::Tensor& matrix);
  // From an argument in either format. It must not outlive the argument.
  Weight(const cann_cpu::StoredTensor& stored);

  int64_t offset(int64_t row, int64_t column) const {
    return row * row_stride + column / block_columns * block_stride + column % block_columns * column_stride;
  }
};

// A part of a product, whose rows follow one another.
struct LinearBlock {
  int64_t first_row;
  int64_t rows;
  int64_t first_column;
  int64_t columns;
  void* data;  // may be overwritten
};

// out = x weight, for rows of x and out whose elements lie side by side.
//
// bfloat16 and float16 are summed in float32; out is float32, or rounded to the weight's dtype. int8 is summed exactly;
// out is int32, or with scales, sum * row_scales[row] * column_scales[column] in float32, rounded to out's dtype.
//
// What works on the result takes it while it lies in a core's cache: block by block, of whole multiples of `take_step`
// columns, from many threads. Then out is nothing.
struct Linear {
  const void* x;  // the weight's dtype
  int64_t x_stride;
  Weight weight;
  void* out;
  at::ScalarType out_dtype;
  int64_t out_stride;
  const float* row_scales = nullptr;
  const float* column_scales = nullptr;
  std::function<void(const LinearBlock& block)> take = {};
  int64_t take_step = 1;
};

// Computes products, all of `rows` rows, on all cores. A row's result is bitwise equal for any number of rows and of
// threads, and for any layout of the weight. Takes about 1 MiB of memory for each thread.
void linear(int64_t rows, c10::ArrayRef<Linear> products);

}  // namespace opp
