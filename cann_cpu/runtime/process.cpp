// SPDX-License-Identifier: Apache-2.0
// Start and end of the runtime in a process: configuration, fork and exit.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "cann_cpu/cpu_capability.h"
#include "configuration.h"
#include "device.h"
#include "observer.h"
#include "stream.h"
#include "version.h"

namespace cann_cpu {
namespace {

std::atomic<bool> initialized{false};
std::atomic<bool> finalized{false};
std::atomic<bool> dead_after_fork{false};

void release_contexts() {
  for (const auto& context : contexts().find_if([](const Context&) { return true; }))
    context->release(/*discard=*/true);
}

void release_all() {
  release_contexts();
  for (const auto& device : devices()) release_device(*device, /*discard=*/true);
}

void end_streams() {
  if (dead_after_fork) return;
  end_stream_callbacks();
  release_contexts();
}

void mark_child() { dead_after_fork = Context::live > 0; }

const bool handlers_set = [] {
  pthread_atfork(nullptr, nullptr, mark_child);
  return true;
}();

Configuration read_file(const char* path) {
  if (path == nullptr || *path == '\0') return {};
  std::ifstream file(path);
  if (!file) fail(ACL_ERROR_INVALID_FILE, "cannot read %s", path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    const Configuration configuration = read_configuration(text);
    if (configuration.default_device) find_device(*configuration.default_device);
    return configuration;
  } catch (Failure& failure) {
    failure.message = std::string(path) + ": " + failure.message;
    throw;
  }
}

thread_local ptrdiff_t devices_before = 0;

ptrdiff_t devices_with_memory() {
  return std::ranges::count_if(devices(), [](const auto& device) { return device->peak > 0; });
}

void initialize(const char* path) {
  if (initialized.exchange(true)) fail(ACL_ERROR_REPEAT_INITIALIZE, "called before");
  try {
    cpu_capability();  // an error in its variable is named here, not by the first kernel
    require_readable_version();
    notify(&Observer::on_start);
    const Configuration configuration = read_file(path);
    set_default_device(configuration.default_device.value_or(-1));
    share_messages(configuration.shares_messages);
  } catch (...) {
    initialized = false;
    throw;
  }
  set_timer_slack();
}

void finalize() {
  if (!initialized.exchange(false)) {
    if (finalized) fail(ACL_ERROR_REPEAT_FINALIZE, "called before");
    fail(ACL_ERROR_UNINITIALIZE, "aclInit was not called");
  }
  finalized = true;
  set_default_device(-1);
  share_messages(false);
  if (!dead_after_fork) release_all();
}

}  // namespace

// torch_npu's release thread of each device polls its queue until the process ends, and sleeps for a microsecond
// between two polls. Linux makes that 50 us by default, and a poll takes 9 us of a core: with few cores, kernels take a
// sixth longer. With a slack of a millisecond they take a hundredth longer. The release thread inherits the slack from
// the thread that called aclInit or set the device. That thread gets its slack back once the release thread exists,
// before the device has memory.
void set_timer_slack() {
  constexpr unsigned long nanoseconds = 1'000'000;
  if (kept_slack != 0) return;
  void* const torch_npu = dlopen("libtorch_npu.so", RTLD_NOW | RTLD_NOLOAD);
  if (torch_npu == nullptr) return;
  dlclose(torch_npu);
  devices_before = devices_with_memory();
  kept_slack = prctl(PR_GET_TIMERSLACK);
  if (kept_slack < static_cast<int>(nanoseconds)) prctl(PR_SET_TIMERSLACK, nanoseconds);
}

void restore_slack() {
  if (devices_with_memory() <= devices_before) return;
  prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(std::exchange(kept_slack, 0)));
}

aclError check_configuration(const char* function, const char* path) {
  return call(function, [&] { read_file(path); });
}

bool is_dead_after_fork() { return dead_after_fork; }

void end_streams_at_exit() {
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(end_streams); });
}

}  // namespace cann_cpu

using namespace cann_cpu;

aclError aclInit(const char* configPath) {
  return call(__func__, [&] { initialize(configPath); });
}

aclError aclFinalize() {
  notify(&Observer::on_end);
  return host_call(__func__, [&] { finalize(); });
}

// The version of the ACL interface itself.
aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  return host_call(__func__, [&] {
    require_pointer(majorVersion, "majorVersion");
    require_pointer(minorVersion, "minorVersion");
    require_pointer(patchVersion, "patchVersion");
    *majorVersion = 1;
    *minorVersion = 15;
    *patchVersion = 0;
  });
}
