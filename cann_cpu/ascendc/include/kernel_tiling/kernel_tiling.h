// SPDX-License-Identifier: Apache-2.0
// The structs of tilings, by the name under which host and kernel files include them.
#pragma once

#include "ascendc/tiling_structs.h"
