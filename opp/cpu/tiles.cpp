// SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 by the tiles of x86 processors (AMX).
#include "cpu/tiles.h"

#include <ATen/cpu/Utils.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "cann_cpu/cpu_capability.h"
#include "cpu/matmul.h"
#include "cpu/prefetch.h"

#if defined(__x86_64__)
#include <immintrin.h>
// GCC 12 warns of values that its own header leaves undefined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace opp {

#if defined(__x86_64__)

namespace {

#define OPP_TILES __attribute__((target("avx512f,avx512bw,avx512dq,amx-tile,amx-bf16,amx-int8")))
#define OPP_TILES_INLINE \
  __attribute__((target("avx512f,avx512bw,avx512dq,amx-tile,amx-bf16,amx-int8"), always_inline)) inline

constexpr int64_t kTileElements = kTileRows * kTileRows;  // of a tile of floats
constexpr int64_t kTileBytes = 64;                        // of a row
constexpr int64_t kGroups = kPanel / kTileRows;           // tiles beside each other in a panel

// Adds the product of two tiles to a third: for numbers of the processor's, that is not a function's argument.
#define OPP_MULTIPLY_TILES(to, a, b)                 \
  do {                                               \
    if constexpr (std::is_same_v<Element, int8_t>) { \
      _tile_dpbssd(to, a, b);                        \
    } else {                                         \
      _tile_dpbf16ps(to, a, b);                      \
    }                                                \
  } while (false)

// c, of 16 Rows x 16 Columns, = a b, or c += a b. b is a part of a panel of `width` columns.
template <int Rows, int Columns, class Element, class Sum>
OPP_TILES void multiply_block(const Element* a, int64_t a_stride, const Element* b, int64_t width, Sum* c,
                              int64_t c_stride, int64_t depth, bool add) {
  constexpr int64_t kDepth = kTileBytes / sizeof(Element);
  const int64_t a_bytes = a_stride * static_cast<int64_t>(sizeof(Element));
  const int64_t b_bytes = width * 4;
  const int64_t c_bytes = c_stride * 4;
  const Element* a_below = a + kTileRows * a_stride;
  Sum* c_below = c + kTileRows * c_stride;
  if (add) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (Columns > 1) _tile_loadd(1, c + kTileRows, c_bytes);
    if constexpr (Rows > 1) _tile_loadd(2, c_below, c_bytes);
    if constexpr (Rows > 1 && Columns > 1) _tile_loadd(3, c_below + kTileRows, c_bytes);
  } else {
    _tile_zero(0);
    if constexpr (Columns > 1) _tile_zero(1);
    if constexpr (Rows > 1) _tile_zero(2);
    if constexpr (Rows > 1 && Columns > 1) _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; k += kDepth, b += kDepth * width) {
    _tile_loadd(4, a + k, a_bytes);
    _tile_loadd(6, b, b_bytes);
    OPP_MULTIPLY_TILES(0, 4, 6);
    if constexpr (Columns > 1) {
      _tile_loadd(7, b + kDepth, b_bytes);
      OPP_MULTIPLY_TILES(1, 4, 7);
    }
    if constexpr (Rows > 1) {
      _tile_loadd(5, a_below + k, a_bytes);
      OPP_MULTIPLY_TILES(2, 5, 6);
      if constexpr (Columns > 1) OPP_MULTIPLY_TILES(3, 5, 7);
    }
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (Columns > 1) _tile_stored(1, c + kTileRows, c_bytes);
  if constexpr (Rows > 1) _tile_stored(2, c_below, c_bytes);
  if constexpr (Rows > 1 && Columns > 1) _tile_stored(3, c_below + kTileRows, c_bytes);
}

// 16 Columns columns of c for all rows, a multiple of 16: b stays in the cache closest to the core meanwhile.
template <int Columns, class Element, class Sum>
void multiply_columns(const Element* a, int64_t a_stride, const Element* b, int64_t width, Sum* c, int64_t c_stride,
                      int64_t rows, int64_t depth, bool add) {
  int64_t row = 0;
  for (; row + 2 * kTileRows <= rows; row += 2 * kTileRows) {
    multiply_block<2, Columns>(a + row * a_stride, a_stride, b, width, c + row * c_stride, c_stride, depth, add);
  }
  if (row < rows) {
    multiply_block<1, Columns>(a + row * a_stride, a_stride, b, width, c + row * c_stride, c_stride, depth, add);
  }
}

// The same for all columns of a panel.
template <class Element, class Sum>
void multiply_whole_rows(const Element* a, int64_t a_stride, const Element* b, Sum* c, int64_t c_stride, int64_t rows,
                         int64_t columns, int64_t depth, bool add) {
  constexpr int64_t kGroup = 4 / sizeof(Element);
  int64_t column = 0;
  for (; column + 2 * kTileRows <= columns; column += 2 * kTileRows) {
    multiply_columns<2>(a, a_stride, b + column * kGroup, columns, c + column, c_stride, rows, depth, add);
  }
  if (column < columns) {
    multiply_columns<1>(a, a_stride, b + column * kGroup, columns, c + column, c_stride, rows, depth, add);
  }
}

// add_spread_products for Fours of x's rows.
template <int Fours>
OPP_TILES void add_spread_of(const int8_t* spread, const int8_t* weight, int64_t stride, int64_t columns, bool next,
                             int32_t* sums) {
  constexpr int64_t kTile = kTileRows * kTileBytes;
  _tile_loadd(0, spread, kTileBytes);
  if constexpr (Fours > 1) _tile_loadd(1, spread + kTile, kTileBytes);
  if constexpr (Fours > 2) _tile_loadd(2, spread + 2 * kTile, kTileBytes);
  if constexpr (Fours > 3) _tile_loadd(3, spread + 3 * kTile, kTileBytes);
  for (int64_t column = 0; column < columns; column += kSpreadColumns, sums += Fours * kTileElements) {
    _tile_loadd(4, weight + column, stride);
    if (next) {
      for (int64_t row = 0; row < kSpreadDepth; ++row) {
        _mm_prefetch(reinterpret_cast<const char*>(weight + column + (kSpreadDepth + row) * stride), _MM_HINT_T0);
      }
    }
    _tile_loadd(5, sums, kTileBytes);
    _tile_dpbssd(5, 0, 4);
    _tile_stored(5, sums, kTileBytes);
    if constexpr (Fours > 1) {
      _tile_loadd(6, sums + kTileElements, kTileBytes);
      _tile_dpbssd(6, 1, 4);
      _tile_stored(6, sums + kTileElements, kTileBytes);
    }
    if constexpr (Fours > 2) {
      _tile_loadd(7, sums + 2 * kTileElements, kTileBytes);
      _tile_dpbssd(7, 2, 4);
      _tile_stored(7, sums + 2 * kTileElements, kTileBytes);
    }
    if constexpr (Fours > 3) {
      _tile_loadd(5, sums + 3 * kTileElements, kTileBytes);
      _tile_dpbssd(5, 3, 4);
      _tile_stored(5, sums + 3 * kTileElements, kTileBytes);
    }
  }
}

// The sums of 16 vectors each, in their order.
OPP_TILES_INLINE __m512 sums_of(const __m512* rows) {
  __m512 of_two[8];  // quarters: twice those of row i, twice those of row i + 8
  for (int i = 0; i < 8; ++i) {
    of_two[i] = _mm512_add_ps(_mm512_shuffle_f32x4(rows[i], rows[i + 8], 0x44),
                              _mm512_shuffle_f32x4(rows[i], rows[i + 8], 0xEE));
  }
  __m512 of_four[4];  // a quarter for each of the rows i, i + 8, i + 4, i + 12
  for (int i = 0; i < 4; ++i) {
    of_four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(of_two[i], of_two[i + 4], 0x88),
                               _mm512_shuffle_f32x4(of_two[i], of_two[i + 4], 0xDD));
  }
  const __m512 even =
      _mm512_add_ps(_mm512_unpacklo_ps(of_four[0], of_four[1]), _mm512_unpackhi_ps(of_four[0], of_four[1]));
  const __m512 odd =
      _mm512_add_ps(_mm512_unpacklo_ps(of_four[2], of_four[3]), _mm512_unpackhi_ps(of_four[2], of_four[3]));
  const __m512 sums = _mm512_add_ps(_mm512_shuffle_ps(even, odd, 0x44), _mm512_shuffle_ps(even, odd, 0xEE));
  return _mm512_shuffle_f32x4(sums, sums, 0xD8);  // the quarters are those of rows 0, 8, 4, 12
}

