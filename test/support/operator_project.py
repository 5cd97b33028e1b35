# SPDX-License-Identifier: Apache-2.0
"""Commands against the toolkit, as authors give them, and the project of operators that tests build."""

import os
import subprocess
import sysconfig
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "toolkit/project"
OPP = Path(__file__).parents[2] / "opp"
CANN = Path(sysconfig.get_path("purelib")) / "cann_cpu"


def run(*command, fails=False, **variables):
    """What a command says; with the toolkit in its environment, and nothing of this process's own choice of a CANN."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND_", "CANN_"))}
    done = subprocess.run(
        [str(part) for part in command],
        env={**kept, "ASCEND_HOME_PATH": str(CANN), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert (done.returncode != 0) == fails, done.stdout
    return done.stdout
