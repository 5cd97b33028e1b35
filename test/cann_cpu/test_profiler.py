# SPDX-License-Identifier: Apache-2.0
"""torch_npu.profiler: its own analysis reads what the runtime has recorded and msprof has exported."""

import csv
import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import fresh
import pytest
from cann_cpu import activation

PROGRAM = Path(__file__).with_name("profiled.py")
STEPS = 2
EACH_STEP = {  # what a step of the program runs: type, inputs, dtypes, outputs
    ("Exp", "8,16", "FLOAT16", "8,16"): 1,
    ("double_kernel", "", "", ""): 1,  # a task in Python
    ("Add", "4;4", "FLOAT;FLOAT", "4"): 1,
    ("Matmul", "8,16;16,8", "FLOAT16;FLOAT16", "8,8"): 1,
    ("Sin", "8,16", "FLOAT16", "8,16"): 1,
    ("InplaceCos", "8,16", "FLOAT16", "8,16"): 1,
    ("Mul", "8,16;8,16", "FLOAT16;FLOAT16", "8,16"): 1,
    ("Cast", "8,16", "FLOAT16", "8,16"): 2,
    ("ReduceSum", "8,16;2", "FLOAT16;INT64", ""): 1,
}


def run(*command, **options):
    return fresh.run(command, **options)


class Output:
    """What torch_npu makes of a profile."""

    def __init__(self, folder):
        self.folder = folder / "ASCEND_PROFILER_OUTPUT"

    def table(self, name):
        with (self.folder / name).open() as file:
            return list(csv.DictReader(file))

    def trace(self):
        return json.loads((self.folder / "trace_view.json").read_text())


def events(trace, process):
    """The spans of a process, by what its metadata calls it."""
    pids = {e["pid"] for e in trace if e["name"] == "process_name" and e["args"]["name"] == process}
    return [e for e in trace if e["ph"] == "X" and e["pid"] in pids]


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """The two profiles of a program at Level1, and its output."""
    folder = tmp_path_factory.mktemp("profile")
    done = run(sys.executable, PROGRAM, folder, STEPS)
    assert done.returncode == 0, done.stderr
    assert "rror" not in done.stdout + done.stderr
    found = [Output(each) for each in sorted(folder.glob("*_ascend_pt"))]
    assert len(found) == 2, done.stdout + done.stderr
    return found, done.stdout


def kernels(output):
    return Counter(
        (row["Type"], *(row[column].strip('"') for column in ("Input Shapes", "Input Data Types", "Output Shapes")))
        for row in output.table("kernel_details.csv")
    )


@pytest.mark.parametrize("which", [0, 1])
def test_every_kernel_has_its_row(profiles, which):
    assert kernels(profiles[0][which]) == {kernel: STEPS * times for kernel, times in EACH_STEP.items()}


def test_the_files_are_those_of_torch_npu(profiles):
    output = profiles[0][0]
    names = {file.name for file in output.folder.iterdir()}
    assert names >= {"trace_view.json", "kernel_details.csv", "operator_details.csv", "step_trace_time.csv",
                     "op_statistic.csv", "api_statistic.csv", "task_time.csv", "analyse.done"}  # fmt: skip
    operators = {row["Name"]: row for row in output.table("operator_details.csv")}
    assert float(operators["aten::exp"]["Device Total Duration(us)"]) > 0
    steps = output.table("step_trace_time.csv")
    assert len(steps) == STEPS and all(float(step["Computing"]) > 0 for step in steps)
    statistic = {row["OP Type"]: row for row in output.table("op_statistic.csv")}
    assert statistic["Exp"]["Count"] == str(STEPS)
    assert {row["API Name"] for row in output.table("api_statistic.csv")} >= {
        "aclnnExp",
        "aclrtSynchronizeDeviceWithTimeout",
    }


