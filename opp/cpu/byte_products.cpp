// SPDX-License-Identifier: Apache-2.0
// Products of few rows with a matrix of bytes that lies as it is, for processors that multiply bytes by fours (VNNI).
#include "cpu/byte_products.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "cann_cpu/cpu_capability.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace opp {

#if defined(__x86_64__)

namespace {

#define OPP_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))

// Rows of x whose sums fit into the registers beside the weight's.
constexpr int64_t kMaxRows = 4;
constexpr int64_t kLanes = 4;  // of 16 bytes in a register

// The weight's bytes of four rows, each with its sign bit flipped, which adds 128, by fours: those of columns 16 l + 4
// j, ..., 16 l + 4 j + 3 in lane l of register j.
struct Fours {
  __m512i registers[kLanes];
};

OPP_VNNI inline __m512i load_flipped(const int8_t* row) {
  return _mm512_xor_si512(_mm512_loadu_si512(row), _mm512_set1_epi8(-128));
}

OPP_VNNI inline Fours load_fours(const int8_t* weight, int64_t stride) {
  const __m512i a = load_flipped(weight);
  const __m512i b = load_flipped(weight + stride);
  const __m512i c = load_flipped(weight + 2 * stride);
  const __m512i d = load_flipped(weight + 3 * stride);
  const __m512i ab_low = _mm512_unpacklo_epi8(a, b);
  const __m512i ab_high = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi8(c, d);
  const __m512i cd_high = _mm512_unpackhi_epi8(c, d);
  return {{_mm512_unpacklo_epi16(ab_low, cd_low), _mm512_unpackhi_epi16(ab_low, cd_low),
           _mm512_unpacklo_epi16(ab_high, cd_high), _mm512_unpackhi_epi16(ab_high, cd_high)}};
}

template <int64_t kRows>
OPP_VNNI void add_rows(const int8_t* x, int64_t x_stride, const int8_t* weight, int64_t weight_stride, int64_t depth,
                       int32_t* sums, int64_t sums_stride) {
  __m512i totals[kRows][kLanes];
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kLanes; ++j) totals[r][j] = _mm512_loadu_si512(sums + r * sums_stride + 16 * j);
  }
  for (int64_t k = 0; k < depth; k += 4) {
    const Fours fours = load_fours(weight + k * weight_stride, weight_stride);
    for (int64_t i = 0; i < 4; ++i) __builtin_prefetch(weight + (depth + k + i) * weight_stride, 0, 2);
    for (int64_t r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, x + r * x_stride + k, sizeof(four));
      const __m512i right = _mm512_set1_epi32(four);
      for (int64_t j = 0; j < kLanes; ++j) totals[r][j] = _mm512_dpbusd_epi32(totals[r][j], fours.registers[j], right);
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kLanes; ++j) _mm512_storeu_si512(sums + r * sums_stride + 16 * j, totals[r][j]);
  }
}

}  // namespace

bool has_byte_products() {
  static const bool has =
      cann_cpu::cpu_capability() == cann_cpu::CpuCapability::kAvx512 && __builtin_cpu_supports("avx512vnni");
  return has;
}

void add_byte_products(const int8_t* x, int64_t x_stride, int64_t rows, const int8_t* weight, int64_t weight_stride,
                       int64_t depth, int32_t* sums, int64_t sums_stride) {
  using Add = decltype(&add_rows<1>);
  static constexpr Add kAdd[] = {add_rows<1>, add_rows<2>, add_rows<3>, add_rows<4>};
  static_assert(std::size(kAdd) == kMaxRows);
  for (int64_t row = 0; row < rows; row += kMaxRows) {
    const int64_t count = std::min(kMaxRows, rows - row);
    kAdd[count - 1](x + row * x_stride, x_stride, weight, weight_stride, depth, sums + row * sums_stride, sums_stride);
  }
}

#else

bool has_byte_products() { return false; }

void add_byte_products(const int8_t*, int64_t, int64_t, const int8_t*, int64_t, int64_t, int32_t*, int64_t) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no byte products");
}

#endif

void order_sums(int32_t* sums) {
  int32_t ordered[kByteColumns];
  for (int64_t j = 0; j < 4; ++j) {
    for (int64_t lane = 0; lane < 4; ++lane) std::copy_n(sums + 16 * j + 4 * lane, 4, ordered + 16 * lane + 4 * j);
  }
  std::copy_n(ordered, kByteColumns, sums);
}

}  // namespace opp
