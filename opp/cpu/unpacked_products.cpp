// SPDX-License-Identifier: Apache-2.0
#include "cpu/unpacked_products.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

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

// ---- by fours and pairs

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

// ---- by AVX2, whose 16 registers hold the sums of a part of the columns

#define OPP_AVX2 __attribute__((target("avx2,fma")))

constexpr int64_t kLanes = 8;
// Registers of sums that a row has: few rows have more, so that the processor always has some to go on with.
constexpr int64_t narrow_for(int64_t rows) { return rows > 2 ? 2 : 4; }
// Rows of the weight that are multiplied at once.
constexpr int64_t kMaxDepth = 32;

// Two rows by pairs of 16 bits: of each 16 columns first 0 to 3 and 8 to 11, then the others.
OPP_AVX2 void make_ready_shorts(const int8_t* weight, int64_t stride, int16_t* ready) {
  for (int64_t column = 0; column < kUnpackedColumns; column += 16) {
    const auto* from = reinterpret_cast<const __m128i*>(weight + column);
    const auto* next = reinterpret_cast<const __m128i*>(weight + stride + column);
    const __m256i a = _mm256_cvtepi8_epi16(_mm_loadu_si128(from));
    const __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128(next));
    auto* const to = reinterpret_cast<__m256i*>(ready + 2 * column);
    _mm256_storeu_si256(to, _mm256_unpacklo_epi16(a, b));
    _mm256_storeu_si256(to + 1, _mm256_unpackhi_epi16(a, b));
  }
}

OPP_AVX2 void make_ready_floats(const at::BFloat16* weight, int64_t, float* ready) {
  for (int64_t column = 0; column < kUnpackedColumns; column += kLanes) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weight + column));
    _mm256_storeu_ps(ready + column, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)));
  }
}

// Sums of registers as they are added to: products of pairs of 16 bits, and of floats.
struct OfShorts {
  using Register = __m256i;
  static constexpr int64_t kGroup = 2;
  OPP_AVX2 static Register load(const int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  OPP_AVX2 static void store(int32_t* to, Register sums) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), sums); }
  OPP_AVX2 static Register spread(const int16_t* pair) {
    int32_t bits;
    std::memcpy(&bits, pair, sizeof(bits));
    return _mm256_set1_epi32(bits);
  }
  OPP_AVX2 static Register add(Register sums, Register x, const int16_t* ready) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ready));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(x, pairs));
  }
};

struct OfFloats {
  using Register = __m256;
  static constexpr int64_t kGroup = 1;
  OPP_AVX2 static Register load(const float* from) { return _mm256_loadu_ps(from); }
  OPP_AVX2 static void store(float* to, Register sums) { _mm256_storeu_ps(to, sums); }
  OPP_AVX2 static Register spread(const float* number) { return _mm256_broadcast_ss(number); }
  OPP_AVX2 static Register add(Register sums, Register x, const float* ready) {
    return _mm256_fmadd_ps(x, _mm256_loadu_ps(ready), sums);
  }
};

// x has its rows kMaxDepth apart. For each group of the depth so many lines are brought.
template <class Of, int64_t kRows, int kLines, class Ready, class Sum>
OPP_AVX2 void add_columns(const Ready* x, const Ready* ready, int64_t depth, Sum* sums, RowsAhead* ahead) {
  constexpr int64_t kWidth = narrow_for(kRows);
  for (int64_t column = 0; column < kUnpackedColumns; column += kWidth * kLanes) {
    typename Of::Register totals[kRows][kWidth];
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kWidth; ++j) totals[r][j] = Of::load(sums + r * kUnpackedColumns + column + kLanes * j);
    }
    for (int64_t k = 0; k < depth; k += Of::kGroup) {
      const Ready* row = ready + k * kUnpackedColumns + column * Of::kGroup;
      if (ahead != nullptr) ahead->bring<kLines>();
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) {
        const auto right = Of::spread(x + r * kMaxDepth + k);
#pragma GCC unroll 4
        for (int64_t j = 0; j < kWidth; ++j) {
          totals[r][j] = Of::add(totals[r][j], right, row + kLanes * Of::kGroup * j);
        }
      }
    }
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kWidth; ++j) Of::store(sums + r * kUnpackedColumns + column + kLanes * j, totals[r][j]);
    }
    ahead = nullptr;
  }
}

template <class Of, int64_t kRows, class Element, class Ready, class Sum>
void add_by_avx2(const Element* x, int64_t x_stride, const Ready* ready, int64_t depth, Sum* sums, RowsAhead* ahead) {
  Ready numbers[kRows * kMaxDepth];
  for (int64_t first = 0; first < depth; first += kMaxDepth) {
    const int64_t count = std::min(kMaxDepth, depth - first);
    for (int64_t r = 0; r < kRows; ++r) {
      const Element* row = x + r * x_stride + first;
      std::transform(row, row + count, numbers + r * kMaxDepth, [](Element each) { return static_cast<Ready>(each); });
    }
    constexpr int kLines = kUnpackedColumns * sizeof(Element) / kCacheLine * Of::kGroup;
    add_columns<Of, kRows, kLines>(numbers, ready + first * kUnpackedColumns, count, sums, ahead);
  }
}

