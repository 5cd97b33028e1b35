// SPDX-License-Identifier: Apache-2.0
// The Matmul library, by the name under which kernel files include it.
#pragma once

#include "kernel_operator.h"

#include "ascendc/matmul.h"
#include "kernel_tiling/kernel_tiling.h"

namespace matmul {
using namespace AscendC;
}

namespace AscendC {

// Kernels that include CANN's headers of this library call these, also with two different types.
constexpr uint64_t CeilDiv(uint64_t number, uint64_t by) { return by == 0 ? 0 : (number + by - 1) / by; }
constexpr uint64_t CeilAlign(uint64_t number, uint64_t to) { return CeilDiv(number, to) * to; }

}  // namespace AscendC
