# SPDX-License-Identifier: Apache-2.0
"""docs/first_operator.md and docs/add_an_operator.md, followed literally in a new project, whose operators work beside
ours in one process."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import fresh
import guide
import pytest
import torch  # noqa: F401

import custom_pypto
from custom_pypto.authoring import new_project

NAME = "my_ops"
FIRST_OPERATOR, GUIDE = (
    Path(__file__).parents[2] / "docs" / name for name in ("first_operator.md", "add_an_operator.md")
)
pytestmark = pytest.mark.timeout(900)
SITE = Path(custom_pypto.__path__[0]).parent
LIBRARY = f"{NAME}_lib{sysconfig.get_config_var('EXT_SUFFIX')}"


class Environment:
    """A virtual environment with the packages of this one, and its own beside them."""

    def __init__(self, folder: Path):
        self.variables = guide.environment(folder, SITE, sys.executable)
        self.python = folder / "bin/python"
        (self.site,) = folder.glob("lib/python*/site-packages")

    def run(self, *arguments, folder: Path, **variables) -> subprocess.CompletedProcess:
        variables = self.variables | variables
        command = [self.python, *arguments]
        return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def follower(environment, tmp_path_factory):
    """Somebody who has followed docs/first_operator.md: in a new project, to an operator that passes every check."""
    follower = guide.Follower(tmp_path_factory.mktemp("projects"), environment.variables)
    follower.follow(guide.blocks(FIRST_OPERATOR))
    return follower


@pytest.fixture(scope="module")
def project(follower):
    return follower.folder


@pytest.mark.nightly
def test_its_tests_pass(project, environment):
    result = environment.run("-m", "pytest", folder=project)
    assert result.returncode == 0, result.stdout
    assert "6 passed" in result.stdout


@pytest.mark.nightly
def test_its_sources_are_what_was_written_and_its_prototypes(project):
    made = {"build", f"{NAME}.egg-info", "kernel_meta", "torchair_cache", ".pytest_cache", "__pycache__"}
    files = {path.relative_to(project) for path in project.rglob("*") if path.is_file()}
    files = {file for file in files if not made & {*file.parts} and "squared_relu" not in file.name}
    header = Path("graph/custom_reg_op.h")
    assert files == {*template(), header}
    assert "// Softcap: out = cap * tanh(x / cap).\nREG_OP(Softcap)\n    .INPUT(x, " in (project / header).read_text()


def template() -> list[Path]:
    files = (path for path in new_project.TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [file.relative_to(new_project.TEMPLATE) for file in files]


PROGRAM = """
import my_ops, torch, torchair

def both(x, y):
    return torch.ops.custom_pypto.add_custom(torch.ops.my_ops.softcap(x, cap=2.0), y)

x, y = torch.randn(5, 7), torch.randn(7)
expected = 2 * torch.tanh(x.double() / 2) + y
eager = both(x.npu(), y.npu())
torch.testing.assert_close(eager.cpu().double(), expected, rtol=1e-5, atol=1e-5)
for backend in (torchair.get_npu_backend(), "npugraph_ex"):
    graph = torch.compile(both, backend=backend, dynamic=False, fullgraph=True)
    assert torch.equal(graph(x.npu(), y.npu()).cpu(), eager.cpu())
