// SPDX-License-Identifier: Apache-2.0
// A stack and the memories of a core, in which a core runs until it waits.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <functional>

#include "ascendc/cores.h"

namespace AscendC::cpu {

using Memories = std::array<std::byte*, kHardwares>;

// It runs in the thread that resumes it, which is always the same one.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  ~Fiber();

  // Calls `work` on the fiber's stack, or continues it where it was suspended; returns when it is suspended or has
  // returned.
  void start(std::function<void()> work);
  void resume();
  bool has_ended() const { return !work_; }

  // The fiber that runs in this thread, or null.
  static Fiber* current();
  void suspend();

  // Untouched parts take no memory of the machine.
  const Memories& memories() const { return memories_; }

 private:
  static void run();
  void switch_to(ucontext_t& from, ucontext_t& to);

  std::byte* mapped_;  // the stack, behind a page that nothing may touch, and the memories
  Memories memories_;
  std::function<void()> work_;
  ucontext_t own_, outer_;
};

}  // namespace AscendC::cpu
