// SPDX-License-Identifier: Apache-2.0
// Launches kernels on the CPU: ICPU_RUN_KF(kernel, blocks, arguments...) runs the blocks in parallel threads.
//
// An error in a kernel ends the launch with a KernelError. A launch checks the kernel as it runs if
// ASCENDC_CPU_CHECKS=1 is in the environment, or the launch itself requests it, or if ASCENDC_CPU_PROFILE names a
// folder. Each launch then writes its costs to that folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "ascendc/types.h"

#define ASCENDC_CPU_EXPORT __attribute__((visibility("default")))

#if __NPU_ARCH__ != 2201
#include "cann_cpu/soc.h"
namespace AscendC::cpu {
inline const bool kChipIsChosen = cann_cpu::has_kernels_for(__NPU_ARCH__);
}
#endif

namespace AscendC {

// What a kernel did wrong: file, line, kernel, block, reason and what to do.
struct ASCENDC_CPU_EXPORT KernelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace cpu {

// Memory of the device that a kernel may touch, and what messages call it; null and 0 bytes for an argument that is
// None.
struct DeviceBuffer {
  const void* begin;
  size_t bytes;
  const char* name;
};

// While it lives, the launches of this thread may touch these buffers and those of GmAlloc, and no other memory of the
// device; only launches that are checked look at them.
class ASCENDC_CPU_EXPORT KnownMemory {
 public:
  KnownMemory(const DeviceBuffer* buffers, size_t count, size_t* written = nullptr);
  ~KnownMemory();
  KnownMemory(const KnownMemory&) = delete;
  KnownMemory& operator=(const KnownMemory&) = delete;

  const DeviceBuffer* const buffers;
  const size_t count;
  size_t* const written;  // for each buffer, where checked launches say how many of its bytes they wrote

 private:
  const KnownMemory* outer_;
};

struct Profile;

// Communicators that a launch may have: GetHcclContext<0>() and <1>().
inline constexpr size_t kGroups = 2;
using Contexts = std::array<const void*, kGroups>;

enum class Checks : uint8_t { AsTheEnvironmentSays, Off, On };

// Which instructions of a block the device's compiler orders, by its option --cce-auto-sync: the vector unit's among
// themselves, and, where the option is given, the scalar unit's with all others. Off: none. ASCENDC_CPU_AUTO_SYNC is a
// macro of the launching file, and in the environment 0 or 1.
enum class AutoSync : uint8_t { AsTheEnvironmentSays, Off, Vector, On };
#ifndef ASCENDC_CPU_AUTO_SYNC
#define ASCENDC_CPU_AUTO_SYNC AsTheEnvironmentSays
#endif

struct Launch {
  const char* kernel;
  uint32_t blocks;
  AutoSync auto_sync;
  Checks checks = Checks::AsTheEnvironmentSays;
  const Profile* profile = nullptr;  // where a checked launch says what it costs
  uint32_t npu_arch = __NPU_ARCH__;  // what the kernel was compiled for
  Contexts contexts = {};
};

// Whether launches that do not specify it are checked.
ASCENDC_CPU_EXPORT bool checks_by_default();

// Calls body(context) once for each core of each block, and returns or throws when all have ended.
ASCENDC_CPU_EXPORT void run(const Launch& launch, void (*body)(const void* context), const void* context);

template <class Body>
void run(const Launch& launch, const Body& body) {
  run(launch, [](const void* context) { (*static_cast<const Body*>(context))(); }, &body);
}

// What TILING_KEY_IS compares with, in the launches that this thread makes from now on.
ASCENDC_CPU_EXPORT void set_tiling_key(uint64_t key);

}  // namespace cpu

// Device memory, aligned as on the device; nullptr if there is none left.
ASCENDC_CPU_EXPORT void* GmAlloc(size_t bytes);
ASCENDC_CPU_EXPORT void GmFree(void* memory);

}  // namespace AscendC

#define ICPU_RUN_KF(kernel, block_dim, ...)                                                                     \
  AscendC::cpu::run({#kernel, static_cast<uint32_t>(block_dim), AscendC::cpu::AutoSync::ASCENDC_CPU_AUTO_SYNC}, \
                    [&] { kernel(__VA_ARGS__); })
#define ICPU_SET_TILING_KEY(key) AscendC::cpu::set_tiling_key(key)
