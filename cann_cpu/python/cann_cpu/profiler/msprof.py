# SPDX-License-Identifier: Apache-2.0
"""Exports what the profiler of the runtime has recorded: `msprof --export=on --output=PROF_FOLDER`.

`msprof op [options] PROGRAM` profiles a program's kernels: `msprof op --help`.

The files in mindstudio_profiler_output have CANN's published formats: a trace of Chrome's format, and tables.
"""

import argparse
import ast
import csv
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..names import DTYPES, FORMATS

OUTPUT = "mindstudio_profiler_output"
POLLS = 0.3
"""Seconds at the end: torch_npu looks for a table every 0.1 s, and fails where the export has ended by then."""
# Data types of aclprofCreateConfig that decide what the tables have.
TASK_TIME, AICORE_SHAPE = 0x2, 0x800000000
TASK_TYPES = {
    "aclrtMemcpyAsync": "MEMCPY_ASYNC",
    "aclrtMemcpyAsyncWithCondition": "MEMCPY_ASYNC",
    "aclrtMemcpyBatchAsync": "MEMCPY_ASYNC",
    "aclrtMemsetAsync": "MEMSET_ASYNC",
    "aclrtRecordEvent": "EVENT_RECORD",
    "aclrtStreamWaitEvent": "EVENT_WAIT",
    "aclrtLaunchCallback": "CALLBACK",
    "aclrtLaunchHostFunc": "CALLBACK",
    "aclrtValueWrite": "MEM_WRITE_VALUE",
    "aclrtValueWait": "MEM_WAIT_VALUE",
}
KERNEL, COMMUNICATION, MODEL = "AI_CORE", "COMMUNICATION", "MODEL_EXECUTE"
NO_MODEL = 4294967295
HARDWARE, CANN, OVERLAP = "Ascend Hardware", "CANN", "Overlap Analysis"


class ExportError(Exception):
    pass


@dataclass
class Task:
    """What a stream did: times in nanoseconds of the day."""

    name: str
    type: str
    device: int
    number: int
    stream: int
    call: int
    begin: int
    end: int
    operands: list[dict[str, Any]]
    is_kernel: bool

    @property
    def task_type(self) -> str:
        if self.name.startswith("Hccl"):
            return COMMUNICATION
        return TASK_TYPES.get(self.name) or (KERNEL if self.is_kernel else MODEL)

    @property
    def op_type(self) -> str:
        return self.type or self.name.removeprefix("aclnn")


@dataclass
class Call:
    """What the host asked of the runtime."""

    id: int
    name: str
    thread: int
    begin: int
    end: int


@dataclass
class Profile:
    tasks: list[Task]
    calls: list[Call]
    pid: int
    data_types: int

    @property
    def devices(self) -> list[int]:
        return sorted({task.device for task in self.tasks})


