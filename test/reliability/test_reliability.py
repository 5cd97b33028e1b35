# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of docs/reliability.md briefly, and tests that each reports what it is to find."""

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path

import aclnn_signatures
import fresh
import pytest
import torch
from cann_cpu import coverage

sys.path.insert(0, str(Path(__file__).parent))
import aclnn_calls
import drawn_calls

HERE = Path(__file__).parent


def run(*command):
    done = fresh.run([sys.executable, *command], cwd=HERE, timeout=500)
    return done.returncode, done.stdout + done.stderr


def test_every_function_has_its_signature():
    assert aclnn_signatures.signatures().keys() == coverage.served_functions()


@pytest.mark.parametrize(("program", "calls"), [("aclnn_calls.py", 500), ("operator_calls.py", 60)])
def test_drawn_calls_are_answered(program, calls):
    code, output = run(program, f"--calls={calls}")
    assert code == 0, output
    assert f"{calls} calls of" in output
    assert int(re.search(r"failed in the stream +(\d+)", output)[1]) < 0.05 * calls


def test_calls_fail_in_turn_but_those_that_a_report_has(tmp_path):
    report = tmp_path / "report.json"
    options = ["--functions=aclnnAddCustom$", f"--report={report}"]
    code, output = run("failing_calls.py", *options, "operator", "add_custom")
    assert code == 0, output
    reports = json.loads(report.read_text())
    assert len(reports) >= 2 and {each["outcome"] for each in reports} == {"error"}
    code, output = run("failing_calls.py", *options, f"--tried={report}", "operator", "add_custom")
    assert code == 0 and "0 calls failed in turn" in output, output


def test_a_worker_that_ends_is_told_and_followed_by_another(tmp_path):
    program = tmp_path / "calls.py"
    program.write_text(
        f"import os, sys; sys.path.insert(0, {str(HERE)!r}); import drawn_calls\n"
        "def call(name, number):\n"
        "    return os.abort() if number == 2 else ('wrote outside', '') if number == 4 else ('ran', '')\n"
        "describe = lambda seed, number, functions: (functions[0], number)\n"
        "sys.exit(drawn_calls.main(__file__, 'title', ['f'], describe, lambda: call))\n"
    )
    code, output = run(program, "--calls=6")
    assert code == 1
    assert "crashed: call 2, f" in output and "wrote outside: call 4, f" in output
    assert dict(
        line.rsplit(maxsplit=1) for line in output.splitlines()[-len(drawn_calls.RIGHT + drawn_calls.WRONG) :]
    ) == {
        outcome: {"ran": "4", "crashed": "1", "wrote outside": "1"}.get(outcome, "0")
        for outcome in drawn_calls.RIGHT + drawn_calls.WRONG
    }


@pytest.mark.parametrize(
    ("place", "outcome", "outside"),
    [
        (0, "ran", False),
        (4, "ran", True),  # between the elements
        (4, "failed in the stream", False),
        (0, "rejected", True),
        (-1, "ran", True),
        (12, "ran", True),
    ],
)
def test_a_byte_outside_the_outputs_is_seen(place, outcome, outside):
    torch.ones(1, device="npu")
    memory = aclnn_calls.Memory(ctypes.CDLL("libascendcl.so"))
    memory.start()
    memory.tensor(aclnn_calls.Tensor(dtype=0, shape=[2], strides=[2], offset=0, storage=3, format=2))
    before = memory.before()
    memory.bytes[memory.tensors[0][0] + place] ^= 1
    assert memory.is_written_outside(before, outcome) == outside
    memory.destroy()


@pytest.mark.nightly
@pytest.mark.parametrize("reader", ["binary", "configuration", "package", "rule", "wire"])
def test_no_mutation_of_a_file_crashes_its_reader(reader):
    command = ["bash", HERE / "fuzz" / "run.sh", "--mutations", reader, "20000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    valid, rejected = map(int, done.stdout.split())
    assert min(valid, rejected) > 300


@pytest.mark.nightly
def test_a_soak_ends_as_it_began():
    code, output = run("soak.py", "--seconds=5", "--warm-up=5")
    assert code == 0, output
    assert "none lost" in output


def test_a_lost_task_is_told():
    lose = "soak.Thread.count = lambda self: setattr(self, 'tasks', self.tasks + 1)"
    code, output = run("-c", f"import soak; {lose}; soak.work(2, 0.5, 0.5, 1)")
    assert code == 1
    assert "tasks were enqueued" in output
