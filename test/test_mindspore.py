# SPDX-License-Identifier: Apache-2.0
"""MindSpore on cann_cpu: `bash run.sh mindspore` without the build before it, and its judge."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "mindspore"))
import run


@pytest.mark.nightly  # it downloads MindSpore, 800 MB, and compiles a module of its headers: 2 to 4 minutes
def test_every_line_of_the_table_is_ok():
    done = subprocess.run(["bash", Path(run.__file__).with_suffix(".sh")], capture_output=True, text=True)
    if sys.version_info >= (3, 13):
        assert done.returncode == 1
        assert done.stderr.startswith("MindSpore 2.10.0 has wheels for Python 3.10 to 3.12; this is")
        return
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()[1:]
    assert len(lines) == 3 * 6 + 2 + 2 * 4 and all(line.endswith("  ok") for line in lines), done.stdout


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (np.float32([1, 2]), {"y": np.float32([1, 2.1])}),
        (np.float32([1, np.nan]), {"y": np.float32([1, np.nan])}),
        (np.float16([1, 2]), {"y": np.float32([1, 2])}),
        (np.float32([1]), {"y": np.float32([1, 2])}),
        (np.float32([1]), {"y": np.float32([1]), "z": np.float32([1])}),
        (np.float32([1]), {}),
    ],
)
def test_a_result_that_differs_is_a_failure(result, expected, capsys):
    assert run.line("same", "graph", {"y": np.float32([1, 2])}, {"y": np.float32([1, 2])}, 1e-5, "CPU")
    assert not run.line("other", "graph", {"y": result}, expected, 1e-5, "CPU")
    same, other = capsys.readouterr().out.splitlines()
    assert same.endswith("  ok") and "FAILED: " in other


def test_a_program_that_fails_has_no_results(capsys):
    assert run.results_of("networks.py", "nowhere") == {}
    assert "networks.py nowhere failed" in capsys.readouterr().err
