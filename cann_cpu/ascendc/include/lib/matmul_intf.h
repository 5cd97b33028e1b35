// SPDX-License-Identifier: Apache-2.0
// The Matmul library, by the name under which kernel files include it.
#pragma once

#include "kernel_operator.h"

#include "ascendc/matmul.h"
#include "kernel_tiling/kernel_tiling.h"

namespace matmul {
using namespace AscendC;
}
