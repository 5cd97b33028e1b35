# SPDX-License-Identifier: Apache-2.0
"""Timelines of the model of a kernel's cost, made by hand and by the model, and what holds of all of them."""

import itertools
import json
import os
import re
import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import fresh
import numpy as np
import pytest
from cann_cpu.kernel import KernelError, KernelFile
from cann_cpu.profiler.kernel_costs import draw
from cann_cpu.profiler.msprof_op import basic_info, pipe_utilization
from test_tutorial import DESCRIPTION, SCALE, TUTORIAL, scale  # noqa: F401

EXAMPLES = Path(__file__).parents[2] / "examples/kernels"

# Cycles, as docs/ascendc_cost.md has them.
ISSUE, BEGIN, MESSAGE = 5, 20, 300
COPY_START, IN, OUT = 30, 364, 136  # the latencies into and out of a core
VECTOR_START, LOCAL_START = 22, 16
UB, TO_L1, OUT_OF_L0C, TO_L0A, TO_L0B = 64, 110, 86, 256, 128  # bytes a cycle
MEMORY = 1600e3 / 1800  # bytes a cycle of device memory, of Ascend910B3
REACHED = 0.953


def timeline(kernel, folder, *arguments, **how):
    """The begins and ends of all instructions, by core and pipe."""
    kernel(*arguments, profile=True, timeline=folder / "trace.json", **how)
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    pipes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event["ph"] == "X":
            span = (event["args"]["begin"], event["args"]["end"])
            found[event["pid"]][pipes[event["pid"], event["tid"]]].append(span)
    return found


def by_pipe(profile):
    return {name: (pipe["instructions"], pipe["work"]) for name, pipe in profile["pipes"].items()}


# Tiles of 512 bytes. A copy takes 38 cycles and is there 364 (out: 136) later, an addition takes 24. With one buffer a
# queue's next copy begins when the addition has read, so a tile takes 38 + 364 + 24; with two every other one does.
@pytest.mark.parametrize(
    ("depth", "copies_in", "additions", "copies_out"),
    [
        (1, [5, 431, 857, 1283], [407, 833, 1259, 1685], [431, 857, 1283, 1709]),
        (2, [5, 50, 431, 476], [407, 452, 833, 878], [431, 476, 857, 902]),
    ],
)
def test_pipes_overlap_as_far_as_the_buffers_of_queues_let_them(
    kernels, tmp_path, depth, copies_in, additions, copies_out
):
    kernel = kernels("profile")["tiles"]
    x, y = np.arange(1280, dtype=np.float32), np.zeros(1280, np.float32)
    cores = timeline(kernel, tmp_path, x, y, depth, blocks=4)
    assert (y == x + 1).all()
    late = 3 * BEGIN  # the fourth block, which has four tiles
    copy, addition = COPY_START + 512 / UB, VECTOR_START + 2
    assert cores[3] == {
        "MTE2": [(late + at, late + at + copy) for at in copies_in],
        "V": [(late + at, late + at + addition) for at in additions],
        "MTE3": [(late + at, late + at + copy) for at in copies_out],
    }
    profile = kernel.profile
    assert by_pipe(profile) == {"V": (10, 20), "MTE2": (10, 5120), "MTE3": (10, 5120)}
    assert profile["cycles"] == late + copies_out[-1] + copy + OUT
    assert profile["pipes"]["MTE2"]["busiest_core_cycles"] == 4 * copy
    assert profile["device_memory_bytes"] == profile["l2_bytes"] == 10240
    assert profile["unified_buffer_bytes"] == 2 * depth * 512