print("both work")
"""


@pytest.mark.nightly
def test_both_packages_work_in_one_process_and_one_graph(project, environment, tmp_path):
    away = project.rename(project.with_name("away"))  # what is installed needs no sources
    try:
        result = environment.run("-c", PROGRAM, folder=tmp_path)
    finally:
        away.rename(project)
    assert result.stdout == "both work\n", result.stderr


@pytest.mark.nightly
def test_it_is_not_loaded_with_another_version_of_ours(project, environment, tmp_path):
    shutil.copytree(environment.site / NAME, tmp_path / NAME)
    library = tmp_path / NAME / LIBRARY
    needed = f"custom_pypto_lib-{new_project.version('custom_pypto')}.so".encode()
    assert library.read_bytes().count(needed) == 1
    library.write_bytes(library.read_bytes().replace(needed, b"X" + needed[1:]))
    result = environment.run("-c", f"import {NAME}", folder=tmp_path)
    message = result.stderr.strip().splitlines()[-1]
    assert f"{NAME} was built with other versions than are installed, custom_pypto " in message
    assert "build and install it again" in message


@pytest.mark.nightly
def test_it_is_uninstalled_without_a_trace(project, environment, tmp_path):
    other = Environment(tmp_path / "other")
    for folder in environment.site.glob(f"{NAME}*"):
        shutil.copytree(folder, other.site / folder.name)
    result = other.run("-m", "pip", "uninstall", "-y", NAME, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert not [*other.site.glob(f"{NAME}*")]
    program = f"import custom_pypto, os, torch; print('{NAME}' in os.environ['ASCEND_CUSTOM_OPP_PATH'])"
    assert other.run("-c", program, folder=tmp_path).stdout == "False\n"


@pytest.mark.nightly
def test_its_operator_package_builds_by_the_command_of_its_readme(tmp_path):
    new_project.make(NAME, project := tmp_path / NAME)
    commands = re.search(r"```bash\nsource .*\n((?:.*\n)*?)```", (project / "README.md").read_text())[1]
    variables = os.environ | {"HOME": str(tmp_path)}
    built = subprocess.run(["bash", "-ec", commands], cwd=project, env=variables, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    files = {path.name for path in (tmp_path / f"opp/vendors/{NAME}").rglob("*") if path.is_file()}
    assert {"aclnn_softcap.h", "op_proto.h", "libcust_opapi.so", "libcust_opsproto_rt2.0.so"} <= files


@pytest.mark.nightly
def test_the_guide_leads_to_another_operator_in_it(follower):
    blocks, generate = guide.blocks(GUIDE), guide.blocks(FIRST_OPERATOR)[0]
    first, second = (block for block in blocks if block.info == "console my_ops")
    new_project, _, new = first.text.partition("$ cd my_ops\n")
    assert generate.text.startswith(new_project)
    follower.run_commands(guide.Block(first.info, new))
    typed = 1  # the schema
    for block in blocks:
        if block.file and not block.info.startswith(("console", "python example")):
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


FAILING_BUILD = """
import subprocess, sys
from custom_pypto.operator_package import first_error_last
with first_error_last():
    print("[1/2] compiling", flush=True)
    subprocess.run(["sh", "-c", "echo x.cpp:3:1: error: no such thing >&2; echo y.cpp:4:1: error: neither this"])
    if sys.argv[1] == "fails":
        raise RuntimeError("Error compiling objects")
print("done")
"""


@pytest.mark.nightly
def test_a_build_that_fails_ends_with_its_first_error():
    def run(how):
        return fresh.run([sys.executable, "-c", FAILING_BUILD, how])

    failed = run("fails")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "setup.py: x.cpp:3:1: error: no such thing"
    assert "[1/2] compiling" in failed.stdout
    passed = run("passes")
    assert (passed.returncode, passed.stdout.splitlines()[-1]) == (0, "done")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My-Ops", "'My-Ops' is not a valid name for a package: use small letters, digits and single underscores"),
        ("lambda", "'lambda' is not a valid name for a package"),
        ("aten", "torch.ops.aten is the name of other operators"),
        ("custom_pypto", "torch.ops.custom_pypto is the name of other operators"),
        ("pytest", "'pytest' is the name of another package"),
    ],
)
def test_a_name_that_cannot_be_is_rejected(name, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        new_project.make(name, tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_the_command_says_how_to_build_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert new_project.main([NAME]) == 0
    assert f"cd {NAME}\n  pip install --no-build-isolation '.[test]'\n  pytest\n" in capsys.readouterr().out


def test_nothing_is_written_over(tmp_path):
    with pytest.raises(ValueError, match="exists already"):
        new_project.make("ops_of_mine", tmp_path)
    assert not any(tmp_path.iterdir())
