// SPDX-License-Identifier: Apache-2.0
// Loops that are compiled once for each level of vector instructions. One level is chosen at run time.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace opp {

constexpr int64_t kLanes = 16;

// The loops, for one level of vector instructions.
class Simd {
 public:
  // scores[r] = sum over h < heads of weights[h] * relu(products[r * stride + h]), where relu keeps NaN. Reads weights
  // and products up to the next multiple of kLanes. The order of the additions depends on nothing but heads.
  virtual void weighted_relu_sums(const float* products, int64_t stride, int64_t rows, const float* weights,
                                  int64_t heads, float* scores) const = 0;
  // The same with products[r * stride + h] - shifts[h], exact modulo 2^32, for the products.
  virtual void weighted_relu_sums(const int32_t* products, const int32_t* shifts, int64_t stride, int64_t rows,
                                  const float* weights, int64_t heads, float* scores) const = 0;

  virtual void to_float(const at::Half* from, int64_t count, float* to) const = 0;
  virtual void to_float(const at::BFloat16* from, int64_t count, float* to) const = 0;
  virtual void to_float(const int8_t* from, int64_t count, float* to) const = 0;
  virtual void from_float(const float* from, int64_t count, at::Half* to) const = 0;
  virtual void from_float(const float* from, int64_t count, at::BFloat16* to) const = 0;

  // to[i] = from[i] * row_scale * column_scales[i].
  virtual void dequantise(const int32_t* from, int64_t count, float row_scale, const float* column_scales,
                          float* to) const = 0;

  // to[i] = the nearest integer to from[i] * 127 / amax, ties to even, 0 for NaN, where amax, which is returned, is the
  // largest |from[i]|, NaN if one is NaN. If it is 0, so is all of `to`.
  virtual float quantise(const float* from, int64_t count, int8_t* to) const = 0;
  virtual float quantise(const at::BFloat16* from, int64_t count, int8_t* to) const = 0;

  // Rotates `half` pairs of numbers (x, y), interleaved or in halves: to[i] = x cos[i] - y sin[i], and with j = half +
  // i, to[j] = y cos[j] + x sin[j].
  virtual void rotate(const float* from, int64_t half, bool interleaved, const float* cos, const float* sin,
                      float* to) const = 0;
  virtual void rotate(const at::BFloat16* from, int64_t half, bool interleaved, const float* cos, const float* sin,
                      at::BFloat16* to) const = 0;

  // Sums over i of from[i] and of (from[i] - mean)^2. The order of the additions depends on nothing but count.
  virtual float sum(const float* from, int64_t count) const = 0;
  virtual float sum_of_squares(const float* from, int64_t count, float mean) const = 0;

  // The mean of from[i]^2.
  virtual float mean_square(const at::Half* from, int64_t count) const = 0;
  virtual float mean_square(const at::BFloat16* from, int64_t count) const = 0;

  // to[i] = (from[i] - mean) * factor * gamma[i] + (beta ? beta[i] : 0).
  virtual void scale_and_shift(const float* from, int64_t count, float mean, float factor, const float* gamma,
                               const float* beta, float* to) const = 0;

  // The smallest and the largest of numbers. There is at least one.
  virtual void find_extremes(const uint32_t* from, int64_t count, uint32_t* smallest, uint32_t* largest) const = 0;

  // Ranks are integers that compare as scores do, where NaN exceeds any number and -0 equals 0; none is 0. Writes the
  // ranks of those scores that exceed `floor`, and their places, counted from `first` on; returns how many. Reads up to
  // the next multiple of kLanes, and may write over up to kLanes more than it returns.
  virtual int64_t rank(const float* scores, int64_t count, int32_t first, uint32_t floor, uint32_t* ranks,
                       int32_t* places) const = 0;

  // Writes the ranks from `lowest` to `highest` and, unless `places` is null, their places; returns how many. The
  // results may begin where the operands do. Reads and writes as rank() does.
  virtual int64_t select(const uint32_t* ranks, const int32_t* places, int64_t count, uint32_t lowest, uint32_t highest,
                         uint32_t* to_ranks, int32_t* to_places) const = 0;

  // Transposes 16 rows of 32-bit words, `row_stride` words apart: to[w * to_stride + r] = from[r * row_stride + w].
  virtual void transpose_words(const void* from, int64_t row_stride, int64_t words, void* to,
                               int64_t to_stride) const = 0;

  // The same for words that are pairs of 16-bit elements: to[(2 * w + i) * to_stride + r] is the i-th of word w in row
  // r.
  virtual void transpose_pairs(const void* from, int64_t row_stride, int64_t words, void* to,
                               int64_t to_stride) const = 0;

  // to[2 * i] = even[i], to[2 * i + 1] = odd[i], for 16-bit elements; count is a multiple of kLanes.
  virtual void interleave(const void* even, const void* odd, int64_t count, void* to) const = 0;

  // Packs rows of 16-bit or 8-bit elements, `row_stride` apart, by twos or fours, as many as make a 32-bit word:
  // to[r / n * to_stride + n * c + r % n] = from[r * row_stride + c]. rows is a multiple of n, columns of kLanes;
  // strides count elements.
  virtual void pack(const uint16_t* from, int64_t row_stride, int64_t rows, int64_t columns, uint16_t* to,
                    int64_t to_stride) const = 0;
  virtual void pack(const uint8_t* from, int64_t row_stride, int64_t rows, int64_t columns, uint8_t* to,
                    int64_t to_stride) const = 0;

  // row *= scale, and -infinity in what follows the count up to the next multiple of kLanes. Returns the largest number
  // in it, or `largest` if that is larger. NaN is not larger than anything.
  virtual float scale_and_find_largest(float* row, int64_t count, float scale, float largest) const = 0;

  // A row of softmax weights, in place: x becomes w = exp(x - maximum). Adds up w in *sum, and w^2 factors[i] in
  // *weighted_squares. Works up to the next multiple of kLanes.
  virtual void exponentials(float* row, int64_t count, float maximum, const float* factors, float* sum,
                            float* weighted_squares) const = 0;

  // row *= factor, and to += row; count is a multiple of kLanes.
  virtual void multiply(float* row, int64_t count, float factor) const = 0;
  virtual void add(const float* row, int64_t count, float* to) const = 0;

  // Writes each x as the sum of two numbers, high its nearest; count is a multiple of kLanes.
  virtual void split(const float* row, int64_t count, at::Half* high, at::Half* low) const = 0;
  virtual void split(const float* row, int64_t count, at::BFloat16* high, at::BFloat16* low) const = 0;

  // to = row / divisor. Reads and writes up to the next multiple of kLanes.
  virtual void divide(const float* row, int64_t count, float divisor, at::Half* to) const = 0;
  virtual void divide(const float* row, int64_t count, float divisor, at::BFloat16* to) const = 0;

 protected:
  ~Simd() = default;
};

// The loops for cann_cpu::cpu_capability().
const Simd& simd();

}  // namespace opp
