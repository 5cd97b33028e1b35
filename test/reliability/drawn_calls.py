# SPDX-License-Identifier: Apache-2.0
"""Makes many calls that are drawn from a seed, in a process that may end, and counts what they did."""

import argparse
import collections
import functools
import json
import os
import queue
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

PATIENCE = 60  # seconds for a call
START = 120  # for the first one
MEMORY = 12 << 30  # of address space: a call that wants more is answered by an error
RIGHT = ["ran", "rejected", "failed in the stream"]
WRONG = ["no message", "wrote outside", "changed an input", "broke the next call", "hung", "crashed"]


def work(make: Callable, describe: Callable, seed: int, numbers: range, functions: list[str], end: float) -> None:
    """Makes the calls, with a line before each and after it, until it is too late."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    call = make()
    for number in numbers:
        if time.time() > end:
            return
        print(number, file=report, flush=True)
        outcome, message = call(*describe(seed, number, functions))
        print(json.dumps([outcome, message[:300]]), file=report, flush=True)


def supervise(
    program: str, seed: int, numbers: range, functions: list[str], end: float
) -> Iterator[tuple[int, str, str]]:
    """(call, outcome, message) of all of them; a worker that ends is followed by another."""

    def too_long(worker: subprocess.Popen, is_late: threading.Event) -> None:
        is_late.set()
        worker.kill()

    while numbers:
        span = ["--work", str(numbers.start), str(numbers.stop), str(numbers.step), "--end", str(end)]
        worker = subprocess.Popen(
            [sys.executable, program, "--seed", str(seed), *span, "--functions", *functions],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"TASK_QUEUE_ENABLE": "0"},
        )
        running, is_late, line = None, threading.Event(), "the first"
        while line:
            limit = threading.Timer(START if running is None else PATIENCE, too_long, (worker, is_late))
            limit.start()
            line = worker.stdout.readline()
            limit.cancel()
            if line.startswith("["):
                yield running, *json.loads(line)
                numbers, running = range(running + numbers.step, numbers.stop, numbers.step), None
            elif line:
                running = int(line)
        code = worker.wait()
        if running is not None:
            outcome = ("hung", f"longer than {PATIENCE} s") if is_late.is_set() else ("crashed", f"exit code {code}")
            yield running, *outcome
            numbers = range(running + numbers.step, numbers.stop, numbers.step)
        elif code == 0:
            return
        else:
            raise RuntimeError(f"{program} ended before a call: exit code {code}")


def results(jobs: int, calls: int, supervised: Callable) -> Iterator[tuple[int, str, str]]:
    """Yields the results of several workers, as they come."""
    ready = queue.Queue()

    def serve(first: int) -> None:
        try:
            for result in supervised(range(first, calls, jobs)):
                ready.put(result)
            ready.put(None)
        except Exception as error:
            ready.put(error)

    for first in range(jobs):
        threading.Thread(target=serve, args=(first,), daemon=True).start()
    while jobs:
        result = ready.get()
        if isinstance(result, Exception):
            raise result
        if result is None:
            jobs -= 1
        else:
            yield result


def main(program: str, title: str, functions: list[str], describe: Callable, make: Callable) -> int:
    """`describe(seed, number, functions)` draws a call, whose first part is the function's name; `make()` gives what
    makes it, with the outcome and the message."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, help="ends after so long with fewer calls")
    parser.add_argument("--jobs", type=int, default=1, help="processes that make them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--functions", nargs="+", metavar="NAME", default=functions, help="all by default")
    parser.add_argument("--only", type=int, metavar="CALL", help="shows one call, and makes it in this process")
    parser.add_argument("--work", type=int, nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--end", type=float, default=float("inf"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed, chosen = options.seed, options.functions
    if options.only is not None:
        print(*describe(seed, options.only, chosen), sep="\n  ", flush=True)
        options.work = options.only, options.only + 1, 1
    if options.work:
        work(make, describe, seed, range(*options.work), chosen, options.end)
        return 0
    end = float("inf") if options.seconds is None else time.time() + options.seconds
    counts, wrong = collections.Counter(), set()
    supervised = functools.partial(supervise, program, seed, functions=chosen, end=end)
    for call, outcome, message in results(options.jobs, options.calls, supervised):
        counts[outcome] += 1
        if outcome in WRONG:
            name = describe(seed, call, chosen)[0]
            if (name, outcome) not in wrong:
                print(f"\r\033[K{outcome}: call {call}, {name}: {message}", flush=True)
            wrong.add((name, outcome))
        if counts.total() % 100 == 0 and sys.stderr.isatty():
            print(f"\r\033[K{counts.total()} of {options.calls} calls", end="", file=sys.stderr, flush=True)
    print(f"\n{counts.total()} calls of {len(chosen)} functions, seed {seed}")
    for outcome in RIGHT + WRONG:
        print(f"{outcome:22}{counts[outcome]:8}")
    return 1 if wrong else 0
