# SPDX-License-Identifier: Apache-2.0
"""Runs a program and writes what its kernels cost by the model of the device: `msprof op [options] PROGRAM`.

The folder and the tables have the names and columns of CANN's `msprof op`; docs/ascendc_cost.md describes the model.
"""

import argparse
import csv
import json
import os
import random
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .kernel_costs import TRACE, lines

METRICS = ("Default", "PipeUtilization", "Roofline")
NONE = "N/A"
# The units of CANN's columns, with our names of their pipes, on a cube core and on a vector core.
UNITS = {
    "aic": {"cube": "M", "scalar": "S", "mte1": "MTE1", "mte2": "MTE2", "mte3": "MTE3", "fixpipe": "FIX"},
    "aiv": {"vec": "V", "scalar": "S", "mte2": "MTE2", "mte3": "MTE3"},
}
Row = dict[str, Any]


class OpError(Exception):
    pass


def arguments_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="msprof op", description=__doc__, allow_abbrev=False)
    parser.add_argument("--output", metavar="FOLDER", default=".", help="where the OPPROF_* folder is made")
    parser.add_argument("--application", metavar="COMMAND", help="the program with its arguments, as one word")
    parser.add_argument("--kernel-name", metavar="NAMES", help="beginnings of names, or patterns with *; A|B for both")
    parser.add_argument(
        "--launch-count", metavar="N", type=int, default=1, help="how many launches to show (default: 1)"
    )
    parser.add_argument(
        "--launch-skip-before-match", metavar="N", type=int, default=0, help="how many launches to leave out first"
    )
    parser.add_argument(
        "--warm-up", metavar="N", type=int, default=0, help="without effect: the model has no cold start"
    )
    parser.add_argument("--aic-metrics", metavar="NAMES", default="Default", help=f"of {', '.join(METRICS)}")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="PROGRAM ...", help="the program, its arguments")
    given = parser.parse_args(words)
    if given.application is not None:
        if given.command:
            parser.error(f"--application={given.application}: the program {given.command[0]} is given as well")
        given.command = shlex.split(given.application)
    if not given.command:
        parser.error("no program; pass it after the options: msprof op --output=FOLDER ./program")
    if given.command[0] == "simulator":
        parser.error("msprof op simulator is not implemented; msprof op shows the model's times")
    if given.launch_count < 1:
        parser.error(f"--launch-count={given.launch_count}: at least 1")
    for name in given.aic_metrics.split(","):
        if name not in METRICS:
            parser.error(f"--aic-metrics={name}: the model does not count that; it has {', '.join(METRICS)}")
    return given


def run(command: list[str], folder: Path) -> tuple[int, int]:
    """Runs the program with a profile of each launch in the folder: its exit status and its process id."""
    program = shutil.which(command[0]) or shutil.which(f"./{command[0]}")
    if program is None:
        raise OpError(f"{command[0]}: no such program")
    environment = {**os.environ, "ASCENDC_CPU_PROFILE": str(folder)}
    environment["PYTHONPATH"] = environment.pop("CANN_CPU_PYTHONPATH", "")  # bin/run_module has put its own there
    if not environment["PYTHONPATH"]:
        del environment["PYTHONPATH"]
    process = subprocess.Popen([program, *command[1:]], env=environment)
    while True:
        try:
            return process.wait(), process.pid
        except KeyboardInterrupt:
            pass  # the program has it as well; what it has launched until then is shown


def matches(kernel: str, names: str | None) -> bool:
    if names is None:
        return True
    return any(fnmatchcase(kernel, name if "*" in name else f"{name}*") for name in names.split("|"))


def basic_info(summary: dict[str, Any], pid: int) -> Row:
    cubes, vectors = summary["cube_cores"], summary["vector_cores"]
    return {
        "Op Name": summary["kernel"],
        "Op Type": "mix" if cubes and vectors else "cube" if cubes else "vector",
        "Task Duration(us)": summary["microseconds"],
        "Block Dim": summary["blocks"],
        "Mix Block Dim": vectors if cubes and vectors else NONE,
        "Device Id": NONE,
        "Pid": pid,
        "Current Freq": summary["clock_mhz"],
        "Rated Freq": summary["clock_mhz"],
    }


