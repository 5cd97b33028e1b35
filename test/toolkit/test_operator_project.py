# SPDX-License-Identifier: Apache-2.0
"""A project by CANN's names builds, installs, and its aclnn functions compute and reject."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import aclnn
import pytest
import torch
from operator_project import CANN, PROJECT, run

INFER_FAILS, TILING_FAILS, NO_KERNEL, NO_PACKAGE = 561001, 561002, 561003, 561107


@pytest.fixture(scope="module")
def library(installed):
    return str(installed / "op_api/lib/libcust_opapi.so")


def scaled_sum(library, x, y, bias=None, alpha=1.0, fault=0, out=None):
    out = torch.empty_like(x) if out is None else out
    aclnn.call(library, "aclnnScaledSum", x, y, bias, float(alpha), fault, out)
    return out


@pytest.mark.parametrize("shape", [(1,), (8, 2048), (3, 1000, 17), (0, 4), ()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("biased", [False, True])
def test_it_computes(library, shape, dtype, biased):
    x, y, bias = (torch.randn(shape).to(dtype) for _ in range(3))
    given = bias.npu() if biased else None
    out = scaled_sum(library, x.npu(), y.npu(), given, alpha=0.5)
    expected = x.double() + 0.5 * y.double() + (bias.double() if biased else 0)
    assert torch.allclose(
        out.cpu().double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps
    )


def test_views_are_copied(library):
    x, y = torch.randn(40, 30), torch.randn(30, 40)
    out = torch.zeros(40, 60)
    npu = out.npu()
    scaled_sum(library, x.npu(), y.npu().T, out=npu[:, ::2])
    assert torch.equal(npu.cpu()[:, ::2], x + y.T)
    assert not npu.cpu()[:, 1::2].any()


@pytest.mark.parametrize("terms", [1, 3])
def test_a_list_is_added_in_place(library, terms):
    total, values = torch.randn(37), [torch.randn(37) for _ in range(terms)]
    npu = total.npu()
    aclnn.call(library, "aclnnSumInto", npu, [value.npu() for value in values])
    assert torch.allclose(npu.cpu(), total + sum(values), atol=1e-5)


def test_the_tensors_of_a_list_may_be_destroyed_in_its_place(library):
    made = aclnn.Made()
    total, term = torch.ones(4).npu(), torch.ones(4).npu()
    arguments = [made.argument(total), made.argument(term)]
    made.base.aclCreateTensorList.restype = ctypes.c_void_p
    terms = made.base.aclCreateTensorList((ctypes.c_void_p * 1)(arguments[1]), ctypes.c_uint64(1))
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    phase_one = ctypes.CDLL(library).aclnnSumIntoGetWorkspaceSize
    assert phase_one(arguments[0], ctypes.c_void_p(terms), ctypes.byref(size), ctypes.byref(executor)) == 0
    made.destroy()  # the two tensors
    assert made.base.aclDestroyAclOpExecutor(executor) == 0


def test_a_call_tiles_once_for_its_shapes_and_attributes(installed, library):
    (tiling,) = installed.glob("op_impl/ai_core/tbe/op_tiling/lib/linux/*/libcust_opmaster_rt2.0.so")
    tiled = ctypes.CDLL(str(tiling)).scaled_sum_tiled
    x = torch.ones(123).npu()
    for changed in (dict(), dict(alpha=3.0), dict(x=torch.ones(124).npu()), dict(x=x.half()), dict(bias=x)):
        arguments = dict(x=x) | changed
        arguments["y"] = arguments["x"]
        before = tiled()
        for _ in range(3):
            scaled_sum(library, **arguments)
        assert tiled() == before + 1, changed


def half(*shape):
    return torch.ones(*shape, dtype=torch.float16).npu()


# What is given, and what the error says: argument, got, expected.
REJECTED = [
    (dict(x=None), aclnn.NULL_POINTER, "x is null; it is required"),
    (dict(y=torch.ones(8, dtype=torch.int32)), aclnn.INVALID, "y is int32; expected float16, float32"),
    (dict(y=torch.ones(8)), aclnn.INVALID, "do not go together: x float16, y float32, out float16; expected one of 2"),
    (dict(out=torch.ones(7).half()), aclnn.INVALID, r"out has shape \[7\]; expected \[8\]"),
    (dict(fault=1), TILING_FAILS, r"tiling failed: .* for x float16\[8\], y float16\[8\]"),
    (dict(fault=2), TILING_FAILS, "tiling failed: .*wrote 40 bytes of tiling data and says that they are 4"),
    (dict(fault=3), TILING_FAILS, "tiling failed: it set no block dim"),
    (dict(fault=4), NO_KERNEL, r"the key 7, which nobody compiled: scaled_sum \(.*\) has TILING_KEY_IS of 1, 2"),
    (dict(fault=5), INFER_FAILS, "shape inference failed"),
]


@pytest.mark.parametrize(("given", "status", "message"), REJECTED, ids=lambda value: str(value)[:40])
def test_phase_one_rejects(library, given, status, message):
    given = {name: value.npu() if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    x, out = given.pop("x", half(8)), given.pop("out", half(8))
    with pytest.raises(aclnn.Rejected, match=f"aclnnScaledSum: .*{message}") as raised:
        scaled_sum(library, x, given.pop("y", half(8)), out=out, **given)
    assert raised.value.args[0] == status


def test_a_format_that_the_definition_does_not_have_is_rejected(library):
    x = half(16, 16)
    blocks = aclnn.Stored(x, half(1, 1, 16, 16), aclnn.FRACTAL_NZ)
    with pytest.raises(aclnn.Rejected, match=r"aclnnScaledSum: x is in the format 29; expected 2 \(aclFormat\)"):
        scaled_sum(library, blocks, x, out=x)


def test_an_error_of_the_kernel_is_the_stream_s(library):
    with pytest.raises(RuntimeError, match=r"aclnnScaledSum: the kernel failed: .*scaled_sum\.cpp:.*it was asked to"):
        scaled_sum(library, half(8), half(8), fault=6)


IN_A_PROCESS = """
import sys, torch, torch_npu, aclnn
x = torch.ones(8, device="npu")
try:
    aclnn.call(sys.argv[1], "aclnnScaledSum", x, x, None, 1.0, 0, x.clone())
