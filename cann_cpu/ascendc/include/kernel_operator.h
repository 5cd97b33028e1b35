// SPDX-License-Identifier: Apache-2.0
// The header that kernels include.
#pragma once

#include "ascendc/api.h"
