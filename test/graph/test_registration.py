# SPDX-License-Identifier: Apache-2.0
"""Converters get registered with torchair, before the first graph, whatever became of its import before."""

import sys
from pathlib import Path

import fresh
import pytest

HERE = Path(__file__).parent


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    result = fresh.run(command, cwd=HERE)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_converters_are_there_for_the_backend_by_name():
    run("""
import torch, torch_npu, custom_pypto
x = torch.ones(3).npu()
y = torch.compile(torch.ops.custom_pypto.add_custom, backend="npu", fullgraph=True)(x, x)
assert y.tolist() == [2, 2, 2]
""")


@pytest.mark.nightly
def test_an_import_of_torchair_that_fails_leaves_the_next_one_whole():
    run(
        """
import sys, torch, torch_npu, custom_pypto
sys.modules["torch_npu.dynamo.torchair.npu_fx_compiler"] = sys.modules["torchair.npu_fx_compiler"] = None
try:
    import torch_npu.dynamo.torchair
except ImportError:
    pass
else:
    raise SystemExit("torchair was imported all the same")
for name in [n for n in sys.modules if "torchair" in n and n != "torchair"]:
    del sys.modules[name]
import torch_npu.dynamo.torchair
assert hasattr(torch.ops.custom_pypto.add_custom.default, "_ge_converter")
"""
    )
