// SPDX-License-Identifier: Apache-2.0
// Packing and micro-kernels of matrix products. gemm.cpp includes this file once for each level of vector instructions,
// in a namespace of the level and under `#pragma GCC target`, with ASCENDC_LEVEL defined.
//
// Factors are packed in words of 4 bytes: a float, two bfloat16_t, two int16_t or four int8_t along k. A word of the
// left factor times a vector of words of the right one, of as many columns, is added to a vector of sums. What a word
// is, and how it is multiplied, is an Op:
//   Sums                    a vector of sums
//   kIsFloat                whether they are float
//   kItem                   bytes of an element in memory
//   kStep, kStepWords       elements along k that become so many words
//   kOffset                 whether left factors are stored with an offset, whose products are subtracted from the sums
//   left(from, to)          packs a piece of 32 bytes of a row of the left factor
//   spread(words, to)       packs vectors of 4 bytes along k of each column
//   across(from, line, to, width)  packs 16 columns of kStep rows along k
//   add(sum, a, b)          multiplies
//   kTiles                  whether it has multiply(), of tiles of 16 rows of 16 words, instead of add()

#if ASCENDC_LEVEL >= ASCENDC_AVX512
constexpr int kLanes = 16, kRows = 8, kWide = 2;  // words of a vector; rows and stripes of 16 columns of a tile
#elif ASCENDC_LEVEL == ASCENDC_AVX2
constexpr int kLanes = 8, kRows = 6, kWide = 1;
#elif defined(__x86_64__)
constexpr int kLanes = 4, kRows = 2, kWide = 1;
#else
constexpr int kLanes = 4, kRows = 4, kWide = 1;
#endif
constexpr int kParts = kStripe / kLanes;  // vectors of a stripe

using Words [[gnu::vector_size(kLanes * 4), gnu::aligned(4), gnu::may_alias]] = int32_t;
using Unsigned [[gnu::vector_size(kLanes * 4), gnu::aligned(4), gnu::may_alias]] = uint32_t;
using Shorts [[gnu::vector_size(kLanes * 4), gnu::aligned(4), gnu::may_alias]] = int16_t;
using Pairs [[gnu::vector_size(kLanes * 4), gnu::aligned(4), gnu::may_alias]] = int64_t;
using Floats [[gnu::vector_size(kLanes * 4), gnu::aligned(4), gnu::may_alias]] = float;

#define ASCENDC_INLINE [[gnu::always_inline]] inline

ASCENDC_INLINE Words load_words(const void* from) { return *static_cast<const Words*>(from); }
#if ASCENDC_LEVEL >= ASCENDC_AVX512
ASCENDC_INLINE Words load_halves(const void* low, const void* high) {
  const __m512i words = _mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(low)));
  return (Words)_mm512_inserti64x4(words, _mm256_loadu_si256(static_cast<const __m256i*>(high)), 1);
}
#endif

// The masks of shuffles of two vectors: what element i of the result is. Zips are within parts of 128 bits, of words or
// of pairs of them; of parts the even or the odd ones are taken, in turns.
constexpr int zip_low(int i) { return i / 4 * 4 + i % 4 / 2 + i % 2 * kLanes; }
constexpr int zip_high(int i) { return zip_low(i) + 2; }
constexpr int zip_pairs_low(int i) { return i / 2 * 2 + i % 2 * kLanes / 2; }
constexpr int zip_pairs_high(int i) { return zip_pairs_low(i) + 1; }
constexpr int even_parts(int i) { return i / 4 * 4 + i % 2 + i / 2 % 2 * kLanes / 2; }
constexpr int odd_parts(int i) { return even_parts(i) + 2; }

