// SPDX-License-Identifier: Apache-2.0
// Index scores by dot products of pairs of bfloat16 (AVX512-BF16), which leave no products in memory.
#include "cpu/pairs.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "cann_cpu/cpu_capability.h"
#include "cpu/matmul.h"
#include "cpu/prefetch.h"
#include "cpu/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
// GCC 12 warns of values that its own header leaves undefined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace opp {

#if defined(__x86_64__)

namespace {

#define OPP_PAIRS __attribute__((target("avx512f,avx512bw,avx512bf16")))

constexpr int64_t kPanelVectors = kPanel / kLanes;

// Adds these heads' contributions to each row's sums. The heads are in a panel of kVectors vectors of columns. The last
// column may be padding.
template <int64_t kVectors>
OPP_PAIRS void add_panel(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* panel, const float* weights,
                         int64_t heads, int64_t depth, __m512 (&sums)[kPairRows]) {
  __m512 products[kPairRows][kVectors];
  for (auto& row : products) std::fill_n(row, kVectors, _mm512_setzero_ps());
  for (int64_t k = 0; k < depth; k += 2, panel += 2 * kLanes * kVectors) {
    __m512bh columns[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) columns[v] = (__m512bh)_mm512_loadu_si512(panel + 2 * kLanes * v);
    for (int64_t r = 0; r < kPairRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, a + r * a_stride + k, sizeof(pair));
      const auto row = (__m512bh)_mm512_set1_epi32(pair);
      for (int64_t v = 0; v < kVectors; ++v) products[r][v] = _mm512_dpbf16_ps(products[r][v], columns[v], row);
    }
  }
#pragma GCC unroll 4  // so that products stay in registers
  for (int64_t v = 0; v < kVectors; ++v) {
    const int64_t count = std::min(kLanes, heads - v * kLanes);
    const auto inside = static_cast<__mmask16>((1U << count) - 1);
    const __m512 weight = _mm512_loadu_ps(weights + v * kLanes);
    for (int64_t r = 0; r < kPairRows; ++r) {
      // The second operand is what is taken if one is NaN.
      const __m512 relu = _mm512_maskz_max_ps(inside, _mm512_setzero_ps(), products[r][v]);
      sums[r] = _mm512_fmadd_ps(relu, weight, sums[r]);
    }
  }
}

using AddPanel = decltype(&add_panel<1>);
constexpr AddPanel kAddPanel[kPanelVectors] = {add_panel<1>, add_panel<2>, add_panel<3>, add_panel<4>};

}  // namespace

bool has_pairs() {
  static const bool has =
      cann_cpu::cpu_capability() == cann_cpu::CpuCapability::kAvx512 && __builtin_cpu_supports("avx512bf16");
  return has;
}

OPP_PAIRS void weighted_relu_pairs(const at::BFloat16* a, int64_t a_stride, const at::BFloat16* b, const float* weights,
                                   float* scores, int64_t rows, int64_t heads, int64_t depth,
                                   const at::BFloat16* next) {
  for (int64_t row = 0; row < rows; row += kPairRows) {
    if (next != nullptr) {
      for (int64_t r = row; r < row + kPairRows; ++r) {
        prefetch(next + r * a_stride, depth * static_cast<int64_t>(sizeof(at::BFloat16)));
      }
    }
    __m512 sums[kPairRows] = {};
    for (int64_t head = 0; head < heads; head += kPanel) {
      const int64_t count = std::min(kPanel, heads - head);
      kAddPanel[(count - 1) / kLanes](a + row * a_stride, a_stride, b + head * depth, weights + head, count, depth,
                                      sums);
    }
    for (int64_t r = 0; r < kPairRows; ++r) scores[row + r] = _mm512_reduce_add_ps(sums[r]);
  }
}

#else

bool has_pairs() { return false; }

void weighted_relu_pairs(const at::BFloat16*, int64_t, const at::BFloat16*, const float*, float*, int64_t, int64_t,
                         int64_t, const at::BFloat16*) {
  TORCH_INTERNAL_ASSERT(false, "this processor has no dot products of pairs");
}

#endif

}  // namespace opp
