"""Every operator passes each check of ``python -m custom_pypto check``."""

from pathlib import Path

import my_ops
import pytest

from custom_pypto.authoring import check
from custom_pypto.graph import prototypes

SOURCES = Path(__file__).parents[2]


@pytest.mark.parametrize("name", prototypes.operators("my_ops"))
def test_passes_every_check(name):
    lines = check.check(check.Operator(my_ops, name, SOURCES))
    assert [line for line in lines if line[1] != "ok"] == []