template <class Vector, int (*lane)(int), class Indices>
struct Mask;
template <class Vector, int (*lane)(int), int... i>
struct Mask<Vector, lane, std::integer_sequence<int, i...>> {
  static constexpr typename Vector::Type kValue = {lane(i)...};
};
struct OfWords {
  using Type = Words;
};
struct OfPairs {
  using Type = Pairs;
};
template <int (*lane)(int)>
ASCENDC_INLINE Words shuffle(Words a, Words b) {
  return __builtin_shuffle(a, b, Mask<OfWords, lane, std::make_integer_sequence<int, kLanes>>::kValue);
}
template <int (*lane)(int)>
ASCENDC_INLINE Words shuffle_pairs(Words a, Words b) {
  using MaskOfPairs = Mask<OfPairs, lane, std::make_integer_sequence<int, kLanes / 2>>;
  return (Words)__builtin_shuffle((Pairs)a, (Pairs)b, MaskOfPairs::kValue);
}

// Transposes squares of 4 x 4 words in the parts of 128 bits of four vectors.
ASCENDC_INLINE void transpose_quads(Words (&rows)[4]) {
  const Words low = shuffle<zip_low>(rows[0], rows[1]), high = shuffle<zip_high>(rows[0], rows[1]);
  const Words low2 = shuffle<zip_low>(rows[2], rows[3]), high2 = shuffle<zip_high>(rows[2], rows[3]);
  rows[0] = shuffle_pairs<zip_pairs_low>(low, low2);
  rows[1] = shuffle_pairs<zip_pairs_high>(low, low2);
  rows[2] = shuffle_pairs<zip_pairs_low>(high, high2);
  rows[3] = shuffle_pairs<zip_pairs_high>(high, high2);
}

// 16 lines of 8 words become 8 rows of 16 words.
ASCENDC_INLINE void transpose_lines(const std::byte* from, int64_t line, Words (&to)[8][kParts]) {
#if ASCENDC_LEVEL >= ASCENDC_AVX512
  Words halves[2][4];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) halves[i / 4][i % 4] = load_halves(from + i * line, from + (i + 8) * line);
  transpose_quads(halves[0]);
  transpose_quads(halves[1]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    to[i][0] = shuffle_pairs<even_parts>(halves[0][i], halves[1][i]);
    to[i + 4][0] = shuffle_pairs<odd_parts>(halves[0][i], halves[1][i]);
  }
#elif ASCENDC_LEVEL == ASCENDC_AVX2
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    Words halves[2][4];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) halves[i / 4][i % 4] = load_words(from + (part * 8 + i) * line);
    transpose_quads(halves[0]);
    transpose_quads(halves[1]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      to[i][part] = shuffle_pairs<even_parts>(halves[0][i], halves[1][i]);
      to[i + 4][part] = shuffle_pairs<odd_parts>(halves[0][i], halves[1][i]);
    }
  }
#else
#pragma GCC unroll 4
  for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Words quad[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) quad[i] = load_words(from + (part * 4 + i) * line + half * 16);
      transpose_quads(quad);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) to[half * 4 + i][part] = quad[i];
    }
  }
#endif
}

// Turns 16 lines of 32 bytes.
[[maybe_unused]] void turn_lines(std::byte* to, const std::byte* from) {
  Words words[8][kParts];
  transpose_lines(from, kBlockBytes, words);
  std::memcpy(to, words, sizeof(words));
}

// Zips rows of 16 elements to a word for each column.
template <int item>
ASCENDC_INLINE void zip_rows(const std::byte* from, int64_t line, int32_t* to) {
  using Element = std::conditional_t<item == 1, uint8_t, uint16_t>;
  constexpr int kOfWord = 4 / item;
  Element rows[kOfWord][kStripe];
  uint32_t words[kStripe];
#pragma GCC unroll 4
  for (int i = 0; i < kOfWord; ++i) std::memcpy(rows[i], from + i * line, sizeof(rows[i]));
  for (int j = 0; j < kStripe; ++j) {
    words[j] = rows[0][j];
#pragma GCC unroll 4
    for (int i = 1; i < kOfWord; ++i) words[j] |= uint32_t{rows[i][j]} << (i * item * 8);
  }
  std::memcpy(to, words, sizeof(words));
}

