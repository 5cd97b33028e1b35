// SPDX-License-Identifier: Apache-2.0
// Tiles of rows and columns whose sums stay in registers; each instruction set has its own width of them.
#include "ascendc/gemm.h"

#include <cmath>

#include "cann_cpu/cpu_capability.h"

namespace AscendC::cpu {
namespace {

template <class Sum, int lanes>
struct VectorOf {
  using Type [[gnu::vector_size(lanes * sizeof(Sum)), gnu::aligned(sizeof(Sum)), gnu::may_alias]] = Sum;
};

// A column tile of b with consecutive rows.
template <class Sum>
struct Tile {
  const StripedMatrix<Sum>& c;
  const Sum* a;  // rows of `row_a`
  int64_t row_a;
  const Sum* b;
  int64_t column;  // the first, of c
  int64_t k;
  bool accumulate;
};

template <class Sum, int lanes, int vectors, int rows>
[[gnu::always_inline]] inline void multiply_rows(const Tile<Sum>& tile, int64_t first) {
  using Vector = typename VectorOf<Sum, lanes>::Type;
  Vector sums[rows][vectors];
  const auto at = [&](int r, int v) {
    const int64_t column = tile.column + v * lanes;
    return reinterpret_cast<Vector*>(tile.c.data + (first + r) * tile.c.row + column / kStripe * tile.c.stripe +
                                     column % kStripe);
  };
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[r][v] = tile.accumulate ? *at(r, v) : Vector{};
  }
  const Sum* a = tile.a + first * tile.row_a;
  const auto* b = reinterpret_cast<const Vector*>(tile.b);
  for (int64_t p = 0; p < tile.k; ++p, b += vectors) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Sum factor = a[r * tile.row_a + p];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] += factor * b[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) *at(r, v) = sums[r][v];
  }
}

template <class Sum, int lanes, int vectors, int rows>
[[gnu::always_inline]] inline void multiply_tile(const Tile<Sum>& tile, int64_t m) {
  int64_t i = 0;
  for (; i + rows <= m; i += rows) multiply_rows<Sum, lanes, vectors, rows>(tile, i);
  for (; i < m; ++i) multiply_rows<Sum, lanes, vectors, 1>(tile, i);
}

template <class Sum>
using MultiplyTile = void (*)(const Tile<Sum>& tile, int64_t m);

template <class Sum>
struct Kernel {
  int64_t columns;
  MultiplyTile<Sum> wide;    // a tile of as many columns
  MultiplyTile<Sum> stripe;  // of one stripe
};

template <class Sum>
void sse(const Tile<Sum>& tile, int64_t m) {
  multiply_tile<Sum, 4, 4, 2>(tile, m);
}

#if defined(__x86_64__)
template <class Sum>
[[gnu::target("avx2,fma")]] void avx2(const Tile<Sum>& tile, int64_t m) {
  multiply_tile<Sum, 8, 2, 6>(tile, m);
}
template <class Sum>
[[gnu::target("avx512f")]] void avx512(const Tile<Sum>& tile, int64_t m) {
  multiply_tile<Sum, 16, 2, 12>(tile, m);
}
template <class Sum>
[[gnu::target("avx512f")]] void avx512_stripe(const Tile<Sum>& tile, int64_t m) {
  multiply_tile<Sum, 16, 1, 12>(tile, m);
}
#endif

template <class Sum>
const Kernel<Sum>& kernel() {
#if defined(__x86_64__)
  static constexpr Kernel<Sum> kKernels[] = {
      {kStripe, sse, sse}, {kStripe, avx2, avx2}, {2 * kStripe, avx512, avx512_stripe}};
  return kKernels[static_cast<size_t>(cann_cpu::cpu_capability())];
#else
  static constexpr Kernel<Sum> kSse = {kStripe, sse, sse};
  return kSse;
#endif
}

template <class Sum>
void multiply_by(const Kernel<Sum>& kernel, const StripedMatrix<Sum>& c, const Sum* a, const Sum* b, int64_t m,
                 int64_t n, int64_t k, bool accumulate) {
  constexpr int64_t kDepth = 256;  // of a column tile that stays in the first cache
  const int64_t width = whole_stripes(n);
  thread_local std::vector<Sum> packed(kDepth * 2 * kStripe);
  for (int64_t p = 0; p < k || p == 0; p += kDepth) {
    const int64_t depth = std::min(kDepth, k - p);
    for (int64_t column = 0; column < width;) {
      const bool wide = column + kernel.columns <= width;
      const int64_t columns = wide ? kernel.columns : kStripe;
      for (int64_t i = 0; i < depth; ++i) {
        std::copy_n(b + (p + i) * width + column, columns, packed.data() + i * columns);
      }
      (wide ? kernel.wide : kernel.stripe)({c, a + p, k, packed.data(), column, depth, accumulate || p != 0}, m);
      column += columns;
    }
  }
}

// Where products are rounded and the machine has no fused instruction.
void multiply_fused(const StripedMatrix<float>& c, const float* a, const float* b, int64_t m, int64_t n, int64_t k,
                    bool accumulate) {
  const int64_t width = whole_stripes(n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      float& element = c.data[i * c.row + j / kStripe * c.stripe + j % kStripe];
      float sum = accumulate ? element : 0;
      for (int64_t p = 0; p < k; ++p) sum = std::fma(a[i * k + p], b[p * width + j], sum);
      element = sum;
    }
  }
}

}  // namespace

void multiply(const StripedMatrix<float>& c, const float* a, const float* b, int64_t m, int64_t n, int64_t k,
              bool accumulate, bool exact) {
#if defined(__x86_64__)
  const bool fused = cann_cpu::cpu_capability() >= cann_cpu::CpuCapability::kAvx2;
#else
  constexpr bool fused = true;
#endif
  if (!exact && !fused) return multiply_fused(c, a, b, m, n, k, accumulate);
  multiply_by(kernel<float>(), c, a, b, m, n, k, accumulate);
}

void multiply(const StripedMatrix<int32_t>& c, const int32_t* a, const int32_t* b, int64_t m, int64_t n, int64_t k,
              bool accumulate, bool /*exact*/) {
  multiply_by(kernel<int32_t>(), c, a, b, m, n, k, accumulate);
}

}  // namespace AscendC::cpu
