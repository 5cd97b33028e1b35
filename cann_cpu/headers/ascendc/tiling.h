// How a kernel reads its tiling: a struct in device memory, and the key by which it chooses among its variants.
#pragma once

#include <cstring>

#include "ascendc/block.h"

#define TILING_KEY_IS(key) (AscendC::cpu::block(AscendC::cpu::Where::current()).tiling_key == (key))

#define GET_TILING_DATA_WITH_STRUCT(Struct, name, address) \
  Struct name;                                             \
  std::memcpy(&name, address, sizeof(Struct))

#define REGISTER_TILING_DEFAULT(Struct) using AscendCTilingData = Struct
#define GET_TILING_DATA(name, address) GET_TILING_DATA_WITH_STRUCT(AscendCTilingData, name, address)
