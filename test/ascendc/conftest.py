# SPDX-License-Identifier: Apache-2.0
"""Kernel files of the tests, each compiled once."""

import functools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cann_cpu.kernel import KernelFile

HERE = Path(__file__).parent
FOLDER = HERE / "kernels"
sys.path.insert(0, str(HERE))  # for vector_calls.py


@pytest.fixture(scope="session")
def kernels():
    """kernels("correct") is the compiled kernels/correct.cpp."""
    with ThreadPoolExecutor(2) as pool:

        @functools.cache
        def begun(name):
            return pool.submit(KernelFile, FOLDER / f"{name}.cpp", ("-O1", "-Wextra", "-Werror"))

        for path in FOLDER.glob("*.cpp"):
            begun(path.stem)
        yield lambda name: begun(name).result()