// The scores of 16 rows, whose products lie in squares of 16 heads, in the making.
class Scores {
 public:
  OPP_TILES_INLINE Scores(const float* products, const float* weights, int64_t heads)
      : products_(products), weights_(weights), heads_(heads) {
    for (auto& sum : sums_) sum = _mm512_setzero_ps();
  }

  // Adds the products of the next square, if any is left.
  OPP_TILES_INLINE void add_square() {
    if (head_ >= heads_) return;
    const auto present = static_cast<__mmask16>((1U << std::min(kTileRows, heads_ - head_)) - 1);
    const __m512 weight = _mm512_maskz_loadu_ps(present, weights_ + head_);
    const float* square = products_ + head_ * kTileRows;
#pragma GCC unroll 16
    for (int64_t row = 0; row < kTileRows; ++row) {
      // The larger of 0 and x, and x if it is NaN.
      const __m512 relu = _mm512_maskz_max_ps(present, _mm512_setzero_ps(), _mm512_load_ps(square + row * kTileRows));
      sums_[row] = _mm512_fmadd_ps(weight, relu, sums_[row]);
    }
    head_ += kTileRows;
  }

  // Adds those that are left, and writes the scores.
  OPP_TILES_INLINE void write(float* scores) {
    while (head_ < heads_) add_square();
    _mm512_storeu_ps(scores, sums_of(sums_));
  }

