// SPDX-License-Identifier: Apache-2.0
#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "ascendc/block.h"
#include "ascendc/launch.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace AscendC::cpu {
namespace {

constexpr size_t kStackBytes = 1 << 20;  // a core of a device has 32 KiB

size_t whole_pages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

// An instruction may read a whole repeat whose last lanes are masked.
size_t mapped_bytes(size_t hardware) {
  return whole_pages(largest_bytes_of(static_cast<Hardware>(hardware)) + kRepeatBytes);
}

size_t mapped_bytes() {
  size_t bytes = whole_pages(1) + kStackBytes;
  for (size_t i = 0; i < kHardwares; ++i) bytes += mapped_bytes(i);
  return bytes;
}

thread_local Fiber* current_fiber = nullptr;

}  // namespace

Fiber::Fiber() {
  void* const mapped =
      mmap(nullptr, mapped_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    throw KernelError("there is no memory for a core of the kernel: mapping " + std::to_string(mapped_bytes()) +
                      " bytes failed: " + std::strerror(errno));
  }
  mapped_ = static_cast<std::byte*>(mapped);
  madvise(mapped_, mapped_bytes(), MADV_NOHUGEPAGE);  // a core uses a small part
  const size_t guard = whole_pages(1);
  mprotect(mapped_, guard, PROT_NONE);  // stacks grow down
  std::byte* memory = mapped_ + guard + kStackBytes;
  for (size_t i = 0; i < kHardwares; memory += mapped_bytes(i++)) memories_[i] = memory;
  getcontext(&own_);
  own_.uc_stack.ss_sp = mapped_ + guard;
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  makecontext(&own_, run, 0);
}

Fiber::~Fiber() { munmap(mapped_, mapped_bytes()); }

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
