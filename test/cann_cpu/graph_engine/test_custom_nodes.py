# SPDX-License-Identifier: Apache-2.0
"""Runs custom_node_cases.py in a process that finds the test's operator package: packages are read once a process."""

import pathlib
import sys

import fresh
import pytest

CASES = pathlib.Path(__file__).with_name("custom_node_cases.py")


@pytest.mark.nightly  # it builds a package; custom_pypto's own operators are such nodes in test/custom_pypto
def test_custom_nodes(package_environment):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", CASES.name]
    result = fresh.run(command, cwd=CASES.parent, env=package_environment, timeout=500)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
