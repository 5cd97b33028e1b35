// SPDX-License-Identifier: Apache-2.0
// The blocks of one launch, where they wait for each other: SyncAll, IBSet and IBWait.
//
// A block that waits for ever is found by what the others do, not by time: none of them runs any more, and none that
// waits may go on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <vector>

#include "ascendc/types.h"

namespace AscendC::cpu {

// Ends a block because another one has failed, which is what is reported.
struct Abandoned {};

class Team {
 public:
  explicit Team(uint32_t blocks);

  void sync_all(uint32_t block, uint32_t used, Where where);
  void set_flag(uint32_t block, const void* flag, Where where);
  void wait_flag(uint32_t block, const void* flag, Where where);

  void end(uint32_t block);
  void give_up();  // wakes all who wait: they throw Abandoned

  // Time passes for a block where it waits for others or they may wait for it. Whether what a block did at a time comes
  // before what another one did at a time.
  uint32_t time(uint32_t block);
  bool is_before(uint32_t block, uint32_t time, uint32_t other, uint32_t other_time) const {
    return !known_.empty() && known_[other][other_time][block] > time;
  }

 private:
  using Clock = std::vector<uint32_t>;  // for each block: all that it did before this time has been done
  struct Waiter {
    std::function<bool()> may_go_on;
  };

  std::unique_lock<std::mutex> lock_clocks();
  // Until the condition holds; KernelError if it never will.
  void wait(std::unique_lock<std::mutex>& lock, Where where, const char* name, std::function<bool()> may_go_on);
  void find_deadlock();
  Clock published(uint32_t block) const;
  void advance(uint32_t block, const Clock& seen);

  struct Barrier {
    uint32_t arrived = 0;
    uint64_t round = 0;
    Clock gathering, gathered;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t running_;  // blocks that have not ended and do not wait
  bool given_up_ = false;
  bool deadlock_ = false;
  std::list<Waiter> waiters_;
  std::vector<bool> ended_;
  std::map<uint32_t, Barrier> barriers_;  // by the number of blocks
  std::map<const void*, Clock> flags_;    // those that are set
  // Of each block at each of its times; read by others when all have ended. Empty where none waits, as in most
  // launches.
  std::vector<std::vector<Clock>> known_;
};

}  // namespace AscendC::cpu
