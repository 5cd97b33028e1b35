# SPDX-License-Identifier: Apache-2.0
"""Runs a command many times, in parallel processes, and compares the outcomes."""

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, zip_longest

from . import fork_server

SLICE = 0.5
"""Seconds between two readings of the clock. In the rest of a longer interval, the machine had stopped this process."""


@dataclass(frozen=True)
class Outcome:
    """How a run of the command ended; `code` is None where it did not, and negative for a signal."""

    code: int | None
    stdout: str
    stderr: str
    seconds: float


def run(command: list[str], variables: dict[str, str], timeout: float | None = None) -> Outcome:
    """Runs the command, and after `timeout` seconds ends it with all that it has started. Seconds in which the machine
    has stopped this process do not count, as it has mostly stopped the command as well."""
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]  # an empty standard input
        process = fork_server.start(command, variables, [file.fileno() for file in files], repeated=True)
        slices = count() if timeout is None else range(math.ceil(timeout / SLICE))
        try:
            for _ in slices:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SLICE)
                    break
            else:
                os.killpg(process.pid, signal.SIGKILL)
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        ended, code = process.returncode is not None, process.wait()
        for file in files:
            file.seek(0)
        stdout, stderr = (file.read().decode(errors="replace") for file in files[1:])
    if code > 128 and code - 128 in set(signal.Signals):  # as a shell passes it on
        code = 128 - code
    return Outcome(code if ended else None, stdout, stderr, time.monotonic() - begin)


def run_all(jobs: Iterable, work: Callable, label: str) -> Iterator[tuple]:
    """Yields every job with the result of `work`, in the order of the jobs. As many jobs run as there are cores."""
    jobs = list(jobs)
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        for number, pair in enumerate(zip(jobs, pool.map(work, jobs), strict=True)):
            show(label, number + 1, len(jobs))
            yield pair
    finally:
        pool.shutdown(cancel_futures=True)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)


def show(label: str, done: int, jobs: int) -> None:
    """A progress bar, on a terminal."""
    if sys.stderr.isatty():
        bar = "#" * (30 * done // jobs)
        print(f"\r{label} [{bar:<30}] {done} of {jobs}", end="", file=sys.stderr, flush=True)


def result_lines(outcome: Outcome, ignored: str | None) -> list[str]:
    """What counts of a program's standard output."""
    return (re.sub(ignored, "", outcome.stdout) if ignored else outcome.stdout).splitlines()


def difference(one: Outcome, other: Outcome, ignored: str | None) -> str | None:
    """Where two results differ: the exit code, or the first line of standard output."""
    if one.code != other.code:
        return f"the exit code is {other.code}, not {one.code}"
    lines = zip_longest(result_lines(one, ignored), result_lines(other, ignored))
    for number, (expected, found) in enumerate(lines, 1):
        if expected != found:
            shown = ["nothing" if line is None else repr(line) for line in (found, expected)]
            return f"line {number} of standard output is {shown[0]}, not {shown[1]}"
    return None


def tail(text: str, lines: int = 8) -> str:
    """The last lines of what a run has said, to be shown."""
    return "".join(f"  | {line}\n" for line in text.splitlines()[-lines:])
