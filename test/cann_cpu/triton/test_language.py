# SPDX-License-Identifier: Apache-2.0
"""Parts of the language that are not computations, and what a user does around a kernel."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checks.commands import checked
from triton_folder import triton_in_programs  # noqa: F401

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton", reason="neither triton nor triton-ascend is installed")

import triton.language as tl  # noqa: E402
import triton.language.extra.cann.extension as extension  # noqa: E402

SUPPORT = Path(__file__).parents[2] / "support"
ASCEND = triton.__version__.startswith("3.2")


def launched(kernel, grid, *arguments, **options):
    kernel[grid](*arguments, **options)
    torch.npu.synchronize()


def failure(kernel, grid, *arguments):
    with pytest.raises(RuntimeError) as error:
        launched(kernel, grid, *arguments)
    return str(error.value)


@triton.jit
def printing_kernel(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N))
    tl.device_print("x", x)
    print("twice", x * 2)
    tl.static_print("N is", N)


def test_prints_of_each_program(capfd):
    launched(printing_kernel, (2,), torch.arange(4).npu(), 2)
    lines = capfd.readouterr().out.splitlines()
    for line in ("(0, 0, 0) x [0 1]", "(1, 0, 0) x [2 3]", "(1, 0, 0) twice [4 6]", "N is 2"):
        assert line in lines


@triton.jit
def asserting_kernel(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N))
    tl.device_assert(x < 5, "x is large")
    assert x >= 0, "x is negative"


def test_assertions():
    launched(asserting_kernel, (2,), torch.arange(4).npu(), 2)
    text = failure(asserting_kernel, (2,), torch.tensor([0, 1, 2, 9]).npu(), 2)
    assert "assertion failed: x is large" in text
    assert "program (1, 0, 0), lane 1" in text
    assert "x is negative" in failure(asserting_kernel, (2,), torch.tensor([0, 1, -2, 3]).npu(), 2)


SESSION = """
import torch, torch_npu, triton, triton.language as tl

@triton.jit
def kernel(x_ptr, N: tl.constexpr):
    pid = tl.program_id(0)
    x = tl.load(x_ptr + pid * N + tl.arange(0, N))
    if pid == 1:
        breakpoint()
    tl.store(x_ptr + pid * N + tl.arange(0, N), x + 1)

