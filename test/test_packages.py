# SPDX-License-Identifier: Apache-2.0
"""The wheels and sdists as users meet them: what they hold, ask for and reject, and that they run by themselves."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from importlib.metadata import distribution, metadata, version
from pathlib import Path

import guide
import pytest
import torch

import custom_pypto
from custom_pypto import custom_pypto_lib
from custom_pypto.graph import prototypes

ROOT = Path(__file__).parents[1]
SITE = Path(sysconfig.get_path("purelib"))
WHEELS = ("cann_cpu", "custom_pypto")
TORCH = torch.__version__.partition("+")[0]


def run(command: list, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)


def tag(package: str) -> str:
    """The tag of the installed wheel: Python, ABI and platform."""
    (line,) = re.findall("^Tag: (.*)$", distribution(package).read_text("WHEEL"), flags=re.MULTILINE)
    return line


def wheel_file(package: str) -> Path:
    return ROOT / "dist" / f"{package}-{version(package)}-{tag(package)}.whl"


# ---- the pair of torch and torch_npu


def test_a_wheel_s_version_and_requirements_name_the_torch_that_it_was_built_for():
    for package in WHEELS:
        assert version(package).partition("+torch")[2] == TORCH
        assert f"torch=={TORCH}" in metadata(package).get_all("Requires-Dist")
        assert {*metadata(package)["Requires-Python"].split(",")} == {">=3.10", "<3.15"}
    assert f"torch_npu=={TORCH}.*" in metadata("custom_pypto").get_all("Requires-Dist")
    assert custom_pypto.__version__ == version("custom_pypto")
    assert sys.modules["cann_cpu"].__version__ == version("cann_cpu")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment with torch and torch_npu, in which nothing of ours is installed: its folder and its variables."""
    folder = tmp_path_factory.mktemp("environment")
    variables = guide.environment(folder, SITE, sys.executable)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in WHEELS:
        subprocess.run(["rm", "-r", *site.glob(f"{package}*")], check=True)
    return folder, variables


@pytest.fixture(scope="module")
def installed(environment, tmp_path_factory):
    """The environment, in which build_and_install.sh has installed the wheels of dist/, in a tree without objects."""
    folder, variables = environment
    tree = tmp_path_factory.mktemp("sources") / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__"))
    result = run(["bash", "build_and_install.sh"], tree, variables)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("a wheel of these sources fits: nothing to compile") == len(WHEELS)
    return folder, variables


PROGRAM = """
import sys
import torch, torchair, custom_pypto

x, y = torch.randn(3, 5), torch.randn(5)
eager = custom_pypto.add_custom(x.npu(), y.npu())
assert torch.equal(eager.cpu(), x + y)
graph = torch.compile(custom_pypto.add_custom, backend=torchair.get_npu_backend(), dynamic=False, fullgraph=True)
assert torch.equal(graph(x.npu(), y.npu()), eager)
key, cache = torch.randn(2, 1, 16).npu(), torch.zeros(1, 4, 1, 16).npu()
custom_pypto.reshape_and_cache(key, None, cache, None, torch.tensor([3, 1], dtype=torch.int32).npu())
assert torch.equal(cache[0, [3, 1]], key)
print(*{module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}, sep="\\n")
"""


@pytest.mark.always
def test_the_installed_wheels_run_without_the_sources(installed, tmp_path):
    folder, variables = installed
    result = run([folder / "bin/python", "-c", PROGRAM], tmp_path, variables)
    assert result.returncode == 0, result.stderr
    assert str(folder) in result.stdout
    assert str(ROOT / "custom_pypto") not in result.stdout


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("package", "rejection"),
    [
        ("torch", f"cann_cpu {version('cann_cpu')} was built for torch {TORCH}, and torch 2.12.0 is installed: pip"),
        ("torch_npu", f"custom_pypto {version('custom_pypto')} was built for torch and torch_npu {TORCH}; installed"),
    ],
    ids=["torch", "torch_npu"],
)
def test_another_torch_or_torch_npu_is_rejected_in_a_line(package, rejection, installed, tmp_path):
    folder, variables = installed
    found = tmp_path / f"{package}-2.12.0.dist-info"
    found.mkdir()
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.12.0\n")
    for command in (["-c", "import custom_pypto"], ["-m", "cann_cpu", "info"]):
        result = run([folder / "bin/python", *command], tmp_path, variables | {"PYTHONPATH": str(tmp_path)})
        assert result.returncode == 1
        lines = (result.stderr + result.stdout).splitlines()
        (said,) = [line for line in lines if f"ImportError: {rejection}" in line]
        assert "pip install" in said
        assert "build" in said


OTHERS = "numpy pyyaml packaging protobuf tree-sitter>=0.23 tree-sitter-cpp>=0.23"


