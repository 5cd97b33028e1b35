// SPDX-License-Identifier: Apache-2.0
// Kernel files include it by this name, too; the matrix unit, which it is for, is not served by the CPU.
#pragma once

#include "kernel_operator.h"

namespace matmul {
using namespace AscendC;
}
