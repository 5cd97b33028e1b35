// SPDX-License-Identifier: Apache-2.0
// Vector clocks: for agents that work side by side, how much of each other's work happened before their own next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cann_cpu {

class VectorClock {
 public:
  uint64_t of(size_t agent) const { return agent < times_.size() ? times_[agent] : 0; }

  void reach(size_t agent, uint64_t time) {
    if (times_.size() <= agent) times_.resize(agent + 1);
    times_[agent] = std::max(times_[agent], time);
  }

  void merge(const VectorClock& other) {
    for (size_t agent = 0; agent < other.times_.size(); ++agent) reach(agent, other.times_[agent]);
  }

 private:
  std::vector<uint64_t> times_;
};

}  // namespace cann_cpu
