# SPDX-License-Identifier: Apache-2.0
"""DataCopy and DataCopyPad in every form and direction, and what a block knows of its launch."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cann_cpu.kernel import KernelError

REQUEST = np.dtype(
    [("form", "S1"), ("pad", "?"), ("left", "u1"), ("right", "u1"), ("value", "i2")]
    + [(name, "u4") for name in ("count", "blocks", "length", "src_stride", "dst_stride", "local_size")],
    align=True,
)
PER_BLOCK = 16  # elements of int16 in 32 bytes


def request(**fields):
    made = np.zeros(1, REQUEST)
    for name, value in fields.items():
        made[name] = value
    return made


def memory(seed, size=1024):
    return np.random.default_rng(seed).integers(-999, 999, size).astype(np.int16)


def run(kernels, kernel, fields):
    """The device's and the local memory after the copy."""
    device, local = memory(1), memory(2)
    kernels("copies")[kernel](device, local, request(local_size=len(local), **fields))
    return device, local


def runs(count, length, gap):
    """The indices of runs of elements with gaps between them."""
    return (np.arange(count)[:, None] * (length + gap) + np.arange(length)).reshape(-1)


@pytest.mark.parametrize("count", [0, 16, 48, 512])
@pytest.mark.parametrize("kernel", ["copy_in", "copy_out", "copy_within"])
def test_a_count_of_whole_blocks(kernels, kernel, count):
    device, local = run(kernels, kernel, {"form": "c", "count": count})
    expected_device, expected_local = memory(1), memory(2)
    if kernel == "copy_in":
        expected_local[:count] = expected_device[:count]
    elif kernel == "copy_out":
        expected_device[:count] = expected_local[:count]
    else:
        expected_local[512 : 512 + count] = expected_local[:count]
    assert np.array_equal(device, expected_device)
    assert np.array_equal(local, expected_local)


@pytest.mark.parametrize(
    ("count", "length", "src_gap", "dst_gap"), [(1, 1, 0, 0), (3, 2, 1, 0), (4, 1, 0, 2), (5, 2, 1, 1)]
)
@pytest.mark.parametrize("kernel", ["copy_in", "copy_out", "copy_within"])
def test_runs_of_whole_blocks(kernels, kernel, count, length, src_gap, dst_gap):
    fields = {"form": "p", "blocks": count, "length": length, "src_stride": src_gap, "dst_stride": dst_gap}
    device, local = run(kernels, kernel, fields)
    src, dst = (runs(count, length * PER_BLOCK, gap * PER_BLOCK) for gap in (src_gap, dst_gap))
    expected_device, expected_local = memory(1), memory(2)
    if kernel == "copy_in":
        expected_local[dst] = expected_device[src]
    elif kernel == "copy_out":
        expected_device[dst] = expected_local[src]
    else:
        expected_local[512 + dst] = expected_local[src]
    assert np.array_equal(device, expected_device)
    assert np.array_equal(local, expected_local)


PADDINGS = [(False, 0, 0), (True, 0, 0), (True, 3, 0), (True, 0, 5), (True, 16, 15)]


@pytest.mark.parametrize("form", ["P", "E"])
@pytest.mark.parametrize(("pad", "left", "right"), PADDINGS)
@pytest.mark.parametrize(
    ("count", "length", "src_gap", "dst_gap"),
    [(1, 1, 0, 0), (1, 100, 0, 0), (3, 13, 4, 0), (4, 17, 1, 2), (3, 246, 0, 0)],
)
def test_runs_of_any_length_come_in_with_padding(kernels, form, pad, left, right, count, length, src_gap, dst_gap):
    fields = {"form": form, "pad": pad, "left": left, "right": right, "value": -7}
    fields |= {"blocks": count, "length": 2 * length, "src_stride": 2 * src_gap, "dst_stride": dst_gap}
    device, local = run(kernels, "copy_in", fields)
    assert np.array_equal(device, memory(1))
    start, end = (left, right) if pad else (0, 0)
    whole = -(-(start + length + end) // PER_BLOCK) * PER_BLOCK
    untouched = np.ones(len(local), bool)
    for i in range(count):
        row = i * (whole + dst_gap * PER_BLOCK)
        copied = memory(1)[i * (length + src_gap) :][:length]
        expected = np.concatenate([np.full(start, -7), copied, np.full(end, -7)])
        assert np.array_equal(local[row : row + len(expected)], expected)
        untouched[row : row + whole] = False
    assert np.array_equal(local[untouched], memory(2)[untouched])


@pytest.mark.parametrize("form", ["P", "E"])
@pytest.mark.parametrize(
    ("count", "length", "src_gap", "dst_gap"),
    [(1, 1, 0, 0), (1, 100, 0, 0), (3, 13, 0, 4), (4, 17, 2, 1), (3, 246, 0, 0)],
)
def test_runs_of_any_length_go_out(kernels, form, count, length, src_gap, dst_gap):
    fields = {"form": form, "blocks": count, "length": 2 * length, "src_stride": src_gap, "dst_stride": 2 * dst_gap}
    device, local = run(kernels, "copy_out", fields)
    whole = -(-length // PER_BLOCK) * PER_BLOCK
    src = (np.arange(count)[:, None] * (whole + src_gap * PER_BLOCK) + np.arange(length)).reshape(-1)
    expected = memory(1)
    expected[runs(count, length, dst_gap)] = memory(2)[src]
    assert np.array_equal(device, expected)
    assert np.array_equal(local, memory(2))


@pytest.mark.parametrize("blocks", [1, 2, 100])
def test_blocks_know_their_number_and_the_tiling_key(kernels, blocks):
    for key in (0, 7):
        out = np.zeros((blocks, 16), np.int32)
        kernels("copies")["launched"](out, blocks=blocks, tiling_key=key)
        assert out[:, :3].tolist() == [[i, blocks, key] for i in range(blocks)]


def launch_some(kernels, seed):
    """Launches of one thread, with and without checks, correct and broken, beside those of others."""
    for i in range(20):
        x = np.full(500, seed + i, np.float32)
        y = np.zeros_like(x)
        kernels("correct")["two_buffers"](x, y, 100, blocks=5, checks=i % 2 == 0)
        assert (y == 2 * x + 1).all()
        with pytest.raises(KernelError, match=r"freed_twice, block 0"):
            kernels("broken")["freed_twice"](x, y, blocks=3)
    return True


def test_launches_of_several_threads_do_not_disturb_each_other(kernels):
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(lambda seed: launch_some(kernels, seed), range(8)))


def test_a_forked_process_has_threads_of_its_own(kernels):
    assert launch_some(kernels, 0)
    child = os.fork()
    if child == 0:
        os._exit(0 if launch_some(kernels, 1) else 1)
    assert os.waitpid(child, 0)[1] == 0
