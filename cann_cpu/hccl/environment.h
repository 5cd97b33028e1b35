// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

#include "failure.h"

namespace cann_cpu {

// The number in an environment variable, from `least` to `most`; `otherwise` where it is not set.
inline int number_in(const char* variable, int otherwise, int least, int most) {
  const char* given = std::getenv(variable);
  if (given == nullptr) return otherwise;
  char* end = nullptr;
  const long number = std::strtol(given, &end, 10);
  if (end == given || *end != '\0' || number < least || number > most) {
    throw CollectiveFailure(HCCL_E_PARA, std::string(variable) + " is '" + given + "'; expected a number from " +
                                             std::to_string(least) + " to " + std::to_string(most));
  }
  return static_cast<int>(number);
}

}  // namespace cann_cpu
