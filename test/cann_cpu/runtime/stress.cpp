// SPDX-License-Identifier: Apache-2.0
// Threads that use streams, events, copies, callbacks and captured graphs at once; ends with 0 when every count is
// right.
//
// test/sanitizers.sh builds it together with the runtime under ThreadSanitizer.
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "acl/acl_rt.h"
#include "cann_cpu/runtime.h"

using cann_cpu::launch;

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 20;
constexpr int kSteps = 50;

void check(aclError code) {
  if (code == ACL_SUCCESS) return;
  const char* message = aclGetRecentErrMsg();
  std::printf("%d: %s\n", code, message == nullptr ? "" : message);
  std::exit(1);
}

void expect(long found, long expected, const char* what) {
  if (found == expected) return;
  std::printf("%s: %ld instead of %ld\n", what, found, expected);
  std::exit(1);
}

void count_atomically(void* counter) { ++*static_cast<std::atomic<long>*>(counter); }

struct Round {
  aclrtStream first, second;
  aclrtEvent forth, back;

  Round() {
    check(aclrtCreateStream(&first));
    check(aclrtCreateStream(&second));
    check(aclrtCreateEventExWithFlag(&forth, ACL_EVENT_SYNC));
    check(aclrtCreateEventExWithFlag(&back, ACL_EVENT_SYNC));
  }

  // Makes the second stream wait for the first, or the first for the second.
  void pass(aclrtStream from, aclrtStream to, aclrtEvent event) {
    check(aclrtRecordEvent(event, from));
    check(aclrtStreamWaitEvent(to, event));
  }

  // Two streams take turns at a counter that nothing but events protects.
  void take_turns() {
    long counter = 0;
    auto count = [&counter] { return ++counter, ACL_SUCCESS; };
    std::atomic<long> called = 0;
    void *device, *host;
    check(aclrtMalloc(&device, 4096, ACL_MEM_MALLOC_HUGE_FIRST));
    check(aclrtMallocHost(&host, 4096));
    for (int step = 0; step < kSteps; ++step) {
      check(launch(first, "count", count));
      pass(first, second, forth);
      check(launch(second, "count", count));
      pass(second, first, back);
      check(aclrtMemsetAsync(device, 4096, step, 4096, first));
      check(aclrtMemcpyAsync(host, 4096, device, 4096, ACL_MEMCPY_DEVICE_TO_HOST, first));
      check(aclrtLaunchHostFunc(first, count_atomically, &called));
      aclrtEventRecordedStatus status;
      check(aclrtQueryEventStatus(forth, &status));
    }
    check(aclrtSynchronizeEvent(back));
    check(aclrtSynchronizeStream(first));
    expect(counter, 2 * kSteps, "turns");
    expect(called, kSteps, "host functions");
    expect(static_cast<unsigned char*>(host)[4095], kSteps - 1, "copied byte");
    check(aclrtFree(device));
    check(aclrtFreeHost(host));
  }

