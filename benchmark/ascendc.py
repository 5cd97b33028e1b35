# SPDX-License-Identifier: Apache-2.0
"""Times Ascend C kernels on the CPU: reshape_and_cache beside a copy, products of matrices and kernels of the vector
unit beside ATen's operators, the price of the checks, and the compiler.

The last column has the goal of a row, and whether it is kept. A goal that is missed does not change the exit code.
"""

import os
import resource
import runpy
import statistics
import sys
import time
from pathlib import Path

import torch
from cann_cpu.kernel import KernelFile
from measure import fastest, medians

import custom_pypto

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test/ascendc"))
import matmul_tiling  # noqa: E402

OPP = ROOT / "opp"
EXAMPLES = ("softmax", "top64", "histogram", "rotary", "matmul")
TOKENS, HEADS, WIDTH, BLOCK, LAYERS, ROUNDS = 4096, 8, 128, 128, 4, 15
SHARE_OF_COPY, PRICE_OF_CHECKS, COMPILE_SECONDS = 0.8, 3, 3
SIZE_OF_PRODUCT, SHARE_OF_PRODUCT = 1024, 0.5
ROWS_OF_PRODUCT, WEIGHT_OF_PRODUCT, SHARE_OF_MEMORY = 16, (7168, 2048), 0.6
BLOCKS_OF_PRODUCT = 8
LIBRARY_TYPES = {torch.float16: 1, torch.bfloat16: 3, torch.float32: 4, torch.int8: 5}  # of its test's kernel
EXAMPLE_COMPILE_SECONDS = 2
TIMES_OF_ATEN = 1.5
ROW = "{:<58}{:>10}{:>12}{:>18}"


