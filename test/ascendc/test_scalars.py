# SPDX-License-Identifier: Apache-2.0
"""Single numbers in kernels: their bits, casts, elements of tensors by an index, and min and max."""

import numpy as np
import pytest
from cann_cpu.kernel import KernelError

CASES = [0, 1, 0xFF00, 0x00FF, 0x0100000000000020, 0x00F0000000000000, 2**63, 2**63 - 1, 2**64 - 1]


def bits(value):
    """Ones, zeros, lowest one, lowest zero, leading zeros, and bits below the sign that are equal to it."""
    digits = f"{value:064b}"
    same = len(digits[1:]) - len(digits[1:].lstrip(digits[0]))
    lowest = [digits[::-1].find(digit) for digit in "10"]
    leading = 64 - len(digits.lstrip("0"))
    return [digits.count("1"), digits.count("0"), *lowest, leading, -1 if same == 63 else same]


def test_bits_are_counted_and_found(kernels):
    x = np.array(CASES, np.uint64)
    y = np.zeros((len(x), 6), np.int64)
    kernels("scalars")["bits"](x, y, len(x))
    assert y.tolist() == [bits(value) for value in CASES]


def test_a_float_is_rounded_as_its_mode_says(kernels):
    x = np.array([2.5, 1.5, -0.5, -2.25, 3.0, 3e9], np.float32)
    y = np.zeros((len(x), 4), np.int32)
    kernels("scalars")["rounded"](x, y, len(x))
    away = np.trunc(x + np.copysign(0.5, x))
    expected = np.stack([np.rint(x), away, np.ceil(x), np.floor(x)], axis=1).astype(np.int64)
    assert (y == expected.clip(-(2**31), 2**31 - 1)).all()


def test_a_kernel_may_have_a_min_and_a_max_of_its_own(kernels):
    x = np.array([7, -4, 5, 0, 0, 0, 0, 0], np.int32)
    y = np.zeros(8, np.int32)
    kernels("scalars")["chosen"](x, y)
    assert y.tolist() == [7, -4, -4, 5, 0, 0, 0, 0]


def test_an_element_behind_the_end_is_rejected(kernels):
    with pytest.raises(KernelError, match=r"tensor\(index\) reads element 8 of"):
        kernels("scalars")["past_the_end"](np.zeros(8, np.int32))


def test_a_kernel_has_the_name_of_a_function_of_the_standard_library(kernels):
    x = np.array([1, 5, 0, 0, 0, 0, 0, 0], np.float32)
    kernels("scalars")["lerp"](x)
    assert x[2] == 2