template <int item>
void turn_across(std::byte* to, const std::byte* from, int64_t line) {
  alignas(64) int32_t words[8][kStripe];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) zip_rows<item>(from + i * (4 / item) * line, line, words[i]);
  std::memcpy(to, words, sizeof(words));
}

// Loads a turned fractal. Elements past the columns, and past the bytes of each, become 0.
ASCENDC_INLINE void load_turned(const std::byte* from, int64_t bytes, int64_t columns, Words (&to)[8][kParts]) {
  if (bytes == kBlockBytes && columns == kStripe) [[likely]] {
    std::memcpy(to, from, sizeof(to));
    return;
  }
  int32_t words[8][kStripe] = {};
  for (int64_t i = 0; i * 4 < bytes; ++i) {
    const int64_t left = bytes - i * 4;
    const uint32_t mask = left >= 4 ? ~uint32_t{0} : (uint32_t{1} << (left * 8)) - 1;
    std::memcpy(words[i], from + i * sizeof(words[i]), static_cast<size_t>(columns) * 4);
    for (int32_t& word : words[i]) word = static_cast<int32_t>(static_cast<uint32_t>(word) & mask);
  }
  std::memcpy(to, words, sizeof(to));
}

// Elements of a piece, and words that it becomes.
template <class Op>
constexpr int kElementsOf = static_cast<int>(kBlockBytes) / Op::kItem;
template <class Op>
constexpr int kWordsOf = kElementsOf<Op> / Op::kStep * Op::kStepWords;

// Words along k, in whole tiles where there are tiles.
constexpr int64_t kTile = 16;
template <class Op>
constexpr int64_t whole_tiles(int64_t words) {
  return Op::kTiles ? (words + kTile - 1) / kTile * kTile : words;
}

// The pieces of rows [0, rows) of the left factor from element `first` on, in rows of `width` words.
template <class Op>
void pack_left(const FactorLayout& a, int64_t rows, int64_t first, int64_t count, int32_t* to, int64_t width) {
  constexpr int64_t kItem = Op::kItem;
  alignas(64) std::byte part[kBlockBytes];
  for (int64_t i = 0; i < rows; ++i, to += width) {
    int32_t* words = to;
    for (int64_t p = first; p < first + count; p += kElementsOf<Op>, words += kWordsOf<Op>) {
      const int64_t elements = std::min<int64_t>(kElementsOf<Op>, first + count - p);
      const std::byte* from = a.piece_of(i, p / kElementsOf<Op>);
      if (a.across || elements != kElementsOf<Op>) {
        std::memset(part, 0, kBlockBytes);
        if (a.across) {
          for (int64_t e = 0; e < elements; ++e) {
            std::memcpy(part + e * kItem, a.data + (p + e) * a.line + i * kItem, kItem);
          }
        } else {
          std::memcpy(part, from, static_cast<size_t>(elements * kItem));
        }
        from = part;
      }
      Op::left(from, words);
    }
    if constexpr (Op::kTiles) std::fill(words, to + width, 0);
  }
}

// A stripe of the right factor's columns, `columns` of them in use, from element `first` on, in rows of `width` words.
template <class Op>
void pack_lines(const FactorLayout& b, int64_t stripe, int64_t columns, int64_t first, int64_t count, int32_t* to,
                int64_t width, Words (&offsets)[kParts]) {
  TilePrefetch& next = tile_prefetch;
  constexpr int64_t kItem = Op::kItem;
  constexpr int kOuts = kWordsOf<Op> / 8;
  alignas(64) std::byte part[16 * kBlockBytes];
  Words sums[2][kParts] = {};  // of the odd and of the even words, so that none waits for the one before
  for (int64_t p = first; p < first + count; p += kElementsOf<Op>) {
    const int64_t elements = std::min<int64_t>(kElementsOf<Op>, first + count - p);
    const std::byte* from = b.piece_of(stripe * 16, p / kElementsOf<Op>);
    int64_t line = b.line;
    next.ask(16 * kBlockBytes);
    Words words[8][kParts];
    if (b.turned) {
      load_turned(from, elements * kItem, columns, words);
    } else {
      if (elements != kElementsOf<Op> || columns != 16) [[unlikely]] {
        std::memset(part, 0, sizeof(part));
        for (int64_t j = 0; j < columns; ++j) {
          std::memcpy(part + j * kBlockBytes, from + j * line, static_cast<size_t>(elements * kItem));
        }
        from = part, line = kBlockBytes;
      }
      transpose_lines(from, line, words);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kParts; ++v) {
        Words out[kOuts];
        Op::spread(words[i][v], out);
#pragma GCC unroll 2
        for (int e = 0; e < kOuts; ++e) {
          *reinterpret_cast<Words*>(to + (i * kOuts + e) * width + v * kLanes) = out[e];
        }
        if constexpr (Op::kOffset) sums[i % 2][v] = Op::add_offset(sums[i % 2][v], words[i][v]);
      }
    }
    to += kWordsOf<Op> * width;
  }
  for (int v = 0; Op::kOffset && v < kParts; ++v) offsets[v] = sums[0][v] + sums[1][v];
}

