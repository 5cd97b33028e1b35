# SPDX-License-Identifier: Apache-2.0
"""Runs programs under the checks as a user does."""

import json
import os
import subprocess
import sys

from cann_cpu import activation


def checked(tmp_path, *command, checks, options=()):
    """The exit code, what was reported, and standard error."""
    report = tmp_path / "report.json"
    run = [sys.executable, "-m", "cann_cpu", "run", f"--check={checks}", f"--report={report}", *options, "--", *command]
    done = subprocess.run(list(map(str, run)), capture_output=True, text=True, timeout=300)
    return done.returncode, json.loads(report.read_text()) if report.exists() else None, done.stderr


def environment(**variables):
    """What `python -m cann_cpu run` gives a program."""
    return {**os.environ, **activation.environment(), "LD_LIBRARY_PATH": activation.LIBRARIES, **variables}
