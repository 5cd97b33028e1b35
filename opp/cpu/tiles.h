// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 and int8 by the tiles of x86 processors (AMX), for blocks too small for oneDNN to multiply them
// as fast.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

#include "cpu/prefetch.h"

namespace opp {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileDepth = 32;      // bfloat16 in a row of a tile
constexpr int64_t kByteTileDepth = 64;  // int8

// Whether this processor multiplies tiles of bfloat16, and the operating system lets this process; and those of int8.
bool has_tiles();
bool has_byte_tiles();

// What this thread's tiles must be for the products below: all whole, or those of sums and of what is on the left, the
// first five, of so many rows.
void begin_tiles(int64_t rows = kTileRows);
void end_tiles();

// c = a b, or c += a b, as Products multiply, of bfloat16 in float or of int8 in int32: depth is a multiple of
// kTileDepth or kByteTileDepth, columns of kTileRows, and at most a panel's.
template <class Element, class Sum>
void multiply_tiles(const Element* a, int64_t a_stride, const Element* b, Sum* c, int64_t c_stride, int64_t rows,
                    int64_t columns, int64_t depth, bool add);

// Adds the products of kTileDepth numbers of `rows` rows of a, for which the tiles are, with so many rows of a panel of
// kPanel columns. The sums' rows follow one another. Brings 48 lines meanwhile, if `ahead` is not null.
void add_tile_products(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* panel, float* sums,
                       RowsAhead* ahead);

// Products of up to kMaxSpreadRows rows of int8 with a matrix of bytes that lies row by row. Tiles normally need groups
// of four rows. Here they take the matrix as it is, in groups of four columns: for each column, a row of x has zeros
// for the other three. A tile has kSpreadRows rows of x, and kSpreadDepth of their elements.
constexpr int64_t kSpreadRows = 4;
constexpr int64_t kSpreadDepth = 16;
constexpr int64_t kSpreadColumns = 64;
constexpr int64_t kMaxSpreadRows = 4 * kSpreadRows;

// Where x is spread: elements for `rows` rows and a depth that kSpreadDepth divides.
constexpr int64_t spread_size(int64_t rows, int64_t depth) {
  return (rows + kSpreadRows - 1) / kSpreadRows * kSpreadRows * 4 * 4 * depth;
}
void spread(const int8_t* x, int64_t x_stride, int64_t rows, int64_t depth, int8_t* to);
// Adds the products of kSpreadDepth of x's elements, from where they are spread, with as many rows of the weight, whose
// columns kSpreadColumns divides. Prefetches the rows that follow, if `next` is given. The sums, of whole groups of
// four rows, are in an internal order. order_spread_sums writes one row of them in the order of the columns.
void add_spread_products(const int8_t* spread, int64_t rows, const int8_t* weight, int64_t weight_stride,
                         int64_t columns, bool next, int32_t* sums);
void order_spread_sums(const int32_t* sums, int64_t rows, int64_t row, int64_t columns, int32_t* to);

// scores[r] = sum over h < heads of weights[h] * relu(a[r] b[h]), where relu keeps NaN, for `rows` rows, a multiple of
// kTileRows, and the columns of b, in panels: those of `heads` and what pads them to a multiple of kTileRows. The order
// of the additions depends on nothing but heads. Meanwhile brings as many rows from `next` on to the cache, if that is
// not null. `products` is memory for 2 * kTileRows of each of b's columns, aligned for vectors.
void weighted_relu_tiles(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* b, const float* weights,
                         float* scores, int64_t rows, int64_t heads, int64_t depth, const at::BFloat16* next,
                         float* products);

}  // namespace opp
