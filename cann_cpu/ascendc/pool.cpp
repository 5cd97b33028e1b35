// SPDX-License-Identifier: Apache-2.0
// The threads that run blocks of kernels.
#include "pool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ascendc/launch.h"
#include "cann_cpu/read_number.h"
#include "fiber.h"

namespace AscendC::cpu {

// A thread's part of a job: the tasks that it has begun.
class Job::Worker {
 public:
  explicit Worker(Job& job) : job_(job), outer_(std::exchange(current_, this)) {}
  ~Worker() { current_ = outer_; }
  Worker(const Worker&) = delete;

  static Worker& current() { return *current_; }
  static void number_thread(uint32_t number) { thread_ = number; }

  // Continues a task whose condition holds, else begins one, else continues one that polls; false if there is none.
  bool run_next() {
    const auto may_go_on = [](const Waiting& waiting) {
      if (waiting.condition == nullptr) return false;
      const std::lock_guard lock(*waiting.mutex);
      return (*waiting.condition)();
    };
    const auto polls = [](const Waiting& waiting) { return waiting.condition == nullptr; };
    return resume_one(may_go_on) || begin() || resume_one(polls);
  }
  bool waits() const { return !waiting_.empty(); }

  // Suspends the task, until the condition holds if there is one.
  void suspend(std::mutex* mutex, const std::function<bool()>* condition) {
    suspended_ = {nullptr, mutex, condition};
    Fiber::current()->suspend();
  }

 private:
  struct Waiting {
    std::unique_ptr<Fiber> fiber;
    std::mutex* mutex;
    const std::function<bool()>* condition;
  };

  template <class Predicate>
  bool resume_one(const Predicate& may) {
    const auto waiting = std::ranges::find_if(waiting_, may);
    if (waiting == waiting_.end()) return false;
    std::unique_ptr<Fiber> fiber = std::move(waiting->fiber);
    waiting_.erase(waiting);
    fiber->resume();
    keep(std::move(fiber));
    return true;
  }

  bool begin() {
    if (task_ == end_ && !job_.has_more()) return false;
    if (idle_.empty() && !add_idle()) return false;
    std::unique_ptr<Fiber> fiber = std::move(idle_.back());
    idle_.pop_back();
    fiber->start([this] { run_tasks(); });
    keep(std::move(fiber));
    return true;
  }

  // Returns false if there is no memory for a fiber. A helper without tasks leaves the job to other threads; in any
  // other thread the job fails.
  bool add_idle() {
    try {
      idle_.push_back(std::make_unique<Fiber>());
      return true;
    } catch (...) {
      if (thread_ == 0 || task_ != end_ || waits()) {
        job_.keep_error(0, std::current_exception());
        (*job_.give_up_)();
      }
      return false;
    }
  }

  // One after the other, while none waits.
  void run_tasks() {
    for (uint32_t task; take(task);) {
      try {
        (*job_.task_)(task);
      } catch (...) {
        job_.keep_error(task, std::current_exception());
      }
      if (waits()) return;
    }
  }

  bool take(uint32_t& task) {
    do {
      if (task_ == end_ && !take_group()) return false;
      task = task_++;
    } while (task > job_.failed_);
    return true;
  }

  // Of this thread's share, then of the next ones.
  bool take_group() {
    for (size_t i = 0; i < job_.shares_.size(); ++i) {
      Job::Share& share = job_.shares_[(thread_ + i) % job_.shares_.size()];
      if (share.is_taken()) continue;
      const uint32_t group = share.next.fetch_add(1, std::memory_order_relaxed);
      if (group >= share.end) continue;
      task_ = group * job_.tasks_of_group_;
      end_ = task_ + job_.tasks_of_group_;
      return true;
    }
    return false;
  }

  // A fiber that has been suspended or has ended.
  void keep(std::unique_ptr<Fiber> fiber) {
    if (fiber->has_ended()) {
      idle_.push_back(std::move(fiber));
    } else {
      suspended_.fiber = std::move(fiber);
      waiting_.push_back(std::move(suspended_));
    }
  }

