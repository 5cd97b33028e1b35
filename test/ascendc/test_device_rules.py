# SPDX-License-Identifier: Apache-2.0
"""What the device's compiler would not take in a kernel is said when it compiles, and nothing else is."""

import pytest
from cann_cpu.ascendc import device_rules
from cann_cpu.kernel import KernelError, KernelFile

# Lines of a kernel's file, with a part of the report for each line that is reported.
BROKEN = [
    ("in_kernel", "std::vector<float> rows;", "std::vector: is the host's; use an array, a TBuf or a tensor"),
    ("in_kernel", "auto f = [&] { std::map<int, int> m; };", "std::map: is the host's"),
    ("in_kernel", "static int calls = 0;", "static: of a function; use a member or constexpr"),
    ("in_kernel", "for (int i = 0; i < 2; ++i) { static float sum[8]; }", "static: of a function"),
    ("in_kernel", "double mean = 0;", "double: the device has none; use float"),
    ("in_kernel", "float y = static_cast<double>(n) * 2;", "double: the device has none"),
    ("in_kernel", "float y = (double)n / 2;", "double: the device has none"),
    ("in_kernel", "float y = *(float*)x;", "float*: x lies in device memory; write __gm__ float*, or use "
     "a GlobalTensor"),
    ("in_kernel", "float y = reinterpret_cast<const float*>(x)[n];", "const float*: x lies in device memory"),
    ("in_kernel", "uint8_t* p = x + 32;", "uint8_t*: x lies in device memory"),
    ("in_class", "std::vector<int> rows;", "std::vector: is the host's"),
    ("in_class", "double mean;", "double: the device has none"),
    ("in_class", "virtual __aicore__ void step();", "virtual: the device calls no function by its address"),
    ("in_class", "__aicore__ virtual int get() { return 1; }", "virtual: the device calls no function by its address"),
    ("in_class", "__aicore__ int read() { return *(int*)kept; }", "int*: kept lies in device memory"),
    ("in_class", "__aicore__ Worker(int a) : a{a}, b(1) { static int c; }", "static: of a function"),
    ("in_file", "template <class T> __aicore__ void f(T a) { std::string s; }", "std::string: is the host's"),
    ("in_file", 'extern "C" __global__ __aicore__ void f(float* x, int n) {}', "float* x: a kernel's addresses are of "
     "device memory; write __gm__ float* x"),
    ("in_file", "__global__ __aicore__ void f(__gm__ float* x, const int* /*y*/) {}", "const int*: a kernel's "
     "addresses"),
]  # fmt: skip

ALLOWED = [
    ("in_kernel", "static constexpr int kRows = 2; constexpr static int a = 1; static const int b = 2;"),
    ("in_kernel", "constexpr double kThird = 1.0 / 3; // std::vector, static, double x"),
    ("in_kernel", 'const char* text = "static double x"; /* virtual\n double y; */'),
    ("in_kernel", "if constexpr (std::is_same_v<T, double> || IsSameType<T, double>::value) {}"),
    ("in_kernel", "auto y = *(__gm__ float*)x + reinterpret_cast<__gm__ const float*>(x)[1] + x[2];"),
    ("in_kernel", "__gm__ uint8_t* p = x; auto* q = x; uint64_t at = reinterpret_cast<uint64_t>(x);"),
    ("in_kernel", "from.SetGlobalBuffer((__gm__ float*)x + n); int64_t y = (int64_t)n * n;"),
    ("in_kernel", "float z = 3; auto* z_bits = reinterpret_cast<uint32_t*>(&z); int i = n * n; int* j = (int*)z_bits;"),
    ("in_kernel", "struct Local { static __aicore__ void f() {} };"),
    ("in_class", "static __aicore__ inline int twice(int a) { return 2 * a; }\n static constexpr int kRows = 2;"),
    ("in_class", "__aicore__ Worker() : a{1}, b{2} {} __aicore__ Worker(__gm__ int* p) : kept(p) {}"),
    ("in_file", "std::vector<double> host(float* x) { static int calls; std::vector<double> y; return y; }"),
    ("in_file", "class Host { virtual double mean(); std::vector<int> x; };"),
    ("in_file", "void declared(float* x); __aicore__ void helper(float* x) { x[0] = 1; }"),
    ("in_file", '}\n# 1 "/usr/include/x.h" 1 3\n__aicore__ void f() { double x; }\n# 9 "kernel.cpp" 2\nnamespace {'),
]


def text(place, line):
    placed = {"in_kernel": "", "in_class": "", "in_file": "", place: line}
    return f"""# 1 "kernel.cpp"
namespace {{ {placed["in_file"]} }}
class Worker {{ public: {placed["in_class"]}
  __aicore__ void run() {{}} __gm__ uint8_t* kept; int a, b; }};
extern "C" __global__ __aicore__ void kernel(__gm__ uint8_t* x, int n) {{ {placed["in_kernel"]}
}}
"""


LINES = {"in_file": 1, "in_class": 2, "in_kernel": 4}


@pytest.mark.parametrize(("place", "line", "message"), BROKEN)
def test_what_the_device_has_not_is_said(place, line, message):
    said = device_rules.broken(text(place, line))
    assert len(said) == 1
    assert said[0].startswith(f"kernel.cpp:{LINES[place]}: {message}")


@pytest.mark.parametrize(("place", "line"), ALLOWED)
def test_what_the_device_has_is_not_reported(place, line):
    assert device_rules.broken(text(place, line)) == []


SOURCE = """#include <vector>
#include "kernel_operator.h"
extern "C" __global__ __aicore__ void broken(GM_ADDR x, float* y) {
  std::vector<float> rows;
}
"""
SAID = (
    "{0}:3: float* y: a kernel's addresses are of device memory; write __gm__ float* y\n"
    "{0}:4: std::vector: is the host's; use an array, a TBuf or a tensor\n"
)


def test_a_kernel_that_the_device_would_not_take_does_not_compile(tmp_path):
    source = tmp_path / "broken.cpp"
    source.write_text(SOURCE)
    with pytest.raises(KernelError) as error:
        KernelFile(source)
    assert str(error.value) == f"{source}: the device's compiler would not take it\n" + SAID.format(source).rstrip()
