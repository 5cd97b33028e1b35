// SPDX-License-Identifier: Apache-2.0
// platform_ascendc::PlatformAscendC: what the chip has that CANN_CPU_SOC names.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cann_cpu/export.h"

namespace fe {
class PlatFormInfos;
}

namespace platform_ascendc {

enum class CoreMemType { L0_A = 0, L0_B = 1, L0_C = 2, L1 = 3, L2 = 4, UB = 5, HBM = 6, FB = 7, BT = 8, RESERVED };
enum class SocVersion {
  ASCEND910 = 0,
  ASCEND910B,
  ASCEND310P,
  ASCEND310B,
  ASCEND910_93,
  ASCEND910_95,
  RESERVED_VERSION = 99999
};

class CANN_EXPORT PlatformAscendC {
 public:
  explicit PlatformAscendC(fe::PlatFormInfos* infos) : infos_(infos) {}

  uint32_t GetCoreNum() const;  // of those that a kernel with matrix and vector unit runs on
  uint32_t GetCoreNumAic() const;
  uint32_t GetCoreNumAiv() const;
  uint32_t GetCoreNumVector() const { return 0; }  // vector cores beside the AI cores, which these chips do not have
  // How many AI cores run a kernel of so many blocks of either unit.
  uint32_t CalcTschBlockDim(uint32_t slice_num, uint32_t aic_core_num, uint32_t aiv_core_num) const;
  SocVersion GetSocVersion() const;
  void GetCoreMemSize(const CoreMemType& type, uint64_t& size) const;
  void GetCoreMemBw(const CoreMemType& type, uint64_t& bandwidth) const;
  uint32_t GetLibApiWorkSpaceSize() const;
  uint64_t GetResCubeGroupWorkSpaceSize() const { return 0; }
  uint64_t GetResGroupBarrierWorkSpaceSize() const { return 0; }
  fe::PlatFormInfos* GetPlatFormInfo() const { return infos_; }

 private:
  fe::PlatFormInfos* infos_;
};

// The platform where there is no context; it exists once in a process. The first call says its chip, the process's
// unless it names another.
class CANN_EXPORT PlatformAscendCManager {
 public:
  static PlatformAscendC* GetInstance();
  static PlatformAscendC* GetInstance(const char* soc_version);
};

}  // namespace platform_ascendc
