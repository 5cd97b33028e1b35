# SPDX-License-Identifier: Apache-2.0
"""Where a call comes from is asked of Python without waiting for a thread that waits for the caller."""

import subprocess
import sys
from pathlib import Path

import cann_cpu
import pytest
from cann_cpu import trials
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
    outcome = trials.run(command, environment(CANN_CPU_CHECK=check), timeout=60)
    assert outcome.code == 0, outcome.stderr
