# SPDX-License-Identifier: Apache-2.0
"""Right kernels: against PyTorch, and against triton's own interpreter, which takes one program at a time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from triton_folder import triton_in_programs  # noqa: F401

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton", reason="neither triton nor triton-ascend is installed")

from triton_kernels import CASES, softmax_kernel  # noqa: E402

SUPPORT = Path(__file__).parents[2] / "support"
ASCEND = triton.__version__.startswith("3.2")
NOT_ON_ASCEND = {"float8": "triton-ascend 3.2 has no float8 on this chip"}
OTHERWISE = {
    "add_bfloat16": "it adds the bits as integers",
    "conditions": "its `if` expressions and constants are those of Python",
    "float8": "it rounds halves away from zero",
    "functions": "its erf is computed in float64",
    "integers": "its division of negative numbers is not that of the processor",
}
"""Where triton's interpreter differs, and why."""


def run(name):
    if ASCEND and name in NOT_ON_ASCEND:
        pytest.skip(NOT_ON_ASCEND[name])
    case = CASES[name]()
    arguments = case.on("npu")
    case.kernel[case.grid](**arguments)
    torch.npu.synchronize()
    return case, {key: arguments[key].cpu() for key in case.expected}


@pytest.mark.parametrize("name", CASES)
def test_pytorch_agrees(name):
    case, written = run(name)
    for key, expected in case.expected.items():
        exactly = {"rtol": 0, "atol": 0} if case.exact else {}
        torch.testing.assert_close(written[key], expected, **(exactly or case.tolerance))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    file = tmp_path_factory.mktemp("triton") / "written.pt"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, SUPPORT / "plain_triton.py", file], check=True, env=environment)
    return torch.load(file)


@pytest.mark.parametrize("name", [name for name in CASES if name not in OTHERWISE])
def test_bitwise_equal_to_the_interpreter(name, plain):
    if ASCEND and isinstance(plain[name], str):
        pytest.skip(f"triton-ascend's interpreter does not run it: {plain[name]}")
    _, written = run(name)
    for key, value in plain[name].items():
        assert torch.equal(written[key], value)


def test_programs_are_together_in_groups():
    """The result does not depend on how many programs run at once."""
    from cann_cpu.triton import engine

    x = torch.randn(300, 64).npu()
    results = []
    for most in (1, 7, engine.MOST_PROGRAMS):
        kept, engine.MOST_PROGRAMS = engine.MOST_PROGRAMS, most
        try:
            out = torch.empty_like(x)
            softmax_kernel[(300,)](out, x, 64, 64, BLOCK=64)
            torch.npu.synchronize()
        finally:
            engine.MOST_PROGRAMS = kept
        results.append(out.cpu())
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
