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
#include "device.h"
#include "observer.h"

namespace cann_cpu {

struct Event;
struct Graph;

using Clock = std::chrono::steady_clock;

// A moment `timeout` milliseconds from now; -1 is never.
std::optional<Clock::time_point> deadline_after(const char* what, int32_t timeout);

// What happens to a task after a failed one, with ACL_STOP_ON_FAILURE.
enum class IfStopped { kDrop, kRun };

class Stream : public HasHandle, public std::enable_shared_from_this<Stream> {
 public:
  Stream(std::shared_ptr<Context> context, uint32_t priority, std::shared_ptr<const StreamResource> resource);
  // Appends a task and returns its number; the worker starts with the first. A capturing stream's tasks go elsewhere.
  uint64_t push(std::string name, Task task, IfStopped if_stopped);
  // Waits until the task of that number is done or dropped; false when the deadline came first, or the worker was
  // abandoned.
  bool wait(uint64_t number, std::optional<Clock::time_point> deadline = {});
  bool is_abandoned() const;
  // False as well while its task waits for what has not come for long.
  bool is_at_work() const;
  // Number of the task appended last.
  uint64_t last() const;
  bool is_idle() const;
  bool is_done(uint64_t number) const;
  // Takes the failure away if it is of a task before or at that number. One that came of a wait for another stream's
  // failed work is taken once of all these streams.
  std::optional<Failure> take_failure(uint64_t number);
  // Holds it until the tasks that were appended by now have ended.
  void retain(const std::shared_ptr<void>& object);
  // The untaken failure.
  std::optional<Failure> failure() const;
  // Stops the worker: after the queue is done, or (discard) after the task that runs now, whose waits are cut short.
  void stop(bool discard);
  // Waits for the worker to end, after stop(). A worker that discards and still runs for long is abandoned, and its
  // queue is dropped.
  void join();
  // A stream that works beside this one, for the replays of graphs that were captured on several streams; its number is
  // from 1 on. Called by the worker alone.
  Stream& beside(size_t number);
  void end_streams_beside();
  // Blocks the worker until the condition holds; false when the stream is being discarded or the deadline came first.
  // notify_waits() makes it look again, and so does every millisecond when it has to poll memory that kernels and
  // copies write.
  template <class Condition>
  bool block_until(Condition&& condition, bool poll, std::optional<Clock::time_point> deadline = {});

  // In the worker: the number of its task.
  uint64_t running_task() const;
  // Ends a hanging task with the failure. The stream continues in another thread. Does nothing if the task has ended.
  void leave_task(uint64_t number, Failure failure);

  const std::shared_ptr<Context> context;
  const int32_t id;
  std::atomic<uint32_t> priority;
  std::atomic<uint64_t> failure_mode{ACL_CONTINUE_ON_FAILURE};
  std::atomic<bool> has_host_functions{false};
  std::atomic<uint32_t> overflow_switch{0};
  std::atomic<uint32_t> user_tag{0};
  std::atomic<uint32_t> cache_op_info{0};
  std::mutex settings_mutex;
  std::optional<CoreLimits> core_limits;

  // The graph that records this stream, or null; changes under the lock of the captures.
  std::atomic<Graph*> graph{nullptr};
  // Whether its tasks replace those of a captured graph's task group; changes under the same lock.
  std::atomic<bool> updates_tasks{false};
  // Whether its tasks are recorded and not run.
  bool is_recorded() const { return graph != nullptr || updates_tasks; }

 private:
  const std::shared_ptr<const StreamResource> resource_;  // null: a captured graph has it

  struct Entry {
    std::string name;
    Task task;
    IfStopped if_stopped;
  };
  void start_worker();
  // Ends early in a thread whose task was left.
  void work();
  // False when the task was left meanwhile: the stream is another thread's.
  bool run_next(std::unique_lock<std::mutex>& lock);
  // The failure that prevents the task from running. Called under the mutex.
  std::optional<Failure> stopped_by(const Entry& entry) const;
  void drop_queue(std::unique_lock<std::mutex>& lock);
  // Waits for what the worker brings about; false when the deadline came first.
  template <class Condition>
  bool await(Condition&& condition, std::optional<Clock::time_point> deadline);
  // Ends tasks. Their retained objects are released before the end is reported.
  void finish(std::unique_lock<std::mutex>& lock, uint64_t tasks, std::optional<Failure> failure,
              const std::string& name);

