// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

namespace cann_cpu {

// A function of the Python that runs the process; null in a program without one.
template <class Function>
Function* python_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace cann_cpu
