// SPDX-License-Identifier: Apache-2.0
// Conversions of attributes.
#include "attributes.h"

#include <charconv>
#include <cmath>

namespace cann_cpu::graph {

double widened(float value) {
  if (!std::isfinite(value)) {
    return value;
  }
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double result = value;
  std::from_chars(text, written.ptr, result);
  return result;
}

}  // namespace cann_cpu::graph
