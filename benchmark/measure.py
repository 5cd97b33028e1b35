# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: times, memory, the machine's limits, and the table of an operator beside its peers."""

import ctypes
import functools
import math
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

TURN = 0.05  # seconds that a turn takes at least


def seconds(calls: list[Callable]) -> float:
    """What the calls take one after the other, until the NPU has done its part of them."""
    start = time.perf_counter()
    for call in calls:
        call()
    torch.npu.synchronize()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Work:
    """What a computation must at least do: operations of matrix products, by dtype, and bytes read."""

    bfloat16: float = 0
    int8: float = 0
    read: float = 0


@dataclass(frozen=True)
class Machine:
    """Operations of large matrix products and bytes read in a second."""

    bfloat16: float
    int8: float
    read: float

    def limit(self, stages: list[Work]) -> float:
        """The seconds that stages take at least, one after the other."""
        return sum(max(w.bfloat16 / self.bfloat16 + w.int8 / self.int8, w.read / self.read) for w in stages)

    def __str__(self):
        return f"{self.bfloat16 / 1e9:.0f} GFLOP/s, {self.int8 / 1e9:.0f} GOP/s in int8, {self.read / 1e9:.0f} GB/s"


def _product(dtype: torch.dtype, size: int) -> Callable:
    """ATen's product of two square matrices."""
    matrix = torch.randint(-128, 128, (size, size)).to(dtype)
    return functools.partial(torch._int_mm if dtype == torch.int8 else torch.mm, matrix, matrix)


@functools.cache
def fastest(dtype: torch.dtype) -> torch.dtype:
    """The dtype or float32, whichever ATen multiplies faster: without instructions for the dtype its product takes
    hundreds of times as long."""
    trial = 256
    return min(dtype, torch.float32, key=lambda each: _shortest(_product(each, trial)))


def _shortest(call: Callable) -> float:
    return min(timeit.repeat(call, number=1, repeat=3))


@functools.cache
def probes() -> dict[str, tuple[float, Callable]]:
    """What shows the machine's speed: for each field of Machine a computation, and how much of it that is."""
    size = 2048
    memory = torch.ones(1 << 26)
    return {
        "bfloat16": (2 * size**3, _product(fastest(torch.bfloat16), size)),
        "int8": (2 * size**3, _product(fastest(torch.int8), size)),
        "read": (memory.nbytes, memory.sum),
    }


def _status(field: str) -> int:
    """A field of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def peak_memory(function: Callable) -> int:
    """How many bytes the process grows by at most while the function runs, its results included."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to what is used now
    before = _status("VmRSS")
    seconds([function])
    return max(_status("VmHWM") - before, 0)


def ways(functions: dict[str, Callable], run: Callable, dynamic: bool) -> dict[str, Callable]:
    """Every function eagerly and compiled, by name; `run` makes of it what is to be called."""
    return {f"ATen eager, {name}": run(function) for name, function in functions.items()} | {
        f"inductor, {name}": run(torch.compile(function, dynamic=dynamic)) for name, function in functions.items()
    }


def progress(text: str) -> None:
    """Shows what runs now, where somebody looks on; the next line takes its place."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def take_turns(candidates: dict[str, list[Callable]], rounds: int) -> dict[str, list[float]]:
    """The time of a call of each candidate in each round, in turns.

    Its calls follow each other as those of a model's layers do, each with its own operands. The turn begins when
    OpenMP's threads of the previous turn have stopped spinning. A first call is not timed: it wakes up the threads
    and fills the caches. Then the calls are repeated until the turn is long compared with the time from its first call
    to the first task. A call that takes as long as a turn is made and timed once.
    """
    times = {name: [] for name in candidates}
    for i in range(rounds):
        for name, layers in candidates.items():
            progress(f"round {i + 1} of {rounds}: {name}")
            time.sleep(0.01)
            took = seconds(layers[-1:])
            if took < TURN:
                calls = layers * math.ceil(TURN / (len(layers) * took))
                took = seconds(calls) / len(calls)
            times[name].append(took)
    progress("")
    return times


def medians(candidates: dict[str, list[Callable]], rounds: int) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in take_turns(candidates, rounds).items()}


def compare(
    title: str,
    candidates: dict[str, list[Callable]],
    judge: Callable[[object], str],
    judged: str,
    stages: list[Work],
    rounds: int,
) -> bool:
    """Times the candidates and prints their table; says whether the first one, ours, is the fastest.

    The machine's limit is measured in each round, before ours, because the speed of shared cores changes: what part of
    the limit a candidate reaches is the median of the rounds. `judge` describes a candidate's first result in a word or
    two, and `judged` heads their column.
    """
    verdicts = {}
    for name, layers in candidates.items():
        progress(f"first calls: {name}")  # they may compile
        first, *others = layers
        verdicts[name] = judge(first())
        for layer in others:
            layer()
    times = take_turns({name: [probe] for name, (_, probe) in probes().items()} | candidates, rounds)
    speeds = {name: [amount / took for took in times.pop(name)] for name, (amount, _) in probes().items()}
    machine = Machine(**{name: statistics.median(values) for name, values in speeds.items()})
    by_round = [dict(zip(speeds, values, strict=True)) for values in zip(*speeds.values(), strict=True)]
    limits = [Machine(**of_round).limit(stages) for of_round in by_round]
    found = {name: statistics.median(values) for name, values in times.items()}
    ours = next(iter(found.values()))
    work = sum(stage.bfloat16 + stage.int8 for stage in stages)
    least = statistics.median(limits) * 1e3
    print(f"\n{title}: {work / 1e9:.1f} GFLOP, at least {least:.2f} ms on this machine ({machine})")
    print(f"{'':50}{'ms':>10}{'of the limit':>14}{'to ours':>9}{judged:>17}")
    for name, median in found.items():
        share = statistics.median(limit / took for limit, took in zip(limits, times[name], strict=True))
        print(f"{name:50}{median * 1e3:10.2f}{share:14.0%}{median / ours:8.1f}x{verdicts[name]:>17}")
    return ours == min(found.values())
