# SPDX-License-Identifier: Apache-2.0
"""A project by CANN's names builds, installs, and its aclnn functions compute and reject."""

import ctypes
import io
import json
import os
import re
import shutil
import sys
import tarfile
from pathlib import Path

import aclnn
import fresh
import pytest
import torch
from operator_project import CANN, PROJECT, run

TILING_FAILS, NO_KERNEL, NO_PACKAGE = 561002, 561003, 561107


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


def test_tiling_for_the_device_alone_serves_and_says_why_it_rejects(library):
    x, y = torch.randn(5, 9).npu(), torch.empty(5, 9).npu()
    aclnn.call(library, "aclnnAddTotal", x, [3, 4], y)
    assert torch.equal(y.cpu(), x.cpu() + 7)
    reason = "AddTotal: EZ0026: the value is wrong: numbers, -7, their total is negative"
    with pytest.raises(aclnn.Rejected, match=re.escape(reason)):
        aclnn.call(library, "aclnnAddTotal", x, [-3, -4], y)
    large = torch.empty(1 << 20).npu()
    with pytest.raises(aclnn.Rejected, match=r"AddTotal: x of shape \[1048576\] does not fit"):
        aclnn.call(library, "aclnnAddTotal", large, [1], large)


def test_tiling_is_compiled_for_the_device_by_its_compiler_and_libraries(tmp_path):
    """As the CMake files of msopgen's projects do it, which ask for C++11."""
    libraries = "device_register c_sec mmpa tiling_api platform_static ascend_protobuf exe_meta_device aicpu_cust_log"
    linked = ["-Wl,--whole-archive", *(f"-l{name}" for name in libraries.split()), "-Wl,--no-whole-archive"]
    folders = [f"-L{CANN / folder}" for folder in ("lib64/device/lib64", "compiler/lib64")]
    include = [f"-I{CANN / folder}" for folder in ("include", "include/op_common")]
    options = ["-std=c++11", "-fPIC", "-shared", "-DDEVICE_OP_TILING_LIB", *include]
    for folder in ("toolkit/toolchain/hcc", "tools/hcc"):
        compiler = CANN / folder / "bin/aarch64-target-linux-gnu-g++"
        source, library = PROJECT / "op_host/add_total_tiling.cpp", tmp_path / "libcust_opmaster.so"
        run(compiler, *options, source, "-o", library, *folders, *linked)
        assert library.is_file()


def repeatable(library, name, *arguments):
    executor, size = ctypes.c_void_p(), ctypes.c_uint64()
    phase_one = getattr(ctypes.CDLL(library), f"{name}GetWorkspaceSize")
    assert phase_one(*arguments, ctypes.byref(size), ctypes.byref(executor)) == 0
    assert ctypes.CDLL("libnnopbase.so").aclSetAclOpExecutorRepeatable(executor) == 0
    memory = torch.empty(size.value, dtype=torch.uint8, device="npu")

    def run():
        torch.npu.synchronize()
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        return getattr(ctypes.CDLL(library), name)(ctypes.c_void_p(memory.data_ptr() or None), size, executor, stream)

    return executor, run


def without_memory(made, shape):
    return made.argument(aclnn.Stored(torch.empty(shape), torch.empty(shape, device="meta"), aclnn.ND))


def test_addresses_are_told_by_index(library):
    """x, y, bias, which is null, and out; whatever tensor comes with the index."""
    made, shape = aclnn.Made(), (3, 5)
    base = made.base
    tensors = [without_memory(made, shape) for _ in range(3)]
    executor, run = repeatable(library, "aclnnScaledSum", *tensors[:2], None, ctypes.c_double(2), ctypes.c_int64(0),
                               tensors[2])  # fmt: skip
    assert run() == aclnn.NULL_POINTER
    for factor in (1, 2):
        x, y, out = torch.randn(shape).npu() * factor, torch.randn(shape).npu(), torch.empty(shape).npu()
        for index, tensor in ((0, x), (1, y), (3, out)):
            address = ctypes.c_void_p(tensor.data_ptr())
            assert base.aclSetTensorAddr(executor, ctypes.c_size_t(index), tensors[0], address) == 0
        assert run() == 0
        assert torch.equal(out.cpu(), x.cpu() + 2 * y.cpu())
    for function, index in (("", 2), ("", 4), ("Input", 2), ("Input", 3), ("Output", 1)):
        set_address = getattr(base, f"aclSet{function}TensorAddr")
        assert set_address(executor, ctypes.c_size_t(index), tensors[0], address) == aclnn.INVALID
    assert base.aclDestroyAclOpExecutor(executor) == 0
    made.destroy()


