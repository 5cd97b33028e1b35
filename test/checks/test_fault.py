# SPDX-License-Identifier: Apache-2.0
"""The check `fault` finds programs that handle a failing call wrongly; correct programs pass with every failure."""

import subprocess
import sys
from pathlib import Path

import pytest
from cann_cpu.checks import fault_injection
from checks import fault_programs
from checks.commands import checked, environment

PROGRAMS = Path(fault_programs.__file__)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(fault_injection, "PATIENCE", 5)


def tried(program, *given):
    """What is reported of a program with these faults."""
    return fault_injection.try_faults([sys.executable, str(PROGRAMS), program], environment(), list(given), None)[2]


@pytest.mark.parametrize("program", fault_programs.WRONG)
def test_a_wrong_program_is_named_by_its_line(program, impatient):
    outcome, fault = fault_programs.WRONG[program]
    (report,) = tried(program, fault)
    assert (report["outcome"], report["place"]) == (outcome, fault_programs.line_of(program)), report


@pytest.mark.parametrize("program", fault_programs.RIGHT)
def test_a_right_program_stands_the_failure_of_every_call(program):
    reports = tried(program, "all")
    inside = [report for report in reports if report["place"].endswith(f" in {program}")]
    assert len(inside) >= 2
    assert [report for report in inside if report["outcome"] in fault_injection.WRONG] == []


def test_all_is_every_call_by_its_place_and_each_can_be_had_again(tmp_path):
    command = (sys.executable, PROGRAMS, "keeps_the_first_buffer_when_the_second_fails")
    code, reports, _ = checked(tmp_path, *command, checks="fault:all")
    assert code == 66
    calls = [(report["function"], report["place"].rpartition(" in ")[2]) for report in reports]
    name = "keeps_the_first_buffer_when_the_second_fails"
    assert calls[:2] == [("aclInit", "<module>"), ("aclrtSetDevice", "<module>")]
    assert ("aclrtMalloc", "pointer") in calls
    leaking = [r for r in reports if (r["outcome"], r["function"]) == ("leaking", "aclrtMalloc")]
    assert [report["place"] for report in leaking] == [fault_programs.line_of(name)]
    assert "bytes of device memory" in leaking[0]["detail"]
    code, (again,), _ = checked(tmp_path, *command, checks=f"fault:{leaking[0]['fault']}")
    assert (code, again) == (66, leaking[0])


def test_the_code_is_the_given_one(tmp_path):
    code, (report,), stderr = checked(
        tmp_path, sys.executable, PROGRAMS, "tries_again_once", checks="fault:aclrtFree:1:4"
    )
    assert (code, report["outcome"], report["code"]) == (0, "unharmed", "4"), stderr


def test_a_call_that_is_not_made_is_said(tmp_path):
    code, (report,), _ = checked(tmp_path, sys.executable, PROGRAMS, "tries_again_once", checks="fault:aclrtFree:7")
    assert (code, report["outcome"]) == (66, "never called")
    assert "1 calls of aclrtFree" in report["detail"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("fault:aclrtMallok", "no library has aclrtMallok"),
        ("fault:aclnnAdd,fault:aclnnSubb:2", "no library has aclnnSubb"),
        ("fault:aclrtMalloc,race", "stands alone"),
        ("fault", "fault:FUNCTION"),
    ],
)
def test_what_cannot_fail_is_rejected(tmp_path, fault, message):
    code, _, stderr = checked(tmp_path, "true", checks=fault)
    assert code == 2
    assert message in stderr


@pytest.mark.parametrize("fault", ["aclrtMalloc:0", "aclrtMalloc:x", "aclrtMalloc@12"])
def test_a_fault_that_cannot_be_read_is_rejected(fault):
    assert "CANN_CPU_CHECK has 'fault:" in fault_programs_error(fault)


def fault_programs_error(fault):
    from cann_cpu.checks import repeated_runs

    program = "import ctypes; acl = ctypes.CDLL('libascendcl.so'); acl.aclInit(None)\n"
    program += "acl.aclGetRecentErrMsg.restype = ctypes.c_char_p; print(acl.aclGetRecentErrMsg().decode())"
    return repeated_runs.run([sys.executable, "-c", program], environment(CANN_CPU_CHECK=f"fault:{fault}")).stdout


def test_calls_are_those_of_the_program(tmp_path):
    """Not what the libraries ask of each other for them."""
    program = "import torch\nx = torch.ones(8).npu()\ny = x * 2\nz = x * 3\nprint((y + z).sum().item())"
    code, (report,), stderr = checked(tmp_path, sys.executable, "-c", program, checks="fault:aclnnMuls:2")
    assert (code, report["outcome"], report["place"]) == (0, "error", "<string>:4 in <module>"), stderr


STOPPED = """
import os
from cann_cpu.checks import repeated_runs
this = os.getpid()
print(repeated_runs.run(["sh", "-c", f"kill -STOP {this}; sleep 5; kill -CONT {this}; echo done"], {}, timeout=3))
"""


def test_time_in_which_the_machine_has_stopped_the_check_is_none_of_the_run_s():
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=100)
    assert "Outcome(code=0, stdout='done" in done.stdout, done.stdout + done.stderr


OPERATOR = """
import torch
import custom_pypto
x, y = torch.ones(8, 64).half().npu(), torch.zeros(8, 64).half().npu()
try:
    y = torch.ops.custom_pypto.add_custom(x, x)
    torch.npu.synchronize()
except RuntimeError as error:
    {handler}
print(y.sum().item())
"""


@pytest.mark.parametrize("function", ["aclnnAddCustomGetWorkspaceSize", "aclnnAddCustom", "stream"])
def test_an_operator_s_failure_that_is_passed_over_is_silently_wrong(tmp_path, function):
    """EXEC_NPU_CMD raises, and gives back what it has."""
    program = OPERATOR.format(handler="pass")
    code, (report,), stderr = checked(tmp_path, sys.executable, "-c", program, checks=f"fault:{function}")
    assert (code, report["outcome"]) == (66, "silently wrong"), stderr
    assert report["place"] == "<string>:6 in <module>"


def test_an_operator_s_failure_that_is_raised_is_right(tmp_path):
    program = OPERATOR.format(handler="raise")
    code, (report,), stderr = checked(tmp_path, sys.executable, "-c", program, checks="fault:aclnnAddCustom")
    assert (code, report["outcome"]) == (0, "error"), stderr
