// SPDX-License-Identifier: Apache-2.0
// Start and end of the runtime in a process: configuration, versions, fork and exit.
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "cann_cpu/cpu_capability.h"
#include "checks/fault.h"
#include "checks/report.h"
#include "checks/schedule.h"
#include "configuration.h"
#include "device.h"

namespace cann_cpu {
namespace {

// The CANN whose interface is implemented: torch_npu chooses by these what it calls.
constexpr const char* kCannVersion = "8.5.0";
constexpr const char* kDriverVersion = "25.5.0";

std::atomic<bool> initialized{false};
std::atomic<bool> dead_after_fork{false};

void release_contexts() {
  for (const auto& context : contexts().find_if([](const Context&) { return true; })) context->release();
}

void release_all() {
  release_contexts();
  for (const auto& device : devices()) release_device(*device);
}

void end_streams() {
  if (!dead_after_fork) release_contexts();
}

void mark_child() { dead_after_fork = Context::living > 0; }

const bool handlers_set = [] {
  pthread_atfork(nullptr, nullptr, mark_child);
  return true;
}();

int32_t read_default_device(const char* path) {
  std::ifstream file(path);
  if (!file) fail(ACL_ERROR_INVALID_FILE, "cannot read %s", path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    const int32_t id = default_device_of(text).value_or(-1);
    if (id >= 0) find_device(id);
    return id;
  } catch (Failure& failure) {
    failure.message = std::string(path) + ": " + failure.message;
    throw;
  }
}

// torch_npu's release thread sleeps for a microsecond between two looks at its queue, for ever. Linux makes that 50 us
// by default, and a look takes 9 us from a core: where there are few, kernels take a sixth longer. With a millisecond
// it is a hundredth. The threads that the caller makes inherit how far sleeps may stretch.
void let_sleeps_stretch() {
  constexpr unsigned long nanoseconds = 1'000'000;
  if (prctl(PR_GET_TIMERSLACK) < static_cast<int>(nanoseconds)) prctl(PR_SET_TIMERSLACK, nanoseconds);
}

void initialize(const char* path) {
  if (initialized.exchange(true)) fail(ACL_ERROR_REPEAT_INITIALIZE, "called before");
  try {
    cpu_capability();  // an error in its variable is named here, not by the first kernel
    require_known_checks();
    fault::require_readable();
    schedule::require_seed();
    set_default_device(path == nullptr || *path == '\0' ? -1 : read_default_device(path));
  } catch (...) {
    initialized = false;
    throw;
  }
  let_sleeps_stretch();
}

void finalize() {
  if (!initialized.exchange(false)) fail(ACL_ERROR_UNINITIALIZE, "aclInit was not called");
  set_default_device(-1);
  if (!dead_after_fork) release_all();
}

const char* version_of(const std::string& package) { return package == "DRIVER" ? kDriverVersion : kCannVersion; }

}  // namespace

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
  fault::end();
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

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version) {
  return host_call(__func__, [&] {
    require_pointer(version, "version");
    if (name < ACL_PKG_NAME_CANN || name > ACL_PKG_NAME_DRIVER) {
      fail(ACL_ERROR_INVALID_PARAM, "package %d is unknown", name);
    }
    *version = {};
    const char* text = version_of(name == ACL_PKG_NAME_DRIVER ? "DRIVER" : "CANN");
    std::strcpy(version->version, text);
    std::sscanf(text, "%63[^.].%63[^.].%63s", version->majorVersion, version->minorVersion, version->releaseVersion);
  });
}

aclError aclsysGetVersionStr(char* pkgName, char* versionStr) {
  return host_call(__func__, [&] {
    require_pointer(pkgName, "pkgName");
    require_pointer(versionStr, "versionStr");
    std::strcpy(versionStr, version_of(pkgName));
  });
}
