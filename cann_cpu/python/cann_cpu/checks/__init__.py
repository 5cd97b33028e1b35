# SPDX-License-Identifier: Apache-2.0
"""Runs a program under the checks of whole programs."""

import json
import os
import sys
import tempfile
from dataclasses import dataclass

from . import fork_server

FOUND = 66
"""The exit code where a check found something in a program that went well otherwise."""
MEASUREMENTS = {"cost"}
"""Checks that count and find nothing."""


@dataclass(frozen=True)
class Options:
    """How a program is checked."""

    checks: str
    """Names, with commas between."""
    report: str | None = None
    """A file for what is reported, as JSON."""
    seeds: str | None = None
    """The seeds of the check `schedule`, such as 1..200."""
    ignored: str | None = None
    """A regular expression. Its matches in standard output are ignored in the program's result."""


def run_checked(command: list[str], environment: dict[str, str], options: Options) -> int:
    """Runs the command, and writes what the checks reported."""
    names = options.checks.split(",")
    faults = [name.partition(":")[2] for name in names if name.partition(":")[0] == "fault"]
    if faults and len(faults) < len(names):
        raise ValueError("--check=fault stands alone, or with other faults")
    if ("all" in faults and len(faults) > 1) or "" in faults:
        raise ValueError("--check=fault is fault:all or fault:FUNCTION[@FILE:LINE][:n[:code]]")
    if options.seeds and "schedule" not in names:
        raise ValueError("--seeds belongs to --check=schedule")
    if options.ignored and not (faults or options.seeds):
        raise ValueError("--ignore belongs to --seeds and to --check=fault")
    if faults:
        from .fault_injection import try_faults

        code, found, reports = try_faults(command, environment, faults, options.ignored)
    elif options.seeds:
        from .schedules import seeds_of, try_seeds

        seeds = seeds_of(options.seeds)
        code, found = try_seeds(command, environment, options.checks, seeds, options.ignored)
        reports = found
    else:
        code, found = run_once(command, environment, options.checks)
        reports = found
    if options.report:
        with open(options.report, "w") as file:
            json.dump(reports, file, indent=2)
    found = [each for each in found if each["check"] not in MEASUREMENTS]
    if found:
        print(f"cann_cpu: {len(found)} report{'s' if len(found) > 1 else ''} by {options.checks}", file=sys.stderr)
    return code or (FOUND if found else 0)


def run_once(command: list[str], environment: dict[str, str], checks: str) -> tuple[int, list[dict]]:
    """The exit code, and what the runtime reported."""
    with tempfile.TemporaryDirectory() as folder:
        lines = os.path.join(folder, "reports")
        variables = {**environment, "CANN_CPU_CHECK": checks, "CANN_CPU_CHECK_REPORT": lines}
        code = fork_server.start(command, variables, [0, 1, 2]).wait()
        if not os.path.exists(lines):
            return code, []
        with open(lines) as file:
            return code, [json.loads(line) for line in file]