x = torch.arange(6).npu()
kernel[(3,)](x, 2)
torch.npu.synchronize()
print(x.cpu())
"""


def test_breakpoint_stops_in_the_kernel(tmp_path):
    program = tmp_path / "session.py"
    program.write_text(SESSION)
    commands = "p pid\np x\nc\n"
    run = subprocess.run([sys.executable, program], input=commands, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "session.py(9)kernel()" in run.stdout or "session.py(8)kernel()" in run.stdout
    assert "(Pdb) 1\n(Pdb) [2 3]\n" in run.stdout
    assert "tensor([1, 2, 3, 4, 5, 6])" in run.stdout


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + at, tl.load(x_ptr + at) + 1)
    else:
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


@pytest.mark.parametrize("n", [128, 100])
def test_autotune_and_heuristics(n):
    x = torch.randn(n).npu()
    out = torch.zeros_like(x)
    launched(tuned_kernel, lambda args: (triton.cdiv(n, args["BLOCK"]),), x, out, n)
    assert torch.equal(out, x + 1)


@triton.jit
def block_pointer_kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (tl.program_id(0) * BLOCK, 0), (BLOCK, BLOCK), (1, 0))
    out = tl.make_block_ptr(out_ptr, (N, M), (M, 1), (0, tl.program_id(0) * BLOCK), (BLOCK, BLOCK), (1, 0))
    for _ in range(0, N, BLOCK):
        block = tl.load(x, boundary_check=(0, 1), padding_option="zero")
        tl.store(out, tl.trans(block), boundary_check=(0, 1))
        x = tl.advance(x, (0, BLOCK))
        out = tl.advance(out, (BLOCK, 0))


def test_block_pointers():
    x = torch.randn(20, 37).npu()
    out = torch.zeros(37, 20).npu()
    launched(block_pointer_kernel, (2,), x, out, 20, 37, 16)
    assert torch.equal(out, x.T)


@triton.jit
def descriptor_kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    out = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    row = tl.program_id(0) * BLOCK
    for column in range(0, N, BLOCK):
        out.store([row, column], x.load([row, column]))


def test_tensor_descriptors():
    x = torch.randn(20, 40).npu()
    out = torch.zeros_like(x)
    launched(descriptor_kernel, (2,), x, out, 20, 40, 16)
    assert torch.equal(out, x)


insert_slice = tl.insert_slice if ASCEND else extension.insert_slice
extract_slice = tl.extract_slice if ASCEND else extension.extract_slice
get_element = tl.get_element if ASCEND else extension.get_element


@triton.jit
def slices_kernel(x_ptr, out_ptr, N: tl.constexpr):
    pid = tl.program_id(0)
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    part = extract_slice(x, (pid,), (4,), (2,))
    x = insert_slice(x, part * 10, (pid + 1,), (4,), (1,))
    tl.store(out_ptr + pid * N + at, x + get_element(x, (pid,)))


def test_operations_of_triton_ascend():
    x = torch.arange(16.0)
    out = torch.zeros(3, 16).npu()
    launched(slices_kernel, (3,), x.npu(), out, 16)
    for pid in range(3):
        expected = x.clone()
        expected[pid + 1 : pid + 5] = x[pid : pid + 8 : 2] * 10
        assert torch.equal(out[pid].cpu(), expected + expected[pid])


@triton.jit
def constants_kernel(out_ptr, n, flag, alpha, NAME: tl.constexpr, KIND: tl.constexpr):
    value = alpha
    if NAME == "double" and n > 1:
        value = value * 2
    if not flag:
        value += 1
    tl.store(out_ptr, tl.full((), value, KIND))


def test_scalars_and_constants():
    out = torch.zeros(1).npu()
    launched(constants_kernel, (1,), out, 3, False, 1.5, "double", tl.float32)
    assert out.item() == 4.0
    launched(constants_kernel, (1,), out, 1, True, 1.5, "double", tl.float32)
    assert out.item() == 1.5


@triton.jit
def mixed_kernel(x_ptr, out_ptr):
    value = 0
    if tl.load(x_ptr + tl.program_id(0)) > 0:
        value = 1.5
    tl.store(out_ptr + tl.program_id(0), value)


def test_a_variable_with_two_types_is_named():
    text = failure(mixed_kernel, (2,), torch.tensor([1.0, -1.0]).npu(), torch.zeros(2).npu())
    assert "`value` has another type on each way" in text


@triton.jit
def loops_kernel(x_ptr, out_ptr, n):
    for _ in range(n):
        at = tl.arange(0, 2)
        tl.store(out_ptr + at, tl.load(x_ptr + at))
    i = tl.load(x_ptr)
    for i in range(n):
        at = tl.arange(2, 6) + 0 * i
        tl.store(out_ptr + at, tl.load(x_ptr + at) * 2)


def test_what_is_first_assigned_in_a_loop_ends_with_it():
    x = torch.arange(6.0)
    out = torch.zeros(6).npu()
    launched(loops_kernel, (1,), x.npu(), out, 2)
    assert out.tolist() == [0, 1, 4, 6, 8, 10]


@triton.jit
def after_kernel(x_ptr, n):
    for _ in range(n):
        last = tl.load(x_ptr)
    tl.store(x_ptr, last + 1)


def test_what_ended_with_its_loop_is_named():
    text = failure(after_kernel, (1,), torch.zeros(1).npu(), 2)
    assert "NameError: a variable is used that is not assigned on this way, or only in a loop that has ended" in text


@triton.jit
def counting_kernel(x_ptr, out_ptr, size):
    going = 2
    i = 0
    while i < size and going:
        going = tl.load(x_ptr + i)
        i += 1
    tl.store(out_ptr, tl.where(going or i < 0, 1, 0) * 100 + i)


@pytest.mark.skipif(ASCEND, reason="triton-ascend 3.2.0 rejects it; later ones take it")
def test_integers_in_and_and_or():
    out = torch.zeros(1, dtype=torch.int32).npu()
    for x, result in (([2, 4, 0, 1], 3), ([1, 2, 3, 6], 104)):
        launched(counting_kernel, (1,), torch.tensor(x, dtype=torch.int32).npu(), out, 4)
        assert out.item() == result


def test_modules_of_triton_ascend_are_attributes():
    assert triton.language.extra.cann.libdevice.tanh is not None
    assert triton.language.extra.cann.extension is extension
    assert importlib.import_module("triton.language.extra.npu.libdevice").pow is not None


@triton.jit
def broken_kernel(x_ptr):
    for i in range(4):
        if i == 2:
            break


@triton.jit
def limit_of(KIND: tl.constexpr):
    if KIND is tl.int32:
        return 7
    else:
        raise ValueError("no limit")


@triton.jit
def raising_kernel(x_ptr):
    tl.store(x_ptr, limit_of(x_ptr.dtype.element_ty))


def test_raise():
    x = torch.zeros(1, dtype=torch.int32).npu()
    launched(raising_kernel, (1,), x)
    assert x.item() == 7
    assert "ValueError: no limit" in failure(raising_kernel, (1,), x.long())


def test_what_the_compiler_does_not_take():
    with pytest.raises((SyntaxError, RuntimeError), match="unsupported AST node type: Break"):
        launched(broken_kernel, (1,), torch.zeros(1).npu())


def test_tensors_of_the_cpu_are_rejected():
    with pytest.raises(ValueError, match=r"Pointer argument \(x_ptr\) cannot be accessed from Triton"):
        printing_kernel[(1,)](torch.zeros(4), 2)


def test_options_that_are_unknown_are_rejected():
    with pytest.raises(KeyError, match="num_warpz"):
        printing_kernel[(1,)](torch.zeros(4).npu(), 2, num_warpz=4)


def test_the_driver():
    from triton.runtime import driver

    target = driver.active.get_current_target()
    assert target.backend == "npu"
    assert target.arch.startswith("Ascend")
    cores = driver.active.utils.get_device_properties(torch.npu.current_device())
    assert 0 < cores["num_aicore"] <= cores["num_vectorcore"]


def test_install_twice_changes_nothing():
    from cann_cpu.triton import compiler

    compiler.install()
    once = triton.compiler.compile
    compiler.install()
    assert triton.compiler.compile is once


def test_without_cann_cpu_no_driver_is_active():
    program = "import triton\nfrom cann_cpu.triton.driver import Driver\nprint(Driver.is_active())"
    environment = {**os.environ, "CANN_CPU": "0"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.stdout.splitlines()[-1:] == ["False"], run.stderr


UNWRITTEN = """
import torch, torch_npu, triton, triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n))