 private:
  const float* products_;
  const float* weights_;
  int64_t heads_;
  int64_t head_ = 0;
  __m512 sums_[kTileRows];
};

// Products of 16 rows with Groups tiles of a panel of `width` columns, each written as a square. Meanwhile brings the
// lines of as many rows of `ahead`, and adds squares to `scores`.
template <int Groups>
OPP_TILES_INLINE void multiply_squares(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* b, int64_t width,
                                       int64_t depth, float* products, RowsAhead& ahead, Scores& scores) {
  const int64_t a_bytes = a_stride * 2;
  const int64_t b_bytes = width * 4;
  constexpr int kLines = kTileRows / Groups;
  _tile_zero(0);
  if constexpr (Groups > 1) _tile_zero(1);
  if constexpr (Groups > 2) _tile_zero(2);
  if constexpr (Groups > 3) _tile_zero(3);
  for (int64_t k = 0; k < depth; k += kTileDepth, b += kTileDepth * width) {
    _tile_loadd(4, a + k, a_bytes);
    _tile_loadd(5, b, b_bytes);
    _tile_dpbf16ps(0, 4, 5);
    ahead.bring<kLines>();
    if constexpr (Groups > 1) {
      _tile_loadd(6, b + kTileDepth, b_bytes);
      _tile_dpbf16ps(1, 4, 6);
      ahead.bring<kLines>();
    }
    if constexpr (Groups > 2) {
      _tile_loadd(7, b + 2 * kTileDepth, b_bytes);
      _tile_dpbf16ps(2, 4, 7);
      ahead.bring<kLines>();
    }
    if constexpr (Groups > 3) {
      _tile_loadd(5, b + 3 * kTileDepth, b_bytes);
      _tile_dpbf16ps(3, 4, 5);
      ahead.bring<kLines>();
    }
    scores.add_square();
  }
  _tile_stored(0, products, kTileBytes);
  if constexpr (Groups > 1) _tile_stored(1, products + kTileElements, kTileBytes);
  if constexpr (Groups > 2) _tile_stored(2, products + 2 * kTileElements, kTileBytes);
  if constexpr (Groups > 3) _tile_stored(3, products + 3 * kTileElements, kTileBytes);
}

}  // namespace

bool has_tiles() {
  static const bool has = cann_cpu::cpu_capability() == cann_cpu::CpuCapability::kAvx512 &&
                          __builtin_cpu_supports("amx-bf16") && at::cpu::init_amx() &&
                          Products<at::BFloat16, Layout::kVnni>::is_fast();
  return has;
}

bool has_byte_tiles() { return has_tiles() && __builtin_cpu_supports("amx-int8"); }

