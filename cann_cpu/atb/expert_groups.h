// SPDX-License-Identifier: Apache-2.0
// What operations that choose groups of experts take.
#pragma once

#include "operation.h"

namespace cann_cpu {

// x has shape (tokens, experts).
inline void check_expert_groups(In x, int64_t groups, int64_t k, int64_t n) {
  check_rank("x", x, 2);
  TORCH_CHECK(groups > 0 && x.size(1) % groups == 0, x.size(1), " experts do not divide among ", groups, " groups");
  check_range("the number of groups to keep", k, 1, groups);
  check_range("n", n, 1, x.size(1) / groups);
}

}  // namespace cann_cpu
