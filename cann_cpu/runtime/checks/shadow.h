// SPDX-License-Identifier: Apache-2.0
// Shadow memory: the last uses of each byte, which are one write and the reads since.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cann_cpu/accesses.h"
#include "vector_clock.h"

namespace cann_cpu {

// A task, or a call of the host, that uses memory.
struct User {
  size_t agent;
  uint64_t time;  // of the agent
  std::string task;
  std::string where;  // it was launched
};

struct Use {
  std::shared_ptr<const User> user;
  bool is_write;
  uint32_t argument;
};

// Two uses of the same bytes that nothing orders.
struct Conflict {
  uintptr_t begin;
  uintptr_t end;
  Use first;
  Use second;
};

class Shadow {
 public:
  // Marks the use of these bytes by one who knows what the clock says, and returns the first conflict with each earlier
  // user.
  std::vector<Conflict> use(uintptr_t begin, uintptr_t end, const Use& use, const VectorClock& clock);
  void forget(uintptr_t begin, uintptr_t end);

 private:
  struct Segment {
    uintptr_t end;
    Use write;               // no user: not written
    std::vector<Use> reads;  // since, at most one of each agent
  };
  using Segments = std::map<uintptr_t, Segment>;

  // Makes a segment begin at the address, if it lies within one.
  Segments::iterator split(uintptr_t at);

  Segments segments_;
};

}  // namespace cann_cpu
