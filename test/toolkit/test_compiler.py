# SPDX-License-Identifier: Apache-2.0
"""The compiler's command line, and the headers that it makes."""

import subprocess
import textwrap

import numpy as np
import pytest
from cann_cpu import activation
from cann_cpu.kernel import KernelError, KernelFile

COMPILER = f"{activation.HOME}/bin/bisheng"
HEADER = '#include "kernel_operator.h"\n'
KERNEL = 'extern "C" __global__ __aicore__ void'


def compiled(tmp_path, text, *options, name="kernel.cpp"):
    source = tmp_path / name
    source.write_text(text)
    command = [COMPILER, "-O0", *options, "-c", source, "-o", tmp_path / "kernel.o"]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (
            f"{HEADER}{KERNEL} k() {{\n  AscendC::DeepNorm();\n}}\n",
            [],
            "{0}:3: DeepNorm is not in Ascend C on the CPU; docs/ascendc_names.md has what is",
        ),
        (
            f"{HEADER}{KERNEL} k(float* x) {{\n}}\n",
            [],
            "{0}: the device's compiler would not take it\n"
            "{0}:2: float* x: a kernel's addresses are of device memory; write __gm__ float* x",
        ),
        (
            f"{HEADER}{KERNEL} k(decltype(sizeof(1)) n, float* x) {{\n}}\n",
            [],
            "{0}: the device's compiler would not take it\n"
            "{0}:2: float* x: a kernel's addresses are of device memory; write __gm__ float* x",
        ),
        (
            f'{HEADER}// __global__\nconst char* text = "__global__";\n__global__ __aicore__ int k() {{ return 0; }}\n',
            [],
            "{0}:4: __global__ begins no kernel: it is not a function that returns void",
        ),
        (
            f"{HEADER}struct S {{\n  static __global__ void k() {{}}\n}};\n",
            [],
            "{0}:3: __global__ begins no kernel: k is a member of a class",
        ),
        (
            f"{HEADER}{KERNEL} k(uint32_t n o) {{\n}}\n",
            [],
            "{0}:2: __global__ begins no kernel: `o` is not understood",
        ),
        (f"{KERNEL} k() {{}}\n", [], '{0}: does not include "kernel_operator.h"'),
        (
            f"{HEADER}template <class T>\n__global__ __aicore__ void k(__gm__ T* x) {{\n"
            "#ifdef __DAV_C220_CUBE__\n  *x = 1;\n#else\n  *x = 2;\n#endif\n}\n",
            [],
            "{0}:5: here begins code that cube cores and vector cores do not have in common, and k is a template,"
            " which is compiled once for both",
        ),
        (
            HEADER,
            ["--npu-arch=dav-3003"],
            "--npu-arch=dav-3003: there is dav-2201, dav-c220, dav-c220-vec, dav-c220-cube, dav-1001",
        ),
        (f"{HEADER}int x\n", [], "{0} does not compile:\n{0}:2:6: error: expected initializer"),
        (f'{HEADER}#include "none.h"\n', [], "{0} does not compile:\n{0}:2:10: fatal error: none.h: No such file"),
    ],
)
def test_what_does_not_compile_is_said_by_its_line(tmp_path, text, options, said):
    done = compiled(tmp_path, text, *options)
    assert (done.returncode, (tmp_path / "kernel.o").exists()) == (1, False)
    assert done.stderr.startswith(said.format(tmp_path / "kernel.cpp"))


def test_what_only_the_compiler_of_the_device_takes(tmp_path):
    text = f"""{HEADER}
#include "lib/matrix/matmul/tiling.h"
#define HOST_DEVICE __forceinline__[host, aicore]
HOST_DEVICE constexpr int twice(int x) {{ return 2 * x; }}
inline [aicore] int once(int x) {{ return x; }}
inline int captured(int aicore) {{ return [aicore]() {{ return aicore; }}(); }}
enum class Kind {{ kOne, kTwo }};
template <class T>
struct Tile {{
  static constexpr bool Kind = T::kind == Kind::kOne;
}};
using AscendC::Std::is_one_of_v;
static_assert(is_one_of_v<float, half, float> && !is_one_of_v<float, half, AscendC::int4b_t>);
static_assert(AscendC::IsSameType<AscendC::Conditional<true, half, float>::type, half>::value);
{KERNEL} k() {{}}
"""
    done = compiled(tmp_path, text)
    assert done.returncode == 0, done.stderr
    wrong = text.replace("return x;", "void* p = 0; int* q = p; return *q;")
    done = compiled(tmp_path, wrong)
    assert done.returncode == 1
    assert "invalid conversion" in done.stderr


