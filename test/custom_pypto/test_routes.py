# SPDX-License-Identifier: Apache-2.0
"""Where our operator package is not deployed, calls go to CANN's functions, or say what is missing.

A process whose environment names CANN on the CPU by hand, as CANN's set_env.sh does, finds no wheel's operator package.
"""

import os
import subprocess
import sys
from pathlib import Path

import fresh
import operator_package
import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """An operator package with CANN's functions, which cann_cpu has not."""
    return operator_package.build(HERE / "cann", tmp_path_factory.mktemp("cann"))


def run(*command, packages="", **environment) -> subprocess.CompletedProcess:
    home = operator_package.CANN
    by_hand = {"CANN_CPU": "0", "ASCEND_HOME_PATH": str(home), "ASCEND_OPP_PATH": str(home / "opp")}
    by_hand |= {"LD_LIBRARY_PATH": str(home / "lib64"), "ASCEND_CUSTOM_OPP_PATH": str(packages)}
    return subprocess.run(
        [sys.executable, *command],
        cwd=HERE,
        env=os.environ | by_hand | environment,
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.nightly  # builds a package
def test_calls_go_to_canns_functions(package):
    result = run("-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "route_cases.py", packages=package)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]


ON_AN_NPU = """
import itertools, torch, custom_pypto, warnings
warnings.filterwarnings("ignore", "custom_pypto::add_custom_backward: calls CANN's aclnnInplaceCopy")
dtypes = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8]
dtypes += [torch.int16, torch.int32, torch.int64, torch.bool]
for dtype, other_shape in itertools.product(dtypes, [(3, 5), (5,), (3, 1), ()]):
    x, y = torch.randint(0, 2, (3, 5)).to(dtype), torch.randint(0, 2, other_shape).to(dtype)
    assert torch.equal(custom_pypto.add_custom(x.npu(), y.npu()).cpu(), x + y), (dtype, other_shape)
x, y = (torch.ones(*shape, requires_grad=True, device="npu") for shape in ((3, 5), (5,)))
custom_pypto.add_custom(x, y).sum().backward()
assert torch.equal(x.grad.cpu(), torch.ones(3, 5)) and torch.equal(y.grad.cpu(), torch.full((5,), 3.0))
grads = torch.ops.custom_pypto.add_custom_backward(x.grad)
assert len({grad.data_ptr() for grad in (x.grad, *grads)}) == 3
"""


@pytest.mark.nightly
def test_with_the_package_of_an_npu_add_custom_and_its_gradient_do_what_they_do_here(tmp_path):
    result = run(
        "-W",
        "error::UserWarning",
        "-c",
        ON_AN_NPU,
        packages=operator_package.build(HERE / "device", tmp_path / "package"),
    )
    assert result.returncode == 0, result.stderr[-4000:]


PROGRAM = """
import torch, custom_pypto
for _ in range(3):
    custom_pypto.add_custom(torch.ones(3).npu().requires_grad_(), torch.ones(3).npu()).sum().backward()
print(custom_pypto.add_custom(torch.ones(3).npu(), torch.ones(3).npu()).tolist())
for call in [
    lambda x: custom_pypto.npu_lightning_indexer_pto(
        x.view(1, 1, 1, 16), x.view(1, 1, 1, 16), torch.ones(1, 1, 1).bfloat16().npu(), layout_key="BSND"
    ),
]:
    try:
        call(torch.ones(16).bfloat16().npu())
    except RuntimeError as error:
        print(error)
"""


def test_without_any_package_an_operator_says_once_what_it_takes_or_each_time_what_is_missing():
    result = run("-W", "always", "-c", PROGRAM)
    summed, indexer = result.stdout.splitlines()
    assert summed == "[2.0, 2.0, 2.0]"
    name = "aclnnLightningIndexerPto"
    assert indexer.startswith(f"{name}: the function {name}GetWorkspaceSize is in no operator library. Looked in: ")
    assert "ASCEND_CUSTOM_OPP_PATH=" in indexer and "libopapi.so" in indexer
    assert "Deploy the operator package of the wheel" in indexer and "docs/device_build.md" in indexer
    warnings = [line for line in result.stderr.splitlines() if "calls CANN's" in line]
    assert len(warnings) == 2
    assert "custom_pypto::add_custom_backward: calls CANN's aclnnInplaceCopy, and rejects " in warnings[1]
    assert "custom_pypto::add_custom: calls CANN's aclnnAdd, and rejects what that does not do: " in warnings[0]
    assert "aclnnAddCustomGetWorkspaceSize is in no operator library" in warnings[0]


def routes_of(result: subprocess.CompletedProcess) -> dict[str, str]:
    """What `info` says of each operator."""
    lines = [line for line in result.stdout.splitlines() if line.startswith("custom_pypto::")]
    return dict(line.split(maxsplit=1) for line in lines)


@pytest.mark.nightly  # builds a package
def test_info_shows_the_route_of_each_operator(package):
    routes = routes_of(run("-m", "cann_cpu", "info", packages=package))
    library = f"{package}/op_api/lib/libcust_opapi.so"
    expected = {
        "npu_lightning_indexer_pto": f"CANN's aclnnLightningIndexer, {library}: aclnnLightningIndexerPto is not",
        "npu_sparse_flash_attention_pto": f"CANN's aclnnSparseFlashAttention, {library}: ",
        "reshape_and_cache": f"CANN's aclnnScatterPaKvCache, {library}: ",
        "advance_step_flashattn": "none: aclnnAdvanceStepFlashattn is not deployed",
        "npu_sparse_attention_pto": "none: aclnnSparseAttentionPto is not deployed",
        "npu_lightning_indexer_prolog_pto": "none: aclnnLightningIndexerPrologPto is not deployed",
        "add_custom_backward": "CANN's aclnnInplaceCopy, ",
    }
    for operator, route in expected.items():
        assert routes[f"custom_pypto::{operator}"].startswith(route)
    assert routes["custom_pypto::add_custom"].startswith("CANN's aclnnAdd, ")
    assert "libopapi.so" in routes["custom_pypto::add_custom"]


@pytest.mark.nightly  # builds a package
def test_our_functions_are_taken_where_they_are_deployed(package):
    """Ours are called even if CANN's are installed, in a package that is searched first."""
    command = [sys.executable, "-m", "cann_cpu", "info"]
    environment = os.environ | {"ASCEND_CUSTOM_OPP_PATH": str(package)}
    routes = routes_of(fresh.run(command, env=environment))
    assert len(routes) == 9
    for route in routes.values():
        assert route.startswith("aclnn") and route.endswith("custom_pypto/op_api/lib/libcust_opapi.so")