def test_a_product_goes_through_all_pipes_of_a_cube_core(kernels, tmp_path):
    kernel = kernels("profile")["product"]
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=(32, 32)).astype(np.float16) for _ in range(2))
    c = np.zeros((32, 32), np.float16)
    [core] = timeline(kernel, tmp_path, a, b, c).values()
    copy = COPY_START + 2048 / TO_L1
    first, second = ISSUE, ISSUE + copy  # the second copy waits for the pipe
    left = first + copy + IN
    right = second + copy + IN  # both are waited for before the first is loaded
    load_left, load_right = LOCAL_START + 2048 / TO_L0A, LOCAL_START + 2048 / TO_L0B
    assert left < right
    multiply = right + load_left + load_right
    out = multiply + LOCAL_START + 8  # 2 x 2 x 2 fractals
    expected = {
        "MTE2": [(first, second), (second, second + copy)],
        "MTE1": [(right, right + load_left), (right + load_left, multiply)],
        "M": [(multiply, out)],
        "FIX": [(out, out + COPY_START + 2048 / OUT_OF_L0C)],
    }
    assert core.keys() == expected.keys()
    for pipe, spans in expected.items():
        np.testing.assert_allclose(core[pipe], spans, atol=2e-3, err_msg=pipe)
    assert by_pipe(kernel.profile)["M"] == (1, 8)
    assert {name: path["bytes"] for name, path in kernel.profile["paths"].items()} == {
        "GM to L1": 4096,
        "L1 to L0A": 2048,
        "L1 to L0B": 2048,
        "L0C to GM": 2048,
    }


def test_a_core_waits_for_what_another_one_says(kernels, tmp_path):
    cores = timeline(kernels("profile")["message"], tmp_path, np.zeros(256, np.float32))
    copied = ISSUE + COPY_START + 512 / TO_L1
    np.testing.assert_allclose(cores[0]["MTE2"], [(ISSUE, copied)], atol=2e-3)
    heard = copied + IN + MESSAGE + ISSUE
    np.testing.assert_allclose(cores[1]["MTE2"], [(heard, heard + COPY_START + 512 / UB)], atol=2e-3)


def test_msprof_op_has_a_row_for_each_core_of_a_mixed_kernel(kernels, tmp_path):
    kernel = kernels("profile")["message"]
    kernel(np.zeros(256, np.float32), profile=True, timeline=tmp_path / "trace.json")
    info = basic_info(kernel.profile, 1)
    assert (info["Op Type"], info["Block Dim"], info["Mix Block Dim"]) == ("mix", 1, 1)
    cube, vector = pipe_utilization(json.loads((tmp_path / "trace.json").read_text())["traceEvents"], kernel.profile)
    assert [core["sub_block_id"] for core in (cube, vector)] == ["cube0", "vector0"]
    copied = COPY_START + 512 / TO_L1
    assert cube["aic_mte2_time(us)"] == pytest.approx(copied / kernel.profile["clock_mhz"], abs=1e-3)
    assert cube["aic_mte2_ratio"] > 0 and cube["aiv_time(us)"] == cube["aiv_vec_ratio"] == "N/A"
    assert vector["aiv_mte2_time(us)"] > 0 and vector["aic_time(us)"] == "N/A"


def test_copies_of_all_cores_share_device_memory(kernels, monkeypatch):
    kernel = kernels("profile")["reads"]
    blocks, size = 40, 64 * 1024
    x = np.zeros(blocks * size, np.uint8)
    kernel(x[:size], 1, profile=True)
    alone = kernel.profile["cycles"]
    assert alone == ISSUE + COPY_START + size / UB + IN
    kernel(x, 1, blocks=blocks, profile=True)
    profile = kernel.profile
    least = blocks * size / MEMORY
    assert profile["roofline"]["bound"] == "device memory"
    assert profile["roofline"]["cycles"] == pytest.approx(least, abs=0.1)
    assert least / REACHED < profile["cycles"] < least / REACHED + COPY_START + IN + blocks * BEGIN
    assert profile["cycles"] > 2 * alone


def test_what_was_read_before_comes_from_l2(kernels):
    kernel = kernels("profile")["reads"]
    x = np.zeros(64 * 1024, np.uint8)
    kernel(x, 3, profile=True)
    assert (kernel.profile["device_memory_bytes"], kernel.profile["l2_bytes"]) == (x.size, 3 * x.size)


def test_blocks_wait_for_a_core(kernels):
    kernel = kernels("profile")["reads"]
    x = np.zeros(41 * 64 * 1024, np.uint8)
    kernel(x, 2, blocks=40, profile=True)
    all_at_once = kernel.profile["cycles"]
    kernel(x, 2, blocks=41, profile=True)
    alone = 2 * (COPY_START + IN) + 64 * 1024 * 2 / UB
    assert kernel.profile["cycles"] > all_at_once + 0.9 * alone - 40 * BEGIN


