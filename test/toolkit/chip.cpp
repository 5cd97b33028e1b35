// SPDX-License-Identifier: Apache-2.0
// Prints what the platform says of a chip, that of the process or of the name that is given.
#include <cstdio>
#include <initializer_list>

#include "tiling/platform/platform_ascendc.h"

int main(int count, char** names) {
  using namespace platform_ascendc;
  const PlatformAscendC& chip = *PlatformAscendCManager::GetInstance(count > 1 ? names[1] : nullptr);
  std::printf("%d %u %u", static_cast<int>(chip.GetSocVersion()), chip.GetCoreNumAic(), chip.GetCoreNumAiv());
  for (const CoreMemType type :
       {CoreMemType::L2, CoreMemType::UB, CoreMemType::L1, CoreMemType::L0_A, CoreMemType::L0_B, CoreMemType::L0_C}) {
    uint64_t bytes = 0;
    chip.GetCoreMemSize(type, bytes);
    std::printf(" %llu", static_cast<unsigned long long>(bytes / 1024));
  }
  std::puts("");
}
