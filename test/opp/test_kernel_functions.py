# SPDX-License-Identifier: Apache-2.0
"""The functions that the kernels of opp/cpu use, in C++: vector loops, products, norms, compared with plain loops."""

import functools
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from machines import HERE, every_machine
from operator_package import CANN

pytestmark = pytest.mark.nightly  # compiles for a minute; test_machines.py runs the kernels themselves
SOURCES = Path(__file__).with_name("kernels")
PLATFORM = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
BUILT = Path(__file__).parents[2] / f"build/temp.{PLATFORM}/opp/CMakeFiles/cust_cpu_kernels.dir/cpu"


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """The compiled test."""
    build = tmp_path_factory.mktemp("functions")
    environment = os.environ | {"ASCEND_HOME_PATH": str(CANN)}
    for command in (
        ["-S", SOURCES, "-B", build, "-G", "Ninja", f"-DPython_EXECUTABLE={sys.executable}", f"-DBUILT={BUILT}"],
        ["--build", build],
    ):
        done = subprocess.run(["cmake", *command], env=environment, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return build / "functions"


@pytest.fixture(scope="module")
def run(functions):
    """run(name) is what the test says on the machine of that name."""

    @functools.cache
    def run(name):
        variables = HERE[name][0]
        return subprocess.run([functions], env=os.environ | variables, capture_output=True, text=True, timeout=300)

    return run


@every_machine
def test_functions_compute_what_plain_loops_in_double_do(run, name):
    done = run(name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_vector_loops_give_the_same_bits_on_every_machine(run):
    digests = {name: re.search("^digest .*", run(name).stdout, re.MULTILINE).group() for name in HERE}
    assert len(set(digests.values())) == 1, digests