  // A graph over both streams, replayed on both.
  void replay() {
    long counter = 0;
    auto count = [&counter] { return ++counter, ACL_SUCCESS; };
    aclmdlRI graph;
    check(aclmdlRICaptureBegin(first, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
    check(launch(first, "count", count));
    pass(first, second, forth);
    check(launch(second, "count", count));
    pass(second, first, back);
    check(aclmdlRICaptureEnd(first, &graph));
    for (int replay = 0; replay < 6; ++replay) check(aclmdlRIExecuteAsync(graph, replay % 2 == 0 ? first : second));
    check(aclrtSynchronizeStream(first));
    check(aclrtSynchronizeStream(second));
    expect(counter, 12, "replayed tasks");
    check(aclmdlRIDestroy(graph));
  }

  // One stream fails and recovers, the other waits for a value that never comes and is destroyed by force.
  void end() {
    check(launch(first, "fail", [] { return cann_cpu::error(7, "on purpose"); }));
    expect(aclrtSynchronizeStream(first), 7, "code of a failure");
    check(aclrtSynchronizeStream(first));
    void* value;
    check(aclrtMalloc(&value, 8, ACL_MEM_MALLOC_HUGE_FIRST));
    check(aclrtMemset(value, 8, 0, 8));
    check(aclrtValueWait(value, 1, ACL_STREAM_WAIT_VALUE_EQ, second));
    check(aclrtDestroyEvent(forth));
    check(aclrtDestroyEvent(back));
    check(aclrtDestroyStreamForce(second));
    check(aclrtDestroyStream(first));
    check(aclrtFree(value));
  }
};

// A capture begins and ends on a stream while another thread records an event on it. Waiting for the event is not
// allowed when it was recorded in the capture.
void record_beside_captures() {
  aclrtStream stream;
  aclrtEvent event;
  check(aclrtCreateStream(&stream));
  check(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  std::atomic<bool> done = false;
  std::thread recording([&] {
    check(aclrtSetDevice(0));
    while (!done) {
      check(aclrtRecordEvent(event, stream));
      const aclError code = aclrtSynchronizeEvent(event);
      if (code != ACL_ERROR_RT_EVENT_CAPTURED) check(code);
    }
  });
  for (int round = 0; round < kRounds * kSteps; ++round) {
    aclmdlRI graph;
    check(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    check(aclmdlRICaptureEnd(stream, &graph));
    check(aclmdlRIDestroy(graph));
  }
  done = true;
  recording.join();
  check(aclrtDestroyEvent(event));
  check(aclrtDestroyStream(stream));
}

// Streams are destroyed, in either way, while others wait for them and free memory that their tasks write.
void free_beside_endings() {
  for (int round = 0; round < kRounds; ++round) {
    aclrtStream stream;
    void* memory;
    check(aclrtCreateStream(&stream));
    check(aclrtMalloc(&memory, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST));
    for (int step = 0; step < kSteps; ++step) check(aclrtMemsetAsync(memory, 1 << 20, step, 1 << 20, stream));
    std::thread waiting([&] {
      check(aclrtSetDevice(1));
      aclrtSynchronizeStream(stream);  // or it is gone
    });
    std::thread freeing([&] {
      check(aclrtSetDevice(1));
      check(aclrtFree(memory));
    });
    check(round % 2 == 0 ? aclrtDestroyStream(stream) : aclrtDestroyStreamForce(stream));
    waiting.join();
    freeing.join();
  }
}

// A thread calls the functions of a stream that goes away in the meantime.
void report_beside_endings() {
  for (int round = 0; round < kRounds; ++round) {
    aclrtStream stream;
    check(aclrtCreateStream(&stream));
    std::atomic<long> called = 0;
    std::atomic<bool> subscribed = false;
    std::thread reporting([&] {
      check(aclrtSetDevice(0));
      check(aclrtSubscribeReport(static_cast<uint64_t>(pthread_self()), stream));
      subscribed = true;
      while (aclrtProcessReport(-1) == ACL_SUCCESS) {
      }
    });
    while (!subscribed) std::this_thread::yield();
    for (int step = 0; step < kSteps; ++step) {
      check(aclrtLaunchCallback(count_atomically, &called, ACL_CALLBACK_BLOCK, stream));
    }
    check(aclrtDestroyStream(stream));
    reporting.join();
    expect(called, kSteps, "callbacks");
  }
}

void work(int32_t device) {
  check(aclrtSetDevice(device));
  for (int round = 0; round < kRounds; ++round) {
    Round streams;
    streams.take_turns();
    streams.replay();
    streams.end();
  }
}

}  // namespace

int main() {
  check(aclInit(nullptr));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i % 2);
  for (std::thread& thread : threads) thread.join();
  check(aclrtSetDevice(0));
  record_beside_captures();
  free_beside_endings();
  report_beside_endings();
  check(aclFinalize());
}
