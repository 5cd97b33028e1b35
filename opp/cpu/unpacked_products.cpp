// SPDX-License-Identifier: Apache-2.0
#include "cpu/unpacked_products.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "cann_cpu/cpu_capability.h"
#include "cpu/pairs.h"
#include "cpu/prefetch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace opp {

#if defined(__x86_64__)

namespace {

// Rows of x whose sums fit into the registers beside the weight's.
constexpr int64_t kMaxRows = 4;

// ---- by fours and pairs, which a few rows and columns of the weight are interleaved by first, in the L1 cache

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
    if (ahead != nullptr) ahead->bring<3>();
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
    if (ahead != nullptr) ahead->bring<3>();
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

// Adds the products of all rows of x with the interleaved kUnpackedColumns columns of so many rows of the weight, by
// kMaxRows rows of x at a time. The first of them bring lines.
template <class Element, class Sum, auto... adds>
void add_by_rows(const Element* x, int64_t x_stride, int64_t rows, const Element* interleaved, int64_t depth, Sum* sums,
                 RowsAhead* ahead) {
  static constexpr std::array kAdds = {adds...};
  static_assert(kAdds.size() == kMaxRows);
  for (int64_t row = 0; row < rows; row += kMaxRows, ahead = nullptr) {
    kAdds[std::min(kMaxRows, rows - row) - 1](x + row * x_stride, x_stride, interleaved, depth,
                                              sums + row * kUnpackedColumns, ahead);
  }
}

void add_by_tiles(const at::BFloat16* x, int64_t x_stride, int64_t, const at::BFloat16* interleaved, int64_t,
                  float* sums, RowsAhead* ahead) {
  add_tile_products(x, x_stride, interleaved, sums, ahead);
}

template <class Products>
struct Interleaved;

template <>
struct Interleaved<ByteFours> {
  static constexpr int64_t kTogether = 4;  // rows
  static constexpr auto interleave = interleave_fours;
  static constexpr auto add = add_by_rows<int8_t, int32_t, add_fours<1>, add_fours<2>, add_fours<3>, add_fours<4>>;
};

template <>
struct Interleaved<BFloat16Pairs> {
  static constexpr int64_t kTogether = 2;
  static constexpr auto interleave = interleave_pairs;
  static constexpr auto add = add_by_rows<at::BFloat16, float, add_pairs<1>, add_pairs<2>, add_pairs<3>, add_pairs<4>>;
};

template <>
struct Interleaved<BFloat16Tiles> {
  static constexpr int64_t kTogether = 2;
  static constexpr auto interleave = interleave_pairs;
  static constexpr auto add = add_by_tiles;
  static_assert(BFloat16Tiles::kRows == kTileDepth && kUnpackedColumns == kPanel);
};

// Interleaves kUnpackedColumns columns and multiplies them: the processor interleaves the next meanwhile. Of the rows
// that come next it brings a quarter of the lines with the one, the rest with the other.
template <class Products, class Element = typename Products::Element>
void add_interleaved(const Element* x, int64_t x_stride, int64_t rows, const WeightRows<Element>& weight,
                     typename Products::Sum* sums, const Element* next) {
  using By = Interleaved<Products>;
  alignas(kCacheLine) Element interleaved[Products::kRows * kUnpackedColumns];
  constexpr int64_t kBytes = sizeof(Element);
  RowsAhead lines(next, weight.stride * kBytes, weight.columns * kBytes);
  for (int64_t column = 0; column < weight.columns; column += kUnpackedColumns, sums += rows * kUnpackedColumns) {
    for (int64_t row = 0; row < weight.rows; row += By::kTogether) {
      if (next != nullptr) lines.bring<1>();
      By::interleave(weight.data + row * weight.stride + column, weight.stride, interleaved + row * kUnpackedColumns);
    }
    By::add(x, x_stride, rows, interleaved, weight.rows, sums, next == nullptr ? nullptr : &lines);
  }
}

// ---- by AVX2, a few rows of the weight where they lie

#define OPP_AVX2 __attribute__((target("avx2,fma")))

// Rows of the weight that are multiplied at once: where they lie a multiple of 4 KiB apart, as many of their lines as
// the L1 cache has places for.
constexpr int64_t kDepth = 8;
// Columns of two registers of sums.
constexpr int64_t kColumns = 16;
// Lines of each row that are brought before it comes, and how many at a time: of more at once the last would be
// dropped. The processor sees the others coming; to bring all takes longer.
constexpr int64_t kFirstLines = 4;
constexpr int64_t kLinesAtOnce = 4;
// How many rows before they are multiplied they are brought.
constexpr int64_t kRowsAhead = 2 * kDepth;

// Products of pairs of 16 bits. Of 16 columns the first register has 0 to 3 and 8 to 11.
struct OfShorts {
  using Products = ShortPairs;
  using Register = __m256i;
  using Number = int16_t;
  OPP_AVX2 static Register load(const int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  OPP_AVX2 static void store(int32_t* to, Register sums) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), sums); }
  OPP_AVX2 static Register spread(const int16_t* pair) {
    int32_t bits;
    std::memcpy(&bits, pair, sizeof(bits));
    return _mm256_set1_epi32(bits);
  }
  OPP_AVX2 static void load_weight(const int8_t* weight, int64_t stride, Register& first, Register& second) {
    const __m256i a = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weight)));
    const __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weight + stride)));
    first = _mm256_unpacklo_epi16(a, b);
    second = _mm256_unpackhi_epi16(a, b);
  }
  OPP_AVX2 static Register add(Register sums, Register x, Register weight) {
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(x, weight));
    asm("" : "+x"(sums));  // GCC would add the products of all rows up first, in more registers than there are
    return sums;
  }
};

