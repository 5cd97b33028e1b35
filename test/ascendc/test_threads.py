# SPDX-License-Identifier: Apache-2.0
"""How many threads run the blocks of kernels: what the process may use, and what ASCENDC_CPU_THREADS says."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cann_cpu.kernel import KernelFile

KERNEL = """
#include "kernel_operator.h"
extern "C" __global__ __aicore__ void nothing(GM_ADDR x) {}
"""
PROGRAM = """
import os, sys
import numpy as np
from cann_cpu.kernel import KernelFile

os.sched_setaffinity(0, {int(processor) for processor in sys.argv[2].split(",")})
before = len(os.listdir("/proc/self/task"))
KernelFile.kept("nothing.cpp", sys.argv[1])["nothing"](np.ones(1), blocks=8)
print(1 + len(os.listdir("/proc/self/task")) - before)
"""
LIMIT = """
import resource

def limit_memory(more):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))

def lift_limit():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
WITHOUT_MEMORY = f"""{LIMIT}
import sys, threading
import numpy as np
from cann_cpu.kernel import KernelFile

nothing = KernelFile.kept("nothing.cpp", sys.argv[1])["nothing"]
x = np.ones(1)

def launch():
    try:
        nothing(x, blocks=8)
        print("ran")
    except Exception as error:
        print(error)

nothing(x, blocks=1)  # this thread has a stack for blocks from now on, the others have none
go = threading.Event()
other = threading.Thread(target=lambda: (go.wait(), launch()))
other.start()
limit_memory(2**18)
launch()
go.set()
other.join()
lift_limit()
launch()
"""
WAITING = """
#include <unistd.h>
#include "kernel_operator.h"
using namespace AscendC;

// Which thread each core continues in, after all have met.
extern "C" __global__ __aicore__ void meet(GM_ADDR threads) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
  const auto before = gettid();
  SyncAll();
  reinterpret_cast<__gm__ int32_t*>(threads)[GetBlockIdx()] = before == gettid() ? before : 0;
}

// The first core polls what the last one writes.
extern "C" __global__ __aicore__ void poll(GM_ADDR flag) {
  GlobalTensor<int32_t> of;
  of.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(flag), 8);
  if (GetBlockIdx() == GetBlockNum() - 1) of.SetValue(0, 1);
  while (GetBlockIdx() == 0 && of.GetValue(0) == 0) {
    DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(of);
  }
}
"""
PROCESSORS = sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("threads")
    (folder / "nothing.cpp").write_text(KERNEL)
    KernelFile(folder / "nothing.cpp", keep=folder / "nothing.so")
    return folder / "nothing.so"


@pytest.fixture
def run(library):
    def run(*before, processors=PROCESSORS, **variables):
        kept = {name: value for name, value in os.environ.items() if name != "ASCENDC_CPU_THREADS"}
        words = [*before, sys.executable, "-c", PROGRAM, library, ",".join(map(str, processors))]
        return subprocess.run(words, env=kept | variables, capture_output=True, text=True)

    return run


