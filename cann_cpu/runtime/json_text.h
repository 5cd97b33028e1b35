// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cann_cpu {

// A text as JSON writes it; control characters become spaces.
inline std::string quote(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "\"";
}

}  // namespace cann_cpu
