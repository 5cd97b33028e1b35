// SPDX-License-Identifier: Apache-2.0
// The table of chips, and the choice of one. Cores, L2, clocks and rates are those of the platform files of CANN's
// runtime (hicann/runtime, src/platform/platform_config: ai_core_cnt, vector_core_cnt, l2_size, cube_freq, l2_rate,
// ddr_rate); a chip whose cores have both units has as many vector cores as AI cores for tiling (GetCoreNumAiv).
// Device memory, which the model of costs needs: 1.6 TB/s for 64 GB by the guide of asc-devkit; that chips with 32 GB
// have half of it is assumed. The model knows no other chips.
#include "cann_cpu/soc.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cann_cpu/operator_packages.h"

namespace cann_cpu {
namespace {

constexpr int64_t kMiB = 1 << 20;
// The first one is the default, and the first of a family that which operator packages choose.
constexpr Soc kSocs[] = {
    {"Ascend910B3", "ascend910b", 2201, 20, 40, 0, 192 * kMiB, 1800, 110, 32, 1600},
    {"Ascend910B1", "ascend910b", 2201, 24, 48, 0, 192 * kMiB, 1850, 110, 32, 1600},
    {"Ascend910B2", "ascend910b", 2201, 24, 48, 0, 192 * kMiB, 1800, 110, 32, 1600},
    {"Ascend910B2C", "ascend910b", 2201, 24, 48, 0, 192 * kMiB, 1800, 110, 32, 1600},
    {"Ascend910B4", "ascend910b", 2201, 20, 40, 0, 96 * kMiB, 1500, 110, 32, 800},
    {"Ascend910B4-1", "ascend910b", 2201, 20, 40, 0, 168 * kMiB, 1500, 110, 32, 800},
    {"Ascend910_9391", "ascend910_93", 2201, 24, 48, 0, 192 * kMiB, 1850, 110, 32, 1600},
    {"Ascend910_9392", "ascend910_93", 2201, 24, 48, 0, 192 * kMiB, 1850, 110, 32, 1600},
    {"Ascend910_9381", "ascend910_93", 2201, 24, 48, 0, 192 * kMiB, 1800, 110, 32, 1600},
    {"Ascend910_9382", "ascend910_93", 2201, 24, 48, 0, 192 * kMiB, 1800, 110, 32, 1600},
    {"Ascend910_9372", "ascend910_93", 2201, 20, 40, 0, 192 * kMiB, 1800, 110, 32, 1600},
    {"Ascend910_9362", "ascend910_93", 2201, 20, 40, 0, 168 * kMiB, 1500, 110, 32, 800},
    {"Ascend310B4", "ascend310b", 3002, 1, 1, 0, 4 * kMiB, 500, 256, 8, 0},
    {"Ascend310B1", "ascend310b", 3002, 1, 1, 0, 4 * kMiB, 1224, 256, 17, 0},
    {"Ascend310B2", "ascend310b", 3002, 1, 1, 0, 4 * kMiB, 1224, 256, 17, 0},
    {"Ascend310B3", "ascend310b", 3002, 1, 1, 0, 4 * kMiB, 1224, 256, 17, 0},
    {"Ascend310P3", "ascend310p", 2002, 8, 8, 7, 16 * kMiB, 1060, 114, 17, 0},
    {"Ascend310P1", "ascend310p", 2002, 10, 10, 8, 16 * kMiB, 1060, 114, 17, 0},
    {"Ascend910A", "ascend910", 1001, 32, 32, 0, 32 * kMiB, 1000, 110, 32, 0},
    {"Ascend910ProA", "ascend910", 1001, 32, 32, 0, 32 * kMiB, 1100, 110, 32, 0},
    {"Ascend910ProB", "ascend910", 1001, 30, 30, 0, 32 * kMiB, 1150, 110, 32, 0},
    {"Ascend910PremiumA", "ascend910", 1001, 32, 32, 0, 32 * kMiB, 1220, 110, 32, 0},
    {"Ascend950PR_9589", "ascend950", 3510, 32, 64, 0, 128 * kMiB, 1650, 100, 31, 0},
    {"Ascend950PR_9599", "ascend950", 3510, 36, 72, 0, 128 * kMiB, 1800, 100, 31, 0},
    {"Ascend950PR_9579", "ascend950", 3510, 28, 56, 0, 128 * kMiB, 1650, 100, 31, 0},
    {"Ascend950PR_957b", "ascend950", 3510, 28, 56, 0, 112 * kMiB, 1650, 100, 27, 0},
    {"Ascend950DT_9581", "ascend950", 3510, 32, 64, 0, 128 * kMiB, 1650, 100, 80, 0},
    {"Ascend950DT_9582", "ascend950", 3510, 32, 64, 0, 128 * kMiB, 1650, 100, 80, 0},
    {"Ascend950DT_9591", "ascend950", 3510, 36, 72, 0, 128 * kMiB, 1800, 100, 80, 0},
    {"Ascend950DT_9592", "ascend950", 3510, 36, 72, 0, 128 * kMiB, 1800, 100, 80, 0},
};

namespace fs = std::filesystem;

// The families that a package has Ascend C kernels for. A package with kernels for the CPU runs as any chip.
std::set<std::string> families_of(const fs::path& package) {
  std::set<std::string> families;
  std::error_code ignored;
  if (fs::exists(package / "op_impl/cann_cpu", ignored)) return families;
  const fs::path kernels = package / "op_impl/ai_core/tbe/kernel";
  for (const Soc& each : kSocs) {
    if (fs::is_directory(kernels / each.family, ignored)) families.insert(each.family);
  }
  return families;
}

// The architectures that libraries named while they were loaded, in any thread.
struct Architectures {
  std::mutex mutex;
  std::vector<uint32_t> named;
};
Architectures& architectures_of_program() {
  static auto& found = *new Architectures;
  return found;
}

struct Choice {
  const Soc* chip;
  std::string reason;
};

// The first chip for which all of the packages are, or else the first package is.
Choice choose_by_packages() {
  std::vector<std::set<std::string>> packages;
  for (const fs::path& package : operator_packages()) {
    if (auto families = families_of(package); !families.empty()) packages.push_back(std::move(families));
  }
  if (packages.empty()) return {nullptr, ""};
  std::set<std::string> all;
  for (const auto& families : packages) all.insert(families.begin(), families.end());
  std::string named;
  for (const std::string& family : all) named += (named.empty() ? "" : ", ") + family;
  for (const Soc& each : kSocs) {
    const auto is_for_it = [&](const auto& families) { return families.contains(each.family); };
    if (std::all_of(packages.begin(), packages.end(), is_for_it)) {
      return {&each, "the installed operator packages are for " + named};
    }
  }
  const auto first = std::ranges::find_if(kSocs, [&](const Soc& each) { return packages[0].contains(each.family); });
  return {first, "the first operator package is for it; the installed ones have no chip in common: " + named};
}

const Choice& choice() {
  static const auto& chosen = *new Choice([]() -> Choice {
    if (const char* name = std::getenv("CANN_CPU_SOC"); name != nullptr && *name != '\0') {
      return {&soc_named(name, "CANN_CPU_SOC", kSocs[0]), "CANN_CPU_SOC"};
    }
    if (Choice found = choose_by_packages(); found.chip != nullptr) return found;
    Architectures& of_program = architectures_of_program();
    const std::lock_guard lock(of_program.mutex);
    const std::vector<uint32_t>& architectures = of_program.named;
    if (!architectures.empty() && std::ranges::count(architectures, architectures[0]) == std::ssize(architectures)) {
      return {&soc_of(architectures[0]), "the program's kernels are for dav-" + std::to_string(architectures[0])};
    }
    return {&kSocs[0], "the default"};
  }());
  return chosen;
}

}  // namespace

const Soc* find_soc(const char* name) {
  for (const Soc& each : kSocs) {
    if (std::strcmp(each.name, name) == 0) return &each;
  }
  return nullptr;
}

const Soc& soc_named(const char* name, const char* who, const Soc& otherwise) {
  if (const Soc* found = find_soc(name)) return *found;
  std::fprintf(stderr, "cann_cpu: %s names %s, which is unknown; it is %s. There are", who, name, otherwise.name);
  for (const Soc& each : kSocs) std::fprintf(stderr, " %s", each.name);
  std::fputc('\n', stderr);
  return otherwise;
}

const Soc& soc_of(uint32_t npu_arch) {
  return *std::ranges::find_if(kSocs,
                               [&](const Soc& each) { return each.npu_arch == architecture_of(npu_arch).number; });
}

bool has_kernels_for(uint32_t npu_arch) {
  Architectures& of_program = architectures_of_program();
  const std::lock_guard lock(of_program.mutex);
  of_program.named.push_back(npu_arch);
  return true;
}

const Soc* soc_of_family(const char* family) {
  const auto found = std::ranges::find(kSocs, std::string(family), &Soc::family);
  return found == std::end(kSocs) ? nullptr : &*found;
}

const Soc& soc() { return *choice().chip; }
const char* soc_reason() { return choice().reason.c_str(); }

}  // namespace cann_cpu

// What `python -m cann_cpu info` prints of the chip, and why it is this one, in the second line.
extern "C" CANN_EXPORT const char* cann_cpu_describe_chip() {
  using namespace cann_cpu;
  static const auto& text = *new std::string([] {
    const Soc& chip = soc();
    const Architecture& core = chip.architecture();
    std::string said = chip.name + std::string(": ") + std::to_string(chip.cube_cores) +
                       (chip.cube_cores == 1 ? " AI core" : " AI cores");
    if (!core.fused) said += " with " + std::to_string(chip.vector_cores) + " vector cores";
    const auto add = [&](uint32_t bytes, const char* what) {
      if (bytes != 0) said += ", " + std::to_string(bytes / kKiB) + " KiB of " + what;
    };
    said += ", dav-" + std::to_string(core.number);
    add(core.unified_buffer, "unified buffer");
    add(core.l1, "L1");
    add(core.l0a, "L0A");
    add(core.l0b, "L0B");
    add(core.l0c, "L0C");
    add(core.bias_table, "bias table");
    add(core.fixpipe_buffer, "fixpipe buffer");
    return said + ", " + std::to_string(chip.l2_bytes / kMiB) + " MiB of L2\n" + soc_reason();
  }());
  return text.c_str();
}
