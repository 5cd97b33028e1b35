// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a matrix that lies row by row, as it is, for processors that multiply bytes by fours (VNNI)
// or bfloat16 by pairs (AVX512-BF16).
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

#include "cpu/prefetch.h"

namespace opp {

// Columns that are multiplied at once.
constexpr int64_t kUnpackedColumns = 64;

// Whether this processor multiplies int8, or bfloat16, so.
template <class Element>
bool has_unpacked_products();

// sums[r][c] += sum over k < depth of x[r][k] * weight[k][c], for kUnpackedColumns columns; of int8, where 128 is added
// to each number of the weight, in int32, exactly; of bfloat16 in float32, pair of k after pair. Rows of x and of the
// weight lie x_stride and weight_stride apart, those of the sums sums_stride; depth is a multiple of 4, or of 2. The
// sums' columns are in an order of their own, which order_unpacked_sums fixes in one row. Brings of `ahead`, if that is
// not null, as many lines as these columns of the weight have.
void add_unpacked_products(const int8_t* x, int64_t x_stride, int64_t rows, const int8_t* weight, int64_t weight_stride,
                           int64_t depth, int32_t* sums, int64_t sums_stride, RowsAhead* ahead);
void add_unpacked_products(const at::BFloat16* x, int64_t x_stride, int64_t rows, const at::BFloat16* weight,
                           int64_t weight_stride, int64_t depth, float* sums, int64_t sums_stride, RowsAhead* ahead);
void order_unpacked_sums(int32_t* sums);
void order_unpacked_sums(float* sums);

}  // namespace opp
