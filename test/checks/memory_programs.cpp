// SPDX-License-Identifier: Apache-2.0
// Programs in C++ for the check `memory`: the tasks touch more than they declare.
#include <cassert>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "acl/acl.h"
#include "cann_cpu/runtime.h"

extern "C" {

constexpr size_t kCount = 4096;
volatile float seen;

__attribute__((noinline)) float* allocate(size_t count) {
  void* memory = nullptr;
  if (aclrtMalloc(&memory, count * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) std::abort();
  aclrtMemset(memory, count * sizeof(float), 0, count * sizeof(float));
  return static_cast<float*>(memory);
}

void host_reads() {
  float* const x = allocate(kCount);
  seen = x[1];
  aclrtFree(x);
}

void host_writes() {
  float* const x = allocate(kCount);
  std::memset(x, 1, sizeof(float));
  aclrtFree(x);
}

// Writes or reads one element, beside those that it declares.
__attribute__((always_inline)) inline void scale(size_t count, int64_t at, bool writes, bool in_a_thread = false) {
  float* const x = allocate(count);
  const auto begin = reinterpret_cast<uintptr_t>(x);
  const auto touch = [=] {
    volatile float* const element = x + at;
    writes ? void(*element = 1) : void(seen = *element);
  };
  cann_cpu::launch(nullptr, "scale",
                   [=] {
                     in_a_thread ? std::thread(touch).join() : touch();
                     return ACL_SUCCESS;
                   },
                   {{begin, begin + count * sizeof(float), true, 1}});
  aclrtSynchronizeDevice();
  aclrtFree(x);
}

void reads_behind() { scale(kCount, kCount, false); }
void writes_behind() { scale(kCount, kCount, true); }
void writes_behind_an_odd_end() { scale(9, 9, true); }
void writes_in_front() { scale(9, -1, true); }
void uses_in_another_thread() { scale(kCount, kCount, true, true); }
void leaks() { allocate(kCount); }
void right() {
  scale(kCount, 0, true);
  scale(kCount, kCount - 1, false, true);
}
}

int main(int, char** arguments) {
  aclInit(nullptr);
  aclrtSetDevice(0);
  const std::string name = arguments[1];
#define RUN(function) \
  if (name == #function) function()
  RUN(host_reads);
  RUN(host_writes);
  RUN(reads_behind);
  RUN(writes_behind);
  RUN(writes_behind_an_odd_end);
  RUN(writes_in_front);
  RUN(uses_in_another_thread);
  RUN(leaks);
  RUN(right);
  aclrtResetDevice(0);
  aclFinalize();
}
