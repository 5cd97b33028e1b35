// SPDX-License-Identifier: Apache-2.0
// platform_ascendc::PlatformAscendC: what the chip has that CANN_CPU_SOC names.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cann_cpu/export.h"
#include "tiling/platform/platform_infos.h"

// Architectures of AI cores, by the number that kernels know as __NPU_ARCH__.
// Tiling functions name the last two. No chip here has them.
enum class NpuArch : uint32_t {
  DAV_1001 = 1001,
  DAV_2002 = 2002,
  DAV_2201 = 2201,
  DAV_3002 = 3002,
  DAV_3510 = 3510,
  DAV_5102 = 5102,
  DAV_RESV = 0xFFFF,
};

namespace platform_ascendc {

enum class CoreMemType { L0_A = 0, L0_B = 1, L0_C = 2, L1 = 3, L2 = 4, UB = 5, HBM = 6, FB = 7, BT = 8, RESERVED };
enum class SocVersion {
  ASCEND910 = 0,
  ASCEND910B,
  ASCEND310P,
  ASCEND310B,
  ASCEND910_93,
  ASCEND950,
  ASCEND910_95 = ASCEND950,  // its name until CANN 8.5
  RESERVED_VERSION = 99999
};

enum class ReservedSize : uint8_t { RESERVED_SIZE_8K, RESERVED_SIZE_16K, RESERVED_SIZE_32K };

class CANN_EXPORT PlatformAscendC {
 public:
  explicit PlatformAscendC(fe::PlatFormInfos* infos) : infos_(infos) {}

  uint32_t GetCoreNum() const;  // of those that a kernel with matrix and vector unit runs on
  uint32_t GetCoreNumAic() const;
  uint32_t GetCoreNumAiv() const;
  uint32_t GetCoreNumVector() const;  // vector cores beside the AI cores, of Ascend310P
  // How many AI cores run a kernel of so many blocks of either unit.
  uint32_t CalcTschBlockDim(uint32_t slice_num, uint32_t aic_core_num, uint32_t aiv_core_num) const;
  uint32_t CalcTschNumBlocks(uint32_t slice_num, uint32_t aic_core_num, uint32_t aiv_core_num) const {
    return CalcTschBlockDim(slice_num, aic_core_num, aiv_core_num);
  }
  SocVersion GetSocVersion() const;
  NpuArch GetCurNpuArch() const;
  void GetCoreMemSize(const CoreMemType& type, uint64_t& size) const;
  void ReserveLocalMemory(ReservedSize size);  // of the unified buffer: GetCoreMemSize gives what is left
  void GetCoreMemBw(const CoreMemType& type, uint64_t& bandwidth) const;
  uint32_t GetLibApiWorkSpaceSize() const;
  // The sizes for the queues of cube cores in groups, and for a GroupBarrier; the greatest number on chips without
  // them.
  uint32_t GetResCubeGroupWorkSpaceSize() const { return GetCurNpuArch() == NpuArch::DAV_2201 ? 1u << 20 : ~0u; }
  uint32_t GetResGroupBarrierWorkSpaceSize() const { return GetResCubeGroupWorkSpaceSize(); }
  fe::PlatFormInfos* GetPlatFormInfo() const { return infos_; }

 private:
  fe::PlatFormInfos* infos_;
  uint32_t reserved_ = 0;
};

// The platform where there is no context: that of the process's chip, or of the one that the call names.
class CANN_EXPORT PlatformAscendCManager {
 public:
  static PlatformAscendC* GetInstance();
  static PlatformAscendC* GetInstance(const char* soc_version);
};

}  // namespace platform_ascendc
