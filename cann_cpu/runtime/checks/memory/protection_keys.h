// SPDX-License-Identifier: Apache-2.0
// The processor's protection keys: device memory is accessible to a thread, not to the whole process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cann_cpu::protection_keys {

// Whether the processor and the kernel have them, and CANN_CPU_CHECK does not ask for `memory:pages`.
bool are_used();

// mprotect() with read and write rights, for threads that have access only. False when the machine has no mappings
// left.
bool protect(void* pages, size_t size);

// Whether the calling thread has access, until the end of the scope. Threads that it starts meanwhile have what it has.
class ThreadAccess {
 public:
  explicit ThreadAccess(bool is_granted);
  ~ThreadAccess();
  ThreadAccess(const ThreadAccess&) = delete;

 private:
  int before_ = 0;
};

// In a signal handler: the thread that the signal has interrupted has access from now on.
void grant_to_interrupted(void* context);

}  // namespace cann_cpu::protection_keys
