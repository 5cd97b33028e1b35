// SPDX-License-Identifier: Apache-2.0
// Sparse flash attention in bfloat16 by the tiles of x86 processors (AMX).
#include "cpu/amx_attention.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "cpu/prefetch.h"
#include "cpu/simd.h"
#include "cpu/tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>
// GCC 12 warns of values that its own header leaves undefined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace opp {
namespace {

// The intermediate results of this many tokens take about 0.9 MiB at the model's sizes.
constexpr int64_t kBlock = 256;
constexpr int64_t kChunks = kBlock / kTileDepth;           // of tokens that are a tile's depth
constexpr int64_t kTileElements = kTileRows * kTileDepth;  // of bfloat16
constexpr int64_t kSumElements = kTileRows * kTileRows;
// How much larger a score may be than the maximum that its exponential is relative to: changing it for less would cost
// more than the precision that weights up to its exponential lose, which is none.
constexpr float kSlack = 8;

// How much of the largest variance a row's weights may be expected to give the result: some turn out to give more.
constexpr float kExpected = 0.8F;

// Heads that are weighed and multiplied by the values at once: two rows of tiles.
constexpr int64_t kWeighed = 2 * kTileRows;
// How many tokens before it is loaded a token begins to come to the cache, line by line while others are packed: in the
// products that would slow these down more than it saves.
constexpr int64_t kAhead = 24;
// The least remainder of a tile whose heads are divided: a thread that gets half of them also loads the tile's tokens.
constexpr int64_t kMinSharedHeads = 64;
constexpr int64_t kMinSharedTokens = 2 * kBlock;

// Matrices in contiguous tiles: the place of the first tile, and the distances to the tiles beside it and below. Tiles
// of the left matrix follow each other along its rows. A tile whose bit is set in `sums`, which has kChunks bits for
// each row of tiles, is the sum of two. The second lies `other` from the first.
struct Left {
  const at::BFloat16* tiles;
  int64_t below;
  int64_t other = 0;
  uint32_t sums = 0;
};
struct Right {
  const at::BFloat16* tiles;
  int64_t right;
  int64_t below;
};
struct Sums {
  float* tiles;
  int64_t right;
  int64_t below;
};

// Rows of two tokens.
struct Pair {
  const at::BFloat16* even;
  const at::BFloat16* odd;
};

#if defined(__x86_64__)

#define OPP_TILES __attribute__((target("avx512f,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16")))
#define OPP_TILES_INLINE \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16"), always_inline)) inline

constexpr int64_t kTileBytes = 64;  // of a row

OPP_TILES_INLINE void prefetch_columns(const at::BFloat16* of) { prefetch_line(reinterpret_cast<const char*>(of)); }

// A row of a matrix as a row of its tiles; brings as much of `ahead`.
OPP_TILES_INLINE void pack_row(const at::BFloat16* row, int64_t columns, at::BFloat16* to, const at::BFloat16* ahead) {
  for (int64_t column = 0; column < columns; column += kTileDepth, to += kTileElements) {
    _mm512_store_si512(to, _mm512_loadu_si512(row + column));
    prefetch_columns(ahead + column);
  }
}

// 32 columns of two rows of values as a row of each of the two tiles that share them: each has two of every four
// columns that make a lane of 16 bytes. Adds up each row's squares.
OPP_TILES_INLINE void pack_columns(__m512i even, __m512i odd, at::BFloat16* to, __m512* squares) {
  _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
  _mm512_store_si512(to + kTileElements, _mm512_unpackhi_epi16(even, odd));
  squares[0] = _mm512_dpbf16_ps(squares[0], (__m512bh)even, (__m512bh)even);
  squares[1] = _mm512_dpbf16_ps(squares[1], (__m512bh)odd, (__m512bh)odd);
}

// Two rows of values in tiles, and the mean square of each row's first `count` numbers; those up to `columns` are zero.
// If the rows begin with keys, also packs these, as pack_row() does. A separate pass would take longer.
template <bool kAreKeys>
OPP_TILES_INLINE void pack_values(Pair rows, int64_t columns, int64_t count, at::BFloat16* to, float* mean_squares,
                                  at::BFloat16* keys, Pair ahead) {
  __m512 squares[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  int64_t column = 0;
  for (; column + kTileDepth <= count; column += kTileDepth, to += 2 * kTileElements) {
    const __m512i even = _mm512_loadu_si512(rows.even + column);
    const __m512i odd = _mm512_loadu_si512(rows.odd + column);
    if constexpr (kAreKeys) {
      _mm512_store_si512(keys, even);
      _mm512_store_si512(keys + kTileDepth, odd);
      keys += kTileElements;
      prefetch_columns(ahead.even + column);
      prefetch_columns(ahead.odd + column);
    }
    pack_columns(even, odd, to, squares);
  }
  if (column < columns) {
    if constexpr (kAreKeys) {
      pack_row(rows.even + column, kTileDepth, keys, ahead.even + column);
      pack_row(rows.odd + column, kTileDepth, keys + kTileDepth, ahead.odd + column);
    }
    const auto present = static_cast<__mmask32>((1U << (count - column)) - 1);
    pack_columns(_mm512_maskz_loadu_epi16(present, rows.even + column),
                 _mm512_maskz_loadu_epi16(present, rows.odd + column), to, squares);
  }
  for (int64_t i = 0; i < 2; ++i) mean_squares[i] = _mm512_reduce_add_ps(squares[i]) / static_cast<float>(count);
}

// largest[h] = the largest of it and of column h's numbers times scale, of `count` rows in tiles. NaN is not larger
// than anything.
OPP_TILES void find_largest(const float* rows, int64_t count, float scale, float* largest) {
  constexpr int64_t kChains = 4;  // side by side, as they take a few cycles a row
  const __m512 factor = _mm512_set1_ps(scale);
  __m512 top[kChains];
  for (auto& chain : top) chain = _mm512_loadu_ps(largest);
  for (int64_t row = 0; row < count; row += kChains) {
    for (int64_t i = 0; i < kChains; ++i) {
      const __m512 score = _mm512_load_ps(rows + std::min(row + i, count - 1) * kLanes);
      top[i] = _mm512_max_ps(_mm512_mul_ps(score, factor), top[i]);
    }
  }
  _mm512_storeu_ps(largest, _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3])));
}

