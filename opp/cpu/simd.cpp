// SPDX-License-Identifier: Apache-2.0
// Compiles the loops once for each level of vector instructions, and chooses one of them at run time.
#include "cpu/simd.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "cann_cpu/cpu_capability.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Functions that take or return vectors are inlined everywhere, so how they would pass them does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#define OPP_SIMD_LEVEL baseline
#define OPP_SIMD_REGISTER 16
#include "cpu/simd_lanes.h"
#include "cpu/simd_loops.h"
#undef OPP_SIMD_REGISTER
#undef OPP_SIMD_LEVEL

#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx2")
#define OPP_SIMD_LEVEL avx2
#define OPP_SIMD_REGISTER 32
#include "cpu/simd_lanes.h"
#include "cpu/simd_loops.h"
#undef OPP_SIMD_REGISTER
#undef OPP_SIMD_LEVEL
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
#define OPP_SIMD_LEVEL avx512
#define OPP_SIMD_REGISTER 64
#include "cpu/simd_lanes.h"
#include "cpu/simd_loops.h"
#undef OPP_SIMD_REGISTER
#undef OPP_SIMD_LEVEL
#pragma GCC pop_options

#endif

namespace opp {
namespace {

const Simd& choose() {
  static const baseline::Loops of_baseline;
#if defined(__x86_64__)
  static const avx2::Loops of_avx2;
  static const avx512::Loops of_avx512;
  switch (cann_cpu::cpu_capability()) {
    case cann_cpu::CpuCapability::kAvx512:
      return of_avx512;
    case cann_cpu::CpuCapability::kAvx2:
      return of_avx2;
    case cann_cpu::CpuCapability::kDefault:
      break;
  }
#endif
  return of_baseline;
}

}  // namespace

const Simd& simd() {
  static const Simd& chosen = choose();
  return chosen;
}

}  // namespace opp
