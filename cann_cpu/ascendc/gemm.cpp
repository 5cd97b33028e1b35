// SPDX-License-Identifier: Apache-2.0
// The micro-kernels of gemm_level.h at each level of vector instructions, and which of them a product takes.
#include "ascendc/gemm.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cann_cpu/cpu_capability.h"
#include "prefetch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
// GCC 12 warns of values that its own header leaves undefined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace AscendC::cpu {

constinit thread_local TilePrefetch tile_prefetch;

namespace {

// Memory for factors as they are multiplied, of this thread; what was in it is lost.
int32_t* packed_words(int which, int64_t words) {
  thread_local std::vector<int32_t> memory[2];
  constexpr int64_t kLine = 64 / sizeof(int32_t);
  auto& of = memory[which];
  if (static_cast<int64_t>(of.size()) < words + kLine) of.resize(static_cast<size_t>(words + kLine));
  return of.data() + (kLine - reinterpret_cast<uintptr_t>(of.data()) / sizeof(int32_t) % kLine) % kLine;
}

#define ASCENDC_ANY 0
#define ASCENDC_AVX2 1
#define ASCENDC_AVX512 2
#define ASCENDC_AVX512_VNNI 3
#define ASCENDC_AVX512_BF16 4
#define ASCENDC_AVX512_AMX 5

namespace any {
#define ASCENDC_LEVEL ASCENDC_ANY
#include "gemm_level.h"
}  // namespace any

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
namespace avx2 {
#undef ASCENDC_LEVEL
#define ASCENDC_LEVEL ASCENDC_AVX2
#include "gemm_level.h"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,fma,f16c")
namespace avx512 {
#undef ASCENDC_LEVEL
#define ASCENDC_LEVEL ASCENDC_AVX512
#include "gemm_level.h"
}  // namespace avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vnni,fma,f16c")
namespace avx512_vnni {
#undef ASCENDC_LEVEL
#define ASCENDC_LEVEL ASCENDC_AVX512_VNNI
#include "gemm_level.h"
}  // namespace avx512_vnni
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512bf16,fma,f16c")
namespace avx512_bf16 {
#undef ASCENDC_LEVEL
#define ASCENDC_LEVEL ASCENDC_AVX512_BF16
#include "gemm_level.h"
}  // namespace avx512_bf16
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vnni,avx512bf16,fma,f16c,amx-tile,amx-bf16,amx-int8")
namespace avx512_amx {
#undef ASCENDC_LEVEL
#define ASCENDC_LEVEL ASCENDC_AVX512_AMX
#include "gemm_level.h"
}  // namespace avx512_amx
#pragma GCC pop_options

// Whether this process may use tiles, which Linux grants on request, and no lower level of instructions is asked for.
bool has_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  const char* level = std::getenv("CANN_CPU_CAPABILITY");
  return (level == nullptr || *level == '\0') && __builtin_cpu_supports("amx-tile") &&
         __builtin_cpu_supports("amx-bf16") && __builtin_cpu_supports("amx-int8") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

using Multiply = void (*)(const Product& product);
using TurnLines = void (*)(std::byte* to, const std::byte* from);
using TurnAcross = void (*)(std::byte* to, const std::byte* from, int64_t line);

// The functions of a level.
struct Level {
  std::array<Multiply, 4> multiply;  // by Factors
  TurnLines turn_lines;
  std::array<TurnAcross, 2> turn_across;  // of 1 and 2 bytes
};

Level level() {
#if defined(__x86_64__)
  using cann_cpu::CpuCapability;
  const CpuCapability capability = cann_cpu::cpu_capability();
  if (capability == CpuCapability::kAvx2) {
    return {{avx2::multiply<avx2::OfHalf>, avx2::multiply<avx2::OfBfloat16>, avx2::multiply<avx2::OfFloat>,
             avx2::multiply<avx2::OfInt8>},
            avx2::turn_lines,
            {avx2::turn_across<1>, avx2::turn_across<2>}};
  }
  if (capability == CpuCapability::kAvx512) {
    Level best = {{avx512::multiply<avx512::OfHalf>, avx512::multiply<avx512::OfBfloat16>,
                   avx512::multiply<avx512::OfFloat>, avx512::multiply<avx512::OfInt8>},
                  avx512::turn_lines,
                  {avx512::turn_across<1>, avx512::turn_across<2>}};
    Multiply& of_bfloat16 = best.multiply[static_cast<size_t>(Factors::Bfloat16)];
    Multiply& of_int8 = best.multiply[static_cast<size_t>(Factors::Int8)];
    if (__builtin_cpu_supports("avx512bf16")) of_bfloat16 = avx512_bf16::multiply<avx512_bf16::OfBfloat16Pairs>;
    if (__builtin_cpu_supports("avx512vnni")) of_int8 = avx512_vnni::multiply<avx512_vnni::OfInt8Quads>;
    if (has_tiles()) {
      of_bfloat16 = avx512_amx::multiply<avx512_amx::OfBfloat16Pairs>;
      of_int8 = avx512_amx::multiply<avx512_amx::OfInt8Quads>;
    }
    return best;
  }
#endif
  return {{any::multiply<any::OfHalf>, any::multiply<any::OfBfloat16>, any::multiply<any::OfFloat>,
           any::multiply<any::OfInt8>},
          any::turn_lines,
          {any::turn_across<1>, any::turn_across<2>}};
}

const Level& of_processor() {
  static const Level best = level();
  return best;
}

}  // namespace

void multiply(Factors factors, const Product& product) {
#if defined(__x86_64__)
  static const bool fused = cann_cpu::cpu_capability() >= cann_cpu::CpuCapability::kAvx2;
  if (factors == Factors::Float && !fused && product.rounding == Hf32::Off) {
    return any::multiply<any::OfFloatFused>(product);
  }
#endif
  of_processor().multiply[static_cast<size_t>(factors)](product);
}

void turn_lines(std::byte* to, const std::byte* from) { of_processor().turn_lines(to, from); }

void turn_across(uint32_t itemsize, std::byte* to, const std::byte* from, int64_t line) {
  of_processor().turn_across[itemsize - 1](to, from, line);
}

}  // namespace AscendC::cpu
