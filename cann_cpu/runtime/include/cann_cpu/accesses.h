// SPDX-License-Identifier: Apache-2.0
// The memory accesses of a task, for the checks of whole programs (docs/checks.md).
#pragma once

#include <cstdint>
#include <vector>

#include "cann_cpu/export.h"

namespace cann_cpu {

struct Access {
  uintptr_t begin;
  uintptr_t end;
  bool is_write;
  uint32_t argument;  // of the task's function, from 1; 0: none of them
};

using Accesses = std::vector<Access>;

// Whether a check or the profiler needs the accesses. Otherwise they need not be collected.
CANN_EXPORT bool accesses_are_checked();

}  // namespace cann_cpu
