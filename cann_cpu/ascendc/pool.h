// SPDX-License-Identifier: Apache-2.0
// The threads that run the cores of kernels.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

namespace AscendC::cpu {

// Tasks that wait for each other. A task that waits leaves its thread to others, and continues in the same thread.
class Job {
 public:
  // The tasks of a group, consecutive ones, run in one thread.
  Job(uint32_t groups, uint32_t tasks_of_group);
  Job(const Job&) = delete;

  // Calls task(0), task(1) and so on, in this thread and in those of the pool that are idle, and returns when all have
  // returned. Of what they throw it throws that of the lowest number; tasks behind it that have not begun do not begin.
  // If there is no memory to begin a task, it calls give_up(), which lets waiting tasks return, and throws an error.
  void run(const std::function<void(uint32_t)>& task, const std::function<void()>& give_up);

  // In a task: returns when the condition holds. `lock` is of the mutex that guards what the condition reads.
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& condition);
  // In a task that polls: lets others of its thread run.
  void yield();
  // What conditions read has changed.
  void notify();

 private:
  friend class Pool;
  class Worker;

  // The groups that one thread begins before those of others. With the same numbers in every launch, it finds what it
  // used in the last one in its cache.
  struct Share {
    bool is_taken() const { return next.load(std::memory_order_relaxed) >= end; }
    std::atomic<uint32_t> next = 0;
    uint32_t end = 0;
  };

  bool has_more() const { return !std::ranges::all_of(shares_, &Share::is_taken); }
  void work();
  void sleep(uint64_t seen);
  void keep_error(uint32_t number, std::exception_ptr error);

  const uint32_t groups_;
  const uint32_t tasks_of_group_;
  const std::function<void(uint32_t)>* task_ = nullptr;
  const std::function<void()>* give_up_ = nullptr;
  std::vector<Share> shares_;
  std::atomic<uint32_t> failed_ = ~uint32_t{0};  // the lowest task that has failed
  std::atomic<uint64_t> changes_ = 0;
  std::atomic<uint32_t> sleeping_ = 0;  // threads that have nothing to run until something changes
  std::mutex mutex_;                    // guards the rest
  std::condition_variable changed_;
  std::exception_ptr error_;
  std::atomic<uint32_t> helpers_ = 0;  // changed under the pool's mutex
};

}  // namespace AscendC::cpu
