# SPDX-License-Identifier: Apache-2.0
"""docs/add_an_operator.md and docs/first_operator.md, followed literally: in a fresh copy of the project, and in a
project of one's own."""

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import guide
import pytest
import torch
import torch_npu  # noqa: F401

import custom_pypto
from custom_pypto.graph import agreement, prototypes

ROOT = Path(__file__).parents[1]
GUIDE, FIRST_OPERATOR = ROOT / "docs" / "add_an_operator.md", ROOT / "docs" / "first_operator.md"
pytestmark = pytest.mark.timeout(1800)  # it compiles the whole project: more than a minute on two idle cores
IN_TREE, OWN, EXAMPLE = "console", "console my_ops", "python example"


@pytest.fixture
def follower(tmp_path):
    """Follows the page in tmp_path/project, in a separate environment with what is installed here."""
    (tmp_path / "project").mkdir()
    site_packages = Path(custom_pypto.__path__[0]).parent
    environment = guide.environment(tmp_path / "environment", site_packages, sys.executable)
    return guide.Follower(tmp_path / "project", environment)


def copy_of_the_project(folder: Path) -> None:
    """What a clone of it would hold, with what is not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(command, cwd=ROOT, text=True).split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def follow(follower, blocks):
    for block in blocks:
        if block.info == IN_TREE:
            follower.run_commands(block)
        elif block.info == EXAMPLE:
            follower.run_python(block)
        elif block.file and block.info != OWN:
            follower.edit(block)


@pytest.mark.nightly  # the next one goes the same way but for the first build of everything
def test_the_guide_leads_to_an_operator_that_passes_every_check_in_a_fresh_copy_of_the_project(follower):
    copy_of_the_project(follower.folder)
    blocks = guide.blocks(GUIDE)
    assert [block.info for block in blocks].count(IN_TREE) == 3
    follow(follower, blocks)


@pytest.mark.nightly  # builds for minutes, as its users do
def test_both_pages_lead_there_in_a_project_of_one_s_own(follower):
    generate, *rest = guide.blocks(FIRST_OPERATOR)
    follower.run_commands(generate)
    follow(follower, rest)

    blocks = guide.blocks(GUIDE)
    first, second = (block for block in blocks if block.info == OWN)
    assert first.text.startswith(generate.text)
    follower.run_commands(guide.Block(first.info, first.text.removeprefix(generate.text)))
    typed = 1  # the schema
    for block in blocks:
        if block.file and block.info not in (OWN, EXAMPLE):
            of_my_ops = guide.Block(*(text.replace("custom_pypto", "my_ops") for text in (block.info, block.text)))
            typed += follower.edit(of_my_ops) * (not block.file.endswith("ops.py"))  # there all is documentation
    assert f"**{typed} lines**" in GUIDE.read_text()
    follower.run_commands(second)

    (follower.folder / "test/my_ops/smooth_relu_calls.py").unlink()
    built = follower.started("python -m pip install -q --no-build-isolation .")
    lines = [line.strip() for line in (built.stdout + built.stderr).splitlines() if "error: my_ops" in line]
    assert built.returncode != 0
    assert lines == [
        f"error: my_ops::{name}: no test names it: add one to test/my_ops"
        for name in ("smooth_relu", "smooth_relu_backward")
    ]


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
