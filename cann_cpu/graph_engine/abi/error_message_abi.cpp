// SPDX-License-Identifier: Apache-2.0
// GEGetErrorMsg, with the string ABI of before C++11 that torchair imports: CMake compiles this file so.
#include <string>

#include "cann_cpu/export.h"

static_assert(_GLIBCXX_USE_CXX11_ABI == 0, "this file needs -D_GLIBCXX_USE_CXX11_ABI=0");

namespace cann_cpu::graph {
const char* last_error();
}

namespace ge {

CANN_EXPORT std::string GEGetErrorMsg() { return cann_cpu::graph::last_error(); }

}  // namespace ge
