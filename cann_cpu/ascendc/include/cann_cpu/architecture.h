// SPDX-License-Identifier: Apache-2.0
// The architectures of AI cores: what a kernel is compiled for, and how large the memories of a core are.
//
// Sizes are those of AICoreSpec in the platform files of CANN's runtime (src/platform/platform_config, hicann/runtime):
// Ascend910A, 310P3, 910B3, 310B4 and 950PR_9589. ub_size there is what kernels have; of the 256 KiB of 3002 and 3510
// the 8 KiB that the compiler reserves are taken off already. The fixpipe buffer is fb0_size, as GetCoreMemSize gives
// it; the workspace of the libraries that of asc-devkit (impl/utils/tiling/platform/platform_ascendc.cpp). A core is
// fused where core_type_list names AICore.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cann_cpu {

struct Architecture {
  uint32_t number;   // __NPU_ARCH__
  uint32_t ai_core;  // __CCE_AICORE__
  bool fused;        // one core has the matrix and the vector unit; otherwise each unit has its cores
  // The memories of a core, in bytes: the unified buffer, L1, L0A, L0B, L0C, the bias table, the fixpipe buffer.
  uint32_t unified_buffer, l1, l0a, l0b, l0c, bias_table, fixpipe_buffer;
  // The last bytes of the unified buffer that some instructions write to: "reserves 8 KB of the unified buffer" in the
  // restrictions of Select, Brcb and others.
  uint32_t scratch;
  uint32_t library_workspace;
};

inline constexpr uint32_t kKiB = 1024;
inline constexpr Architecture kArchitectures[] = {
    {2201, 220, false, 192 * kKiB, 512 * kKiB, 64 * kKiB, 64 * kKiB, 128 * kKiB, kKiB, 2 * kKiB, 8 * kKiB, 16 << 20},
    {1001, 100, true, 256 * kKiB, 1024 * kKiB, 64 * kKiB, 64 * kKiB, 256 * kKiB, 0, 0, 8 * kKiB, 2 << 20},
    {2002, 200, true, 256 * kKiB, 1024 * kKiB, 64 * kKiB, 64 * kKiB, 256 * kKiB, 0, 0, 8 * kKiB, 2 << 20},
    {3002, 300, true, 248 * kKiB, 1024 * kKiB, 64 * kKiB, 64 * kKiB, 128 * kKiB, kKiB, 2 * kKiB, 0, 2 << 20},
    {3510, 310, false, 248 * kKiB, 512 * kKiB, 64 * kKiB, 64 * kKiB, 256 * kKiB, 4 * kKiB, 4 * kKiB, 0, 16 << 20},
};

// The default one for a number that is none of theirs.
constexpr const Architecture& architecture_of(uint32_t number) {
  for (const Architecture& each : kArchitectures) {
    if (each.number == number) return each;
  }
  return kArchitectures[0];
}

}  // namespace cann_cpu