except aclnn.Rejected as error:
    print(error.args[1])
"""


def message_of(library, **variables):
    environment = {**os.environ, "PYTHONPATH": str(Path(aclnn.__file__).parent), **variables}
    command = [sys.executable, "-c", IN_A_PROCESS, library]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120).stdout


def test_a_package_for_another_chip_is_named(installed, library):
    message = message_of(library, CANN_CPU_SOC="Ascend910_9391")
    assert f"{installed} has no kernel for ascend910_93, the family of Ascend910_9391; it is for ascend910b" in message


ON_THE_ACLOP_PATH = """
import ctypes, sys, torch, torch_npu
x = torch.arange(8, dtype=torch.float32, device="npu")
out = torch.zeros_like(x)
acl, compiler = ctypes.CDLL("libascendcl.so"), ctypes.CDLL("libacl_op_compiler.so")
for function in (acl.aclCreateTensorDesc, acl.aclCreateDataBuffer, compiler.aclopCreateAttr):
    function.restype = ctypes.c_void_p
def list_of(pointers):
    return (ctypes.c_void_p * len(pointers))(*pointers)
sizes = (ctypes.c_int64 * 1)(8)
descs = [acl.aclCreateTensorDesc(0, 1, sizes, 2) for _ in range(3)]
buffers = [acl.aclCreateDataBuffer(ctypes.c_void_p(t.data_ptr()), ctypes.c_size_t(32)) for t in (x, x, out)]
attributes = ctypes.c_void_p(compiler.aclopCreateAttr())
compiler.aclopSetAttrFloat(attributes, b"alpha", ctypes.c_float(2.0))
stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
status = compiler.aclopCompileAndExecuteV2(b"ScaledSum", 2, list_of(descs[:2]), list_of(buffers[:2]), 1,
    list_of(descs[2:]), list_of(buffers[2:]), attributes, 0, 0, None, stream)