def threads(done):
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_threads_without_memory_for_blocks_leave_them_to_others(library):
    """Where a launch's own thread has none either, the launch fails, and a later one runs."""
    command = [sys.executable, "-c", WITHOUT_MEMORY, library]
    done = subprocess.run(command, env=os.environ | {"ASCENDC_CPU_THREADS": "4"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert (first, third) == ("ran", "ran")
    assert second.startswith("there is no memory for a core of the kernel: mapping ")


def test_threads_are_as_many_as_the_processors_that_the_process_may_use(run):
    assert threads(run()) == len(PROCESSORS)
    assert threads(run(processors=PROCESSORS[:1])) == 1


@pytest.mark.parametrize("number", [1, 3])
def test_the_variable_says_how_many(run, number):
    assert threads(run(ASCENDC_CPU_THREADS=str(number))) == number
    assert threads(run(ASCENDC_CPU_THREADS="")) == len(PROCESSORS)


@pytest.mark.parametrize("number", ["0", "-1", "two", "4x", "1025", "99999999999"])
def test_what_is_no_number_of_threads_is_rejected(run, number):
    done = run(ASCENDC_CPU_THREADS=number)
    assert done.returncode != 0
    assert f'ASCENDC_CPU_THREADS is "{number}"; expected a number of threads from 1 to 1024' in done.stderr


BOUND = """
import os, sys, time
import numpy as np
import torch
from cann_cpu.kernel import KernelFile

assert len(os.sched_getaffinity(0)) == 1
before = set(os.listdir("/proc/self/task"))
KernelFile.kept("nothing.cpp", sys.argv[1])["nothing"](np.ones(1), blocks=8)
added = set(os.listdir("/proc/self/task")) - before
time.sleep(0.2)  # they begin by choosing their processors
print(1 + len(added), *(len(os.sched_getaffinity(int(thread))) for thread in added))
"""


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="one processor")
def test_the_thread_that_openmp_binds_does_not_bind_others(library):
    environment = {name: value for name, value in os.environ.items() if name != "ASCENDC_CPU_THREADS"}
    environment["OMP_PROC_BIND"] = "true"
    done = subprocess.run([sys.executable, "-c", BOUND, library], env=environment, capture_output=True, text=True)
    count, *processors = map(int, done.stdout.split())
    assert count == len(PROCESSORS) and set(processors) == {len(PROCESSORS)}, done.stderr


UNSHARE = ("unshare", "--mount", *(() if os.getuid() == 0 else ("--map-root-user", "--user")))
CAN_MOUNT = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", "/sys/fs/cgroup"], capture_output=True)

GROUPS = Path("/proc/self/cgroup").read_text().splitlines()
HAS_VERSION_1 = any("cpu" in line.split(":")[1].split(",") for line in GROUPS)


@pytest.mark.skipif(CAN_MOUNT.returncode != 0, reason=f"the control groups cannot be covered: {CAN_MOUNT.stderr}")
@pytest.mark.skipif(len(PROCESSORS) < 2, reason="one processor")
@pytest.mark.parametrize("quota, expected", [("max", None), (50_000, 1), (100_000, 1), (150_000, 2)])
@pytest.mark.parametrize("version", [1, 2])
def test_threads_are_no_more_than_the_quota_of_the_control_group(run, version, quota, expected):
    group = "/sys/fs/cgroup"
    if version == 2:
        files = f"echo {quota} 100000 > {group}/cpu.max"
    elif HAS_VERSION_1:
        files = f"mkdir {group}/cpu; echo {-1 if quota == 'max' else quota} > {group}/cpu/cpu.cfs_quota_us"
        files += f"; echo 100000 > {group}/cpu/cpu.cfs_period_us"
    else:
        pytest.skip("the kernel has no control groups of version 1")
    script = f'mount -t tmpfs none {group}; {files}; exec "$@"'
    assert threads(run(*UNSHARE, "sh", "-ec", script, "sh")) == (expected or len(PROCESSORS))


POLLING = """
import os, sys
import numpy as np
from cann_cpu.kernel import KernelFile

os.environ["ASCENDC_CPU_THREADS"] = "1"
flag = np.zeros(8, np.int32)
KernelFile.kept("waiting.cpp", sys.argv[1])["poll"](flag, blocks=48, checks=False)
print(flag[0])
"""


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waiting")
    (folder / "waiting.cpp").write_text(WAITING)
    KernelFile(folder / "waiting.cpp", keep=folder / "waiting.so")
    return folder / "waiting.so"


def test_a_core_that_waits_leaves_its_thread_to_others_and_continues_in_it(waiting):
    threads = np.zeros(48, np.int32)
    KernelFile.kept("waiting.cpp", waiting)["meet"](threads, blocks=48, checks=False)
    assert threads.all() and len(set(threads)) <= len(PROCESSORS)


def test_a_core_may_poll_what_another_one_writes(waiting):
    done = subprocess.run([sys.executable, "-c", POLLING, waiting], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["1"], done.stderr


MEETING_WITHOUT_MEMORY = f"""{LIMIT}
import sys
import numpy as np
from cann_cpu.kernel import KernelFile

meet, threads = KernelFile.kept("waiting.cpp", sys.argv[1])["meet"], np.zeros(200, np.int32)
meet(threads, blocks=4)
limit_memory(2**25)
try:
    meet(threads, blocks=200)
except Exception as error:
    print(error)
lift_limit()
meet(threads, blocks=200)
print(threads.all())
"""


def test_cores_that_wait_for_one_without_memory_return(waiting):
    command = [sys.executable, "-c", MEETING_WITHOUT_MEMORY, waiting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    failed, met = done.stdout.splitlines()
    assert failed.startswith("there is no memory for a core of the kernel: mapping ")
    assert met == "True"
