// SPDX-License-Identifier: Apache-2.0
// A thread that looks at the kernels that run, and ends the tasks of those whose time is over.
#include "timeouts.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "ascendc/launch.h"
#include "cann_cpu/timed_kernel.h"
#include "stream.h"

namespace cann_cpu {

struct TimedKernel::Watched {
  std::string kernel;
  std::shared_ptr<Stream> stream;
  uint64_t task;
  uint64_t limit;  // microseconds, as `passed`
  uint64_t passed = 0;
  bool is_over = false;
};

namespace {

// It counts its own looks, not the clock: a program that is stopped in a debugger loses no time.
class Watch {
 public:
  using Kernels = std::list<TimedKernel::Watched>;

  static Watch& instance() {
    static auto* const watch = new Watch;
    return *watch;
  }

  Kernels::iterator add(TimedKernel::Watched kernel) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_running_, true)) std::thread([this] { look(); }).detach();
    // The others notice in time that there is a kernel.
    if (kernel.limit < 10 * kLook && !std::exchange(is_fine_, true)) looks_.notify_one();
    return kernels_.insert(kernels_.end(), std::move(kernel));
  }

  void remove(Kernels::iterator kernel) {
    const std::lock_guard lock(mutex_);
    kernels_.erase(kernel);
  }

 private:
  static constexpr uint64_t kLook = 100'000, kFineLook = 1'000;

  [[noreturn]] void look() {
    std::unique_lock lock(mutex_);
    while (true) {
      const uint64_t interval = is_fine_ ? kFineLook : kLook;
      if (looks_.wait_for(lock, std::chrono::microseconds(interval)) == std::cv_status::no_timeout) continue;
      is_fine_ = false;
      for (TimedKernel::Watched& kernel : kernels_) {
        kernel.passed += interval;
        is_fine_ = is_fine_ || (kernel.limit < 10 * kLook && !kernel.is_over);
        if (kernel.is_over || kernel.passed < kernel.limit) continue;
        kernel.is_over = true;
        const std::string limit = std::to_string(static_cast<double>(kernel.limit) / 1e6);
        kernel.stream->leave_task(
            kernel.task, {ACL_ERROR_RT_AICORE_TIMEOUT, "kernel " + kernel.kernel + " did not end within " + limit +
                                                           " s (aclrtSetOpExecuteTimeOut, or its launch's time-out)"});
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable looks_;
  Kernels kernels_;
  bool is_running_ = false;
  bool is_fine_ = false;
};

}  // namespace

// Kernels that are checked take a thousand times as long, and the check `schedule` knows no other thread of a stream.
TimedKernel::TimedKernel(const char* kernel, std::optional<uint64_t> microseconds) {
  const uint64_t limit = microseconds.value_or(kernel_timeout_us);
  Stream* const stream = running_stream();
  if (limit == 0 || stream == nullptr || scheduler != nullptr || AscendC::cpu::checks_by_default()) return;
  watched_ = Watch::instance().add({kernel, stream->shared_from_this(), stream->running_task(), limit});
}

TimedKernel::~TimedKernel() {
  if (watched_) Watch::instance().remove(*watched_);
}

}  // namespace cann_cpu
