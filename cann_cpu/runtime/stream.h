// SPDX-License-Identifier: Apache-2.0
// A stream: a queue of tasks that one worker thread runs in order, and the first failure among them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <optional>
#include <set>
#include <thread>

#include "cann_cpu/profiling.h"
#include "checks/schedule.h"
#include "device.h"

namespace cann_cpu {

struct Graph;

using Clock = std::chrono::steady_clock;

// A moment `timeout` milliseconds from now; -1 is never.
std::optional<Clock::time_point> deadline_after(const char* what, int32_t timeout);

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::shared_ptr<Context> context, uint32_t priority, uint32_t flags);
  aclrtStream handle() { return this; }

  // Appends a task and returns its number; the worker starts with the first. A capturing stream's tasks go elsewhere.
  uint64_t push(std::string name, Task task);
  // Waits until the task of that number is done or dropped; false when the deadline came first, or the worker was
  // abandoned.
  bool wait(uint64_t number, std::optional<Clock::time_point> deadline = {});
  bool is_abandoned() const;
  // Number of the task appended last.
  uint64_t last() const;
  bool is_idle() const;
  bool is_done(uint64_t number) const;
  // Takes the failure away if it is of a task before or at that number. One that came of a wait for another stream's
  // failed work is taken once of all these streams.
  std::optional<Failure> take_failure(uint64_t number);
  // The failure that nobody has taken away.
  std::optional<Failure> failure() const;
  // Tells the worker to end: after the queue is done, or (discard) after the task that runs now, whose waits are cut
  // short.
  void stop(bool discard);
  // Waits for that end, behind stop(); a worker that discards and yet goes on for long is abandoned, and its queue
  // dropped.
  void join();
  // Blocks the worker until the condition holds; false when the stream is being discarded. notify_waits() makes it look
  // again, and so does every millisecond when it has to poll memory that kernels and copies write.
  template <class Condition>
  bool block_until(Condition&& condition, bool poll);

  const std::shared_ptr<Context> context;
  const int32_t id;
  std::atomic<uint32_t> priority;
  const uint32_t flags;
  std::atomic<uint64_t> failure_mode{ACL_CONTINUE_ON_FAILURE};  // kept: tasks behind a failed one run in either mode
  std::atomic<uint32_t> overflow_switch{0};
  std::atomic<uint32_t> user_tag{0};
  std::atomic<uint32_t> cache_op_info{0};
  std::mutex settings_mutex;
  std::optional<CoreLimits> core_limits;

  // The graph that records this stream, or null; changes under capture_mutex().
  std::atomic<Graph*> graph{nullptr};

 private:
  struct Entry {
    std::string name;
    Task task;
  };
  void work();
  void run_next(std::unique_lock<std::mutex>& lock);
  void drop_queue(std::unique_lock<std::mutex>& lock);
  // Waits for what the worker brings about; false when the deadline came first.
  template <class Condition>
  bool await(Condition&& condition, std::optional<Clock::time_point> deadline);
  void finish(uint64_t tasks, std::optional<Failure> failure, const std::string& name);

  mutable std::mutex mutex_;
  std::condition_variable submitted_;
  std::condition_variable completed_;
  std::deque<Entry> queue_;
  std::atomic<uint64_t> last_{0};  // changes under the mutex
  uint64_t done_ = 0;
  std::multiset<uint64_t> awaited_;  // the tasks that wait() waits for; to wake it before would delay the next task
  std::optional<Failure> failure_;
  uint64_t failure_number_ = 0;
  bool stopping_ = false;
  bool exited_ = false;
  bool abandoned_ = false;
  std::atomic<bool> discarding_{false};
  std::thread worker_;
};

Registry<Stream>& streams();
// The stream of a handle; null is the current context's default stream.
std::shared_ptr<Stream> find_stream(aclrtStream handle);
// The stream whose worker the calling thread is, or null.
Stream* running_stream();
inline bool is_worker() { return running_stream() != nullptr; }

// Runs a task, whatever it throws or returns.
std::optional<Failure> run_task(const Task& task);
// Runs a recorded task as if on the stream it was recorded from: launches to that stream run in place.
std::optional<Failure> run_task_as(const Stream* stream, const Task& task);

// Gives the task to the stream: runs it in place inside a task of that stream, records it when the stream is captured,
// and else queues it. Returns its number in the queue, 0 when it is not there.
uint64_t append(aclrtStream stream, const char* name, Task task, const Accesses& accesses = {},
                std::shared_ptr<const TaskTensors> operands = {});
// The same, past a capture.
uint64_t append_uncaptured(Stream& stream, const char* name, Task task,
                           std::shared_ptr<const TaskTensors> operands = {});

// Waits that cross streams (events, values in memory) share one lock and condition: they are few, and any may end.
std::mutex& waits_mutex();
std::condition_variable& waits_condition();
void notify_waits();

template <class Condition>
bool Stream::block_until(Condition&& condition, bool poll) {
  if (schedule::is_on()) {
    schedule::block(*this, [&] { return discarding_ || condition(); });
    return condition();
  }
  std::unique_lock lock(waits_mutex());
  while (!condition()) {
    if (discarding_) return false;
    if (poll) {
      waits_condition().wait_for(lock, std::chrono::milliseconds(1));
    } else {
      waits_condition().wait(lock);
    }
  }
  return true;
}

// Fails once more if the thread's call before synchronised a stream and failed, and nobody has read the message. This
// is for aclrtMemcpy: torch_npu's copies make this pair of calls, and raise the first error with its message only if
// the second call fails.
void repeat_unread_failure();

// Waits for all streams of all devices, those included that are being destroyed; their failures stay. False when an
// abandoned worker goes on: what it may use is not to be freed, ever.
bool drain();

// Ends the subscriptions to a stream that is going away.
void end_subscriptions(const Stream& stream);

}  // namespace cann_cpu