for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64):
    for n in (30, 40):
        x = torch.empty(64, dtype=dtype, device="npu")
        x[:30] = 1
        kernel[(1,)](x, torch.zeros_like(x), n, 64)
        try:
            torch.npu.synchronize()
            print(dtype, n, "right")
        except RuntimeError as error:
            print(dtype, n, "wrong", str(error).replace("\\n", " "))
"""


def test_a_load_of_what_nobody_wrote(tmp_path):
    program = tmp_path / "unwritten.py"
    program.write_text(UNWRITTEN)
    environment = {**os.environ, "CANN_CPU_CHECK": "memory"}
    run = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True)
    lines = [line for line in run.stdout.splitlines() if line.startswith("torch.")]
    assert [line.split()[1:3] for line in lines] == [["30", "right"], ["40", "wrong"]] * 5, run.stderr
    for line in lines[1::2]:
        assert "tl.load of an element of `x_ptr` that nobody has written" in line
        assert re.search(r"lane 30 \(and 9 more\), offset 30 of 64", line)


CAPTURED = """
import torch, torch_npu, triton, triton.language as tl

@triton.jit
def kernel(x_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)

x, other = torch.zeros(48).npu(), torch.npu.Stream()
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    kernel[(1,)](x, 48, 64)
graph.replay()  # writes x
with torch.npu.stream(other):
    x * 2  # reads x
