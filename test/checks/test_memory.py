# SPDX-License-Identifier: Apache-2.0
"""The check `memory`: each wrong program is named by its lines, and the right ones stay silent."""

import subprocess
import sys
from pathlib import Path

import cann_cpu
import pytest
from checks import memory_programs, race_programs
from checks.commands import checked

PROGRAMS = Path(memory_programs.__file__)
HOME = Path(cann_cpu.__file__).parent


def run(folder, *command):
    return checked(folder, *command, checks="memory")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What is reported of the wrong programs that go on."""
    code, reports, _ = run(tmp_path_factory.mktemp("memory"), sys.executable, PROGRAMS, "wrong")
    assert code == 66
    return reports


def marked(function):
    """The places that the function's marks name, as the check writes them."""
    code, lines = function.__code__, PROGRAMS.read_text().splitlines()
    last = max(line for _, _, line in code.co_lines() if line)
    places = {}
    for number in range(code.co_firstlineno, last + 1):
        for mark in lines[number - 1].split("  # ")[1:]:
            for each in mark.split(" # "):
                places[each] = f"{PROGRAMS}:{number} in {code.co_name}"
    if function is not memory_programs.allocate:
        places.setdefault("allocated", marked(memory_programs.allocate)["allocated"])
    return places


def names(report, program):
    """Whether the report has both of the program's places."""
    places = marked(program)
    text = report["buffer"] + report["task"]
    at_host = report["fault"] == "free of memory that was never allocated"
    return places["fault"] in text and (at_host or f"allocated at {places['allocated']}" in text)


@pytest.mark.parametrize("program", memory_programs.WRONG, ids=lambda f: f.__name__)
def test_a_wrong_program_is_named_by_its_lines(program, reports):
    own = [r for r in reports if f" in {program.__name__}" in r["buffer"] + r["task"]]
    assert [r["fault"] for r in own] == [memory_programs.WRONG[program]]
    assert names(own[0], program)


def test_nothing_else_is_reported(reports):
    assert len(reports) == len(memory_programs.WRONG)


def stopped(program):
    """One that reads and one that writes always, the others nightly: each is a process."""
    always = program in (memory_programs.writes_with_ctypes, memory_programs.sums_with_numpy)
    return pytest.param(program, id=program.__name__, marks=() if always else pytest.mark.nightly)


@pytest.mark.parametrize("program", [stopped(program) for program in memory_programs.STOPPED])
def test_the_host_stops_where_it_touches_device_memory(program, tmp_path):
    code, (report,), _ = run(tmp_path, sys.executable, PROGRAMS, program.__name__)
    assert code == 66
    assert report["fault"] == memory_programs.STOPPED[program]
    assert names(report, program)


@pytest.mark.parametrize("programs", [memory_programs, race_programs], ids=lambda m: m.__name__)
def test_right_programs_are_silent(programs, tmp_path):
    code, reports, stderr = run(tmp_path, sys.executable, programs.__file__, "right")
    assert (code, reports) == (0, []), stderr


@pytest.fixture(scope="module")
def program_in_cpp(tmp_path_factory):
    binary = tmp_path_factory.mktemp("cpp") / "memory_programs"
    source = PROGRAMS.with_suffix(".cpp")
    flags = ["-std=c++17", "-rdynamic", f"-I{HOME}/include", f"-L{HOME}/lib64", f"-Wl,-rpath,{HOME}/lib64"]
    subprocess.run(["g++", *flags, str(source), "-lascendcl", "-o", str(binary)], check=True)
    return binary


@pytest.mark.parametrize("check", ["memory", "memory:pages"])
@pytest.mark.parametrize(
    ("case", "fault", "what"),
    [
        ("host_reads", "device memory read on the host", "at its byte 4"),
        ("host_writes", "device memory written on the host", "at its byte 0"),
        ("host_function_reads", "device memory read on the host", "at its byte 4"),
        ("reads_behind", "out of bounds", "read: 1 past"),
        ("writes_behind", "out of bounds", "written: 1 past"),
        ("writes_behind_an_odd_end", "out of bounds", "written: 4 bytes, 1 past"),
        ("writes_in_front", "out of bounds", "written: 4 bytes, 4 in front"),
        ("uses_in_another_thread", "out of bounds", "written: 1 past"),
        ("leaks", "never freed", "1 buffer"),
    ],
)
def test_a_program_in_cpp(case, fault, what, check, program_in_cpp, tmp_path):
    code, (report,), _ = checked(tmp_path, program_in_cpp, case, checks=check)
    assert code == 66
    assert report["fault"] == fault
    assert what in report["what"]
    text = report["buffer"] + report["task"]
    assert "memory_programs+0x" in text
    assert "in allocate" in text
    if fault.startswith("device memory"):
        assert f"in {case}" in report["task"]
    elif fault == "out of bounds":
        assert "scale on stream" in report["task"]
        assert f"in {case}" in report["task"]


@pytest.mark.parametrize("check", ["memory", "memory:pages"])
def test_a_correct_program_in_cpp(check, program_in_cpp, tmp_path):
    code, reports, stderr = checked(tmp_path, program_in_cpp, "right", checks=check)
    assert (code, reports) == (0, []), stderr


HAS_PROTECTION_KEYS = "ospke" in Path("/proc/cpuinfo").read_text().split()


@pytest.mark.skipif(not HAS_PROTECTION_KEYS, reason="pages are accessible to all threads, or to none")
def test_the_host_stops_beside_a_task_that_uses_the_memory(program_in_cpp, tmp_path):
    code, (report,), _ = run(tmp_path, program_in_cpp, "host_reads_while_a_task_uses_it")
    assert (code, report["fault"]) == (66, "device memory read on the host")
    assert "in host_reads_while_a_task_uses_it" in report["task"]


def test_pages_alone_do_not_show_what_the_host_does_beside_a_task(program_in_cpp, tmp_path):
    code, reports, stderr = checked(tmp_path, program_in_cpp, "host_reads_while_a_task_uses_it", checks="memory:pages")
    assert (code, reports) == (0, []), stderr


def test_device_memory_is_accessible_while_the_check_is_off(program_in_cpp):
    assert subprocess.run([str(program_in_cpp), "host_reads"]).returncode == 0
