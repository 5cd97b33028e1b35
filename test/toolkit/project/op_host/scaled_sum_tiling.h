// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "register/tilingdata_base.h"

namespace optiling {
BEGIN_TILING_DATA_DEF(Share)
TILING_DATA_FIELD_DEF(uint64_t, elements);
TILING_DATA_FIELD_DEF(uint64_t, per_block);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(ShareOp, Share)

BEGIN_TILING_DATA_DEF(ScaledSumTiling)
TILING_DATA_FIELD_DEF(uint8_t, has_bias);
TILING_DATA_FIELD_DEF(float, alpha);
TILING_DATA_FIELD_DEF_STRUCT(Share, share);
TILING_DATA_FIELD_DEF_ARR(int16_t, 3, marks);
TILING_DATA_FIELD_DEF(uint32_t, tile);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(ScaledSum, ScaledSumTiling)
}  // namespace optiling
