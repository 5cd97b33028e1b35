# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels are named, with line, program, lane and offset; the same kernels put right are silent."""

import re

import pytest
from triton_folder import triton_in_programs  # noqa: F401

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="neither triton nor triton-ascend is installed")

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
