// SPDX-License-Identifier: Apache-2.0
#include "scaled_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "product.h"
#include "quantization.h"

namespace cann_cpu {
namespace {

constexpr int64_t kWordValues = 8;           // int4 in an int32
constexpr int64_t kBlockElements = 1 << 21;  // of a temporary

// `count` elements of a row of one or more; one stands for all.
at::Tensor columns_of(In row, int64_t column, int64_t count) {
  return row.size(-1) == 1 ? row : row.narrow(-1, column, count);
}

// Calls body(group, first, depth) for each group of k.
template <class Body>
void by_groups(int64_t group_size, int64_t k, Body body) {
  int64_t group = 0;
  if (k == 0) return body(group, 0, 0);
  by_steps(k, group_size == 0 ? k : group_size, [&](int64_t first, int64_t depth) { body(group++, first, depth); });
}

void write_rounded(const at::Tensor& out, In sums) {
  out.copy_(out.scalar_type() == at::kChar ? saturated(sums, at::kChar) : sums);
}

}  // namespace

IntegerMatrix::IntegerMatrix(const char* name, In stored, int64_t rows) : stored_(stored) {
  TORCH_CHECK(stored.dim() == 2, name, " has ", stored.dim(), " dimensions, shape ", stored.sizes(), "; expected 2");
  is_packed_along_rows_ = is_packed() && stored.size(0) * kWordValues == rows;
  columns_ = stored.size(1) * (is_packed() && !is_packed_along_rows_ ? kWordValues : 1);
  TORCH_CHECK(is_packed_along_rows_ || stored.size(0) == rows, name, " has shape ", stored.sizes(), "; expected ", rows,
              is_packed() ? " rows of int4" : " rows");
}

at::Tensor IntegerMatrix::part(int64_t column, int64_t count) const {
  if (!is_packed()) return stored_.narrow(1, column, count);
  if (is_packed_along_rows_) return unpacked_int4(stored_.narrow(1, column, count).t()).t();
  const int64_t first = column / kWordValues, end = (column + count + kWordValues - 1) / kWordValues;
  return unpacked_int4(stored_.narrow(1, first, end - first)).narrow(1, column - first * kWordValues, count);
}

// The sums of one group before they are scaled.
at::Tensor ScaledProduct::group_sums(In rows, In columns, int64_t column, int64_t group, int64_t first,
                                     int64_t depth) const {
  const at::Tensor left = rows.narrow(1, first, depth), right = columns.narrow(0, first, depth);
  at::Tensor sums = integer_product(left, right);
  if (shift != 0) sums.sub_(right.sum(0, false, at::kInt) * at::Scalar(shift));
  if (integer_bias.has_value()) sums.add_(columns_of(*integer_bias, column, columns.size(1)));
  if (weight_offset.has_value()) {
    const at::Tensor offset = columns_of(weight_offset->select(0, group), column, columns.size(1)).to(at::kFloat);
    sums = sums.to(at::kFloat) - left.sum({1}, true, at::kInt).to(at::kFloat) * offset;
  }
  return sums;
}

void ScaledProduct::write(Out out) const {
  const bool x_is_packed = x.scalar_type() == at::kInt;
  const int64_t k = x.size(1) * (x_is_packed ? kWordValues : 1), n = weight.columns();
  // A weight that is not packed need not be divided: integer_product packs a few columns at a time.
  const int64_t most = weight.is_packed() ? std::max<int64_t>(kBlockElements / std::max<int64_t>(k, 1), 64) : 1 << 15;
  const int64_t width = std::min(std::max<int64_t>(n, 1), most / kWordValues * kWordValues);
  by_steps(x.size(0), std::max<int64_t>(kBlockElements / width, 1), [&](int64_t row, int64_t rows) {
    const at::Tensor part = x.narrow(0, row, rows), left = x_is_packed ? unpacked_int4(part) : part;
    by_steps(n, width, [&](int64_t column, int64_t columns) {
      const at::Tensor right = weight.part(column, columns),
                       result = out.narrow(0, row, rows).narrow(1, column, columns);
      at::Tensor total;
      by_groups(group_size, k, [&](int64_t group, int64_t first, int64_t depth) {
        at::Tensor sums = group_sums(left, right, column, group, first, depth);
        if (scale.has_value()) sums = sums.to(at::kFloat).mul_(columns_of(scale->select(0, group), column, columns));
        if (group_row_scale.has_value()) sums = sums.mul_(group_row_scale->narrow(0, row, rows).narrow(1, group, 1));
        total = total.defined() ? total.add_(sums) : sums;
      });
      if (row_sum_scale.has_value()) {
        total.add_(left.sum({1}, true, at::kInt) * columns_of(*row_sum_scale, column, columns));
      }
      if (sum_bias.has_value()) total = total + columns_of(*sum_bias, column, columns);
      if (row_scale.has_value()) total = total.to(at::kFloat).mul_(row_scale->narrow(0, row, rows).unsqueeze(1));
      if (bias.has_value()) total = total + columns_of(*bias, column, columns).to(at::kFloat);
      if (activation != nullptr) total = activation(total);
      if (is_added) {
        result.add_(total);
      } else {
        write_rounded(result, total);
      }
    });
  });
}

void DequantizedProduct::write(Out out) const {
  const int64_t k = x.size(1), n = weight.columns();
  const int64_t width = std::max<int64_t>(kBlockElements / 2 / std::max<int64_t>(k, 1), 64);
  by_steps(x.size(0), std::max<int64_t>(kBlockElements / std::max<int64_t>(k, width), 1),
           [&](int64_t row, int64_t rows) {
             const at::Tensor left = x.narrow(0, row, rows).to(at::kFloat);
             by_steps(n, width, [&](int64_t column, int64_t columns) {
               const at::Tensor right = weight.part(column, columns).to(at::kFloat);
               by_groups(group_size, k, [&](int64_t group, int64_t first, int64_t depth) {
                 const at::Tensor of_group = right.narrow(0, first, depth);
                 if (offset.has_value()) of_group.add_(columns_of(offset->select(0, group), column, columns));
                 of_group.mul_(columns_of(scale.select(0, group), column, columns));
               });
               at::Tensor sums = at::mm(left, right);
               if (bias.has_value()) sums.add_(columns_of(*bias, column, columns));
               if (y_scale.has_value()) sums.mul_(columns_of(*y_scale, column, columns));
               if (y_offset.has_value()) sums.add_(columns_of(*y_offset, column, columns));
               write_rounded(out.narrow(0, row, rows).narrow(1, column, columns), sums);
             });
           });
}

at::Tensor packed_offsets(In parameters) {
  constexpr int64_t kFirstBit = 37, kSign = 256;
  const at::Tensor bits = parameters.view(at::kLong).__rshift__(kFirstBit).bitwise_and(2 * kSign - 1);
  return bits.sub(bits.bitwise_and(kSign) * at::Scalar(2)).to(at::kFloat);
}

}  // namespace cann_cpu
