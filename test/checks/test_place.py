# SPDX-License-Identifier: Apache-2.0
"""Where a call comes from is asked of Python without waiting for a thread that waits for the caller."""

import subprocess
import sys
from pathlib import Path

import cann_cpu
import pytest
from cann_cpu.checks import repeated_runs
from checks.commands import environment

HOME = Path(cann_cpu.__file__).parent

# As PyTorch's allocators: they ask the driver for memory, and answer for their figures, with one lock.
ALLOCATOR = """
#include <chrono>
#include <mutex>
#include <thread>
#include "acl/acl_rt.h"

static std::mutex mutex;
static bool is_allocating = false;

extern "C" int allocate() {
  if (aclrtSetDevice(0) != 0) return 1;
  const std::lock_guard lock(mutex);
  is_allocating = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  void* memory = nullptr;
  return aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST) != 0 || aclrtFree(memory) != 0;
}

// As it frees blocks that a stream beside has used.
extern "C" int give_back(aclrtStream stream, int rounds) {
  const std::lock_guard lock(mutex);
  is_allocating = true;
  for (aclrtEventRecordedStatus status; rounds > 0; --rounds) {
    aclrtEvent event = nullptr;
    if (aclrtCreateEvent(&event) != 0 || aclrtRecordEvent(event, stream) != 0) return 1;
    if (aclrtQueryEventStatus(event, &status) != 0 || aclrtDestroyEvent(event) != 0) return 2;
  }
  return 0;
}

extern "C" int figures() {
  const std::lock_guard lock(mutex);
  return is_allocating;
}
"""
PROGRAM = """
import ctypes, sys, threading, time

def allocate(results):
    results.append(allocator.allocate())

allocator, with_gil = ctypes.CDLL(sys.argv[1]), ctypes.PyDLL(sys.argv[1])
acl = ctypes.CDLL("libascendcl.so")
assert acl.aclInit(None) == 0
results = []
thread = threading.Thread(target=allocate, args=(results,))
thread.start()
time.sleep(0.1)
assert with_gil.figures() == 1
thread.join()
assert results == [0]
"""


@pytest.fixture(scope="module")
def allocator(tmp_path_factory):
    library = tmp_path_factory.mktemp("place") / "liballocator.so"
    flags = ["-std=c++17", "-fPIC", "-shared", f"-I{HOME}/include", f"-L{HOME}/lib64", f"-Wl,-rpath,{HOME}/lib64"]
    command = ["g++", *flags, "-x", "c++", "-", "-lascendcl", "-o", str(library)]
    subprocess.run(command, input=ALLOCATOR, text=True, check=True)
    return library


@pytest.mark.parametrize("check", ["cost", "fault:aclrtMalloc@nowhere.py:1", "memory"])
def test_a_call_with_a_lock_held_does_not_wait_for_a_thread_that_waits_for_the_lock(check, allocator):
    command = [sys.executable, "-c", PROGRAM, str(allocator)]
    outcome = repeated_runs.run(command, environment(CANN_CPU_CHECK=check), timeout=60)
    assert outcome.code == 0, outcome.stderr


GIVING_BACK = """
import ctypes, sys, threading, time

with_gil, acl = ctypes.PyDLL(sys.argv[1]), ctypes.CDLL("libascendcl.so")
stream = ctypes.c_void_p()
assert acl.aclInit(None) == acl.aclrtSetDevice(0) == acl.aclrtCreateStream(ctypes.byref(stream)) == 0
over = threading.Event()

def ask():
    while not over.is_set():
        with_gil.figures()

thread = threading.Thread(target=ask)
thread.start()
for _ in range(20):
    assert with_gil.give_back(stream, 50) == 0
    time.sleep(0.001)
over.set()
thread.join()
assert acl.aclrtDestroyStream(stream) == 0
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_launch_with_the_gil_and_a_lock_held_keeps_the_gil(seed, allocator):
    variables = environment(CANN_CPU_CHECK="schedule", CANN_CPU_SEED=str(seed))
    outcome = repeated_runs.run([sys.executable, "-c", GIVING_BACK, str(allocator)], variables, timeout=60)
    assert outcome.code == 0, outcome.stderr


HOST_FUNCTION = """
import ctypes, sys

acl, with_gil = ctypes.CDLL("libascendcl.so"), ctypes.PyDLL("libascendcl.so")
streams, event, status, called = [ctypes.c_void_p() for _ in range(2)], ctypes.c_void_p(), ctypes.c_int(), []
assert acl.aclInit(None) == acl.aclrtSetDevice(0) == 0
for stream in streams:
    assert acl.aclrtCreateStream(ctypes.byref(stream)) == 0
assert acl.aclrtCreateEvent(ctypes.byref(event)) == 0
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
for number in range(1, 9):
    assert acl.aclrtLaunchHostFunc(streams[0], function, None) == 0
    assert acl.aclrtRecordEvent(event, streams[1]) == 0
    assert with_gil.aclrtSynchronizeEvent(event) == 0  # of the other stream
    while len(called) < number:
        assert with_gil.aclrtQueryEventStatus(event, ctypes.byref(status)) == 0
for stream in streams:
    assert acl.aclrtSynchronizeStream(stream) == 0
"""


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_wait_with_the_gil_held_does_not_wait_for_a_function_of_python(seed):
    variables = environment(CANN_CPU_CHECK="schedule", CANN_CPU_SEED=str(seed))
    outcome = repeated_runs.run([sys.executable, "-c", HOST_FUNCTION], variables, timeout=60)
    assert outcome.code == 0, outcome.stderr
