// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a matrix that lies row by row, for processors that multiply bytes by fours (VNNI) or
// bfloat16 by pairs (AVX512-BF16).
#include "cpu/unpacked_products.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "cann_cpu/cpu_capability.h"
#include "cpu/pairs.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace opp {

#if defined(__x86_64__)

namespace {

// Rows of x whose sums fit into the registers beside the weight's.
constexpr int64_t kMaxRows = 4;
// Registers of sums that a row has, whose columns lie in lanes of 16 bytes as the weight's were interleaved.
constexpr int64_t kRegisters = 4;

#define OPP_FOURS __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define OPP_PAIRS __attribute__((target("avx512f,avx512bw,avx512bf16")))

OPP_FOURS inline __m512i load_flipped(const int8_t* row) {
  return _mm512_xor_si512(_mm512_loadu_si512(row), _mm512_set1_epi8(-128));
}

// The weight's bytes of four rows, each with its sign bit flipped, which adds 128, by fours: those of columns 16 l + 4
// j, ..., 16 l + 4 j + 3 in lane l of register j.
OPP_FOURS void interleave_fours(const int8_t* weight, int64_t stride, int8_t* interleaved) {
  const __m512i a = load_flipped(weight);
  const __m512i b = load_flipped(weight + stride);
  const __m512i c = load_flipped(weight + 2 * stride);
  const __m512i d = load_flipped(weight + 3 * stride);
  const __m512i ab_low = _mm512_unpacklo_epi8(a, b);
  const __m512i ab_high = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi8(c, d);
  const __m512i cd_high = _mm512_unpackhi_epi8(c, d);
  _mm512_storeu_si512(interleaved, _mm512_unpacklo_epi16(ab_low, cd_low));
  _mm512_storeu_si512(interleaved + 64, _mm512_unpackhi_epi16(ab_low, cd_low));
  _mm512_storeu_si512(interleaved + 128, _mm512_unpacklo_epi16(ab_high, cd_high));
  _mm512_storeu_si512(interleaved + 192, _mm512_unpackhi_epi16(ab_high, cd_high));
}

template <int64_t kRows>
OPP_FOURS void add_fours(const int8_t* x, int64_t x_stride, const int8_t* interleaved, int64_t depth, int32_t* sums,
                         RowsAhead* ahead) {
  __m512i totals[kRows][kRegisters];
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kRegisters; ++j) totals[r][j] = _mm512_loadu_si512(sums + r * kUnpackedColumns + 16 * j);
  }
  for (int64_t k = 0; k < depth; k += 4) {
    const int8_t* fours = interleaved + k * kUnpackedColumns;
    if (ahead != nullptr) ahead->bring<4>();
    for (int64_t r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, x + r * x_stride + k, sizeof(four));
      const __m512i right = _mm512_set1_epi32(four);
      for (int64_t j = 0; j < kRegisters; ++j) {
        totals[r][j] = _mm512_dpbusd_epi32(totals[r][j], _mm512_loadu_si512(fours + 64 * j), right);
      }
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kRegisters; ++j) _mm512_storeu_si512(sums + r * kUnpackedColumns + 16 * j, totals[r][j]);
  }
}

// The weight's numbers of two rows, by pairs: those of columns 32 i + 8 l + 4 j, ..., 32 i + 8 l + 4 j + 3 in lane l of
// register 2 i + j.
OPP_PAIRS void interleave_pairs(const at::BFloat16* weight, int64_t stride, at::BFloat16* interleaved) {
  const __m512i a = _mm512_loadu_si512(weight);
  const __m512i b = _mm512_loadu_si512(weight + stride);
  const __m512i c = _mm512_loadu_si512(weight + 32);
  const __m512i d = _mm512_loadu_si512(weight + stride + 32);
  _mm512_storeu_si512(interleaved, _mm512_unpacklo_epi16(a, b));
  _mm512_storeu_si512(interleaved + 32, _mm512_unpackhi_epi16(a, b));
  _mm512_storeu_si512(interleaved + 64, _mm512_unpacklo_epi16(c, d));
  _mm512_storeu_si512(interleaved + 96, _mm512_unpackhi_epi16(c, d));
}

template <int64_t kRows>
OPP_PAIRS void add_pairs(const at::BFloat16* x, int64_t x_stride, const at::BFloat16* interleaved, int64_t depth,
                         float* sums, RowsAhead* ahead) {
  __m512 totals[kRows][kRegisters];
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kRegisters; ++j) totals[r][j] = _mm512_loadu_ps(sums + r * kUnpackedColumns + 16 * j);
  }
  for (int64_t k = 0; k < depth; k += 2) {
    const at::BFloat16* pairs = interleaved + k * kUnpackedColumns;
    if (ahead != nullptr) ahead->bring<4>();
    for (int64_t r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, x + r * x_stride + k, sizeof(pair));
      const auto right = (__m512bh)_mm512_set1_epi32(pair);
      for (int64_t j = 0; j < kRegisters; ++j) {
        const auto left = (__m512bh)_mm512_loadu_si512(pairs + 32 * j);
        totals[r][j] = _mm512_dpbf16_ps(totals[r][j], left, right);
      }
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kRegisters; ++j) _mm512_storeu_ps(sums + r * kUnpackedColumns + 16 * j, totals[r][j]);
  }
}