torch.npu.synchronize()
print(status, out.tolist())
out.zero_()
torch.npu.synchronize()
assert compiler.aclopSetModelDir(sys.argv[1].encode()) == 0
status = compiler.aclopExecuteV2(b"ScaledSum", 2, list_of(descs[:2]), list_of(buffers[:2]), 1,
    list_of(descs[2:]), list_of(buffers[2:]), attributes, stream)
torch.npu.synchronize()
print(status, out.tolist())
# Its kernel writes whole blocks.
halves = torch.ones(999, dtype=torch.float16, device="npu")
torch.npu.synchronize()
sizes[0] = 999
descs = [acl.aclCreateTensorDesc(1, 1, sizes, 2) for _ in range(2)]
buffer = acl.aclCreateDataBuffer(ctypes.c_void_p(halves.data_ptr()), ctypes.c_size_t(1998))
attributes = ctypes.c_void_p(compiler.aclopCreateAttr())
compiler.aclopSetAttrInt(attributes, b"factor", ctypes.c_int64(2))
for _ in range(10):
    compiler.aclopCompileAndExecuteV2(b"Multiple", 1, list_of(descs[:1]), list_of([buffer]), 1, list_of(descs[1:]),
        list_of([buffer]), attributes, 0, 0, None, stream)
torch.npu.synchronize()
print(halves.unique().tolist())
"""


def test_it_runs_on_the_aclop_path_and_by_a_model(installed, tmp_path):
    tensor = {"format": "ND", "shape": [-1], "type": "float"}
    attributes = [{"name": "alpha", "type": "float", "value": 2.0}]
    parts = {"input_desc": [tensor, tensor], "output_desc": [tensor], "attr": attributes}
    (tmp_path / "model.json").write_text(json.dumps([{"op": "ScaledSum"} | parts]))
    run(CANN / "bin/atc", f"--singleop={tmp_path}/model.json", f"--output={tmp_path}", "--soc_version=Ascend910B3")
    environment = {**os.environ, "ASCEND_CUSTOM_OPP_PATH": str(installed)}
    command = [sys.executable, "-c", ON_THE_ACLOP_PATH, tmp_path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == f"0 {[3.0 * i for i in range(8)]}\n" * 2 + "[1024.0]\n", done.stderr


def test_two_packages_with_an_operator_are_named(installed, library, tmp_path):
    other = shutil.copytree(installed, tmp_path / "other", symlinks=True)
    message = message_of(library, ASCEND_CUSTOM_OPP_PATH=str(other))
    assert f"two operator packages have it, {installed} and {other}" in message


RUNNERS = """cmake_minimum_required(VERSION 3.16)
project(runners LANGUAGES CXX)
find_package(tested REQUIRED PATHS ${PACKAGE} NO_DEFAULT_PATH)
include_directories($ENV{ASCEND_HOME_PATH}/include)
link_directories($ENV{ASCEND_HOME_PATH}/lib64)
foreach(kind static shared)
  add_library(${kind} SHARED runner.cpp)
  target_link_libraries(${kind} PRIVATE tested::${kind})
