// SPDX-License-Identifier: Apache-2.0
// The level of vector instructions for CANN on the CPU and its kernels: the machine's best, or, for tests, the level
// that CANN_CPU_CAPABILITY names, as ATEN_CPU_CAPABILITY does for ATen.
#pragma once

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace cann_cpu {

enum class CpuCapability { kDefault, kAvx2, kAvx512 };

inline const char* name_of(CpuCapability capability) {
  constexpr std::array kNames = {"default", "avx2", "avx512"};
  return kNames[static_cast<size_t>(capability)];
}

inline CpuCapability best_cpu_capability() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return CpuCapability::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    return CpuCapability::kAvx2;
  }
#endif
  return CpuCapability::kDefault;
}

// Throws std::invalid_argument if the variable names a level that does not exist or that this machine lacks.
inline CpuCapability cpu_capability() {
  static const CpuCapability capability = [] {
    const CpuCapability best = best_cpu_capability();
    const char* variable = std::getenv("CANN_CPU_CAPABILITY");
    if (variable == nullptr || *variable == '\0') return best;
    std::string levels;
    for (const auto level : {CpuCapability::kDefault, CpuCapability::kAvx2, CpuCapability::kAvx512}) {
      if (level > best) break;
      if (std::string(variable) == name_of(level)) return level;
      levels += std::string(levels.empty() ? "" : ", ") + name_of(level);
    }
    throw std::invalid_argument("CANN_CPU_CAPABILITY is '" + std::string(variable) +
                                "', but this machine has: " + levels);
  }();
  return capability;
}

}  // namespace cann_cpu
