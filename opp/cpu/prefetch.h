// SPDX-License-Identifier: Apache-2.0
// Bringing memory to the cache before it is used.
#pragma once

#include <cstdint>

namespace opp {

// Starts to bring these bytes to the L2 cache. The assembly is for GCC, which drops calls of functions that do nothing
// but prefetch, as if they had no effect.
inline void prefetch(const void* first, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(static_cast<const char*>(first) + i, 0, 2);
  asm volatile("");
}

}  // namespace opp
