// SPDX-License-Identifier: Apache-2.0
// Functions of Ascend C's libraries for tiling: the sizes of their work buffers.
#pragma once

#include "graph/tensor.h"
#include "register/tilingdata_base.h"
#include "tiling/broadcast_tiling.h"
#include "tiling/hccl/hccl_tiling.h"
#include "tiling/matmul_tiling.h"
#include "tiling/normalization_tiling.h"
#include "tiling/pad_tiling.h"
#include "tiling/platform/platform_ascendc.h"
#include "tiling/softmax_tiling.h"
#include "tiling/sort_tiling.h"
#include "tiling/work_buffer_sizes.h"
