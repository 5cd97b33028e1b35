// SPDX-License-Identifier: Apache-2.0
// Keeps the errors of phase two in torch_npu's task queue until they are raised.
#pragma once

#include <string>

namespace custom_pypto {

// Keeps an error for the next raise_late_errors(); where the process ends without one, it is printed.
void keep_late_error(std::string message);

// Throws what was kept since the last time, if anything was.
void raise_late_errors();

}  // namespace custom_pypto
