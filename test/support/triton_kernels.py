# SPDX-License-Identifier: Apache-2.0
"""Kernels that are right: each with the calls that the tests make, and what PyTorch computes for them."""

import math

import torch
import triton
import triton.language as tl

CASES = {}


class Case:
    """A kernel, its grid, its arguments by name, and what is to be in those of them that it writes."""

    def __init__(self, kernel, grid, arguments, expected, exact=True, **tolerance):
        self.kernel, self.grid, self.arguments, self.expected = kernel, grid, arguments, expected
        self.exact, self.tolerance = exact, tolerance

    def on(self, device):
        """The arguments with tensors on a device."""
        move = lambda value: value.to(device) if isinstance(value, torch.Tensor) else value  # noqa: E731
        return {name: move(value) for name, value in self.arguments.items()}


def case(function):
    CASES[function.__name__] = function
    return function


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def randint(high, shape, dtype=torch.int32, seed=0, low=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def _add(dtype):
    x, y = randn(1000, dtype=dtype), randn(1000, dtype=dtype, seed=1)
    arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": torch.empty_like(x), "n": 1000, "BLOCK": 128}
    return Case(add_kernel, (8,), arguments, {"out_ptr": x + y})


@case
def add():
    return _add(torch.float32)


@case
def add_float16():
    return _add(torch.float16)


@case
def add_bfloat16():
    return _add(torch.bfloat16)


@triton.jit
def softmax_kernel(out_ptr, in_ptr, row_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(in_ptr + row * row_stride + at, mask=at < columns, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * row_stride + at, x / tl.sum(x, axis=0), mask=at < columns)


@case
def softmax():
    x = randn(37, 100)
    arguments = {"out_ptr": torch.empty_like(x), "in_ptr": x, "row_stride": 100, "columns": 100, "BLOCK": 128}
    return Case(softmax_kernel, (37,), arguments, {"out_ptr": x.softmax(1)}, exact=False)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP * blocks_n
    group = pid // in_group
    first = group * GROUP
    size = min(blocks_m - first, GROUP)
    pid_m = first + (pid % in_group) % size
    pid_n = (pid % in_group) // size
    rows = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + columns[None, :] * stride_bn
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=k[None, :] < K - step * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < K - step * BLOCK_K, other=0.0)
        sums = tl.dot(a, b, sums)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@case
def matmul():
    a, b = randn(50, 70, dtype=torch.float16), randn(70, 90, dtype=torch.float16, seed=1)
    c = torch.empty(50, 90, dtype=torch.float16)
    arguments = dict(
        zip(matmul_kernel.arg_names, (a, b, c, 50, 90, 70, 70, 1, 90, 1, 90, 1, 16, 32, 16, 2), strict=True)
    )
    return Case(
        matmul_kernel, (4 * 3,), arguments, {"c_ptr": (a.float() @ b.float()).half()}, exact=False, rtol=2e-3, atol=2e-3
    )


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    out_ptr += row * stride
    mean = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mean += tl.load(x_ptr + at, mask=at < N, other=0.0).to(tl.float32)
    mean = tl.sum(mean, axis=0) / N
    variance = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < N, other=0.0).to(tl.float32)
        x = tl.where(at < N, x - mean, 0.0)
        variance += x * x
    rstd = 1 / tl.sqrt(tl.sum(variance, axis=0) / N + eps)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        w = tl.load(w_ptr + at, mask=mask)
        b = tl.load(b_ptr + at, mask=mask)
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + at, (x - mean) * rstd * w + b, mask=mask)


@case
def layer_norm():
    x, w, b = randn(9, 200, dtype=torch.bfloat16), randn(200, seed=1), randn(200, seed=2)
    out = torch.empty(9, 200)
    arguments = dict(zip(layer_norm_kernel.arg_names, (x, w, b, out, 200, 200, 1e-5, 64), strict=True))
    expected = torch.nn.functional.layer_norm(x.float(), (200,), w, b, 1e-5)
    return Case(layer_norm_kernel, (9,), arguments, {"out_ptr": expected}, exact=False, rtol=1e-4, atol=1e-5)


