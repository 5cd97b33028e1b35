// SPDX-License-Identifier: Apache-2.0
// What a program of run mode cpu includes, which calls kernels by ICPU_RUN_KF.
#pragma once

#include <securec.h>

#include "kernel_operator.h"
