// SPDX-License-Identifier: Apache-2.0
#include "shadow.h"

#include <algorithm>

namespace cann_cpu {

Shadow::Segments::iterator Shadow::split(uintptr_t at) {
  auto next = segments_.lower_bound(at);
  if (next == segments_.begin()) return next;
  const auto before = std::prev(next);
  if (before->second.end <= at) return next;
  Segment upper = before->second;
  before->second.end = at;
  return segments_.emplace_hint(next, at, std::move(upper));
}

std::vector<Conflict> Shadow::use(uintptr_t begin, uintptr_t end, const Use& use, const VectorClock& clock) {
  std::vector<Conflict> conflicts;
  if (begin >= end) return conflicts;
  const auto compare = [&](const Use& earlier, uintptr_t from, uintptr_t to) {
    if (!earlier.user || earlier.user->agent == use.user->agent) return;
    if (clock.of(earlier.user->agent) >= earlier.user->time) return;
    const auto is_known = [&](const Conflict& c) { return c.first.user == earlier.user; };
    if (std::ranges::none_of(conflicts, is_known)) conflicts.push_back({from, to, earlier, use});
  };

  auto segment = split(begin);
  split(end);
  if (use.is_write) {
    for (auto each = segment; each != segments_.end() && each->first < end; ++each) {
      compare(each->second.write, each->first, each->second.end);
      for (const Use& read : each->second.reads) compare(read, each->first, each->second.end);
    }
    segments_.erase(segment, segments_.lower_bound(end));
    segments_.emplace(begin, Segment{end, use, {}});
    return conflicts;
  }
  for (uintptr_t at = begin; at < end;) {
    segment = segments_.lower_bound(at);
    if (segment == segments_.end() || segment->first > at) {  // the bytes before it are unused
      const uintptr_t gap = segment == segments_.end() ? end : std::min(segment->first, end);
      segment = segments_.emplace_hint(segment, at, Segment{gap, {}, {}});
    }
    Segment& found = segment->second;
    compare(found.write, segment->first, found.end);
    const auto own =
        std::ranges::find_if(found.reads, [&](const Use& read) { return read.user->agent == use.user->agent; });
    if (own == found.reads.end()) {
      found.reads.push_back(use);
    } else {
      *own = use;
    }
    at = found.end;
  }
  return conflicts;
}

void Shadow::forget(uintptr_t begin, uintptr_t end) {
  const auto first = split(begin);
  split(end);
  segments_.erase(first, segments_.lower_bound(end));
}

}  // namespace cann_cpu
