// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string_view>
#include <thread>

#include "call_site.h"
#include "observers.h"
#include "report.h"
#include "runtime/stream.h"

namespace cann_cpu::schedule {
namespace {

constexpr auto kLook = std::chrono::milliseconds(1);   // polls what sends no signal: memory, other threads
constexpr auto kDoze = std::chrono::milliseconds(20);  // between two looks whether the host sleeps
constexpr int kLooksOfSleep = 5, kLooksOfDeepSleep = 150;
constexpr std::clock_t kSilence = 10 * CLOCKS_PER_SEC;  // of the process's own time: others may slow the machine
constexpr auto kPatience = std::chrono::minutes(1);

uint64_t given_seed() {
  const char* text = std::getenv("CANN_CPU_SEED");
  if (text == nullptr) return 1;
  uint64_t seed = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, status] = std::from_chars(text, end, seed);
  if (status != std::errc() || rest != end) {
    fail(ACL_ERROR_INVALID_PARAM, "CANN_CPU_SEED is \"%s\"; expected a number, 0 for the order of the launches", text);
  }
  return seed;
}

// A stream that has had tasks.
struct Member {
  uint64_t priority;
  size_t tasks = 0;                                 // not ended
  const Scheduler::Condition* condition = nullptr;  // of the wait that its task is in
  bool is_suspended = false;
  bool is_in_host_function = false;

  bool can_go_on() const { return tasks > 0 && !is_suspended && (condition == nullptr || (*condition)()); }
};

// Whether all threads but this one sleep.
bool is_host_asleep() {
  const std::string self = std::to_string(syscall(SYS_gettid));
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    if (thread.path().filename() == self) continue;
    std::string line;
    std::getline(std::ifstream(thread.path() / "stat"), line);
    const size_t name_end = line.rfind(')');
    if (name_end != std::string::npos && line.compare(name_end, 3, ") S") != 0) return false;
  }
  return true;
}

class DrawnScheduler final : public Scheduler {
 public:
  DrawnScheduler() : seed_(given_seed()), random_(seed_) {
    constexpr uint64_t kOfSixteen[] = {0, 1, 4, 10};
    eagerness_ = kOfSixteen[random_() % 4];
    std::thread([this] { watch(); }).detach();
  }

  void launched(const Stream& stream) override {
    std::unique_lock lock(mutex_);
    ++calls_;
    if (ended_.contains(stream.id)) return;
    auto [found, is_new] = members_.try_emplace(stream.id);
    if (is_new) found->second.priority = random_();
    ++found->second.tasks;
    if (is_worker()) return;
    if (seed_ == 0) {
      run(lock, [&] { return !draw_would_find(); });
    } else if (random_() % 16 < eagerness_) {
      for (size_t tasks = 1 + random_() % 4; tasks > 0; --tasks) run_one(lock);
    }
  }

  void asked() override {
    std::unique_lock lock(mutex_);
    ++calls_;
    if (!is_worker() && random_() % 2 == 0) run_one(lock);
  }

  bool wait(const Condition& condition, const Deadline& deadline) override {
    if (const Stream* const own = running_stream()) {
      const auto is_late = [&] { return deadline && std::chrono::steady_clock::now() >= *deadline; };
      block(*own, [&] { return condition() || is_late(); });
      return condition();
    }
    std::unique_lock lock(mutex_);
    ++calls_;
    ++waiting_;
    const bool held = run(lock, condition, deadline);
    if (held && seed_ != 0 && random_() % 2 == 0) {  // the host gets to know late
      for (size_t tasks = random_() % 8; tasks > 0; --tasks) run_one(lock);
    }
    --waiting_;
    return held;
  }

  void ended(const Stream& stream) override {
    const std::lock_guard lock(mutex_);
    members_.erase(stream.id);
    ended_.insert(stream.id);
    if (turn_ == stream.id) turn_.reset();
    changed_.notify_all();
  }

