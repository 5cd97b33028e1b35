# SPDX-License-Identifier: Apache-2.0
"""Kernels that are wrong in the ways that users of NPUs report, each beside the same kernel put right.

A row has a kernel and the arguments with which it is wrong and right, and what the error is to name.
"""

import torch
import triton
import triton.language as tl

ROWS = []


class Row:
    def __init__(self, fault, kernel, grid, wrong, right, named, right_kernel=None):
        self.fault, self.kernel, self.grid, self.wrong, self.right = fault, kernel, grid, wrong, right
        self.named, self.right_kernel = named, right_kernel or kernel
        self.name = f"{fault}-{kernel.__name__}-{sum(row.fault == fault for row in ROWS)}"


def row(*args, **kwargs):
    ROWS.append(Row(*args, **kwargs))


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype, device="npu")


def ints(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device="npu")


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, shift, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at + shift, mask=mask)
    tl.store(out_ptr + at, x, mask=mask)


@triton.jit
def unmasked_load_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x + 1, mask=at < n)


@triton.jit
def unmasked_store_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + 1)


@triton.jit
def rows_kernel(x_ptr, out_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < columns, other=0.0)
    tl.store(out_ptr + row * stride + at, x * 2, mask=at < columns)


@triton.jit
def tile_kernel(x_ptr, out_ptr, M, N, stride_m, stride_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    at = rows[:, None] * stride_m + columns[None, :] * stride_n
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask), mask=mask)


@triton.jit
def slots_kernel(key_ptr, slot_ptr, cache_ptr, D: tl.constexpr):
    token = tl.program_id(0)
    slot = tl.load(slot_ptr + token)
    at = tl.arange(0, D)
    tl.store(cache_ptr + slot * D + at, tl.load(key_ptr + token * D + at))


