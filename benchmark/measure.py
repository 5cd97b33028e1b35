"""What the benchmarks share: times, the machine's limits, and the table of an operator beside its peers."""

import statistics
import time
from collections.abc import Callable

import torch


def seconds(function: Callable) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def machine(rounds: int) -> tuple[float, float]:
    """The most floating point operations a second of large bf16 matrix products, and bytes a second read, seen here."""
    flops = []
    for size in (1024, 2048, 3072):
        a, b = torch.randn(2, size, size).bfloat16()
        flops.append(2 * size**3 / min(seconds(lambda a=a, b=b: a @ b) for _ in range(rounds)))
    memory = torch.ones(1 << 26)
    bandwidth = memory.nbytes / min(seconds(memory.sum) for _ in range(rounds))
    print(f"{torch.get_num_threads()} threads: {max(flops) / 1e9:.0f} GFLOP/s in bf16, {bandwidth / 1e9:.0f} GB/s read")
    return max(flops), bandwidth


def ways(functions: dict[str, Callable], run: Callable, dynamic: bool) -> dict[str, Callable]:
    """Every function eagerly and compiled, by name; `run` makes of it what is to be called."""
    return {f"ATen eager, {name}": run(function) for name, function in functions.items()} | {
        f"inductor, {name}": run(torch.compile(function, dynamic=dynamic)) for name, function in functions.items()
    }


def compare(
    title: str,
    candidates: dict[str, Callable],
    judge: Callable[[object], str],
    judged: str,
    work: float,
    limit: float,
    rounds: int,
) -> bool:
    """Times the candidates in turn and prints their table; says whether the first one, ours, is the fastest.

    `work` is in floating point operations, `limit` in seconds; `judge` describes a candidate's result in a word or two,
    and `judged` heads their column.
    """
    verdicts = {name: judge(run()) for name, run in candidates.items()}  # the first call also compiles
    times = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            times[name].append(seconds(run))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ours = next(iter(medians.values()))
    print(f"\n{title}: {work / 1e9:.1f} GFLOP, at least {limit * 1e3:.2f} ms on this machine")
    print(f"{'':42}{'ms':>9}{'of the limit':>14}{'to ours':>9}{judged:>15}")
    for name, median in medians.items():
        print(f"{name:42}{median * 1e3:9.2f}{limit / median:14.0%}{median / ours:8.1f}x{verdicts[name]:>15}")
    return ours == min(medians.values())


def conclude(name: str, fastest: list[bool]) -> int:
    print(f"\nThe {name} is {'the' if all(fastest) else 'NOT the'} fastest everywhere.")
    return 0 if all(fastest) else 1