// The same where a row along k has the elements of all columns.
template <class Op>
void pack_across(const FactorLayout& b, int64_t stripe, int64_t columns, int64_t first, int64_t count, int32_t* to,
                 int64_t width, Words (&offsets)[kParts]) {
  constexpr int64_t kItem = Op::kItem;
  for (int64_t p = first; p < first + count; p += Op::kStep, to += Op::kStepWords * width) {
    const int64_t rows = std::min<int64_t>(Op::kStep, first + count - p);
    alignas(64) std::byte part[Op::kStep * 16 * kItem];
    const std::byte* from = b.data + p * b.line + stripe * 16 * kItem;
    int64_t line = b.line;
    if (rows != Op::kStep || columns != 16) [[unlikely]] {
      std::memset(part, 0, sizeof(part));
      for (int64_t i = 0; i < rows; ++i) {
        std::memcpy(part + i * 16 * kItem, from + i * line, static_cast<size_t>(columns * kItem));
      }
      from = part, line = 16 * kItem;
    }
    Op::across(from, line, to, width);
    if constexpr (Op::kOffset) {
#pragma GCC unroll 4
      for (int v = 0; v < kParts; ++v) offsets[v] = Op::add_offset(offsets[v], load_words(to + v * kLanes));
    }
  }
}

struct Tile {
  int32_t* sums;  // of the first row and column
  int64_t row, stripe;
  const int32_t* a;
  int64_t row_a;
  const int32_t* b;
  const Words* offsets;
  int64_t depth;  // words
  bool accumulate;
};

template <class Op, int stripes, int rows>
void multiply_tile(const Tile& tile) {
  using Sums = typename Op::Sums;
  constexpr int kVectors = stripes * kParts;
  Sums sums[rows][kVectors];
  int32_t* const c = tile.sums;
  const int64_t row = tile.row, stripe = tile.stripe, row_a = tile.row_a;
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = tile.accumulate
                       ? *reinterpret_cast<const Sums*>(c + r * row + v / kParts * stripe + v % kParts * kLanes)
                       : Sums{};
      if constexpr (Op::kOffset) sums[r][v] -= tile.offsets[v];
    }
  }
  const int32_t* a = tile.a;
  const auto* b = reinterpret_cast<const Words*>(tile.b);
  for (int64_t p = tile.depth; p > 0; --p, ++a, b += kVectors) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const int32_t factor = a[r * row_a];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Op::add(sums[r][v], factor, b[v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      *reinterpret_cast<Sums*>(c + r * row + v / kParts * stripe + v % kParts * kLanes) = sums[r][v];
    }
  }
}

template <class Op, int stripes, class Rows = std::make_integer_sequence<int, kRows>>
struct Tiles;
template <class Op, int stripes, int... r>
struct Tiles<Op, stripes, std::integer_sequence<int, r...>> {
  static constexpr void (*kOfRows[])(const Tile&) = {multiply_tile<Op, stripes, r + 1>...};
};

