# SPDX-License-Identifier: Apache-2.0
"""The check `schedule`: seeds change the results of wrong programs, and name the task; right programs keep theirs."""

import functools
import sys
from pathlib import Path

import pytest
from cann_cpu.checks import repeated_runs, schedules
from checks import schedule_programs
from checks.commands import checked as checked_by
from checks.commands import environment

PROGRAMS = Path(schedule_programs.__file__)
SEEDS = (2, 3, 5, 6)  # which find all of them
checked = functools.partial(checked_by, checks="schedule")


HASTY = """
import ctypes
import os
import time
import torch

x, y = torch.ones(4, device="npu"), torch.zeros(4, device="npu")
torch.npu.synchronize()
with torch.npu.stream(torch.npu.Stream()):
    y.copy_(x)
# The host has something to do, and the copy ends meanwhile. In the order of a seed it may not.
end = time.monotonic() + (1 if "CANN_CPU_SEED" in os.environ else 60)
while time.monotonic() < end and ctypes.c_float.from_address(y.data_ptr() + 12).value == 0:
    pass
z = y * 2
torch.npu.synchronize()
print(z.sum().item())
"""


def names(programs):
    return [program.__name__ for program in programs]


def run_with_seed(programs, folder, seed):
    """What each program gave, and what its tasks wrote: rows of name, place and digest, in the order of launches."""
    command = [sys.executable, str(PROGRAMS), programs]
    variables = environment(CANN_CPU_CHECK="schedule", CANN_CPU_SEED=str(seed))
    file = folder / f"digests_{seed}"
    outcome = repeated_runs.run(command, variables | {"CANN_CPU_DIGESTS": str(file)}, timeout=250)
    assert outcome.code == 0, outcome.stderr
    results = dict(line.split(" ", 1) for line in outcome.stdout.splitlines())
    rows = schedules.read_digests(file)
    return results, {
        name: [row for _, row in sorted(rows.items()) if row[1].endswith(f" in {name}")] for name in results
    }


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """The outcomes of the wrong programs, by seed: 0 is the order of the launches."""
    run = functools.partial(run_with_seed, "wrong", tmp_path_factory.mktemp("schedule"))
    return dict(repeated_runs.run_all([0, *SEEDS], run, "seeds"))


@pytest.mark.parametrize("name", names(schedule_programs.WRONG))
def test_a_seed_changes_the_result_of_a_wrong_program(name, wrong):
    expected = wrong[0][0][name]
    assert any(wrong[seed][0][name] != expected for seed in SEEDS)


@pytest.mark.parametrize(
    "program", [p for p in schedule_programs.WRONG if schedule_programs.line_of(p)], ids=lambda p: p.__name__
)
def test_the_first_task_that_computes_something_else_is_the_marked_one(program, wrong):
    name = program.__name__
    expected = wrong[0][1][name]
    changed = [wrong[seed] for seed in SEEDS if wrong[seed][0][name] != wrong[0][0][name]]
    firsts = {
        next(found[1] for one, found in zip(expected, rows[name], strict=True) if one != found) for _, rows in changed
    }
    assert schedule_programs.line_of(program) in firsts


def test_right_programs_keep_their_results(tmp_path):
    code, reports, stderr = checked(tmp_path, sys.executable, PROGRAMS, "right", options=["--seeds=1..4"])
    assert (code, reports) == (0, []), stderr
    assert "4 seeds, the same result" in stderr


def test_a_seed_repeats(tmp_path, wrong):
    seed = next(seed for seed in SEEDS if wrong[seed][0] != wrong[0][0])
    assert run_with_seed("wrong", tmp_path, seed) == wrong[seed]


def test_the_first_seed_that_differs_is_reported_with_its_task(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(HASTY)
    code, (report,), stderr = checked(tmp_path, sys.executable, program, options=["--seeds=1..200"])
    assert code == 66
    assert report["difference"] == "line 1 of standard output is '0.0', not '8.0'"
    assert report["task"] == f"aclnnMuls, launched at {program}:15 in <module>"
    assert f"CANN_CPU_SEED={report['seed']} " in stderr


def test_what_does_not_count_is_ignored(tmp_path):
    program = "import os; print('took', os.environ.get('CANN_CPU_SEED'), 'ms')"
    command = (sys.executable, "-c", program)
    assert checked(tmp_path, *command, options=["--seeds=1..2"])[0] == 66
    assert checked(tmp_path, *command, options=["--seeds=1..2", "--ignore=took .* ms"])[0] == 0


@pytest.mark.parametrize("seeds", ["a", "5..1", "1...3"])
def test_seeds_that_are_none_are_rejected(tmp_path, seeds):
    code, _, stderr = checked(tmp_path, "true", options=[f"--seeds={seeds}"])
    assert code == 2
    assert f"--seeds is '{seeds}'" in stderr


def test_a_seed_that_is_no_number_is_rejected(tmp_path):
    program = "import torch; torch.ones(1).npu()"
    variables = environment(CANN_CPU_CHECK="schedule", CANN_CPU_SEED="x")
    outcome = repeated_runs.run([sys.executable, "-c", program], variables)
    assert outcome.code not in (0, None)
    assert 'CANN_CPU_SEED is "x"' in outcome.stderr