def layer(checks: str):
    """A call with its own operands and slots in a random order, as a scheduler assigns them."""
    rows = [torch.randn(TOKENS, HEADS, WIDTH).bfloat16().npu() for _ in range(2)]
    caches = [torch.zeros(2 * TOKENS // BLOCK, BLOCK, HEADS, WIDTH).bfloat16().npu() for _ in range(2)]
    slots = torch.randperm(2 * TOKENS)[:TOKENS].int().npu()

    def call():
        os.environ["ASCENDC_CPU_CHECKS"] = checks
        custom_pypto.reshape_and_cache(*rows, *caches, slots)
        torch.npu.synchronize()  # the launch has read the variable

    return call


def copy():
    """A copy of as many bytes, with all threads, to memory and from memory that no cache holds."""
    source, target = (torch.zeros(2 * TOKENS * HEADS * WIDTH, dtype=torch.bfloat16) for _ in range(2))
    return lambda: target.copy_(source)


def compiled(source: Path) -> tuple[KernelFile, float]:
    """The file, and the processor time of the compiler: what else the machine does makes no difference."""

    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    file = KernelFile(source, (f"-I{OPP}",))
    return file, spent() - before


def example_lines(name: str) -> None:
    """An example with the arguments that its Python file gives, checked and not."""
    path = ROOT / "examples/kernels" / name
    described = runpy.run_path(str(path.with_suffix(".py")))
    file, compiling = compiled(path.with_suffix(".cpp"))
    arguments = [described["arguments"][parameter] for parameter in file[name].parameters]
    times = {False: [], True: []}
    for _ in range(ROUNDS):
        for checks, of_checks in times.items():
            start = time.perf_counter()
            file[name](*arguments, blocks=described["blocks"], checks=checks)
            of_checks.append(time.perf_counter() - start)
    off, on = (statistics.median(times[checks]) for checks in (False, True))
    price, limit, seconds = on / off, PRICE_OF_CHECKS, EXAMPLE_COMPILE_SECONDS
    line(f"examples/kernels/{name}.cpp", f"{off * 1e3:.2f}", "", "", True)
    line("  with the checks on", f"{on * 1e3:.2f}", f"{price:.1f}x", f"{limit}x", price <= limit)
    line("  compiling it", f"{compiling * 1e3:.0f}", "", f"{seconds} s", compiling < seconds)


def products(dtype: torch.dtype, m: int, n: int, k: int) -> dict[str, list]:
    """A product by the instructions of the matrix unit, by the Matmul library, and by ATen in the dtype that it
    multiplies fastest."""
    if dtype == torch.int8:
        a, b = (torch.randint(-128, 128, size, dtype=dtype) for size in ((m, k), (k, n)))
        c_dtype = torch.int32
    else:
        a, b = (torch.randn(size).to(dtype) for size in ((m, k), (k, n)))
        c_dtype = dtype
    c = torch.zeros(m, n, dtype=c_dtype)
    name, c_name = (str(of).removeprefix("torch.") for of in (dtype, c_dtype))
    instructions = KernelFile(ROOT / "benchmark/matrix_product.cpp", (f"-I{OPP}",))[name]
    library = KernelFile(ROOT / "test/ascendc/kernels/matmul.cpp")["multiply"]
    dim = 2 * BLOCKS_OF_PRODUCT  # of vector cores, which have the library's objects
    tiling, _ = matmul_tiling.make(kind=1, dim=dim, shape=(m, n, k), org=(m, n, k, k), type=name, c_type=c_name)
    types = LIBRARY_TYPES[dtype]
    operands = [x.view(torch.int16) if x.dtype == torch.bfloat16 else x for x in (a, b, c)]
    wide = [x.to(fastest(dtype)) for x in (a, b)]
    multiply = torch._int_mm if wide[0].dtype == torch.int8 else torch.matmul

    def by_library():
        given = (*operands[:2], None, operands[2], None, tiling, False, False, types, 0, 0)
        library(*given, blocks=BLOCKS_OF_PRODUCT, checks=False)

    return {
        "Mmad": [lambda: instructions(*operands, m, n, k, blocks=BLOCKS_OF_PRODUCT, checks=False)],
        "the Matmul library": [by_library],
        "ATen": [lambda: multiply(*wide)],
    }


def product_lines() -> None:
    """Products beside ATen's, and those of few rows beside the bandwidth of reading the weight."""
    for dtype in LIBRARY_TYPES:
        name, m, size = str(dtype).removeprefix("torch."), ROWS_OF_PRODUCT, SIZE_OF_PRODUCT
        times = medians(products(dtype, size, size, size), ROUNDS // 3)
        peer = f"ATen's of {str(fastest(dtype)).removeprefix('torch.')}"
        line(f"{size} x {size} x {size}, {name}: {peer}", f"{times['ATen'] * 1e3:.2f}", "", "", True)
        for way in ("Mmad", "the Matmul library"):
            share, goal = times["ATen"] / times[way], SHARE_OF_PRODUCT
            line(f"  by {way}", f"{times[way] * 1e3:.2f}", f"{share:.0%}", f"{goal:.0%}", share >= goal)
        k, n = WEIGHT_OF_PRODUCT
        weight = k * n * dtype.itemsize
        memory = torch.ones(1 << 26)
        times = medians(products(dtype, m, n, k) | {"read": [lambda memory=memory: memory.sum()]}, ROUNDS // 3)
        bandwidth = memory.nbytes / times["read"]
        peer = f"ATen's; memory has {bandwidth / 1e9:.0f} GB/s"
        line(f"{m} x {k} x {n}, {name}: {peer}", f"{times['ATen'] * 1e3:.2f}", "", "", True)
        for way in ("Mmad", "the Matmul library"):
            share, goal = weight / times[way] / bandwidth, SHARE_OF_MEMORY
            line(f"  by {way}", f"{times[way] * 1e3:.2f}", f"{share:.0%}", f"{goal:.0%}", share >= goal)


def beside_aten(name: str, rounds: int, kernel, operator) -> None:
    """A row with the times of a kernel and of ATen's operator on the npu device, which give the same result."""
    torch.testing.assert_close(kernel(), operator(), rtol=1e-4, atol=1e-5)
    times = medians({"kernel": [kernel], "operator": [operator]}, rounds)
    ratio = times["kernel"] / times["operator"]
    line(name, f"{times['kernel'] * 1e3:.3f}", "", "", True)
    of = f"  beside ATen's, {times['operator'] * 1e3:.3f} ms"
    line(of, "", f"{ratio:.1f}x", f"{TIMES_OF_ATEN}x", ratio <= TIMES_OF_ATEN)


def vector_lines() -> None:
    """Kernels of the vector unit beside ATen's operators. A ratio that misses its goal is marked, and fails nothing."""
    for size in (16, 4096, 65536, 1 << 20, 1 << 24):
        a, b = (torch.randn(size).npu() for _ in range(2))
        beside_aten(
            f"add_custom, {size} floats",
            ROUNDS,
            lambda a=a, b=b: custom_pypto.add_custom(a, b),
            lambda a=a, b=b: torch.add(a, b),
        )
    rows, columns, epsilon = 2048, 4096, 1e-5
    x, gamma, beta = (torch.randn(*shape).npu() for shape in ((rows, columns), (columns,), (columns,)))
    y, blocks = torch.empty_like(x), 2 * torch.get_num_threads()
    file, shape = KernelFile(ROOT / "benchmark/kernels/rows.cpp"), f"{rows} rows of {columns} floats"

    def kernel(name, *operands):
        def call():
            file[name](*operands, blocks=blocks, checks=False)
            return y

        return call

    beside_aten(
        f"SoftMax, {shape}", ROUNDS, kernel("softmax_rows", x, y, rows, columns), lambda: torch.softmax(x, dim=-1)
    )
    beside_aten(
        f"LayerNorm, {shape}",
        ROUNDS,
        kernel("layer_norm_rows", x, gamma, beta, y, rows, columns, epsilon),
        lambda: torch.nn.functional.layer_norm(x, (columns,), gamma, beta, epsilon),
    )
    beside_aten(
        f"RmsNorm, {shape}",
        ROUNDS,
        kernel("rms_norm_rows", x, gamma, y, rows, columns, epsilon),
        lambda: torch.nn.functional.rms_norm(x, (columns,), gamma, epsilon),
    )
    rotary, (tokens, heads, dim) = KernelFile(ROOT / "examples/kernels/rotary.cpp")["rotary"], (2048, 16, 128)
    x = torch.randn(tokens, heads, dim).npu()
    cos, sin = (torch.randn(tokens, dim).npu() for _ in range(2))
    y = torch.empty_like(x)

    def turned():
        rotary(x, cos, sin, y, tokens, heads, dim, blocks=blocks, checks=False)
        return y

    def by_aten():
        one, other = x.chunk(2, dim=-1)
        return x * cos[:, None] + torch.cat((-other, one), dim=-1) * sin[:, None]

    beside_aten(f"rotary embedding, {tokens} tokens, {heads} heads of {dim}", ROUNDS, turned, by_aten)


def line(name: str, value: str, figure: str, limit: str, kept: bool) -> None:
    print(ROW.format(name, value, figure, f"{limit} {'kept' if kept else 'MISSED'}" if limit else ""))


def main() -> None:
    size = 2 * TOKENS * HEADS * WIDTH * 2
    sizes = f"{TOKENS} tokens, {HEADS} heads of {WIDTH}, bfloat16, ND"
    times = medians(
        {
            "copy": [copy() for _ in range(LAYERS)],
            "off": [layer("0") for _ in range(LAYERS)],
            "on": [layer("1") for _ in range(LAYERS)],
        },
        ROUNDS,
    )
    os.environ["ASCENDC_CPU_CHECKS"] = "0"  # for the operators of the other rows
    _, compiling = compiled(OPP / "op_kernel" / "reshape_and_cache.cpp")

    share, price, limit = times["copy"] / times["off"], times["on"] / times["off"], COMPILE_SECONDS
    print(f"Ascend C kernels on the CPU: medians of {ROUNDS} rounds, {torch.get_num_threads()} threads")
    print(ROW.format("", "ms", "GB/s", "limit"))
    speed = {name: f"{size / seconds / 1e9:.1f}" for name, seconds in times.items()}
    line("copy of as many bytes", f"{times['copy'] * 1e3:.2f}", speed["copy"], "", True)
    line(f"reshape_and_cache, {sizes}", f"{times['off'] * 1e3:.2f}", speed["off"], "", True)
    line("  beside the copy", "", f"{share:.0%}", f"{SHARE_OF_COPY:.0%}", share >= SHARE_OF_COPY)
    line("the same with the checks on", f"{times['on'] * 1e3:.2f}", speed["on"], "", True)
    line("  beside without", "", f"{price:.1f}x", f"{PRICE_OF_CHECKS}x", price <= PRICE_OF_CHECKS)
    line("compiling its kernel file", f"{compiling * 1e3:.0f}", "", f"{limit} s", compiling < limit)
    product_lines()
    vector_lines()
    for name in EXAMPLES:
        example_lines(name)


if __name__ == "__main__":
    main()