def test_times_lie_within_those_of_the_program(profiles):
    outputs, stdout = profiles
    steps = [tuple(map(int, line.split()[1:])) for line in stdout.splitlines() if line.startswith("step ")]
    cycle = len(steps) // 2
    for number, output in enumerate(outputs):
        active = steps[number * cycle + 2 : (number + 1) * cycle]
        assert len(active) == STEPS
        rows = output.table("kernel_details.csv")
        assert len(rows) == STEPS * sum(EACH_STEP.values())
        for row in rows:
            begin = int(float(row["Start Time(us)"]) * 1000)
            end = begin + float(row["Duration(us)"]) * 1000
            slack = 1_000_000  # of the clocks of day and processor against each other
            assert any(step[0] - slack <= begin <= end <= step[1] + slack for step in active)
    first, second = (output.table("kernel_details.csv") for output in outputs)
    assert max(row["Start Time(us)"] for row in first) < min(row["Start Time(us)"] for row in second)


def test_streams_are_rows_of_their_own_and_no_two_tasks_of_one_overlap(profiles):
    spans = events(profiles[0][0].trace(), "Ascend Hardware")
    by_stream = {}
    for event in spans:
        by_stream.setdefault(event["tid"], []).append((float(event["ts"]), float(event["ts"]) + event["dur"]))
    (side,) = {event["tid"] for event in spans if event["name"] == "aclnnMatmul"}
    (main,) = {event["tid"] for event in spans if event["name"] == "aclnnExp"}
    assert side != main
    for tasks in by_stream.values():
        tasks.sort(key=lambda span: (span[0], -span[1]))
        for one, other in itertools.pairwise(tasks):
            assert one[1] <= other[0] + 0.002 or other[1] <= one[1] + 0.002  # after it, or nested


def test_nodes_of_graphs_lie_within_their_graph(profiles):
    spans = events(profiles[0][0].trace(), "Ascend Hardware")
    for graph, nodes in (("graph", ("Mul", "ReduceSum")), ("captured graph", ("aclnnSin", "aclnnInplaceCos"))):
        of_graph = [e for e in spans if e["name"] == graph]
        assert len(of_graph) == STEPS and {e["args"]["Task Type"] for e in of_graph} == {"MODEL_EXECUTE"}
        inside = [e for e in spans if e["name"].split("_")[0] in nodes]
        assert len(inside) == STEPS * len(nodes)
        for node in inside:
            assert any(
                float(e["ts"]) <= float(node["ts"])
                and float(node["ts"]) + node["dur"] <= float(e["ts"]) + e["dur"] + 0.002
                for e in of_graph
            )


def test_the_trace_is_of_chromes_format(profiles):
    trace = profiles[0][0].trace()
    assert isinstance(trace, list) and {event["ph"] for event in trace} <= set("XMsfBEi")
    threads = {(e["pid"], e["tid"]) for e in trace if e["name"] == "thread_name"}
    for event in (e for e in trace if e["ph"] == "X"):
        assert float(event["ts"]) > 0 and event["dur"] >= 0 and event["name"]
        assert (event["pid"], event["tid"]) in threads
    starts = {e["id"] for e in trace if e["ph"] == "s" and e["name"] == "torch_to_npu"}
    ends = {e["id"] for e in trace if e["ph"] == "f" and e["name"] == "torch_to_npu"}
    assert starts == ends and len(starts) >= STEPS * 3


SHORT = """
import torch
import torch_npu.profiler as p
x = torch.ones(3, 5, device="npu")
config = p._ExperimentalConfig()
with p.profile(activities=[p.ProfilerActivity.NPU], experimental_config=config{options}) as profile:
    x.exp()
"""


def short(folder, options="", then=""):
    options += f", on_trace_ready=p.tensorboard_trace_handler({str(folder)!r})" if not then else ""
    return run(sys.executable, "-c", SHORT.format(options=options) + then, cwd=folder)  # torch_npu leaves files there


