// SPDX-License-Identifier: Apache-2.0
// The check `fault`: calls of CANN's functions that fail because they are asked to (docs/checks.md).
#pragma once

#include <cstddef>
#include <functional>

#include "cann_cpu/export.h"

namespace cann_cpu {

// 0, or the code with which this call of the function is to fail, its message set; `code` if the user has named none.
CANN_EXPORT int fault_of(const char* function, int code);

// Objects that a program is to give back: how many of this kind there are is asked at its end.
CANN_EXPORT void count_living(const char* kind, std::function<size_t()> count);

}  // namespace cann_cpu
