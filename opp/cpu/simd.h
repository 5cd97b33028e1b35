// Loops that are compiled once for each vector extension; the machine's best is chosen at run time.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace opp {

constexpr int64_t kLanes = 16;

// scores[r] = sum over h < heads of weights[h] * relu(products[r * stride + h]), where relu keeps NaN. Reads weights
// and products up to the next multiple of kLanes. The order of the additions depends on nothing but heads.
void weighted_relu_sums(const float* products, int64_t stride, int64_t rows, const float* weights, int64_t heads,
                        float* scores);

void to_float(const at::Half* from, int64_t count, float* to);
void to_float(const at::BFloat16* from, int64_t count, float* to);

// Transposes 16 rows of 32-bit words, `row_stride` words apart: to[w * to_stride + r] = from[r * row_stride + w].
void transpose_words(const void* from, int64_t row_stride, int64_t words, void* to, int64_t to_stride);

// to[2 * i] = even[i], to[2 * i + 1] = odd[i], for 16-bit elements; count is a multiple of kLanes.
void interleave(const void* even, const void* odd, int64_t count, void* to);

// One step of an online softmax over a row of products, in place: x becomes exp(scale * x - maximum), where the maximum
// so far is updated first, and what follows the count, up to the next multiple of kLanes, zero. Adds up the results in
// sum. Returns what the results of earlier steps are to be multiplied by; sum already is.
float softmax_step(float* row, int64_t count, float scale, float* maximum, float* sum);

// row *= factor; count is a multiple of kLanes.
void multiply(float* row, int64_t count, float factor);

// Writes each x as the sum of two numbers, high its nearest; count is a multiple of kLanes.
void split(const float* row, int64_t count, at::Half* high, at::Half* low);
void split(const float* row, int64_t count, at::BFloat16* high, at::BFloat16* low);

// to = row / divisor. Reads and writes up to the next multiple of kLanes.
void divide(const float* row, int64_t count, float divisor, at::Half* to);
void divide(const float* row, int64_t count, float divisor, at::BFloat16* to);

}  // namespace opp
