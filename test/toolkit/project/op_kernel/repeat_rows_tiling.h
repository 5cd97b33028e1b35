// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

constexpr uint32_t kMostRows = 15;

struct RepeatRowsTiling {
  uint32_t rows;
  uint32_t columns;
  uint32_t out_rows;
  int32_t first[kMostRows + 1];
};
