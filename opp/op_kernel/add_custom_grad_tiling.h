// SPDX-License-Identifier: Apache-2.0
// The division of AddCustomGrad's work among blocks, in plain C++ for the host and the kernel.
#pragma once

#include <cstdint>

namespace opp {

struct AddCustomGradTiling {
  static constexpr uint32_t kTileBytes = 64 * 1024;  // that a block has in the unified buffer at a time, twice

  uint64_t bytes;
  uint64_t per_block;  // a multiple of kTileBytes
};

}  // namespace opp
