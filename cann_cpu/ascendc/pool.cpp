// SPDX-License-Identifier: Apache-2.0
// The threads that run blocks of kernels.
#include "pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ascendc/launch.h"
#include "cann_cpu/read_number.h"

namespace AscendC::cpu {
namespace {

// The tasks of one call, which threads take one after the other.
class Job {
 public:
  Job(uint32_t count, const std::function<void(uint32_t)>& task) : count_(count), task_(task) {}

  bool has_more() const { return next_.load(std::memory_order_relaxed) < count_; }

  void work() {
    Job* const outer = std::exchange(current_, this);
    for (uint32_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) {
      try {
        task_(i);
      } catch (...) {
        keep_error(i, std::current_exception());
      }
    }
    current_ = outer;
  }

  static Job* current() { return current_; }

  void add_worker() {
    if (!has_more()) return;
    const std::lock_guard lock(mutex_);
    added_.emplace_back([this] { work(); });
  }

  // Threads may be added until all have ended. An added thread works on a separate task.
  void join() {
    while (true) {
      std::thread next;
      {
        const std::lock_guard lock(mutex_);
        if (added_.empty()) return;
        next = std::move(added_.back());
        added_.pop_back();
      }
      next.join();
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  uint32_t helpers = 0;  // guarded by the pool's mutex

 private:
  void keep_error(uint32_t number, std::exception_ptr error) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (error_ && error_of_ < number) return;
    error_ = std::move(error);
    error_of_ = number;
  }

  const uint32_t count_;
  const std::function<void(uint32_t)>& task_;
  std::atomic<uint32_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr error_;
  uint32_t error_of_ = 0;
  std::vector<std::thread> added_;
  static thread_local Job* current_;
};

thread_local Job* Job::current_ = nullptr;

// How many processors' time the process is granted by its control groups and those above them.
uint32_t granted_processors() {
  uint32_t granted = std::numeric_limits<uint32_t>::max();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const bool is_unified = controllers == ",,";
    if (!is_unified && controllers.find(",cpu,") == std::string::npos) continue;
    const std::filesystem::path root = is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    for (std::filesystem::path group = line.substr(second + 1);; group = group.parent_path()) {
      const std::filesystem::path folder = root / group.relative_path();
      std::string quota, period;
      if (is_unified) {
        std::ifstream(folder / "cpu.max") >> quota >> period;
      } else {
        std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
        std::ifstream(folder / "cpu.cfs_period_us") >> period;
      }
      const auto microseconds = cann_cpu::read_number<int64_t>(quota), of = cann_cpu::read_number<int64_t>(period);
      if (microseconds && of && *microseconds > 0 && *of > 0) {
        granted = std::min<uint64_t>(granted, (*microseconds + *of - 1) / *of);
      }
      if (!group.has_relative_path()) break;
    }
  }
  return granted;
}

// One for each processor that the calling thread may use, unless ASCENDC_CPU_THREADS says how many.
uint32_t number_of_threads() {
  constexpr uint32_t kMaxThreads = 1024;
  const char* wanted = std::getenv("ASCENDC_CPU_THREADS");
  if (wanted != nullptr && *wanted != '\0') {
    const auto number = cann_cpu::read_number<uint32_t>(wanted);
    if (number && *number >= 1 && *number <= kMaxThreads) return *number;
    throw KernelError("ASCENDC_CPU_THREADS is \"" + std::string(wanted) +
                      "\"; expected a number of threads from 1 to " + std::to_string(kMaxThreads));
  }
  cpu_set_t allowed;
  const uint32_t processors = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                                  ? static_cast<uint32_t>(CPU_COUNT(&allowed))
                                  : std::thread::hardware_concurrency();
  return std::min(processors, granted_processors());
}

class Pool {
 public:
  Pool() {
    const uint32_t all = number_of_threads();
    for (uint32_t i = 1; i < all; ++i) std::thread([this] { help(); }).detach();
    threads_ = all > 1 ? all - 1 : 0;
  }

  void run(Job& job, uint32_t count) {
    if (count > 1 && threads_ != 0) offer(job, count);
    job.work();
    if (count > 1 && threads_ != 0) withdraw(job);
    job.join();
    job.rethrow();
  }

 private:
  void offer(Job& job, uint32_t count) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(&job);
    }
    if (count > threads_) {
      offered_.notify_all();
    } else {
      for (uint32_t i = 1; i < count; ++i) offered_.notify_one();
    }
  }

  void withdraw(Job& job) {
    std::unique_lock lock(mutex_);
    jobs_.remove(&job);
    left_.wait(lock, [&] { return job.helpers == 0; });
  }

  Job* next() {
    for (Job* job : jobs_) {
      if (job->has_more()) return job;
    }
    return nullptr;
  }

  [[noreturn]] void help() {
    std::unique_lock lock(mutex_);
    while (true) {
      Job* job;
      offered_.wait(lock, [&] { return (job = next()) != nullptr; });
      ++job->helpers;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->helpers == 0) left_.notify_all();
    }
  }

  uint32_t threads_ = 0;
  std::mutex mutex_;
  std::condition_variable offered_;
  std::condition_variable left_;
  std::list<Job*> jobs_;
};

// Never destroyed: its threads wait in it until the process ends.
std::atomic<Pool*> the_pool = nullptr;
std::mutex making_the_pool;

Pool& pool() {
  if (Pool* made = the_pool.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(making_the_pool);
  if (the_pool.load() == nullptr) {
    // A forked child has none of the threads, so it creates its own pool.
    [[maybe_unused]] static const int registered =
        pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr, std::memory_order_release); });
    the_pool.store(new Pool, std::memory_order_release);
  }
  return *the_pool.load();
}

}  // namespace

void run_in_parallel(uint32_t count, const std::function<void(uint32_t)>& task) {
  Job job(count, task);
  pool().run(job, count);
}

void add_worker() { Job::current()->add_worker(); }

}  // namespace AscendC::cpu