// 2^x to float's precision, and zero for what is less than the least normal number: a polynomial that is 1 at 0, and
// nowhere off by more than 3e-9 between 0 and 1.
OPP_TILES_INLINE __m512 power_of_two(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // x - floor(x)
  __m512 sum = _mm512_fmadd_ps(r, _mm512_set1_ps(2.1865785e-4F), _mm512_set1_ps(1.2391332e-3F));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(9.6841864e-3F));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(5.5480629e-2F));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(2.4023046e-1F));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(6.9314694e-1F));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0F));
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ), sum, x);
}

// The upper halves of a's and b's words, side by side.
OPP_TILES_INLINE __m512i upper_halves(__m512 a, __m512 b) {
  return _mm512_mask_blend_epi16(0xAAAAAAAAU, _mm512_srli_epi32(_mm512_castps_si512(a), 16), _mm512_castps_si512(b));
}

// Adds one to the upper half where the lower one is more than half of that.
OPP_TILES_INLINE __m512 round_to_upper_half(__m512 x) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000)));
}

OPP_TILES_INLINE __m512 upper_half(__m512 x) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(-0x10000)));
}

// The weights exp(scale * score - maximum) of a tile's heads, and zeros past `count`; adds them up in `totals`. `fine`
// is for each chunk of tokens the heads whose weights may not be rounded, for what that would do to the result, with
// `squares` for each token; adds the variance of others to `variances`, which may be up to `allowed` of the squared
// totals. Returns false, and all but `weights` is as it was, if a score exceeds its maximum by more than `slack`.
OPP_TILES bool weigh_heads(const float* scores, int64_t count, int64_t padded, float scale, const float* maxima,
                           float slack, float* weights, const float* squares, const float* allowed, float* totals,
                           float* variances, uint16_t* fine) {
  const __m512 log2e = _mm512_set1_ps(1.44269504F);
  const __m512 factor = _mm512_mul_ps(_mm512_set1_ps(scale), log2e);
  // What stands for no maximum stays finite.
  const __m512 maximum = _mm512_max_ps(_mm512_mul_ps(_mm512_loadu_ps(maxima), log2e),
                                       _mm512_set1_ps(std::numeric_limits<float>::lowest()));
  __m512 largest = _mm512_setzero_ps();
  __m512 total = _mm512_loadu_ps(totals);
  __m512 of_chunks[kChunks];
  for (int64_t first = 0; first < count; first += kTileDepth) {
    __m512 variance = _mm512_setzero_ps();
    for (int64_t token = first; token < std::min(first + kTileDepth, count); ++token) {
      const __m512 power = _mm512_fmsub_ps(_mm512_load_ps(scores + token * kLanes), factor, maximum);
      const __m512 weight = power_of_two(power);
      _mm512_store_ps(weights + token * kLanes, weight);
      largest = _mm512_max_ps(power, largest);  // NaN is not larger than anything
      total = _mm512_add_ps(total, weight);
      variance = _mm512_fmadd_ps(_mm512_mul_ps(weight, weight), _mm512_set1_ps(squares[token]), variance);
    }
    of_chunks[first / kTileDepth] = variance;
  }
  if (_mm512_cmp_ps_mask(largest, _mm512_mul_ps(_mm512_set1_ps(slack), log2e), _CMP_GT_OQ) != 0) return false;
  std::fill(weights + count * kLanes, weights + padded * kLanes, 0.0F);
  _mm512_storeu_ps(totals, total);
  const __m512 limit = _mm512_mul_ps(_mm512_loadu_ps(allowed), _mm512_mul_ps(total, total));
  __m512 sum = _mm512_loadu_ps(variances);
  for (int64_t chunk = 0; chunk < padded / kTileDepth; ++chunk) {
    const __m512 more = _mm512_add_ps(sum, of_chunks[chunk]);
    const __mmask16 too_much = _mm512_cmp_ps_mask(more, limit, _CMP_NLE_UQ);
    sum = _mm512_mask_mov_ps(more, too_much, sum);
    fine[chunk] = too_much;
  }
  _mm512_storeu_ps(variances, sum);
  return true;
}

