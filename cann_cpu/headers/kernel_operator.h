// SPDX-License-Identifier: Apache-2.0
// What a kernel includes.
#pragma once

#include "ascendc/api.h"