  void begin_turn(const Stream& stream) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_turn_of(stream); });
  }

  void end_turn(const Stream& stream, size_t tasks) override {
    const std::lock_guard lock(mutex_);
    const auto found = members_.find(stream.id);
    if (found == members_.end()) return;
    found->second.tasks -= std::min(tasks, found->second.tasks);
    leave(stream);
  }

  void block(const Stream& stream, const Condition& condition) override {
    std::unique_lock lock(mutex_);
    const auto found = members_.find(stream.id);
    if (found == members_.end()) return;
    found->second.condition = &condition;
    leave(stream);
    changed_.wait(lock, [&] { return is_turn_of(stream); });
    if (const auto still = members_.find(stream.id); still != members_.end()) still->second.condition = nullptr;
  }

  void suspend(const Stream& stream) override {
    const std::lock_guard lock(mutex_);
    const auto found = members_.find(stream.id);
    if (found == members_.end()) return;
    found->second.is_suspended = true;
    leave(stream);
  }

  void resume(const Stream& stream) override {
    std::unique_lock lock(mutex_);
    const auto found = members_.find(stream.id);
    if (found == members_.end()) return;
    found->second.is_suspended = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_turn_of(stream); });
  }

  void begin_host_function(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    const auto found = members_.find(stream.id);
    if (found == members_.end()) return;
    found->second.is_in_host_function = true;
    changed_.notify_all();
  }

  void end_host_function(const Stream& stream) {
    std::unique_lock lock(mutex_);
    const auto found = members_.find(stream.id);
    if (found == members_.end()) return;
    found->second.is_in_host_function = false;
    if (!found->second.is_suspended) return;
    lock.unlock();
    resume(stream);
  }

 private:
  // A stream that has ended takes no turns: its abandoned worker is not ordered with others.
  bool is_turn_of(const Stream& stream) const { return turn_ == stream.id || ended_.contains(stream.id); }

  void leave(const Stream& stream) {
    if (turn_ == stream.id) turn_.reset();
    changed_.notify_all();
  }

  bool draw_would_find() const {
    return std::ranges::any_of(members_, [](const auto& member) { return member.second.can_go_on(); });
  }

  // Gives the turn to the stream of the highest priority that can continue. Priorities change now and then: a stream
  // may wait for long, or take turns with others.
  bool draw() {
    auto best = members_.end();
    for (auto member = members_.begin(); member != members_.end(); ++member) {
      if (!member->second.can_go_on()) continue;
      if (best == members_.end() || member->second.priority > best->second.priority) best = member;
    }
    if (best == members_.end()) return false;
    if (random_() % 4 == 0) best->second.priority = random_();
    turn_ = best->first;
    changed_.notify_all();
    return true;
  }

  // Lets the running host function continue beside the others.
  void let_host_function_go() {
    const auto found = turn_ ? members_.find(*turn_) : members_.end();
    if (found == members_.end() || !found->second.is_in_host_function) return;
    found->second.is_suspended = true;
    turn_.reset();
  }

  // Until the condition holds, and no task runs. A thread that has the GIL keeps it, as it would on an NPU: it may hold
  // a lock that others wait for. So it does not wait for host functions, which may be Python's.
  bool run(std::unique_lock<std::mutex>& lock, const Condition& condition, const Deadline& deadline = {}) {
    const bool keeps_gil = has_gil();
    while (true) {
      if (keeps_gil) let_host_function_go();
      if (!turn_ && condition()) return true;
      if (deadline && std::chrono::steady_clock::now() >= *deadline) return false;
      if (!turn_ && draw()) continue;
      changed_.wait_for(lock, turn_ && !deadline ? std::chrono::milliseconds(100) : kLook);
    }
  }

  // A task that does not end may need the host. Then the host continues.
  void run_one(std::unique_lock<std::mutex>& lock) {
    bool is_over = false;
    run(
        lock, [&] { return std::exchange(is_over, true) || !draw_would_find(); },
        std::chrono::steady_clock::now() + kPatience);
  }

  // What the host waits for may depend on tasks without its asking for them: of a callback, or of another process.
  void watch() {
    uint64_t seen = 0;
    // Some seeds let a host sleep that hopes for tasks to end meanwhile.
    const int looks_of_sleep = seed_ % 4 == 3 ? kLooksOfDeepSleep : kLooksOfSleep;
    std::clock_t heard = std::clock();
    for (int sleep = 0;; std::this_thread::sleep_for(kDoze)) {
      std::unique_lock lock(mutex_);
      const bool is_silent = waiting_ == 0 && !turn_ && calls_ == std::exchange(seen, calls_) && draw_would_find();
      if (!is_silent) heard = std::clock();
      sleep = is_silent && is_host_asleep() ? sleep + 1 : 0;
      if (sleep < looks_of_sleep && std::clock() - heard < kSilence) continue;
      run(lock, [&] { return !draw_would_find(); });
    }
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  uint64_t eagerness_;  // how often of 16 launches the streams go on at once
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, Member> members_;  // by the stream's number
  std::set<int32_t> ended_;
  std::optional<int32_t> turn_;  // whose task runs
  uint64_t calls_ = 0;
  int waiting_ = 0;
};