@pytest.mark.parametrize(
    ("variables", "printed"),
    [
        ({}, f"torch==2.13.0+cpu torch_npu==2.13.0 {OTHERS}\n"),
        ({"TORCH": "2.10.0"}, f"torch==2.10.0+cpu torch_npu==2.10.0.post4 {OTHERS}\n"),
        ({"TORCH": "2.9.0"}, "TORCH=2.9.0 is not supported; there are: 2.10.0, 2.13.0, 2.14.0\n"),
    ],
    ids=["default", "2.10.0", "2.9.0"],
)
def test_an_empty_environment_gets_the_default_pair_or_that_of_TORCH(variables, printed, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    clean = {name: value for name, value in os.environ.items() if name not in ("TORCH", "PYTHONPATH")}
    result = run([tmp_path / "bin/python", ROOT / "cann_cpu/backend/versions.py"], tmp_path, clean | variables)
    assert result.stdout + result.stderr == printed


def test_this_environment_lacks_nothing(tmp_path):
    result = run([sys.executable, ROOT / "cann_cpu/backend/versions.py"], tmp_path, dict(os.environ))
    assert result.stdout == "\n", result.stderr


# ---- what is in the files


@pytest.mark.parametrize("package", WHEELS)
def test_a_wheel_is_in_dist_and_tagged_for_the_linux_that_it_needs(package):
    assert re.fullmatch(r"(py3-none|cp3\d+-cp3\d+)-manylinux_2_\d+_\w+", tag(package))
    assert wheel_file(package).exists()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the sources, and this is no checkout")
@pytest.mark.parametrize(("package", "folder"), [("cann_cpu", "cann_cpu"), ("custom_pypto", ".")], ids=WHEELS)
def test_an_sdist_holds_every_source_and_is_made_without_torch(package, folder, tmp_path):
    blocked = f"sys.modules['torch'] = None; sys.path.insert(0, {str(ROOT / 'cann_cpu/backend')!r})"
    program = f"import sys; {blocked}; import {package}_backend as b; print(b.build_sdist({str(tmp_path)!r}))"
    result = run([sys.executable, "-c", program], ROOT / folder, dict(os.environ))
    assert result.returncode == 0, result.stderr
    (file,) = tmp_path.iterdir()
    assert file.name == f"{package}-{version('cann_cpu').partition('+')[0]}.tar.gz"
    with tarfile.open(file) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    listed = run(["git", "ls-files"], ROOT / folder, dict(os.environ))
    assert listed.returncode == 0, listed.stderr
    sources = {name for name in listed.stdout.splitlines() if not name.startswith(".")}
    assert {"pyproject.toml", "README.md"} <= sources
    assert sources - held == set()
    assert not [name for name in held if {"build", "__pycache__"} & {*Path(name).parts}]


# ---- for those who call it


def test_every_operator_is_tagged_as_traceable():
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("custom_pypto::")]
    assert len(names) >= len(prototypes.operators("custom_pypto"))
    for name in names:
        packet, _, overload = name.removeprefix("custom_pypto::").partition(".")
        operator = getattr(getattr(torch.ops.custom_pypto, packet), overload or "default")
        assert torch.Tag.pt2_compliant_tag in operator.tags, name


def test_the_stub_is_of_the_compiled_module():
    stub = ast.parse((SITE / "custom_pypto/custom_pypto_lib.pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert functions.keys() == {name for name in vars(custom_pypto_lib) if not name.startswith("_")}
    for name, node in functions.items():
        arguments = [argument.arg for argument in node.args.args]
        for argument in arguments:
            assert f"{argument}: " in getattr(custom_pypto_lib, name).__doc__


CALLER = """
import custom_pypto
from torch import Tensor

def call(x: Tensor) -> str:
    custom_pypto.npu_lightning_indexer_pto(x, x, x, sparse_count="all")
    custom_pypto.add_custom(x)
    custom_pypto.reshape_and_cache(x, x, x, x, x, cache_layout=1)
    positions, scores = custom_pypto.npu_lightning_indexer_pto(x, x, x, return_value=True)
    custom_pypto.npu_lightning_indexer_pto(x, x, x, return_value=True).view(-1)
    return custom_pypto.__version__
"""


def test_the_functions_are_typed_for_their_callers(tmp_path):
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n[mypy-torch.*]\nfollow_imports = skip\n")
    (tmp_path / "caller.py").write_text(CALLER)
    result = run([sys.executable, "-m", "mypy", "caller.py"], tmp_path, dict(os.environ))
    assert [line for line in result.stdout.splitlines() if ": note: " not in line] == [
        'caller.py:6: error: No overload variant of "npu_lightning_indexer_pto" matches argument types "Any", "Any", '
        '"Any", "str"  [call-overload]',
        'caller.py:7: error: Missing positional argument "other" in call to "add_custom"  [call-arg]',
        'caller.py:8: error: Argument "cache_layout" to "reshape_and_cache" has incompatible type "int"; expected '
        '"str | None"  [arg-type]',
        'caller.py:10: error: "tuple[Any, Any]" has no attribute "view"  [attr-defined]',
        "Found 4 errors in 1 file (checked 1 source file)",
    ], result.stdout + result.stderr
