// SPDX-License-Identifier: Apache-2.0
// A host's description of its tiling as the struct that a kernel reads; the build of an operator makes it of this, too.
// A kernel file that includes it nowhere is compiled with -include op_host/NAME_tiling.h.
#pragma once

#include <cstdint>

#define BEGIN_TILING_DATA_DEF(Struct) struct Struct {
#define TILING_DATA_FIELD_DEF(type, name) type name = 0
#define TILING_DATA_FIELD_DEF_ARR(type, count, name) type name[count] = {}
#define TILING_DATA_FIELD_DEF_STRUCT(Struct, name) Struct name
#define END_TILING_DATA_DEF }

// Stands in namespace optiling, which kernels do not name.
#define REGISTER_TILING_DATA_CLASS(Operator, Struct) \
  using AscendCTilingData = Struct;                  \
  }                                                  \
  using namespace optiling;                          \
  namespace optiling {