DrawnScheduler& only_scheduler() {
  static auto* const only = new DrawnScheduler;
  return *only;
}

uint64_t digest_of(const Accesses& accesses) {
  uint64_t digest = 0;
  for (const Access& access : accesses) {
    if (!access.is_write) continue;
    const std::string_view bytes(reinterpret_cast<const char*>(access.begin), access.end - access.begin);
    digest = digest * 31 + std::hash<std::string_view>{}(bytes);
  }
  return digest;
}

// The names and numbers of a launch's tasks distinguish them.
struct Launch {
  uint64_t number;
  std::string where;
};

Launch next_launch() {
  static std::atomic<uint64_t> launches{0};
  return {launches++, python_call_site()};
}

void keep_digest(const Launch& launch, size_t node, const std::string& task, const Accesses& accesses) {
  static const int file = open(std::getenv("CANN_CPU_DIGESTS"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  static const char* const rank = std::getenv("RANK");  // of the programs that torchrun starts
  const std::string line = std::string(rank == nullptr ? "0" : rank) + "\t" + std::to_string(launch.number) + "\t" +
                           std::to_string(node) + "\t" + task + "\t" + launch.where + "\t" +
                           std::to_string(digest_of(accesses)) + "\n";
  if (::write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw Failure{ACL_ERROR_WRITE_FILE, "cannot write to the file that CANN_CPU_DIGESTS names"};
  }
}

struct ScheduleObserver final : Observer {
  void on_start() override { given_seed(); }

  void on_queue(const Stream&, const char* name, const Accesses& accesses, Task& task) override {
    if (accesses.empty() || !are_digests_kept()) return;
    task = [task = std::move(task), name = std::string(name), accesses, launch = next_launch()] {
      const aclError code = task();
      keep_digest(launch, 0, name, accesses);
      return code;
    };
  }

  void on_replay(const Stream&, std::span<const CapturedTask> tasks, TaskEnds& ends) override {
    if (!are_digests_kept()) return;
    ends.push_back([tasks, launch = next_launch()](size_t i) {
      keep_digest(launch, i + 1, "captured graph: " + tasks[i].name, tasks[i].accesses);
    });
  }

  // Its task is the program's own function, which may be Python's and need the GIL.
  void on_host_function(const Stream& stream, bool, Scope& scope) override {
    only_scheduler().begin_host_function(stream);
    scope.emplace_back(nullptr, [&stream](void*) { only_scheduler().end_host_function(stream); });
  }
} schedule_observer;

}  // namespace
}  // namespace cann_cpu::schedule

namespace cann_cpu {

Observer& schedules = schedule::schedule_observer;

Scheduler& drawn_scheduler() { return schedule::only_scheduler(); }

bool are_digests_kept() {
  static const bool kept = is_on(Check::kSchedule) && std::getenv("CANN_CPU_DIGESTS") != nullptr;
  return kept;
}

}  // namespace cann_cpu
