# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this folder import what stands beside them, and builds the probe for them."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def probe() -> tuple[str, str]:
    """The probe's operator package and extension."""
    built = subprocess.run(
        [sys.executable, Path(__file__).parent / "probe" / "build.py"], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return tuple(built.stdout.split())