def pipe_utilization(trace: list[dict[str, Any]], summary: dict[str, Any]) -> list[Row]:
    """A row for each core: how long it was at work, and how long each of its pipes was."""
    clock_mhz, only_kind = summary["clock_mhz"], "AIV" if summary["vector_cores"] else "AIC"
    pipes = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    busy: dict[tuple[int, str], float] = {}
    spans: dict[int, tuple[float, float]] = {}
    for event in trace:
        if event["ph"] != "X":
            continue
        core, begin, end = event["pid"], event["args"]["begin"], event["args"]["end"]
        pipe = pipes[core, event["tid"]]
        busy[core, pipe] = busy.get((core, pipe), 0) + end - begin
        first, last = spans.get(core, (begin, end))
        spans[core] = (min(first, begin), max(last, end))
    rows = []
    for event in trace:
        if event["name"] != "process_name":
            continue
        core = event["pid"]
        # "block 0, AIC", "block 0, AIV 1"; "block 0" where each block has one core.
        block, _, place = event["args"]["name"].removeprefix("block ").partition(", ")
        kind, _, number = (place or only_kind).partition(" ")
        first, last = spans.get(core, (0, 0))
        row = {"block_id": block, "sub_block_id": "cube0" if kind == "AIC" else f"vector{number or 0}"}
        for prefix in UNITS:
            own = prefix == kind.lower()
            row[f"{prefix}_time(us)"] = round((last - first) / clock_mhz, 3) if own else NONE
            row[f"{prefix}_total_cycles"] = round(last - first) if own else NONE
        for prefix, units in UNITS.items():
            for unit, pipe in units.items():
                own, cycles = prefix == kind.lower(), busy.get((core, pipe), 0)
                row[f"{prefix}_{unit}_time(us)"] = round(cycles / clock_mhz, 3) if own else NONE
                row[f"{prefix}_{unit}_ratio"] = round(cycles / (last - first or 1), 4) if own else NONE
        rows.append(row)
    return rows


def write_table(file: Path, rows: list[Row]) -> None:
    with file.open("w", newline="") as text:
        table = csv.DictWriter(text, rows[0])
        table.writeheader()
        table.writerows(rows)


def write(launches: list[tuple[Path, dict[str, Any]]], folder: Path, pid: int) -> None:
    """The tables of each launch: in the folder if there is one launch, else in KERNEL/NUMBER below it."""
    numbers: dict[str, int] = {}
    for file, summary in launches:
        kernel, place, end = summary["kernel"], folder, ""
        if len(launches) > 1:
            numbers[kernel] = number = numbers.get(kernel, -1) + 1
            place, end = folder / file.stem.partition("-")[2] / str(number), f"_{folder.name.split('_')[1]}"
            place.mkdir(parents=True)
        trace = file.with_name(file.stem + TRACE)
        events = json.loads(trace.read_text())["traceEvents"]
        write_table(place / f"OpBasicInfo{end}.csv", [basic_info(summary, pid)])
        write_table(place / f"PipeUtilization{end}.csv", pipe_utilization(events, summary))
        shutil.move(file, place / "summary.json")
        shutil.move(trace, place / "trace.json")
        print(f"{kernel}: {summary['blocks']} blocks", *lines(summary), sep="\n")


def profile(given: argparse.Namespace) -> int:
    output = Path(given.output).absolute()
    output.mkdir(parents=True, exist_ok=True)
    letters = "".join(random.choices(string.ascii_uppercase, k=16))
    with tempfile.TemporaryDirectory(prefix=".opprof_", dir=output) as raw:
        status, pid = run(given.command, Path(raw))
        files = sorted(path for path in Path(raw).glob("*.json") if not path.name.endswith(TRACE))
        # A launch that has ended with an error has left its file empty.
        launches = [(path, json.loads(text)) for path in files if (text := path.read_text())]
        found = [each for each in launches[given.launch_skip_before_match :]
                 if matches(each[1]["kernel"], given.kernel_name)][: given.launch_count]  # fmt: skip
        if found:
            folder = output / f"OPPROF_{time.strftime('%Y%m%d%H%M%S')}_{letters}"
            folder.mkdir()
            write(found, folder, pid)
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} [INFO]  Profiling results saved in {folder}")
    if status != 0:
        raise OpError(f"{given.command[0]} has ended with {status}")
    if not launches:
        raise OpError(f"{given.command[0]} has launched no Ascend C kernel")
    if not found:
        names = ", ".join(sorted({summary["kernel"] for _, summary in launches}))
        raise OpError(f"none of the {len(launches)} launches is asked for; the kernels are {names}")
    return 0


def main(words: list[str]) -> int:
    try:
        return profile(arguments_of(words))
    except (OpError, OSError) as error:
        print(f"msprof op: {error}", file=sys.stderr)
        return 1
