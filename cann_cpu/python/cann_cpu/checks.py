# SPDX-License-Identifier: Apache-2.0
"""Runs a program under the checks of whole programs."""

import json
import os
import subprocess
import sys
import tempfile

FOUND = 66
"""The exit code where a check found something in a program that went well otherwise."""


def run_checked(command: list[str], environment: dict[str, str], checks: str, report: str | None) -> int:
    """Runs the command, and writes what the checks reported as a JSON list to the file `report`."""
    with tempfile.TemporaryDirectory() as folder:
        lines = os.path.join(folder, "reports")
        variables = {**environment, "CANN_CPU_CHECK": checks, "CANN_CPU_CHECK_REPORT": lines}
        code = subprocess.run(command, env=variables).returncode
        reports = []
        if os.path.exists(lines):
            with open(lines) as file:
                reports = [json.loads(line) for line in file]
    if report:
        with open(report, "w") as file:
            json.dump(reports, file, indent=2)
    if reports:
        print(f"cann_cpu: {len(reports)} report{'s' if len(reports) > 1 else ''} by {checks}", file=sys.stderr)
    return code or (FOUND if reports else 0)
