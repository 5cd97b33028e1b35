"""Kernel files of the tests, each compiled once."""

import functools
from pathlib import Path

import pytest
from cann_cpu.kernel import KernelFile

FOLDER = Path(__file__).parent / "kernels"


@functools.cache
def compiled(name):
    return KernelFile(FOLDER / f"{name}.cpp", ("-Wextra", "-Werror"))


@pytest.fixture(scope="session")
def kernels():
    """kernels("correct") is the compiled kernels/correct.cpp."""
    return compiled