@triton.jit
def pages_kernel(table_ptr, cache_ptr, out_ptr, stride, length, PAGE: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, length, PAGE):
        page = tl.load(table_ptr + row * stride + start // PAGE)
        at = tl.arange(0, PAGE)
        x = tl.load(cache_ptr + page * PAGE + at, mask=start + at < length, other=0.0)
        total += tl.sum(x, axis=0)
    tl.store(out_ptr + row, total)


@triton.jit
def windows_kernel(x_ptr, out_ptr, n, LEFT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(LEFT + 1):
        sums += tl.load(x_ptr + at + k - LEFT, mask=at < n, other=0.0)
    tl.store(out_ptr + at, sums, mask=at < n)


@triton.jit
def windows_masked_kernel(x_ptr, out_ptr, n, LEFT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(LEFT + 1):
        sums += tl.load(x_ptr + at + k - LEFT, mask=(at < n) & (at + k >= LEFT), other=0.0)
    tl.store(out_ptr + at, sums, mask=at < n)


@triton.jit
def counts_kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(counts_ptr + x, 1, mask=at < n)


@triton.jit
def steps_kernel(x_ptr, out_ptr, n, steps):
    total = 0.0
    for i in range(tl.program_id(0), steps, tl.num_programs(0)):
        total += tl.load(x_ptr + i)
    tl.store(out_ptr + tl.program_id(0), total)


def _parts():
    """Two tensors of one allocation, with room between them."""
    whole = zeros(100)
    return whole[:40], whole[60:]


# outside of a tensor

row(
    "outside",
    copy_kernel,
    (2,),
    lambda: (zeros(64), zeros(64), 64, 4, 32),
    lambda: (zeros(68), zeros(64), 64, 4, 32),
    ["tl.load outside of `x_ptr`, 1 element behind the end", "program (1, 0, 0), lane 28", "offset 64 of 64"],
)
row(
    "outside",
    copy_kernel,
    (2,),
    lambda: (zeros(64), zeros(64), 64, -3, 32),
    lambda: (zeros(64), zeros(64), 64, 0, 32),
    ["3 elements before the start", "program (0, 0, 0), lane 0", "offset -3"],
)
row(
    "outside",
    copy_kernel,
    (2,),
    lambda: (*_parts(), 40, 1, 32),
    lambda: (*_parts(), 40, 0, 32),
    ["`x_ptr`, 1 element behind", "program (1, 0, 0), lane 7", "same storage, but not in the tensor"],
)
row(
    "outside",
    copy_kernel,
    (2,),
    lambda: (*_parts()[::-1], 41, -1, 64),
    lambda: (*_parts()[::-1], 40, 0, 64),
    ["tl.load outside of `x_ptr`, 1 element before", "same storage"],
)
row(
    "outside",
    rows_kernel,
    (5,),
    lambda: (zeros(4, 20), zeros(5, 20), 20, 20, 32),
    lambda: (zeros(5, 20), zeros(5, 20), 20, 20, 32),
    ["tl.load outside of `x_ptr`", "program (4, 0, 0), lane 0", "offset 80 of 80"],
)
row(
    "outside",
    tile_kernel,
    (2, 1),
    lambda: (zeros(20, 8), zeros(20, 8), 20, 8, 20, 1, 16, 16),
    lambda: (zeros(20, 8), zeros(20, 8), 20, 8, 8, 1, 16, 16),
    ["tl.load outside of `x_ptr`", "program (0, 0, 0), lane 8, 0", "offset 160 of 160"],
)
row(
    "outside",
    slots_kernel,
    (3,),
    lambda: (zeros(3, 16), ints(5, -1, 2), zeros(8, 16), 16),
    lambda: (zeros(3, 16), ints(5, 0, 2), zeros(8, 16), 16),
    ["tl.store outside of `cache_ptr`, 16 elements before the start", "program (1, 0, 0), lane 0"],
)
row(
    "outside",
    slots_kernel,
    (3,),
    lambda: (zeros(3, 16), ints(5, 8, 2), zeros(8, 16), 16),
    lambda: (zeros(3, 16), ints(5, 7, 2), zeros(8, 16), 16),
    ["tl.store outside of `cache_ptr`", "program (1, 0, 0), lane 0", "offset 128 of 128"],
)
row(
    "outside",
    pages_kernel,
    (2,),
    lambda: (ints(0, 1, 2, 9), zeros(4, 8), zeros(2), 2, 13, 8),
    lambda: (ints(0, 1, 2, 3), zeros(4, 8), zeros(2), 2, 13, 8),
    ["tl.load outside of `cache_ptr`", "program (1, 0, 0), lane 0", "offset 72 of 32"],
)
row(
    "outside",
    pages_kernel,
    (2,),
    lambda: (ints(0, 1, 2, 3), zeros(4, 8), zeros(2), 2, 24, 8),
    lambda: (ints(0, 1, 2, 3), zeros(4, 8), zeros(2), 2, 16, 8),
    ["tl.load outside of `table_ptr`", "program (1, 0, 0)"],
)
row(
    "outside",
    windows_kernel,
    (2,),
    lambda: (zeros(50), zeros(50), 50, 3, 32),
    lambda: (zeros(50), zeros(50), 50, 3, 32),
    ["tl.load outside of `x_ptr`, 3 elements before the start", "program (0, 0, 0), lane 0"],
    right_kernel=windows_masked_kernel,
)
row(
    "outside",
    counts_kernel,
    (2,),
    lambda: (ints(*range(8)), zeros(7, dtype=torch.int32), 8, 4),
    lambda: (ints(*range(8)), zeros(8, dtype=torch.int32), 8, 4),
    ["tl.atomic_add outside of `counts_ptr`, 1 element behind", "program (1, 0, 0), lane 3"],
)
row(
    "outside",
    steps_kernel,
    (4,),
    lambda: (zeros(10), zeros(4), 10, 11),
    lambda: (zeros(10), zeros(4), 10, 10),
    ["tl.load outside of `x_ptr`, 1 element behind", "program (2, 0, 0)", "offset 10 of 10"],
)

# no mask at the tail


@triton.jit
def unmasked_rows_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 2)


@triton.jit
def unmasked_tile_kernel(x_ptr, out_ptr, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    at = rows[:, None] * N + tl.arange(0, BLOCK_N)[None, :]
    tl.store(out_ptr + at, tl.load(x_ptr + at))


@triton.jit
def unmasked_loop_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + start + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(total, axis=0))


@triton.jit
def unmasked_scatter_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at)
    tl.store(out_ptr + index, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def unmasked_backwards_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + n - 1 - at, tl.load(x_ptr + at, mask=at < n))


@triton.jit
def unmasked_atomic_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(out_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0))