void begin_tiles(int64_t rows) {
  struct alignas(64) Configuration {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t bytes_of_row[16] = {};
    uint8_t rows[16] = {};
  } configuration;
  constexpr int kTiles = 8;
  constexpr int kFirst = 5;
  std::fill_n(configuration.bytes_of_row, kTiles, kTileBytes);
  std::fill_n(configuration.rows, kFirst, static_cast<uint8_t>(rows));
  std::fill(configuration.rows + kFirst, configuration.rows + kTiles, kTileRows);
  // Not _tile_loadconfig: GCC 12 believes that it reads eight bytes.
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}

void end_tiles() { asm volatile("tilerelease"); }

template <class Element, class Sum>
void multiply_tiles(const Element* a, int64_t a_stride, const Element* b, Sum* c, int64_t c_stride, int64_t rows,
                    int64_t columns, int64_t depth, bool add) {
  const int64_t whole = rows / kTileRows * kTileRows;
  multiply_whole_rows(a, a_stride, b, c, c_stride, whole, columns, depth, add);
  if (whole == rows) return;
  Buffer<Element> padded_a(kTileRows * depth);
  alignas(64) Sum padded_c[kTileRows * kPanel] = {};
  for (int64_t row = whole; row < rows; ++row) {
    std::copy_n(a + row * a_stride, depth, padded_a.data() + (row - whole) * depth);
    if (add) std::copy_n(c + row * c_stride, columns, padded_c + (row - whole) * kPanel);
  }
  std::fill(padded_a.data() + (rows - whole) * depth, padded_a.data() + kTileRows * depth, Element(0));
  multiply_whole_rows(padded_a.data(), depth, b, padded_c, kPanel, kTileRows, columns, depth, add);
  for (int64_t row = whole; row < rows; ++row) {
    std::copy_n(padded_c + (row - whole) * kPanel, columns, c + row * c_stride);
  }
}

OPP_TILES void add_tile_products(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* panel, float* sums,
                                 RowsAhead* ahead) {
  constexpr int64_t kRowBytes = kPanel * 4;  // of sums, and of a pair of the panel's rows
  constexpr int kBrought = 12;
  static_assert(kGroups == 4);
  _tile_loadd(4, a, a_stride * 2);
  _tile_loadd(0, sums, kRowBytes);
  _tile_loadd(5, panel, kRowBytes);
  _tile_dpbf16ps(0, 4, 5);
  _tile_stored(0, sums, kRowBytes);
  if (ahead != nullptr) ahead->bring<kBrought>();
  _tile_loadd(1, sums + kTileRows, kRowBytes);
  _tile_loadd(6, panel + kTileDepth, kRowBytes);
  _tile_dpbf16ps(1, 4, 6);
  _tile_stored(1, sums + kTileRows, kRowBytes);
  if (ahead != nullptr) ahead->bring<kBrought>();
  _tile_loadd(2, sums + 2 * kTileRows, kRowBytes);
  _tile_loadd(7, panel + 2 * kTileDepth, kRowBytes);
  _tile_dpbf16ps(2, 4, 7);
  _tile_stored(2, sums + 2 * kTileRows, kRowBytes);
  if (ahead != nullptr) ahead->bring<kBrought>();
  _tile_loadd(3, sums + 3 * kTileRows, kRowBytes);
  _tile_loadd(5, panel + 3 * kTileDepth, kRowBytes);
  _tile_dpbf16ps(3, 4, 5);
  _tile_stored(3, sums + 3 * kTileRows, kRowBytes);
  if (ahead != nullptr) ahead->bring<kBrought>();
}

OPP_TILES void spread(const int8_t* x, int64_t x_stride, int64_t rows, int64_t depth, int8_t* to) {
  for (int64_t k = 0; k < depth; k += kSpreadDepth) {
    for (int64_t row = 0; row < round_up(rows, kSpreadRows); ++row) {
      __m512i bytes = _mm512_setzero_si512();
      if (row < rows) {
        bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + row * x_stride + k)));
      }
      for (int64_t column = 0; column < 4; ++column, to += kTileBytes) {
        _mm512_store_si512(to, bytes);
        bytes = _mm512_slli_epi32(bytes, 8);
      }
    }
  }
}

void add_spread_products(const int8_t* spread, int64_t rows, const int8_t* weight, int64_t weight_stride,
                         int64_t columns, bool next, int32_t* sums) {
  using Add = decltype(&add_spread_of<1>);
  static constexpr Add kAdd[] = {add_spread_of<1>, add_spread_of<2>, add_spread_of<3>, add_spread_of<4>};
  static_assert(std::size(kAdd) * kSpreadRows == kMaxSpreadRows);
  kAdd[(rows - 1) / kSpreadRows](spread, weight, weight_stride, columns, next, sums);
}

