// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

struct SumIntoTiling {
  uint32_t terms;
  uint32_t elements;
};
