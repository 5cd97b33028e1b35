# SPDX-License-Identifier: Apache-2.0
"""Makes many calls that are drawn from a seed, in a process that may end, and counts what they did."""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

PATIENCE = 60  # seconds for a call
START = 120  # for the first one
RIGHT = ["ran", "rejected", "failed in the stream"]
WRONG = ["no message", "wrote outside", "changed an input", "broke the next call", "hung", "crashed"]


def work(make: Callable, describe: Callable, seed: int, first: int, last: int, functions: list[str]) -> None:
    """Makes the calls, with a line before each and after it."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    call = make()
    for number in range(first, last):
        print(number, file=report, flush=True)
        outcome, message = call(*describe(seed, number, functions))
        print(json.dumps([outcome, message[:300]]), file=report, flush=True)


def supervise(program: str, seed: int, calls: int, functions: list[str]) -> Iterator[tuple[int, str, str]]:
    """(call, outcome, message) of all of them; a worker that ends is followed by another."""

    def too_long(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    call = 0
    while call < calls:
        span = ["--seed", str(seed), "--work", str(call), str(calls), "--functions", *functions]
        environment = os.environ | {"TASK_QUEUE_ENABLE": "0"}
        worker = subprocess.Popen(
            [sys.executable, program, *span],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        running, ended = None, ""
        while not ended:
            signal.alarm(START if running is None else PATIENCE)
            try:
                line = worker.stdout.readline()
                ended = "" if line else f"exit code {worker.wait()}"
            except TimeoutError:
                worker.kill()
                worker.wait()
                line, ended = "", f"longer than {PATIENCE} s"
            finally:
                signal.alarm(0)
            if line.startswith("["):
                yield running, *json.loads(line)
                call, running = running + 1, None
            elif line:
                running = int(line)
        if running is not None:
            yield running, "hung" if ended.startswith("longer") else "crashed", ended
            call = running + 1
        elif call < calls:
            raise RuntimeError(f"{program} ended before its first call: {ended}")


def main(program: str, title: str, functions: list[str], describe: Callable, make: Callable) -> int:
    """`describe(seed, number, functions)` draws a call, whose first part is the function's name; `make()` gives what
    makes it, with the outcome and the message."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--functions", nargs="+", metavar="NAME", default=functions, help="all by default")
    parser.add_argument("--only", type=int, metavar="CALL", help="shows one call, and makes it in this process")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        print(*describe(options.seed, options.only, options.functions), sep="\n  ", flush=True)
        options.work = options.only, options.only + 1
    if options.work:
        work(make, describe, options.seed, *options.work, options.functions)
        return 0
    counts, wrong = collections.Counter(), set()
    for call, outcome, message in supervise(program, options.seed, options.calls, options.functions):
        counts[outcome] += 1
        if outcome in WRONG:
            name = describe(options.seed, call, options.functions)[0]
            if (name, outcome) not in wrong:
                print(f"\r\033[K{outcome}: call {call}, {name}: {message}", flush=True)
            wrong.add((name, outcome))
        if counts.total() % 100 == 0 and sys.stderr.isatty():
            print(f"\r\033[K{counts.total()} of {options.calls} calls", end="", file=sys.stderr, flush=True)
    print(f"\n{options.calls} calls of {len(options.functions)} functions, seed {options.seed}")
    for outcome in RIGHT + WRONG:
        print(f"{outcome:22}{counts[outcome]:8}")
    return 1 if wrong else 0
