# SPDX-License-Identifier: Apache-2.0
"""The check `fault`: runs a program with calls that fail, and reports which failures it did not handle."""

import os
import re
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from .. import activation
from .repeated_runs import Outcome, difference, run, run_all, tail

FACTOR, PATIENCE = 4, 20
"""A run hangs if it takes longer than FACTOR times the seconds of the run without failures, plus PATIENCE."""
EVENTS = ("stream", "disk")
"""What can fail besides functions: a task of a stream, and a file that is written."""
WRONG = ("hanging", "crashed", "leaking", "silently wrong", "never called")


@dataclass
class Log:
    """What the runtime notes of a run."""

    calls: list[tuple[str, str]] = field(default_factory=list)  # functions and places
    failed: list[list[str]] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # calls of the function that was to fail


def require_functions(faults: list[str]) -> None:
    """Raises ValueError for a function that no library has."""
    names = {fault.partition("@")[0].partition(":")[0] for fault in faults} - {"all", *EVENTS}
    packages = [os.path.join(path, "op_api", "lib") for path in activation.operator_packages().values()]
    for folder in filter(os.path.isdir, [activation.LIBRARIES, *packages]):
        for library in Path(folder).glob("*.so"):
            data = library.read_bytes()
            # As a symbol of C, or a part of one of C++.
            names = {n for n in names if f"\0{n}\0".encode() not in data and f"{len(n)}{n}".encode() not in data}
    if names:
        raise ValueError(f"--check=fault: no library has {', '.join(sorted(names))}")


def run_logged(command: list[str], variables: dict[str, str], checks: str, timeout: float | None):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "log")
        outcome = run(command, variables | {"CANN_CPU_CHECK": checks, "CANN_CPU_FAULT_LOG": file}, timeout)
        log = read_log(file)
    return outcome, log


def read_log(file: str) -> Log:
    log = Log()
    if not os.path.exists(file):
        return log
    with open(file) as lines:
        for line in lines:
            kind, *rest = line.rstrip("\n").split("\t")
            if kind == "call":
                log.calls.append((rest[0], rest[1]))
            elif kind == "failed":
                log.failed.append(rest)
            elif kind == "left":
                log.left[rest[0]] = max(log.left.get(rest[0], 0), int(rest[1]))
            else:
                log.counts[rest[0]] = log.counts.get(rest[0], 0) + int(rest[1])
    return log


def judge(plain: Outcome, plain_log: Log, outcome: Outcome, log: Log, ignored: str | None) -> tuple[str, str]:
    """Returns the outcome of the failure in one word, and its details."""
    if outcome.code is None:
        return "hanging", f"it had not ended after {outcome.seconds:.0f} s; unfailed it took {plain.seconds:.0f}"
    if outcome.code < 0:
        return "crashed", signal.Signals(-outcome.code).name
    if not log.failed:
        counts = ", ".join(f"{count} calls of {name}" for name, count in log.counts.items()) or "no call of it"
        return "never called", f"the program makes {counts}"
    function, _, code = log.failed[0]
    changed = difference(plain, outcome, ignored)
    if outcome.code == 0 and changed and not is_reported(function, code, outcome.stdout + outcome.stderr):
        return "silently wrong", changed
    more = {kind: count - plain_log.left.get(kind, 0) for kind, count in log.left.items()}
    more = [f"{count} more {kind}" for kind, count in more.items() if count > 0]
    if more:
        return "leaking", "left in the end: " + ", ".join(more)
    if outcome.code != 0:
        return "error", f"exit code {outcome.code}"
    return ("reported", changed) if changed else ("unharmed", "the same result")


def is_reported(function: str, code: str, text: str) -> bool:
    """Whether a program's output names the failure: its message, the function, or a code of acl."""
    words = ["asks for it", *([] if function in EVENTS else [function]), *([code] if len(code) > 4 else [])]
    return any(re.search(rf"\b{re.escape(word)}\b", text) for word in words)


def try_faults(command: list[str], variables: dict[str, str], faults: list[str], ignored: str | None):
    """Returns the exit code of the run without failures, the wrong outcomes, and a report of every failed call."""
    require_functions(faults)
    plain, plain_log = run_logged(command, variables, "fault", None)
    sys.stdout.write(plain.stdout)
    if plain.code != 0:
        sys.stderr.write(plain.stderr)
        print("cann_cpu fault: the program fails by itself", file=sys.stderr)
        return plain.code, [], []
    only_wrong = faults == ["all"]
    if only_wrong:
        faults = [spelled(function, place) for function, place in plain_log.calls]
    limit = FACTOR * plain.seconds + PATIENCE

    def failed(fault: str):
        return run_logged(command, variables, f"fault:{fault}", limit)

    reports = []
    for fault, (outcome, log) in run_all(faults, failed, "fault"):
        word, more = judge(plain, plain_log, outcome, log, ignored)
        function, place, code = log.failed[0] if log.failed else (fault, "", "")
        report = {"check": "fault", "fault": fault, "function": function, "place": place, "code": code}
        reports.append(report | {"outcome": word, "detail": more})
        if word in WRONG or not only_wrong:
            where = f" at {place}" if place else ""
            print(f"cann_cpu fault: {word} when {function}{where} fails: {more}", file=sys.stderr)
            if only_wrong:
                print(f"  again: python -m cann_cpu run --check=fault:{fault} -- COMMAND", file=sys.stderr)
            sys.stderr.write(tail(outcome.stderr))
    words = [report["outcome"] for report in reports]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    print(f"cann_cpu fault: {len(reports)} calls failed in turn: {counts}", file=sys.stderr)
    return plain.code, [r for r in reports if r["outcome"] in WRONG], reports


def spelled(function: str, place: str) -> str:
    """The fault that is the first call of the function at the place."""
    line = place.rpartition(" in ")[0]
    return function + (f"@{line}" if line else "")
