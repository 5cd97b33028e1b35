// SPDX-License-Identifier: Apache-2.0
// The matrix product that Mmad and the Matmul library compute with. Every element is summed over k in ascending order,
// each step rounded once, so that the bits depend neither on the machine nor on how a product is divided. Sums of
// bfloat16_t are the exception: a processor with instructions for them (AVX512-BF16, AMX) adds the products of two
// elements along k at a time, and takes numbers below the smallest normal one as 0. They depend on the processor, then,
// but not on the sizes of the product.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "ascendc/instruction.h"

namespace AscendC::cpu {

// What sums are computed in.
template <class T>
using SumOf = std::conditional_t<std::is_integral_v<T>, int32_t, float>;

inline constexpr int64_t kStripe = 16;  // columns

constexpr int64_t whole_stripes(int64_t columns) { return (columns + kStripe - 1) / kStripe * kStripe; }

// Where a factor lies, the rows of the left one or the columns of the right one being lines of elements along k: in
// pieces of 32 bytes, as in fractals, or, across, element p of line i at data + p * line + i * its size. The pieces of
// 16 lines of the right factor may lie as in L0B: turned, so that the first 4 bytes of all come first.
struct FactorLayout {
  const std::byte* data;
  int64_t line;      // bytes from a line to the next; across, from an element to the next
  int64_t lines_16;  // from 16 lines to the next 16
  int64_t piece;     // from a piece of a line to the next
  bool across = false;
  bool turned = false;

  const std::byte* piece_of(int64_t of_line, int64_t number) const {
    return data + of_line / 16 * lines_16 + of_line % 16 * line + number * piece;
  }
};

enum class Factors : uint8_t { Half, Bfloat16, Float, Int8 };

template <class T>
constexpr Factors factors_of() {
  static_assert(OneOf<T, half, bfloat16_t, float, int8_t>);
  if constexpr (std::is_same_v<T, half>) return Factors::Half;
  if constexpr (std::is_same_v<T, bfloat16_t>) return Factors::Bfloat16;
  return std::is_same_v<T, float> ? Factors::Float : Factors::Int8;
}

// How float factors are rounded to 1 sign bit, 8 bits of the exponent and 11 after the point: to the nearest such
// number, with ties to the even one or to the larger, or toward 0.
enum class Hf32 : uint8_t { Off, ToEven, AwayFromZero, TowardZero };

inline float to_hf32(float value, Hf32 rounding) {
  constexpr uint32_t kCut = 12, kHalf = 1u << (kCut - 1);
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (rounding == Hf32::Off || (bits & 0x7f800000) == 0x7f800000) return value;
  if (rounding == Hf32::ToEven) bits += kHalf - 1 + (bits >> kCut & 1);
  if (rounding == Hf32::AwayFromZero) bits += kHalf;
  return std::bit_cast<float>(bits & ~((1u << kCut) - 1));
}
inline void round_factors(float* factors, int64_t count, Hf32 rounding) {
  for (int64_t i = 0; rounding != Hf32::Off && i < count; ++i) factors[i] = to_hf32(factors[i], rounding);
}

// sums = a b, or sums += a b. Element (i, j) of the sums, float or int32_t, lies at sums[i * row + j / 16 * stripe +
// j % 16]: FRACTAL_NZ has rows of 16 and a stripe for each 16 columns, consecutive rows have stripes of 16. Stripes are
// written whole; the products of columns that do not exist are 0.
struct Product {
  int32_t* sums;
  int64_t row, stripe;
  FactorLayout a, b;
  int64_t m, n, k;
  bool accumulate;
  Hf32 rounding = Hf32::Off;
};
ASCENDC_CPU_EXPORT void multiply(Factors factors, const Product& product);

// Turns 16 lines of 32 bytes. The second turns lines that lie across: for each of their elements, of 1 or 2 bytes, a
// row of 16, `line` bytes after the one before.
void turn_lines(std::byte* to, const std::byte* from);
void turn_across(uint32_t itemsize, std::byte* to, const std::byte* from, int64_t line);

// c[i * row_c + j] = the sum over p of a[i * row_a + p * column_a] * b[p * row_b + j * column_b], or += it.
template <class Sum, class T>
void gemm(Sum* c, int64_t row_c, const T* a, int64_t row_a, int64_t column_a, const T* b, int64_t row_b,
          int64_t column_b, int64_t m, int64_t n, int64_t k, bool accumulate, Hf32 rounding = Hf32::Off) {
  static_assert(std::is_same_v<Sum, SumOf<T>>);
  const int64_t width = whole_stripes(n);
  std::vector<Sum> padded;
  Sum* sums = c;
  int64_t row = row_c;
  if (width != n) {
    padded.resize(static_cast<size_t>(m * width));
    sums = padded.data(), row = width;
    for (int64_t i = 0; accumulate && i < m; ++i) std::copy_n(c + i * row_c, n, sums + i * row);
  }
  std::vector<T> equal[2];
  // A matrix whose elements are all one number becomes a line.
  const auto layout_of = [&](int which, const T* data, int64_t line, int64_t element) -> FactorLayout {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    if (line == 0 && element == 0) {
      equal[which].assign(static_cast<size_t>(k), *data);
      data = equal[which].data(), element = 1;
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    if (element == 1) return {bytes, line * kSize, 16 * line * kSize, kBlockBytes};
    return {bytes, element * kSize, 0, 0, true};
  };
  multiply(factors_of<T>(), {reinterpret_cast<int32_t*>(sums), row, kStripe, layout_of(0, a, row_a, column_a),
                             layout_of(1, b, column_b, row_b), m, n, k, accumulate, rounding});
  for (int64_t i = 0; sums != c && i < m; ++i) std::copy_n(sums + i * row, n, c + i * row_c);
}

}  // namespace AscendC::cpu