def us(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"


def read_lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open() as lines:
            yield from map(json.loads, lines)
    except ValueError as error:
        raise ExportError(f"{file}: {error}") from None


def read(folder: Path) -> Profile:
    """What the runtime has written into a PROF_* folder."""
    info_file = folder / "host" / "start_info"
    if not info_file.exists():
        raise ExportError(f"{folder}: no {info_file.relative_to(folder)}; --output names a PROF_* folder")
    info = ast.literal_eval(info_file.read_text())
    offset = int(info["collectionTimeBegin"]) * 1000 - int(info["clockMonotonicRaw"])
    tasks = []
    for device in sorted(folder.glob("device_*")):
        id_ = int(device.name.partition("_")[2])
        for line in read_lines(device / "data" / "tasks.jsonl"):
            times = {key: line.pop(key) + offset for key in ("begin", "end")}
            tasks.append(Task(**line, **times, device=id_, number=0))
    tasks.sort(key=lambda task: (task.begin, -task.end))
    for number, task in enumerate(tasks):
        task.number = number
    calls = []
    calls_file = folder / "host" / "data" / "calls.jsonl"
    for line in read_lines(calls_file):
        times = {key: line.pop(key) + offset for key in ("begin", "end")}
        calls.append(Call(**line, **times))
    return Profile(tasks, calls, int(info["pid"]), int(info["dataTypeConfig"]))


# ---- the trace


def named_process(pid: int, name: str, label: str, index: int) -> list[dict[str, Any]]:
    return [
        {"name": event, "pid": pid, "tid": 0, "ph": "M", "args": arguments}
        for event, arguments in (
            ("process_name", {"name": name}),
            ("process_labels", {"labels": label}),
            ("process_sort_index", {"sort_index": index}),
        )
    ]


def named_thread(pid: int, tid: int, name: str) -> list[dict[str, Any]]:
    return [
        {"name": "thread_name", "pid": pid, "tid": tid, "ph": "M", "args": {"name": name}},
        {"name": "thread_sort_index", "pid": pid, "tid": tid, "ph": "M", "args": {"sort_index": tid}},
    ]


def span(name: str, pid: int, tid: int, begin: int, end: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "ph": "X", "pid": pid, "tid": tid, "ts": us(begin), "dur": (end - begin) / 1000,
        "args": arguments,
    }  # fmt: skip


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The time that any of the spans takes."""
    union: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union


def without(spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The time of the spans that none of the others takes; both merged."""
    left = []
    for begin, end in spans:
        for from_, to in others:
            if to <= begin or from_ >= end:
                continue
            if from_ > begin:
                left.append((begin, from_))
            begin = max(begin, to)
        if begin < end:
            left.append((begin, end))
    return left


def overlap_rows(tasks: list[Task]) -> dict[str, list[tuple[int, int]]]:
    """What a device does over time, by the names that torch_npu knows."""
    computing = merged((t.begin, t.end) for t in tasks if t.task_type == KERNEL)
    communication = merged((t.begin, t.end) for t in tasks if t.task_type == COMMUNICATION)
    all_ = [(tasks[0].begin, max(task.end for task in tasks))]
    return {
        "Computing": computing,
        "Communication": communication,
        "Communication(Not Overlapped)": without(communication, computing),
        "Free": without(all_, merged([*computing, *communication])),
    }


def trace(profile: Profile) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    base = profile.pid << 10
    cann = base | 1 << 5
    events += named_process(cann, CANN, "CPU", 1)
    for thread in sorted({call.thread for call in profile.calls}):
        events += named_thread(cann, thread, f"Thread {thread}")
    for call in profile.calls:
        arguments = {"Thread Id": call.thread, "Mode": call.name, "level": "acl", "id": call.name,
                     "connection_id": call.id}  # fmt: skip
        events.append(span(f"AscendCL@{call.name}", cann, call.thread, call.begin, call.end, arguments))
    calls = {call.id: call for call in profile.calls}
    for device in profile.devices:
        tasks = [task for task in profile.tasks if task.device == device]
        hardware, overlap = base | 2 << 5 | device, base | 3 << 5 | device
        events += named_process(hardware, HARDWARE, f"NPU {device}", 2)
        for stream in sorted({task.stream for task in tasks}):
            events += named_thread(hardware, stream, f"Stream {stream}")
        for task in tasks:
            arguments = {"Model Id": NO_MODEL, "Task Type": task.task_type, "Physic Stream Id": task.stream,
                         "Task Id": task.number, "Batch Id": 0, "Subtask Id": NO_MODEL,
                         "connection_id": task.call}  # fmt: skip
            if task.operands:
                arguments |= dict(zip(OPERAND_COLUMNS, operand_columns(task), strict=True))
            events.append(span(task.name, hardware, task.stream, task.begin, task.end, arguments))
            call = calls.get(task.call)
            if call is not None and task.task_type != MODEL:
                flow = {"cat": "HostToDevice", "name": "HostToDevice", "id": str(task.number), "bp": "e"}
                events.append({**flow, "ph": "s", "pid": cann, "tid": call.thread, "ts": us(call.begin)})
                events.append({**flow, "ph": "f", "pid": hardware, "tid": task.stream, "ts": us(task.begin)})
        events += named_process(overlap, OVERLAP, f"NPU {device}", 3)
        for tid, (name, spans) in enumerate(overlap_rows(tasks).items()):
            events += named_thread(overlap, tid, name)
            events += [span(name, overlap, tid, begin, end, {}) for begin, end in spans]
    return events


# ---- the tables

OPERAND_COLUMNS = ("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types",
                   "Output Formats")  # fmt: skip


def operand_columns(task: Task) -> list[str]:
    columns = []
    for is_output in (False, True):
        operands = [each for each in task.operands if each["is_output"] == is_output]
        if task.name.startswith("aclnnInplace") and not is_output:
            operands = [each for each in task.operands if each["is_output"]][:1] + operands  # selfRef
        columns += [
            '"' + ";".join(",".join(map(str, each["shape"])) for each in operands) + '"',
            ";".join(DTYPES[each["dtype"]].ge if each["dtype"] in DTYPES else "UNDEFINED" for each in operands),
            ";".join(FORMATS.get(each["format"], "ND") for each in operands),
        ]
    return columns


Table = tuple[list[str], list[list[Any]]]


def op_summary(profile: Profile) -> Table:
    header = ["Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "OP State", "Task Type",
              "Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Block Num"]  # fmt: skip
    with_operands = bool(profile.data_types & (TASK_TIME | AICORE_SHAPE))
    rows: list[list[Any]] = []
    ends: dict[int, int] = {}
    for task in profile.tasks:
        if task.task_type not in (KERNEL, COMMUNICATION):
            continue
        waited = max(task.begin - ends.get(task.device, task.begin), 0)
        ends[task.device] = max(ends.get(task.device, 0), task.end)
        state = "N/A" if task.task_type == COMMUNICATION else "dynamic"
        row = [task.device, NO_MODEL, task.number, task.stream, task.name, task.op_type, state, task.task_type,
               us(task.begin) + "\t", us(task.end - task.begin), us(waited), 1]  # fmt: skip
        rows.append(row + (operand_columns(task) if with_operands else []))
    return header + (list(OPERAND_COLUMNS) if with_operands else []), rows


def summed(times: list[int]) -> list[Any]:
    """Count, and sum, min, mean and max in microseconds."""
    return [len(times), us(sum(times)), us(min(times)), us(round(statistics.mean(times))), us(max(times))]


def grouped(items: Iterable[Any], key: Callable[[Any], tuple]) -> dict[tuple, list[int]]:
    groups: dict[tuple, list[int]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item.end - item.begin)
    return dict(sorted(groups.items(), key=lambda group: -sum(group[1])))


def op_statistic(profile: Profile) -> Table:
    header = ["Device_id", "OP Type", "Core Type", "Count", "Total Time(us)", "Min Time(us)", "Avg Time(us)",
              "Max Time(us)", "Ratio(%)"]  # fmt: skip
    kernels = [task for task in profile.tasks if task.task_type == KERNEL]
    total = {device: sum(t.end - t.begin for t in kernels if t.device == device) or 1 for device in profile.devices}
    groups = grouped(kernels, lambda task: (task.device, task.op_type, task.task_type))
    rows = [[*of, *summed(times), f"{100 * sum(times) / total[of[0]]:.3f}"] for of, times in groups.items()]
    return header, rows


def api_statistic(profile: Profile) -> Table:
    header = ["Device_id", "Level", "API Name", "Time(us)", "Count", "Avg(us)", "Min(us)", "Max(us)", "Variance"]
    rows = []
    for (name,), times in grouped(profile.calls, lambda call: (call.name,)).items():
        count, total, min_, mean, max_ = summed(times)
        variance = statistics.pvariance(time / 1000 for time in times)
        rows.append(["host", "acl", name, total, count, mean, min_, max_, f"{variance:.3f}"])
    return header, rows


def task_time(profile: Profile) -> Table:
    header = ["Device_id", "kernel_name", "kernel_type", "stream_id", "task_id", "task_time(us)", "task_start(us)",
              "task_stop(us)"]  # fmt: skip
    return header, [
        [t.device, t.name, t.task_type, t.stream, t.number, us(t.end - t.begin), us(t.begin) + "\t", us(t.end) + "\t"]
        for t in profile.tasks
    ]


TABLES = {
    "op_summary": op_summary,
    "op_statistic": op_statistic,
    "api_statistic": api_statistic,
    "task_time": task_time,
}


def export(folder: Path) -> None:
    profile = read(folder)
    output = folder / OUTPUT
    output.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d%H%M%S")
    (output / f"msprof_{stamp}.json").write_text(json.dumps(trace(profile)))
    for name, make in TABLES.items():  # after the trace: torch_npu continues when it sees a table
        header, rows = make(profile)
        file = output / f"{name}_{stamp}.csv"
        with file.with_suffix(".part").open("w", newline="") as text:
            csv.writer(text).writerows([header, *rows])
        file.with_suffix(".part").rename(file)
    time.sleep(POLLS)


def main() -> int:
    if sys.argv[1:2] == ["op"]:
        from .msprof_op import main as profile_kernels

        return profile_kernels(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="msprof", description=__doc__)
    switch = {"choices": ["on", "off"], "default": "off"}
    parser.add_argument("--output", metavar="FOLDER", required=True, help="a PROF_* folder, or one that has some")
    parser.add_argument("--export", **switch, help="write the trace and the tables")
    parser.add_argument("--analyze", **switch, help="write how collectives used the links: not implemented")
    arguments = parser.parse_args()
    given = Path(arguments.output)
    folders = [given] if re.match("PROF_", given.name) else sorted(given.glob("PROF_*"))
    try:
        if not folders:
            raise ExportError(f"{given}: no PROF_* folder")
        if "on" not in (arguments.export, arguments.analyze):
            raise ExportError("nothing to do: --export=on")
        for folder in folders:
            if arguments.export == "on":
                export(folder)
            if arguments.analyze == "on" and any(task.task_type == COMMUNICATION for task in read(folder).tasks):
                raise ExportError(f"{folder}: --analyze=on is not implemented for profiles with collectives")
    except (ExportError, OSError) as error:
        print(f"msprof: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
