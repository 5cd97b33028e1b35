// SPDX-License-Identifier: Apache-2.0
// What observes the runtime: the checks of whole programs, which register themselves when the library is loaded
// (checks/install.cpp). A hook costs one load where nothing observes.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "cann_cpu/accesses.h"
#include "cann_cpu/runtime.h"

namespace cann_cpu {

class Recording;
class Stream;
enum class Space;

struct CapturedTask {
  std::string name;
  Accesses accesses;
};

// What observers keep of an object, as long as the object lives.
using Notes = std::shared_ptr<void>;
// What observers keep until the scope of a hook ends.
using Scope = std::vector<std::shared_ptr<void>>;

// No lock is held while a hook runs, unless its comment says that locks may be held.
class Observer {
 public:
  // aclInit, which fails if this throws Failure; and aclFinalize.
  virtual void on_start() {}
  virtual void on_end() {}

  // The host asks for a task that is no copy, fill or wait.
  virtual void on_request(const char*) {}
  // A stream is given a task, which the observer may wrap: any task, and one that goes into the stream's queue.
  virtual void on_task(const Stream&, const char*, const Accesses&, Task&) {}
  virtual void on_queue(const Stream&, const char*, const Accesses&, Task&) {}

  // A captured stream has got a task, which comes after that many nodes of each stream; the notes are of the graph.
  virtual void on_capture(const Stream&, const CapturedTask&, const std::map<int32_t, size_t>&, Notes&) {}
  // A graph of these tasks is to be replayed. Each added function is called when a task of that number has ended.
  using TaskEnds = std::vector<std::function<void(size_t)>>;
  virtual void on_replay(const Stream&, std::span<const CapturedTask>, TaskEnds&) {}
  virtual void on_graph_destroyed(const void*) {}

  virtual void on_event_recorded(const Stream&, Recording&) {}
  // The host, whose stream is null, or a stream waits for an event.
  virtual void on_event_waited(const Stream*, const Recording&) {}
  // The host knows that the stream has done what it was given.
  virtual void on_stream_waited(const Stream&) {}

  // The host waits for the device, or for a copy that it makes itself. Locks may be held.
  virtual void on_wait(bool, Scope&) {}
  // The host asks for a copy of that many bytes, to and from these spaces.
  virtual void on_copy(size_t, Space, Space) {}
  // A function of the runtime's copies or fills at once.
  virtual void on_host_access(const char*, const Accesses&, Scope&) {}
  // The stream's worker calls a function of the program's; or of a kernel in Python, which uses device memory.
  virtual void on_host_function(const Stream&, bool, Scope&) {}
  // A stream has no work, or the host has waited for it and looks at results.
  virtual void on_idle() {}

  // The driver gives that many bytes of device or pinned memory, and gets bytes of device memory back. Locks may be
  // held.
  virtual void on_allocated(size_t) {}
  virtual void on_freed(size_t) {}
  // The runtime does not know these addresses any more.
  virtual void on_range_removed(const void*, size_t) {}

  Observer* next = nullptr;

 protected:
  ~Observer() = default;
};

// The first one; changes while the library is loaded.
inline Observer* observers = nullptr;
// Whether they need the accesses of tasks.
inline bool observers_need_accesses = false;

template <class... Parameters, class... Arguments>
void notify(void (Observer::*hook)(Parameters...), Arguments&&... arguments) {
  for (Observer* each = observers; each != nullptr; each = each->next) (each->*hook)(arguments...);
}

template <class... Parameters, class... Arguments>
Scope scope_of(void (Observer::*hook)(Parameters...), const Arguments&... arguments) {
  Scope scope;
  notify(hook, arguments..., scope);
  return scope;
}

// Decides when the tasks of all streams run, instead of their workers.
class Scheduler {
 public:
  using Condition = std::function<bool()>;
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  // The host. The stream has got a task; its lock is not held.
  virtual void launched(const Stream& stream) = 0;
  // The host asks how far the streams have come.
  virtual void asked() = 0;
  // Runs streams until the condition holds, and then maybe for a while longer. The condition must not call the
  // scheduler. Returns false when the deadline came first. A task that waits leaves its turn to others meanwhile.
  virtual bool wait(const Condition& condition, const Deadline& deadline) = 0;
  // The stream has no worker any more.
  virtual void ended(const Stream& stream) = 0;

  // A stream's worker, for every task that launched() announced.
  virtual void begin_turn(const Stream& stream) = 0;
  virtual void end_turn(const Stream& stream, size_t tasks) = 0;
  // Leaves its turn to others until the condition holds.
  virtual void block(const Stream& stream, const Condition& condition) = 0;
  // Its task waits for others than this process's streams, which run beside it until resume().
  virtual void suspend(const Stream& stream) = 0;
  virtual void resume(const Stream& stream) = 0;

 protected:
  ~Scheduler() = default;
};

// Gives the scheduler, which it makes when it is first asked; null: the workers run tasks as they come.
inline Scheduler& (*scheduler)() = nullptr;

}  // namespace cann_cpu
