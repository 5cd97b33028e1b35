# SPDX-License-Identifier: Apache-2.0
"""Cast against exact arithmetic, for every pair of dtypes and every rounding mode."""

import numpy as np
import pytest
from cann_cpu.kernel import KernelError
from vector_calls import COUNT, Call, Form, counts, masks, room

NONE, RINT, FLOOR, CEIL, ROUND, TRUNC, ODD = range(7)
DIRECTIONS = {RINT, FLOOR, CEIL, ROUND, TRUNC}

# What the vector unit of Atlas A2 converts, and how. CAST_NONE rounds as CAST_RINT where it has to.
PAIRS = {
    ("float16", "float32"): {NONE},
    ("float16", "int32"): DIRECTIONS,
    ("float16", "int16"): DIRECTIONS,
    ("float16", "int8"): DIRECTIONS | {NONE},
    ("float16", "uint8"): DIRECTIONS | {NONE},
    ("float32", "float32"): DIRECTIONS,
    ("float32", "float16"): DIRECTIONS | {NONE, ODD},
    ("float32", "bfloat16"): DIRECTIONS,
    ("float32", "int64"): DIRECTIONS,
    ("float32", "int32"): DIRECTIONS,
    ("float32", "int16"): DIRECTIONS,
    ("bfloat16", "float32"): {NONE},
    ("bfloat16", "int32"): DIRECTIONS,
    ("uint8", "float16"): {NONE},
    ("int8", "float16"): {NONE},
    ("int16", "float16"): DIRECTIONS | {NONE},
    ("int16", "float32"): {NONE},
    ("int32", "float32"): DIRECTIONS | {NONE},
    ("int32", "int64"): {NONE},
    ("int32", "int16"): {NONE},
    ("int64", "int32"): {NONE},
    ("int64", "float32"): DIRECTIONS,
}
DTYPES = ["float16", "bfloat16", "float32", "int8", "uint8", "int16", "int32", "int64"]
FORMATS = {"float16": (10, -14, 15), "bfloat16": (7, -126, 127), "float32": (23, -126, 127)}


def stored(dtype):
    """The numpy dtype whose bits a dtype has."""
    return np.uint16 if dtype == "bfloat16" else np.dtype(dtype)


