# SPDX-License-Identifier: Apache-2.0
"""Runs graph_cases.py in a process that finds the project's package: packages are read once a process."""

import os
import sys
from pathlib import Path

import fresh

CASES = Path(__file__).with_name("graph_cases.py")


def test_operators_in_graphs(installed):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", CASES.name]
    environment = {**os.environ, "ASCEND_CUSTOM_OPP_PATH": str(installed)}
    done = fresh.run(command, cwd=CASES.parent, env=environment, timeout=500)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