@triton.jit
def unmasked_bias_kernel(x_ptr, bias_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + tl.load(bias_ptr + at), mask=at < n)


NO_MASK = "There is no mask, and the last block is not full"
row(
    "tail",
    unmasked_load_kernel,
    (4,),
    lambda: (zeros(100), zeros(100), 100, 32),
    lambda: (zeros(128), zeros(100), 100, 32),
    ["tl.load outside of `x_ptr`", "program (3, 0, 0), lane 4", NO_MASK],
)
row(
    "tail",
    unmasked_load_kernel,
    (1,),
    lambda: (zeros(30), zeros(30), 30, 32),
    lambda: (zeros(32), zeros(30), 30, 32),
    ["program (0, 0, 0), lane 30 (and 1 more)", NO_MASK],
)
row(
    "tail",
    unmasked_store_kernel,
    (4,),
    lambda: (zeros(100), zeros(100), 100, 32),
    lambda: (zeros(100), zeros(128), 100, 32),
    ["tl.store outside of `out_ptr`", "program (3, 0, 0), lane 4", NO_MASK],
)
row(
    "tail",
    unmasked_rows_kernel,
    (5,),
    lambda: (zeros(5, 24), zeros(5, 24), 24, 32),
    lambda: (zeros(5, 32), zeros(5, 32), 32, 32),
    ["tl.load outside of `x_ptr`", "program (4, 0, 0), lane 24", NO_MASK],
)
row(
    "tail",
    unmasked_tile_kernel,
    (2,),
    lambda: (zeros(20, 16), zeros(20, 16), 16, 16, 16),
    lambda: (zeros(32, 16), zeros(32, 16), 16, 16, 16),
    ["program (1, 0, 0), lane 4, 0", NO_MASK],
)
row(
    "tail",
    unmasked_loop_kernel,
    (1,),
    lambda: (zeros(100), zeros(1), 100, 64),
    lambda: (zeros(128), zeros(1), 128, 64),
    ["program (0, 0, 0), lane 36", NO_MASK],
)
row(
    "tail",
    unmasked_scatter_kernel,
    (2,),
    lambda: (zeros(12), ints(*range(12)), zeros(12), 12, 8),
    lambda: (zeros(12), ints(*range(16)), zeros(12), 12, 8),
    ["tl.load outside of `index_ptr`", "lane 4", NO_MASK],
)
row(
    "tail",
    unmasked_backwards_kernel,
    (2,),
    lambda: (zeros(12), zeros(12), 12, 8),
    lambda: (zeros(16), zeros(16), 16, 8),
    ["tl.store outside of `out_ptr`", "before the start", "There is no mask"],
)
row(
    "tail",
    unmasked_atomic_kernel,
    (2,),
    lambda: (zeros(12), zeros(12), 12, 8),
    lambda: (zeros(16), zeros(16), 16, 8),
    ["tl.atomic_max outside of `out_ptr`", "program (1, 0, 0), lane 4"],
)
row(
    "tail",
    unmasked_bias_kernel,
    (2,),
    lambda: (zeros(12), zeros(12), zeros(12), 12, 8),
    lambda: (zeros(12), zeros(16), zeros(12), 12, 8),
    ["tl.load outside of `bias_ptr`", "lane 4", NO_MASK],
)

# two programs store different values to one element


