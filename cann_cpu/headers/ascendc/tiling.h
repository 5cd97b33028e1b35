// SPDX-License-Identifier: Apache-2.0
// What a kernel's entry begins with: its tiling, a struct in device memory and the key by which it chooses among its
// variants; its workspace; the kind of its cores.
#pragma once

#include <cstring>

#include "ascendc/block.h"

#define TILING_KEY_IS(key) (AscendC::cpu::block(AscendC::cpu::Where::current()).tiling_key == (key))

#define GET_TILING_DATA_WITH_STRUCT(Struct, name, address) \
  Struct name;                                             \
  std::memcpy(&name, address, sizeof(Struct))

#define REGISTER_TILING_DEFAULT(Struct) using AscendCTilingData = Struct
#define GET_TILING_DATA(name, address) GET_TILING_DATA_WITH_STRUCT(AscendCTilingData, name, address)

// Only kernels for vector cores are served by the CPU.
enum KernelMetaType : uint8_t { KERNEL_TYPE_AIV_ONLY };
#define KERNEL_TASK_TYPE_DEFAULT(type) static_assert((type) == KERNEL_TYPE_AIV_ONLY)
#define KERNEL_TASK_TYPE(key, type) static_assert((type) == KERNEL_TYPE_AIV_ONLY)

namespace AscendC {

// The part of the workspace that is the kernel's; on the CPU the system takes nothing of it.
inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }

}  // namespace AscendC
