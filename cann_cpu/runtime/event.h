// SPDX-License-Identifier: Apache-2.0
// Events: a mark in a stream that other streams and the host wait for.
#pragma once

#include "stream.h"

namespace cann_cpu {

// One recording of an event; a wait holds on to the one that was the latest when the wait was asked for.
class Recording {
 public:
  enum class State { kPending, kComplete, kDropped };

  ~Recording() = default;
  // Stores the time and releases the waiting threads and streams. A recording that is dropped, because its stream was
  // destroyed by force, also releases them.
  void complete(State state);
  bool is_over() const { return state_ != State::kPending; }
  State state() const { return state_; }
  uint64_t nanoseconds() const { return nanoseconds_; }

  std::weak_ptr<Stream> stream;
  uint64_t number = 0;             // of its task in the stream
  std::optional<Failure> failure;  // the stream's untaken failure at that point; set before complete()
  Notes notes;

 private:
  std::atomic<State> state_{State::kPending};
  std::atomic<uint64_t> nanoseconds_{0};
};

// How far each stream of a capture has come, in nodes.
using Progress = std::map<const Stream*, size_t>;

struct Event : HasHandle {
  Event(uint32_t flags, bool reusable, int32_t device) : flags(flags), reusable(reusable), device(device) {}

  const uint32_t flags;
  const bool reusable;   // of aclrtCreateEventExWithFlag: a wait is for the latest record before the wait's call
  const int32_t device;  // whose streams record it; those of all devices wait for it
  // Else the event is a flag of the device: a record sets it, aclrtResetEvent clears it, and a wait is until it is set.
  bool is_flag() const { return !reusable && (flags & ACL_EVENT_SYNC) != 0; }
  // A flag whose record, wait and reset in a capture are nodes of the graph: it crosses a graph's border.
  bool is_external() const { return flags == ACL_EVENT_EXTERNAL; }
  std::atomic<int> open_waits{0};  // waits of streams that did not end yet

  std::mutex mutex;
  std::shared_ptr<Recording> latest;  // null: never recorded
  std::shared_ptr<Recording> set_by;  // of a flag that is set
  std::shared_ptr<Graph> graph;       // set: recorded last in this capture, at this progress
  Progress progress;
};

Registry<Event>& events();

}  // namespace cann_cpu
