// SPDX-License-Identifier: Apache-2.0
// The functions of the chip that take strings. CMake compiles this file for both ABIs of std::string: with that of
// before C++11 for vllm-ascend's wheel, for one.
#include <string>

#include "platform.h"

namespace fe {

bool PlatFormInfos::GetPlatformResWithLock(const std::string& section, const std::string& key, std::string& value) {
  if (chip_ == nullptr) return false;
  const std::optional<PlatFormInfosImpl::Text> found = chip_->find(section.c_str(), key.c_str());
  if (found) value = found->characters;
  return found.has_value();
}

void PlatFormInfos::SetCoreNumByCoreType(const std::string& core_type) {
  core_num_ = chip_ == nullptr ? 0 : chip_->cores_of_type(core_type.c_str());
}

uint32_t PlatformInfoManager::InitRuntimePlatformInfos(const std::string& soc_version) {
  return Initialize(soc_version.c_str());
}

}  // namespace fe