def test_each_instruction_of_the_vector_unit_is_one(kernels, tmp_path):
    kernel = kernels("profile")["vectors"]
    y = np.zeros(16, np.float32)
    [core] = timeline(kernel, tmp_path, y).values()
    assert y[0] == 128
    # Three Duplicates and the copy of two repeats each, ReduceSum of two; a read of the sum, a write to y.
    assert by_pipe(kernel.profile) == {"S": (2, 2), "V": (5, 10)}
    lengths = [end - begin for begin, end in core["V"]]
    assert lengths == [VECTOR_START + 2] * 3 + [VECTOR_START + 2 * 7, VECTOR_START + 2]
    assert core["S"][0][0] == core["V"][-1][1], "the scalar unit waits for the vector unit"


def test_what_is_told_in_pieces_is_one_instruction(kernels, tmp_path):
    [core] = timeline(kernels("profile")["pieces"], tmp_path).values()
    lengths = [end - begin - VECTOR_START for begin, end in core["V"]]
    # Select of two repeats, GatherMask of two at half speed, Brcb of one; 128 numbers sorted and merged, 2 a cycle.
    assert lengths == [28] + 2 * [2, 4, 1, 64, 64]


@pytest.mark.parametrize("name", ["softmax", "top64", "histogram", "rotary", "matmul"])
def test_no_timeline_is_shorter_than_the_roofline_or_longer_than_one_by_one(name, tmp_path):
    described = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    kernel = KernelFile(EXAMPLES / f"{name}.cpp")[name]
    arguments = [described["arguments"][parameter] for parameter in kernel.parameters]
    cores = timeline(kernel, tmp_path, *arguments, blocks=described["blocks"])
    profile = kernel.profile
    assert 0 < profile["roofline"]["cycles"] <= profile["cycles"] <= profile["one_by_one_cycles"]
    assert profile["roofline"]["cycles"] == max(profile["bounds"].values())
    assert profile["roofline"]["share"] == pytest.approx(profile["roofline"]["cycles"] / profile["cycles"], abs=1e-3)
    counted = defaultdict(int)
    for pipes in cores.values():
        for pipe, spans in pipes.items():
            counted[pipe] += len(spans)
            assert all(begin <= end for begin, end in spans)
            assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans)), pipe
            assert spans[-1][1] <= profile["cycles"] + 1e-3
    assert counted == {pipe: of["instructions"] for pipe, of in profile["pipes"].items()}


def test_a_timeline_is_the_same_in_every_run(kernels, tmp_path, monkeypatch):
    kernel = kernels("profile")["tiles"]
    seen = []
    for threads, offset in (("1", 0), ("4", 64), ("4", 448)):
        monkeypatch.setenv("ASCENDC_CPU_THREADS", threads)
        bytes_of_it = np.zeros(5120 + 1024, np.uint8)
        begin = -bytes_of_it.ctypes.data % 512 + offset  # where the host has it shall change nothing
        y = bytes_of_it[begin : begin + 5120].view(np.float32)
        cores = timeline(kernel, tmp_path, np.zeros(1280, np.float32), y, 2, blocks=4)
        seen.append((kernel.profile, {core: dict(pipes) for core, pipes in cores.items()}))
    assert seen[0] == seen[1] == seen[2]


def test_cores_that_wait_for_each_other_have_one_timeline(kernels, tmp_path, monkeypatch):
    kernel, blocks, rounds = kernels("cube")["mixed"], 2, 3
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=(blocks, 16, 16)).astype(np.float16) for _ in range(2))
    seen = []
    for threads in ("1", "4", "4"):
        monkeypatch.setenv("ASCENDC_CPU_THREADS", threads)
        c, y = (np.zeros((blocks, 16, 16), np.float32) for _ in range(2))
        cores = timeline(kernel, tmp_path, a, b, c, y, rounds, blocks=blocks)
        assert (y == c + 1).all()
        seen.append((kernel.profile, {core: dict(pipes) for core, pipes in cores.items()}))
    assert seen[0] == seen[1] == seen[2]
    assert kernel.profile["roofline"]["cycles"] <= kernel.profile["cycles"] <= kernel.profile["one_by_one_cycles"]
    for cube, *vectors in ((0, 1, 2), (3, 4, 5)):
        sums = cores[cube]["FIX"]
        reads = [cores[vector]["MTE2"] for vector in vectors]
        assert [len(spans) for spans in (sums, *reads)] == [rounds] * 3
        for i in range(rounds):
            assert all(spans[i][0] >= sums[i][1] + OUT + MESSAGE for spans in reads)
        for i in range(1, rounds):
            assert all(sums[i][0] >= spans[i - 1][1] + IN + MESSAGE for spans in reads)