endforeach()
"""
RUNNER = """#include "aclnn_sum_into.h"
extern "C" void* linked() { return reinterpret_cast<void*>(aclnnSumInto); }
"""


def test_a_library_carries_its_package(tmp_path):
    """It is linked and called where the rest of the build is not."""
    project = shutil.copytree(PROJECT, tmp_path / "project")
    for source in project.glob("op_host/*.cpp"):
        if source.stem != "sum_into":
            source.unlink()
    cmake = project / "CMakeLists.txt"
    cmake.write_text(cmake.read_text().replace("TYPE RUN", "TYPE SHARED"))
    run("cmake", "-S", project, "-B", tmp_path / "build", "-G", "Ninja")
    run("cmake", "--build", tmp_path / "build", "--target", "binary", "package")
    package = shutil.move(tmp_path / "build/op_api", tmp_path / "package")
    shutil.rmtree(tmp_path / "build")

    runners = tmp_path / "runners"
    runners.mkdir()
    (runners / "CMakeLists.txt").write_text(RUNNERS)
    (runners / "runner.cpp").write_text(RUNNER)
    run("cmake", "-S", runners, "-B", runners, "-G", "Ninja", f"-DPACKAGE={package}")
    run("cmake", "--build", runners)
    program = """if True:
        import sys, torch, torch_npu, aclnn
        for library in sys.argv[1:]:
            total = torch.ones(5).npu()
            try:
                aclnn.call(library, "aclnnSumInto", total, [total.clone()])
                print(total.tolist())
            except aclnn.Rejected as error:
                print(error)
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(aclnn.__file__).parent), "TMPDIR": str(tmp_path)}
    for libraries, said in (
        (["static"], ["[2.0, 2.0, 2.0, 2.0, 2.0]"]),
        (["shared"], ["[2.0, 2.0, 2.0, 2.0, 2.0]"]),
        (
            ["static", "shared"],
            ["[2.0, 2.0, 2.0, 2.0, 2.0]", "two libraries carry it, of the vendors tested and tested"],
        ),
    ):
        paths = [runners / f"lib{name}.so" for name in libraries]
        command = [sys.executable, "-c", program, *paths]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert len(done.stdout.splitlines()) == len(said), done.stderr
        assert all(words in line for words, line in zip(said, done.stdout.splitlines(), strict=True))
    assert not list(tmp_path.glob("cann_cpu_*"))


# ---- the build


def test_what_follows_from_the_definition(built):
    header = (built / "autogen/aclnn_scaled_sum.h").read_text()
    parameters = ["const aclTensor* x,", "const aclTensor* y,", "const aclTensor* theBiasOptional,", "double alpha,"]
    parameters += ["int64_t fault,", "const aclTensor* out,", "uint64_t* workspaceSize,", "aclOpExecutor** executor);"]
    assert [line.strip() for line in header.splitlines() if line.startswith("    ")][: len(parameters)] == parameters
    assert (
        "aclTensor* totalRef,\n    const aclTensorList* terms,\n    uint64_t*"
        in (built / "autogen/aclnn_sum_into.h").read_text()
    )
    assert ".ATTR(alpha, Float, 1.0)" in (built / "autogen/op_proto.h").read_text()


def test_the_default_of_a_text_is_written_as_cpp_reads_it(tmp_path):
    source, library = tmp_path / "quoted.cpp", tmp_path / "libquoted.so"
    source.write_text(
        r"""
        #include "register/op_def_registry.h"
        namespace ops {
        ge::graphStatus tile(gert::TilingContext*) { return ge::GRAPH_SUCCESS; }
        struct Quoted : OpDef {
          explicit Quoted(const char* name) : OpDef(name) {
            Input("x").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
            Output("y").ParamType(REQUIRED).DataType({ge::DT_FLOAT}).Format({ge::FORMAT_ND});
            Attr("text").AttrType(OPTIONAL).String("say \"no\", C:\\ \n");
            AICore().SetTiling(tile).AddConfig("ascend910b");
          }
        };
        OP_ADD(Quoted);
        }
        """
    )
    used = ["-lregister", "-lexe_graph", "-lplatform", f"-L{CANN}/lib64", f"-Wl,-rpath,{CANN}/lib64"]
    run("g++", "-std=c++17", "-shared", "-fPIC", source, f"-isystem{CANN}/include", "-o", library, *used)
    run(CANN / "bin/op_build", library, tmp_path)
    assert r'.ATTR(text, String, "say \"no\", C:\\ \012")' in (tmp_path / "op_proto.h").read_text()
    (described,) = tmp_path.glob("*.ini")
    assert r"attr_text.defaultValue=say \"no\", C:\\ \012" in described.read_text().splitlines()


def test_a_kernel_is_compiled_once_for_each_text(installed):
    kernels = installed / "op_impl/ai_core/tbe/kernel/ascend910b"
    assert len(list(kernels.glob("scaled_sum/*.o"))) == 2
    assert len(list(kernels.glob("sum_into/*.o"))) == 1
    (described,) = kernels.glob("sum_into/*.json")
    assert json.loads(described.read_text())["kernelName"] == "sum_into"


