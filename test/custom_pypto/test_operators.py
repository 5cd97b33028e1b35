# SPDX-License-Identifier: Apache-2.0
"""Every operator passes each check of ``python -m custom_pypto check``."""

from pathlib import Path

import pytest
import torch

import custom_pypto
from custom_pypto.authoring import check
from custom_pypto.graph import prototypes
from custom_pypto.graph.python_operators import PYTHON_OPERATORS

SOURCES = Path(__file__).parents[2]


# test_modes.py also runs the operators in graphs of these modes.
RARELY = ("GE dynamic", "reduce-overhead")


COMPILED = [name for name in prototypes.operators("custom_pypto") if f"custom_pypto::{name}" not in PYTHON_OPERATORS]


@pytest.mark.parametrize("name", COMPILED)
@torch._dynamo.config.patch(specialize_float=True)  # else it traces twice, as it does in test_modes.py
def test_passes_every_check(name, request, monkeypatch):
    without = () if request.config.getoption("--nightly") else RARELY
    lines = {line: run for line, run in check.BEHAVIOUR.items() if line not in without}
    monkeypatch.setattr(check.table, "BEHAVIOUR", lines)
    lines = check.check(check.Operator(custom_pypto, name, SOURCES))
    assert [line for line in lines if line[1] != "ok"] == []