#if ASCENDC_LEVEL == ASCENDC_AVX512_AMX
// Tiles are numbers in an instruction, which a function cannot be given.
#define ASCENDC_MULTIPLY_TILES(to, a, b)                  \
  do {                                                    \
    if constexpr (Op::kIsFloat) _tile_dpbf16ps(to, a, b); \
    if constexpr (!Op::kIsFloat) _tile_dpbssd(to, a, b);  \
  } while (false)

// The operand of ldtilecfg: sums in tiles 0 to 3, left factors in 4 and 5, right ones in 6 and 7. Tiles 0, 1 and 4
// have `upper` rows, tiles 2, 3 and 5, which lie below them, `lower` ones.
struct TileConfiguration {
  TileConfiguration(int64_t upper, int64_t lower) {
    for (int tile = 0; tile < 8; ++tile) {
      const bool is_lower = tile == 2 || tile == 3 || tile == 5;
      row_bytes[tile] = 64;
      rows[tile] = static_cast<uint8_t>(tile > 5 ? kTile : is_lower ? lower : upper);
    }
  }
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfiguration) == 64);

// Rows of one or two tiles and a panel of one or two stripes: up to four sums, so that none waits for the one before.
template <class Op, int stripes, bool lower>
void multiply_tile_rows(const Tile& of, int64_t i) {
  const int64_t of_sums = of.row * 4, of_a = of.row_a * 4, below_a = kTile * of.row_a;
  int32_t* const sums = of.sums + i * of.row;
  int32_t* const below = sums + kTile * of.row;
  if (of.accumulate) {
    _tile_loadd(0, sums, of_sums);
    if constexpr (stripes == 2) _tile_loadd(1, sums + of.stripe, of_sums);
    if constexpr (lower) _tile_loadd(2, below, of_sums);
    if constexpr (lower && stripes == 2) _tile_loadd(3, below + of.stripe, of_sums);
  } else {
    _tile_zero(0);
    if constexpr (stripes == 2) _tile_zero(1);
    if constexpr (lower) _tile_zero(2);
    if constexpr (lower && stripes == 2) _tile_zero(3);
  }
  const int32_t* a = of.a + i * of.row_a;
  const int32_t* b = of.b;
  for (int64_t p = 0; p < of.depth; p += kTile, a += kTile, b += kTile * stripes * kStripe) {
    _tile_loadd(4, a, of_a);
    _tile_loadd(6, b, stripes * 64);
    ASCENDC_MULTIPLY_TILES(0, 4, 6);
    if constexpr (lower) {
      _tile_loadd(5, a + below_a, of_a);
      ASCENDC_MULTIPLY_TILES(2, 5, 6);
    }
    if constexpr (stripes == 2) {
      _tile_loadd(7, b + kStripe, stripes * 64);
      ASCENDC_MULTIPLY_TILES(1, 4, 7);
      if constexpr (lower) ASCENDC_MULTIPLY_TILES(3, 5, 7);
    }
  }
  _tile_stored(0, sums, of_sums);
  if constexpr (stripes == 2) _tile_stored(1, sums + of.stripe, of_sums);
  if constexpr (lower) _tile_stored(2, below, of_sums);
  if constexpr (lower && stripes == 2) _tile_stored(3, below + of.stripe, of_sums);
}

// The product of m rows and a panel of one or two stripes. The depth is a multiple of 16 words. `configured` is how
// many rows the tiles are set to.
template <class Op, int stripes>
void multiply_tiles(const Tile& of, int64_t m, int64_t& configured) {
  constexpr int64_t kBoth = 2 * kTile;
  for (int64_t i = 0; i < m; i += kBoth) {
    const int64_t rows = std::min(kBoth, m - i);
    if (rows != configured) {
      const TileConfiguration configuration(std::min(kTile, rows), std::max<int64_t>(rows - kTile, 1));
      _tile_loadconfig(&configuration);
      configured = rows;
    }
    (rows > kTile ? multiply_tile_rows<Op, stripes, true> : multiply_tile_rows<Op, stripes, false>)(of, i);
  }
}
#undef ASCENDC_MULTIPLY_TILES
#endif

