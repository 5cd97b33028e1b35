// SPDX-License-Identifier: Apache-2.0
// Sets of addresses, as runs that do not touch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace cann_cpu {

class Intervals {
 public:
  void add(uintptr_t begin, uintptr_t end) {
    if (begin >= end) return;
    auto next = runs_.upper_bound(end);
    while (next != runs_.begin()) {
      const auto run = std::prev(next);
      if (run->second < begin) break;
      begin = std::min(begin, run->first);
      end = std::max(end, run->second);
      next = runs_.erase(run);
    }
    runs_.emplace_hint(next, begin, end);
  }

  // Whether any address in between is in the set.
  bool meets(uintptr_t begin, uintptr_t end) const {
    const auto next = runs_.lower_bound(end);
    return next != runs_.begin() && std::prev(next)->second > begin;
  }

 private:
  std::map<uintptr_t, uintptr_t> runs_;  // ends by beginnings
};

}  // namespace cann_cpu
