# SPDX-License-Identifier: Apache-2.0
"""The check `cost`: what a program asks of the device stands at its lines, and a habit is named there."""

import sys
from pathlib import Path

import pytest
from checks import cost_programs
from checks.commands import checked, run_checked

PROGRAMS = Path(cost_programs.__file__)
STEPS = cost_programs.STEPS


def measured(tmp_path, *command):
    """The exit code, the lines of the report by their place, and standard error."""
    code, reports, stderr = checked(tmp_path, *command, checks="cost")
    return code, {line["where"]: line for line in reports}, stderr


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """What is counted of the programs with habits."""
    lines = {}
    for name in ("habits", *(function.__name__ for function in cost_programs.ALONE)):
        code, found, stderr = measured(tmp_path_factory.mktemp("cost"), sys.executable, PROGRAMS, name)
        assert code == 0, stderr
        lines.update(found)
    return lines


def marked(function):
    """The lines of the function that a comment marks with what is counted there, as the check writes them."""
    code, text = function.__code__, PROGRAMS.read_text().splitlines()
    places = {}
    for number in range(code.co_firstlineno, len(text) + 1):
        if places and not text[number - 1].strip():
            break
        _, _, mark = text[number - 1].partition("  # ")
        if mark:
            places[f"{PROGRAMS}:{number} in {code.co_name}"] = mark
    return places


@pytest.mark.parametrize("program", cost_programs.HABITS + cost_programs.ALONE, ids=lambda f: f.__name__)
def test_a_habit_is_named_at_its_line(program, lines):
    of_program = {where: line for where, line in lines.items() if where.endswith(" in " + program.__name__)}
    places = marked(program)
    assert {where: line["habit"] for where, line in of_program.items() if line["habit"]}.keys() == places.keys()
    for where, what in places.items():
        line = of_program[where]
        if what == "launches":
            assert line["launches"] >= 40 * STEPS
            assert "torch._foreach_" in line["habit"]
        else:
            assert line[what]["times"] >= STEPS - 1
            assert STEPS // 2 - 2 <= line[what]["in_steady_state"] < line[what]["times"]
            assert line["habit"].startswith(str(line[what]["in_steady_state"]) + " ")


def test_programs_without_habits_have_nothing_to_say(tmp_path):
    code, lines, stderr = measured(tmp_path, sys.executable, PROGRAMS, "right")
    assert code == 0, stderr
    assert {where: line["habit"] for where, line in lines.items() if line["habit"]} == {}
    assert {line.rpartition(" in ")[2] for line in lines} >= {function.__name__ for function in cost_programs.RIGHT}


def test_what_a_program_asks_for_is_counted(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "x = torch.ones(1024).npu()\n"
        "for _ in range(3): x.add_(1)\n"
        "y = x.cpu()\n"
        "for _ in range(5): torch.npu.synchronize()\n"
        "raise SystemExit(3)\n"
    )
    code, lines, stderr = measured(tmp_path, sys.executable, program)
    assert code == 3  # the program's own

    def at(line):
        return lines[f"{program}:{line} in <module>"]

    assert (at(2)["pageable_to_device"]["times"], at(2)["pageable_to_device"]["bytes"]) == (1, 4096)
    assert at(3)["launches"] == 3
    assert (at(4)["pageable_to_host"]["times"], at(4)["pageable_to_host"]["bytes"]) == (1, 4096)
    assert at(5)["waits"]["times"] == 5
    assert at(2)["allocations"]["times"] == 1
    assert f"{program}:4 in <module>" in stderr


def cost_of_line(program, number):
    """What the check reports of a line of a program, and what the program prints."""
    done, reports = run_checked(program.parent, sys.executable, program, checks="cost")
    done.check_returncode()
    (line,) = (each for each in reports if each["where"].startswith(f"{program}:{number}"))
    return line, done.stdout


def test_an_allocation_has_its_place_while_another_thread_holds_the_gil_for_a_second(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import ctypes, sys, threading, torch\n"
        "torch.npu.synchronize()\n"
        "acl, python, memory = ctypes.CDLL('libascendcl.so'), ctypes.PyDLL(None), ctypes.c_void_p()\n"
        "turn = threading.Lock()\n"
        "turn.acquire()\n"
        "def hold():\n"
        "    with turn:\n"
        "        python.usleep(1_000_000)  # PyDLL keeps the GIL\n"
        "thread = threading.Thread(target=hold)\n"
        "thread.start()\n"
        "sys.setswitchinterval(10)  # the call of aclrtMalloc releases the GIL, and nothing before it\n"
        "turn.release()\n"
        "acl.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(4096), 0)\n"
        "thread.join()\n"
    )
    line, _ = cost_of_line(program, 13)
    assert line["allocations"]["times"] == 1


def test_the_time_that_the_host_waits_is_measured(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import time, torch\n"
        "x = torch.ones(2000, 2000, device='npu')\n"
        "torch.npu.synchronize()\n"
        "begin = time.perf_counter()\n"
        "y = x @ x @ x @ x\n"
        "torch.npu.synchronize()\n"
        "print((time.perf_counter() - begin) * 1000)\n"
    )
    line, stdout = cost_of_line(program, 6)
    assert 1 < line["waited_ms"] <= float(stdout)
