# SPDX-License-Identifier: Apache-2.0
"""The suite under the checks: what a test does wrong on purpose is left out, and without a check nothing is."""

import subprocess
import sys
from pathlib import Path

import pytest
from checks.commands import environment

TEST = (
    Path(__file__).parents[1]
    / "cann_cpu/runtime/test_memory.py::test_what_was_not_allocated_or_freed_already_is_not_freed"
)


@pytest.mark.parametrize(
    ("checks", "outcome"),
    [({}, "1 passed"), ({"CANN_CPU_CHECK": "race"}, "1 passed"), ({"CANN_CPU_CHECK": "race,memory"}, "1 skipped")],
)
def test_a_test_is_left_out_of_the_check_that_it_names(checks, outcome):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", str(TEST)]
    done = subprocess.run(command, env=environment(**checks), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert outcome in done.stdout
    assert ("frees what it must not" in done.stdout) == ("skipped" in outcome)