  mutable std::mutex mutex_;
  std::condition_variable submitted_;
  std::condition_variable completed_;
  std::deque<Entry> queue_;
  std::atomic<uint64_t> last_{0};  // changes under the mutex
  uint64_t done_ = 0;
  std::multiset<uint64_t> awaited_;  // the tasks that wait() waits for; to wake it before would delay the next task
  std::deque<std::pair<uint64_t, std::shared_ptr<void>>> retained_;  // and the last task that may use it
  std::optional<Failure> failure_;
  uint64_t failure_number_ = 0;
  std::string running_;      // the name of the task that runs
  uint64_t left_tasks_ = 0;  // tasks whose threads were replaced
  bool stopping_ = false;
  bool exited_ = false;
  bool abandoned_ = false;
  std::atomic<bool> discarding_{false};
  std::atomic<Clock::time_point> waits_since_{Clock::time_point::max()};  // in block_until()
  std::thread worker_;
  std::vector<std::shared_ptr<Stream>> beside_;
};

// Calls the program's function for failed tasks, if there is one. Called without a lock.
void report_failed_task(const Stream& stream, uint64_t number, aclError code);

// Calls the program's functions for streams that come and go. Called without a lock.
void report_stream_state(const Stream& stream, aclrtStreamState state);
// At the process's end, when the libraries that have these functions may be gone.
void end_stream_callbacks();

Registry<Stream>& streams();
// The stream of a handle; null is the current context's default stream. Fails in a thread without a context.
std::shared_ptr<Stream> find_stream(aclrtStream handle);
// The same for what gives the stream work: outside of tasks it has to be of the current context.
std::shared_ptr<Stream> find_own_stream(aclrtStream handle);
// The stream whose worker the calling thread is, or null.
Stream* running_stream();
inline bool is_worker() { return running_stream() != nullptr; }

// Runs a task, whatever it throws or returns.
std::optional<Failure> run_task(const Task& task);
// Runs a recorded task as if on the stream it was recorded from: launches to that stream run in place.
std::optional<Failure> run_task_as(aclrtStream stream, const Task& task);

// Gives the task to the stream: runs it in place inside a task of that stream, records it when the stream is captured,
// and else queues it. Returns its number in the queue, 0 when it is not there.
uint64_t append(aclrtStream stream, const char* name, Task task, const Accesses& accesses = {},
                std::shared_ptr<const TaskTensors> operands = {});
// The same, past a capture.
uint64_t append_uncaptured(Stream& stream, const char* name, Task task,
                           std::shared_ptr<const TaskTensors> operands = {}, IfStopped if_stopped = IfStopped::kDrop);

// Records the tasks of captured streams, and of streams that update a task group. An error in the work of a captured
// stream invalidates the capture, and the end of the capture reports the cause. The calls themselves succeed: torch_npu
// makes them in the thread of its task queue, which silently drops all later work after an error.
class TaskRecorder {
 public:
  // Records a task; false when the stream is not captured (any more).
  virtual bool record(Stream& stream, const Task& task, const CapturedTask& captured,
                      std::shared_ptr<const TaskTensors> operands) = 0;
  // Marks in the event how far the captured stream has come; false when the stream is not captured (any more).
  virtual bool mark(Stream& stream, Event& event) = 0;
  // If the event was recorded in a capture that is underway, makes the stream's next tasks part of that capture, after
  // the event. Returns false when neither the event nor the stream is part of a capture.
  virtual bool join(Stream& stream, Event& event) = 0;
  // Invalidates a capture of the stream: a replay could not rely on the host memory that it copies. False when the
  // stream is not captured.
  virtual bool reject_pageable(aclrtStream stream) = 0;
  // Takes a stream that is going away out of its capture, which becomes invalid, and drops its update.
  virtual void stop(Stream& stream) = 0;

  // Both functions fail, and invalidate the capture, if the call is illegal during a capture. This one is for calls
  // that query the state of a captured stream.
  virtual void forbid(Stream& stream) = 0;
  // This one is for calls that work on the device outside of streams (a synchronous copy, a device synchronisation), or
  // wait for a stream that is not captured (an asynchronous copy with pageable memory:
  // ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC).
  virtual void forbid_unsafe(aclError code = ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT) = 0;

 protected:
  ~TaskRecorder() = default;
};

// Set by capture.cpp when the library is loaded.
inline TaskRecorder* task_recorder = nullptr;

// Waits that cross streams (events, values in memory) share one lock and condition: they are few, and any may end.
std::mutex& waits_mutex();
std::condition_variable& waits_condition();
void notify_waits();

template <class Condition>
bool Stream::block_until(Condition&& condition, bool poll, std::optional<Clock::time_point> deadline) {
  struct Since {
    explicit Since(std::atomic<Clock::time_point>& since) : since(since) { since = Clock::now(); }
    ~Since() { since = Clock::time_point::max(); }
    std::atomic<Clock::time_point>& since;
  } const waiting(waits_since_);
  if (scheduler != nullptr) {
    scheduler().block(*this, [&] { return discarding_ || condition(); });
    return condition();
  }
  std::unique_lock lock(waits_mutex());
  while (!condition()) {
    if (discarding_ || (deadline && Clock::now() >= *deadline)) return false;
    if (poll) {
      waits_condition().wait_for(lock, std::chrono::milliseconds(1));
    } else if (deadline) {
      waits_condition().wait_until(lock, *deadline);
    } else {
      waits_condition().wait(lock);
    }
  }
  return true;
}

// What a caller that waits has found, with how the call that asked for the work raises it.
Failure reported_late(Failure failure);

// Fails once more if the thread's previous call synchronised a stream and failed, and its message was not read. This is
// for aclrtMemcpy: torch_npu's copies make this pair of calls, and raise the first error with its message only if the
// second call fails.
void repeat_unread_failure();

// Waits until the streams have done what they were given; false when no stream gets on any more.
bool finish(const std::vector<std::shared_ptr<Stream>>& streams);

// Waits for all streams of all devices, including those that are being destroyed. Their failures stay. Returns false if
// an abandoned worker or a kernel whose time is over still runs: the memory that it may use must never be freed.
bool drain();

// Holds memory that is given back until the work that all streams were given by now has ended, since it may use it.
void retain_until_done(const std::shared_ptr<void>& memory);

// Ends the subscriptions to a stream that is going away.
void end_subscriptions(const Stream& stream);

}  // namespace cann_cpu
