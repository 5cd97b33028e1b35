// SPDX-License-Identifier: Apache-2.0
// The beginning of a kernel's entry: its tiling, which is a struct in device memory and the key that selects a variant,
// and its workspace.
#pragma once

#include <cstring>

#include "ascendc/block.h"

#define TILING_KEY_IS(key) (AscendC::cpu::block(AscendC::cpu::Where::current()).tiling_key == (key))

#define GET_TILING_DATA_WITH_STRUCT(Struct, name, address) \
  Struct name;                                             \
  COPY_TILING_WITH_STRUCT(Struct, address, &name)
#define COPY_TILING_WITH_STRUCT(Struct, address, destination) \
  AscendC::cpu::copy_tiling(AscendC::cpu::Where::current(), #Struct, destination, address, sizeof(Struct))
#define GET_TILING_DATA_PTR_WITH_STRUCT(Struct, name, address) \
  const __gm__ Struct* name = reinterpret_cast<const __gm__ Struct*>(address)
#define GET_TILING_DATA_MEMBER(Struct, member, name, address) \
  const auto name = reinterpret_cast<const __gm__ Struct*>(address)->member

#define REGISTER_TILING_DEFAULT(Struct) using AscendCTilingData = Struct
#define REGISTER_TILING_FOR_TILINGKEY(condition, Struct) static_assert(sizeof(Struct) != 0)
#define GET_TILING_DATA(name, address) GET_TILING_DATA_WITH_STRUCT(AscendCTilingData, name, address)

namespace AscendC {

namespace cpu {

// Fails if the argument at this address has another size than the struct that is read from it.
ASCENDC_CPU_EXPORT void check_tiling(Where where, const char* type, const void* address, size_t bytes);

inline void copy_tiling(Where where, const char* type, void* to, const void* address, size_t bytes) {
  if (checker() != nullptr) check_tiling(where, type, address, bytes);
  std::memcpy(to, address, bytes);
}

}  // namespace cpu

// The part of the workspace that is the kernel's; on the CPU the system takes nothing of it.
inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }

// The system's part of the workspace: nothing of it is to be read or written.
inline void SetSysWorkspace(GM_ADDR) {}
inline GM_ADDR GetSysWorkSpacePtr() {
  static uint8_t nothing;
  return &nothing;
}

}  // namespace AscendC