def test_addresses_of_lists_and_of_what_is_read_and_written(library):
    made = aclnn.Made()
    base = made.base
    total, terms = (
        without_memory(made, (7,)),
        made.argument([aclnn.Stored(torch.empty(7), torch.empty(7), aclnn.ND)] * 2),
    )
    executor, run = repeatable(library, "aclnnSumInto", total, terms)
    # total is the first input and, as the output, the last of all tensors; terms are those between.
    for name, index in (("Input", 0), ("Output", 0), ("", 0), ("", 3)):
        values = [torch.randn(7).npu() for _ in range(3)]
        expected = sum(value.cpu() for value in values)
        address = ctypes.c_void_p(values[0].data_ptr())
        assert getattr(base, f"aclSet{name}TensorAddr")(executor, ctypes.c_size_t(index), total, address) == 0
        for i in range(2):
            at = ctypes.c_size_t(1), ctypes.c_size_t(i), terms, ctypes.c_void_p(values[i + 1].data_ptr())
            assert base.aclSetDynamicTensorAddr(executor, *at) == 0
        assert run() == 0
        torch.testing.assert_close(values[0].cpu(), expected)
    assert base.aclDestroyAclOpExecutor(executor) == 0
    made.destroy()


def test_limits_on_cores_reach_tiling(acl, installed, library):
    x, vector = torch.ones(4321).npu(), 1
    assert torch.equal(scaled_sum(library, x, x).cpu(), 2 * x.cpu())  # which loads the tiling's library
    (tiling,) = installed.glob("op_impl/ai_core/tbe/op_tiling/lib/linux/*/libcust_opmaster_rt2.0.so")
    cores = ctypes.CDLL(str(tiling)).scaled_sum_cores

    def seen(x=x):
        scaled_sum(library, x, x)
        return cores()

    device = acl.get("aclrtGetDevice", ctypes.c_int32)  # torch's may be another: it sets its own before each call
    with acl.stream() as stream:
        # torch_npu gives this thread a stream's limits where it calls operators in it, and leaves them.
        acl.call("aclrtUnuseStreamResInCurrentThread", stream)
        assert seen() == 40
        acl.call("aclrtSetDeviceResLimit", device, vector, 24)
        try:
            assert seen() == 24
            acl.call("aclrtSetStreamResLimit", stream, vector, 6)
            acl.call("aclrtUseStreamResInCurrentThread", stream)
            assert seen() == 6
            acl.call("aclrtUnuseStreamResInCurrentThread", stream)
        finally:
            acl.call("aclrtResetDeviceResLimit", device)
        assert seen(torch.ones(4322).npu()) == 40  # the first tiling is kept


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
    (dict(fault=1), TILING_FAILS, r"tiling failed: .* for x float16\[8\], y float16\[8\]"),
    (dict(fault=2), TILING_FAILS, "tiling failed: .*wrote 40 bytes of tiling data and says that they are 4"),
    (dict(fault=3), TILING_FAILS, "tiling failed: it set no block dim"),
    (dict(fault=4), NO_KERNEL, r"the key 7, which was not compiled: scaled_sum \(.*\) has TILING_KEY_IS of 1, 2"),
]


