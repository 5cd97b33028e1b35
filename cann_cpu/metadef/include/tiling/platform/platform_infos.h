// SPDX-License-Identifier: Apache-2.0
// fe::PlatFormInfos and fe::PlatformInfoManager: what CANN's copies of PlatformAscendC in programs ask for the chip.
// Programs with either ABI of std::string call them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cann_cpu/export.h"

namespace fe {

enum class LocalMemType { L0_A = 0, L0_B = 1, L0_C = 2, L1 = 3, L2 = 4, UB = 5, HBM = 6, RESERVED };

class PlatFormInfosImpl;

// Programs allocate it and destroy it: its members are those of CANN's class.
class CANN_EXPORT PlatFormInfos {
 public:
  PlatFormInfos() = default;
  PlatFormInfos(uint32_t core_num, std::shared_ptr<PlatFormInfosImpl> chip)
      : core_num_(core_num), chip_(std::move(chip)) {}

  uint32_t GetCoreNum() const;
  // Makes GetCoreNum() return the number of these cores: "AiCore", "VectorCore", "MIX_AIV" and others.
  void SetCoreNumByCoreType(const std::string& core_type);
  void GetLocalMemSize(const LocalMemType& type, uint64_t& bytes);
  void GetLocalMemBw(const LocalMemType& type, uint64_t& bandwidth);
  // What a key has in a section of CANN's platform files; false if the table of chips has no such key.
  bool GetPlatformResWithLock(const std::string& section, const std::string& key, std::string& value);

  const PlatFormInfosImpl* chip() const { return chip_.get(); }

 private:
  uint32_t core_num_ = 0;
  std::shared_ptr<PlatFormInfosImpl> chip_;
};

// The chip that a program names once, for all of its devices. Its functions return 0, or 0xFFFFFFFF for an error.
class CANN_EXPORT PlatformInfoManager {
 public:
  static PlatformInfoManager& Instance();
  PlatformInfoManager(const PlatformInfoManager&) = delete;
  PlatformInfoManager& operator=(const PlatformInfoManager&) = delete;

  // Later calls change nothing.
  uint32_t InitRuntimePlatformInfos(const std::string& soc_version);
  uint32_t GetRuntimePlatformInfosByDevice(const uint32_t& device, PlatFormInfos& infos, bool need_deep_copy = false);

 private:
  PlatformInfoManager() = default;
  uint32_t Initialize(const char* soc_version);
};

}  // namespace fe
