# SPDX-License-Identifier: Apache-2.0
"""Programs with tasks in Python, each run under a check: `python_task_programs.py NAME`."""

import ctypes
import sys
import time

import torch
import torch_npu  # noqa: F401
from cann_cpu import python_task


def memory(tensor):
    return (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())


def range_of(tensor, is_written):
    return tensor.data_ptr(), 4 * tensor.numel(), is_written


def double(source, target):
    """Launches a task."""

    def task():
        for i, value in enumerate(memory(source)):
            memory(target)[i] = 2 * value

    python_task.launch("double", task, [range_of(source, False), range_of(target, True)])  # launch


def right():
    x, y = torch.ones(8).npu(), torch.empty(8).npu()
    double(x, y)
    z = y + 1
    other = torch.npu.Stream()
    other.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(other):
        double(z, y)
    torch.npu.current_stream().wait_stream(other)
    graph = torch.npu.NPUGraph()
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        double(y, z)
        z.add_(1)
    graph.replay()
    assert z.cpu().tolist() == [13.0] * 8, z


def race():
    x, y = torch.ones(8).npu(), torch.empty(8).npu()
    torch.npu.synchronize()
    double(x, y)
    with torch.npu.stream(torch.npu.Stream()):
        y.exp()
    torch.npu.synchronize()


def overrun():
    x = torch.ones(8).npu()
    python_task.launch("overrun", lambda: None, [(x.data_ptr(), 4096, False)])  # launch
    torch.npu.synchronize()


def pending():
    """Ends while a task waits for the GIL, and others behind it."""
    x = torch.ones(8).npu()
    for _ in range(3):
        python_task.launch("pending", lambda: time.sleep(0.05))
        x = x + 1
    python_task.launch("last", lambda: print("done", flush=True))


def failing():
    """Ends with an error that nobody has asked for."""
    python_task.launch("failing", lambda: 1 / 0)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
