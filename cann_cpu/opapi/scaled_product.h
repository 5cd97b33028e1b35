// SPDX-License-Identifier: Apache-2.0
// The product of two integer matrices, scaled: the one that all quantised functions share (scaled_product.cpp).
#pragma once

#include "table.h"

namespace cann_cpu {

// The columns of an integer matrix: int8, or int4 in int32, eight along the rows or along the columns. How many rows it
// has tells which.
class IntegerMatrix {
 public:
  IntegerMatrix(const char* name, In stored, int64_t rows);

  int64_t columns() const { return columns_; }
  bool is_packed() const { return stored_.scalar_type() == at::kInt; }
  at::Tensor part(int64_t column, int64_t count) const;  // of all rows, int8

 private:
  at::Tensor stored_;
  bool is_packed_along_rows_;
  int64_t columns_;
};

// x @ weight in integers, for each group of adjoining k; the groups' sums are scaled and added in float:
//
//   sum over groups of ((x - shift) @ (weight - weight_offset) + integer_bias) * scale * group_row_scale
//
// then + row_sum_scale * the sum of the row of x, + sum_bias, * row_scale, + bias, the activation, and the rounding to
// out's dtype; int8 is rounded half to even. A tensor that is absent takes no part.
struct ScaledProduct {
  at::Tensor x;  // (m, k), int8, or int4 in int32
  IntegerMatrix weight;
  int64_t group_size = 0;  // 0: one group
  int64_t shift = 0;

  std::optional<at::Tensor> integer_bias{};     // (n)
  std::optional<at::Tensor> scale{};            // (groups, n) or (groups, 1), float
  std::optional<at::Tensor> weight_offset{};    // (groups, n)
  std::optional<at::Tensor> group_row_scale{};  // (m, groups)
  std::optional<at::Tensor> row_sum_scale{};    // (n)
  std::optional<at::Tensor> sum_bias{};         // (n) or (1)
  std::optional<at::Tensor> row_scale{};        // (m)
  std::optional<at::Tensor> bias{};             // (n) or (1)
  at::Tensor (*activation)(In sums) = nullptr;
  bool is_added = false;  // to out

  void write(Out out) const;

 private:
  at::Tensor group_sums(In rows, In columns, int64_t column, int64_t group, int64_t first, int64_t depth) const;
};

// x @ ((weight + offset) * scale) + bias in float, where the scales and offsets are of one column, or of the columns of
// each group of adjoining k.
struct DequantizedProduct {
  at::Tensor x;  // (m, k), of a floating type
  IntegerMatrix weight;
  int64_t group_size = 0;                           // 0: one group
  at::Tensor scale;                                 // (groups, n) or (groups, 1)
  std::optional<at::Tensor> offset{};               // as scale
  std::optional<at::Tensor> bias{};                 // (n)
  std::optional<at::Tensor> y_scale{}, y_offset{};  // (n) or (1), of the rounding to int8

  void write(Out out) const;
};

// The signed offsets in a tensor of 64-bit quantisation parameters (aclnnTransQuantParam).
at::Tensor packed_offsets(In parameters);

}  // namespace cann_cpu
