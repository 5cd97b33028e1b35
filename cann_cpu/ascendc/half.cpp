// SPDX-License-Identifier: Apache-2.0
// Rows of half and bfloat16_t to and from float, rounded to nearest even, with the CPU's conversions where it has them.
#include "ascendc/half.h"

#include "ascendc/instruction.h"
#include "cann_cpu/cpu_capability.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace AscendC::cpu {
namespace {

#if defined(__aarch64__)
using Number [[gnu::may_alias]] = __fp16;  // what the CPU converts
#else
using Number = half;
#endif

void widen_loop(const half* from, float* to, uint32_t count) {
  const Number* numbers = reinterpret_cast<const Number*>(from);
  for (uint32_t i = 0; i < count; ++i) to[i] = numbers[i];
}

void narrow_loop(const float* from, half* to, uint32_t count) {
  Number* numbers = reinterpret_cast<Number*>(to);
  for (uint32_t i = 0; i < count; ++i) numbers[i] = from[i];
}

#if defined(__x86_64__)
[[gnu::target("avx,f16c")]] void widen_f16c(const half* from, float* to, uint32_t count) {
  uint32_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(bits));
  }
  widen_loop(from + i, to + i, count - i);
}

[[gnu::target("avx,f16c")]] void narrow_f16c(const float* from, half* to, uint32_t count) {
  uint32_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bits);
  }
  narrow_loop(from + i, to + i, count - i);
}

bool has_f16c() {
  static const bool has = cann_cpu::cpu_capability() >= cann_cpu::CpuCapability::kAvx2;
  return has;
}

void widen_halves(const half* from, float* to, uint32_t count) {
  (has_f16c() ? widen_f16c : widen_loop)(from, to, count);
}

void narrow_halves(const float* from, half* to, uint32_t count) {
  (has_f16c() ? narrow_f16c : narrow_loop)(from, to, count);
}
#else
const auto widen_halves = widen_loop;
const auto narrow_halves = narrow_loop;
#endif

}  // namespace

void widen(const half* from, float* to, uint32_t count) { widen_halves(from, to, count); }
void narrow(const float* from, half* to, uint32_t count) { narrow_halves(from, to, count); }

void widen(const bfloat16_t* from, float* to, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) to[i] = from[i];
}

void narrow(const float* from, bfloat16_t* to, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    to[i].bits = static_cast<uint16_t>(nan ? (bits >> 16 & 0x8000) | 0x7fc0 : rounded);
  }
}

}  // namespace AscendC::cpu
