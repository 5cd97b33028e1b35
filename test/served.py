# SPDX-License-Identifier: Apache-2.0
"""What torch_npu and torchair ask for, and what cann_cpu has of it. `python test/served.py` counts."""

import ast
import os
import pathlib
import re
import subprocess
import sysconfig

from cann_cpu import activation

NODES = pathlib.Path(__file__).parents[1] / "cann_cpu/graph_engine/nodes"
TORCH_NPU = pathlib.Path(sysconfig.get_path("purelib")) / "torch_npu"
CONVERTERS = TORCH_NPU / "dynamo/torchair/_ge_concrete_graph/ge_converter"
INPUTS_AND_OUTPUTS = {"Const", "Data", "NetOutput", "Tensor"}  # of torchair's graph, no operators


def node_types():
    """The types that the table of built-in nodes has, as its sources name them."""
    rows = "".join(
        re.split(r"const NodeTable \w+ = ", file.read_text(), maxsplit=1)[-1] for file in NODES.glob("*.cpp")
    )
    return set(re.findall(r'\{"([A-Z]\w+)",', rows))


def converted_types():
    """The types of the nodes that torchair's converters make: ge.Add(...), ge_op(op_type="Add", ...)."""
    types = set()
    for file in CONVERTERS.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            function = call.func
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                types |= {function.attr} if function.value.id == "ge" and function.attr[0].isupper() else set()
            types |= {k.value.value for k in call.keywords if k.arg == "op_type" and isinstance(k.value, ast.Constant)}
    return types - INPUTS_AND_OUTPUTS


def aclnn_functions():
    library = os.path.join(activation.LIBRARIES, "libopapi.so")
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in symbols.splitlines()}
    return {name for name in names if name.startswith("aclnn") and name + "GetWorkspaceSize" in names}


def called_functions():
    """The aclnn functions that torch_npu's libraries name."""
    libraries = (TORCH_NPU / "lib").glob("*.so")
    names = re.findall(rb"(?<![ -~])aclnn[A-Z][A-Za-z0-9]+(?=\0)", b"".join(file.read_bytes() for file in libraries))
    return {name.decode().removesuffix("GetWorkspaceSize") for name in names}


if __name__ == "__main__":
    converted, called = converted_types(), called_functions()
    print(f"{len(converted & node_types())} of {len(converted)} node types that torchair's converters make")
    print(f"{len(called & aclnn_functions())} of {len(called)} aclnn functions that torch_npu calls")