// The first register has the even ones of 16 columns.
struct OfFloats {
  using Products = Floats;
  using Register = __m256;
  using Number = float;
  OPP_AVX2 static Register load(const float* from) { return _mm256_loadu_ps(from); }
  OPP_AVX2 static void store(float* to, Register sums) { _mm256_storeu_ps(to, sums); }
  OPP_AVX2 static Register spread(const float* number) { return _mm256_set1_ps(*number); }
  OPP_AVX2 static void load_weight(const at::BFloat16* weight, int64_t, Register& first, Register& second) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight));
    first = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    second = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-0x10000)));
  }
  OPP_AVX2 static Register add(Register sums, Register x, Register weight) { return _mm256_fmadd_ps(x, weight, sums); }
};

// Adds the products of kRows rows of x with kDepth rows of the weight, whose columns' sums lie sums_stride apart by
// kUnpackedColumns. If `ahead` is not null, the first lines of the rows there are brought.
template <class Of, int64_t kRows, int64_t kDepth, class Element, class Sum>
OPP_AVX2 void add_rows(const Element* x, int64_t x_stride, const WeightRows<Element>& weight, Sum* sums,
                       int64_t sums_stride, const Element* ahead) {
  constexpr int64_t kBytes = sizeof(Element);
  const int64_t first_bytes = std::min(weight.columns * kBytes, kFirstLines * kCacheLine);
  int64_t steps = ahead == nullptr ? 0 : kDepth * first_bytes / kCacheLine / kLinesAtOnce;
  RowsAhead lines(ahead, weight.stride * kBytes, first_bytes);
  typename Of::Number numbers[kRows][kDepth];
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t k = 0; k < kDepth; ++k) numbers[r][k] = x[r * x_stride + k];
  }
  const int64_t stride = weight.stride;
  const Element* from = weight.data;
  for (const Element* const end = from + weight.columns; from < end; sums += sums_stride - kUnpackedColumns) {
    for (Sum* const next = sums + kUnpackedColumns; sums < next; sums += kColumns, from += kColumns) {
      if (steps-- > 0) lines.bring<kLinesAtOnce>();
      typename Of::Register totals[kRows][2];
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) {
        totals[r][0] = Of::load(sums + r * kUnpackedColumns);
        totals[r][1] = Of::load(sums + r * kUnpackedColumns + kColumns / 2);
      }
#pragma GCC unroll 8
      for (int64_t k = 0; k < kDepth; k += Of::Products::kGroup) {
        typename Of::Register first, second;
        Of::load_weight(from + k * stride, stride, first, second);
#pragma GCC unroll 4
        for (int64_t r = 0; r < kRows; ++r) {
          const auto spread = Of::spread(&numbers[r][k]);
          totals[r][0] = Of::add(totals[r][0], spread, first);
          totals[r][1] = Of::add(totals[r][1], spread, second);
        }
      }
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) {
        Of::store(sums + r * kUnpackedColumns, totals[r][0]);
        Of::store(sums + r * kUnpackedColumns + kColumns / 2, totals[r][1]);
      }
    }
  }
}

// Adds the products of all rows of x with kDepth rows of the weight, as many rows at a time as registers have room for.
template <class Of, int64_t kDepth, class Element, class Sum>
void add_all_rows(const Element* x, int64_t x_stride, int64_t rows, const WeightRows<Element>& weight, Sum* sums,
                  const Element* ahead) {
  static constexpr std::array adds = {add_rows<Of, 1, kDepth, Element, Sum>, add_rows<Of, 2, kDepth, Element, Sum>,
                                      add_rows<Of, 3, kDepth, Element, Sum>, add_rows<Of, 4, kDepth, Element, Sum>};
  for (int64_t row = 0; row < rows; row += kMaxRows, ahead = nullptr) {
    adds[std::min(kMaxRows, rows - row) - 1](x + row * x_stride, x_stride, weight, sums + row * kUnpackedColumns,
                                             rows * kUnpackedColumns, ahead);
  }
}

