// SPDX-License-Identifier: Apache-2.0
// Status codes of the Graph Engine's own functions.
#pragma once

#include <cstdint>

namespace ge {

using Status = uint32_t;
constexpr Status SUCCESS = 0;
constexpr Status FAILED = 0xFFFFFFFF;
constexpr Status GE_CLI_GE_NOT_INITIALIZED = 1343229963;

}  // namespace ge
