// SPDX-License-Identifier: Apache-2.0
// The table of chips. Cores are as AscendNPU-IR (Apache-2.0) has them in NPUTargetSpec.td; L2 and clocks as CANN's
// platform_config has them (the runtime's src/platform/platform_config), but for Ascend910_9372, _9381 and _9392, of
// which none was found: they have L2 of _9382, and clocks by the published performance of halves (376 TFLOPS with the
// vector cores are 24 cores at 1800 MHz). Device memory: 1.6 TB/s for 64 GB by the guide of asc-devkit; that chips with
// 32 GB have half of it is assumed.
#include "cann_cpu/soc.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cann_cpu {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr Soc kSocs[] = {
    {"Ascend910B3", "ascend910b", 20, 40, 192 * kMiB, 1800, 1600},
    {"Ascend910B1", "ascend910b", 24, 48, 192 * kMiB, 1850, 1600},
    {"Ascend910B2", "ascend910b", 24, 48, 192 * kMiB, 1800, 1600},
    {"Ascend910B4", "ascend910b", 20, 40, 96 * kMiB, 1500, 800},
    {"Ascend910_9391", "ascend910_93", 24, 48, 192 * kMiB, 1850, 1600},
    {"Ascend910_9392", "ascend910_93", 24, 48, 192 * kMiB, 1850, 1600},
    {"Ascend910_9381", "ascend910_93", 24, 48, 192 * kMiB, 1800, 1600},
    {"Ascend910_9382", "ascend910_93", 24, 48, 192 * kMiB, 1800, 1600},
    {"Ascend910_9372", "ascend910_93", 20, 40, 192 * kMiB, 1800, 1600},
    {"Ascend910_9362", "ascend910_93", 20, 40, 168 * kMiB, 1500, 800},
};

}  // namespace

const Soc* find_soc(const char* name) {
  for (const Soc& each : kSocs) {
    if (std::strcmp(each.name, name) == 0) return &each;
  }
  return nullptr;
}

const Soc& soc_named(const char* name, const char* who, const Soc& otherwise) {
  if (const Soc* found = find_soc(name)) return *found;
  std::fprintf(stderr, "cann_cpu: %s names %s, which is unknown; it is %s. There are", who, name, otherwise.name);
  for (const Soc& each : kSocs) std::fprintf(stderr, " %s", each.name);
  std::fputc('\n', stderr);
  return otherwise;
}

const Soc& soc() {
  static const Soc& chosen = []() -> const Soc& {
    const char* name = std::getenv("CANN_CPU_SOC");
    if (name == nullptr || *name == '\0') return kSocs[0];
    return soc_named(name, "CANN_CPU_SOC", kSocs[0]);
  }();
  return chosen;
}

}  // namespace cann_cpu
