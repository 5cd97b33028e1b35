// SPDX-License-Identifier: Apache-2.0
// Prints the names of files on operator types as libregister and the generator of headers have them.
#include <cstdio>

#include "definition.h"
#include "print_aclnn.cpp"

int main(int count, char** types) {
  for (int i = 1; i < count; ++i) {
    std::printf("%s %s\n", cann_cpu::snake_case(types[i]).c_str(), ge::codegen::snake_case(types[i]).c_str());
  }
}
