// SPDX-License-Identifier: Apache-2.0
// Programs in C++ for the check `memory`: the tasks touch more than they declare.
#include <atomic>
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

// The task has its own memory, and runs until the host has read another buffer, or for a second.
void host_reads_while_a_task_uses_it() {
  float* const x = allocate(kCount);
  static std::atomic<bool> runs{false}, has_read{false};
  cann_cpu::launch(nullptr, "scale",
                   [=] {
                     x[0] = 1;
                     runs = true;
                     for (int i = 0; i < 1000 && !has_read; ++i)
                       std::this_thread::sleep_for(std::chrono::milliseconds(1));
                     return ACL_SUCCESS;
                   },
                   {{reinterpret_cast<uintptr_t>(x), reinterpret_cast<uintptr_t>(x + kCount), true, 1}});
  while (!runs) std::this_thread::yield();
  seen = x[1];
  has_read = true;
  aclrtSynchronizeDevice();
  aclrtFree(x);
}

void host_function_reads_its_argument(void* memory) { seen = static_cast<float*>(memory)[1]; }

void host_function_reads() {
  float* const x = allocate(kCount);
  aclrtStream stream = nullptr;
  aclrtCreateStream(&stream);
  aclrtLaunchHostFunc(stream, host_function_reads_its_argument, x);
  aclrtSynchronizeStream(stream);
  aclrtDestroyStream(stream);
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

// A thread that the host started, and that works for tasks, as those of OpenMP do.
void uses_in_a_thread_of_the_hosts() {
  float* const x = allocate(kCount);
  std::atomic<int> step{0};
  std::thread helper([&] {
    while (step != 1) std::this_thread::yield();
    for (size_t i = 0; i < kCount; ++i) x[i] = 1;
    step = 2;
  });
  cann_cpu::launch(nullptr, "scale",
                   [&] {
                     step = 1;
                     while (step != 2) std::this_thread::yield();
                     return ACL_SUCCESS;
                   },
                   {{reinterpret_cast<uintptr_t>(x), reinterpret_cast<uintptr_t>(x + kCount), true, 1}});
  aclrtSynchronizeDevice();
  helper.join();
  aclrtFree(x);
}

void right() {
  scale(kCount, 0, true);
  scale(kCount, kCount - 1, false, true);
  uses_in_a_thread_of_the_hosts();
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
  RUN(host_reads_while_a_task_uses_it);
  RUN(host_function_reads);
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
