# SPDX-License-Identifier: Apache-2.0
"""When converters get registered: with torchair, before the first graph, and at no cost before that."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


HAVE_CONVERTERS = """
packets = [getattr(torch.ops.custom_pypto, name) for name in custom_pypto.__all__]
overloads = [getattr(packet, name) for packet in packets for name in packet.overloads()]
whole = [op for op in overloads if not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)]
assert {op.overloadpacket for op in whole} == set(packets)
assert all(hasattr(op, "_ge_converter") for op in whole)
"""


def test_importing_custom_pypto_does_not_import_torchair():
    run("""
import sys, torch, torch_npu
before = "torch_npu.dynamo.torchair" in sys.modules
import custom_pypto
assert ("torch_npu.dynamo.torchair" in sys.modules) == before
""")


@pytest.mark.parametrize(
    "imports",
    [
        "import torch, torch_npu, torchair, custom_pypto",
        "import custom_pypto, torch, torchair",
        pytest.param("import torch, torch_npu, custom_pypto, torchair", marks=pytest.mark.nightly),
        pytest.param("import torch, custom_pypto, torch_npu.dynamo.torchair", marks=pytest.mark.nightly),
    ],
)
def test_converters_are_there_in_every_order_of_imports(imports):
    run(imports + "\nimport torch" + HAVE_CONVERTERS)


def test_converters_are_there_for_the_backend_by_name():
    run("""
import torch, torch_npu, custom_pypto
x = torch.ones(3).npu()
y = torch.compile(torch.ops.custom_pypto.add_custom, backend="npu", fullgraph=True)(x, x)
assert y.tolist() == [2, 2, 2]
""")


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
"""
        + HAVE_CONVERTERS
    )


def test_without_torchair_custom_pypto_works():
    """Something that makes torchair impossible to find: the eager operators do not miss it."""
    run("""
import importlib.abc, sys, torch, torch_npu
class NoTorchair(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.rpartition(".")[2] == "torchair":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoTorchair())
import custom_pypto
assert torch.ops.custom_pypto.add_custom(torch.ones(2).npu(), torch.ones(2).npu()).tolist() == [2, 2]
""")
