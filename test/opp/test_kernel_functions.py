# SPDX-License-Identifier: Apache-2.0
"""What the kernels of opp/cpu are made of, in C++: vector loops, products, norms, each compared with plain loops."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from operator_package import CANN

SOURCES = Path(__file__).with_name("kernels")


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """The compiled test."""
    build = tmp_path_factory.mktemp("functions")
    environment = os.environ | {"ASCEND_HOME_PATH": str(CANN)}
    for command in (
        ["-S", SOURCES, "-B", build, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}"],
        ["--build", build],
    ):
        done = subprocess.run(["cmake", *command], env=environment, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return build / "functions"


def test_kernels_functions_compute_what_plain_loops_in_double_do(functions):
    done = subprocess.run([functions], capture_output=True, text=True, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
