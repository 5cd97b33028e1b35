# SPDX-License-Identifier: Apache-2.0
"""The libraries of whole algorithms, compared with the mathematics in double precision."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from cann_cpu.activation import HOME
from cann_cpu.kernel import KernelError

DTYPES = (np.float32, np.float16)
SHAPES = [(1, 1), (3, 7), (5, 16), (2, 37), (4, 129), (7, 64)]
"""Rows and columns."""


def block(dtype):
    return 32 // np.dtype(dtype).itemsize


def padded(columns, dtype):
    return -(-columns // block(dtype)) * block(dtype)


def matrix(rows, columns, dtype, seed=0, scale=3.0):
    """Rows padded to whole blocks of 32 bytes; the padding holds large numbers that must not count."""
    generator = np.random.default_rng((seed, rows, columns))
    x = np.full((rows, padded(columns, dtype)), 7e4 if dtype == np.float32 else 6e4, dtype)
    x[:, :columns] = generator.normal(size=(rows, columns)) * scale
    return x


def assert_rounded(actual, expected, steps=3):
    """Within a few steps of the format from what the mathematics gives."""
    expected = np.asarray(expected, np.float64)
    step = np.spacing(np.abs(expected).astype(actual.dtype)).astype(np.float64)
    assert (np.abs(actual.astype(np.float64) - expected) <= steps * step).all()


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True), e.sum(axis=1), x.max(axis=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["sums", "work", "without_sums", "simple", "in_place"])
@pytest.mark.parametrize("rows, columns", SHAPES)
def test_softmax(kernels, dtype, form, rows, columns):
    x = matrix(rows, columns, dtype)
    expected, sums, maxima = softmax(x[:, :columns].astype(np.float64))
    y = np.zeros_like(x)
    statistics = [np.zeros((rows, block(dtype)), dtype) for _ in range(2)]
    if form == "simple":
        statistics[0][:], statistics[1][:] = sums[:, None], maxima[:, None]
        expected = np.exp(x[:, :columns].astype(np.float64) - statistics[1][:, :1]) / statistics[0][:, :1]
    number = ["sums", "work", "without_sums", "simple", "in_place"].index(form)
    kernels("library")["softmax"](x, y, *statistics, rows, x.shape[1], columns, number, dtype == np.float16)
    # The difference to the largest number is rounded before it is an exponent.
    assert_rounded(y[:, :columns], expected, 40 if dtype == np.float32 else 1)
    if form in ("sums", "work", "in_place"):
        assert_rounded(statistics[0], np.repeat(sums[:, None], block(dtype), 1))
        assert (statistics[1] == maxima[:, None].astype(dtype)).all()


@pytest.mark.parametrize("rows, columns", [(1, 8), (5, 40), (9, 16)])
def test_a_softmax_of_columns_that_come_in_parts(kernels, rows, columns):
    parts = np.stack([matrix(rows, columns, np.float32, seed) for seed in (1, 2)])
    y = np.zeros_like(parts)
    sums, maxima, shrinks = (np.zeros((rows, 8), np.float32) for _ in range(3))
    kernels("library")["flash"](parts, y, sums, maxima, shrinks, rows, columns)
    first, both = parts[0].astype(np.float64), np.concatenate(parts, axis=1).astype(np.float64)
    expected, all_sums, all_maxima = softmax(both)
    assert_rounded(sums, np.repeat(all_sums[:, None], 8, 1))
    assert (maxima == all_maxima[:, None].astype(np.float32)).all()
    assert_rounded(shrinks, np.repeat(np.exp(first.max(axis=1) - all_maxima)[:, None], 8, 1), 40)
    whole = np.concatenate([y[0] * shrinks[:, :1], y[1]], axis=1) / sums[:, :1]
    assert_rounded(whole, expected, 80)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rms", [True, False])
@pytest.mark.parametrize("rows, columns", SHAPES[1:])
def test_norms_of_rows(kernels, dtype, rms, rows, columns):
    x = matrix(rows, columns, dtype)
    gamma, beta = matrix(2, columns, dtype, seed=1)[:, :columns].copy()
    y, mean, variance = np.zeros_like(x), np.zeros(rows, dtype), np.zeros(rows, dtype)
    epsilon = float(dtype(1e-3))
    is_half = dtype == np.float16
    kernels("library")["norms"](x, gamma, beta, y, mean, variance, rows, x.shape[1], columns, epsilon, rms, is_half)
    exact, weight, bias = (torch.from_numpy(a.astype(np.float64)) for a in (x[:, :columns], gamma, beta))
    if rms:
        expected = torch.nn.functional.rms_norm(exact, (columns,), weight, epsilon)
    else:
        expected = torch.nn.functional.layer_norm(exact, (columns,), weight, bias, epsilon)
        assert_rounded(mean, exact.mean(1).numpy(), 8)
        assert_rounded(variance, exact.var(1, correction=0).numpy(), 8)
    limit = (1e-5 if dtype == np.float32 else 2e-3) * (1 + expected.abs().numpy())
    assert (np.abs(y[:, :columns].astype(np.float64) - expected.numpy()) <= limit).all()


REDUCTIONS = {
    "Sum": lambda x: x.sum(1),
    "Mean": lambda x: x.mean(1),
    "ReduceSum AR": lambda x: x.sum(1),
    "ReduceSum RA": lambda x: x.sum(0),
    "ReduceMax AR": lambda x: x.max(1),
    "ReduceMin RA": lambda x: x.min(0),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("rows, columns", SHAPES)
def test_reductions_of_matrices(kernels, dtype, name, rows, columns):
    x = matrix(rows, columns, dtype)
    expected = REDUCTIONS[name](x[:, :columns].astype(np.float64))
    y = np.zeros(len(expected), dtype)
    which = list(REDUCTIONS).index(name)
    kernels("library")["reduce"](x, y, rows, x.shape[1], columns, len(y), which, dtype == np.float16)
    assert_rounded(y, expected, 1)


BROADCAST_DTYPES = [torch.float32, torch.int8, torch.bfloat16, torch.int16, torch.int32]


@pytest.mark.parametrize("dtype", BROADCAST_DTYPES, ids=str)
@pytest.mark.parametrize("rows, columns", SHAPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_broadcast(kernels, rows, columns, axis, dtype):
    x = (torch.arange(columns if axis == 0 else rows) - 3).to(dtype)
    y = torch.zeros((rows, columns), dtype=dtype)
    kernels("library")["broadcast"](x, y, rows, columns, axis, BROADCAST_DTYPES.index(dtype))
    assert torch.equal(y, (x[None, :] if axis == 0 else x[:, None]).expand(rows, columns))


@pytest.mark.parametrize("rows, width, columns", [(3, 7, 7), (1, 1, 1), (5, 13, 13), (4, 16, 11), (2, 8, 7)])
@pytest.mark.parametrize("left", [False, True])
def test_pad(kernels, rows, width, columns, left):
    x = np.arange(rows * width, dtype=np.float32).reshape(rows, width) + 1
    filled = padded(width, np.float32) - columns
    y = np.zeros((rows, columns + filled), np.float32)
    back = np.zeros((rows, columns), np.float32)
    kernels("library")["pad"](x, y, back, rows, width, columns, filled if left else 0, -4)
    kept = x[:, :columns]
    padding = np.full((rows, filled), -4, np.float32)
    assert (y == np.concatenate([padding, kept] if left else [kept, padding], axis=1)).all()
    assert left or (back == kept).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 31, 100])
def test_numbers_are_quantized(kernels, dtype, count):
    x = (np.random.default_rng(count).normal(size=count) * 40).astype(dtype)
    y = np.zeros(count, np.int8)
    kernels("library")["quantize"](x, y, count, 2.0, -3.0, dtype == np.float16)
    assert (y == np.clip(np.rint(x.astype(np.float64) * 2 - 3), -128, 127)).all()


@pytest.mark.parametrize("rows, n, columns", [(1, 8, 1), (3, 24, 21), (5, 16, 16)])
@pytest.mark.parametrize("one", [True, False])
def test_integers_are_dequantized(kernels, rows, n, columns, one):
    generator = np.random.default_rng(n)
    x = generator.integers(-5000, 5000, (rows, n)).astype(np.int32)
    scale = generator.uniform(0.01, 1, columns).astype(np.float32)
    y = np.zeros((rows, -(-n // 16) * 16), np.float16)
    kernels("library")["dequantize"](x, scale, y, rows, n, columns, one)
    assert_rounded(y[:, :columns], x[:, :columns] * (scale[:1] if one else scale).astype(np.float64), 1)


@pytest.mark.parametrize("rows, columns, groups", [(1, 32, 0), (4, 96, 1), (6, 32, 3)])
def test_integers_of_8_bits_are_scaled_and_shifted(kernels, rows, columns, groups):
    generator = np.random.default_rng(rows)
    x = generator.integers(-128, 128, (rows, columns)).astype(np.int8)
    shape = (groups, columns) if groups else (1, 1)
    scale, offset = generator.uniform(0.1, 2, (2, *shape)).astype(np.float16)
    y = np.zeros((rows, columns), np.float16)
    kernels("library")["antiquantize"](x, scale, offset, y, rows, columns, groups)
    repeats = rows // max(groups, 1)
    exact = [
        np.repeat(a.astype(np.float64), repeats, axis=0) if groups else a.astype(np.float64) for a in (scale, offset)
    ]
    assert_rounded(y, exact[0] * (x + exact[1]), 1)


ELEMENTWISE = {
    "Gelu": lambda x, z, s: torch.nn.functional.gelu(x, approximate="tanh"),
    "Swish": lambda x, z, s: x * torch.sigmoid(s * x),
    "SwiGLU": lambda x, z, s: x * z * torch.sigmoid(s * z),
    "Clamp": lambda x, z, s: x.clamp(-s, s),
    "-": lambda x, z, s: x - z,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("count", [8, 16, 208])
def test_functions_of_elements(kernels, dtype, name, count):
    x, z = np.random.default_rng(count).normal(size=(2, count)).astype(dtype)
    y = np.zeros_like(x)
    which = list(ELEMENTWISE).index(name)
    kernels("library")["elementwise"](x, z, y, count, which, 0.75, dtype == np.float16)
    exact = ELEMENTWISE[name](*(torch.from_numpy(a.astype(np.float64)) for a in (x, z)), 0.75).numpy()
    assert_rounded(y, exact, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "rows, columns, k, small", [(1, 1, 1, True), (3, 31, 5, True), (2, 100, 64, False), (4, 33, 9, False)]
)
@pytest.mark.parametrize("largest", [True, False])
def test_the_largest_and_smallest_of_rows(kernels, dtype, rows, columns, k, small, largest):
    inner = -(-columns // 32) * 32
    x = np.zeros((rows, inner), dtype)
    x[:, :columns] = np.random.default_rng(k).integers(-20, 20, (rows, columns))
    x[:, columns:] = 1000 if largest else -1000
    finished = np.arange(rows) % 3 == 2
    value_step, index_step = (k, k) if small else (padded(k, dtype), padded(k, np.int32))
    values, indices = np.zeros((rows, value_step), dtype), np.zeros((rows, index_step), np.int32)
    kernels("library")["top"](
        x, finished, values, indices, rows, inner, columns, k, largest, small, dtype == np.float16
    )
    kept = x[:, :columns].astype(np.float64)
    places = np.argsort(-kept if largest else kept, axis=1, kind="stable")[:, :k]
    assert (values[:, :k] == np.take_along_axis(kept, places, axis=1)).all()
    if not small:
        places[finished] = columns
    assert (indices[:, :k] == places).all()


@pytest.mark.parametrize("dtype", [np.float16, np.int32])
@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("by_address", [True, False])
def test_blocks_are_transposed(kernels, dtype, repeats, by_address):
    columns = block(dtype)
    x = np.arange(repeats * 16 * columns).astype(dtype)
    y = np.zeros_like(x)
    kernels("library")["transpose"](x, y, repeats, np.dtype(dtype).itemsize, by_address)
    expected = x.reshape(repeats, 16, columns).transpose(0, 2, 1)
    assert (y.reshape(repeats, columns, 16) == expected).all()


@pytest.mark.parametrize("src_high", [True, False])
@pytest.mark.parametrize("dst_high", [True, False])
def test_halves_of_blocks_are_transposed(kernels, src_high, dst_high):
    x = np.random.default_rng(0).integers(-128, 128, (16, 32)).astype(np.int8)
    y = np.zeros_like(x)
    kernels("library")["transpose_bytes"](x, y, src_high, dst_high)
    expected = np.zeros_like(x)
    expected[:, 16 * dst_high : 16 * dst_high + 16] = x[:, 16 * src_high : 16 * src_high + 16].T
    assert (y == expected).all()


@pytest.mark.parametrize("mode", [0, 1, 2])  # of no effect: CAST_NONE, CAST_RINT, CAST_FLOOR
@pytest.mark.parametrize("scale", [1.0, 0.25, 3.0])
def test_integers_are_cast_to_half_times_the_scale_that_is_set(kernels, scale, mode):
    x = np.random.default_rng(0).integers(-20000, 20000, 77).astype(np.int32)
    y = np.zeros(77, np.float16)
    kernels("library")["scaled_cast"](x, y, 77, scale, mode)
    assert (y == (x * np.float64(scale)).astype(np.float16)).all()


def test_a_cast_to_half_without_a_scale_is_reported(kernels):
    with pytest.raises(KernelError, match=r"Cast: int32_t to half multiplies by what SetDeqScale\(half\) has set"):
        kernels("library")["scaled_cast"](np.zeros(8, np.int32), np.zeros(8, np.float16), 8, 0, 0)


def test_memory_of_the_device_is_initialised(kernels):
    y = np.zeros(77, np.int32)
    kernels("library")["initialised"](y, 70, -3)
    assert (y[:70] == -3).all() and (y[70:] == 0).all()
    kernels("library")["initialised"](y, 60, 1)
    assert (y[:60] == 1).all() and (y[60:70] == -3).all()
    kernels("library")["initialised"](y, 50, 0)
    assert (y[:50] == 0).all() and (y[50:60] == 1).all()
    with pytest.raises(KernelError, match="InitGlobalMemory"):
        kernels("library")["initialised"](y, 78, 1)


def aligned(count):
    raw = np.zeros(count + 512, np.uint8)
    return raw[-raw.ctypes.data % 512 :][:count]


def run_groups(kernels, arrive, wait, workspace, skips=False):
    x, y = np.zeros((arrive, 16), np.float32), np.zeros((wait, 16), np.float32)
    kernels("library")["groups"](x, workspace, y, arrive, wait, skips, blocks=arrive + wait)
    return y


@pytest.mark.parametrize("arrive, wait", [(1, 1), (3, 5), (4, 2)])
def test_a_group_of_blocks_waits_for_another(kernels, arrive, wait):
    y = run_groups(kernels, arrive, wait, aligned(wait * 512))
    assert (y == arrive * (arrive + 1) / 2).all()


def test_a_group_that_does_not_wait_is_reported(kernels):
    with pytest.raises(KernelError, match=r"block [01]"):
        run_groups(kernels, 1, 1, aligned(512), skips=True)


@pytest.mark.parametrize(
    "workspace, message",
    [(aligned(1024)[32:], "begins at no multiple of 512 bytes"), (aligned(512)[:256], "GroupBarrier")],
)
def test_a_workspace_of_groups_that_does_not_do_is_reported(kernels, workspace, message):
    with pytest.raises(KernelError, match=message):
        run_groups(kernels, 1, 1, workspace)


def test_a_tiling_that_the_host_describes_is_a_struct(kernels):
    tiling = np.array([7, -1, 2, -3, 9], np.int32)
    y = np.zeros(8, np.int32)
    kernels("library")["described"](y, tiling)
    assert y.tolist() == [7, -1, 2, -3, 9, 0, 0, 0]
    with pytest.raises(KernelError, match="AscendCTilingData has 20 bytes, and tiling, from which it is read, has 16"):
        kernels("library")["described"](y, tiling[:4].copy())


@pytest.mark.parametrize(
    "number, message",
    list(
        enumerate(
            [
                "SoftMax: the work buffer has 16 bytes; any shape needs at least 32",
                "SoftMax: source and destination overlap in part",
                r"SoftMax reads element 0 of buffer .*, which nothing has written",
                "hazard: SoftMax on pipe V reads",
                "SoftMax: no shape; give a SoftMaxShapeInfo",
                "SoftMax",
            ]
        )
    ),
)
def test_what_is_wrong_with_a_call_is_reported(kernels, number, message):
    with pytest.raises(KernelError, match=message):
        kernels("library")["wrong"](np.zeros(96, np.float32), np.zeros(64, np.float32), number)


@pytest.mark.parametrize("first, second", [("acl", "third_party/acl/inc/acl"), ("third_party/acl/inc/acl", "acl")])
def test_a_file_may_include_acl_of_both(tmp_path, first, second):
    torch_npu = pytest.importorskip("torch_npu")
    headers = Path(torch_npu.__file__).parent / "include"
    source = "\n".join(f'#include "{folder}/{name}.h"' for folder in (first, second) for name in ("acl", "acl_rt"))
    source += "\nstatic_assert(ACL_SUCCESS == 0 && ACL_ERROR_RT_PARAM_INVALID == 107000);\n"
    command = ["g++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-", f"-I{HOME}/include"]
    command += ["-isystem", str(headers), "-isystem", str(headers / "third_party/acl/inc")]
    done = subprocess.run(command, input=source, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
