// SPDX-License-Identifier: Apache-2.0
// Tasks for the tests of streams, launched through the C++ interface that operators use.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "acl/acl_rt.h"
#include "cann_cpu/deterministic.h"
#include "cann_cpu/runtime.h"

using cann_cpu::launch;

namespace {

std::atomic<bool> statics_alive{true};

// Stands for the static objects of the libraries that tasks use; takes its time to go.
struct Static {
  ~Static() {
    statics_alive = false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
} static_object;

}  // namespace

extern "C" {

CANN_EXPORT int is_deterministic() { return cann_cpu::is_deterministic(); }

CANN_EXPORT int launch_failing(void* stream, const char* name, int code, const char* message) {
  return launch(stream, name, [code, text = std::string(message)] {
    return text.empty() ? code : cann_cpu::error(code, "%s", text.c_str());
  });
}

// Appends a digit to the value.
CANN_EXPORT int launch_digit(void* stream, const char* name, int64_t* value, int digit) {
  return launch(stream, name, [=] {
    *value = 10 * *value + digit;
    return ACL_SUCCESS;
  });
}

CANN_EXPORT int launch_throwing(void* stream, const char* message) {
  return launch(stream, "Throwing", [text = std::string(message)]() -> aclError { throw std::runtime_error(text); });
}

CANN_EXPORT int launch_empty(void* stream) { return launch(stream, "Empty", nullptr); }

CANN_EXPORT int launch_increment(void* stream, int64_t* counter) {
  return launch(stream, "Increment", [counter] {
    ++*counter;
    return ACL_SUCCESS;
  });
}

// Multiplies, then adds: the result depends on the order of tasks.
CANN_EXPORT int launch_affine(void* stream, int64_t* value, int64_t factor, int64_t summand) {
  return launch(stream, "Affine", [=] {
    *value = *value * factor + summand;
    return ACL_SUCCESS;
  });
}

// Returns only when `parties` tasks have come here; -1 when the others did not come within ten seconds.
CANN_EXPORT int launch_rendezvous(void* stream, std::atomic<int64_t>* arrived, int64_t parties) {
  return launch(stream, "Rendezvous", [=]() -> aclError {
    ++*arrived;
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (*arrived < parties) {
      if (std::chrono::steady_clock::now() > deadline) return cann_cpu::error(-1, "the others did not come");
      std::this_thread::yield();
    }
    return ACL_SUCCESS;
  });
}

// Ends the process with 9 when it runs while static objects are destroyed.
CANN_EXPORT int launch_user_of_statics(void* stream) {
  return launch(stream, "UserOfStatics", [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!statics_alive) std::_Exit(9);
    return ACL_SUCCESS;
  });
}

// A task that launches another on `inner`, synchronises `inner` and writes what it finds then.
CANN_EXPORT int launch_nested(void* outer, void* inner, int64_t* counter, int64_t* found) {
  return launch(outer, "Outer", [=]() -> aclError {
    if (aclError code = launch_increment(inner, counter)) return code;
    if (aclError code = aclrtSynchronizeStream(inner)) return code;
    *found = *counter;
    return ACL_SUCCESS;
  });
}

// Writes the device that the runtime calls current inside a task.
CANN_EXPORT int launch_current_device(void* stream, int64_t* found) {
  return launch(stream, "CurrentDevice", [=] {
    int32_t device = -1;
    aclError code = aclrtGetDevice(&device);
    *found = device;
    return code;
  });
}

CANN_EXPORT bool is_this_thread(void* stream, int64_t* found) {
  auto caller = std::this_thread::get_id();
  launch(stream, "Thread", [=] {
    *found = std::this_thread::get_id() == caller;
    return ACL_SUCCESS;
  });
  aclrtSynchronizeStream(stream);
  return *found != 0;
}
}
