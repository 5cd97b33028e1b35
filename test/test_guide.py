# SPDX-License-Identifier: Apache-2.0
"""docs/add_an_operator.md, followed literally in a clone of this project.

custom_pypto/test_new_project.py follows it in a project of one's own.
"""

import dataclasses
import sys
from pathlib import Path

import guide
import pytest
import torch
import torch_npu  # noqa: F401

from custom_pypto.graph import agreement, prototypes

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "add_an_operator.md"


@pytest.mark.timeout(900)  # it builds two operators, and what follows from all of them
def test_the_guide_leads_to_an_operator_that_passes_every_check_in_this_clone(request):
    if not request.config.getoption("--edit-this-clone"):
        pytest.skip("it leaves the operator in the clone and its environment: run it with --edit-this-clone in a copy")
    blocks = guide.blocks(GUIDE)
    assert [block.info for block in blocks].count("console") == 3
    guide.Follower(ROOT, guide.variables(Path(sys.prefix))).follow(blocks)


SCHEMA = "smooth_relu_backward(Tensor grad_out, Tensor x, *, float sharpness=1.0) -> Tensor grad_x"
PROTOTYPE = prototypes.Prototype(
    "SmoothReluGrad",
    {"grad_out": "required", "x": "required"},
    {"grad_x": "required"},
    {"sharpness": ("Float", 1.0)},
)


@pytest.mark.parametrize(
    ("schema", "prototype"),
    [
        (SCHEMA, {"inputs": {"grad_out": "required"}}),
        (SCHEMA, {"inputs": {"x": "required", "grad_out": "required"}}),
        (SCHEMA, {"attributes": {"sharpness": ("Float", 2.0)}}),
    ],
    ids=["name", "order", "default"],
)
def test_the_lines_in_the_table_of_errors_are_those_of_the_build(schema, prototype):
    found = agreement.mismatches([torch._C.parse_schema(schema)], dataclasses.replace(PROTOTYPE, **prototype))
    assert f"| `{found[0]}` | build |" in GUIDE.read_text()
    assert agreement.mismatches([torch._C.parse_schema(SCHEMA)], PROTOTYPE) == []
