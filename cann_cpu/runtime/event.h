// SPDX-License-Identifier: Apache-2.0
// Events: a mark in a stream that other streams and the host wait for.
#pragma once

#include <map>

#include "checks/vector_clock.h"
#include "stream.h"

namespace cann_cpu {

// One recording of an event; a wait holds on to the one that was the latest when the wait was asked for.
class Recording {
 public:
  enum class State { kPending, kComplete, kDropped };

  ~Recording() = default;
  // Stamps the time and lets the waiting go on. A recording that is dropped (its stream was destroyed by force)
  // releases them too.
  void complete(State state);
  bool is_over() const { return state_ != State::kPending; }
  State state() const { return state_; }
  uint64_t nanoseconds() const { return nanoseconds_; }

  std::weak_ptr<Stream> stream;
  uint64_t number = 0;             // of its task in the stream
  std::optional<Failure> failure;  // that the stream had come to, and nobody had taken; set before complete()
  VectorClock clock;               // what it is behind, for the check `race`

 private:
  std::atomic<State> state_{State::kPending};
  std::atomic<uint64_t> nanoseconds_{0};
};

// How far each stream of a capture has come, in nodes.
using Progress = std::map<const Stream*, size_t>;

struct Event {
  Event(uint32_t flags, bool resettable) : flags(flags), resettable(resettable) {}

  const uint32_t flags;
  const bool resettable;
  std::atomic<int> open_waits{0};  // waits of streams that did not end yet

  std::mutex mutex;
  std::shared_ptr<Recording> latest;  // null: never recorded
  std::shared_ptr<Graph> graph;       // set: recorded last in this capture, at this progress
  Progress progress;
};

Registry<Event>& events();

}  // namespace cann_cpu
