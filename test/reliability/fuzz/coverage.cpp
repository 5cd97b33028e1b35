// SPDX-License-Identifier: Apache-2.0
// The entry of clang's libFuzzer, which draws what it gives by what code the last has reached.
#include <cstdint>

#include "reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  is_valid({reinterpret_cast<const char*>(data), size});
  return 0;
}
