// SPDX-License-Identifier: Apache-2.0
// What tiling functions ask of the libraries of Ascend C: how much room their work buffers need.
#pragma once

#include "graph/tensor.h"
#include "register/tilingdata_base.h"
#include "tiling/broadcast_tiling.h"
#include "tiling/matmul_tiling.h"
#include "tiling/pad_tiling.h"
#include "tiling/platform/platform_ascendc.h"
