// SPDX-License-Identifier: Apache-2.0
// Ascend C on the CPU: the subset of the public API that is served; what is not here does not compile.
#pragma once

#include "ascendc/atomic.h"
#include "ascendc/block.h"
#include "ascendc/block_sync.h"
#include "ascendc/builtins.h"
#include "ascendc/cast.h"
#include "ascendc/cores.h"
#include "ascendc/cube_group.h"
#include "ascendc/data_copy.h"
#include "ascendc/debug.h"
#include "ascendc/fixpipe.h"
#include "ascendc/half.h"
#include "ascendc/hccl.h"
#include "ascendc/launch.h"
#include "ascendc/list_tensor.h"
#include "ascendc/load_data.h"
#include "ascendc/math.h"
#include "ascendc/matrix.h"
#include "ascendc/mmad.h"
#include "ascendc/normalization.h"
#include "ascendc/permute.h"
#include "ascendc/quantization.h"
#include "ascendc/queue.h"
#include "ascendc/reduce.h"
#include "ascendc/scalar.h"
#include "ascendc/select.h"
#include "ascendc/softmax.h"
#include "ascendc/sort.h"
#include "ascendc/tensor.h"
#include "ascendc/tiling.h"
#include "ascendc/types.h"
#include "ascendc/vector.h"

// Kernels may also call these without the namespace.
using AscendC::GetBlockIdx;
using AscendC::GetBlockNum;
using AscendC::GetSysWorkSpacePtr;
