# SPDX-License-Identifier: Apache-2.0
"""Tasks in Python: their order, captures, errors, the GIL, the end of the process, and what the checks say of them."""

import gc
import sys
import threading
import time
import weakref
from pathlib import Path

import fresh
import pytest
import torch
import torch_npu
from cann_cpu import python_task
from checks.commands import checked
from garbage import leave_garbage

sys.path.insert(0, str(Path(__file__).parent))
import python_task_programs as programs

PROGRAMS = Path(programs.__file__)


def line_of(mark, function):
    """The line of a program that ends with a comment, as errors name it."""
    lines = PROGRAMS.read_text().splitlines()
    number = next(i for i in range(function.__code__.co_firstlineno, len(lines)) if lines[i - 1].endswith(f"# {mark}"))
    return f"{PROGRAMS}:{number} in {function.__name__}"


@pytest.mark.parametrize("stream", [None, torch.npu.Stream], ids=["default", "side"])
def test_a_task_runs_after_the_operators_before_it_and_before_those_after_it(stream):
    with torch.npu.stream(stream and stream()):
        x, y = torch.zeros(4, device="npu"), torch.empty(4, device="npu")
        for _ in range(20):
            x.add_(1)
            programs.double(x, y)
            x.copy_(y)
        assert x.tolist() == [2.0 * (2**20 - 1)] * 4


def test_a_task_runs_in_the_thread_of_the_stream_without_the_launch_waiting():
    threads, begun, may_end = [], threading.Event(), threading.Event()

    def task():
        begun.set()
        threads.append(threading.current_thread())
        may_end.wait(60)

    python_task.launch("task", task)
    assert begun.wait(60)
    may_end.set()
    torch.npu.synchronize()
    assert threads != [threading.current_thread()]


def test_a_graph_records_a_task_and_runs_it_on_what_the_tensors_hold_then():
    x, y = torch.ones(4).npu(), torch.zeros(4).npu()
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        programs.double(x, y)
        y.add_(1)
    assert y.tolist() == [0.0] * 4
    for value in (3.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value + 1] * 4


def test_a_function_lives_as_long_as_what_runs_it():
    class Function:
        def __call__(self):
            pass

    def collected(reference):
        torch.npu.synchronize()
        python_task.launch("next", lambda: None)  # forgets those before it
        gc.collect()
        return reference() is None

    function = Function()
    seen = weakref.ref(function)
    python_task.launch("once", function)
    del function
    assert collected(seen)

    graph, function = torch.npu.NPUGraph(), Function()
    seen = weakref.ref(function)
    with torch.npu.graph(graph):
        python_task.launch("captured", function)
    del function
    assert not collected(seen)
    graph.replay()
    assert not collected(seen)
    del graph
    gc.collect()
    assert collected(seen)


def test_garbage_is_collected_outside_of_tasks():
    """What is freed may wait for a stream, as a compiled graph of torchair does, and the task would wait for itself."""
    freed_in = []
    for stream in (torch.npu.Stream(), torch.npu.Stream()):
        with torch.npu.stream(stream):
            python_task.launch("task", lambda: leave_garbage(freed_in))
    torch.npu.synchronize()
    assert gc.isenabled()
    gc.collect()
    assert freed_in == [threading.current_thread()] * 2


def test_an_exception_is_an_error_of_the_stream_with_the_kernel_its_line_and_that_of_the_launch():
    def broken():
        raise ValueError("a wrong mask")

    python_task.launch("broken_kernel", broken)
    line = sys._getframe().f_lineno
    with pytest.raises(RuntimeError) as caught:
        torch.npu.synchronize()
    here, text = f"{__file__}:{{}} in {{}}", str(caught.value)
    assert "broken_kernel on stream" in text
    assert f"ValueError: a wrong mask, at {here.format(line - 3, 'broken')}" in text
    assert f"launched at {here.format(line - 1, sys._getframe().f_code.co_name)}" in text
    assert torch.ones(2, device="npu").sum().item() == 2  # the stream goes on


def event_of(stream):
    event = torch.npu.Event()
    event.record(stream)
    return event


WAITS = {
    "device": lambda x: torch.npu.synchronize(),
    "stream": lambda x: torch.npu.current_stream().synchronize(),
    "event": lambda x: event_of(torch.npu.current_stream()).synchronize(),
    "copy": lambda x: x.cpu(),
    "item": lambda x: x[0].item(),
    "truth": lambda x: bool(x[0] > 5),
    "text": repr,
    "pinned memory": lambda x: torch.ones(4).pin_memory().copy_(x),
    "cache": lambda x: torch.npu.empty_cache(),
    "queue": lambda x: torch_npu._C._npu_getCurrentRawStream(0),
    "mask": lambda x: x[x > 5],
    "deletion": lambda x: x.untyped_storage().resize_(0),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wait", WAITS)
def test_who_waits_for_a_stream_lets_its_tasks_have_the_gil(wait):
    x, done = torch.zeros(4, device="npu"), []

    def task():
        for _ in range(3):
            time.sleep(0.002)  # gives the GIL away, and needs it again
        done.append(1)

    python_task.launch("task", task)
    x.add_(1)
    WAITS[wait](x)
    torch.npu.synchronize()
    assert done


def test_a_process_that_ends_does_the_tasks_before():
    done = fresh.run([sys.executable, PROGRAMS, "pending"], timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    done = fresh.run([sys.executable, PROGRAMS, "failing"], timeout=60)
    assert done.returncode == 0
    assert "ZeroDivisionError: division by zero" in done.stderr


def test_under_the_checks_a_task_has_its_name_its_line_and_its_memory(tmp_path):
    code, reports, stderr = checked(tmp_path, sys.executable, PROGRAMS, "right", checks="race,memory")
    assert (code, reports) == (0, []), stderr
    code, reports, stderr = checked(tmp_path, sys.executable, PROGRAMS, "race", "overrun", checks="race,memory")
    assert code == 66, stderr
    (conflict,) = [each for each in reports if "first" in each]
    assert conflict["first"].startswith("double on stream")
    assert conflict["first"].endswith(f"writes its argument 2, launched at {line_of('launch', programs.double)}")
    assert "overrun reads its argument 1" in stderr
    assert f"launched at {line_of('launch', programs.overrun)}" in stderr


def test_the_order_of_a_schedule_holds_for_tasks_in_python(tmp_path):
    code, _, stderr = checked(tmp_path, sys.executable, PROGRAMS, "right", checks="schedule", options=["--seeds=1..3"])
    assert code == 0, stderr


def test_the_cost_counts_tasks_in_python(tmp_path):
    code, _, stderr = checked(tmp_path, sys.executable, PROGRAMS, "right", checks="cost")
    assert code == 0
    assert "double" in stderr