@pytest.mark.parametrize(("given", "status", "message"), REJECTED, ids=lambda value: str(value)[:40])
def test_phase_one_rejects(library, given, status, message):
    given = {name: value.npu() if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    x, out = given.pop("x", half(8)), given.pop("out", half(8))
    with pytest.raises(aclnn.Rejected, match=f"aclnnScaledSum: .*{message}") as raised:
        scaled_sum(library, x, given.pop("y", half(8)), out=out, **given)
    assert raised.value.args[0] == status


@pytest.mark.parametrize("fault", [5, 7], ids=["rejects", "gives twice the elements"])
def test_inference_has_no_part_in_a_call(library, fault):
    """CANN does not infer shapes in a call either. Many projects with a right operator keep msopgen's `y = x`."""
    assert torch.equal(scaled_sum(library, half(8), half(8), fault=fault).cpu(), half(8).cpu() * 2)


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
    return fresh.run(command, env=environment).stdout


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
acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
print(status, acl.aclGetRecentErrMsg().decode() if status else out.tolist())
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
    done = fresh.run(command, env=environment)
    assert done.stdout == f"0 {[3.0 * i for i in range(8)]}\n" * 2 + "[1024.0]\n", done.stderr


@pytest.mark.parametrize(
    ("packages", "first"),
    [
        ("{installed}:{without_kernels}", "installed"),
        ("{without_kernels}/:{installed}", "without_kernels"),
        ("{without_kernels}:{installed}/op_api/lib/", "installed"),  # one that is given as a library
        ("{installed}:{without_kernels}/op_api/lib", "without_kernels"),
    ],
)
def test_the_first_of_two_packages_with_an_operator_is_taken(installed, tmp_path, packages, first):
    other = shutil.copytree(installed, tmp_path / "other", symlinks=True)
    for kernel in other.glob("op_impl/ai_core/tbe/kernel/*/scaled_sum/*.o"):
        kernel.unlink()
    environment = {**os.environ, "ASCEND_CUSTOM_OPP_PATH": packages.format(installed=installed, without_kernels=other)}
    program = ON_THE_ACLOP_PATH.partition("out.zero_()")[0]
    done = fresh.run([sys.executable, "-c", program], env=environment)
    said = {"installed": f"0 {[3.0 * i for i in range(8)]}", "without_kernels": f"{other} has no kernel for ascend910b"}
    assert said[first] in done.stdout + done.stderr


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
        if source.stem not in ("sum_into", "add_total_tiling"):  # which the project's CMake file names
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
    total = "[2.0, 2.0, 2.0, 2.0, 2.0]"
    for libraries, said, check in (
        (["static"], [total], ""),
        (["shared"], [total], ""),
        (["static", "shared"], [total, "two libraries carry it, of the vendors tested and tested"], ""),
        (["static", "static"], ["its package cannot be written to", total], "fault:disk:2"),  # as on a full disk
    ):
        paths = [runners / f"lib{name}.so" for name in libraries]
        command = [sys.executable, "-c", program, *paths]
        variables = {**environment, "CANN_CPU_CHECK": check}
        done = fresh.run(command, env=variables)
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


def test_a_kernel_is_written_nowhere_but_where_it_is_to_be(tmp_path):
    parameters = {"op_type": "Sum", "op_list": [{"inputs": [], "outputs": [], "bin_filename": "../../evil"}]}
    (tmp_path / "param.json").write_text(json.dumps(parameters))
    options = ["--main_func=sum", f"--input_param={tmp_path}/param.json", f"--output={tmp_path}/out/kernel"]
    said = run(CANN / "bin/opc", tmp_path / "sum.py", *options, fails=True)
    assert (
        said
        == "--main_func, op_type or bin_filename is '../../evil': expected letters, digits and _, and no digit first\n"
    )


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
    (
        "op_host/sum_into.cpp",
        'Input("terms")',
        'Input("../terms")',
        r"SumInto: the name of one of its inputs is '../terms'",
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


def test_an_archive_says_nothing_of_who_built_it_and_when(built, tmp_path):
    """The bytes are the same with other times, modes and umask; root's tar restores no user of the builder's."""
    contents = []
    for umask, time in (("022", 1), ("077", 2)):
        for file in built.glob("ascendc_kernels/**/*"):
            os.utime(file, (time, time))
        command = f"umask {umask}; cmake --build {built} --target package"
        run("bash", "-c", command, SOURCE_DATE_EPOCH="1700000000")
        (installer,) = built.glob("custom_opp_*.run")
        contents.append(installer.read_bytes())
    assert contents[0] == contents[1]
    payload = contents[0].partition(b"\nexit 0\n")[2]
    with tarfile.open(fileobj=io.BytesIO(payload)) as archive:
        entries = archive.getmembers()
    assert {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in entries} == {
        (0, 0, "", "", 1700000000)
    }
    assert {each.mode for each in entries if not each.issym()} == {0o644, 0o755}


@pytest.mark.parametrize("vendor", ["$(touch evil)", "a b", "../evil", "a,b", "a\nb", "-a"])
def test_a_vendor_is_a_name_of_a_folder(vendor, tmp_path):
    command = [sys.executable, "-m", "cann_cpu.toolkit.operator_package", f"--vendor={vendor}", "--type=RUN"]
    said = run(*command, f"--output={tmp_path}", f"--stage={tmp_path}", f"--autogen={tmp_path}", fails=True)
    assert f"{vendor!r} is not a valid name for a vendor" in said
    assert not list(tmp_path.iterdir())


def test_the_folder_of_an_installation_may_have_any_name(built, tmp_path):
    folder = tmp_path / "an author's $(folder)"
    (installer,) = built.glob("custom_opp_*.run")
    run(installer, f"--install-path={folder}", "--quiet")
    script = 'source "$1"; echo "$ASCEND_CUSTOM_OPP_PATH"'
    said = run(
        "bash", "-c", script, "bash", folder / "vendors/tested/bin/set_env.bash", ASCEND_CUSTOM_OPP_PATH="others"
    )
    assert said == f"{folder}/vendors/tested:others\n"


def test_the_installer_takes_the_toolkit_s_own_folder(built, tmp_path):
    (installer,) = built.glob("custom_opp_*.run")
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors/config.ini").write_text("load_priority=other,tested,untested\n")
    assert "SUCCESS" in run(installer, ASCEND_OPP_PATH=str(tmp_path))
    assert (tmp_path / "vendors/config.ini").read_text() == "load_priority=tested,other,untested\n"
    assert (tmp_path / "vendors/tested/op_api/include/aclnn_scaled_sum.h").exists()
    assert "no folder to install to" in run(installer, fails=True)
    assert "is not an absolute path" in run(installer, "--install-path=here", fails=True)
    assert (CANN / "bin/op_build").exists()
