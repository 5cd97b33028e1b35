# SPDX-License-Identifier: Apache-2.0
"""Triton, which run.sh installs beside the environment for the tests that need it.

Where it is in the environment, every program that imports torch's compiler imports it.
"""

import os
import sys
from pathlib import Path

import pytest

FOLDER = str(Path(__file__).parents[2] / "build" / "triton")
sys.path.append(FOLDER)


@pytest.fixture(scope="module", autouse=True)
def triton_in_programs():
    """The programs that a test starts find it as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), FOLDER])))
        yield
