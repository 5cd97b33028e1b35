// SPDX-License-Identifier: Apache-2.0
// Prints what the platform says of chips: of those that are named, or of the process's.
#include <cstdio>
#include <initializer_list>

#include "tiling/platform/platform_ascendc.h"

namespace {

using namespace platform_ascendc;

void print(PlatformAscendC chip) {
  const auto size_of = [&](CoreMemType type) {
    uint64_t bytes = 0;
    chip.GetCoreMemSize(type, bytes);
    return static_cast<unsigned long long>(bytes);
  };
  std::printf("%d %u %u %u %u", static_cast<int>(chip.GetSocVersion()), static_cast<uint32_t>(chip.GetCurNpuArch()),
              chip.GetCoreNumAic(), chip.GetCoreNumAiv(), chip.GetCoreNumVector());
  for (const CoreMemType type : {CoreMemType::L2, CoreMemType::UB, CoreMemType::L1, CoreMemType::L0_A,
                                 CoreMemType::L0_B, CoreMemType::L0_C, CoreMemType::BT, CoreMemType::FB}) {
    std::printf(" %llu", size_of(type) / 1024);
  }
  uint64_t l2 = 0, memory = 0;
  chip.GetCoreMemBw(CoreMemType::L2, l2);
  chip.GetCoreMemBw(CoreMemType::HBM, memory);
  std::printf(" %llu %llu %u %u %u", static_cast<unsigned long long>(l2), static_cast<unsigned long long>(memory),
              chip.GetLibApiWorkSpaceSize() >> 20, chip.GetResCubeGroupWorkSpaceSize() >> 20,
              chip.GetResGroupBarrierWorkSpaceSize() >> 20);
  chip.ReserveLocalMemory(ReservedSize::RESERVED_SIZE_16K);
  std::printf(" %llu\n", size_of(CoreMemType::UB) / 1024);
}

}  // namespace

int main(int count, char** names) {
  if (count == 1) print(*PlatformAscendCManager::GetInstance());
  for (int i = 1; i < count; ++i) print(*PlatformAscendCManager::GetInstance(names[i]));
}
