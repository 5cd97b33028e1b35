// SPDX-License-Identifier: Apache-2.0
// Errors of phase two that came up in torch_npu's task queue, behind the caller's back, until they are raised.
#pragma once

#include <string>

namespace custom_pypto {

// Keeps an error for the next raise_late_errors(); where the process ends without one, it is printed.
void keep_late_error(std::string message);

// Throws what was kept since the last time, if anything was.
void raise_late_errors();

}  // namespace custom_pypto
