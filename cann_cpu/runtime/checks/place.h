// SPDX-License-Identifier: Apache-2.0
// Where in the Python program a call comes from.
#pragma once

#include <string>

namespace cann_cpu {

// "train.py:12 in step", of the innermost function that is not PyTorch's; empty in a thread without Python. Takes the
// GIL: not to be called with a lock held.
std::string python_place();

}  // namespace cann_cpu