template <class Op>
void multiply(const Product& product) {
  constexpr int64_t kDepth = 256;  // elements of a panel of columns that stays in the first cache
  constexpr int64_t kPanelWords = (kDepth + kBlockBytes) * kWide * kStripe;
  const int64_t most = std::min(kDepth, product.k);
  const int64_t width = whole_tiles<Op>((most + kElementsOf<Op> - 1) / kElementsOf<Op> * kWordsOf<Op>);
  int32_t* const left = packed_words(0, product.m * width);
  int32_t* const panel = packed_words(1, kPanelWords);
  bool accumulate = product.accumulate;
#if ASCENDC_LEVEL == ASCENDC_AVX512_AMX
  int64_t configured = 0;
#endif
  for (int64_t first = 0; first < product.k; first += kDepth, accumulate = true) {
    const int64_t count = std::min(kDepth, product.k - first);
    const int64_t depth = (count + Op::kStep - 1) / Op::kStep * Op::kStepWords;
    pack_left<Op>(product.a, product.m, first, count, left, width);
    if constexpr (Op::kIsFloat) {
      round_factors(reinterpret_cast<float*>(left), product.m * width, product.rounding);
    }
    for (int64_t j = 0; j < product.n;) {
      const int64_t stripes = product.n - j > (kWide - 1) * 16 ? kWide : 1;
      Words offsets[kWide * kParts] = {};
      for (int64_t s = 0; s < stripes; ++s) {
        (product.b.across ? pack_across<Op>
                          : pack_lines<Op>)(product.b, j / 16 + s, std::min<int64_t>(16, product.n - j - s * 16), first,
                                            count, panel + s * 16, stripes * 16,
                                            *reinterpret_cast<Words(*)[kParts]>(offsets + s * kParts));
      }
      if constexpr (Op::kIsFloat) {
        round_factors(reinterpret_cast<float*>(panel), depth * stripes * 16, product.rounding);
      }
#if ASCENDC_LEVEL == ASCENDC_AVX512_AMX
      std::fill(panel + depth * stripes * kStripe, panel + whole_tiles<Op>(depth) * stripes * kStripe, 0);
      (stripes == 1 ? multiply_tiles<Op, 1> : multiply_tiles<Op, 2>)({product.sums + j / 16 * product.stripe,
                                                                      product.row, product.stripe, left, width, panel,
                                                                      nullptr, whole_tiles<Op>(depth), accumulate},
                                                                     product.m, configured);
#else
      const auto* const tiles = stripes == 1 ? Tiles<Op, 1>::kOfRows : Tiles<Op, kWide>::kOfRows;
      for (int64_t i = 0; i < product.m; i += kRows) {
        tiles[std::min<int64_t>(kRows, product.m - i) - 1]({product.sums + i * product.row + j / 16 * product.stripe,
                                                            product.row, product.stripe, left + i * width, width, panel,
                                                            offsets, depth, accumulate});
      }
#endif
      j += stripes * 16;
    }
  }
#if ASCENDC_LEVEL == ASCENDC_AVX512_AMX
  _tile_release();
#endif
}

// What floats, and numbers that become floats, have in common.
template <int item>
struct OfFloats {
  using Sums = Floats;
  static constexpr bool kIsFloat = true;
  static constexpr int kItem = item, kStep = 1, kStepWords = 1;
  static constexpr bool kOffset = false, kTiles = false;

  ASCENDC_INLINE static Floats add(Floats sum, int32_t a, Words b) { return sum + std::bit_cast<float>(a) * (Floats)b; }
};

struct OfFloat : OfFloats<4> {
  static void left(const std::byte* from, int32_t* to) { std::memcpy(to, from, kBlockBytes); }
  ASCENDC_INLINE static void spread(Words words, Words (&to)[1]) { to[0] = words; }
  ASCENDC_INLINE static void across(const std::byte* from, int64_t /*line*/, int32_t* to, int64_t /*width*/) {
    std::memcpy(to, from, kStripe * sizeof(float));
  }
};

