# SPDX-License-Identifier: Apache-2.0
"""Runs upstream_cases.py in a process that finds a package with cann-recipes-infer's prototypes before ours."""

import os
import subprocess
import sys
from pathlib import Path

import operator_package
import pytest

HERE = Path(__file__).parent


@pytest.mark.nightly
def test_upstreams_prototypes(tmp_path):
    package = operator_package.build(HERE / "upstream", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
    result = subprocess.run(
        [*command, HERE / "upstream_cases.py"],
        cwd=HERE,
        env=os.environ | {"ASCEND_CUSTOM_OPP_PATH": str(package)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
