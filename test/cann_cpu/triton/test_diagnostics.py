# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels are named, with line, program, lane and offset; the same kernels put right are silent."""

import re

import pytest
from triton_folder import triton_in_programs  # noqa: F401

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton", reason="neither triton nor triton-ascend is installed")

import triton.language as tl  # noqa: E402
from wrong_triton_kernels import ROWS  # noqa: E402


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_wrong(row):
    with pytest.raises(RuntimeError) as error:
        row.kernel[row.grid](*row.wrong())
        torch.npu.synchronize()
    text = str(error.value)
    if row.fault == "grid" and "an NPU takes" not in text:
        assert "TRITON_ALL_BLOCKS_PARALLEL" in text  # triton-ascend's own words
        return
    for part in row.named:
        assert part in text
    if row.fault != "grid":
        line = int(re.search(rf"{row.kernel.__name__}, line (\d+) of \S*wrong_triton_kernels.py", text).group(1))
        first = row.kernel.fn.__code__.co_firstlineno
        assert first < line < first + 20
        assert re.search(r"program \(\d+, \d+, \d+\)", text) or row.fault == "buffer"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_right(row):
    row.right_kernel[(1,) if row.fault == "grid" else row.grid](*row.right())
    torch.npu.synchronize()


def test_there_are_ten_of_each():
    faults = {row.fault for row in ROWS}
    assert faults == {"outside", "tail", "conflict", "wrapped", "buffer", "grid"}
    assert all(sum(row.fault == fault for row in ROWS) >= 10 for fault in faults)


@triton.jit
def moved(x, out, by, size, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < size
    tl.store(out + offsets, tl.load(x + offsets + by, mask), mask)


@triton.jit
def moved_store(x, out, by, size, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < size
    tl.store(out + offsets + by, tl.load(x + offsets, mask), mask)


def around(kernel, by):
    """Calls a kernel that leaves the four middle elements of ten, and returns what it stored."""
    x = torch.arange(10, dtype=torch.int32).npu()
    out = torch.zeros(10, dtype=torch.int32).npu()
    kernel[(1,)](x[3:7], out[3:7], by, 4, BLOCK=8)
    torch.npu.synchronize()
    return out.tolist()


def test_loads_outside_of_a_tensor_may_read_memory(monkeypatch):
    monkeypatch.setenv("CANN_CPU_TRITON_LOADS", "memory")
    for by in (-2, 1):
        with pytest.warns(RuntimeWarning, match=r"tl\.load outside of `x`, elements .* of 4"):
            assert around(moved, by) == [0, 0, 0, *range(3 + by, 7 + by), 0, 0, 0]
    with pytest.raises(RuntimeError, match=r"tl\.load outside of `x`"):  # where no memory is
        around(moved, -(2**28))
    with pytest.raises(RuntimeError, match=r"tl\.store outside of `out`"):
        around(moved_store, 1)


@pytest.mark.parametrize(
    ("value", "message"), [("tensor", r"tl\.load outside of `x`"), ("all", "CANN_CPU_TRITON_LOADS")]
)
def test_loads_outside_of_a_tensor_are_errors(monkeypatch, value, message):
    monkeypatch.setenv("CANN_CPU_TRITON_LOADS", value)
    with pytest.raises(RuntimeError, match=message):
        around(moved, 1)
    assert around(moved, 0) == [0, 0, 0, 3, 4, 5, 6, 0, 0, 0]