#if defined(__x86_64__) && ASCENDC_LEVEL == ASCENDC_ANY
// Products that a float does not hold, on a processor without fused instructions.
struct OfFloatFused : OfFloat {
  static Floats add(Floats sum, int32_t a, Words b) {
    for (int i = 0; i < kLanes; ++i) sum[i] = std::fma(std::bit_cast<float>(a), ((Floats)b)[i], sum[i]);
    return sum;
  }
};
#endif

struct OfBfloat16 : OfFloats<2> {
  ASCENDC_INLINE static void widen_run(const std::byte* from, int32_t* to) {
    uint16_t bits[16];
    std::memcpy(bits, from, sizeof(bits));
    for (int i = 0; i < 16; ++i) to[i] = static_cast<int32_t>(uint32_t{bits[i]} << 16);
  }
  static void left(const std::byte* from, int32_t* to) { widen_run(from, to); }
  ASCENDC_INLINE static void spread(Words words, Words (&to)[2]) {
    to[0] = words << 16, to[1] = words & static_cast<int32_t>(0xffff0000);
  }
  ASCENDC_INLINE static void across(const std::byte* from, int64_t /*line*/, int32_t* to, int64_t /*width*/) {
    widen_run(from, to);
  }
};

// The low halves of words, as numbers of half, become floats.
ASCENDC_INLINE Words widen_low_halves(Words words) {
#if ASCENDC_LEVEL >= ASCENDC_AVX512
  return (Words)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)words));
#elif ASCENDC_LEVEL == ASCENDC_AVX2
  const __m256i low = (__m256i)(words & 0xffff);
  const __m256i together = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 8);
  return (Words)_mm256_cvtph_ps(_mm256_castsi256_si128(together));
#else
  const Words magnitude = (words & 0x7fff) << 13, sign = (words & 0x8000) << 16;
  const Words normal = magnitude + (112 << 23);
  const Words subnormal = (Words)((Floats)(normal + (1 << 23)) - 0x1p-14f);
  const Words is_subnormal = magnitude < (1 << 23), is_special = magnitude >= (31 << 23);
  return sign | (is_subnormal & subnormal) | (~is_subnormal & normal) | (is_special & 0x7f800000);
#endif
}

struct OfHalf : OfFloats<2> {
  ASCENDC_INLINE static void widen_run(const std::byte* from, int32_t* to) {
#if ASCENDC_LEVEL >= ASCENDC_AVX2
    for (int i = 0; i < 16; i += 8) {
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2));
      _mm256_storeu_ps(reinterpret_cast<float*>(to + i), _mm256_cvtph_ps(bits));
    }
#else
    widen(reinterpret_cast<const half*>(from), reinterpret_cast<float*>(to), 16);
#endif
  }
  static void left(const std::byte* from, int32_t* to) { widen_run(from, to); }
  ASCENDC_INLINE static void spread(Words words, Words (&to)[2]) {
    to[0] = widen_low_halves(words), to[1] = widen_low_halves((Words)((Unsigned)words >> 16));
  }
  ASCENDC_INLINE static void across(const std::byte* from, int64_t /*line*/, int32_t* to, int64_t /*width*/) {
    widen_run(from, to);
  }
};

// Pairs of int16_t: of four elements the first and the third, and the second and the fourth.
struct OfInt8 {
  using Sums = Words;
  static constexpr bool kIsFloat = false;
  static constexpr int kItem = 1, kStep = 4, kStepWords = 2;
  static constexpr bool kOffset = false, kTiles = false;

