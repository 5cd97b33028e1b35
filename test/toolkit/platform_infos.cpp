// SPDX-License-Identifier: Apache-2.0
// Prints what fe::PlatFormInfos says of the chip that is named. The test compiles it for both ABIs of std::string.
#include <cstdint>
#include <iostream>
#include <string>

#include "platform/platform_info.h"

int main(int, char** arguments) {
  static_assert(sizeof(fe::PlatFormInfos) == 24, "programs allocate CANN's class");
  fe::PlatformInfoManager& manager = fe::PlatformInfoManager::Instance();
  fe::PlatFormInfos infos, copy;
  std::cout << (manager.GetRuntimePlatformInfosByDevice(0, infos) == 0);
  std::cout << (manager.InitRuntimePlatformInfos("Ascend610") == 0);
  std::cout << (manager.InitRuntimePlatformInfos(arguments[1]) == 0);
  std::cout << (manager.InitRuntimePlatformInfos("Ascend610") == 0);  // comes too late
  std::cout << (manager.GetRuntimePlatformInfosByDevice(0, infos) == 0);
  std::cout << (manager.GetRuntimePlatformInfosByDevice(1, copy, true) == 0) << infos.GetCoreNum();
  for (const std::string type : {"AiCore", "VectorCore", "MIX_AIV"}) {
    infos.SetCoreNumByCoreType(type);
    std::cout << ' ' << infos.GetCoreNum();
  }
  for (int type = 0; type <= static_cast<int>(fe::LocalMemType::RESERVED); ++type) {
    uint64_t size = 1, bandwidth = 1;
    copy.GetLocalMemSize(static_cast<fe::LocalMemType>(type), size);
    copy.GetLocalMemBw(static_cast<fe::LocalMemType>(type), bandwidth);
    std::cout << ' ' << size / 1024 << ' ' << bandwidth;
  }
  std::cout << '\n';
  for (int i = 2; arguments[i] != nullptr; i += 2) {
    std::string value = "untouched";
    const bool is_known = copy.GetPlatformResWithLock(arguments[i], arguments[i + 1], value);
    std::cout << is_known << ' ' << value << '\n';
  }
}
