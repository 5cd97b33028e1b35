# SPDX-License-Identifier: Apache-2.0
"""Runs programs under the checks as a user does."""

import json
import os
import sys

import fresh
from cann_cpu import activation


def run_checked(tmp_path, *command, checks, options=()):
    """The finished process, and what was reported."""
    report = tmp_path / "report.json"
    run = [sys.executable, "-m", "cann_cpu", "run", f"--check={checks}", f"--report={report}", *options, "--", *command]
    done = fresh.run(run, env=os.environ | fresh.WITH_LIBRARIES)
    return done, json.loads(report.read_text()) if report.exists() else None


def checked(tmp_path, *command, checks, options=()):
    """The exit code, what was reported, and standard error."""
    done, reports = run_checked(tmp_path, *command, checks=checks, options=options)
    return done.returncode, reports, done.stderr


def environment(**variables):
    """What `python -m cann_cpu run` gives a program."""
    return {**os.environ, **activation.environment(), "LD_LIBRARY_PATH": activation.LIBRARIES, **variables}
