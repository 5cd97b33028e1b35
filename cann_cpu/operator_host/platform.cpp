// SPDX-License-Identifier: Apache-2.0
// platform_ascendc::PlatformAscendC over the table of chips.
#include "tiling/platform/platform_ascendc.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "platform.h"

namespace platform_ascendc {
namespace {

const cann_cpu::Soc& chip_of(const fe::PlatFormInfos* infos) {
  return infos == nullptr ? cann_cpu::soc() : infos->chip;
}

}  // namespace

uint32_t PlatformAscendC::GetCoreNum() const { return chip_of(infos_).cube_cores; }
uint32_t PlatformAscendC::GetCoreNumAic() const { return chip_of(infos_).cube_cores; }
uint32_t PlatformAscendC::GetCoreNumAiv() const { return chip_of(infos_).vector_cores; }

uint32_t PlatformAscendC::CalcTschBlockDim(uint32_t slice_num, uint32_t aic_core_num, uint32_t aiv_core_num) const {
  if (aic_core_num == 0 || aiv_core_num == 0 || aic_core_num > aiv_core_num) return slice_num;
  const uint32_t vectors = aiv_core_num / aic_core_num;
  return (slice_num + vectors - 1) / vectors;
}

SocVersion PlatformAscendC::GetSocVersion() const {
  return std::string(chip_of(infos_).family) == "ascend910_93" ? SocVersion::ASCEND910_93 : SocVersion::ASCEND910B;
}

void PlatformAscendC::GetCoreMemSize(const CoreMemType& type, uint64_t& size) const {
  constexpr uint64_t kKiB = 1024;
  switch (type) {
    case CoreMemType::L0_A:
    case CoreMemType::L0_B:
      size = 64 * kKiB;
      return;
    case CoreMemType::L0_C:
      size = 128 * kKiB;
      return;
    case CoreMemType::L1:
      size = 512 * kKiB;
      return;
    case CoreMemType::L2:
      size = static_cast<uint64_t>(chip_of(infos_).l2_bytes);
      return;
    case CoreMemType::UB:
      size = 192 * kKiB;
      return;
    case CoreMemType::BT:
      size = kKiB;
      return;
    default:
      size = 0;
  }
}

// Bytes in a cycle, between a core and what all cores share.
void PlatformAscendC::GetCoreMemBw(const CoreMemType& type, uint64_t& bandwidth) const {
  bandwidth = type == CoreMemType::L2 ? 110 : type == CoreMemType::HBM ? 32 : 0;
}

uint32_t PlatformAscendC::GetLibApiWorkSpaceSize() const { return 16 * 1024 * 1024; }

PlatformAscendC* PlatformAscendCManager::GetInstance() { return GetInstance(nullptr); }
PlatformAscendC* PlatformAscendCManager::GetInstance(const char* soc_version) {
  using namespace cann_cpu;
  static fe::PlatFormInfos infos{
      soc_version == nullptr ? soc() : soc_named(soc_version, "PlatformAscendCManager::GetInstance", soc())};
  static PlatformAscendC instance(&infos);
  return &instance;
}

}  // namespace platform_ascendc
