# SPDX-License-Identifier: Apache-2.0
"""The checks' memory of accesses, beside a model that keeps the history of each byte."""

import subprocess
from pathlib import Path

from cann_cpu.activation import HOME

ASCENDC = Path(__file__).resolve().parents[2] / "cann_cpu/ascendc"


def test_histories_of_ranges_are_those_of_their_bytes(tmp_path):
    program = tmp_path / "shadow"
    flags = ["-std=c++20", "-O1", "-g", "-Wall", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    source = Path(__file__).with_name("shadow.cpp")
    subprocess.run(["g++", *flags, f"-I{ASCENDC}", f"-isystem{HOME}/include", source, "-o", program], check=True)
    run = subprocess.run([program], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.split()[0]) > 1000, "they fill several chunks"