def numbers(array, dtype):
    """What stored elements mean: float64, which has them all exactly, or integers."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64) if array.dtype.kind == "f" else array.astype(np.int64)


def sources(dtype):
    """All values of 8 and 16 bits; of the others random ones and those about the places where results change."""
    bits = np.arange(2**16, dtype=np.uint16)
    generator = np.random.default_rng(0)
    if dtype in ("float16", "bfloat16", "int16"):
        return bits.view(stored(dtype))
    if dtype in ("int8", "uint8"):
        return bits[:256].astype(np.uint8).view(dtype)
    if dtype == "float32":
        halves = bits[:0x7C00].view(np.float16).astype(np.float32)
        middles = (halves[1:] + halves[:-1]) / 2
        wide = generator.integers(0, 2**32, 2048, dtype=np.uint32)
        ties = ((wide & 0xFFFF0000) | 0x8000).view(np.float32)  # halfway between two of bfloat16
        edges = np.float32([65519.9, 65520, 65536, 1e-8, 3e-8, np.inf, np.nan, *2.0 ** np.arange(70)])
        quarters = np.arange(0, 300, 0.25, dtype=np.float32)
        with np.errstate(all="ignore"):
            some = np.concatenate([middles[::4], halves[::17], ties, wide.view(np.float32), quarters, edges])
            some = np.concatenate([some, np.nextafter(some, np.float32(np.inf)), np.nextafter(some, np.float32(0))])
            return np.concatenate([some, -some])
    info = np.iinfo(dtype)
    places = [
        2**k + j * 2 ** max(k - 25, 0) + i for k in range(15, info.bits - 1) for j in (0, 1, 2, 3) for i in (-1, 0, 1)
    ]
    some = np.concatenate([np.array(places, dtype), generator.integers(info.min, info.max, 2000, dtype=dtype)])
    return np.concatenate([some, -some, np.array([0, info.min, info.max, 2**15 - 1, -(2**15)], dtype)])


def rounded(scaled, mode):
    """Numbers rounded to integers. What is given has so few bits that no step here rounds by itself."""
    if mode == ODD:
        down = np.trunc(scaled)
        return np.where((down != scaled) & (down % 2 == 0), down + np.copysign(1, scaled), down)
    if mode == ROUND:
        return np.trunc(scaled + np.copysign(0.5, scaled)) if scaled.dtype.kind == "f" else scaled
    return {FLOOR: np.floor, CEIL: np.ceil, TRUNC: np.trunc}.get(mode, np.rint)(scaled)


def to_format(values, to, mode):
    """Float64 values in a format with an exponent and a mantissa, rounded once."""
    mantissa, lowest, highest = FORMATS[to]
    finite = np.where(np.isfinite(values), values, 1)
    exponent = np.maximum(np.frexp(finite)[1] - 1, lowest)
    quantum = np.ldexp(1.0, exponent - mantissa)
    result = rounded(finite / quantum, mode) * quantum
    largest = (2 - 2.0**-mantissa) * 2.0**highest
    overflow = np.abs(result) > largest
    stays = {FLOOR: values > 0, CEIL: values < 0, TRUNC: True, ODD: True}.get(mode, False)
    result = np.where(overflow, np.copysign(np.where(stays, largest, np.inf), values), result)
    return np.where(np.isfinite(values), result, values)


def integers_to_float(values, mode):
    """64-bit integers as float32, in integers: the quotient by the last place that is kept, and what is left."""
    results = []
    for value in map(int, values):
        place = 1 << max(abs(value).bit_length() - 24, 0)
        quotient, rest = divmod(value, place)  # towards minus infinity
        up = {
            FLOOR: False,
            CEIL: rest > 0,
            TRUNC: rest > 0 and value < 0,
            ROUND: 2 * rest > place or (2 * rest == place and value > 0),
        }.get(mode, 2 * rest > place or (2 * rest == place and quotient % 2 == 1))
        results.append(float((quotient + up) * place))
    return np.array(results)


def reference(array, dtype, to, mode):
    """What Cast gives, as stored."""
    values = numbers(array, dtype)
    if to in FORMATS:
        if dtype == "int64":
            return integers_to_float(values, mode).astype(np.float32)
        if dtype == to:
            return np.where(np.isfinite(values), rounded(values, mode), values).astype(np.float32)
        result = to_format(values.astype(np.float64), to, mode)
        if to == "bfloat16":
            return (result.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return result.astype(to)
    info = np.iinfo(to)
    if values.dtype.kind == "f":
        whole = [0 if v != v else v for v in rounded(values, mode).tolist()]
        limited = [info.min if v <= info.min else info.max if v >= info.max else int(v) for v in whole]
        return np.array(limited, to)
    return np.clip(values, info.min, info.max).astype(to)


def is_nan(array, dtype):
    return (array & 0x7FFF) > 0x7F80 if dtype == "bfloat16" else array != array


def assert_same(actual, expected, to):
    """The same bits, including the sign of zero; any NaN for a NaN."""
    nan = is_nan(expected, to)
    np.testing.assert_array_equal(is_nan(actual, to), nan)
    bits = np.dtype(f"u{expected.dtype.itemsize}")
    np.testing.assert_array_equal(actual[~nan].view(bits), expected[~nan].view(bits))


CASES = [(*pair, mode) for pair, modes in PAIRS.items() for mode in sorted(modes)]


@pytest.mark.parametrize(("dtype", "to", "mode"), CASES)
def test_every_value_is_rounded_once(kernels, dtype, to, mode):
    array = sources(dtype)
    with np.errstate(all="ignore"):
        expected = reference(array, dtype, to, mode)
    out = []
    for start in range(0, len(array), 8192):
        part = array[start : start + 8192]
        call = Call("cast", "Cast", dtype, Form(COUNT, 64, len(part)), to, {"option": mode})
        out.append(call.run(kernels, np.zeros(len(part), stored(to)), part))
    assert_same(np.concatenate(out), expected, to)


@pytest.mark.parametrize(("dtype", "to"), PAIRS)
def test_odd_counts_masks_and_strides(kernels, dtype, to):
    sizes = stored(to).itemsize if isinstance(stored(to), np.dtype) else 2, np.dtype(stored(dtype)).itemsize
    lanes = 256 // max(*sizes, 2)
    mode = min(PAIRS[dtype, to])
    choices = np.random.default_rng(1).permutation(sources(dtype))
    for form in [*counts(lanes), *masks(lanes, sizes)]:
        source = np.resize(choices, room(form, 1, stored(dtype)))
        dst = np.full(room(form, 0, stored(to)), 77, stored(to))
        out = Call("cast", "Cast", dtype, form, to, {"option": mode}).run(kernels, dst, source)
        at = form.indices(0, sizes[0])
        with np.errstate(all="ignore"):
            assert_same(out[at], reference(source[form.indices(1, sizes[1])], dtype, to, mode), to)
        rest = np.delete(np.arange(len(dst)), at)
        np.testing.assert_array_equal(out[rest], dst[rest])


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_vector_unit_does_not_convert_is_rejected(kernels, dtype, to):
    pairs = {**PAIRS, ("int32", "float16"): DIRECTIONS | {NONE}}  # times a scale: test_library.py
    source, dst = np.zeros(64, stored(dtype)), np.zeros(64, stored(to))
    for mode in set(range(7)) - pairs.get((dtype, to), set()):
        expected = "no rounding mode" if (dtype, to) in pairs else "the function has the dtype"
        with pytest.raises(KernelError, match=expected):
            Call("cast", "Cast", dtype, Form(COUNT, 64, 8), to, {"option": mode}).run(kernels, dst, source)
