// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a matrix that lies row by row, for processors that multiply bytes by fours (VNNI) or
// bfloat16 by pairs (AVX512-BF16).
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

// Interleaves rows of a weight that lie `stride` apart as add_interleaved_products takes them, kUnpackedColumns columns
// after the other. There are as many rows as a multiple of 4, of bfloat16 of 2.
void interleave(const int8_t* weight, int64_t stride, int64_t rows, int64_t columns, int8_t* interleaved);
void interleave(const at::BFloat16* weight, int64_t stride, int64_t rows, int64_t columns, at::BFloat16* interleaved);

// sums[r][c] += sum over k < depth of x[r][k] * weight[k][c], for kUnpackedColumns columns of a weight of which `depth`
// rows were interleaved; of int8, where 128 is added to each number of the weight, in int32, exactly; of bfloat16 in
// float32, pair of k after pair. Rows of x lie x_stride apart, those of the sums follow one another, and their columns
// are in an order of their own, which order_unpacked_sums fixes in one row. Brings of `ahead`, if that is not null, as
// many lines as these columns of the weight have.
void add_interleaved_products(const int8_t* x, int64_t x_stride, int64_t rows, const int8_t* interleaved, int64_t depth,
                              int32_t* sums, RowsAhead* ahead);
void add_interleaved_products(const at::BFloat16* x, int64_t x_stride, int64_t rows, const at::BFloat16* interleaved,
                              int64_t depth, float* sums, RowsAhead* ahead);
void order_unpacked_sums(const int32_t* sums, int32_t* ordered);
void order_unpacked_sums(const float* sums, float* ordered);

}  // namespace opp