// The rounded weights of a tile's heads, token by token, as tiles of rows of heads; and what they lack of those of the
// heads that are `fine` in a chunk, for chunks with any.
OPP_TILES void pack_weights(const float* weights, int64_t tokens, const uint16_t* fine, at::BFloat16* to,
                            at::BFloat16* lacking) {
  alignas(64) uint32_t words[2][kTileRows][kLanes];
  for (int64_t token = 0; token < tokens; token += kTileDepth) {
    const __mmask16 some = fine[token / kTileDepth];
    for (int64_t pair = 0; pair < kTileRows; ++pair, weights += 2 * kLanes) {
      const __m512 even = _mm512_load_ps(weights);
      const __m512 odd = _mm512_load_ps(weights + kLanes);
      const __m512 even_rounded = round_to_upper_half(even);
      const __m512 odd_rounded = round_to_upper_half(odd);
      _mm512_store_si512(words[0][pair], upper_halves(even_rounded, odd_rounded));
      if (some == 0) continue;
      const __m512 of_even = round_to_upper_half(_mm512_sub_ps(even, upper_half(even_rounded)));
      const __m512 of_odd = round_to_upper_half(_mm512_sub_ps(odd, upper_half(odd_rounded)));
      _mm512_store_si512(words[1][pair], _mm512_maskz_mov_epi32(some, upper_halves(of_even, of_odd)));
    }
    simd().transpose_words(words[0], kLanes, kTileRows, to + token * kTileRows, kLanes);
    if (some != 0) simd().transpose_words(words[1], kLanes, kTileRows, lacking + token * kTileRows, kLanes);
  }
}

