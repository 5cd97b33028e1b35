"""What the benchmarks share: times, memory, the machine's limits, and the table of an operator beside its peers."""

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch


def seconds(function: Callable) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Work:
    """What a computation must at least do: operations of matrix products, by dtype, and bytes read."""

    bfloat16: float = 0
    int8: float = 0
    read: float = 0


@dataclass(frozen=True)
class Machine:
    """The most operations of large matrix products and bytes read that were seen here in a second."""

    bfloat16: float
    int8: float
    read: float

    def limit(self, stages: list[Work]) -> float:
        """The seconds that stages take at least, one after the other."""
        return sum(max(w.bfloat16 / self.bfloat16 + w.int8 / self.int8, w.read / self.read) for w in stages)


def machine(rounds: int) -> Machine:
    def fastest(multiply: Callable, matrices: Callable) -> float:
        speeds = []
        for size in (1024, 2048, 3072):
            a, b = matrices(size), matrices(size)
            speeds.append(2 * size**3 / min(seconds(lambda a=a, b=b: multiply(a, b)) for _ in range(rounds)))
        return max(speeds)

    bfloat16 = fastest(torch.mm, lambda size: torch.randn(size, size).bfloat16())
    int8 = fastest(torch._int_mm, lambda size: torch.randint(-128, 128, (size, size), dtype=torch.int8))
    memory = torch.ones(1 << 26)
    read = memory.nbytes / min(seconds(memory.sum) for _ in range(rounds))
    print(
        f"{torch.get_num_threads()} threads: {bfloat16 / 1e9:.0f} GFLOP/s in bfloat16, {int8 / 1e9:.0f} GOP/s in int8, "
        f"{read / 1e9:.0f} GB/s read"
    )
    return Machine(bfloat16, int8, read)


def _status(field: str) -> int:
    """A field of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def peak_memory(function: Callable) -> int:
    """How many bytes the process grows by at most while the function runs, its results included."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to what is used now
    before = _status("VmRSS")
    function()
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


def empty_caches() -> None:
    """Takes the operands out of the processor's caches, as a model's other layers do between two calls of one.

    Then waits until the threads of what ran before have stopped spinning.
    """
    torch.ones(1 << 26).sum()
    time.sleep(0.01)


def medians(candidates: dict[str, Callable], rounds: int) -> dict[str, float]:
    """The median time of each, run in turn, with cold caches."""
    times = {name: [] for name in candidates}
    for i in range(rounds):
        for name, run in candidates.items():
            progress(f"round {i + 1} of {rounds}: {name}")
            empty_caches()
            times[name].append(seconds(run))
    progress("")
    return {name: statistics.median(values) for name, values in times.items()}


def compare(
    title: str,
    candidates: dict[str, Callable],
    judge: Callable[[object], str],
    judged: str,
    stages: list[Work],
    limits: Machine,
    rounds: int,
) -> bool:
    """Times the candidates and prints their table; says whether the first one, ours, is the fastest.

    `judge` describes a candidate's result in a word or two, and `judged` heads their column.
    """
    verdicts = {}
    for name, run in candidates.items():
        progress(f"first call: {name}")  # it may compile
        verdicts[name] = judge(run())
    found = medians(candidates, rounds)
    ours = next(iter(found.values()))
    limit = limits.limit(stages)
    work = sum(stage.bfloat16 + stage.int8 for stage in stages)
    print(f"\n{title}: {work / 1e9:.1f} GFLOP, at least {limit * 1e3:.2f} ms on this machine")
    print(f"{'':50}{'ms':>10}{'of the limit':>14}{'to ours':>9}{judged:>17}")
    for name, median in found.items():
        print(f"{name:50}{median * 1e3:10.2f}{limit / median:14.0%}{median / ours:8.1f}x{verdicts[name]:>17}")
    return ours == min(found.values())
