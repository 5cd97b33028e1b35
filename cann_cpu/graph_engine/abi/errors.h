// SPDX-License-Identifier: Apache-2.0
// The text of a thread's last error, and the way from exceptions to status codes.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "ge/ge_error_codes.h"

namespace cann_cpu::graph {

void set_last_error(const std::string& text);
const char* last_error();

// A call before GEInitialize, or after GEFinalize.
struct NotInitialized : std::runtime_error {
  NotInitialized() : std::runtime_error("the Graph Engine is not initialized; call ge::GEInitialize first") {}
};

// The status that the check `fault` injects into the call of the function; SUCCESS: the call continues.
ge::Status injected_failure(const char* function);

// Runs body; what it throws becomes FAILED, or the status that CANN documents for it, and the thread's last error.
//
// The caller's dispatch modes do not see the engine's own calls of ATen. A tensor that one of them has seen has a
// Python object, and dropping its last reference needs the GIL: a stream's thread would wait for the GIL while the
// GIL's holder waits for the stream, as torchair does when it drops a graph.
template <class Body>
ge::Status guarded(const char* function, const Body& body) noexcept {
  const c10::impl::ExcludeDispatchKeyGuard past_modes(c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::PreDispatch}));
  try {
    if (const ge::Status failure = injected_failure(function)) return failure;
    body();
    return ge::SUCCESS;
  } catch (const NotInitialized& error) {
    set_last_error(error.what());
    return ge::GE_CLI_GE_NOT_INITIALIZED;
  } catch (const std::exception& error) {
    set_last_error(error.what());
  } catch (...) {
    set_last_error("an unknown exception");
  }
  return ge::FAILED;
}

}  // namespace cann_cpu::graph
