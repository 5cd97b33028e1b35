// SPDX-License-Identifier: Apache-2.0
// Kernel files include it by this name, too.
#pragma once

#include "kernel_operator.h"