  Job& job_;
  Worker* const outer_;
  uint32_t task_ = 0, end_ = 0;  // of the group that was begun last
  Waiting suspended_;            // the task that has just been suspended
  std::list<Waiting> waiting_;
  static thread_local uint32_t thread_;  // of the pool, or 0
  static thread_local Worker* current_;
  static thread_local std::vector<std::unique_ptr<Fiber>> idle_;
};

thread_local uint32_t Job::Worker::thread_ = 0;
thread_local Job::Worker* Job::Worker::current_ = nullptr;
thread_local std::vector<std::unique_ptr<Fiber>> Job::Worker::idle_;

void Job::work() {
  Worker worker(*this);
  while (true) {
    const uint64_t seen = changes_;
    if (worker.run_next()) continue;
    if (!worker.waits()) return;
    sleep(seen);
  }
}

void Job::sleep(uint64_t seen) {
  std::unique_lock lock(mutex_);
  ++sleeping_;
  changed_.wait(lock, [&] { return changes_ != seen; });
  --sleeping_;
}

void Job::notify() {
  ++changes_;
  if (sleeping_ == 0) return;
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Job::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& condition) {
  while (!condition()) {
    lock.unlock();
    Worker::current().suspend(lock.mutex(), &condition);
    lock.lock();
  }
}

void Job::yield() { Worker::current().suspend(nullptr, nullptr); }

void Job::keep_error(uint32_t number, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (number > failed_) return;
  error_ = std::move(error);
  failed_ = number;
}

namespace {

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

// The processors of the calling thread. OMP_PROC_BIND binds the thread that loads OpenMP to the first of its places,
// and with it the threads that this one creates: then the other places count as well.
cpu_set_t allowed_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  void* const openmp = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (openmp == nullptr) return allowed;
  const auto places = reinterpret_cast<int (*)()>(dlsym(openmp, "omp_get_num_places"));
  const auto size_of = reinterpret_cast<int (*)(int)>(dlsym(openmp, "omp_get_place_num_procs"));
  const auto processors_of = reinterpret_cast<void (*)(int, int*)>(dlsym(openmp, "omp_get_place_proc_ids"));
  const bool is_known = places != nullptr && size_of != nullptr && processors_of != nullptr;
  for (int place = 0; is_known && place < places(); ++place) {
    std::vector<int> processors(static_cast<size_t>(size_of(place)));
    processors_of(place, processors.data());
    for (const int processor : processors) CPU_SET(processor, &allowed);
  }
  dlclose(openmp);
  return allowed;
}

// One for each processor that may be used, unless ASCENDC_CPU_THREADS says how many.
uint32_t number_of_threads(const cpu_set_t& allowed) {
  constexpr uint32_t kMaxThreads = 1024;
  const char* wanted = std::getenv("ASCENDC_CPU_THREADS");
  if (wanted != nullptr && *wanted != '\0') {
    const auto number = cann_cpu::read_number<uint32_t>(wanted);
    if (number && *number >= 1 && *number <= kMaxThreads) return *number;
    throw KernelError("ASCENDC_CPU_THREADS is \"" + std::string(wanted) +
                      "\"; expected a number of threads from 1 to " + std::to_string(kMaxThreads));
  }
  return std::min(static_cast<uint32_t>(CPU_COUNT(&allowed)), granted_processors());
}

}  // namespace

class Pool {
 public:
  Pool() : allowed_(allowed_processors()), threads_(number_of_threads(allowed_)) {
    for (uint32_t i = 1; i < threads_; ++i) std::thread([this, i] { help(i); }).detach();
  }

  uint32_t threads() const { return threads_; }

  void run(Job& job) {
    const bool is_shared = job.groups_ > 1 && threads_ > 1;
    if (is_shared) offer(job);
    job.work();
    if (is_shared) withdraw(job);
  }

 private:
  void offer(Job& job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(&job);
      ++offers_;
    }
    if (job.groups_ >= threads_) {
      offered_.notify_all();
    } else {
      for (uint32_t i = 1; i < job.groups_; ++i) offered_.notify_one();
    }
  }

  void withdraw(Job& job) {
    std::unique_lock lock(mutex_);
    jobs_.remove(&job);
    const auto has_left = [&] { return job.helpers_ == 0; };
    if (has_left()) return;
    lock.unlock();
    expect(has_left);
    lock.lock();
    left_.wait(lock, has_left);
  }

  Job* next() {
    const auto job = std::ranges::find_if(jobs_, [](const Job* each) { return each->has_more(); });
    return job != jobs_.end() ? *job : nullptr;
  }

  [[noreturn]] void help(uint32_t number) {
    Job::Worker::number_thread(number);
    pthread_setaffinity_np(pthread_self(), sizeof(allowed_), &allowed_);
    std::unique_lock lock(mutex_);
    while (true) {
      Job* job = next();
      if (job == nullptr) {
        lock.unlock();
        expect([this, seen = offers_.load()] { return offers_ != seen; });
        lock.lock();
        offered_.wait(lock, [&] { return (job = next()) != nullptr; });
      }
      ++job->helpers_;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->helpers_ == 0) left_.notify_all();
    }
  }

  // Waking a thread takes as long as many a kernel: what is soon to come is waited for awake.
  template <class Condition>
  static void expect(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }

  const cpu_set_t allowed_;
  const uint32_t threads_;
  std::atomic<uint64_t> offers_ = 0;
  std::mutex mutex_;
  std::condition_variable offered_;
  std::condition_variable left_;
  std::list<Job*> jobs_;
};

namespace {

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

// Where there are fewer groups than threads, every task may run in another one.
Job::Job(uint32_t groups, uint32_t tasks_of_group)
    : groups_(groups < pool().threads() ? groups * tasks_of_group : groups),
      tasks_of_group_(groups < pool().threads() ? 1 : tasks_of_group),
      shares_(std::max(1u, std::min(groups_, pool().threads()))) {
  for (uint32_t begin = 0, i = 0; i < shares_.size(); ++i) {
    shares_[i].next = begin;
    shares_[i].end = begin = static_cast<uint32_t>(uint64_t{groups_} * (i + 1) / shares_.size());
  }
}

void Job::run(const std::function<void(uint32_t)>& task, const std::function<void()>& give_up) {
  task_ = &task;
  give_up_ = &give_up;
  pool().run(*this);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace AscendC::cpu
