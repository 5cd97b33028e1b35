// SPDX-License-Identifier: Apache-2.0
// What host and kernels share.
#pragma once

#include <cstdint>

struct ScaleTiling {
  uint32_t count;  // elements, a multiple of 64 for each block
  float factor;
#if defined(OFFSET) && OFFSET != 2
  uint32_t more;
#endif
};
