// SPDX-License-Identifier: Apache-2.0
// Shadow memory: for each byte, its last writer and the readers since.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <tuple>

#include "ascendc/types.h"

namespace AscendC::cpu {

// An instruction that touched a byte. An epoch is the time between two releases (SetFlag, EnQue, ...) of a pipe;
// 0: there is none.
struct Access {
  const char* name = nullptr;
  Where where = {};
  uint32_t epoch = 0;
  bool atomic = false;  // in any order with others that are

  bool operator==(const Access& other) const {
    return epoch == other.epoch && atomic == other.atomic && name == other.name && where.line() == other.where.line() &&
           where.file_name() == other.where.file_name();
  }
};

struct History {
  bool defined = false;  // whether it was written
  pipe_t writer = PIPE_S;
  Access write;
  std::array<Access, kPipes> reads;  // since the write, the last of each pipe

  bool operator==(const History&) const = default;
};

// Histories of ranges of bytes.
class Shadow {
 public:
  struct Segment {
    uintptr_t end;
    History history;
  };
  using Segments = std::map<uintptr_t, Segment>;

  // Calls see(begin, end, history) for the known parts of a range, in order.
  template <class See>
  void for_each(uintptr_t begin, uintptr_t end, const See& see) const {
    for (auto at = first_after(begin); at != segments_.end() && at->first < end; ++at) {
      see(std::max(at->first, begin), std::min(at->second.end, end), at->second.history);
    }
  }

  // The segment that holds an address, or nullptr.
  const Segment* find(uintptr_t address) const {
    const auto at = first_after(address);
    return at != segments_.end() && at->first <= address ? &at->second : nullptr;
  }

  // The history of an address, and the range of bytes around it with the same history. Unknown bytes have one as well.
  std::tuple<uintptr_t, uintptr_t, History> around(uintptr_t address) const {
    const auto at = first_after(address);
    if (at != segments_.end() && at->first <= address) return {at->first, at->second.end, at->second.history};
    return {
        at == segments_.begin() ? 0 : std::prev(at)->second.end, at == segments_.end() ? UINTPTR_MAX : at->first, {}};
  }

  // Gives a range one history.
  void assign(uintptr_t begin, uintptr_t end, const History& history) {
    auto at = cut(begin);
    if (at == segments_.end() || at->first != begin) at = segments_.emplace_hint(at, begin, Segment{begin, {}});
    for (auto next = at; next != segments_.end() && next->first < end;) {
      if (next->second.end > end) split(next, end);
      next = next == at ? std::next(next) : segments_.erase(next);
    }
    at->second = {end, history};
    merge(at);
  }

  // Calls change(history) for every part of a range, also for unknown parts.
  template <class Change>
  void change(uintptr_t begin, uintptr_t end, const Change& change) {
    auto at = cut(begin);
    while (begin < end) {
      if (at == segments_.end() || at->first > begin) {
        const uintptr_t gap_end = at == segments_.end() ? end : std::min(at->first, end);
        at = segments_.emplace_hint(at, begin, Segment{gap_end, {}});
      } else if (at->second.end > end) {
        split(at, end);
      }
      change(at->second.history);
      at = merge(at);  // the part that was joined has been changed before
      begin = at->second.end;
      ++at;
    }
  }

  const Segments& segments() const { return segments_; }
  void clear() { segments_.clear(); }

 private:
  // The first segment that ends after an address.
  Segments::const_iterator first_after(uintptr_t address) const {
    auto at = segments_.upper_bound(address);
    if (at != segments_.begin() && std::prev(at)->second.end > address) --at;
    return at;
  }

  // Splits the segment that spans the address, if there is one. Returns the first that begins at or after the address.
  Segments::iterator cut(uintptr_t address) {
    auto at = segments_.lower_bound(address);
    if (at == segments_.begin()) return at;
    const auto before = std::prev(at);
    return before->second.end > address ? split(before, address) : at;
  }

  Segments::iterator split(Segments::iterator at, uintptr_t address) {
    const auto after = segments_.emplace_hint(std::next(at), address, at->second);
    at->second.end = address;
    return after;
  }

  // Joins a segment with those beside it that have the same history.
  Segments::iterator merge(Segments::iterator at) {
    if (at != segments_.begin()) {
      const auto before = std::prev(at);
      if (joins(*before, *at)) {
        before->second.end = at->second.end;
        segments_.erase(at);
        at = before;
      }
    }
    const auto after = std::next(at);
    if (after != segments_.end() && joins(*at, *after)) {
      at->second.end = after->second.end;
      segments_.erase(after);
    }
    return at;
  }

  static bool joins(const Segments::value_type& one, const Segments::value_type& next) {
    return one.second.end == next.first && one.second.history == next.second.history;
  }

  Segments segments_;
};

}  // namespace AscendC::cpu
