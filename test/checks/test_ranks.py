# SPDX-License-Identifier: Apache-2.0
"""The checks of programs with several ranks."""

import sys
from pathlib import Path

import pytest
from checks import rank_programs
from checks.commands import checked

PROGRAMS = Path(rank_programs.__file__)
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", PROGRAMS)
RANKS = (sys.executable, PROGRAMS)  # of the same processes, and sooner: a schedule is many runs


@pytest.fixture(autouse=True)
def two_devices(monkeypatch):
    monkeypatch.setenv("CANN_CPU_DEVICES", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_right_programs_are_silent(tmp_path):
    code, reports, stderr = checked(tmp_path, *TORCHRUN, "right", checks="race,memory")
    assert (code, reports) == (0, []), stderr


@pytest.mark.nightly
def test_right_programs_keep_their_results(tmp_path):
    code, reports, stderr = checked(tmp_path, *RANKS, "right", checks="schedule", options=["--seeds=1..4"])
    assert (code, reports) == (0, []), stderr
    assert "4 seeds, the same result" in stderr


@pytest.mark.nightly
def test_a_seed_changes_the_result_of_a_wrong_program(tmp_path):
    program = "does_not_wait_for_what_it_began"
    code, (report,), stderr = checked(tmp_path, *RANKS, program, checks="schedule", options=["--seeds=1..20"])
    assert code == 66, stderr
    assert report["difference"].startswith("line 1 of standard output is '" + program)
