// SPDX-License-Identifier: Apache-2.0
// What the kernel of AddTotal is told.
#pragma once

#include <cstdint>

struct AddTotalTiling {
  uint32_t elements;
  float total;
};
