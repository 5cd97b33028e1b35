// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <utility>

#include "ascendc/block.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace AscendC::cpu {
namespace {

constexpr size_t kStackBytes = 1 << 20;  // a core of a device has 32 KiB
constexpr size_t kAlignment = 1024;

thread_local Fiber* current_fiber = nullptr;

size_t guard_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

void Fiber::Free::operator()(std::byte* memory) const { std::free(memory); }

Fiber::Fiber() {
  for (size_t i = 0; i < kHardwares; ++i) {
    // An instruction may read a whole repeat whose last lanes are masked.
    const size_t bytes =
        (largest_bytes_of(static_cast<Hardware>(i)) + kRepeatBytes + kAlignment - 1) / kAlignment * kAlignment;
    owned_[i].reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
    memories_[i] = owned_[i].get();
    if (memories_[i] == nullptr) throw std::bad_alloc();
  }
  void* const stack = mmap(nullptr, guard_bytes() + kStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) throw std::bad_alloc();
  mprotect(stack, guard_bytes(), PROT_NONE);  // stacks grow down
  stack_ = static_cast<std::byte*>(stack);
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_ + guard_bytes();
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  makecontext(&own_, run, 0);
}

Fiber::~Fiber() { munmap(stack_, guard_bytes() + kStackBytes); }

Fiber* Fiber::current() { return current_fiber; }

void Fiber::switch_to(ucontext_t& from, ucontext_t& to) {
#ifdef __SANITIZE_ADDRESS__
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, to.uc_stack.ss_sp, to.uc_stack.ss_size);
#endif
  swapcontext(&from, &to);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::start(std::function<void()> work) {
  work_ = std::move(work);
  resume();
}

void Fiber::resume() {
  Fiber* const outer = std::exchange(current_fiber, this);
  switch_to(outer_, own_);
  current_fiber = outer;
}

void Fiber::suspend() { switch_to(own_, outer_); }

// For each work that start() gives.
void Fiber::run() {
  Fiber* const fiber = current_fiber;
#ifdef __SANITIZE_ADDRESS__
  const void* stack;
  size_t bytes;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  fiber->outer_.uc_stack.ss_sp = const_cast<void*>(stack);
  fiber->outer_.uc_stack.ss_size = bytes;
#endif
  while (true) {
    fiber->work_();
    fiber->work_ = nullptr;
    fiber->suspend();
  }
}

}  // namespace AscendC::cpu