torch.npu.synchronize()
del x
graph.replay()
torch.npu.synchronize()
"""


def test_a_captured_launch_under_the_checks(tmp_path):
    program = tmp_path / "captured.py"
    program.write_text(CAPTURED)
    lines = {line.partition("  # ")[2]: number for number, line in enumerate(CAPTURED.splitlines(), 1)}
    _, reports, stderr = checked(tmp_path, sys.executable, program, checks="race,memory")
    conflict = next(each for each in reports if each["check"] == "race")
    assert conflict["first"].startswith("captured graph: kernel on stream 0 writes its argument 1")
    assert conflict["first"].endswith(f"launched at {program}:{lines['writes x']} in <module>")
    assert conflict["second"].endswith(f"launched at {program}:{lines['reads x']} in <module>")
    assert "captured graph on stream 0 of device 0 failed: kernel" in stderr
    assert "tl.load of an element of `x_ptr` that nobody has written" in stderr


def test_poison_is_that_of_the_check():
    from cann_cpu.triton.kernel import POISON

    header = Path(__file__).parents[3] / "cann_cpu/runtime/checks/memory/guarded.h"
    found = re.search(r"kPoison\[\] = \{0x(\w\w), 0x(\w\w)\}", header.read_text())
    assert bytes(int(byte, 16) for byte in found.groups()) == POISON


def test_which_arguments_are_written():
    import triton_kernels
    from cann_cpu.triton.kernel import Analysis

    for kernel, written in {
        triton_kernels.add_kernel: {"out_ptr"},
        triton_kernels.matmul_kernel: {"c_ptr"},
        triton_kernels.histogram_kernel: {"out_ptr", "old_ptr"},
        triton_kernels.locked_kernel: {"lock_ptr", "sum_ptr"},
        triton_kernels.gather_kernel: {"out_ptr"},
        block_pointer_kernel: {"out_ptr"},
        descriptor_kernel: {"out_ptr"},
    }.items():
        assert {name for name in Analysis(kernel).written if name.endswith("_ptr")} == written
    assert Analysis(triton_kernels.locked_kernel).one_at_a_time
    assert not Analysis(triton_kernels.collatz_kernel).one_at_a_time


@triton.jit
def product(x, y):
    return x * y


@triton.jit
def rows_kernel(x_ptr, out_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, OWN: tl.constexpr):
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(1, COLUMNS + 1)[None, :]
    x = tl.load(x_ptr + row * COLUMNS + column - 1) + tl.zeros([ROWS, COLUMNS], tl.float32)
    y = tl.reduce(x, 1, product) if OWN else tl.sum(x, 1) + tl.max(x, 1)
    tl.store(out_ptr + tl.arange(0, ROWS), y)


def test_blocks_of_any_size():
    x = torch.randn(5, 7)
    out = torch.empty(5).npu()
    launched(rows_kernel, (1,), x.npu(), out, 5, 7, False)
    torch.testing.assert_close(out.cpu(), x.sum(1) + x.amax(1))
    launched(rows_kernel, (1,), x.npu(), out, 5, 4, True)
    torch.testing.assert_close(out.cpu(), x.flatten()[:20].view(5, 4).prod(1))
    launched(rows_kernel, (1,), x.npu(), out, 5, 7, True)
    torch.testing.assert_close(out.cpu(), x.prod(1))


@triton.jit
def scaled_kernel(x_ptr, factor_ptr, BLOCK: tl.constexpr):
    places = x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(places, tl.load(places) * tl.load(factor_ptr + tl.program_id(0)))


def test_a_scalar_of_each_program_takes_no_buffer():
    """The block alone takes 172 of 192 KiB."""
    x, factors = torch.randn(3, 44032), torch.tensor([2.0, 3.0, 4.0])
    scaled = x.npu()
    launched(scaled_kernel, (3,), scaled, factors.npu(), 44032)
    assert torch.equal(scaled.cpu(), x * factors[:, None])


@triton.jit
def saturated_kernel(x_ptr, y_ptr, out_ptr, KIND: tl.constexpr, N: tl.constexpr):
    places = tl.arange(0, N)
    x = tl.load(x_ptr + places, mask=places < N - 1, care_padding=False)
    tl.store(out_ptr + places, x.cast(KIND, overflow_mode="saturate"), mask=places < N - 1)
    tl.store(out_ptr + N - 1, tl.cast(tl.load(y_ptr), KIND, overflow_mode="saturate"))


@pytest.mark.skipif(ASCEND, reason="triton-ascend 3.2.0 has neither argument; later ones have")
@pytest.mark.parametrize("kind", [torch.int8, torch.uint8])
def test_arguments_of_later_versions_of_triton_ascend(kind):
    x, y = torch.tensor([-300, -1, 7, 300, 0], dtype=torch.int32), torch.tensor([1e9])
    out = torch.empty(5, dtype=kind).npu()
    launched(saturated_kernel, (1,), x.npu(), y.npu(), out, getattr(tl, str(kind)[6:]), 5)
    limits = torch.iinfo(kind)
    assert torch.equal(out.cpu(), torch.cat([x[:4], y]).clamp(limits.min, limits.max).to(kind))


@triton.jit
def library_kernel(x_ptr, out_ptr, FUNCTION: tl.constexpr, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(out_ptr + places, FUNCTION(tl.load(x_ptr + places)))


@pytest.mark.skipif(ASCEND, reason="its libdevice has other names")
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("erf", torch.erf),
        ("erfinv", torch.erfinv),
        ("lgamma", torch.lgamma),
        ("cyl_bessel_i0", torch.special.i0),
        ("fast_expf", torch.exp),
        ("fast_logf", torch.log),
        ("fast_log2f", torch.log2),
    ],
)
def test_functions_of_libdevice(name, function):
    x = torch.rand(8)
    out = torch.empty(8).npu()
    launched(library_kernel, (1,), x.npu(), out, getattr(triton.language.extra.libdevice, name), 8)
    torch.testing.assert_close(out.cpu(), function(x))


@triton.jit
def moving_kernel(x_ptr, out_ptr, last, unused, BY: tl.constexpr, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(out_ptr + places, tl.load(x_ptr + places) + BY, mask=places < last)


def test_a_compiled_kernel_knows_its_constants():
    x, out = torch.arange(4).npu(), torch.zeros(4, dtype=torch.int64).npu()
    compiled = moving_kernel[(1,)](x, out, 1, None, 5, 4)
    assert out.tolist() == [5, 0, 0, 0]
    out.zero_()
    compiled[(1, 1, 1)](x + 1, out, 1, None)
    assert out.tolist() == [6, 0, 0, 0]


@triton.jit
def largest_of(kind):
    return 2 ** (kind.value.int_bitwidth - 1) - 1


@triton.jit
def largest_kernel(out_ptr):
    tl.store(out_ptr, largest_of(out_ptr.dtype.element_ty))


def test_types_are_constants_of_called_functions():
    out = torch.zeros(1, dtype=torch.int16).npu()
    launched(largest_kernel, (1,), out)
    assert out.item() == 32767


@triton.autotune([triton.Config({"BLOCK": block}) for block in (65536, 1024)], key=["size"])
@triton.jit
def sized_kernel(x_ptr, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + places, 1, mask=places < size)


def test_configurations_that_are_too_big_are_left_out():
    x = torch.zeros(3000).npu()
    sized_kernel[lambda meta: (triton.cdiv(3000, meta["BLOCK"]),)](x, 3000)
    assert x.sum().item() == 3000
    assert sized_kernel.best_config.kwargs == {"BLOCK": 1024}


@triton.jit
def product_kernel(x_ptr, y_ptr, out_ptr, DEPTH: tl.constexpr, SIZE: tl.constexpr, SCALE: tl.constexpr):
    row, column, k = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :], tl.arange(0, 16)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for start in range(0, DEPTH, 16):
        x = tl.load(x_ptr + row * DEPTH + start + k[None, :])
        total += tl.dot(x, tl.load(y_ptr + (start + k)[:, None] * SIZE + column))
    tl.store(out_ptr + row * SIZE + column, (total * SCALE if SCALE != 1 else total).to(tl.float16))


def test_sums_of_products_take_no_room_in_the_unified_buffer():
    """256 x 256 float32 are 256 KiB, more than it has."""
    x, y = torch.randint(-3, 4, (256, 32)).half(), torch.randint(-3, 4, (32, 256)).half()
    out = torch.zeros(256, 256, dtype=torch.float16).npu()
    launched(product_kernel, (1,), x.npu(), y.npu(), out, 32, 256, 1)
    assert torch.equal(out.cpu(), (x.float() @ y.float()).half())
    with pytest.raises(RuntimeError, match="take 262144 bytes of a program, and the unified buffer has 196608"):
        launched(product_kernel, (1,), x.npu(), y.npu(), out, 32, 256, 2)


@triton.jit
def gate_kernel(x_ptr, out_ptr, N: tl.constexpr):
    places = tl.arange(0, N)
    x = tl.load(x_ptr + places)
    tl.store(out_ptr + places, x * tl.sigmoid(x) + tl.sqrt(tl.exp(x)) + tl.erf(x))


@pytest.mark.skipif(ASCEND, reason="triton-ascend 3.2.0 rejects it; later ones take it")
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_functions_of_halves(kind):
    x = torch.randn(64).to(kind)
    out = torch.empty(64, dtype=kind).npu()
    launched(gate_kernel, (1,), x.npu(), out, 64)
    wide = x.double()
    expected = wide * wide.sigmoid() + (wide / 2).exp() + wide.erf()
    torch.testing.assert_close(out.cpu().double(), expected, rtol=0.02, atol=0.02)


@triton.jit
def scalar_index_kernel(x_ptr, out_ptr, at, N: tl.constexpr):
    rows = tl.arange(0, N)
    place = at[None, :]
    tl.store(out_ptr + rows[:, None] + 0 * place, tl.load(x_ptr + rows[:, None] * N + place))


def test_a_scalar_takes_an_index():
    x, out = torch.randn(4, 4).npu(), torch.empty(4).npu()
    launched(scalar_index_kernel, (1,), x, out, 2, 4)
    assert torch.equal(out, x[:, 2])


class Backwards:
    """A view that PyTorch has not, for a kernel: with a negative stride."""

    def __init__(self, tensor):
        self.tensor, self.dtype, self.shape = tensor, tensor.dtype, tensor.shape

    def __getattr__(self, name):
        return getattr(self.tensor, name)

    def data_ptr(self):
        return self.tensor[-1:].data_ptr()

    def stride(self):
        return (-1,)


@triton.jit
def backwards_kernel(x_ptr, out_ptr, size, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(out_ptr + places, tl.load(x_ptr - places, mask=places < size), mask=places < size)


def test_negative_strides():
    x, out = torch.randn(5).npu(), torch.empty(5).npu()
    launched(backwards_kernel, (1,), Backwards(x), out, 5, 8)
    assert torch.equal(out.cpu(), x.cpu().flip(0))
    assert "1 element before the start" in failure(backwards_kernel, (1,), Backwards(x), torch.empty(6).npu(), 6, 8)


@triton.jit
def wide_product_kernel(x_ptr, y_ptr, out_ptr, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    rows, inner, columns = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for _ in range(1):
        x = tl.load(x_ptr + rows[:, None] * K + inner[None, :])
        y = tl.load(y_ptr + inner[:, None] * N + columns[None, :])
        total += tl.dot(x, y)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], total)


def test_blocks_of_products_need_not_fit_the_unified_buffer():
    """Of the operands one takes 256 KiB, of the results two 128."""
    x, y, out = torch.randn(128, 512), torch.randn(512, 256), torch.empty(128, 256).npu()
    launched(wide_product_kernel, (1,), x.npu(), y.npu(), out, 128, 512, 256)
    torch.testing.assert_close(out.cpu(), x @ y, rtol=1e-4, atol=1e-3)


@triton.jit
def high_bit_kernel(x_ptr, N: tl.constexpr):
    places = x_ptr + tl.arange(0, N)
    tl.store(places, tl.load(places) | 0x80)


def test_a_number_wraps_in_the_type_of_the_tensor():
    x = torch.tensor([1, 2], dtype=torch.int8).npu()
    launched(high_bit_kernel, (1,), x, 2)
    assert x.tolist() == [-127, -126]
