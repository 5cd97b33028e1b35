# SPDX-License-Identifier: Apache-2.0
"""Times the runtime itself: a task's way into a stream, copies, a built-in operator, a captured graph's replay.

Each is timed beside its peer, in turns in one process. The exit code is 1 if one misses its limit. An operator's time
is taken over calls in a row with one wait at their end, as torch.utils.benchmark does on asynchronous devices. The time
of a single call that the host waits for, which includes torch_npu's queue and the stream, follows without a limit.
"""

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from measure import progress

SECONDS = 2.0  # for a row, and a tenth of it before to warm up
ROUNDS = 31  # at least
TASKS = 200  # that are enqueued in a round
CALLS = 50  # of an operator in a row
NODES = 100  # of the graph
ROW = "{:<46} {:>12} {:<34} {:>12} {:>7} {:>7}"


@dataclass(frozen=True)
class Comparison:
    """Two calls and how many times as long as the peer's ours may take, if limited; `calls` are made in one."""

    ours: str
    call: Callable
    peer: str
    peers_call: Callable
    limit: float | None
    calls: int = 1
    until_done: bool = True  # else until the call has returned


def microseconds(call: Callable, calls: int, until_done: bool) -> float:
    torch.npu.synchronize()
    start = time.perf_counter()
    call()
    if until_done:
        torch.npu.synchronize()
    taken = time.perf_counter() - start
    torch.npu.synchronize()
    return taken / calls * 1e6


def enqueued() -> Comparison:
    """aclrtMemsetAsync of a word, called as C functions are from Python; two microseconds are the peer."""
    acl = ctypes.PyDLL("libascendcl.so")
    word = torch.zeros(1).npu()
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    arguments = (ctypes.c_void_p(word.data_ptr()), ctypes.c_size_t(4), 0, ctypes.c_size_t(4), stream)
    enqueue, range_ = acl.aclrtMemsetAsync, range(TASKS)

    def tasks():
        for _ in range_:
            enqueue(*arguments)

    def two_microseconds():
        end = time.perf_counter() + 2e-6 * TASKS
        while time.perf_counter() < end:
            pass

    return Comparison("a task into a stream", tasks, "2 us", two_microseconds, 1.0, TASKS, until_done=False)


def copies() -> list[Comparison]:
    host, other = torch.rand(64 << 20), torch.rand(64 << 20)
    device = host.npu()

    def memcpy(to):
        ctypes.memmove(to.data_ptr(), host.data_ptr(), host.nbytes)

    into, into_new = ("memcpy", lambda: memcpy(other)), ("memcpy to new memory", lambda: memcpy(torch.empty_like(host)))
    return [
        Comparison("x.npu(), 256 MiB", lambda: host.npu(), *into, 1 / 0.8),
        Comparison("y.copy_(x), 256 MiB, NPU to host", lambda: other.copy_(device), *into, 1 / 0.8),
        Comparison("x.cpu(), 256 MiB", lambda: device.cpu(), *into_new, 1 / 0.8),
    ]


def operators() -> list[Comparison]:
    """Calls in a row, and one call of a few elements and of many that the host waits for."""
    x, y = torch.rand(1_000_000), torch.rand(1_000_000)
    functions = {"add": torch.add, "mul": torch.mul, "exp": lambda x, _: x.exp(), "sum": lambda x, _: x.sum()}

    def comparison(title: str, function: Callable, elements: int, calls: int, limit: float | None) -> Comparison:
        operands = x[:elements], y[:elements]
        on_npu = [operand.npu() for operand in operands]

        def repeat(operands):
            for _ in range(calls):
                function(*operands)

        ours, peers = lambda: repeat(on_npu), lambda: repeat(operands)
        return Comparison(f"{title} of {elements:,} elements", ours, "ATen on the CPU", peers, limit, calls)

    return [
        *(comparison(f"{CALLS} times {name}", function, len(x), CALLS, 1.2) for name, function in functions.items()),
        *(comparison("one sum", functions["sum"], elements, 1, None) for elements in (16, len(x))),
    ]


def replayed() -> Comparison:
    x = torch.rand(16).npu()

    def nodes():
        y = x
        for _ in range(NODES):
            y = y + 1
        return y

    nodes()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        nodes()
    ours, peer = f"replay of {NODES} small nodes, the host's part", "eagerly, the host's part"
    return Comparison(ours, graph.replay, peer, nodes, 0.1, until_done=False)


def compared(c: Comparison) -> tuple[list[float], list[float]]:
    """Ours and the peer's times, in turns. Rows follow one another, so that none is measured after another's copy,
    which empties the caches."""
    times = ([], [])
    calls = c.call, c.peers_call
    start = time.monotonic()
    while (passed := time.monotonic() - start) < 1.1 * SECONDS or len(times[0]) < ROUNDS:
        order = (0, 1) if len(times[0]) % 2 else (1, 0)
        for i in order:
            taken = microseconds(calls[i], c.calls, c.until_done)
            if passed > 0.1 * SECONDS:
                times[i].append(taken)
    return times


def main() -> int:
    comparisons = [enqueued(), *copies(), *operators(), replayed()]
    times = []
    for number, c in enumerate(comparisons, 1):
        progress(f"row {number} of {len(comparisons)}: {c.ours}")
        times.append(compared(c))
    progress("")
    print(f"microseconds a call, and the ratio: medians of {ROUNDS} rounds or more")
    print(ROW.format("", "ours", "beside", "", "ratio", "limit"))
    missed = False
    for c, (ours, peers) in zip(comparisons, times, strict=True):
        ratio = statistics.median(a / b for a, b in zip(ours, peers, strict=True))
        missed |= c.limit is not None and ratio > c.limit
        limit = "-" if c.limit is None else f"{c.limit:.2f}"
        medians = [f"{statistics.median(found):.2f}" for found in (ours, peers)]
        print(ROW.format(c.ours, medians[0], c.peer, medians[1], f"{ratio:.2f}", limit))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
