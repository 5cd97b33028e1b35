// SPDX-License-Identifier: Apache-2.0
// A core's synchronization without a queue, and its share of a phase's work, which is divided evenly by its cost.
#pragma once

#include "kernel_operator.h"

namespace opp {

// The second pipe of the event continues when the first has reached this point.
template <AscendC::HardEvent event>
__aicore__ inline void WaitFor() {
  const auto id = static_cast<event_t>(GetTPipePtr()->FetchEventID(event));
  AscendC::SetFlag<event>(id);
  AscendC::WaitFlag<event>(id);
}

template <class T>
__aicore__ inline T Smaller(T a, T b) {
  return a < b ? a : b;
}

template <class T>
__aicore__ inline T Greater(T a, T b) {
  return a > b ? a : b;
}

// Items [first, end).
struct Run {
  int64_t first;
  int64_t end;
};

// A core's share of a phase, consecutive items. All cores announce the same items in the same order. A core gets the
// items that begin in its part of the whole cost.
class Share {
 public:
  __aicore__ inline Share(int64_t cost, int64_t core, int64_t cores)
      : begin_(cost * core / cores), end_(cost * (core + 1) / cores) {}

  // The core's share of the next `count` items, each of the same cost.
  __aicore__ inline Run Take(int64_t count, int64_t cost) {
    const Run run{Before(begin_, count, cost), Before(end_, count, cost)};
    announced_ += count * cost;
    return run;
  }

 private:
  // How many of them begin before `place`.
  __aicore__ inline int64_t Before(int64_t place, int64_t count, int64_t cost) const {
    if (place <= announced_) return 0;
    return Smaller(count, (place - announced_ + cost - 1) / cost);
  }

  const int64_t begin_;
  const int64_t end_;
  int64_t announced_ = 0;
};

}  // namespace opp