@pytest.mark.parametrize("shapes", [False, True])
def test_level0_has_shapes_where_they_are_asked_for(tmp_path, shapes):
    done = short(tmp_path, options=f", record_shapes={shapes}")
    (folder,) = tmp_path.glob("*_ascend_pt")
    (row,) = Output(folder).table("kernel_details.csv")
    assert row["Name"] == "aclnnExp", done.stdout
    assert row.get("Input Shapes") == ('"3,5"' if shapes else None)


def test_export_chrome_trace(tmp_path):
    done = short(tmp_path, then=f"profile.export_chrome_trace({str(tmp_path / 'trace.json')!r})")
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert [event["name"] for event in events(trace, "Ascend Hardware")].count("aclnnExp") == 1


NOT_IMPLEMENTED = {
    "aic_metrics": "profiler_level=p.ProfilerLevel.Level1, aic_metrics=p.AiCMetrics.Memory",
    "l2_cache": "l2_cache=True",
    "mstx": "profiler_level=p.ProfilerLevel.Level_none, mstx=True",
    "host_sys": "host_sys=[p.HostSystem.CPU]",
    "sys_io": "sys_io=True",
    "record_op_args": "record_op_args=True",
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """The errors for each of these unsupported options in turn."""
    program = "import sys, torch, torch_npu.profiler as p\ntorch.ones(1).npu()\n"
    for named, config in NOT_IMPLEMENTED.items():
        program += f"print('== {named}', file=sys.stderr, flush=True)\n"
        program += f"with p.profile(experimental_config=p._ExperimentalConfig({config})): torch.npu.synchronize()\n"
    done = run(sys.executable, "-c", program, cwd=tmp_path_factory.mktemp("asked"))
    assert done.returncode == 0, done.stderr
    return dict(part.split("\n", 1) for part in done.stderr.split("== ")[1:])


@pytest.mark.parametrize("named", NOT_IMPLEMENTED)
def test_what_is_not_implemented_is_named(said, named):
    lines = [line for line in said[named].splitlines() if line.startswith("cann_cpu profiler: ")]
    assert any("not implemented" in line and named in line for line in lines), said[named]


def test_a_database_is_not_promised():
    done = run(Path(activation.PROFILER) / "msprof", "--help")
    assert done.returncode == 0 and "--export" in done.stdout and "--type" not in done.stdout  # torch_npu looks for it


def test_msprof_names_what_is_missing(tmp_path):
    msprof = Path(activation.PROFILER) / "msprof"
    done = run(msprof, "--export=on", f"--output={tmp_path}")
    assert done.returncode == 1 and "no PROF_* folder" in done.stderr
    (tmp_path / "PROF_1").mkdir()
    done = run(msprof, "--export=on", f"--output={tmp_path}")
    assert done.returncode == 1 and "host/start_info" in done.stderr


TORCHS_PROFILER = """
import json, sys, torch, torch_npu
from torch.profiler import ProfilerActivity, profile

x = torch.randn(8, 16).npu()
torch.npu.synchronize()
for session in range(2):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        (x.exp() @ x.T).sum().item()
        torch.npu.synchronize()
    profiler.export_chrome_trace(sys.argv[1])
    events = json.load(open(sys.argv[1]))["traceEvents"]
    kernels = [each for each in events if each.get("cat") == "kernel"]
    names = " ".join(each["name"] for each in kernels)
    assert all(word in names for word in ("Exp", "ReduceSum")) and ("Matmul" in names or "Mm" in names), names
    cpu = [each for each in events if each.get("name") == "aten::exp"]
    exp = next(each for each in kernels if "Exp" in each["name"])
    assert cpu and cpu[0]["ts"] <= exp["ts"] <= cpu[0]["ts"] + 60e6, (cpu, exp)  # on one clock
    assert all(each["dur"] >= 0 for each in kernels)
print("seen")
"""


def test_torchs_own_profiler_sees_the_kernels(tmp_path):
    done = run(sys.executable, "-c", TORCHS_PROFILER, tmp_path / "trace.json")
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["seen"]), done.stderr