// ---- what each kind is made of

template <class Products>
using Add = void (*)(const typename Products::Element*, int64_t, const typename Products::Ready*, int64_t,
                     typename Products::Sum*, RowsAhead*);
template <class Products>
using Adds = std::array<Add<Products>, kMaxRows>;  // for one row, two, ...

template <class Products>
struct Kind;

template <>
struct Kind<ByteFours> {
  static constexpr auto make = interleave_fours;
  static constexpr Adds<ByteFours> adds = {add_fours<1>, add_fours<2>, add_fours<3>, add_fours<4>};
  static bool is_here() {
    return cann_cpu::cpu_capability() == cann_cpu::CpuCapability::kAvx512 && __builtin_cpu_supports("avx512vnni");
  }
};

template <>
struct Kind<BFloat16Pairs> {
  static constexpr auto make = interleave_pairs;
  static constexpr Adds<BFloat16Pairs> adds = {add_pairs<1>, add_pairs<2>, add_pairs<3>, add_pairs<4>};
  static bool is_here() { return has_pairs(); }
};

bool has_avx2() { return cann_cpu::cpu_capability() >= cann_cpu::CpuCapability::kAvx2; }

template <>
struct Kind<ShortPairs> {
  static constexpr auto make = make_ready_shorts;
  static constexpr Adds<ShortPairs> adds = {add_by_avx2<OfShorts, 1>, add_by_avx2<OfShorts, 2>,
                                            add_by_avx2<OfShorts, 3>, add_by_avx2<OfShorts, 4>};
  static bool is_here() { return has_avx2(); }
};

template <>
struct Kind<Floats> {
  static constexpr auto make = make_ready_floats;
  static constexpr Adds<Floats> adds = {add_by_avx2<OfFloats, 1>, add_by_avx2<OfFloats, 2>, add_by_avx2<OfFloats, 3>,
                                        add_by_avx2<OfFloats, 4>};
  static bool is_here() { return has_avx2(); }
};

}  // namespace

template <class Element, Layout layout>
bool UnpackedProducts<Element, layout>::are_here() {
  static const bool are = Kind<UnpackedProducts>::is_here();
  return are;
}

// Makes a group of rows ready after the other: memory is read along rows, since lines of one column would all contend
// for the same few places of the L1 cache where rows lie a multiple of 4 KiB apart.
template <class Element, Layout layout>
void UnpackedProducts<Element, layout>::make_ready(const Element* weight, int64_t stride, int64_t rows, int64_t columns,
                                                   Ready* ready) {
  for (int64_t row = 0; row < rows; row += UnpackedProducts::kGroup) {
    for (int64_t column = 0; column < columns; column += kUnpackedColumns) {
      Kind<UnpackedProducts>::make(weight + row * stride + column, stride,
                                   ready + column * rows + row * kUnpackedColumns);
    }
  }
}

// As many rows of x at a time as registers have room for; the first of them bring the lines ahead.
template <class Element, Layout layout>
void UnpackedProducts<Element, layout>::add_products(const Element* x, int64_t x_stride, int64_t rows,
                                                     const Ready* ready, int64_t depth, Sum* sums, RowsAhead* ahead) {
  for (int64_t row = 0; row < rows; row += kMaxRows, ahead = nullptr) {
    Kind<UnpackedProducts>::adds[std::min(kMaxRows, rows - row) - 1](x + row * x_stride, x_stride, ready, depth,
                                                                     sums + row * kUnpackedColumns, ahead);
  }
}

#else

template <class Element, Layout layout>
bool UnpackedProducts<Element, layout>::are_here() {
  return false;
}

template <class Element, Layout layout>
void UnpackedProducts<Element, layout>::make_ready(const Element*, int64_t, int64_t, int64_t, Ready*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no such products");
}

template <class Element, Layout layout>
void UnpackedProducts<Element, layout>::add_products(const Element*, int64_t, int64_t, const Ready*, int64_t, Sum*,
                                                     RowsAhead*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no such products");
}

#endif

// Four columns lie together at all times; where, interleaving has decided, which works on lanes of 16 bytes.
template <class Element, Layout layout>
void UnpackedProducts<Element, layout>::order(const Sum* sums, Sum* ordered) {
  for (int64_t first = 0; first < kUnpackedColumns; first += 4) {
    int64_t column = first;
    if constexpr (std::is_same_v<UnpackedProducts, ByteFours>) {
      column = first % 16 * 4 + first / 16 * 4;
    } else if constexpr (std::is_same_v<UnpackedProducts, BFloat16Pairs>) {
      column = first / 32 * 32 + first % 16 * 2 + first / 16 % 2 * 4;
    } else if constexpr (std::is_same_v<UnpackedProducts, ShortPairs>) {
      column = first / 16 * 16 + first % 8 * 2 + first / 8 % 2 * 4;
    }
    std::copy_n(sums + first, 4, ordered + column);
  }
}

template struct UnpackedProducts<int8_t, Layout::kVnni>;
template struct UnpackedProducts<at::BFloat16, Layout::kVnni>;
template struct UnpackedProducts<int8_t, Layout::kRows>;
template struct UnpackedProducts<at::BFloat16, Layout::kRows>;

}  // namespace opp
