# SPDX-License-Identifier: Apache-2.0
"""What the matrix unit is set to: images, roundings, scales of columns; sums that go on to L1."""

import numpy as np
import pytest
from cann_cpu.kernel import KernelError

PADDING = 2.5
FORMS = {"given": 0, "set": 1, "registers": 2}
PLAIN = {
    "form": 0,
    "right": 0,
    "height": 16,
    "width": 10,
    "channels": 32,
    "padding": (0, 0, 0, 0),
    "stride": (1, 1),
    "filter": (1, 1),
    "dilation": (1, 1),
    "rows": 16,
    "columns": 16,
    "first_row": 0,
    "first_column": 0,
    "times": 1,
    "step": 0,
    "along_columns": 0,
}
"""The members of Image in cube_settings.cpp, in its order. Pairs are along the width and the height."""
IMAGE = np.dtype([(name, np.uint32, np.shape(value)) for name, value in PLAIN.items()])
WINDOWS = {"padding": (1, 2, 3, 0), "stride": (2, 1), "filter": (2, 3), "dilation": (1, 2)}


def windows(x, image):
    """The windows of an image [height, width, channels] as rows: of each 16 channels, what they have in the window."""
    left, right, top, below = image["padding"]
    padded = np.pad(x, ((top, below), (left, right), (0, 0)), constant_values=PADDING)
    span, steps = [], []
    for axis in (1, 0):  # the height first
        span.append((image["filter"][axis] - 1) * image["dilation"][axis] + 1)
        steps.append(image["stride"][axis])
    rows = []
    for i in range(0, padded.shape[0] - span[0] + 1, steps[0]):
        for j in range(0, padded.shape[1] - span[1] + 1, steps[1]):
            window = padded[i : i + span[0] : image["dilation"][1], j : j + span[1] : image["dilation"][0]]
            rows.append(window.reshape(-1, x.shape[2] // 16, 16).transpose(1, 0, 2).ravel())
    return np.array(rows)


def load(kernels, **given):
    """The part of an image's matrix that a kernel loads, times 1; and what that is by the definition."""
    image = PLAIN | given
    x = np.random.default_rng(0).integers(-99, 99, [image[name] for name in ("height", "width", "channels")])
    matrix = windows(x.astype(float), image)
    along = [
        np.concatenate([first + np.arange(size) + i * image["step"] * 16 * is_repeated for i in range(times)])
        for first, size, is_repeated in (
            (image["first_row"], image["rows"], not image["along_columns"]),
            (image["first_column"], image["columns"], image["along_columns"]),
        )
        for times in [image["times"] if is_repeated else 1]
    ]
    expected = matrix[along[0]][:, along[1]]
    rows, columns = expected.shape
    # NC1HWC0
    stored = x.reshape(*x.shape[:2], -1, 16).transpose(2, 0, 1, 3).astype(np.float16).copy()
    unit = np.eye(rows if image["right"] else columns, dtype=np.float16)
    c = np.zeros(expected.shape, np.float32)
    argument = np.array([tuple(image.values())], IMAGE)
    kernels("cube_settings")["image"](stored, unit, c, argument, stored.size, rows, columns, len(unit))
    return c, expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize("part", [(16, 16, 0, 0), (16, 48, 3, 32), (32, 80, 1, 112)], ids=str)
def test_a_matrix_is_made_of_an_image(kernels, form, right, part):
    part = dict(zip(("rows", "columns", "first_row", "first_column"), part, strict=True))
    c, expected = load(kernels, form=FORMS[form], right=right, **WINDOWS, **part)
    assert PADDING in expected
    assert (c == expected).all()


@pytest.mark.parametrize("form", ["given", "registers"])
@pytest.mark.parametrize(
    "repeats",
    [
        {"rows": 16, "columns": 48, "times": 3, "step": 2},
        {"rows": 16, "columns": 32, "times": 2, "step": 3, "along_columns": 1},
        {"rows": 32, "columns": 16, "times": 3, "step": 2, "along_columns": 1, "right": 1},
        {"rows": 16, "columns": 32, "times": 2, "step": 1, "right": 1},
    ],
    ids=str,
)
def test_an_image_is_loaded_in_parts(kernels, form, repeats):
    c, expected = load(kernels, form=FORMS[form], **WINDOWS, **repeats)
    assert (c == expected).all()


def test_parts_whose_place_is_not_known_are_rejected(kernels):
    with pytest.raises(KernelError, match="mExtension is 32, repeated along columns to L0A without enTranspose"):
        load(kernels, **WINDOWS, rows=32, times=2, step=2, along_columns=1)
    with pytest.raises(KernelError, match="mExtension is 8 and is repeated; it must be a multiple of 16"):
        load(kernels, **WINDOWS, rows=8, times=2, step=2)


def hf32(x, toward_zero):
    """Rounds to 11 bits after the binary point."""
    mantissa, exponent = np.frexp(np.float64(x))
    scaled = mantissa * 2.0**12
    return np.ldexp(np.trunc(scaled) if toward_zero else np.rint(scaled), exponent - 12)


def floats(kernels, m, n, k, is_hf32=0, toward_zero=0, depth_by_16=0):
    generator = np.random.default_rng(k)
    a, b = generator.normal(size=(m, k)).astype(np.float32), generator.normal(size=(n, k)).astype(np.float32)
    c = np.zeros((m, n), np.float32)
    kernels("cube_settings")["floats"](a, b, c, m, n, k, is_hf32, toward_zero, depth_by_16)
    return a, b, c


@pytest.mark.parametrize("toward_zero", [0, 1])
def test_factors_are_rounded_to_hf32(kernels, toward_zero):
    a, b, c = floats(kernels, 16, 16, 8, 1, toward_zero)
    expected = hf32(a, toward_zero) @ hf32(b, toward_zero).T
    assert np.abs(c - expected).max() < 1e-5
    for other in (a.astype(np.float64) @ b.T.astype(np.float64), hf32(a, 1 - toward_zero) @ hf32(b, 1 - toward_zero).T):
        assert np.abs(c - other).max() > 1e-4


@pytest.mark.parametrize("shape", [(48, 32, 24), (33, 17, 40), (40, 16, 16)], ids=str)
def test_the_depth_of_floats_goes_up_to_a_multiple_of_16(kernels, shape):
    a, b, c = floats(kernels, *shape, depth_by_16=1)
    assert np.allclose(c, a.astype(np.float64) @ b.T.astype(np.float64), rtol=0, atol=1e-5)


@pytest.mark.parametrize("way", ["Fixpipe", "DataCopy"])
@pytest.mark.parametrize("nz", [0, 1])
@pytest.mark.parametrize(
    ("name", "dtype", "mode", "size"),
    [
        ("half_to_int8", np.float16, 6, 4.0),
        ("int8_to_half", np.int8, 4, 2.0**-6),
        ("int8_to_int8", np.int8, 8, 2.0**-5),
    ],
)
def test_each_column_has_its_scale(kernels, way, nz, name, dtype, mode, size):
    m, n, k = 30, 48, 32
    generator = np.random.default_rng(mode)
    a, b = (generator.integers(-20, 20, shape).astype(dtype) for shape in ((m, k), (n, k)))
    scales = size * 2.0 ** -(np.arange(n) % 4)
    if dtype == np.float16:
        a, b = a / dtype(16), b / dtype(16)
    bits = scales.astype(np.float32).view(np.uint32).astype(np.uint64) | np.uint64(1 << 46)
    result = np.float16 if name.endswith("half") else np.int8
    columns = 16 if result == np.float16 else 32
    c = np.zeros((-(-n // columns), 32, columns) if nz else (m, n), result)
    kernels("cube_settings")[f"{name}_by_columns"](a, b, c, bits, m, n, k, ["Fixpipe", "DataCopy"].index(way), mode, nz)
    if nz:
        c = c.transpose(1, 0, 2).reshape(32, -1)[:m, :n]
    expected = a.astype(np.float64) @ b.T.astype(np.float64) * scales
    if result == np.int8:
        assert len(np.unique(expected.round())) > 20
        assert (c == np.rint(expected).clip(-128, 127)).all()
    else:
        assert (c == expected.astype(np.float16)).all()


@pytest.mark.parametrize("way", ["Fixpipe", "DataCopy"])
def test_sums_in_l1_are_a_factor_again(kernels, way):
    m, n, k, p = 30, 48, 32, 20
    generator = np.random.default_rng(0)
    a, b, e = (generator.integers(-4, 4, shape).astype(np.float16) for shape in ((m, n), (n, k), (k, p)))
    d = np.zeros((m, p), np.float32)
    kernels("cube_settings")["chain"](a, b, e, d, m, n, k, p, ["Fixpipe", "DataCopy"].index(way))
    assert (d == a.astype(np.float64) @ b.astype(np.float64) @ e.astype(np.float64)).all()