def test_a_library_of_operators_finds_those_of_the_toolkit(tmp_path):
    """As older projects call op_build: before anybody has set LD_LIBRARY_PATH."""
    source, library = tmp_path / "none.cpp", tmp_path / "libnone.so"
    source.write_text("")
    used = [f"-l{name}" for name in ("register", "exe_graph", "platform", "tiling_api")]
    run("g++", "-shared", "-fPIC", source, "-o", library, "-Wl,--no-as-needed", f"-L{CANN}/lib64", *used)
    said = run(CANN / "bin/op_build", library, tmp_path / "out", fails=True, LD_LIBRARY_PATH="")
    assert "libnone.so: it defines no operator; OP_ADD(X) makes one known" in said


def test_what_stays_the_same_is_not_compiled_again(built):
    kernels = sorted(built.glob("ascendc_kernels/*/*/*.o"))
    before = [kernel.stat().st_mtime_ns for kernel in kernels]
    run("cmake", "--build", built, "--target", "binary")
    assert [kernel.stat().st_mtime_ns for kernel in kernels] == before


# What is changed in a project, and the line that its build ends with.
BROKEN = [
    (
        "op_kernel/multiple_key.h",
        "UI_RANGE, 1, 0, 1",
        "UI_RANGE, 1, 0, 9",
        r"multiple_key.h:\d+:\s+FACTOR is selected with a value that ASCENDC_TPL_ARGS_DECL does not declare",
    ),
    ("op_host/sum_into.cpp", "->terms", "->items", r"sum_into.cpp:1\d:.*has no member named .items."),
    ("op_host/sum_into.cpp", ".SetTiling(tile)", "", "SumInto: it has no tiling function"),
    (
        "op_host/sum_into.cpp",
        "ParamType(DYNAMIC)",
        "ParamType(DYNAMIC).Scalar()",
        r"terms: Scalar\(\) .* is not served",
    ),
    (
        "op_host/sum_into.cpp",
        "OP_ADD(SumInto);",
        "OP_ADD(SumInto); IMPL_OP_OPTILING(SumInto).InputsDataDependency({1});",
        r"SumInto: InputsDataDependency\(\{1\}\) .* values of terms, .* needs \.ValueDepend\(OPTIONAL\)",
    ),
    ("CMakeLists.txt", "TYPE RUN", "TYPE WHEEL", r"npu_op_package\(tested TYPE WHEEL\)"),
]


@pytest.mark.parametrize(("file", "text", "by", "message"), BROKEN, ids=[each[2] or each[1] for each in BROKEN])
def test_a_broken_project_does_not_configure(tmp_path, file, text, by, message):
    project = shutil.copytree(PROJECT, tmp_path / "project")
    operator = "multiple" if "multiple" in file else "sum_into"
    for source in project.glob("op_host/*.cpp"):
        if source.stem != operator:
            source.unlink()
    content = (project / file).read_text()
    assert text in content
    (project / file).write_text(content.replace(text, by))
    said = run("cmake", "-S", project, "-B", tmp_path / "build", "-G", "Ninja", "--fresh", fails=True)
    assert re.search(message, " ".join(said.split())), said  # CMake breaks lines


def test_the_installer_takes_the_toolkit_s_own_folder(built, tmp_path):
    (installer,) = built.glob("custom_opp_*.run")
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors/config.ini").write_text("load_priority=other,tested\n")
    assert "SUCCESS" in run(installer, ASCEND_OPP_PATH=str(tmp_path))
    assert (tmp_path / "vendors/config.ini").read_text() == "load_priority=tested,other\n"
    assert (tmp_path / "vendors/tested/op_api/include/aclnn_scaled_sum.h").exists()
    assert "no folder to install to" in run(installer, fails=True)
    assert "is not an absolute path" in run(installer, "--install-path=here", fails=True)
    assert (CANN / "bin/op_build").exists()