// Rows x Columns tiles of c = a b, or c += a b. Those of a are loaded again for the next columns: the others leave them
// their place in the cache closest to the core.
template <int Rows, int Columns>
OPP_TILES void multiply_block(const Left& left, const Right& right, const Sums& sums, int64_t depth, bool add) {
  const at::BFloat16* a = left.tiles;
  const at::BFloat16* b = right.tiles;
  float* c = sums.tiles;
  float* c_below = c + sums.below;
  if (add) {
    _tile_stream_loadd(0, c, kTileBytes);
    if constexpr (Columns > 1) _tile_stream_loadd(1, c + sums.right, kTileBytes);
    if constexpr (Rows > 1) _tile_stream_loadd(2, c_below, kTileBytes);
    if constexpr (Rows > 1 && Columns > 1) _tile_stream_loadd(3, c_below + sums.right, kTileBytes);
  } else {
    _tile_zero(0);
    if constexpr (Columns > 1) _tile_zero(1);
    if constexpr (Rows > 1) _tile_zero(2);
    if constexpr (Rows > 1 && Columns > 1) _tile_zero(3);
  }
  for (int64_t k = 0; k < depth; ++k, a += kTileElements, b += right.below) {
    _tile_stream_loadd(6, b, kTileBytes);
    if constexpr (Columns > 1) _tile_stream_loadd(7, b + right.right, kTileBytes);
    _tile_loadd(4, a, kTileBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (Columns > 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (Rows > 1) {
      _tile_loadd(5, a + left.below, kTileBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (Columns > 1) _tile_dpbf16ps(3, 5, 7);
    }
    if (left.sums >> k & 1) {
      _tile_loadd(4, a + left.other, kTileBytes);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (Columns > 1) _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (Rows > 1) {
      if ((left.sums >> (kChunks + k) & 1) == 0) continue;
      _tile_loadd(5, a + left.other + left.below, kTileBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (Columns > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, kTileBytes);
  if constexpr (Columns > 1) _tile_stored(1, c + sums.right, kTileBytes);
  if constexpr (Rows > 1) _tile_stored(2, c_below, kTileBytes);
  if constexpr (Rows > 1 && Columns > 1) _tile_stored(3, c_below + sums.right, kTileBytes);
}

template <int Rows>
void multiply_rows(const Left& a, Right b, Sums c, int64_t columns, int64_t depth, bool add) {
  for (; columns > 1; columns -= 2, b.tiles += 2 * b.right, c.tiles += 2 * c.right) {
    multiply_block<Rows, 2>(a, b, c, depth, add);
  }
  if (columns > 0) multiply_block<Rows, 1>(a, b, c, depth, add);
}

// c = a b, or c += a b, for these numbers of tiles.
void multiply(Left a, const Right& b, Sums c, int64_t rows, int64_t columns, int64_t depth, bool add) {
  for (; rows > 1; rows -= 2, a.tiles += 2 * a.below, a.sums >>= 2 * kChunks, c.tiles += 2 * c.below) {
    multiply_rows<2>(a, b, c, columns, depth, add);
  }
  if (rows > 0) multiply_rows<1>(a, b, c, columns, depth, add);
}

// Rounds to bfloat16. All NaNs become the same one.
OPP_TILES_INLINE __m256i round_to_bfloat16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7FC0)));
}

// A row of tiles of sums times factor, rounded, in the order that the columns of values had before pack_values().
OPP_TILES void write_row(const float* sums, int64_t columns, float factor, at::BFloat16* to) {
  const __m512 times = _mm512_set1_ps(factor);
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (int64_t column = 0; column < columns; column += kTileDepth, sums += 2 * kSumElements) {
    const __m512 a = _mm512_mul_ps(_mm512_load_ps(sums), times);
    const __m512 b = _mm512_mul_ps(_mm512_load_ps(sums + kSumElements), times);
    auto* out = reinterpret_cast<__m256i*>(to + column);
    _mm256_storeu_si256(out, round_to_bfloat16(_mm512_permutex2var_ps(a, first, b)));
    _mm256_storeu_si256(out + 1, round_to_bfloat16(_mm512_permutex2var_ps(a, second, b)));
  }
}

#else

#define OPP_TILES

[[noreturn]] void fail() { TORCH_INTERNAL_ASSERT(false, "this processor has no tiles"); }

void pack_row(const at::BFloat16*, int64_t, at::BFloat16*, const at::BFloat16*) { fail(); }

template <bool>
void pack_values(Pair, int64_t, int64_t, at::BFloat16*, float*, at::BFloat16*, Pair) {
  fail();
}

void find_largest(const float*, int64_t, float, float*) { fail(); }

bool weigh_heads(const float*, int64_t, int64_t, float, const float*, float, float*, const float*, const float*, float*,
                 float*, uint16_t*) {
  fail();
}

void pack_weights(const float*, int64_t, const uint16_t*, at::BFloat16*, at::BFloat16*) { fail(); }

void multiply(Left, const Right&, Sums, int64_t, int64_t, int64_t, bool) { fail(); }

void write_row(const float*, int64_t, float, at::BFloat16*) { fail(); }

#endif

}  // namespace

Helpers::Thread::Thread(Helpers& helpers) : helpers_(helpers) {
  const std::lock_guard lock(helpers_.mutex_);
  ++helpers_.working_;
}

Helpers::Thread::~Thread() {
  const std::lock_guard lock(helpers_.mutex_);
  if (works_) --helpers_.working_;
}

std::optional<AttentionPart> Helpers::Thread::wait() {
  std::unique_lock lock(helpers_.mutex_);
  --helpers_.working_;
  ++helpers_.waiting_;
  works_ = false;
  while (helpers_.parts_.empty()) {
    if (helpers_.working_ == 0) return std::nullopt;
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  const AttentionPart part = helpers_.parts_.back();
  helpers_.parts_.pop_back();
  works_ = true;
  return part;
}

bool Helpers::give(const AttentionPart& part) {
  const std::lock_guard lock(mutex_);
  if (waiting_ == 0) return false;
  parts_.push_back(part);
  --waiting_;
  ++working_;
  return true;
}

AmxAttention::AmxAttention(const SparseFlashAttentionPto& call, const AttentionTiling& tiling, Helpers& helpers)
    : helpers_(helpers),
      operands_(call, tiling),
      scale_(static_cast<float>(call.scale_value)),
      depth_(round_up(call.depth(), kTileDepth)),
      columns_(round_up(call.value.size(-1), kTileDepth)),
      max_heads_(round_up(tiling.tile_heads, kTileRows)),
      values_are_keys_(operands_.keys_begin_with_values(columns_)),
      rows_are_whole_(operands_.keys_lie_in_chunks(kTileDepth) &&
                      (values_are_keys_ || operands_.values_lie_in_chunks(1))),
      key_columns_(rows_are_whole_ ? operands_.key_size() : depth_),
      memory_(place(nullptr)) {
  place(memory_.data());
  // What pads the rows stays zero.
  std::fill_n(staged_, kLanes * depth_, at::BFloat16(0));
  std::fill_n(staged_values_, 2 * columns_, at::BFloat16(0));
  std::fill_n(zeros_, std::max(depth_, columns_), at::BFloat16(0));
}

AmxAttention::~AmxAttention() { wait_for_takers(); }

int64_t AmxAttention::place(std::byte* memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  uintptr_t end = begin;
  const auto take = [&]<class T>(T*& at, int64_t count) {
    at = reinterpret_cast<T*>(end);
    end += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
  };
  take(query_, max_heads_ * depth_);
  take(keys_, kTileDepth * depth_);
  take(values_, kBlock * columns_);
  take(scores_, kBlock * max_heads_);
  take(exact_, kBlock * kTileRows);
  take(weights_, kBlock * kWeighed);
  take(lacking_, kBlock * kWeighed);
  take(sums_, max_heads_ * columns_);
  take(maxima_, max_heads_);
  take(totals_, max_heads_);
  take(variances_, max_heads_);
  take(allowed_, max_heads_);
  take(doubted_, max_heads_);
  take(staged_, kLanes * depth_);
  take(staged_values_, 2 * columns_);
  take(zeros_, std::max(depth_, columns_));
  take(row_, columns_);
  take(squares_, kBlock);
  return round_up(static_cast<int64_t>(end - begin), 2 << 20);
}

void AmxAttention::run(const AttentionTile& tile) {
  open(tile, 0);
  std::fill_n(doubted_, heads_, false);
  begin();
  if (operands_.tokens() == 0) return write_zeros();
  attend(0, false);
  finish(false);
}

void AmxAttention::run(const AttentionPart& part) {
  take_over(part);
  open(part.tile, part.first);
  attend(part.first, part.again);
  finish(part.again);
}

void AmxAttention::open(const AttentionTile& tile, int64_t first) {
  operands_.open(tile);
  heads_ = round_up(tile.heads, kTileRows);
  if (operands_.tokens() == 0) return;
  operands_.prefetch_keys(first, kAhead);
  load_queries();
}

void AmxAttention::attend(int64_t first, bool again) {
  const int64_t tokens = operands_.tokens();
  for (; first < tokens; first += kBlock) {
    share(first, again);
    const int64_t count = std::min(kBlock, tokens - first);
    add({first, count, round_up(count, kTileDepth)});
  }
}

// Gives half of the heads to a thread that waits, if there is one.
void AmxAttention::share(int64_t first, bool again) {
  if (!helpers_.are_waiting()) return;
  if (heads_ < kMinSharedHeads || operands_.tokens() - first < kMinSharedTokens) return;
  const int64_t kept = round_up(heads_ / 2, kTileRows);
  AttentionTile given = operands_.tile();
  given.first_head += kept;
  given.heads -= kept;
  ++given_;
  if (!helpers_.give({given, first, again, this})) {
    --given_;
    return;
  }
  operands_.keep(kept);
  heads_ = kept;
}

// Copies what the blocks before have given.
void AmxAttention::take_over(const AttentionPart& part) {
  AmxAttention& from = *part.from;
  const int64_t head = part.tile.first_head - from.operands_.tile().first_head;
  const int64_t heads = round_up(part.tile.heads, kTileRows);
  std::copy_n(from.maxima_ + head, heads, maxima_);
  std::copy_n(from.totals_ + head, heads, totals_);
  std::copy_n(from.variances_ + head, heads, variances_);
  std::copy_n(from.doubted_ + head, heads, doubted_);
  if (part.first > 0) std::copy_n(from.sums_ + head * columns_, heads * columns_, sums_);
  --from.given_;
}

void AmxAttention::wait_for_takers() const {
  while (given_ > 0) std::this_thread::yield();
}

void AmxAttention::finish(bool again) {
  if (!again && doubt()) {
    begin();
    attend(0, true);
  }
  write();
  wait_for_takers();
}

// A chunk's weights may be rounded if that gives the result no more than kExpected of the largest variance when the
// blocks to come have as much weight as those so far. Doubts heads that have turned out to have more than all of it,
// and says whether there are any.
bool AmxAttention::doubt() {
  bool any = false;
  for (int64_t head = 0; head < operands_.heads(); ++head) {
    if (variances_[head] > kLargestVariance * totals_[head] * totals_[head]) doubted_[head] = any = true;
  }
  return any;
}

// A softmax begins with the sink, whose exponential relative to itself is 1. No score is less than the number that
// stands for none.
void AmxAttention::begin() {
  for (int64_t head = 0; head < heads_; ++head) {
    const float sink = head < operands_.heads() ? operands_.sink(head) : 0;
    const bool none = sink == -std::numeric_limits<float>::infinity();
    maxima_[head] = none ? std::numeric_limits<float>::lowest() : sink;
    totals_[head] = none ? 0.0F : 1.0F;
    variances_[head] = 0;
  }
}

// The queries as columns.
void AmxAttention::load_queries() {
  const int64_t words = depth_ / TileProducts::kGroup;
  for (int64_t head = 0; head < heads_; head += kLanes) {
    const int64_t heads = std::min(kLanes, operands_.heads() - head);
    operands_.load_queries(head, heads, staged_, depth_);
    std::fill(staged_ + heads * depth_, staged_ + kLanes * depth_, at::BFloat16(0));
    simd().transpose_words(staged_, words, words, query_ + head * depth_, kLanes);
  }
}

void AmxAttention::add(const Block& block) {
  for (int64_t first = 0; first < block.padded; first += kTileDepth) {
    load(block, first);
    multiply({keys_, kTileRows * depth_}, {query_, kTileRows * depth_, kTileElements},
             {scores_ + first * kTileRows, kTileRows * block.padded, kSumElements}, kTileDepth / kTileRows,
             heads_ / kTileRows, depth_ / kTileDepth, false);
  }
  for (int64_t head = 0; head < heads_; head += kWeighed) {
    const int64_t heads = std::min(kWeighed, heads_ - head);
    const uint32_t sums = weigh(block, head, heads);
    multiply({weights_, kTileRows * block.padded, lacking_ - weights_, sums},
             {values_, kTileElements, kTileDepth * columns_},
             {sums_ + head * columns_, kSumElements, kTileRows * columns_}, heads / kTileRows, columns_ / kTileRows,
             block.padded / kTileDepth, block.first > 0);
  }
}

// The keys of a chunk of the block's tokens as rows, its values as rows of a right matrix, by pairs of tokens. What is
// needed for them stays in registers: reading it again waits for those stores before it that end in the same 12 bits,
// and many do.
OPP_TILES void AmxAttention::load(const Block& block, int64_t first) {
  const int64_t depth = depth_;
  const int64_t key_columns = key_columns_;
  const int64_t columns = columns_;
  const int64_t value_size = operands_.value_size();
  const int64_t last = operands_.tokens() - 1;
  const int64_t shared = values_are_keys_ ? columns : 0;
  const int64_t in_place = rows_are_whole_ ? block.count : 0;
  const auto token_at = [&](int64_t row) {
    return row < in_place ? operands_.token(block.first + row) : stage(block, row);
  };
  const auto token_ahead = [&](int64_t row) { return operands_.token(std::min(block.first + row + kAhead, last)); };
  at::BFloat16* all_keys = keys_;
  at::BFloat16* all_values = values_ + first * columns;
  float* squares = squares_;
  for (int64_t i = 0; i < kTileDepth; i += 2) {
    at::BFloat16* keys = all_keys + i / kTileRows * kTileRows * depth + i % kTileRows * kTileDepth;
    at::BFloat16* values = all_values + i * kTileRows;
    const int64_t row = first + i;
    const auto even = token_at(row);
    const auto odd = token_at(row + 1);
    const auto even_ahead = token_ahead(row);
    const auto odd_ahead = token_ahead(row + 1);
    if (shared > 0) {
      pack_values<true>({even.key, odd.key}, columns, value_size, values, squares + row, keys,
                        {even_ahead.key, odd_ahead.key});
    } else {
      pack_values<false>({even.value, odd.value}, columns, value_size, values, squares + row, nullptr, {});
    }
    at::BFloat16* rest = keys + shared * kTileRows;
    pack_row(even.key + shared, key_columns - shared, rest, even_ahead.key + shared);
    pack_row(odd.key + shared, key_columns - shared, rest + kTileDepth, odd_ahead.key + shared);
    at::BFloat16* ropes = keys + key_columns * kTileRows;
    pack_row(even.rope, depth - key_columns, ropes, even_ahead.rope);
    pack_row(odd.rope, depth - key_columns, ropes + kTileDepth, odd_ahead.rope);
  }
}

// The rows of a block's token that cannot be loaded from where they are.
Token<at::BFloat16> AmxAttention::stage(const Block& block, int64_t row) {
  if (row >= block.count) return {zeros_, zeros_, zeros_};
  at::BFloat16* key = staged_ + row % 2 * depth_;
  at::BFloat16* value = staged_values_ + row % 2 * columns_;
  operands_.load_keys(block.first + row, 1, key, depth_);
  if (!values_are_keys_) operands_.load_values(block.first + row, 1, value, columns_);
  return {key, nullptr, value};
}

// Turns the scores of up to kWeighed heads into weights; returns the tiles that are the sums of two.
uint32_t AmxAttention::weigh(const Block& block, int64_t first, int64_t heads) {
  uint32_t sums = 0;
  const float growth = static_cast<float>(operands_.tokens()) / static_cast<float>(block.first + block.count);
  const float largest = kExpected * kLargestVariance;
  for (int64_t i = 0; i < heads; i += kTileRows) {
    const int64_t head = first + i;
    const float* scores = scores_ + head * block.padded;
    for (int64_t j = head; j < head + kTileRows; ++j) allowed_[j] = doubted_[j] ? largest : largest * growth;
    uint16_t fine[kChunks];
    const auto weigh_with = [&](float slack) {
      return weigh_heads(scores, block.count, block.padded, scale_, maxima_ + head, slack, exact_, squares_,
                         allowed_ + head, totals_ + head, variances_ + head, fine);
    };
    // Few blocks after the first need other maxima.
    if (block.first == 0) raise_maxima(block, head);
    if (!weigh_with(kSlack)) {
      raise_maxima(block, head);
      weigh_with(std::numeric_limits<float>::infinity());
    }
    const int64_t present = std::clamp<int64_t>(operands_.heads() - head, 0, kTileRows);
    for (int64_t chunk = 0; chunk < block.padded / kTileDepth; ++chunk) {
      fine[chunk] &= (1U << present) - 1;
      if (fine[chunk] != 0) sums |= 1U << (i / kTileRows * kChunks + chunk);
    }
    pack_weights(exact_, block.padded, fine, weights_ + i * block.padded, lacking_ + i * block.padded);
  }
  return sums;
}

// Raises the maxima of a tile's heads that are less than a score by more than kSlack.
void AmxAttention::raise_maxima(const Block& block, int64_t head) {
  float next[kTileRows];
  std::copy_n(maxima_ + head, kTileRows, next);
  find_largest(scores_ + head * block.padded, block.count, scale_, next);
  for (int64_t i = 0; i < kTileRows; ++i) {
    if (next[i] > maxima_[head + i] + kSlack) raise(head + i, next[i], block.first > 0);
  }
}

// Gives a head another maximum.
void AmxAttention::raise(int64_t head, float maximum, bool has_sums) {
  const float factor = std::exp(maxima_[head] - maximum);
  maxima_[head] = maximum;
  totals_[head] *= factor;
  variances_[head] *= factor * factor;
  if (!has_sums) return;
  for (int64_t column = 0; column < columns_; column += kTileRows) {
    simd().multiply(sums_of(head) + column * kTileRows, kTileRows, factor);
  }
}

float* AmxAttention::sums_of(int64_t head) const {
  return sums_ + head / kTileRows * kTileRows * columns_ + head % kTileRows * kTileRows;
}

void AmxAttention::write() {
  for (int64_t head = 0; head < operands_.heads(); ++head) {
    write_row(sums_of(head), columns_, 1 / totals_[head], row_);
    operands_.write(head, row_, {maxima_[head], totals_[head]});
  }
}

void AmxAttention::write_zeros() {
  std::fill_n(row_, columns_, at::BFloat16(0));
  for (int64_t head = 0; head < operands_.heads(); ++head) operands_.write(head, row_, {maxima_[head], totals_[head]});
}

}  // namespace opp
