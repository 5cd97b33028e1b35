// SPDX-License-Identifier: Apache-2.0
// Tells the program's functions of each stream that is created or about to be destroyed.
#include <map>
#include <mutex>
#include <string>

#include "stream.h"

namespace cann_cpu {
namespace {

struct Callback {
  aclrtStreamStateCallback function;
  void* arguments;
};

struct Callbacks {
  std::mutex mutex;
  std::map<std::string, Callback> by_name;
};
Callbacks& callbacks() {
  static auto* const all = new Callbacks;
  return *all;
}

void set_callback(const char* name, aclrtStreamStateCallback function, void* arguments) {
  require_pointer(name, "regName");
  const std::lock_guard lock(callbacks().mutex);
  if (function == nullptr) {
    callbacks().by_name.erase(name);
  } else if (!callbacks().by_name.try_emplace(name, Callback{function, arguments}).second) {
    fail(ACL_ERROR_INVALID_PARAM, "regName %s has a callback already", name);
  }
}

}  // namespace

void report_stream_state(const Stream& stream, aclrtStreamState state) {
  std::map<std::string, Callback> called;  // they may create and destroy streams themselves
  {
    const std::lock_guard lock(callbacks().mutex);
    called = callbacks().by_name;
  }
  for (const auto& [name, callback] : called) callback.function(stream.handle, state, callback.arguments);
}

void end_stream_callbacks() {
  const std::lock_guard lock(callbacks().mutex);
  callbacks().by_name.clear();
}

}  // namespace cann_cpu

aclError aclrtRegStreamStateCallback(const char* regName, aclrtStreamStateCallback callback, void* args) {
  return cann_cpu::host_call(__func__, [&] { cann_cpu::set_callback(regName, callback, args); });
}
