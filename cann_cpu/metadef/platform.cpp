// SPDX-License-Identifier: Apache-2.0
// platform_ascendc::PlatformAscendC and fe::PlatFormInfos over the table of chips.
#include "tiling/platform/platform_ascendc.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>

#include "cann_cpu/call.h"
#include "platform.h"

namespace platform_ascendc {
namespace {

const cann_cpu::Soc& chip_of(const fe::PlatFormInfos* infos) {
  return infos == nullptr || infos->chip() == nullptr ? cann_cpu::soc() : infos->chip()->chip;
}

cann_cpu::Cores cores_of(const fe::PlatFormInfos* infos) {
  return infos == nullptr || infos->chip() == nullptr ? cann_cpu::cores_of_thread() : infos->chip()->cores;
}

// Also as Short_SoC_version has it.
struct Family {
  std::string_view name;
  const char* short_version;
  SocVersion version;
};
constexpr Family kFamilies[] = {
    {"ascend910", "Ascend910", SocVersion::ASCEND910},          {"ascend910b", "Ascend910B", SocVersion::ASCEND910B},
    {"ascend310p", "Ascend310P", SocVersion::ASCEND310P},       {"ascend310b", "Ascend310B", SocVersion::ASCEND310B},
    {"ascend910_93", "Ascend910_93", SocVersion::ASCEND910_93}, {"ascend950", "Ascend950", SocVersion::ASCEND950},
};
const Family& family_of(const cann_cpu::Soc& chip) {
  return *std::ranges::find(kFamilies, std::string_view(chip.family), &Family::name);
}

uint64_t size_of(const cann_cpu::Soc& chip, CoreMemType type) {
  const cann_cpu::Architecture& core = chip.architecture();
  switch (type) {
    case CoreMemType::L0_A:
      return core.l0a;
    case CoreMemType::L0_B:
      return core.l0b;
    case CoreMemType::L0_C:
      return core.l0c;
    case CoreMemType::L1:
      return core.l1;
    case CoreMemType::L2:
      return static_cast<uint64_t>(chip.l2_bytes);
    case CoreMemType::UB:
      return core.unified_buffer;
    case CoreMemType::BT:
      return core.bias_table;
    case CoreMemType::FB:
      return core.fixpipe_buffer;
    default:
      return 0;
  }
}

// Bytes in a cycle, between a core and what all cores share.
uint64_t bandwidth_of(const cann_cpu::Soc& chip, CoreMemType type) {
  return type == CoreMemType::L2 ? chip.l2_rate : type == CoreMemType::HBM ? chip.device_memory_rate : 0;
}

}  // namespace

uint32_t PlatformAscendC::GetCoreNum() const { return GetCoreNumAic(); }
uint32_t PlatformAscendC::GetCoreNumAic() const { return cores_of(infos_).cube; }
uint32_t PlatformAscendC::GetCoreNumAiv() const { return cores_of(infos_).vector; }

uint32_t PlatformAscendC::CalcTschBlockDim(uint32_t slice_num, uint32_t aic_core_num, uint32_t aiv_core_num) const {
  if (aic_core_num == 0 || aiv_core_num == 0 || aic_core_num > aiv_core_num) return slice_num;
  const uint32_t vectors = aiv_core_num / aic_core_num;
  return (slice_num + vectors - 1) / vectors;
}

uint32_t PlatformAscendC::GetCoreNumVector() const { return chip_of(infos_).separate_vector_cores; }

SocVersion PlatformAscendC::GetSocVersion() const { return family_of(chip_of(infos_)).version; }

NpuArch PlatformAscendC::GetCurNpuArch() const { return static_cast<NpuArch>(chip_of(infos_).npu_arch); }

void PlatformAscendC::GetCoreMemSize(const CoreMemType& type, uint64_t& size) const {
  size = size_of(chip_of(infos_), type) - (type == CoreMemType::UB ? reserved_ : 0);
}

void PlatformAscendC::ReserveLocalMemory(ReservedSize size) { reserved_ = (8 * 1024) << static_cast<uint32_t>(size); }

void PlatformAscendC::GetCoreMemBw(const CoreMemType& type, uint64_t& bandwidth) const {
  bandwidth = bandwidth_of(chip_of(infos_), type);
}

uint32_t PlatformAscendC::GetLibApiWorkSpaceSize() const { return chip_of(infos_).architecture().library_workspace; }

PlatformAscendC* PlatformAscendCManager::GetInstance() { return GetInstance(nullptr); }
PlatformAscendC* PlatformAscendCManager::GetInstance(const char* soc_version) {
  using namespace cann_cpu;
  struct Platform {
    explicit Platform(const Soc& chip)
        : infos(chip.cube_cores, std::make_shared<fe::PlatFormInfosImpl>(chip)), instance(&infos) {}
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

namespace fe {
namespace {

using platform_ascendc::bandwidth_of;
using platform_ascendc::CoreMemType;
using platform_ascendc::size_of;

// Which units a core has, as core_type_list in CANN's platform files names them.
struct CoreTypes {
  uint32_t npu_arch;
  std::string_view names;
};
constexpr CoreTypes kCoreTypes[] = {
    {1001, "AICore"},
    {2002, "AICore,VectorCore"},
    {3002, "AICore,VectorCore,CubeCore"},
    {2201, "CubeCore,VectorCore"},
    {3510, "CubeCore,VectorCore"},
};
std::string_view core_types_of(const cann_cpu::Soc& chip) {
  return std::ranges::find(kCoreTypes, chip.npu_arch, &CoreTypes::npu_arch)->names;
}
bool has_cube_cores(const cann_cpu::Soc& chip) {
  return core_types_of(chip).find("CubeCore") != std::string_view::npos;
}

using Infos = PlatFormInfosImpl;

uint64_t vector_cores(const Infos& infos) {
  return has_cube_cores(infos.chip) ? infos.cores.vector : infos.chip.separate_vector_cores;
}

struct Number {
  std::string_view section, key;
  uint64_t (*of)(const Infos&);
};
constexpr Number kNumbers[] = {
    {"version", "NpuArch", [](const Infos& infos) -> uint64_t { return infos.chip.npu_arch; }},
    {"SoCInfo", "ai_core_cnt", [](const Infos& infos) -> uint64_t { return infos.cores.cube; }},
    {"SoCInfo", "vector_core_cnt", vector_cores},
    {"SoCInfo", "l2_size", [](const Infos& infos) { return size_of(infos.chip, CoreMemType::L2); }},
    {"AICoreSpec", "cube_freq", [](const Infos& infos) -> uint64_t { return infos.chip.clock_mhz; }},
    {"AICoreSpec", "l0_a_size", [](const Infos& infos) { return size_of(infos.chip, CoreMemType::L0_A); }},
    {"AICoreSpec", "l0_b_size", [](const Infos& infos) { return size_of(infos.chip, CoreMemType::L0_B); }},
    {"AICoreSpec", "l0_c_size", [](const Infos& infos) { return size_of(infos.chip, CoreMemType::L0_C); }},
    {"AICoreSpec", "l1_size", [](const Infos& infos) { return size_of(infos.chip, CoreMemType::L1); }},
    {"AICoreSpec", "ub_size", [](const Infos& infos) { return size_of(infos.chip, CoreMemType::UB); }},
    {"AICoreSpec", "bt_size", [](const Infos& infos) { return size_of(infos.chip, CoreMemType::BT); }},
    {"AICoreSpec", "fb0_size", [](const Infos& infos) { return size_of(infos.chip, CoreMemType::FB); }},
    {"AICoreMemoryRates", "l2_rate", [](const Infos& infos) { return bandwidth_of(infos.chip, CoreMemType::L2); }},
    {"AICoreMemoryRates", "ddr_rate", [](const Infos& infos) { return bandwidth_of(infos.chip, CoreMemType::HBM); }},
};

std::optional<std::string_view> text_of(const Infos& infos, std::string_view section, std::string_view key) {
  if (section == "version" && key == "SoC_version") return infos.chip.name;
  if (section == "version" && key == "Short_SoC_version") return platform_ascendc::family_of(infos.chip).short_version;
  if (section == "SoCInfo" && key == "core_type_list") return core_types_of(infos.chip);
  return std::nullopt;
}

std::optional<uint64_t> number_of(const Infos& infos, std::string_view section, std::string_view key) {
  // Only chips with these cores have the keys.
  if (section == "SoCInfo" && key == "cube_core_cnt") {
    return has_cube_cores(infos.chip) ? std::optional<uint64_t>(infos.cores.cube) : std::nullopt;
  }
  if (section == "SoCInfo" && key == "mix_vector_core_cnt") {
    const uint64_t beside = infos.chip.separate_vector_cores;
    return beside > 0 ? std::optional(infos.cores.cube + beside) : std::nullopt;
  }
  const auto found = std::ranges::find_if(
      kNumbers, [&](const Number& number) { return number.section == section && number.key == key; });
  return found == std::end(kNumbers) ? std::nullopt : std::optional(found->of(infos));
}

constexpr uint32_t kFailed = 0xFFFFFFFF;

std::mutex manager_mutex;
std::shared_ptr<Infos>& chip_of_manager() {
  static auto* const chip = new std::shared_ptr<Infos>;
  return *chip;
}

}  // namespace

std::optional<PlatFormInfosImpl::Text> PlatFormInfosImpl::find(const char* section, const char* key) const {
  Text text;
  if (const auto named = text_of(*this, section, key)) {
    std::snprintf(text.characters, sizeof(text.characters), "%.*s", static_cast<int>(named->size()), named->data());
  } else if (const auto number = number_of(*this, section, key)) {
    std::snprintf(text.characters, sizeof(text.characters), "%lu", *number);
  } else {
    return std::nullopt;
  }
  return text;
}

uint32_t PlatFormInfosImpl::cores_of_type(const char* core_type) const {
  const auto is_one_of = [&](std::initializer_list<std::string_view> types) {
    return std::ranges::find(types, std::string_view(core_type)) != types.end();
  };
  const bool is_mixed = is_one_of({"MIX", "MIX_AICORE", "MIX_AIC_AIV", "MIX_AIV", "MIX_VECTOR_CORE"});
  if (const auto mixed = number_of(*this, "SoCInfo", "mix_vector_core_cnt"); is_mixed && mixed) return *mixed;
  const bool is_vector = is_one_of({"VectorCore", "AIV", "MIX_AIV", "MIX_VECTOR_CORE"});
  return is_vector ? vector_cores(*this) : cores.cube;
}

uint32_t PlatFormInfos::GetCoreNum() const { return core_num_; }

void PlatFormInfos::GetLocalMemSize(const LocalMemType& type, uint64_t& bytes) {
  const bool is_known = chip_ != nullptr && type < LocalMemType::RESERVED;
  bytes = is_known ? size_of(chip_->chip, static_cast<CoreMemType>(type)) : 0;
}

void PlatFormInfos::GetLocalMemBw(const LocalMemType& type, uint64_t& bandwidth) {
  const bool is_known = chip_ != nullptr && type < LocalMemType::RESERVED;
  bandwidth = is_known ? bandwidth_of(chip_->chip, static_cast<CoreMemType>(type)) : 0;
}

PlatformInfoManager& PlatformInfoManager::Instance() {
  static PlatformInfoManager manager;
  return manager;
}

uint32_t PlatformInfoManager::Initialize(const char* soc_version) {
  const std::lock_guard lock(manager_mutex);
  if (chip_of_manager() != nullptr) return 0;
  const cann_cpu::Soc* chip =
      cann_cpu::find_soc(std::string_view(soc_version) == "Ascend910" ? "Ascend910A" : soc_version);
  if (chip == nullptr) {
    cann_cpu::error(ACL_ERROR_INVALID_PARAM, "PlatformInfoManager::InitRuntimePlatformInfos: the chip %s is unknown",
                    soc_version);
    return kFailed;
  }
  chip_of_manager() = std::make_shared<Infos>(*chip);
  return 0;
}

uint32_t PlatformInfoManager::GetRuntimePlatformInfosByDevice(const uint32_t&, PlatFormInfos& infos,
                                                              bool need_deep_copy) {
  const std::lock_guard lock(manager_mutex);
  const std::shared_ptr<Infos>& chip = chip_of_manager();
  if (chip == nullptr) {
    cann_cpu::error(ACL_ERROR_INVALID_PARAM,
                    "PlatformInfoManager::GetRuntimePlatformInfosByDevice: InitRuntimePlatformInfos was not called");
    return kFailed;
  }
  infos = PlatFormInfos(0, need_deep_copy ? std::make_shared<Infos>(*chip) : chip);
  return 0;
}

}  // namespace fe
