// SPDX-License-Identifier: Apache-2.0
// The matrix product that Mmad and the Matmul library compute with. Every element is summed over k in ascending order,
// each step rounded once, so that the bits depend neither on the machine nor on how a product is divided.
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

// Where a matrix lies: element (i, j) at data[i * row + j / 16 * stripe + j % 16]. FRACTAL_NZ has rows of 16 and a
// stripe for each 16 columns. Consecutive rows have stripes of 16.
template <class Sum>
struct StripedMatrix {
  Sum* data;
  int64_t row;
  int64_t stripe;
};

constexpr int64_t whole_stripes(int64_t columns) { return (columns + kStripe - 1) / kStripe * kStripe; }

// c = a b, or c += a b. a has m rows of k; b has k rows of n rounded up to whole stripes, the rest 0, and as many
// columns of c are written. Factors whose products float holds without rounding are `exact`.
ASCENDC_CPU_EXPORT void multiply(const StripedMatrix<float>& c, const float* a, const float* b, int64_t m, int64_t n,
                                 int64_t k, bool accumulate, bool exact);
ASCENDC_CPU_EXPORT void multiply(const StripedMatrix<int32_t>& c, const int32_t* a, const int32_t* b, int64_t m,
                                 int64_t n, int64_t k, bool accumulate, bool exact = true);

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

// Memory for factors as they are multiplied, of this thread; what was in it is lost.
template <class Sum>
Sum* factor_memory(int which, int64_t elements) {
  thread_local std::vector<Sum> memory[3];
  if (static_cast<int64_t>(memory[which].size()) < elements) memory[which].resize(static_cast<size_t>(elements));
  return memory[which].data();
}

template <class T>
void widen_run(const T* from, SumOf<T>* to, int64_t count) {
  if constexpr (Narrow<T>) {
    widen(from, to, static_cast<uint32_t>(count));
  } else {
    std::copy_n(from, count, to);
  }
}

// rows x columns elements, the row i at from + i * row, the element j in it at j * column; widened into rows of
// `width`, filled up with 0.
template <class T>
void widen_matrix(const T* from, int64_t row, int64_t column, int64_t rows, int64_t columns, SumOf<T>* to,
                  int64_t width) {
  for (int64_t i = 0; i < rows; ++i, to += width) {
    if (column == 1) {
      widen_run(from + i * row, to, columns);
    } else {
      for (int64_t j = 0; j < columns; ++j) to[j] = static_cast<SumOf<T>>(from[i * row + j * column]);
    }
    std::fill(to + columns, to + width, SumOf<T>{});
  }
}

// c[i * row_c + j] = the sum over p of a[i * row_a + p * column_a] * b[p * row_b + j * column_b], or += it.
template <class Sum, class A, class B>
void gemm(Sum* c, int64_t row_c, const A* a, int64_t row_a, int64_t column_a, const B* b, int64_t row_b,
          int64_t column_b, int64_t m, int64_t n, int64_t k, bool accumulate, Hf32 rounding = Hf32::Off) {
  static_assert(std::is_same_v<Sum, SumOf<A>> && std::is_same_v<Sum, SumOf<B>>);
  constexpr int64_t kDepth = 1024;  // of the factors that are widened at a time
  const bool is_exact = !std::is_same_v<A, float> || !std::is_same_v<B, float> || rounding != Hf32::Off;
  const int64_t width = whole_stripes(n);
  Sum* sums = width == n ? c : factor_memory<Sum>(2, m * width);
  const int64_t row = width == n ? row_c : width;
  if (sums != c && accumulate) {
    for (int64_t i = 0; i < m; ++i) std::copy_n(c + i * row_c, n, sums + i * row);
  }
  for (int64_t p = 0; p < std::max<int64_t>(k, 1); p += kDepth) {
    const int64_t depth = std::min(kDepth, k - p);
    Sum* wide_a = factor_memory<Sum>(0, m * depth);
    Sum* wide_b = factor_memory<Sum>(1, depth * width);
    widen_matrix(a + p * column_a, row_a, column_a, m, depth, wide_a, depth);
    widen_matrix(b + p * row_b, row_b, column_b, depth, n, wide_b, width);
    if constexpr (std::is_same_v<A, float> && std::is_same_v<B, float>) {
      round_factors(wide_a, m * depth, rounding);
      round_factors(wide_b, depth * width, rounding);
    }
    multiply(StripedMatrix<Sum>{sums, row, kStripe}, wide_a, wide_b, m, n, depth, accumulate || p != 0, is_exact);
  }
  for (int64_t i = 0; sums != c && i < m; ++i) std::copy_n(sums + i * row, n, c + i * row_c);
}

}  // namespace AscendC::cpu