@triton.jit
def store_id_kernel(out_ptr, step, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * step + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.zeros((BLOCK,), tl.float32) + pid)


@triton.jit
def store_sum_kernel(x_ptr, out_ptr, N: tl.constexpr, OWN: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + tl.arange(0, N))
    tl.store(out_ptr + (row if OWN else 0), tl.sum(x, axis=0))


@triton.jit
def scatter_kernel(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.load(index_ptr + at), tl.load(x_ptr + at))


@triton.jit
def halo_kernel(x_ptr, out_ptr, n, HALO: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = pid * (BLOCK - HALO) + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * (pid + 1))


@triton.jit
def two_stores_kernel(out_ptr, n):
    pid = tl.program_id(0)
    tl.store(out_ptr + pid, pid)
    tl.store(out_ptr + (pid + 1) % n, -pid - 1)


@triton.jit
def two_own_stores_kernel(out_ptr, n):
    pid = tl.program_id(0)
    tl.store(out_ptr + pid, pid)
    tl.store(out_ptr + pid, -pid - 1)


@triton.jit
def branch_store_kernel(x_ptr, out_ptr, LIMIT: tl.constexpr):
    pid = tl.program_id(0)
    if pid % 2 == 0:
        tl.store(out_ptr + pid // LIMIT, 1)
    else:
        tl.store(out_ptr + pid // LIMIT, 2)


@triton.jit
def column_store_kernel(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    """Programs take columns; with the stride of another layout they meet."""
    column = tl.program_id(0)
    rows = tl.arange(0, BLOCK)
    tl.store(out_ptr + rows * stride + column, rows * 10 + column)


@triton.jit
def offsets_kernel(start_ptr, out_ptr, BLOCK: tl.constexpr):
    """Variable lengths: each program stores a block from its start on."""
    pid = tl.program_id(0)
    at = tl.load(start_ptr + pid) + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, pid * 100 + tl.arange(0, BLOCK))


CONFLICT = "two programs store different values to one element"
row(
    "conflict",
    store_id_kernel,
    (4,),
    lambda: (zeros(40), 4, 8),
    lambda: (zeros(40), 8, 8),
    [CONFLICT, "program (1, 0, 0)", "program (0, 0, 0) stored 0.0"],
)
row("conflict", store_id_kernel, (70,), lambda: (zeros(8), 0, 8), lambda: (zeros(560), 8, 8), [CONFLICT, "`out_ptr`"])
row(
    "conflict",
    store_sum_kernel,
    (3,),
    lambda: (torch.arange(24.0).npu(), zeros(3), 8, False),
    lambda: (torch.arange(24.0).npu(), zeros(3), 8, True),
    [CONFLICT, "offset 0"],
)
row(
    "conflict",
    scatter_kernel,
    (2,),
    lambda: (torch.arange(8.0).npu(), ints(0, 1, 2, 3, 3, 4, 5, 6), zeros(8), 4),
    lambda: (torch.arange(8.0).npu(), ints(0, 1, 2, 3, 7, 4, 5, 6), zeros(8), 4),
    [CONFLICT, "offset 3"],
)
row(
    "conflict",
    halo_kernel,
    (3,),
    lambda: (torch.ones(32).npu(), zeros(32), 32, 2, 8),
    lambda: (torch.ones(32).npu(), zeros(32), 32, 0, 8),
    [CONFLICT],
)
row(
    "conflict",
    two_stores_kernel,
    (5,),
    lambda: (zeros(5, dtype=torch.int32), 5),
    lambda: (zeros(5, dtype=torch.int32), 5),
    [CONFLICT],
    right_kernel=two_own_stores_kernel,
)
row(
    "conflict",
    branch_store_kernel,
    (6,),
    lambda: (zeros(1), zeros(6, dtype=torch.int32), 2),
    lambda: (zeros(1), zeros(6, dtype=torch.int32), 1),
    [CONFLICT, "offset 0"],
)
row(
    "conflict",
    column_store_kernel,
    (8,),
    lambda: (zeros(1), zeros(64, dtype=torch.int32), 4, 8),
    lambda: (zeros(1), zeros(64, dtype=torch.int32), 8, 8),
    [CONFLICT],
)
row(
    "conflict",
    offsets_kernel,
    (3,),
    lambda: (ints(0, 5, 10), zeros(32, dtype=torch.int32), 8),
    lambda: (ints(0, 8, 16), zeros(32, dtype=torch.int32), 8),
    [CONFLICT, "program (1, 0, 0)"],
)
row(
    "conflict",
    slots_kernel,
    (3,),
    lambda: (torch.arange(48.0).npu(), ints(5, 5, 2), zeros(8, 16), 16),
    lambda: (torch.arange(48.0).npu(), ints(5, 6, 2), zeros(8, 16), 16),
    [CONFLICT, "`cache_ptr`", "program (1, 0, 0), lane 0", "offset 80"],
)

# an offset that wraps in int32


@triton.jit
def wide_rows_kernel(x_ptr, out_ptr, stride, WIDE: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    tl.store(out_ptr + tl.program_id(0), tl.load(x_ptr + row * stride))


@triton.jit
def wide_block_kernel(x_ptr, out_ptr, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if WIDE:
        rows = rows.to(tl.int64)
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.load(x_ptr + rows * stride))


@triton.jit
def wide_loaded_kernel(x_ptr, index_ptr, out_ptr, stride, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.load(index_ptr + tl.arange(0, BLOCK))
    if WIDE:
        index = index.to(tl.int64)
    tl.store(out_ptr + tl.arange(0, BLOCK), tl.load(x_ptr + index * stride))


@triton.jit
def wide_sum_kernel(x_ptr, out_ptr, base, step, WIDE: tl.constexpr):
    at = base
    if WIDE:
        at = base.to(tl.int64)
    tl.store(out_ptr, tl.load(x_ptr + (at + step - base)))


@triton.jit
def wide_loop_kernel(x_ptr, out_ptr, steps, step, WIDE: tl.constexpr):
    total = 0.0
    for i in range(steps):
        at = i.to(tl.int64) * step if WIDE else i * step
        total += tl.load(x_ptr + at)
    tl.store(out_ptr, total)


WRAPPED = "wrapped in int32"
BIG = 1 << 29


for stride, programs in ((BIG * 2, 3), (BIG * 3, 3), ((1 << 31) - 1, 3)):
    row(
        "wrapped",
        wide_rows_kernel,
        (programs,),
        lambda s=stride, p=programs: (zeros(8), zeros(p), s, False),
        lambda p=programs: (zeros(8), zeros(p), 2, True),
        [WRAPPED, "`x_ptr`", "cast one factor"],
    )
for stride, block in ((BIG, 8), (BIG + 1, 4 * 2), (3 << 28, 8)):
    row(
        "wrapped",
        wide_block_kernel,
        (1,),
        lambda s=stride, b=block: (zeros(8), zeros(b), s, False, b),
        lambda b=block: (zeros(64), zeros(b), 8, True, b),
        [WRAPPED, "program (0, 0, 0), lane"],
    )
for index in ((0, 1, 2, 5), (40000, 0, 1, 2), (0, -50000, 3, 1)):
    row(
        "wrapped",
        wide_loaded_kernel,
        (1,),
        lambda i=index: (zeros(8), ints(*i), zeros(4), max(BIG, 1 << 29), False, 4),
        lambda: (zeros(64), ints(0, 1, 2, 5), zeros(4), 8, True, 4),
        [WRAPPED, "lane"],
    )
row(
    "wrapped",
    wide_sum_kernel,
    (1,),
    lambda: (zeros(8), zeros(1), (1 << 31) - 4, 8, False),
    lambda: (zeros(16), zeros(1), (1 << 31) - 4, 8, True),
    [WRAPPED],
)
row(
    "wrapped",
    wide_loop_kernel,
    (1,),
    lambda: (zeros(8).expand(8, 8), zeros(1), 5, 1 << 30, False),
    lambda: (zeros(64), zeros(1), 5, 8, True),
    [],
)

# a BLOCK that the unified buffer does not hold


@triton.jit
def block_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * 2, mask=at < n)


@triton.jit
def block_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


@triton.jit
def block_softmax_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=-float("inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + at, x / tl.sum(x, axis=0), mask=at < n)


@triton.jit
def block_tile_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x + tl.trans(tl.reshape(x, (N, M))))


@triton.jit
def block_scan_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.cumsum(tl.load(x_ptr + at).to(tl.float32), axis=0))


@triton.jit
def block_outer_kernel(x_ptr, y_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, M))[:, None] * tl.load(y_ptr + tl.arange(0, N))[None, :]
    tl.store(out_ptr + tl.arange(0, M), tl.sum(x, axis=1))


BUFFER = "the unified buffer has 196608"
for block in (65536, 131072):
    row(
        "buffer",
        block_kernel,
        (1,),
        lambda b=block: (zeros(100), zeros(100), 100, b),
        lambda: (zeros(100), zeros(100), 100, 16384),
        [BUFFER, f"{block * 4} bytes"],
    )
row(
    "buffer",
    block_kernel,
    (1,),
    lambda: (zeros(100, dtype=torch.float16), zeros(100, dtype=torch.float16), 100, 131072),
    lambda: (zeros(100, dtype=torch.float16), zeros(100, dtype=torch.float16), 100, 32768),
    [BUFFER],
)
row(
    "buffer",
    block_kernel,
    (1,),
    lambda: (zeros(100, dtype=torch.int64), zeros(100, dtype=torch.int64), 100, 32768),
    lambda: (zeros(100, dtype=torch.int64), zeros(100, dtype=torch.int64), 100, 8192),
    [BUFFER],
)
row(
    "buffer",
    block_add_kernel,
    (1,),
    lambda: (zeros(9), zeros(9), zeros(9), 9, 32768),
    lambda: (zeros(9), zeros(9), zeros(9), 9, 16384),
    [BUFFER, "262144 bytes"],
)
row(
    "buffer",
    block_softmax_kernel,
    (1,),
    lambda: (zeros(100), zeros(100), 100, 65536),
    lambda: (zeros(100), zeros(100), 100, 8192),
    [BUFFER],
)
row(
    "buffer",
    block_softmax_kernel,
    (1,),
    lambda: (zeros(9, dtype=torch.bfloat16), zeros(9), 9, 65536),
    lambda: (zeros(9, dtype=torch.bfloat16), zeros(9), 9, 8192),
    [BUFFER],
)
row(
    "buffer",
    block_tile_kernel,
    (1,),
    lambda: (zeros(256, 256), zeros(256, 256), 256, 256),
    lambda: (zeros(64, 64), zeros(64, 64), 64, 64),
    [BUFFER],
)
row(
    "buffer",
    block_scan_kernel,
    (1,),
    lambda: (zeros(65536, dtype=torch.float16), zeros(65536), 65536),
    lambda: (zeros(4096, dtype=torch.float16), zeros(4096), 4096),
    [BUFFER],
)
row(
    "buffer",
    block_outer_kernel,
    (1,),
    lambda: (zeros(256), zeros(256), zeros(256), 256, 256),
    lambda: (zeros(64), zeros(64), zeros(64), 64, 64),
    [BUFFER],
)

# more programs than a launch has

GRID = "an NPU takes 65,535"
for grid in (
    (65536,),
    (70000,),
    (256, 257),
    (1024, 64),
    (64, 32, 33),
    (1, 65536),
    (1, 1, 65536),
    (2, 32768),
    (41, 40, 40),
    (1 << 20,),
):
    row(
        "grid",
        store_id_kernel,
        grid,
        lambda: (zeros(8), 8, 8),
        lambda: (zeros(8), 8, 8),
        [GRID, " x ".join(map(str, grid))],
    )
