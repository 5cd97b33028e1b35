// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a matrix of bytes that lies as it is, for processors that multiply bytes by fours.
#pragma once

#include <cstdint>

namespace opp {

// Columns that are multiplied at once.
constexpr int64_t kByteColumns = 64;

// Whether this processor multiplies bytes so.
bool has_byte_products();

// sums[r][c] += sum over k < depth of x[r][k] * (weight[k][c] + 128), for kByteColumns columns. Rows of x and of the
// weight lie x_stride and weight_stride apart, those of the sums sums_stride; depth is a multiple of 4. The sums'
// columns are in an order of their own, which order_sums fixes in one row. Fetches as many rows of the weight as follow
// on these.
void add_byte_products(const int8_t* x, int64_t x_stride, int64_t rows, const int8_t* weight, int64_t weight_stride,
                       int64_t depth, int32_t* sums, int64_t sums_stride);
void order_sums(int32_t* sums);

}  // namespace opp
