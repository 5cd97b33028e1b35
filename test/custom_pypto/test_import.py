# SPDX-License-Identifier: Apache-2.0
"""The package can be imported in any order, before torchair or without it, and from anywhere; its converters are there
as soon as torchair is, and cost nothing before that."""

import subprocess
import sys
from pathlib import Path

import fresh
import operator_package
import pytest
from kernels import clean_environment

PROGRAM = """
import sys
{imports}
assert {torchair_imported} == ("torchair.core" in sys.modules), "torchair"
x = torch.arange(3.0).npu()
assert torch.equal(torch.ops.custom_pypto.add_custom(x, x).cpu(), torch.arange(3.0) * 2)
assert custom_pypto.add_custom(x, x).shape == (3,)
{more}
print("fine")
"""

HAVE_CONVERTERS = """
import torch_npu.dynamo.torchair
packets = [getattr(torch.ops.custom_pypto, name) for name in custom_pypto.__all__]
overloads = [getattr(packet, name) for packet in packets for name in packet.overloads()]
whole = [op for op in overloads if not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)]
assert {op.overloadpacket for op in whole} == set(packets)
assert all(hasattr(op, "_ge_converter") for op in whole)
"""


def program(*imports, more=""):
    lines = "\n".join(f"import {name}" for name in imports)
    return PROGRAM.format(imports=lines, torchair_imported="torchair" in imports, more=more)


def run(code, directory, **environment):
    return fresh.run([sys.executable, "-c", code], cwd=directory, env=clean_environment(**environment), timeout=120)


def run_alone(code, directory):
    """In a process that has not imported torch."""
    options = {"cwd": directory, "env": clean_environment(), "capture_output": True, "text": True, "timeout": 120}
    return subprocess.run([sys.executable, "-c", code], **options)


@pytest.mark.parametrize(
    "imports",
    [
        ["torch", "torch_npu", "torchair", "custom_pypto"],
        pytest.param(["torch_npu", "custom_pypto", "torch"], marks=pytest.mark.nightly),
        pytest.param(["custom_pypto.ops", "torch"], marks=pytest.mark.nightly),
        pytest.param(["custom_pypto", "torch", "torchair"], marks=pytest.mark.nightly),
    ],
    ids=", ".join,
)
def test_in_any_order(imports, tmp_path):
    result = run_alone(program(*imports, more=HAVE_CONVERTERS), tmp_path)
    assert result.stdout.endswith("fine\n"), result.stderr


def test_without_torch_loading_its_backends(tmp_path):
    result = run(program("torch", "custom_pypto"), tmp_path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stdout.endswith("fine\n"), result.stderr


def test_in_the_source_folder_it_is_the_installed_package():
    source = Path(__file__).parents[2]
    result = run(program("torch", "custom_pypto.ops") + "print(custom_pypto.ops.__file__)", source)
    assert result.returncode == 0, result.stderr
    assert not Path(result.stdout.splitlines()[-1]).is_relative_to(source / "custom_pypto")


def test_a_source_folder_of_what_is_not_installed_says_so(tmp_path):
    copy = tmp_path / "ops_of_nobody"
    copy.mkdir()
    for file in ("__init__.py", "loading.py"):
        (copy / file).write_text(Path(__file__).parents[2].joinpath("custom_pypto", file).read_text())
    result = run("import ops_of_nobody", tmp_path)
    assert result.stderr.splitlines()[-1] == (
        f"ImportError: {copy} is ops_of_nobody's source folder, and no compiled ops_of_nobody is installed"
    )


def test_where_there_is_no_torchair(tmp_path):
    """torchair's import fails, as it does without protobuf: eager works all the same."""
    blocked = "import sys; sys.modules['torchair'] = sys.modules['torch_npu.dynamo.torchair'] = None"
    result = run(blocked + program("torch", "custom_pypto"), tmp_path)
    assert result.stdout.endswith("fine\n"), result.stderr


@pytest.mark.nightly
def test_with_every_symbol_bound_at_once(tmp_path):
    result = run(program("torch", "custom_pypto"), tmp_path, LD_BIND_NOW="1")
    assert result.stdout.endswith("fine\n"), result.stderr


WITHOUT_A_PACKAGE = """
import torch, custom_pypto
x = torch.ones(3).npu()
try:
    custom_pypto.add_custom(x, x)
except RuntimeError as error:
    print(error)
routes = custom_pypto.routes()
assert routes["custom_pypto::reshape_and_cache"] == "none: aclnnReshapeAndCache is not deployed", routes
assert len(routes) == 9 and all(route.startswith("none: aclnn") for route in routes.values()), routes
"""


def test_without_the_operator_package_a_call_names_the_function_and_the_remedy(tmp_path):
    """A process whose environment names CANN on the CPU by hand, as set_env.sh does, finds no wheel's package."""
    home = operator_package.CANN
    by_hand = {"CANN_CPU": "0", "ASCEND_HOME_PATH": str(home), "ASCEND_OPP_PATH": str(home / "opp")}
    environment = clean_environment(**by_hand, LD_LIBRARY_PATH=str(home / "lib64"))
    command = [sys.executable, "-c", WITHOUT_A_PACKAGE]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    name = "aclnnAddCustom"
    assert result.stdout.startswith(f"{name}: the function {name}GetWorkspaceSize is in no operator library. Looked in")
    assert "Deploy the operator package of the wheel" in result.stdout