constexpr decltype(&add_fours<1>) kAddFours[kMaxRows] = {add_fours<1>, add_fours<2>, add_fours<3>, add_fours<4>};
constexpr decltype(&add_pairs<1>) kAddPairs[kMaxRows] = {add_pairs<1>, add_pairs<2>, add_pairs<3>, add_pairs<4>};

// Interleaves kGroup rows after the other: memory is read along rows, since lines of one column would all contend for
// the same few places of the L1 cache where rows lie a multiple of 4 KiB apart.
template <int64_t kGroup, class Element>
void interleave_by_groups(void (*interleave)(const Element*, int64_t, Element*), const Element* weight, int64_t stride,
                          int64_t rows, int64_t columns, Element* interleaved) {
  for (int64_t row = 0; row < rows; row += kGroup) {
    for (int64_t column = 0; column < columns; column += kUnpackedColumns) {
      interleave(weight + row * stride + column, stride, interleaved + column * rows + row * kUnpackedColumns);
    }
  }
}

// Calls add[r - 1] for r rows at a time; the first of them bring the lines ahead.
template <class Add, class Element, class Sum>
void add_by_rows(const Add (&add)[kMaxRows], const Element* x, int64_t x_stride, int64_t rows,
                 const Element* interleaved, int64_t depth, Sum* sums, RowsAhead* ahead) {
  for (int64_t row = 0; row < rows; row += kMaxRows, ahead = nullptr) {
    add[std::min(kMaxRows, rows - row) - 1](x + row * x_stride, x_stride, interleaved, depth,
                                            sums + row * kUnpackedColumns, ahead);
  }
}

}  // namespace

template <>
bool has_unpacked_products<int8_t>() {
  static const bool has =
      cann_cpu::cpu_capability() == cann_cpu::CpuCapability::kAvx512 && __builtin_cpu_supports("avx512vnni");
  return has;
}

template <>
bool has_unpacked_products<at::BFloat16>() {
  return has_pairs();
}

void interleave(const int8_t* weight, int64_t stride, int64_t rows, int64_t columns, int8_t* interleaved) {
  interleave_by_groups<4>(interleave_fours, weight, stride, rows, columns, interleaved);
}

void interleave(const at::BFloat16* weight, int64_t stride, int64_t rows, int64_t columns, at::BFloat16* interleaved) {
  interleave_by_groups<2>(interleave_pairs, weight, stride, rows, columns, interleaved);
}

void add_interleaved_products(const int8_t* x, int64_t x_stride, int64_t rows, const int8_t* interleaved, int64_t depth,
                              int32_t* sums, RowsAhead* ahead) {
  add_by_rows(kAddFours, x, x_stride, rows, interleaved, depth, sums, ahead);
}

void add_interleaved_products(const at::BFloat16* x, int64_t x_stride, int64_t rows, const at::BFloat16* interleaved,
                              int64_t depth, float* sums, RowsAhead* ahead) {
  add_by_rows(kAddPairs, x, x_stride, rows, interleaved, depth, sums, ahead);
}

#else

template <>
bool has_unpacked_products<int8_t>() {
  return false;
}

template <>
bool has_unpacked_products<at::BFloat16>() {
  return false;
}

void interleave(const int8_t*, int64_t, int64_t, int64_t, int8_t*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no byte products");
}

void interleave(const at::BFloat16*, int64_t, int64_t, int64_t, at::BFloat16*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no products of pairs");
}

void add_interleaved_products(const int8_t*, int64_t, int64_t, const int8_t*, int64_t, int32_t*, RowsAhead*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no byte products");
}

void add_interleaved_products(const at::BFloat16*, int64_t, int64_t, const at::BFloat16*, int64_t, float*, RowsAhead*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no products of pairs");
}

#endif

void order_unpacked_sums(const int32_t* sums, int32_t* ordered) {
  for (int64_t j = 0; j < 4; ++j) {
    for (int64_t lane = 0; lane < 4; ++lane) std::copy_n(sums + 16 * j + 4 * lane, 4, ordered + 16 * lane + 4 * j);
  }
}

void order_unpacked_sums(const float* sums, float* ordered) {
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 2; ++j) {
      for (int64_t lane = 0; lane < 4; ++lane) {
        std::copy_n(sums + 16 * (2 * i + j) + 4 * lane, 4, ordered + 32 * i + 8 * lane + 4 * j);
      }
    }
  }
}

}  // namespace opp
