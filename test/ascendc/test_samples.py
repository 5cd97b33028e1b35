# SPDX-License-Identifier: Apache-2.0
"""What kernels of public projects use of Ascend C beside the arithmetic, compared with NumPy."""

import math

import numpy as np
import pytest
from cann_cpu.kernel import KernelError

COUNT = 64


def test_slices_are_copied_by_their_pieces(kernels):
    x = np.arange(120, dtype=np.float32).reshape(3, 40)
    y, z = np.zeros((2, 16), np.float32), np.full((2, 18), -1, np.float32)
    kernels("samples")["slices"](x, y, z, 31)
    expected = np.concatenate([x[::2, 8:16], x[::2, 24:32]], axis=1)
    assert (y == expected).all()
    assert (z == np.concatenate([expected[:, :8], [[-1]] * 2, expected[:, 8:], [[-1]] * 2], axis=1)).all()


def test_a_slice_of_no_whole_pieces_is_named(kernels):
    y, z = np.zeros(32, np.float32), np.zeros(36, np.float32)
    with pytest.raises(KernelError, match="the source's dimension 1 goes from 8 to 30, which is not a whole number"):
        kernels("samples")["slices"](np.zeros(120, np.float32), y, z, 30)


@pytest.mark.parametrize("checks", [True, False])
def test_a_tensor_may_be_queued_once_more(kernels, checks):
    x, y = np.arange(COUNT, dtype=np.float32), np.zeros(COUNT, np.float32)
    kernels("samples")["queued_again"](x, y, COUNT, checks=checks)
    assert (y == x + 1).all()


def test_a_copy_that_only_other_chips_have_is_named(kernels):
    with pytest.raises(KernelError, match="DataCopy: from L0C to L1 there is no way on this chip"):
        kernels("samples")["from_l0c"](np.zeros(8, np.float32))


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def faster_gelu_v2(x):
    outside = np.minimum(np.abs(0.7071 * x), 1.769) - 1.769
    return x * (np.sign(x + 1e-12) * (-0.1444 * outside**2 + 0.5) + 0.5)


FUNCTIONS = {
    "FasterGelu": lambda x, y: x / (1 + np.exp(-1.702 * x)),
    "FasterGeluV2": lambda x, y: faster_gelu_v2(x),
    "GeGLU": lambda x, y: x * tanh_gelu(y),
    "ReGlu": lambda x, y: x * np.maximum(y, 0),
    "Gelu": lambda x, y: tanh_gelu(x),
    "Lgamma": lambda x, y: np.vectorize(math.lgamma)(x),
    "Fmod": np.fmod,
    "Hypot": np.hypot,
    "Exp": lambda x, y: np.exp(x),
    "Rint": lambda x, y: np.rint(x),
    "Tanh": lambda x, y: np.tanh(x),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_elements(kernels, name, dtype):
    x = np.random.default_rng(len(name)).normal(size=(2, COUNT)).astype(dtype) * 3
    y = np.zeros(COUNT, dtype)
    kernels("samples")["activation"](x, y, COUNT, list(FUNCTIONS).index(name), dtype == np.float16)
    expected = FUNCTIONS[name](*x.astype(np.float64))
    assert np.allclose(y, expected, rtol=2 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


@pytest.mark.parametrize("last", [True, False])
def test_cumulated_sums(kernels, last):
    x = np.random.default_rng(3).integers(-9, 9, size=(5, 24)).astype(np.float32)
    y = np.zeros((6, 24), np.float32)
    kernels("samples")["cumulated"](x, y, 5, 24, last)
    expected = np.cumsum(x, axis=1 if last else 0)
    assert (y == np.concatenate([expected, expected[-1:]])).all()


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["gradient", "front", "logarithm", "adjusted", "flash"])
def test_relatives_of_softmax(kernels, name):
    rows, columns = 3, 16
    x, other = np.random.default_rng(4).normal(size=(2, rows, columns)).astype(np.float32)
    other = softmax(other) if name in ("gradient", "front") else other
    y = np.zeros(rows * columns + 16 * rows, np.float32)
    names = ["gradient", "front", "logarithm", "adjusted", "flash"]
    kernels("samples")["softmax_parts"](np.stack([x, other]), y, rows, columns, names.index(name))
    result, statistics = y[: rows * columns].reshape(rows, columns), y[rows * columns :].reshape(2, rows, 8)
    sums = (x * other).sum(axis=1, keepdims=True)
    if name == "front":
        return np.testing.assert_allclose(statistics[0], np.repeat(sums, 8, axis=1), rtol=1e-5)
    expected = {
        "gradient": (x - sums) * other,
        "logarithm": np.log10(softmax(x)),
        "adjusted": np.where(np.arange(rows)[:, None] == 0, -1, softmax(x)),
        "flash": softmax(np.concatenate([x, other], axis=1))[:, columns:],
    }
    np.testing.assert_allclose(result, expected[name], rtol=1e-5, atol=1e-6)


def test_integers_of_four_bits(kernels):
    x = np.linspace(-12, 12, 192, dtype=np.float16)
    y, z = np.zeros(192, np.float16), np.zeros(96, np.uint8)
    kernels("samples")["four_bits"](x, y, z, 192)
    expected = np.clip(np.rint(x.astype(np.float64)), -8, 7)
    assert (y == expected).all()
    pairs = expected.astype(np.int64).reshape(-1, 2) & 15
    assert (z[32:] == (pairs[:, 0] | pairs[:, 1] << 4)[32:]).all() and not z[:32].any()


def test_the_types_of_an_instruction_may_be_named_apart_with_a_mask_set_before(kernels):
    x, y = np.arange(128, dtype=np.float32), np.ones(128, np.float32)
    kernels("samples")["multiplied_into"](x, y, 128)
    assert (y == 1 + np.where(np.arange(128) % 64 < 32, x * x, 0)).all()


@pytest.mark.parametrize("checks", [True, False])
def test_cores_wait_for_each_other_by_the_older_names(kernels, checks):
    x = np.zeros(8, np.float32)
    kernels("samples")["by_older_names"](x, checks=checks)
    assert x[0] == 1


def test_a_core_reads_its_numbers_by_the_compiler_s_names(kernels):
    memory = np.zeros(7 * 16, np.int32)
    x = memory[-(memory.ctypes.data // 4) % 16 :][: 6 * 16]  # a line of the cache for each core
    kernels("samples")["registers"](x, blocks=3)
    assert x.reshape(6, 16)[:, :5].tolist() == [[core // 2, core // 2, 3, core % 2, 2] for core in range(6)]
