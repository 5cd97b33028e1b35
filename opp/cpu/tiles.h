// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 and int8 by the tiles of x86 processors (AMX), for blocks too small for oneDNN to multiply them
// as fast.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace opp {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileDepth = 32;      // bfloat16 in a row of a tile
constexpr int64_t kByteTileDepth = 64;  // int8

// Whether this processor multiplies tiles of bfloat16, and the operating system lets this process; and those of int8.
bool has_tiles();
bool has_byte_tiles();

// What this thread's tiles must be for the products below: of kTileRows rows, all whole.
void begin_tiles();
void end_tiles();

// c = a b, or c += a b, as Products multiply, of bfloat16 in float or of int8 in int32: depth is a multiple of
// kTileDepth or kByteTileDepth, columns of kTileRows, and at most a panel's.
template <class Element, class Sum>
void multiply_tiles(const Element* a, int64_t a_stride, const Element* b, Sum* c, int64_t c_stride, int64_t rows,
                    int64_t columns, int64_t depth, bool add);

// scores[r] = sum over h < heads of weights[h] * relu(a[r] b[h]), where relu keeps NaN, for `rows` rows, a multiple of
// kTileRows, and the columns of b, in panels: those of `heads` and what pads them to a multiple of kTileRows. The order
// of the additions depends on nothing but heads. Meanwhile brings as many rows from `next` on to the cache, if that is
// not null. `products` is memory for 2 * kTileRows of each of b's columns, aligned for vectors.
void weighted_relu_tiles(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* b, const float* weights,
                         float* scores, int64_t rows, int64_t heads, int64_t depth, const at::BFloat16* next,
                         float* products);

}  // namespace opp
