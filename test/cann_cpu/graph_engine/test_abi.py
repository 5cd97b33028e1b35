# SPDX-License-Identifier: Apache-2.0
"""The ge:: classes that we declare are those that torch_npu and torchair were compiled with."""

import pathlib
import re
import subprocess
import sysconfig

import pytest

SITE_PACKAGES = pathlib.Path(sysconfig.get_path("purelib"))
TORCH_NPU = SITE_PACKAGES / "torch_npu"
THEIRS = TORCH_NPU / "include" / "third_party" / "acl" / "inc"
LIBRARIES = SITE_PACKAGES / "cann_cpu" / "lib64"
HEADERS = SITE_PACKAGES / "cann_cpu" / "include"


def symbols(library, kind):
    listing = subprocess.run(["nm", "-D", f"--{kind}-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines() if line}


@pytest.mark.parametrize(
    "library",
    [
        "lib/libtorch_npu.so",
        "dynamo/torchair/core/_abi_compat_ge_apis.so",
        "dynamo/torchair/core/_npu_graph_executor.so",
        "dynamo/torchair/core/_npu_utils.so",
        "dynamo/torchair/core/_torchair.so",
    ],
)
def test_every_imported_name_of_ge_is_exported(library):
    imported = {name for name in symbols(TORCH_NPU / library, "undefined") if re.match(r"_ZNK?2ge", name)}
    # libge_runner links libregister, where operators' tiling functions also find ge::Shape.
    exported = symbols(LIBRARIES / "libge_runner.so", "defined") | symbols(LIBRARIES / "libregister.so", "defined")
    assert imported - exported == set()


def test_the_c_functions_that_torchair_looks_up_are_exported():
    wanted = {"GeSessionLoadGraph", "GeSessionExecuteGraphWithStreamAsync", "GetRegisteredIrDef"}
    assert wanted <= symbols(LIBRARIES / "libge_runner.so", "defined")


CLASSES = [
    "AscendString",
    "Shape",
    "TensorDesc",
    "Tensor",
    "Operator",
    "Graph",
    "GNode",
    "TensorType",
    "OperatorCreatorRegister",
    "Session",
]
INCLUDES = ["graph/types.h", "graph/tensor.h", "graph/operator_reg.h", "graph/graph.h", "ge/ge_api.h"]


def enumerators():
    text = (HEADERS / "graph" / "types.h").read_text()
    return re.findall(r"\b((?:DT|FORMAT)_\w+|kPlacement\w+)\b(?= ?[=,}])", text)


def values(include, tmp_path, *flags):
    """What sizeof and the enumerators are under the headers of a folder."""
    expressions = {f"sizeof {name}": f"sizeof(ge::{name})" for name in CLASSES}
    expressions |= {name: f"static_cast<long>(ge::{name})" for name in enumerators()}
    expressions |= {name: f"static_cast<long>(ge::{name})" for name in ("GRAPH_SUCCESS", "GRAPH_FAILED")}
    lines = [f'#include "{header}"' for header in INCLUDES] + ["#include <cstdio>", "int main() {"]
    lines += [f'std::printf("%s=%ld\\n", "{name}", static_cast<long>({value}));' for name, value in expressions.items()]
    source = tmp_path / "values.cpp"
    source.write_text("\n".join([*lines, "}"]))
    program = tmp_path / "values"
    command = ["g++", "-std=c++20", "-w", f"-I{include}", *flags, str(source), "-o", str(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    return dict(
        line.split("=") for line in subprocess.run([program], capture_output=True, text=True).stdout.splitlines()
    )


def test_sizes_and_numbers_are_those_of_canns_headers(tmp_path):
    ours = values(HEADERS, tmp_path)
    theirs = values(THEIRS, tmp_path, "-DNO_METADEF_ABI_COMPATIABLE")
    assert len(ours) > 60
    assert ours == theirs


def test_reg_op_of_canns_headers_calls_what_we_export(tmp_path):
    """A package compiled against CANN's own operator_reg.h finds all it needs in our libge_runner."""
    source = tmp_path / "proto.cpp"
    package = pathlib.Path(__file__).parent / "package" / "op_proto.cpp"
    source.write_text(package.read_text())
    library = tmp_path / "libproto.so"
    command = [
        "g++",
        "-std=c++17",
        "-w",
        "-O2",
        "-shared",
        "-fPIC",
        "-DNO_METADEF_ABI_COMPATIABLE",
        f"-I{THEIRS}",
        str(source),
        "-o",
        str(library),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    registering = {
        name
        for name in symbols(library, "undefined")
        if re.match(r"_ZNK?2ge", name) and re.search(r"Register|OperatorC", name)
    }
    assert registering
    assert registering - symbols(LIBRARIES / "libge_runner.so", "defined") == set()
