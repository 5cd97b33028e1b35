// SPDX-License-Identifier: Apache-2.0
// Products of int8 matrices with exact sums. Below VNNI the usual instruction for int8 (vpmaddubsw) saturates, so AVX2
// multiplies pairs of int16 (vpmaddwd), and other machines multiply in float32 as many terms as it adds exactly.
#include <ATen/Parallel.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "cann_cpu/cpu_capability.h"
#include "product.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace cann_cpu;

namespace {

// -128 * -128 * 1024 is 2^24: up to there float32 holds every integer.
void write_float_sums(Out out, In a, In b) {
  constexpr int64_t kDepth = 1024, kWidth = 1024, kRows = 4096;
  const auto in_floats = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor factors = at::empty({kDepth * kWidth}, in_floats);
  by_steps(a.size(0), kRows, [&](int64_t row, int64_t rows) {
    by_steps(a.size(1), kDepth, [&](int64_t k, int64_t depth) {
      const at::Tensor left = a.narrow(0, row, rows).narrow(1, k, depth).to(at::kFloat);
      by_steps(b.size(1), kWidth, [&](int64_t column, int64_t width) {
        const at::Tensor memory = factors.narrow(0, 0, depth * width);
        const at::Tensor right = b.stride(0) == 1 ? memory.view({width, depth}).t() : memory.view({depth, width});
        right.copy_(b.narrow(0, k, depth).narrow(1, column, width));
        const at::Tensor sums = at::mm(left, right), part = out.narrow(0, row, rows).narrow(1, column, width);
        if (k == 0) {
          part.copy_(sums);
        } else {
          part.add_(sums.to(at::kInt));
        }
      });
    });
  });
}

#if defined(__x86_64__)

constexpr int64_t kTileWidth = 16, kPackedTiles = 4, kPackedWidth = kTileWidth * kPackedTiles, kPackedPairs = 64,
                  kPackedDepth = 2 * kPackedPairs;

// Columns of b that are multiplied at once, as int16: for each pair of rows the two elements of each column adjoin.
struct PackedColumns {
  alignas(64) int16_t elements[kPackedTiles][kPackedPairs][2 * kTileWidth];
};

[[gnu::target("avx2")]] __m256i as_int16(const int8_t* elements) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(elements)));
}
[[gnu::target("avx2")]] void store_int16(int16_t* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

// Two rows of 64 columns.
[[gnu::target("avx2")]] void pack_rows(const int8_t* even, const int8_t* odd, PackedColumns& packed, int64_t pair) {
  for (int64_t tile = 0; tile < kPackedTiles; ++tile) {
    const __m256i first = as_int16(even + tile * kTileWidth), second = as_int16(odd + tile * kTileWidth);
    const __m256i low = _mm256_unpacklo_epi16(first, second), high = _mm256_unpackhi_epi16(first, second);
    int16_t* to = packed.elements[tile][pair];
    store_int16(to, _mm256_permute2x128_si256(low, high, 0x20));
    store_int16(to + kTileWidth, _mm256_permute2x128_si256(low, high, 0x31));
  }
}

// Eight columns of 16 elements, each column's contiguous.
[[gnu::target("avx2")]] void pack_columns(const int8_t* columns, int64_t stride, int16_t* to) {
  __m256i v[8], w[8];
  for (int i = 0; i < 8; ++i) v[i] = as_int16(columns + i * stride);
  for (int i = 0; i < 8; i += 2) {
    w[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    w[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    v[i] = _mm256_unpacklo_epi64(w[i], w[i + 2]);
    v[i + 1] = _mm256_unpackhi_epi64(w[i], w[i + 2]);
    v[i + 2] = _mm256_unpacklo_epi64(w[i + 1], w[i + 3]);
    v[i + 3] = _mm256_unpackhi_epi64(w[i + 1], w[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    store_int16(to + i * 2 * kTileWidth, _mm256_permute2x128_si256(v[i], v[i + 4], 0x20));
    store_int16(to + (i + 4) * 2 * kTileWidth, _mm256_permute2x128_si256(v[i], v[i + 4], 0x31));
  }
}

struct Int8Matrix {
  const int8_t* data;
  int64_t row, column;  // strides; at least one is 1
};

// `depth` rows of `width` columns, with zeros up to the next 16 rows and 64 columns.
void pack_block(const Int8Matrix& b, int64_t depth, int64_t width, PackedColumns& packed) {
  int8_t padded[kPackedDepth * kPackedWidth];
  Int8Matrix whole = b;
  const bool by_rows = b.column == 1;
  if (width < kPackedWidth || depth % kTileWidth != 0) {
    std::memset(padded, 0, sizeof padded);
    whole = by_rows ? Int8Matrix{padded, kPackedWidth, 1} : Int8Matrix{padded, 1, kPackedDepth};
    const int64_t runs = by_rows ? depth : width, length = by_rows ? width : depth;
    for (int64_t i = 0; i < runs; ++i) {
      std::memcpy(padded + i * (by_rows ? kPackedWidth : kPackedDepth), b.data + i * (by_rows ? b.row : b.column),
                  length);
    }
  }
  if (by_rows) {
    for (int64_t i = 0; i < depth; i += 2) {
      pack_rows(whole.data + i * whole.row, whole.data + (i + 1) * whole.row, packed, i / 2);
    }
    return;
  }
  for (int64_t column = 0; column < kPackedWidth; column += 8) {
    for (int64_t i = 0; i < depth; i += kTileWidth) {
      pack_columns(whole.data + column * whole.column + i, whole.column,
                   packed.elements[column / kTileWidth][i / 2] + column % kTileWidth * 2);
    }
  }
}

// The sums of some rows of a, from `a` in pairs, and one tile.
template <int rows>
[[gnu::target("avx2")]] void multiply_pairs(const int16_t* a, int64_t stride, const int16_t* b, int64_t pairs,
                                            int32_t* sums) {
  __m256i left[rows], right[rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) left[r] = right[r] = _mm256_setzero_si256();
  for (int64_t pair = 0; pair < pairs; ++pair, b += 2 * kTileWidth) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + kTileWidth));
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      int32_t both;
      std::memcpy(&both, a + r * stride + 2 * pair, sizeof both);
      const __m256i factor = _mm256_set1_epi32(both);
      left[r] = _mm256_add_epi32(left[r], _mm256_madd_epi16(factor, first));
      right[r] = _mm256_add_epi32(right[r], _mm256_madd_epi16(factor, second));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    store_int16(reinterpret_cast<int16_t*>(sums + r * kTileWidth), left[r]);
    store_int16(reinterpret_cast<int16_t*>(sums + r * kTileWidth + 8), right[r]);
  }
}

template <int rows>
void add_pairs(const int16_t* a, int64_t stride, const int16_t* b, int64_t pairs, int32_t* out, int64_t row,
               int64_t width, bool accumulate) {
  alignas(64) int32_t sums[rows * kTileWidth];
  multiply_pairs<rows>(a, stride, b, pairs, sums);
  for (int r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      out[r * row + i] = accumulate ? out[r * row + i] + sums[r * kTileWidth + i] : sums[r * kTileWidth + i];
    }
  }
}

void write_paired_sums(Out out, In a, In b) {
  constexpr int64_t kRows = 6, kElements = 1 << 22;  // of a, converted at once
  const int64_t k = a.size(1), n = b.size(1), even = (k + 1) / 2 * 2;
  const Int8Matrix matrix{b.const_data_ptr<int8_t>(), b.stride(0), b.stride(1)};
  int32_t* const results = out.data_ptr<int32_t>();
  by_steps(a.size(0), std::max<int64_t>(kElements / even, kRows), [&](int64_t first, int64_t rows) {
    const at::Tensor pairs = at::zeros({rows, even}, at::TensorOptions().dtype(at::kShort));
    pairs.narrow(1, 0, k).copy_(a.narrow(0, first, rows));
    const int16_t* const left = pairs.const_data_ptr<int16_t>();
    at::parallel_for(0, (n + kPackedWidth - 1) / kPackedWidth, 1, [&](int64_t begin, int64_t end) {
      PackedColumns packed;
      for (int64_t column = begin * kPackedWidth; column < std::min(n, end * kPackedWidth); column += kPackedWidth) {
        by_steps(k, kPackedDepth, [&](int64_t from, int64_t depth) {
          const int64_t width = std::min(kPackedWidth, n - column);
          pack_block({matrix.data + from * matrix.row + column * matrix.column, matrix.row, matrix.column}, depth,
                     width, packed);
          for (int64_t row = 0; row < rows; row += kRows) {
            by_steps(width, kTileWidth, [&](int64_t lane, int64_t lanes) {
              const auto add = rows - row >= kRows ? add_pairs<kRows> : add_pairs<1>;
              const int64_t step = rows - row >= kRows ? kRows : 1;
              for (int64_t r = row; r < std::min(row + kRows, rows); r += step) {
                add(left + r * even + from, even, packed.elements[lane / kTileWidth][0], (depth + 1) / 2,
                    results + (first + r) * n + column + lane, n, lanes, from != 0);
              }
            });
          }
        });
      }
    });
  });
}

#endif

}  // namespace

at::Tensor cann_cpu::integer_product(In first, In second) {
  TORCH_CHECK(first.size(1) == second.size(0), "the columns of ", first.sizes(), " do not match the rows of ",
              second.sizes());
  if (first.numel() == 0 || second.numel() == 0) {
    return at::zeros({first.size(0), second.size(1)}, first.options().dtype(at::kInt));
  }
  const bool is_dense = second.stride(0) == 1 || second.stride(1) == 1;
  const at::Tensor b = is_dense ? second : second.contiguous();
#if defined(__x86_64__)
  if (cpu_capability() == CpuCapability::kAvx512 && at::cpu::is_avx512_vnni_supported()) return at::_int_mm(first, b);
#endif
  at::Tensor out = at::empty({first.size(0), second.size(1)}, first.options().dtype(at::kInt));
#if defined(__x86_64__)
  if (cpu_capability() != CpuCapability::kDefault) {
    write_paired_sums(out, first, b);
    return out;
  }
#endif
  write_float_sums(out, first, b);
  return out;
}
