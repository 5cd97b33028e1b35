// SPDX-License-Identifier: Apache-2.0
// The header for programs of run mode cpu, which call kernels by ICPU_RUN_KF.
#pragma once

#include <securec.h>

#include "kernel_operator.h"
