# SPDX-License-Identifier: Apache-2.0
"""Threads that use all of the runtime at once, in C++."""

import subprocess
from pathlib import Path

import pytest


@pytest.mark.unchecked("memory", reason="frees memory in a thread of another device")
def test_counts_are_right_when_threads_use_all_of_the_runtime_at_once(cann_cpu_lib, tmp_path):
    source, binary = Path(__file__).with_name("stress.cpp"), tmp_path / "stress"
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{cann_cpu_lib.parent}/include",
         str(source), "-o", str(binary), f"-L{cann_cpu_lib}", "-lascendcl", f"-Wl,-rpath,{cann_cpu_lib}"],
        check=True,
    )  # fmt: skip
    result = subprocess.run([str(binary)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
