// SPDX-License-Identifier: Apache-2.0
// The text of a thread's last error, and the way from exceptions to status codes.
#pragma once

#include <exception>
#include <string>

#include "ge/ge_error_codes.h"

namespace cann_cpu::graph {

void set_last_error(const std::string& text);
const char* last_error();

// Runs body; what it throws becomes FAILED and the thread's last error.
template <class Body>
ge::Status guarded(const Body& body) noexcept {
  try {
    body();
    return ge::SUCCESS;
  } catch (const std::exception& error) {
    set_last_error(error.what());
  } catch (...) {
    set_last_error("an unknown exception");
  }
  return ge::FAILED;
}

}  // namespace cann_cpu::graph