@pytest.mark.parametrize("option", ["-I", "-isystem"])
def test_headers_of_acl_that_a_file_is_given_go_before_ours(tmp_path, option):
    header = tmp_path / "theirs/acl/acl_base.h"
    header.parent.mkdir(parents=True)
    header.write_text("constexpr bool kTheirs = true;\n")
    text = f'{HEADER}#include "acl/acl_base.h"\nstatic_assert(kTheirs);\n'
    done = compiled(tmp_path, text, option, str(tmp_path / "theirs"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", [("-x", "asc"), ("-xcce",)])
def test_a_file_of_any_name_is_one_of_kernels_where_the_option_says_so(tmp_path, options):
    launch = "void launch(void* stream, uint8_t* x) { k<<<1, nullptr, stream>>>(x); }"
    text = f"{HEADER}{KERNEL} k(GM_ADDR) {{}}\n{launch}\n"
    done = compiled(tmp_path, text, *options, name="kernel.c")
    assert done.returncode == 0, done.stderr
    symbols = subprocess.run(["nm", tmp_path / "kernel.o"], capture_output=True, text=True, check=True).stdout
    assert "aclrtlaunch_k" in symbols
    assert compiled(tmp_path, text, name="kernel.c").returncode != 0  # a file in C


def test_options_of_the_device_are_taken_and_the_standard_is_twenty(tmp_path):
    holds = "__cplusplus == 202002 && VALUE == 3 && _GLIBCXX_USE_CXX11_ABI == 1"
    text = f"{HEADER}static_assert({holds});\nstatic int unused() {{ return 1; }}\n"
    options = [
        "--npu-arch=dav-2201",
        "-xasc",
        "--cce-auto-sync=off",
        "-mllvm",
        "-cce-x=1",
        "-std=c++17",
        "-D",
        "VALUE=3",
    ]
    options += ["-D_GLIBCXX_USE_CXX11_ABI=0", "-Wall"]
    done = compiled(tmp_path, text, *options, name="kernel.asc")
    assert done.returncode == 0
    assert "kernel.asc:3:12: warning" in done.stderr


def test_a_file_is_compiled_as_for_a_device_unless_it_is_one_for_the_cpu(tmp_path):
    text = f"""{HEADER}
#ifdef ASCENDC_CPU_DEBUG
#error "the host's compiler"
#endif
#if defined(__CCE_KT_TEST__) || !defined(__CCE_AICORE__)
#error "no device"
#endif
"""
    assert compiled(tmp_path, text).returncode == 0
    assert compiled(tmp_path, text.replace("#ifdef", "#ifndef")).returncode == 1


def test_dependencies_are_listed_without_what_is_in_the_cache(tmp_path):
    (tmp_path / "own.h").write_text("")
    text = f'{HEADER}#include "own.h"\n'
    assert compiled(tmp_path, text, "-MD", "-MT", "target", "-MF", tmp_path / "list.d").returncode == 0
    target, _, files = (tmp_path / "list.d").read_text().replace("\\\n", " ").partition(":")
    assert target == "target"
    listed = set(files.split())
    assert {str(tmp_path / name) for name in ("kernel.cpp", "own.h")} <= listed
    assert f"{activation.HOME}/include/kernel_operator.h" in listed
    assert not [file for file in listed if ".gch" in file]


def test_a_program_is_compiled_and_linked_at_once(tmp_path):
    text = f"""{HEADER}
{KERNEL} hello() {{ AscendC::printf("block %d\\n", static_cast<int>(AscendC::GetBlockIdx())); }}
#include "acl/acl.h"
int main() {{
  aclrtSetDevice(0);
  hello<<<2, nullptr, nullptr>>>();
  return aclrtSynchronizeDevice();
}}
"""
    (tmp_path / "hello.asc").write_text(text)
    subprocess.run([COMPILER, "hello.asc", "-o", "hello"], check=True, cwd=tmp_path)
    environment = {"LD_LIBRARY_PATH": activation.LIBRARIES}
    done = subprocess.run([tmp_path / "hello"], env=environment, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["block 0", "block 1"]


def test_launch_headers_have_each_kind_of_parameter_and_old_ones_go(tmp_path):
    text = textwrap.dedent(f"""
        {HEADER}
        namespace host {{ struct Sizes {{ int a; }}; }}
        typedef struct {{ int a; }} Old;
        using Count = uint64_t;
        #define KERNEL(name) {KERNEL} name
        KERNEL(one)(GM_ADDR x, __gm__ float* y, const uint32_t n, float f, Count c, host::Sizes s, Old old,
                    GM_ADDR) {{}}
        KERNEL(two)(uint32_t blockDim, GM_ADDR stream) {{}}
        {KERNEL} declared(GM_ADDR x);
        {KERNEL} three(decltype(sizeof(1)) n, void (*call)(int, int), float values[2], int i = (3, 4)) {{}}
        template <typename T, int n = (3 > 2)> __global__ __aicore__ void four(GM_ADDR x) {{}}
        template <> __global__ __aicore__ void four<int>(GM_ADDR x) {{}}
    """)
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "aclrtlaunch_gone.h").write_text("")
    assert compiled(tmp_path, text, f"--launch-headers={headers}").returncode == 0
    assert {path.name for path in headers.iterdir()} == {f"aclrtlaunch_{name}.h" for name in ("one", "two", "three")}
    declared = 'extern "C" uint32_t aclrtlaunch_'
    arguments = "void* x, void* y, uint32_t n, float f, Count c, void* s, void* old, void* argument8"
    assert (
        f"{declared}one(uint32_t blockDim, aclrtStream stream, {arguments});"
        in (headers / "aclrtlaunch_one.h").read_text()
    )
    arguments = "uint32_t blockDim_, void* stream_"
    assert (
        f"{declared}two(uint32_t blockDim, aclrtStream stream, {arguments});"
        in (headers / "aclrtlaunch_two.h").read_text()
    )

    arguments = "decltype(sizeof(1)) n, void* call, void* values, int i"
    assert (
        f"{declared}three(uint32_t blockDim, aclrtStream stream, {arguments});"
        in (headers / "aclrtlaunch_three.h").read_text()
    )


def test_a_kernel_whose_parameters_have_parentheses_runs(tmp_path):
    source = tmp_path / "kernel.cpp"
    source.write_text(f"""{HEADER}
namespace author {{
struct Add {{ uint32_t operator()(uint32_t x) const {{ return x + 1; }} }};
__global__ __aicore__ void k(GM_ADDR y, decltype(Add()(1)) n /* (how many) */) noexcept {{
  AscendC::GlobalTensor<uint32_t> out;
  out.SetGlobalBuffer((__gm__ uint32_t*)y);
  out.SetValue(0, Add()(n));
  AscendC::DataCacheCleanAndInvalid<uint32_t, AscendC::CacheLine::SINGLE_CACHE_LINE>(out);
}}
}}
""")
    y = np.zeros(8, np.uint32)
    KernelFile(source)["k"](y, 41)
    assert y[0] == 42


def test_a_struct_by_value_is_given_as_an_array(tmp_path):
    source = tmp_path / "kernel.cpp"
    source.write_text(f"""{HEADER}
struct Pair {{ uint32_t a; float b; }};
{KERNEL} k(GM_ADDR y, Pair pair) {{
  AscendC::GlobalTensor<float> out;
  out.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), 8);
  out.SetValue(pair.a, pair.b);
  AscendC::DataCacheCleanAndInvalid<float, AscendC::CacheLine::SINGLE_CACHE_LINE>(out);
}}
""")
    kernel, y = KernelFile(source)["k"], np.zeros(8, np.float32)
    kernel(y, np.array([(3, 0.5)], dtype=[("a", "u4"), ("b", "f4")]))
    assert list(y) == [0, 0, 0, 0.5, 0, 0, 0, 0]
    for wrong, message in ((np.zeros(3, np.uint32), "not one of 12"), (1, "not int")):
        with pytest.raises(
            KernelError, match=f"k: pair is a struct of 8 bytes; give a numpy array of as many, {message}"
        ):
            kernel(y, wrong)


def test_a_gap_is_a_stride(tmp_path):
    source = tmp_path / "kernel.cpp"
    source.write_text(f"""{HEADER}
{KERNEL} k(GM_ADDR y) {{
  AscendC::DataCopyParams params(1, 2, 3, 4);
  params.srcGap += 10;
  params.dstGap += 20;
  AscendC::GlobalTensor<uint32_t> out;
  out.SetGlobalBuffer(reinterpret_cast<__gm__ uint32_t*>(y), 8);
  out.SetValue(0, params.srcStride);
  out.SetValue(1, params.dstStride);
  AscendC::DataCacheCleanAndInvalid<uint32_t, AscendC::CacheLine::SINGLE_CACHE_LINE>(out);
}}
""")
    y = np.zeros(8, np.uint32)
    KernelFile(source)["k"](y)
    assert list(y[:2]) == [13, 24]


def test_a_host_makes_the_tilings_of_the_libraries(tmp_path):
    program = tmp_path / "tiling.cpp"
    program.write_text("""#include <vector>
#include "tiling/pad_tiling.h"
struct Shape { std::vector<int64_t> sizes; std::vector<int64_t> GetDims() const { return sizes; } };
int main() {
  uint32_t max = 0, min = 0, numbers[32] = {};
  AscendC::GetPadMaxMinTmpSize(Shape{{3, 16}}, 2, max, min);
  optiling::PadTiling pad;
  AscendC::PadTilingFunc(Shape{{3, 16}}, Shape{{3, 14}}, max, 2, pad);
  pad.SaveToBuffer(numbers, pad.GetDataSize());
  if (max != 32 || min != 32 || pad.GetDataSize() != sizeof(PadTiling)) return 1;
  if (numbers[0] != 3 || numbers[1] != 16 || numbers[2] != 14) return 2;
  optiling::UnPadTiling unpad;
  AscendC::GetUnPadMaxMinTmpSize(0, Shape{{5, 32}}, 2, max, min);
  AscendC::UnPadTilingFunc(Shape{{5, 32}}, max, 2, unpad);
  unpad.SaveToBuffer(numbers, 4);  // too small
  if (numbers[0] != 3) return 3;
  unpad.SaveToBuffer(numbers, unpad.GetDataSize());
  return numbers[0] == 5 && numbers[1] == 32 ? 0 : 4;
}
""")
    include = f"-I{activation.HOME}/include"
    command = ["g++", "-std=c++11", "-Wall", "-Wextra", "-Werror", include, program, "-o", tmp_path / "tiling"]
    subprocess.run(command, check=True)
    assert subprocess.run([tmp_path / "tiling"]).returncode == 0


def test_a_kernel_may_bear_the_name_of_a_function_of_c(tmp_path):
    text = f"""{HEADER}
#include <cmath>
#include <iostream>
namespace own {{
template <class T>
__global__ __aicore__ void fmin(__gm__ T* x) {{ *x = 2; }}
}}
extern "C" __global__ __aicore__ void asinh(__gm__ float* x);
{KERNEL} asinh(__gm__ float* x) {{ *x += 1; }}
extern "C" __global__ __aicore__ void
div(GM_ADDR x) {{ *reinterpret_cast<__gm__ float*>(x) *= 3; }}
#include "acl/acl.h"
int main() {{
  aclrtSetDevice(0);
  float* x;
  aclrtMalloc(reinterpret_cast<void**>(&x), 32, ACL_MEM_MALLOC_HUGE_FIRST);
  own::fmin<float><<<1, nullptr, nullptr>>>(x);
  asinh<<<1, nullptr, nullptr>>>(x);
  div<<<1, nullptr, nullptr>>>(reinterpret_cast<uint8_t*>(x));
  aclrtSynchronizeDevice();
  std::cout << *x << std::endl;
  return std::asinh(0.0) != 0 || div(7, 2).quot != 3 || *x != 9;
}}
"""
    (tmp_path / "named.asc").write_text(text)
    subprocess.run([COMPILER, "named.asc", "-o", "named"], check=True, cwd=tmp_path)
    ran = subprocess.run(
        [tmp_path / "named"], env={"LD_LIBRARY_PATH": activation.LIBRARIES}, check=True, stdout=subprocess.PIPE
    )
    assert ran.stdout == b"9\n"


@pytest.mark.parametrize("name", ["hypot", "abs", "index", "exp"])
def test_such_a_kernel_is_called_by_its_name(tmp_path, name):
    (tmp_path / "kernel.cpp").write_text(f"{HEADER}{KERNEL} {name}(__gm__ float* x) {{ *x = 7; }}\n")
    x = np.zeros(8, np.float32)
    KernelFile(tmp_path / "kernel.cpp")[name](x, checks=False)
    assert x[0] == 7


KERNEL_HEADERS = """kernel_basic_intf.h kernel_cube_intf.h kernel_data_copy_transpose.h kernel_event.h kernel_macros.h
    kernel_operator_intf.h kernel_operator_list_tensor_intf.h kernel_tensor.h kernel_type.h kernel_utils.h
    kernel_vec_intf.h adv_api/reduce/reduce.h adv_api/reduce/sum.h basic_api/kernel_basic_intf.h
    basic_api/kernel_operator_block_sync_intf.h impl/dav_c220/kernel_operator_reg_others_impl.h lib/matmul_intf.h
    lib/matrix/matmul/tiling.h kernel_tiling/kernel_tiling.h utils/debug/asc_assert.h utils/debug/asc_dump.h
    utils/debug/asc_printf.h"""
HOST_HEADERS = """acl/acl.h aclnn/acl_meta.h aclnn/aclnn_base.h experiment/platform/platform/platform_infos_def.h
    graph/types.h graph/utils/type_utils.h platform/platform_ascendc.h platform/platform_info.h
    platform/platform_infos_def.h register/op_def_registry.h register/op_impl_registry.h register/tilingdata_base.h
    tiling/platform/platform_ascendc.h tiling/tiling_api.h"""


def test_headers_have_the_names_by_which_public_projects_include_them(tmp_path):
    text = "".join(f'#include "{name}"\n' for name in KERNEL_HEADERS.split())
    done = compiled(tmp_path, f'{text}{KERNEL} k() {{ AscendC::printf("%d\\n", 1); }}\n')
    assert done.returncode == 0, done.stderr
    for name in HOST_HEADERS.split():
        source = tmp_path / "host.cpp"
        source.write_text(f'#include "{name}"\n')
        command = ["g++", "-std=c++11", "-fsyntax-only", "-Wall", "-Werror", f"-I{activation.HOME}/include", source]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, (name, done.stderr)


def test_a_file_of_the_host_launches_by_the_functions_that_have_the_kernels_names(tmp_path):
    """The device's compiler makes them: blocks, l2ctrl and stream before the kernel's own parameters."""
    begins = "(__gm__ uint8_t* y, float value) {\n  AscendC::GlobalTensor<float> to;\n"
    kernels = (
        f'{HEADER}extern "C" __global__ __aicore__ void filled{begins}'
        "  to.SetGlobalBuffer((__gm__ float*)y, 8);\n  for (int i = 0; i < 8; ++i) to.SetValue(i, value);\n}\n"
        f"__global__ __aicore__ void multiplied{begins}"
        "  to.SetGlobalBuffer((__gm__ float*)y, 8);\n"
        "  for (int i = 0; i < 8; ++i) to.SetValue(i, value * to.GetValue(i));\n}\n"
        "void both(void* stream, uint8_t* y) {\n"
        "  filled<<<1, nullptr, stream>>>(y, 3);\n  multiplied<<<1, nullptr, stream>>>(y, 7);\n}\n"
    )
    assert compiled(tmp_path, kernels).returncode == 0
    (tmp_path / "main.cpp").write_text(
        "#include <cstdint>\n#include <cstdio>\n#include <acl/acl.h>\n"
        'extern "C" void filled(uint32_t blocks, void* l2ctrl, void* stream, uint8_t* y, float value);\n'
        "void multiplied(uint32_t blocks, void* l2ctrl, void* stream, uint8_t* y, float value);\n"
        "void both(void* stream, uint8_t* y);\n"
        "int main() {\n  float y[2][8] = {};\n  void* memory[2];\n  aclrtStream stream;\n"
        "  aclInit(nullptr);\n  aclrtSetDevice(0);\n  aclrtCreateStream(&stream);\n"
        "  for (void*& each : memory) aclrtMalloc(&each, 32, ACL_MEM_MALLOC_HUGE_FIRST);\n"
        "  filled(1, nullptr, stream, static_cast<uint8_t*>(memory[0]), 2);\n"
        "  multiplied(1, nullptr, stream, static_cast<uint8_t*>(memory[0]), 5);\n"
        "  both(stream, static_cast<uint8_t*>(memory[1]));\n  aclrtSynchronizeStream(stream);\n"
        "  for (int i = 0; i < 2; ++i) aclrtMemcpy(y[i], 32, memory[i], 32, ACL_MEMCPY_DEVICE_TO_HOST);\n"
        '  std::printf("%g %g\\n", y[0][7], y[1][7]);\n}\n'
    )
    libraries = f"{activation.HOME}/lib64"
    command = ["g++", "main.cpp", "kernel.o", f"-I{activation.HOME}/include", f"-L{libraries}"]
    command += ["-lascendcl", "-lascendc_cpu", f"-Wl,-rpath,{libraries}", "-o", "program"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout == "10 21\n"