template <class Of, class Element, class Sum>
void add_by_avx2(const Element* x, int64_t x_stride, int64_t rows, WeightRows<Element> weight, Sum* sums,
                 const Element* next) {
  while (weight.rows > 0) {
    const int64_t depth = weight.rows >= kDepth ? kDepth : Of::Products::kGroup;
    const Element* ahead = weight.rows > kRowsAhead ? weight.data + kRowsAhead * weight.stride : next;
    if (weight.rows <= kRowsAhead && next != nullptr) ahead += (kRowsAhead - weight.rows) * weight.stride;
    const auto add =
        depth == kDepth ? add_all_rows<Of, kDepth, Element, Sum> : add_all_rows<Of, Of::Products::kGroup, Element, Sum>;
    add(x, x_stride, rows, weight, sums, ahead);
    x += depth;
    weight.data += depth * weight.stride;
    weight.rows -= depth;
  }
}

template <class Products>
struct Kind;

template <>
struct Kind<ByteFours> {
  static constexpr auto add = add_interleaved<ByteFours>;
  static bool is_here() {
    return cann_cpu::cpu_capability() == cann_cpu::CpuCapability::kAvx512 && __builtin_cpu_supports("avx512vnni");
  }
};

template <>
struct Kind<BFloat16Pairs> {
  static constexpr auto add = add_interleaved<BFloat16Pairs>;
  static bool is_here() { return has_pairs(); }
};

bool has_avx2() { return cann_cpu::cpu_capability() >= cann_cpu::CpuCapability::kAvx2; }

template <>
struct Kind<BFloat16Tiles> {
  static void add(const at::BFloat16* x, int64_t x_stride, int64_t rows, const WeightRows<at::BFloat16>& weight,
                  float* sums, const at::BFloat16* next) {
    begin_tiles(rows);
    add_interleaved<BFloat16Tiles>(x, x_stride, rows, weight, sums, next);
  }
  static bool is_here() { return has_tiles(); }
};

template <>
struct Kind<ShortPairs> {
  static constexpr auto add = add_by_avx2<OfShorts, int8_t, int32_t>;
  static bool is_here() { return has_avx2(); }
};

template <>
struct Kind<Floats> {
  static constexpr auto add = add_by_avx2<OfFloats, at::BFloat16, float>;
  static bool is_here() { return has_avx2(); }
};

}  // namespace

template <class Element, Layout layout>
bool UnpackedProducts<Element, layout>::are_here() {
  static const bool are = Kind<UnpackedProducts>::is_here();
  return are;
}

template <class Element, Layout layout>
void UnpackedProducts<Element, layout>::add_products(const Element* x, int64_t x_stride, int64_t rows,
                                                     const WeightRows<Element>& weight, Sum* sums,
                                                     const Element* next) {
  Kind<UnpackedProducts>::add(x, x_stride, rows, weight, sums, next);
}

#else

template <class Element, Layout layout>
bool UnpackedProducts<Element, layout>::are_here() {
  return false;
}

template <class Element, Layout layout>
void UnpackedProducts<Element, layout>::add_products(const Element*, int64_t, int64_t, const WeightRows<Element>&, Sum*,
                                                     const Element*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no such products");
}

#endif

// Where columns lie, the instructions that take the weight apart have decided, which but for those of Floats work on
// lanes of 16 bytes.
template <class Element, Layout layout>
void UnpackedProducts<Element, layout>::order(const Sum* sums, Sum* ordered) {
  constexpr int64_t kTogether = std::is_same_v<UnpackedProducts, Floats> ? 1 : 4;
  for (int64_t first = 0; first < kUnpackedColumns; first += kTogether) {
    int64_t column = first;
    if constexpr (std::is_same_v<UnpackedProducts, ByteFours>) {
      column = first % 16 * 4 + first / 16 * 4;
    } else if constexpr (std::is_same_v<UnpackedProducts, BFloat16Pairs> ||
                         std::is_same_v<UnpackedProducts, BFloat16Tiles>) {
      column = first / 32 * 32 + first % 16 * 2 + first / 16 % 2 * 4;
    } else if constexpr (std::is_same_v<UnpackedProducts, ShortPairs>) {
      column = first / 16 * 16 + first % 8 * 2 + first / 8 % 2 * 4;
    } else if constexpr (std::is_same_v<UnpackedProducts, Floats>) {
      column = first / 16 * 16 + first % 8 * 2 + first / 8 % 2;
    }
    std::copy_n(sums + first, kTogether, ordered + column);
  }
}

template struct UnpackedProducts<int8_t, Layout::kVnni>;
template struct UnpackedProducts<at::BFloat16, Layout::kVnni>;
template struct UnpackedProducts<at::BFloat16, Layout::kTiles>;
template struct UnpackedProducts<int8_t, Layout::kRows>;
template struct UnpackedProducts<at::BFloat16, Layout::kRows>;

}  // namespace opp