OPP_TILES void weighted_relu_tiles(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* b, const float* weights,
                                   float* scores, int64_t rows, int64_t heads, int64_t depth, const at::BFloat16* next,
                                   float* products) {
  const int64_t columns = round_up(heads, kTileRows);
  const at::BFloat16* ahead_of = next == nullptr ? a : next;
  // Translating the address of a page takes longer than a line: the first line of rows comes this many rows before the
  // others.
  constexpr int64_t kFirstLineAhead = 2 * kTileRows;
  const auto prefetch_first_line = [&](int64_t row) {
    if (row < rows) prefetch(ahead_of + row * a_stride, kCacheLine);
  };
  for (int64_t row = 0; row < kFirstLineAhead; row += kTileRows) prefetch_first_line(row);
  // While the processor's tiles multiply some rows, its vectors add up the products of those before.
  float* now = products;
  float* before = now + columns * kTileRows;
  for (int64_t row = 0; row < rows; row += kTileRows) {
    const at::BFloat16* of_row = a + row * a_stride;
    RowsAhead ahead(ahead_of + row * a_stride, 2 * a_stride, 2 * depth);
    Scores scores_before(before, weights, row > 0 ? heads : 0);
    prefetch_first_line(row + kFirstLineAhead);
    for (int64_t panel = 0; panel < columns; panel += kPanel) {
      const int64_t width = std::min(kPanel, columns - panel);
      const at::BFloat16* of_panel = b + panel * depth;
      float* squares = now + panel * kTileRows;
      switch (width / kTileRows) {
        case 1:
          multiply_squares<1>(of_row, a_stride, of_panel, width, depth, squares, ahead, scores_before);
          break;
        case 2:
          multiply_squares<2>(of_row, a_stride, of_panel, width, depth, squares, ahead, scores_before);
          break;
        case 3:
          multiply_squares<3>(of_row, a_stride, of_panel, width, depth, squares, ahead, scores_before);
          break;
        default:
          static_assert(kGroups == 4);
          multiply_squares<4>(of_row, a_stride, of_panel, width, depth, squares, ahead, scores_before);
      }
    }
    if (row > 0) scores_before.write(scores + row - kTileRows);
    std::swap(now, before);
  }
  Scores(before, weights, heads).write(scores + rows - kTileRows);
}

#else

bool has_tiles() { return false; }

bool has_byte_tiles() { return false; }

void begin_tiles(int64_t) {}

void end_tiles() {}

void add_tile_products(const at::BFloat16*, int64_t, const at::BFloat16*, float*, RowsAhead*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no tiles");
}

void spread(const int8_t*, int64_t, int64_t, int64_t, int8_t*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no tiles");
}

void add_spread_products(const int8_t*, int64_t, const int8_t*, int64_t, int64_t, bool, int32_t*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no tiles");
}

template <class Element, class Sum>
void multiply_tiles(const Element*, int64_t, const Element*, Sum*, int64_t, int64_t, int64_t, int64_t, bool) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no tiles");
}

void weighted_relu_tiles(const at::BFloat16*, int64_t, const at::BFloat16*, const float*, float*, int64_t, int64_t,
                         int64_t, const at::BFloat16*, float*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no tiles");
}

#endif

void order_spread_sums(const int32_t* sums, int64_t rows, int64_t row, int64_t columns, int32_t* to) {
  const int64_t of_columns = round_up(rows, kSpreadRows) * kSpreadColumns;
  const int32_t* of_row = sums + row * kSpreadColumns;
  for (int64_t column = 0; column < columns; column += kSpreadColumns, of_row += of_columns, to += kSpreadColumns) {
    for (int64_t i = 0; i < kSpreadColumns; ++i) to[i] = of_row[i % 4 * (kSpreadColumns / 4) + i / 4];
  }
}

template void multiply_tiles(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* b, float* c, int64_t c_stride,
                             int64_t rows, int64_t columns, int64_t depth, bool add);
template void multiply_tiles(const int8_t* a, int64_t a_stride, const int8_t* b, int32_t* c, int64_t c_stride,
                             int64_t rows, int64_t columns, int64_t depth, bool add);

}  // namespace opp
