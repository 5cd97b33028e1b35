# SPDX-License-Identifier: Apache-2.0
"""The check `race`: each wrong program is named by its two lines, and the right ones stay silent."""

import functools
import sys
from pathlib import Path

import pytest
from checks import race_programs
from checks.commands import checked as checked_by

PROGRAMS = Path(race_programs.__file__)
checked = functools.partial(checked_by, checks="race")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What is reported of the wrong programs."""
    code, reports, _ = checked(tmp_path_factory.mktemp("race"), sys.executable, PROGRAMS, "wrong")
    assert code == 66
    return reports


def places(function):
    """Where the function's lines marked first and second lie, as the check writes them."""
    code, lines = function.__code__, PROGRAMS.read_text().splitlines()
    marked = {}
    for number in range(code.co_firstlineno, len(lines) + 1):
        _, _, mark = lines[number - 1].partition("  # ")
        if mark in ("first", "second"):
            marked.setdefault(mark, f"{PROGRAMS}:{number} in {code.co_name}")
        if len(marked) == 2:
            break
    return marked["first"], marked["second"]


@pytest.mark.parametrize("program", race_programs.WRONG, ids=lambda f: f.__name__)
def test_a_wrong_program_is_named_by_its_lines(program, reports):
    found = {tuple(r[use].rpartition("launched at ")[2] for use in ("first", "second")) for r in reports}
    assert places(program) in found
    assert [pair for pair in found if pair[0].endswith(" in " + program.__name__)] == [places(program)]


def test_nothing_else_is_reported(reports):
    names = {function.__name__ for function in race_programs.WRONG}
    assert [r for r in reports if r["first"].rpartition(" in ")[2] not in names] == []


def test_right_programs_are_silent(tmp_path):
    code, reports, stderr = checked(tmp_path, sys.executable, PROGRAMS, "right")
    assert (code, reports) == (0, []), stderr


def test_the_report_says_what_to_do(tmp_path):
    program = "import torch; x = torch.ones(9).npu(); torch.npu.synchronize(); x.add_(1)\n"
    program += "with torch.npu.stream(torch.npu.Stream()): x.exp()"
    code, (report,), stderr = checked(tmp_path, sys.executable, "-c", program)
    assert code == 66
    assert "36 bytes" in report["bytes"]
    assert "writes its argument 1, launched at <string>:1 in <module>" in report["first"]
    assert "reads its argument 1, launched at <string>:2 in <module>" in report["second"]
    assert "stream.wait_stream" in stderr


def test_the_exit_code_of_a_command_that_fails_is_its_own(tmp_path):
    assert checked(tmp_path, sys.executable, "-c", "raise SystemExit(3)")[:2] == (3, [])


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        ("rase", "'rase', which is not a check; the checks are: cost, fault, memory, race, schedule"),
        ("race:all", "'race:all', and race takes nothing after a colon"),
        ("memory:keys", "'memory:keys', and memory takes only 'pages' after a colon"),
    ],
)
def test_an_unknown_check_is_rejected(checks, message, tmp_path):
    code, _, stderr = checked(tmp_path, sys.executable, "-c", "import torch; torch.ones(1).npu()", checks=checks)
    assert code != 0
    assert f"CANN_CPU_CHECK has {message}" in stderr
