// SPDX-License-Identifier: Apache-2.0
// platform_ascendc::PlatformAscendC over the table of chips.
#include "tiling/platform/platform_ascendc.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "platform.h"

namespace platform_ascendc {
namespace {

const cann_cpu::Soc& chip_of(const fe::PlatFormInfos* infos) {
  return infos == nullptr ? cann_cpu::soc() : infos->chip;
}

}  // namespace

uint32_t PlatformAscendC::GetCoreNum() const { return GetCoreNumAic(); }
uint32_t PlatformAscendC::GetCoreNumAic() const {
  return infos_ == nullptr ? cann_cpu::cores_of_thread().cube : infos_->cores.cube;
}
uint32_t PlatformAscendC::GetCoreNumAiv() const {
  return infos_ == nullptr ? cann_cpu::cores_of_thread().vector : infos_->cores.vector;
}

uint32_t PlatformAscendC::CalcTschBlockDim(uint32_t slice_num, uint32_t aic_core_num, uint32_t aiv_core_num) const {
  if (aic_core_num == 0 || aiv_core_num == 0 || aic_core_num > aiv_core_num) return slice_num;
  const uint32_t vectors = aiv_core_num / aic_core_num;
  return (slice_num + vectors - 1) / vectors;
}

uint32_t PlatformAscendC::GetCoreNumVector() const { return chip_of(infos_).separate_vector_cores; }

SocVersion PlatformAscendC::GetSocVersion() const {
  static const std::map<std::string, SocVersion> versions = {
      {"ascend910", SocVersion::ASCEND910},       {"ascend910b", SocVersion::ASCEND910B},
      {"ascend310p", SocVersion::ASCEND310P},     {"ascend310b", SocVersion::ASCEND310B},
      {"ascend910_93", SocVersion::ASCEND910_93}, {"ascend950", SocVersion::ASCEND950},
  };
  return versions.at(chip_of(infos_).family);
}

NpuArch PlatformAscendC::GetCurNpuArch() const { return static_cast<NpuArch>(chip_of(infos_).npu_arch); }

void PlatformAscendC::GetCoreMemSize(const CoreMemType& type, uint64_t& size) const {
  const cann_cpu::Architecture& core = chip_of(infos_).architecture();
  switch (type) {
    case CoreMemType::L0_A:
      size = core.l0a;
      return;
    case CoreMemType::L0_B:
      size = core.l0b;
      return;
    case CoreMemType::L0_C:
      size = core.l0c;
      return;
    case CoreMemType::L1:
      size = core.l1;
      return;
    case CoreMemType::L2:
      size = static_cast<uint64_t>(chip_of(infos_).l2_bytes);
      return;
    case CoreMemType::UB:
      size = core.unified_buffer - reserved_;
      return;
    case CoreMemType::BT:
      size = core.bias_table;
      return;
    case CoreMemType::FB:
      size = core.fixpipe_buffer;
      return;
    default:
      size = 0;
  }
}

void PlatformAscendC::ReserveLocalMemory(ReservedSize size) { reserved_ = (8 * 1024) << static_cast<uint32_t>(size); }

// Bytes in a cycle, between a core and what all cores share.
void PlatformAscendC::GetCoreMemBw(const CoreMemType& type, uint64_t& bandwidth) const {
  const cann_cpu::Soc& chip = chip_of(infos_);
  bandwidth = type == CoreMemType::L2 ? chip.l2_rate : type == CoreMemType::HBM ? chip.device_memory_rate : 0;
}

uint32_t PlatformAscendC::GetLibApiWorkSpaceSize() const { return chip_of(infos_).architecture().library_workspace; }

PlatformAscendC* PlatformAscendCManager::GetInstance() { return GetInstance(nullptr); }
PlatformAscendC* PlatformAscendCManager::GetInstance(const char* soc_version) {
  using namespace cann_cpu;
  struct Platform {
    explicit Platform(const Soc& chip) : infos(chip), instance(&infos) {}
    fe::PlatFormInfos infos;
    PlatformAscendC instance;
  };
  static std::mutex mutex;
  static std::map<const Soc*, Platform> platforms;
  const Soc& chip =
      soc_version == nullptr ? soc() : soc_named(soc_version, "PlatformAscendCManager::GetInstance", soc());
  const std::lock_guard lock(mutex);
  return &platforms.try_emplace(&chip, chip).first->second.instance;
}

}  // namespace platform_ascendc
