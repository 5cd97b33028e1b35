// SPDX-License-Identifier: Apache-2.0
// Prints the names of files on operator types as libregister has them.
#include <cstdio>

#include "metadef/definition.h"

int main(int count, char** types) {
  for (int i = 1; i < count; ++i) std::puts(cann_cpu::snake_case(types[i]).c_str());
}
