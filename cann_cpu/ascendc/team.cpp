// SPDX-License-Identifier: Apache-2.0
#include "team.h"

#include <algorithm>

#include "ascendc/block_sync.h"
#include "checker.h"
#include "pool.h"
#include "running_block.h"

namespace AscendC::cpu {

Team::Team(uint32_t blocks) : running_(blocks), ended_(blocks) {}

std::unique_lock<std::mutex> Team::lock_clocks() {
  std::unique_lock lock(mutex_);
  if (known_.empty()) known_.assign(ended_.size(), {Clock(ended_.size())});
  return lock;
}

uint32_t Team::time(uint32_t block) {
  const std::unique_lock lock = lock_clocks();
  return static_cast<uint32_t>(known_[block].size() - 1);
}

void Team::find_deadlock() {
  if (running_ != 0 || waiters_.empty()) return;
  if (std::ranges::any_of(waiters_, [](const Waiter& waiter) { return waiter.may_go_on(); })) return;
  deadlock_ = true;
}

void Team::wait(std::unique_lock<std::mutex>& lock, Where where, const char* name, std::function<bool()> may_go_on) {
  if (given_up_) throw Abandoned();
  if (may_go_on()) return;
  lock.unlock();
  add_worker();  // every block has to begin, or those that wait do so for ever
  lock.lock();
  const auto waiter = waiters_.insert(waiters_.end(), {std::move(may_go_on)});
  --running_;
  find_deadlock();
  if (deadlock_) changed_.notify_all();
  changed_.wait(lock, [&] { return given_up_ || deadlock_ || waiter->may_go_on(); });
  waiters_.erase(waiter);
  ++running_;
  if (!deadlock_) {
    if (given_up_) throw Abandoned();
    return;
  }
  const auto gone = std::ranges::find(ended_, true) - ended_.begin();
  lock.unlock();
  if (static_cast<size_t>(gone) < ended_.size()) {
    fail(where, "%s: the block waits for ever: block %u has ended without coming here", name,
         static_cast<uint32_t>(gone));
  }
  fail(where, "%s: the block waits for ever: all others wait, too", name);
}

Team::Clock Team::published(uint32_t block) const {
  Clock clock = known_[block].back();
  ++clock[block];
  return clock;
}

void Team::advance(uint32_t block, const Clock& seen) {
  Clock next = published(block);
  for (uint32_t other = 0; other < next.size(); ++other) {
    if (other != block) next[other] = std::max(next[other], seen[other]);
  }
  known_[block].push_back(std::move(next));
}

void Team::sync_all(uint32_t block, uint32_t used, Where where) {
  std::unique_lock lock = lock_clocks();
  Barrier& barrier = barriers_[used];
  if (barrier.arrived == 0) barrier.gathering.assign(known_.size(), 0);
  const Clock mine = published(block);
  std::ranges::transform(barrier.gathering, mine, barrier.gathering.begin(),
                         [](uint32_t a, uint32_t b) { return std::max(a, b); });
  const uint64_t round = barrier.round;
  if (++barrier.arrived == used) {
    barrier.arrived = 0;
    ++barrier.round;
    barrier.gathered = barrier.gathering;
    changed_.notify_all();
  }
  wait(lock, where, "SyncAll", [&barrier, round] { return barrier.round != round; });
  advance(block, barrier.gathered);
}

void Team::set_flag(uint32_t block, const void* flag, Where where) {
  std::unique_lock lock = lock_clocks();
  wait(lock, where, "IBSet", [this, flag] { return !flags_.contains(flag); });
  flags_[flag] = published(block);
  advance(block, Clock(known_.size()));
  changed_.notify_all();
}

void Team::wait_flag(uint32_t block, const void* flag, Where where) {
  std::unique_lock lock = lock_clocks();
  wait(lock, where, "IBWait", [this, flag] { return flags_.contains(flag); });
  const auto set = flags_.extract(flag);
  advance(block, set.mapped());
  changed_.notify_all();
}

void Team::end(uint32_t block) {
  const std::lock_guard lock(mutex_);
  ended_[block] = true;
  --running_;
  find_deadlock();
  changed_.notify_all();
}

void Team::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

namespace {

// A block comes to a place where blocks wait: what it did before comes before what it does behind.
template <class Wait>
void meet(Where where, const Wait& wait) {
  RunningBlock& block = running_block(where);
  pipe_barrier(PIPE_ALL, where);
  finish_stores();
  wait(block);
  if (block.checker != nullptr) block.checker->next_time(block.team->time(block.index));
}

}  // namespace

void sync_all(Where where, int32_t used) {
  meet(where, [&](RunningBlock& block) {
    const auto blocks = used > 0 ? static_cast<uint32_t>(used) : block.count;
    if (blocks > block.count) fail(where, "SyncAll: %u blocks; there are %u", blocks, block.count);
    if (block.index < blocks) block.team->sync_all(block.index, blocks, where);
  });
}

void set_block_flag(Where where, const std::byte* flag) {
  meet(where, [&](RunningBlock& block) { block.team->set_flag(block.index, flag, where); });
}

void wait_block_flag(Where where, const std::byte* flag) {
  meet(where, [&](RunningBlock& block) { block.team->wait_flag(block.index, flag, where); });
}

void clean_cache(Where where, const std::byte* address, bool all) {
  if (Checker* checker = block(where).checker) checker->clean_cache(address, all);
}

}  // namespace AscendC::cpu