@triton.jit
def collatz_kernel(x_ptr, steps_ptr, n, BLOCK: tl.constexpr):
    """Programs that go different ways, and loops of different length."""
    for i in range(tl.program_id(0), n, tl.num_programs(0)):
        x = tl.load(x_ptr + i)
        steps = 0
        while x != 1:
            if x % 2 == 0:  # noqa: SIM108
                x = x // 2
            else:
                x = 3 * x + 1
            steps += 1
        tl.store(steps_ptr + i, steps)


@case
def collatz():
    x = torch.arange(1, 101, dtype=torch.int32)

    def steps(n):
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    expected = torch.tensor([steps(int(n)) for n in x], dtype=torch.int32)
    arguments = {"x_ptr": x, "steps_ptr": torch.zeros_like(x), "n": 100, "BLOCK": 1}
    return Case(collatz_kernel, (7,), arguments, {"steps_ptr": expected})


@triton.jit
def _clipped(x, low):
    if x < low:
        return low
    elif x > 2 * low:
        return 2 * low
    return x


@triton.jit
def early_return_kernel(x_ptr, length_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(length_ptr + row)
    if length <= 0:
        return
    total = 0.0
    for i in range(length):
        total += tl.load(x_ptr + row * n + i)
    if length > 3:
        limited = _clipped(total, 1.0)
        if limited == 2.0:
            tl.store(out_ptr + row, -1.0)
            return
        total = limited
    else:
        total = total * 2 if total > 0 else total * 4
    tl.store(out_ptr + row, total)


@case
def early_return():
    x, lengths = randn(20, 8), randint(8, (20,), low=-1)
    expected = torch.zeros(20)
    for row in range(20):
        length = int(lengths[row])
        if length <= 0:
            continue
        total = torch.zeros(())
        for i in range(length):
            total += x[row, i]
        if length > 3:
            total = total.clamp(1.0, 2.0)
            total = torch.tensor(-1.0) if total == 2.0 else total
        else:
            total = total * 2 if total > 0 else total * 4
        expected[row] = total
    arguments = {"x_ptr": x, "length_ptr": lengths, "out_ptr": torch.zeros(20), "n": 8, "BLOCK": 8}
    return Case(early_return_kernel, (20,), arguments, {"out_ptr": expected})


@triton.jit
def histogram_kernel(x_ptr, out_ptr, old_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0)
    old = tl.atomic_add(out_ptr + x, 1, mask=mask)
    tl.store(old_ptr + at, old, mask=mask)


@case
def histogram():
    x = randint(7, (300,))
    old = torch.zeros(300, dtype=torch.int32)
    for i in range(300):
        old[i] = (x[:i] == x[i]).sum()
    arguments = {
        "x_ptr": x,
        "out_ptr": torch.zeros(7, dtype=torch.int32),
        "old_ptr": torch.zeros_like(x),
        "n": 300,
        "BLOCK": 64,
    }
    return Case(histogram_kernel, (5,), arguments, {"out_ptr": torch.bincount(x, minlength=7).int(), "old_ptr": old})


@triton.jit
def locked_kernel(lock_ptr, sum_ptr, x_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(sum_ptr, tl.load(sum_ptr) + tl.load(x_ptr + tl.program_id(0)))
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@case
def locked():
    x = randint(100, (50,))
    arguments = {
        "lock_ptr": torch.zeros(1, dtype=torch.int32),
        "sum_ptr": torch.zeros(1, dtype=torch.int32),
        "x_ptr": x,
    }
    return Case(locked_kernel, (50,), arguments, {"sum_ptr": x.sum(0, keepdim=True).int()})


@triton.jit
def reductions_kernel(x_ptr, out_ptr, index_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + tl.program_id(0) * M * N + at)
    rows = tl.arange(0, M)
    out_ptr += tl.program_id(0) * 5 * M
    index_ptr += tl.program_id(0) * 2 * M
    tl.store(out_ptr + rows, tl.max(x, axis=1))
    tl.store(out_ptr + M + rows, tl.min(x, axis=1))
    tl.store(out_ptr + 2 * M + rows, tl.sum(x, axis=1))
    tl.store(out_ptr + 3 * M + rows, tl.sum(x) + rows)
    tl.store(out_ptr + 4 * M + rows, tl.max(tl.cumsum(x, axis=1), axis=1))
    tl.store(index_ptr + rows, tl.argmax(x, axis=1))
    tl.store(index_ptr + M + rows, tl.argmin(x, axis=1))


@case
def reductions():
    x = randint(50, (3, 8, 16)).float()
    rows = torch.arange(8.0)
    floats = [
        torch.cat([x[i].amax(1), x[i].amin(1), x[i].sum(1), x[i].sum() + rows, x[i].cumsum(1).amax(1)])
        for i in range(3)
    ]
    indices = [torch.cat([x[i].argmax(1), x[i].argmin(1)]).int() for i in range(3)]
    arguments = {
        "x_ptr": x,
        "out_ptr": torch.zeros(3, 40),
        "index_ptr": torch.zeros(3, 16, dtype=torch.int32),
        "M": 8,
        "N": 16,
    }
    return Case(reductions_kernel, (3,), arguments, {"out_ptr": torch.stack(floats), "index_ptr": torch.stack(indices)})


@triton.jit
def _linear(a, b, c, d):
    """x -> a x + b, and then c x + d."""
    return a * c, b * c + d


@triton.jit
def _largest_product(a, b):
    return tl.maximum(a * b, a + b)


@triton.jit
def scan_kernel(a_ptr, b_ptr, out_ptr, last_ptr, N: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    a = tl.load(a_ptr + at)
    b = tl.load(b_ptr + at)
    _, y = tl.associative_scan((a, b), 0, _linear, reverse=REVERSE)
    tl.store(out_ptr + at, y)
    last_a, last_b = tl.reduce((a, b), 0, _linear)
    tl.store(last_ptr + tl.program_id(0), last_a + last_b)


def _scan(reverse):
    a, b = randint(3, (4, 16), low=-1).float(), randint(5, (4, 16), seed=1).float()
    expected, last = torch.zeros(4, 16), torch.zeros(4)
    for row in range(4):
        order = range(15, -1, -1) if reverse else range(16)
        y = torch.zeros(())
        for k in order:
            y = a[row, k] * y + b[row, k]
            expected[row, k] = y
        product, y = torch.ones(()), torch.zeros(())
        for k in range(16):
            product, y = product * a[row, k], a[row, k] * y + b[row, k]
        last[row] = product + y
    arguments = {
        "a_ptr": a,
        "b_ptr": b,
        "out_ptr": torch.zeros(4, 16),
        "last_ptr": torch.zeros(4),
        "N": 16,
        "REVERSE": reverse,
    }
    return Case(scan_kernel, (4,), arguments, {"out_ptr": expected, "last_ptr": last})


@case
def scan():
    return _scan(False)


@case
def scan_reversed():
    return _scan(True)


@triton.jit
def shapes_kernel(x_ptr, sorted_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x_ptr += tl.program_id(0) * N
    sorted_ptr += tl.program_id(0) * N
    out_ptr += tl.program_id(0) * N
    x = tl.load(x_ptr + at)
    tl.store(sorted_ptr + at, tl.sort(x, descending=True))
    y = tl.trans(tl.reshape(x, (4, N // 4)))
    y = tl.reshape(y, (N,))
    left, right = tl.split(tl.reshape(y, (N // 2, 2)))
    y = tl.reshape(tl.join(right, left), (N,))
    tl.store(out_ptr + at, tl.flip(y))


@case
def shapes():
    x = randn(3, 32)
    y = x.reshape(3, 4, 8).transpose(1, 2).reshape(3, 16, 2).flip(2).reshape(3, 32).flip(1)
    arguments = {"x_ptr": x, "sorted_ptr": torch.zeros_like(x), "out_ptr": torch.zeros_like(x), "N": 32}
    return Case(shapes_kernel, (3,), arguments, {"sorted_ptr": x.sort(1, descending=True).values, "out_ptr": y})


@triton.jit
def integers_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = tl.load(y_ptr + at)
    tl.store(out_ptr + at, x // y)
    tl.store(out_ptr + BLOCK + at, x % y)
    tl.store(out_ptr + 2 * BLOCK + at, (x << 3) ^ (y >> 1))
    tl.store(out_ptr + 3 * BLOCK + at, (x & y) | ~x)
    tl.store(out_ptr + 4 * BLOCK + at, (x.to(tl.uint32) >> 28).to(tl.int32))
    tl.store(out_ptr + 5 * BLOCK + at, tl.maximum(x, y) - tl.minimum(x, y) * 7)
    tl.store(out_ptr + 6 * BLOCK + at, ((x > 0) and (y != 3)).to(tl.int32))
    tl.store(out_ptr + 7 * BLOCK + at, tl.where(x < y, x.to(tl.float32) * 1.5, -2.0).to(tl.int32))


@case
def integers():
    x, y = randint(1000, (64,), low=-1000), randint(9, (64,), low=1, seed=1)
    rows = [
        torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), (x << 3) ^ (y >> 1), (x & y) | ~x,
        ((x.long() & 0xFFFFFFFF) >> 28).int(), torch.maximum(x, y) - torch.minimum(x, y) * 7,
        ((x > 0) & (y != 3)).int(), torch.where(x < y, x.float() * 1.5, torch.tensor(-2.0)).int(),
    ]  # fmt: skip
    arguments = {"x_ptr": x, "y_ptr": y, "out_ptr": torch.zeros(8, 64, dtype=torch.int32), "BLOCK": 64}
    return Case(integers_kernel, (1,), arguments, {"out_ptr": torch.stack(rows)})


@triton.jit
def functions_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.sigmoid(x))
    tl.store(out_ptr + BLOCK + at, tl.erf(x))
    tl.store(out_ptr + 2 * BLOCK + at, tl.rsqrt(tl.abs(x)))
    tl.store(out_ptr + 3 * BLOCK + at, tl.exp2(x) + tl.log2(tl.abs(x)))
    tl.store(out_ptr + 4 * BLOCK + at, tl.cos(x) * tl.sin(x))
    tl.store(out_ptr + 5 * BLOCK + at, tl.clamp(x, -0.5, 0.5) + tl.floor(x))
    tl.store(out_ptr + 6 * BLOCK + at, tl.fma(x, x, x))
    tl.store(out_ptr + 7 * BLOCK + at, tl.softmax(x))


@case
def functions():
    x = randn(64)
    rows = [
        x.sigmoid(), x.erf(), x.abs().rsqrt(), x.exp2() + x.abs().log2(), x.cos() * x.sin(), x.clamp(-0.5, 0.5)
        + x.floor(), x * x + x, x.softmax(0),
    ]  # fmt: skip
    arguments = {"x_ptr": x, "out_ptr": torch.zeros(8, 64), "BLOCK": 64}
    return Case(functions_kernel, (1,), arguments, {"out_ptr": torch.stack(rows)}, exact=False)


@triton.jit
def random_kernel(out_ptr, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.rand(seed, at))


@case
def random():
    """The numbers of the Philox generator, which is all multiplications that wrap."""
    expected = []
    for counter in range(256):
        c, key = [counter, 0, 0, 0], [7, 0]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(b >> 32) ^ c[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ key[1], a & 0xFFFFFFFF]
            key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
        signed = c[0] - (c[0] >> 31 << 32)
        expected.append((-signed - 1 if signed < 0 else signed) * 4.6566127342e-10)
    arguments = {"out_ptr": torch.zeros(256), "seed": 7, "BLOCK": 64}
    return Case(random_kernel, (4,), arguments, {"out_ptr": torch.tensor(expected)}, exact=False)


@triton.jit
def strided_kernel(x_ptr, out_ptr, rows, columns, stride, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """A grid of three axes, static_range, a column that goes backwards, and a uniform load."""
    row = tl.program_id(0)
    plane = tl.program_id(2)
    first = tl.load(x_ptr)
    for part in tl.static_range(UNROLL):
        at = part * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + plane * rows * stride + row * stride + (columns - 1 - at), mask=at < columns, other=1.0)
        tl.store(out_ptr + (plane * rows + row) * columns + at, x - first, mask=at < columns)


@case
def strided():
    x = randn(2, 5, 24)
    arguments = {
        "x_ptr": x,
        "out_ptr": torch.zeros(2, 5, 20),
        "rows": 5,
        "columns": 20,
        "stride": 24,
        "BLOCK": 8,
        "UNROLL": 3,
    }
    return Case(strided_kernel, (5, 1, 2), arguments, {"out_ptr": x[:, :, :20].flip(2) - x[0, 0, 0]})


@triton.jit
def gather_kernel(table_ptr, index_ptr, out_ptr, bias_ptr, D: tl.constexpr):
    row = tl.load(index_ptr + tl.program_id(0))
    at = tl.arange(0, D)
    x = tl.load(table_ptr + row * D + at)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + at)
    tl.store(out_ptr + tl.program_id(0) * D + at, x)


@case
def embedding():
    table, index = randn(30, 16), randint(30, (11,), dtype=torch.int64)
    arguments = {"table_ptr": table, "index_ptr": index, "out_ptr": torch.zeros(11, 16), "bias_ptr": None, "D": 16}
    return Case(gather_kernel, (11,), arguments, {"out_ptr": table[index]})


@case
def embedding_with_bias():
    table, index, bias = randn(30, 16), randint(30, (11,), dtype=torch.int64), randn(16, seed=1)
    arguments = {"table_ptr": table, "index_ptr": index, "out_ptr": torch.zeros(11, 16), "bias_ptr": bias, "D": 16}
    return Case(gather_kernel, (11,), arguments, {"out_ptr": table[index] + bias})


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, length, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Causal attention with an online softmax, whose loops have another length in each program."""
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1) * length * D
    rows = start + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + head + rows[:, None] * D + d[None, :], mask=rows[:, None] < length, other=0.0)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    sums = tl.zeros((BLOCK_M, D), tl.float32)
    for column in range(0, tl.minimum(start + BLOCK_M, length), BLOCK_N):
        at = column + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + head + at[:, None] * D + d[None, :], mask=at[:, None] < length, other=0.0)
        v = tl.load(v_ptr + head + at[:, None] * D + d[None, :], mask=at[:, None] < length, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where((rows[:, None] >= at[None, :]) & (at[None, :] < length), scores, -float("inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        old = tl.exp(largest - new)
        total = total * old + tl.sum(weights, 1)
        sums = sums * old[:, None] + tl.dot(weights, v)
        largest = new
    tl.store(out_ptr + head + rows[:, None] * D + d[None, :], sums / total[:, None], mask=rows[:, None] < length)


@case
def attention():
    q, k, v = (randn(2, 75, 16, seed=seed) for seed in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    arguments = dict(
        zip(attention_kernel.arg_names, (q, k, v, torch.zeros_like(q), 75, 1 / math.sqrt(16), 16, 16, 32), strict=True)
    )
    return Case(attention_kernel, (5, 2), arguments, {"out_ptr": expected}, exact=False, rtol=1e-4, atol=1e-5)


@triton.jit
def float8_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x.to(tl.float8e4nv).to(tl.float32))
    tl.store(out_ptr + BLOCK + at, x.to(tl.float8e5).to(tl.float32))
    tl.store(out_ptr + 2 * BLOCK + at, x.to(tl.bfloat16).to(tl.float32))


@case
def float8():
    x = randn(64)
    rows = [x.to(dtype).float() for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16)]
    return Case(
        float8_kernel, (1,), {"x_ptr": x, "out_ptr": torch.zeros(3, 64), "BLOCK": 64}, {"out_ptr": torch.stack(rows)}
    )


@triton.jit
def int8_dot_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


@case
def int8_dot():
    a, b = (randint(127, (32, 32), torch.int8, seed, -128) for seed in (0, 1))
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": torch.zeros(32, 32, dtype=torch.int32), "N": 32}
    return Case(int8_dot_kernel, (1,), arguments, {"c_ptr": (a.long() @ b.long()).int()})


@triton.jit
def conditions_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Chained comparisons, expressions that programs choose differently, and constants in the body."""
    half: tl.constexpr = BLOCK // 2
    whole: tl.constexpr
    whole = half * 2
    pid = tl.program_id(0)
    at = tl.arange(0, whole)
    x = tl.load(x_ptr + at)
    middle = pid if 0 < pid < 3 else -pid
    even = not (pid % 2 == 1) and pid != 2  # noqa: SIM201
    tl.store(out_ptr + pid * BLOCK + at, tl.where((x > -1) & (x < 1), x * middle, 10.0) + even.to(tl.float32))


@case
def conditions():
    x = randn(8)
    rows = []
    for pid in range(5):
        middle = pid if 0 < pid < 3 else -pid
        rows.append(torch.where((x > -1) & (x < 1), x * middle, torch.tensor(10.0)) + float(pid % 2 == 0 and pid != 2))
    arguments = {"x_ptr": x, "out_ptr": torch.zeros(5, 8), "BLOCK": 8}
    return Case(conditions_kernel, (5,), arguments, {"out_ptr": torch.stack(rows)})
