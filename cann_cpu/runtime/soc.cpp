// SPDX-License-Identifier: Apache-2.0
// The table of chips. Cores are as AscendNPU-IR (Apache-2.0) has them in NPUTargetSpec.td; L2 is as CANN's
// platform_config is quoted in public repositories, but for Ascend910_9362, _9372, _9381, _9391 and _9392: of these no
// quotation was found, and they have that of _9382.
#include "cann_cpu/soc.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "acl/acl_base.h"

namespace cann_cpu {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr Soc kSocs[] = {
    {"Ascend910B3", "ascend910b", 20, 40, 192 * kMiB},      {"Ascend910B1", "ascend910b", 24, 48, 192 * kMiB},
    {"Ascend910B2", "ascend910b", 24, 48, 192 * kMiB},      {"Ascend910B4", "ascend910b", 20, 40, 96 * kMiB},
    {"Ascend910_9391", "ascend910_93", 24, 48, 192 * kMiB}, {"Ascend910_9392", "ascend910_93", 24, 48, 192 * kMiB},
    {"Ascend910_9381", "ascend910_93", 24, 48, 192 * kMiB}, {"Ascend910_9382", "ascend910_93", 24, 48, 192 * kMiB},
    {"Ascend910_9372", "ascend910_93", 20, 40, 192 * kMiB}, {"Ascend910_9362", "ascend910_93", 20, 40, 192 * kMiB},
};

}  // namespace

const Soc* find_soc(const char* name) {
  for (const Soc& each : kSocs) {
    if (std::strcmp(each.name, name) == 0) return &each;
  }
  return nullptr;
}

const Soc& soc() {
  static const Soc& chosen = []() -> const Soc& {
    const char* name = std::getenv("CANN_CPU_SOC");
    if (name == nullptr || *name == '\0') return kSocs[0];
    if (const Soc* found = find_soc(name)) return *found;
    std::fprintf(stderr, "cann_cpu: CANN_CPU_SOC=%s is unknown; it is %s. There are", name, kSocs[0].name);
    for (const Soc& each : kSocs) std::fprintf(stderr, " %s", each.name);
    std::fputc('\n', stderr);
    return kSocs[0];
  }();
  return chosen;
}

}  // namespace cann_cpu

// Of libruntime: the name of the chip. Scripts ask for it to find what is known of it.
extern "C" CANN_EXPORT int32_t rtGetSocVersion(char* version, uint32_t size) {
  const char* name = cann_cpu::soc().name;
  if (version == nullptr || std::strlen(name) >= size) return ACL_ERROR_RT_PARAM_INVALID;
  std::strcpy(version, name);
  return ACL_SUCCESS;
}
