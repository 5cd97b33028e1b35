# SPDX-License-Identifier: Apache-2.0
"""Our declarations of ACL and HCCL against the headers in the torch_npu wheel, our symbols against what it imports."""

import ctypes
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

CANN_CPU = Path(__file__).resolve().parents[3] / "cann_cpu"
TORCH_NPU = Path(importlib.util.find_spec("torch_npu").submodule_search_locations[0])
THEIRS = [TORCH_NPU / "include" / folder for folder in ("third_party/acl/inc", "third_party/hccl/inc", "")]
INCLUDES = [
    "acl/acl.h",
    "acl/acl_rt_allocator.h",
    "acl/acl_op_compiler.h",
    "acl/acl_prof.h",
    "acl/acl_tdt.h",
    "hccl/hccl.h",
]
HANDLES = [
    "HcclComm",
    "aclError",
    "aclFloat16",
    "aclrtStream",
    "aclrtEvent",
    "aclrtContext",
    "aclmdlRI",
    "aclrtDrvMemHandle",
]


def declarations():
    """All text of our headers without comments, but for the one that torch_npu's wheel does not have."""
    folders = ("runtime/include/acl", "hccl/include/hccl")
    headers = [path for folder in folders for path in sorted((CANN_CPU / folder).rglob("*.h"))]
    headers.remove(CANN_CPU / "hccl/include/hccl/hcom.h")
    text = "\n".join(path.read_text() for path in headers)
    return re.sub(r"//[^\n]*", "", text)


TEXT = declarations()
FUNCTIONS = re.findall(r"^[\w ]+?[ *]+(\w+)\([^;{}]*\);", TEXT, re.MULTILINE)
FUNCTION_TYPES = re.findall(r"typedef \w+ \(\*(\w+)\)", TEXT)
CONSTANTS = re.findall(r"^(?:static )?const \w+ (\w+) =", TEXT, re.MULTILINE) + re.findall(r"#define (\w+) \S", TEXT)
ENUMS = dict(re.findall(r"enum (\w+) \{(.*?)\}", TEXT, re.DOTALL))
STRUCTS = dict(re.findall(r"typedef (?:struct|union) (\w+) \{(.*?)\}", TEXT, re.DOTALL))


def facts():
    """C++ expressions that say all there is of an ABI, by what they say: values, sizes, offsets and mangled types."""
    for name in FUNCTIONS:
        yield f"function {name}", f"typeid(decltype({name})).name()"
    for name in HANDLES + FUNCTION_TYPES:
        yield f"type {name}", f"typeid({name}).name()"
    for name in CONSTANTS:
        yield f"constant {name}", f"static_cast<long>({name})"
    for enum, body in ENUMS.items():
        yield f"size of {enum}", f"sizeof({enum})"
        for name in re.findall(r"(\w+)(?: = \w+)?(?:,|\s*$)", body):
            yield f"{enum} {name}", f"static_cast<long>({name})"
    for struct, body in STRUCTS.items():
        yield f"size of {struct}", f"sizeof({struct})"
        for field in re.findall(r"(\w+)(?:\[\w+\])?;", body):
            yield f"offset of {struct}.{field}", f"offsetof({struct}, {field})"
            yield f"type of {struct}.{field}", f"typeid(decltype({struct}::{field})).name()"


def answers(includes: list[Path], folder: Path):
    """What the headers under these folders answer to facts()."""
    source = folder / "abi.cpp"
    lines = [f"#include <{header}>" for header in ["cstddef", "iostream", "typeinfo", *INCLUDES]]
    lines += ["int main() {", *(f"  std::cout << {expression} << '\\n';" for _, expression in facts()), "}"]
    source.write_text("\n".join(lines))
    binary = folder / "abi"
    subprocess.run(
        ["g++", "-std=c++20", "-w", *(f"-I{path}" for path in includes), str(source), "-o", str(binary)], check=True
    )
    said = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(zip((name for name, _ in facts()), said, strict=True))


def test_the_headers_are_understood():
    assert len(FUNCTIONS) > 170 and len(CONSTANTS) > 80 and len(ENUMS) > 30 and len(STRUCTS) > 8
    assert {"aclrtMemcpyBatchAsync", "HcclBatchSendRecv"} <= set(FUNCTIONS) and "aclGetRecentErrMsg" in FUNCTIONS
    assert "ACL_BF16" in ENUMS["aclDataType"] and "location" in STRUCTS["aclrtPhysicalMemProp"]


def test_our_declarations_are_those_of_torch_npus_headers(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours = answers([CANN_CPU / part for part in ("common", "runtime/include", "hccl/include")], tmp_path / "ours")
    theirs = answers(THEIRS, tmp_path / "theirs")
    assert {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]} == {}


def exported(library):
    said = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1].split("@")[0] for line in said.splitlines()}


@pytest.fixture(scope="module")
def symbols(cann_cpu_lib):
    """What our libraries export, all together."""
    return set().union(*(exported(library) for library in cann_cpu_lib.glob("*.so")))


def test_every_declared_function_is_exported(symbols):
    assert set(FUNCTIONS) - symbols == set()


IMPORTING = ["lib/libtorch_npu.so", "lib/libtensorpipe.so", "dynamo/torchair/core/_torchair.so",
             "dynamo/torchair/core/_npu_graph_executor.so", "dynamo/torchair/core/_npu_utils.so",
             "dynamo/torchair/core/_abi_compat_ge_apis.so"]  # fmt: skip


@pytest.mark.parametrize("name", IMPORTING)
def test_every_c_symbol_that_torch_npu_imports_of_cann_is_exported(symbols, name):
    said = subprocess.run(
        ["nm", "-D", "--undefined-only", str(TORCH_NPU / name)], check=True, capture_output=True, text=True
    ).stdout
    imported = {line.split()[-1].split("@")[0] for line in said.splitlines()}
    of_cann = {s for s in imported if re.match(r"(acl|rt[A-Z]|Msprof|Hccl)", s) or s.endswith("_s")}
    assert of_cann - symbols == set()


def test_libraries_bear_their_names_and_need_nothing_that_is_not_there(cann_cpu_lib):
    for name in ("ascendcl", "acl_op_compiler", "acl_tdt_channel", "hccl", "runtime", "msprofiler", "ascend_dump"):
        library = cann_cpu_lib / f"lib{name}.so"
        dynamic = subprocess.run(["readelf", "-d", str(library)], check=True, capture_output=True, text=True).stdout
        assert f"soname: [lib{name}.so]" in dynamic
        handle = ctypes.CDLL(str(library))
        assert handle.aclrtGetDeviceCount  # also through those that only need libascendcl.so
