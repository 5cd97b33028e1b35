// SPDX-License-Identifier: Apache-2.0
// The tiling data of the kernel of Hypot; fields without semicolons, as some authors write them.
#pragma once
#include "register/tilingdata_base.h"

namespace optiling {
BEGIN_TILING_DATA_DEF(HypotPart)
TILING_DATA_FIELD_DEF(uint32_t, each)
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(HypotPartOp, HypotPart)

BEGIN_TILING_DATA_DEF(HypotTilingData)
TILING_DATA_FIELD_DEF(uint32_t, size);
TILING_DATA_FIELD_DEF_ARR(uint32_t, 2, spare)
TILING_DATA_FIELD_DEF_STRUCT(HypotPart, part)
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Hypot, HypotTilingData)
}  // namespace optiling
