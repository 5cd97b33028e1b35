# SPDX-License-Identifier: Apache-2.0
"""The judge of examples/mindspore."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "mindspore"))
import run


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