  ASCENDC_INLINE static int32_t pair(int32_t word) {
    return static_cast<int32_t>((static_cast<uint32_t>(static_cast<int8_t>(word)) & 0xffff) |
                                static_cast<uint32_t>(static_cast<int8_t>(word >> 16)) << 16);
  }
  static void left(const std::byte* from, int32_t* to) {
    for (int i = 0; i < kElementsOf<OfInt8> / kStep; ++i) {
      int32_t word;
      std::memcpy(&word, from + i * kStep, sizeof(word));
      to[i * 2] = pair(word), to[i * 2 + 1] = pair(word >> 8);
    }
  }
  ASCENDC_INLINE static void spread(Words words, Words (&to)[2]) {
    to[0] = (Words)(((Shorts)words << 8) >> 8), to[1] = (Words)((Shorts)words >> 8);
  }
  ASCENDC_INLINE static void across(const std::byte* from, int64_t line, int32_t* to, int64_t width) {
    for (int j = 0; j < kStripe; ++j) {
      const auto at = [&](int64_t i) { return static_cast<int32_t>(static_cast<int8_t>(from[i * line + j])); };
      to[j] = (at(0) & 0xffff) | at(2) << 16;
      to[width + j] = (at(1) & 0xffff) | at(3) << 16;
    }
  }
  ASCENDC_INLINE static Words add(Words sum, int32_t a, Words b) {
#if ASCENDC_LEVEL >= ASCENDC_AVX512
    return sum + (Words)_mm512_madd_epi16(_mm512_set1_epi32(a), (__m512i)b);
#elif ASCENDC_LEVEL == ASCENDC_AVX2
    return sum + (Words)_mm256_madd_epi16(_mm256_set1_epi32(a), (__m256i)b);
#elif defined(__x86_64__)
    return sum + (Words)_mm_madd_epi16(_mm_set1_epi32(a), (__m128i)b);
#else
    return sum + static_cast<int16_t>(a) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
  }
};

#if ASCENDC_LEVEL == ASCENDC_AVX512_BF16 || ASCENDC_LEVEL == ASCENDC_AVX512_AMX
// Pairs of bfloat16_t, whose products are added one after the other; numbers below the smallest normal one are 0.
struct OfBfloat16Pairs {
  using Sums = Floats;
  static constexpr bool kIsFloat = true;
  static constexpr int kItem = 2, kStep = 2, kStepWords = 1;
  static constexpr bool kOffset = false, kTiles = ASCENDC_LEVEL == ASCENDC_AVX512_AMX;

  static void left(const std::byte* from, int32_t* to) { std::memcpy(to, from, kBlockBytes); }
  ASCENDC_INLINE static void spread(Words words, Words (&to)[1]) { to[0] = words; }
  ASCENDC_INLINE static void across(const std::byte* from, int64_t line, int32_t* to, int64_t /*width*/) {
    zip_rows<kItem>(from, line, to);
  }
  ASCENDC_INLINE static Floats add(Floats sum, int32_t a, Words b) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(a), (__m512bh)b);
  }
};
#endif

#if ASCENDC_LEVEL == ASCENDC_AVX512_VNNI || ASCENDC_LEVEL == ASCENDC_AVX512_AMX
// Four elements; those of the left factor are stored without sign, 128 too large, where there are no tiles.
struct OfInt8Quads {
  using Sums = Words;
  static constexpr bool kIsFloat = false;
  static constexpr int kItem = 1, kStep = 4, kStepWords = 1;
  static constexpr bool kTiles = ASCENDC_LEVEL == ASCENDC_AVX512_AMX, kOffset = !kTiles;

  static void left(const std::byte* from, int32_t* to) {
    const __m256i signs = _mm256_set1_epi8(kOffset ? -128 : 0),
                  piece = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_xor_si256(piece, signs));
  }
  ASCENDC_INLINE static void spread(Words words, Words (&to)[1]) { to[0] = words; }
  ASCENDC_INLINE static void across(const std::byte* from, int64_t line, int32_t* to, int64_t /*width*/) {
    zip_rows<kItem>(from, line, to);
  }
  ASCENDC_INLINE static Words add(Words sum, int32_t a, Words b) {
    return (Words)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(a), (__m512i)b);
  }
  ASCENDC_INLINE static Words add_offset(Words sum, Words b) { return add(sum, static_cast<int32_t>(0x80808080), b); }
};
#endif

#undef ASCENDC_INLINE