def test_the_chip_is_the_one_that_is_chosen(tmp_path):
    script = (
        "import sys, numpy as np; from cann_cpu.kernel import KernelFile; "
        "k = KernelFile(sys.argv[1])['scale']; x = np.zeros(99, np.float32); "
        "k(x, x.copy(), 99, 2.0, profile=True); print(k.profile['soc'], k.profile['clock_mhz'])"
    )
    environment = {**os.environ, "CANN_CPU_SOC": "Ascend910B4"}
    command = [sys.executable, "-c", script, EXAMPLES / "scale.cpp"]
    assert subprocess.check_output(command, env=environment, text=True) == "Ascend910B4 1500\n"


def test_a_call_without_checks_has_no_profile(kernels):
    kernel = kernels("profile")["vectors"]
    kernel(np.zeros(16, np.float32), profile=True)
    kernel(np.zeros(16, np.float32))
    assert kernel.profile == {}
    with pytest.raises(KernelError, match="generated from the checks' records"):
        kernel(np.zeros(16, np.float32), checks=False, profile=True)


def test_the_command_prints_what_the_tutorial_shows(scale, tmp_path):  # noqa: F811
    done = scale(DESCRIPTION, SCALE, "--profile")
    shown = re.search(r"^by the model of (?:.*\n)+?  y: as expected\n", TUTORIAL, flags=re.MULTILINE)[0]
    assert done.stdout.endswith(shown), done.stdout + done.stderr
    rejected = scale(DESCRIPTION, SCALE, "--profile", "--no-checks")
    assert rejected.returncode == 2
    assert "a profile is generated from the checks' records" in rejected.stderr
    done = scale(DESCRIPTION, SCALE, "--timeline", str(tmp_path / "trace.json"))
    assert done.stdout.endswith(shown), done.stdout + done.stderr
    names = [e["name"] for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert sorted(names) == ["DataCopyPad"] * 10 + ["Muls"] * 5


def test_the_command_draws_a_timeline(scale, tmp_path):  # noqa: F811
    pytest.importorskip("matplotlib")
    done = scale(DESCRIPTION, SCALE, "--timeline", str(tmp_path / "timeline.png"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_may_show_one_block_alone(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    names = [
        {"ph": "M", "name": name, "pid": pid, "tid": 0, "args": {"name": text}}
        for pid in (0, 1, 10)
        for name, text in (("process_name", f"block {pid}, AIV 0"), ("thread_name", "V"))
    ]
    spans = [{"ph": "X", "name": "Add", "pid": pid, "tid": 0, "ts": 0, "dur": 1} for pid in (0, 1, 10)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": names + spans}))
    for block, shown in ((None, ["0", "1", "10"]), (1, ["1"])):
        with matplotlib.rc_context({"svg.fonttype": "none"}):
            draw(tmp_path / "trace.json", tmp_path / "picture.svg", "a title", block)
        assert re.findall(r"block (\d+), AIV 0  V", (tmp_path / "picture.svg").read_text()) == shown


def test_operators_write_profiles_where_the_environment_says(tmp_path):
    script = "import torch, custom_pypto; x = torch.ones(999).npu(); print((custom_pypto.add_custom(x, x) == 2).all())"
    environment = {**os.environ, "ASCENDC_CPU_PROFILE": str(tmp_path / "profiles")}
    for _ in range(2):  # the second process takes other names
        assert "True" in fresh.run([sys.executable, "-c", script], env=environment, check=True).stdout
    written = sorted(path.name for path in (tmp_path / "profiles").iterdir())
    assert written == [f"00000{i}-add_custom{end}" for i in (1, 2) for end in (".json", ".trace.json")]
    for name in written:
        assert json.loads((tmp_path / "profiles" / name).read_text())
    command = [sys.executable, "-m", "cann_cpu", "profile", str(tmp_path / "profiles")]
    printed = subprocess.check_output(command, text=True)
    assert printed.startswith("000001-add_custom: ")
    assert re.search(r"\n2 launches: [0-9.]+ us\n$", printed)
