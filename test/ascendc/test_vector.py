# SPDX-License-Identifier: Apache-2.0
"""Functions of the vector API against numpy: dtypes, odd counts, masks, repeats and strides."""

import itertools

import numpy as np
import pytest
from cann_cpu.kernel import KernelError
from vector_calls import COUNT, MASK_OF_BITS, Call, Form, counts, masks, room

FLOATS = ["float16", "float32"]
NUMBERS = [*FLOATS, "int16", "int32"]
BITS = ["int16", "uint16"]
SHIFTED = ["int16", "uint16", "int32", "uint32"]
ALL = ["float16", "float32", "int8", "uint8", "int16", "uint16", "int32", "uint32"]


def values(dtype, size, seed, low=-100, high=100):
    generator = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return generator.integers(max(low, info.min), high, size).astype(dtype)
    return generator.uniform(low, high, size).astype(dtype)


def exact(x):
    """Floating-point numbers in double, in which one operation on halves or floats is rounded harmlessly."""
    return x.astype(np.float64) if x.dtype.kind == "f" else x


def relu(x):
    return np.maximum(x, 0)


def wrapped(function):
    def compute(*arguments):
        with np.errstate(over="ignore"):
            return function(*arguments)

    return compute


def assert_close(actual, expected, ulps, scale=None):
    """Equal bits; or, for functions that are no single rounded operation, within so many of the last places, of the
    result or of a scale."""
    if actual.dtype.kind != "f" or ulps == 0:
        np.testing.assert_array_equal(actual, expected)
    else:
        scale = np.abs(expected if scale is None else scale).astype(expected.dtype)
        spacing = np.spacing(np.maximum(scale, np.finfo(expected.dtype).tiny))
        wrong = ~(np.abs(actual.astype(np.float64) - expected.astype(np.float64)) <= ulps * spacing.astype(np.float64))
        wrong &= ~((actual == expected) | (np.isnan(actual) & np.isnan(expected)))
        assert not wrong.any(), (actual[wrong][:5], expected[wrong][:5])


def forms(dtype, operands):
    itemsize = np.dtype(dtype).itemsize
    lanes = 256 // max(itemsize, 2)
    return [*counts(lanes), *masks(lanes, (itemsize,) * operands)]


def check(kernels, call, sources, reference, ulps=0, scale=None, **run):
    """Runs a call and compares dst: the elements that take part, and all others, which keep what they were."""
    to = call.to or call.dtype
    dst = values(to, room(call.form, 0, to), 9)
    out = call.run(kernels, dst, *sources, **run)
    itemsize = np.dtype(to).itemsize
    at = call.form.indices(0, itemsize)
    taken = [source[call.form.indices(i + 1, source.itemsize)] for i, source in enumerate(sources)]
    with np.errstate(all="ignore"):
        computed = reference(*taken, dst[at])
        expected = np.asarray(computed).astype(to)
    assert_close(out[at], expected, ulps, scale and scale(*map(exact, taken), exact(dst[at])))
    rest = np.delete(np.arange(len(dst)), at)
    np.testing.assert_array_equal(out[rest], dst[rest])


BINARY = {
    "Add": (NUMBERS, lambda a, b, d: exact(a) + exact(b), 0),
    "Sub": (NUMBERS, lambda a, b, d: exact(a) - exact(b), 0),
    "Mul": (NUMBERS, lambda a, b, d: exact(a) * exact(b), 0),
    "Div": (FLOATS, lambda a, b, d: exact(a) / exact(b), 0),
    "Max": (NUMBERS, lambda a, b, d: np.maximum(a, b), 0),
    "Min": (NUMBERS, lambda a, b, d: np.minimum(a, b), 0),
    "And": (BITS, lambda a, b, d: a & b, 0),
    "Or": (BITS, lambda a, b, d: a | b, 0),
    "AddRelu": ([*FLOATS, "int16"], lambda a, b, d: relu(exact(a) + exact(b)), 0),
    "SubRelu": ([*FLOATS, "int16"], lambda a, b, d: relu(exact(a) - exact(b)), 0),
    "MulAddDst": (FLOATS, lambda a, b, d: exact(d) + exact(a) * exact(b), 1.5),
    "FusedMulAdd": (FLOATS, lambda a, b, d: exact(d) * exact(a) + exact(b), 1.5),
    "FusedMulAddRelu": (FLOATS, lambda a, b, d: relu(exact(d) * exact(a) + exact(b)), 1.5),
}
# Product and sum are rounded one after the other, so the scale of the error is the scale of the terms.
SCALE = {
    "MulAddDst": lambda a, b, d: np.abs(d) + np.abs(a * b),
    "FusedMulAdd": lambda a, b, d: np.abs(d * a) + np.abs(b),
    "FusedMulAddRelu": lambda a, b, d: np.abs(d * a) + np.abs(b),
    "Axpy": lambda x, s, d: np.abs(d) + np.abs(x * s),
}
UNARY = {
    "Abs": (FLOATS, np.abs, 0),
    "Exp": (FLOATS, lambda x: np.exp(exact(x)), 1),
    "Ln": (FLOATS, lambda x: np.log(exact(x)), 1),
    "Sqrt": (FLOATS, lambda x: np.sqrt(exact(x)), 0),
    "Rsqrt": (FLOATS, lambda x: 1 / np.sqrt(exact(x)), 2),
    "Reciprocal": (FLOATS, lambda x: 1 / exact(x), 0),
    "Relu": ([*FLOATS, "int32"], relu, 0),
    "Not": (BITS, np.invert, 0),
}
SCALAR = {
    "Adds": (NUMBERS, lambda x, s, d: exact(x) + s, 0),
    "Muls": (NUMBERS, lambda x, s, d: exact(x) * s, 0),
    "Maxs": (NUMBERS, lambda x, s, d: np.maximum(exact(x), s), 0),
    "Mins": (NUMBERS, lambda x, s, d: np.minimum(exact(x), s), 0),
    "ShiftLeft": (SHIFTED, lambda x, s, d: x << s, 0),
    "ShiftRight": (SHIFTED, lambda x, s, d: x >> s, 0),
    "LeakyRelu": (FLOATS, lambda x, s, d: np.where(x > 0, exact(x), exact(x) * s), 0),
    "Axpy": (FLOATS, lambda x, s, d: exact(d) + exact(x) * s, 1.5),
}


def rows(table):
    return [(name, dtype) for name, row in table.items() for dtype in row[0]]


@pytest.mark.parametrize(("name", "dtype"), rows(BINARY))
def test_functions_of_two_tensors(kernels, name, dtype):
    _, reference, ulps = BINARY[name]
    for form in forms(dtype, 3):
        sources = values(dtype, room(form, 1, dtype), 1), values(dtype, room(form, 2, dtype), 2)
        check(kernels, Call("binary", name, dtype, form), sources, wrapped(reference), ulps, SCALE.get(name))


@pytest.mark.parametrize(("name", "dtype"), rows(UNARY))
def test_functions_of_one_tensor(kernels, name, dtype):
    _, reference, ulps = UNARY[name]
    low = 0.1 if name in ("Ln", "Sqrt", "Rsqrt", "Reciprocal") else -8
    for form in forms(dtype, 2):
        sources = (values(dtype, room(form, 1, dtype), 1, low, 8),)
        check(kernels, Call("unary", name, dtype, form), sources, lambda x, d: reference(x), ulps)


@pytest.mark.parametrize(("name", "dtype"), rows(SCALAR))
def test_functions_of_a_tensor_and_a_scalar(kernels, name, dtype):
    _, reference, ulps = SCALAR[name]
    scalar = 3 if np.issubdtype(dtype, np.integer) else 0.375
    for form in forms(dtype, 2):
        sources = (values(dtype, room(form, 1, dtype), 1),)
        call = Call("scalar", name, dtype, form, options={"scalar": scalar})
        scale = name in SCALE and (lambda x, d: SCALE[name](x, scalar, d))
        check(kernels, call, sources, wrapped(lambda x, d: reference(x, scalar, d)), ulps, scale)


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_integers_wrap_around(kernels, name, dtype):
    info = np.iinfo(dtype)
    a = np.array([info.max, info.min, info.min, info.max] * 4, dtype)
    b = np.array([1, -1, info.min, info.max] * 4, dtype)
    call = Call("binary", name, dtype, Form(COUNT, 256 // a.itemsize, len(a)))
    check(kernels, call, (a, b), wrapped(lambda a, b, d: BINARY[name][1](a, b, d)))


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_and_rounding(kernels, name, dtype):
    info = np.finfo(dtype)
    special = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal, info.eps / 2, 3.0]
    a, b = (part.reshape(-1).astype(dtype) for part in np.meshgrid(special, special))
    call = Call("binary", name, dtype, Form(COUNT, 256 // a.itemsize, len(a)))
    pad = np.ones(7, dtype)
    check(kernels, call, (np.append(a, pad), np.append(b, pad)), BINARY[name][1])


CASTS = {
    "AddReluCast": lambda a, b: relu(a + b),
    "SubReluCast": lambda a, b: relu(a - b),
    "MulCast": lambda a, b: a * b,
}
CAST_DTYPES = [("float16", "int8"), ("float32", "float16"), ("int16", "int8")]


@pytest.mark.parametrize(
    ("name", "dtype", "to"),
    [(name, *pair) for name in ("AddReluCast", "SubReluCast") for pair in CAST_DTYPES]
    + [("MulCast", "float16", "int8"), ("MulCast", "float16", "uint8")],
)
def test_functions_that_cast_their_result(kernels, name, dtype, to):
    sizes = np.dtype(to).itemsize, np.dtype(dtype).itemsize
    lanes = 256 // max(*sizes, 2)

    def reference(a, b, d):
        result = CASTS[name](a.astype(np.float64), b.astype(np.float64))
        return result if to == "float16" else np.clip(np.rint(result), np.iinfo(to).min, np.iinfo(to).max)

    for form in [*counts(lanes), *masks(lanes, (sizes[0], sizes[1], sizes[1]))]:
        sources = values(dtype, room(form, 1, dtype), 1, -20, 20), values(dtype, room(form, 2, dtype), 2, -20, 20)
        check(kernels, Call("binary_cast", name, dtype, form, to), sources, reference)


@pytest.mark.parametrize("dtype", [*FLOATS, *SHIFTED])
def test_duplicate(kernels, dtype):
    for form in forms(dtype, 1):
        check(
            kernels, Call("fill", "Duplicate", dtype, form, options={"scalar": 13}), (), lambda d: np.full_like(d, 13)
        )


@pytest.mark.parametrize("dtype", NUMBERS)
def test_indices_and_progressions(kernels, dtype):
    itemsize = np.dtype(dtype).itemsize
    for form in forms(dtype, 1):
        lanes = [i for i in range(form.lanes) if form.bits >> i & 1]
        index = np.array([r * form.lanes + i for r in range(form.repeats) for i in lanes])
        index = np.arange(form.count) if form.form == COUNT else index
        check(kernels, Call("fill", "CreateVecIndex", dtype, form, options={"scalar": 5}), (), lambda d, i=index: i + 5)
    for form in counts(256 // itemsize):
        steps = np.arange(form.count)
        call = Call("fill", "ArithProgression", dtype, form, options={"scalar": 5, "option": 3})
        check(kernels, call, (), lambda d, i=steps: 5 + 3 * i)


def elementwise(function):
    return lambda x: np.array([function(v) for v in x.tolist()])


def erf(x):
    import math

    return elementwise(math.erf)(x)


def erfc(x):
    import math

    return elementwise(math.erfc)(x)


MATH = {
    "Sin": (np.sin, -8, 8),
    "Cos": (np.cos, -8, 8),
    "Tan": (np.tan, -1.5, 1.5),
    "Asin": (np.arcsin, -1, 1),
    "Acos": (np.arccos, -1, 1),
    "Atan": (np.arctan, -9, 9),
    "Sinh": (np.sinh, -9, 9),
    "Cosh": (np.cosh, -9, 9),
    "Tanh": (np.tanh, -4, 4),
    "Asinh": (np.arcsinh, -9, 9),
    "Acosh": (np.arccosh, 1, 9),
    "Atanh": (np.arctanh, -0.99, 0.99),
    "Erf": (erf, -3, 3),
    "Erfc": (erfc, -3, 3),
    "Log": (np.log, 0.01, 99),
    "Log2": (np.log2, 0.01, 99),
    "Log10": (np.log10, 0.01, 99),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -9, 9),
    "Silu": (lambda x: x / (1 + np.exp(-x)), -9, 9),
    "Sign": (np.sign, -9, 9),
    "Frac": (lambda x: x - np.trunc(x), -9, 9),
    "Floor": (np.floor, -9, 9),
    "Ceil": (np.ceil, -9, 9),
    "Trunc": (np.trunc, -9, 9),
    "Round": (np.rint, -9, 9),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", MATH)
def test_mathematical_functions(kernels, name, dtype):
    reference, low, high = MATH[name]
    for form in counts(256 // np.dtype(dtype).itemsize):
        source = values(dtype, room(form, 1, dtype), 1, low, high)
        for flag in (False, True):  # with a buffer for intermediate results, and without
            call = Call("math", name, dtype, form, options={"flag": flag})
            check(kernels, call, (source,), lambda x, d: reference(exact(x)), 1, temporary=512)


@pytest.mark.parametrize("dtype", FLOATS)
def test_power_and_clamps(kernels, dtype):
    for form in counts(256 // np.dtype(dtype).itemsize):
        base, exponent = values(dtype, room(form, 1, dtype), 1, 0.1, 5), values(dtype, room(form, 2, dtype), 2, -3, 3)
        check(kernels, Call("math", "Power", dtype, form), (base, exponent), lambda a, b, d: exact(a) ** exact(b), 1)
        for name, reference in (("ClampMax", np.minimum), ("ClampMin", np.maximum)):
            call = Call("math", name, dtype, form, options={"scalar": 2.5})
            check(kernels, call, (base,), lambda a, d, f=reference: f(a, a.dtype.type(2.5)))


@pytest.mark.parametrize("dtype", BITS)
def test_xor(kernels, dtype):
    for form in counts(128):
        sources = values(dtype, room(form, 1, dtype), 1), values(dtype, room(form, 2, dtype), 2)
        check(kernels, Call("math", "Xor", dtype, form), sources, lambda a, b, d: a ^ b)


def reductions(dtype):
    lanes = 256 // np.dtype(dtype).itemsize
    return [form for form in masks(lanes, (2, np.dtype(dtype).itemsize)) if form.bits]


def repeats_of(form, source):
    """The elements of each repeat that take part, by their number in it."""
    at = form.indices(1, source.itemsize).reshape(form.repeats, -1)
    lanes = [i for i in range(form.lanes) if form.bits >> i & 1]
    return [dict(zip(lanes, source[row].tolist(), strict=True)) for row in at]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("name", "better"), [("WholeReduceMax", max), ("WholeReduceMin", min)])
@pytest.mark.parametrize("order", range(4))
def test_the_best_of_each_repeat(kernels, name, better, order, dtype):
    index_of = np.uint16 if dtype == "float16" else np.uint32
    for form in reductions(dtype):
        source = values(dtype, room(form, 1, dtype), 1, -3, 3).round()  # with equal ones: the first counts
        form = Form(**{**vars(form), "repeat_stride": (2, *form.repeat_stride[1:])})
        out = Call("reduce", name, dtype, form, options={"option": order}).run(kernels, np.zeros(128, dtype), source)
        for number, lanes in enumerate(repeats_of(form, source)):
            best = better(lanes.values())
            lane = next(i for i, value in lanes.items() if value == best)
            value, index = np.array([best], dtype).view(index_of), np.array([lane], index_of)
            expected = {
                0: np.concatenate([value, index]),
                1: np.concatenate([index, value]),
                2: value,
                3: np.array([lane], np.uint32).view(index_of),
            }[order]
            start = number * 2 * len(expected)
            np.testing.assert_array_equal(out.view(index_of)[start : start + len(expected)], expected)


GROUPS = {
    "WholeReduceSum": (lambda lanes, itemsize: lanes, sum),
    "RepeatReduceSum": (lambda lanes, itemsize: lanes, sum),
    "BlockReduceSum": (lambda lanes, itemsize: 32 // itemsize, sum),
    "BlockReduceMax": (lambda lanes, itemsize: 32 // itemsize, lambda values: max(values, default=0)),
    "BlockReduceMin": (lambda lanes, itemsize: 32 // itemsize, lambda values: min(values, default=0)),
    "PairReduceSum": (lambda lanes, itemsize: 2, sum),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", GROUPS)
def test_reductions_of_groups_of_elements(kernels, name, dtype):
    size_of, reduce = GROUPS[name]
    for form in reductions(dtype):
        source = values(dtype, room(form, 1, dtype), 1)
        size = size_of(form.lanes, source.itemsize)
        form = Form(**{**vars(form), "repeat_stride": (1, *form.repeat_stride[1:])})
        groups = form.lanes // size
        dst = np.full(groups * form.repeats + 64, 7, dtype)
        out = Call("reduce", name, dtype, form).run(kernels, dst, source)
        expected = dst.copy()
        for number, lanes in enumerate(repeats_of(form, source)):
            for group in range(groups):
                members = [value for lane, value in lanes.items() if lane // size == group]
                expected[number * groups + group] = np.float32(reduce(members))
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("name", "best"), [("ReduceSum", None), ("ReduceMax", np.argmax), ("ReduceMin", np.argmin)])
def test_reductions_of_a_whole_tensor(kernels, name, best, dtype):
    itemsize = np.dtype(dtype).itemsize
    index_of = np.uint16 if dtype == "float16" else np.uint32
    for form in [*counts(256 // itemsize), *(form for form in reductions(dtype) if form.block_stride[1] == 1)]:
        source = values(dtype, room(form, 1, dtype), 1).round()
        at = form.indices(1, itemsize)
        for flag in (False, True):
            call = Call("reduce", name, dtype, form, options={"flag": flag})
            out = call.run(kernels, np.full(64, 7, dtype), source, temporary=256)
            if best is None:
                assert out[0] == np.float32(source[at].astype(np.float64).sum()).astype(dtype)
                continue
            place = at[best(source[at])]
            assert out[0] == source[place]
            assert out.view(index_of)[1] == (place if flag else np.array([7], dtype).view(index_of)[0])


COMPARISONS = [np.less, np.greater, np.equal, np.less_equal, np.greater_equal, np.not_equal]


def compared(form, lanes, bits_of_elements):
    """A bit for each element of the repeats, 0 where it does not take part."""
    if form.form == COUNT:
        return np.packbits(bits_of_elements, bitorder="little")
    taking_part = [i for i in range(lanes) if form.bits >> i & 1]
    bits = np.zeros((form.repeats, lanes), bool)
    bits[:, taking_part] = bits_of_elements.reshape(form.repeats, -1)
    return np.packbits(bits.reshape(-1), bitorder="little")


both_comparisons = pytest.mark.parametrize("name", ["Compare", "CompareScalar"])


@both_comparisons
@pytest.mark.parametrize(("dtype", "mode"), [*itertools.product(FLOATS, range(6)), ("int32", 2)])
def test_comparisons(kernels, name, dtype, mode):
    itemsize = np.dtype(dtype).itemsize
    lanes = 256 // itemsize
    for form in [Form(COUNT, lanes, lanes), Form(COUNT, lanes, 3 * lanes), *masks(lanes, (itemsize,) * 3)]:
        sources = [values(dtype, room(form, i, dtype), i, -3, 4).round() for i in (1, 2)]
        call = Call("selection", name, dtype, form, options={"option": mode, "scalar": 1})
        dst = np.full(512, 255, np.uint8)
        other = sources[1][form.indices(2, itemsize)] if name == "Compare" else 1
        expected = compared(form, lanes, COMPARISONS[mode](sources[0][form.indices(1, itemsize)], other))
        out = call.run(kernels, dst, *sources)
        np.testing.assert_array_equal(out[: len(expected)], expected)
        assert (out[len(expected) :] == 255).all()


@both_comparisons
@pytest.mark.parametrize("mode", [0, 1, 3, 4, 5])
def test_a_comparison_of_int32_other_than_equal_is_rejected(kernels, name, mode):
    call = Call("selection", name, "int32", Form(COUNT, 64, 64), options={"option": mode, "scalar": 1})
    with pytest.raises(KernelError, match=f"{name}: int32_t has CMPMODE::EQ only"):
        call.run(kernels, np.zeros(64, np.uint8), *[np.zeros(64, np.int32)] * 2)


def test_a_comparison_of_no_whole_repeats_is_rejected(kernels):
    source = np.zeros(128, np.float32)
    call = Call("selection", "Compare", "float32", Form(COUNT, 64, 65))
    with pytest.raises(KernelError, match=r"Compare: 65 elements are not a multiple of 64, .* the last 1 are not"):
        call.run(kernels, np.zeros(64, np.uint8), source, source)


SAME_BITS, TENSOR_AND_SCALAR, TWO_TENSORS = range(3)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", [SAME_BITS, TENSOR_AND_SCALAR, TWO_TENSORS])
def test_selections(kernels, mode, dtype):
    generator = np.random.default_rng(mode)
    for form in forms(dtype, 3):
        sources = [values(dtype, room(form, i, dtype), i) for i in (1, 2)]
        bits = generator.integers(0, 256, 256).astype(np.uint8)
        number = np.arange(form.count)
        if form.form != COUNT:
            lanes = [i for i in range(form.lanes) if form.bits >> i & 1]
            number = np.array([r * form.lanes + i for r in range(form.repeats) for i in lanes])
        chosen = np.unpackbits(bits, bitorder="little").astype(bool)
        chosen = chosen[number % form.lanes if mode == SAME_BITS else number]
        call = Call("selection", "Select", dtype, form, options={"option": mode, "scalar": 2.5})
        if mode == TENSOR_AND_SCALAR:
            dst = values(dtype, room(form, 0, dtype), 9)
            out = call.run(kernels, dst, sources[0], bits)
            at = form.indices(0, dst.itemsize)
            expected = np.where(chosen, sources[0][form.indices(1, dst.itemsize)], dst.dtype.type(2.5))
            np.testing.assert_array_equal(out[at], expected)
        else:
            with_bits = np.concatenate([sources[1], bits.view(dtype)])
            check(kernels, call, (sources[0], with_bits), lambda a, b, d, c=chosen: np.where(c, a, b))


MOVABLE = ["float16", "float32", "uint16", "int32"]


@pytest.mark.parametrize("dtype", MOVABLE)
def test_copy(kernels, dtype):
    for form in forms(dtype, 2):
        if form.form != COUNT:
            source = values(dtype, room(form, 1, dtype), 1)
            check(kernels, Call("permute", "Copy", dtype, form), (source,), lambda x, d: x)


@pytest.mark.parametrize("dtype", MOVABLE)
def test_broadcasts_of_elements_to_blocks(kernels, dtype):
    per_block = 32 // np.dtype(dtype).itemsize
    for repeats, block_stride, repeat_stride in [(1, 1, 8), (3, 1, 8), (2, 2, 17)]:
        source = values(dtype, 64, 1)
        strides = {"block_stride": (block_stride,), "repeat_stride": (repeat_stride,)}
        form = Form(MASK_OF_BITS, 128, repeats=repeats, **strides)
        dst = np.full(64 * per_block, 7, dtype)
        out = Call("permute", "Brcb", dtype, form).run(kernels, dst, source)
        expected = dst.reshape(-1, per_block).copy()
        for i in range(8 * repeats):
            expected[i // 8 * repeat_stride + i % 8 * block_stride] = source[i]
        np.testing.assert_array_equal(out, expected.reshape(-1))


@pytest.mark.parametrize("dtype", MOVABLE)
def test_gathers(kernels, dtype):
    itemsize = np.dtype(dtype).itemsize
    source = values(dtype, 1024, 1)
    for form in forms(dtype, 1):
        offsets = np.random.default_rng(2).integers(0, 1000, 1024).astype(np.uint32)
        lanes = [i for i in range(form.lanes) if form.bits >> i & 1]
        number = np.array([r * form.lanes + i for r in range(form.repeats) for i in lanes], dtype=np.int64)
        number = np.arange(form.count) if form.form == COUNT else number
        call = Call("permute", "Gather", dtype, Form(**{**vars(form), "block_stride": (1,)}))
        call = call.with_options(option=8 * itemsize)
        dst = values(dtype, room(call.form, 0, dtype), 9)
        out = call.run(kernels, dst, source, offsets * itemsize)
        expected = dst.copy()
        expected[call.form.indices(0, itemsize)] = source[offsets[number] + 8]
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", MOVABLE)
def test_gathers_of_blocks(kernels, dtype):
    per_block = 32 // np.dtype(dtype).itemsize
    source = values(dtype, 64 * per_block, 1)
    blocks = np.random.default_rng(2).integers(0, 64, 24).astype(np.uint32)
    form = Form(MASK_OF_BITS, 128, repeats=3, block_stride=(2,), repeat_stride=(17,))
    dst = np.full(64 * per_block, 7, dtype)
    out = Call("permute", "Gatherb", dtype, form).run(kernels, dst, source, blocks * 32)
    expected = dst.reshape(-1, per_block).copy()
    for i, block in enumerate(blocks):
        expected[i // 8 * 17 + i % 8 * 2] = source.reshape(-1, per_block)[block]
    np.testing.assert_array_equal(out, expected.reshape(-1))


@pytest.mark.parametrize("dtype", MOVABLE)
@pytest.mark.parametrize("pattern", range(8))
@pytest.mark.parametrize("elements", [0, 37])
def test_gathers_by_a_pattern(kernels, dtype, pattern, elements):
    itemsize = np.dtype(dtype).itemsize
    per_repeat, per_block = elements or 256 // itemsize, 32 // itemsize
    source, bits = values(dtype, 1024, 1), np.random.default_rng(3).integers(0, 256, 256).astype(np.uint8)
    form = Form(MASK_OF_BITS, 128, repeats=3, block_stride=(1, 2, 1), repeat_stride=(8, 17, 2))
    options = {"option": pattern, "flag": elements != 0, "count": elements}
    dst = np.full(1024, 7, dtype)
    out = Call("permute", "GatherMask", dtype, form, options=options).run(kernels, dst, source, bits)
    expected = []
    for repeat in range(3):
        chosen = np.unpackbits(bits[repeat * 64 :], bitorder="little")
        for i in range(per_repeat):
            wanted = {0: chosen[i], 1: i % 2 == 0, 2: i % 2 == 1, 7: True}.get(pattern, i % 4 == pattern - 3)
            if wanted:
                expected.append(source[(repeat * 17 + i // per_block * 2) * per_block + i % per_block])
    np.testing.assert_array_equal(out[: len(expected)], expected)
    assert out.view(np.uint32)[-1] == len(expected)
    assert (out[len(expected) : -4] == 7).all()


@pytest.mark.parametrize("dtype", ["float16", "int16", "uint16"])
def test_transpose(kernels, dtype):
    source = values(dtype, 256, 1)
    out = Call("permute", "Transpose", dtype, Form(COUNT, 128)).run(kernels, np.zeros(256, dtype), source)
    np.testing.assert_array_equal(out.reshape(16, 16), source.reshape(16, 16).T)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sort_of_32(kernels, dtype):
    scores = values(dtype, 96, 1, -9, 9).round()
    indices = np.arange(1000, 1096, dtype=np.uint32)
    call = Call("permute", "Sort32", dtype, Form(COUNT, 128, repeats=3))
    out = call.run(kernels, np.zeros(96 * 8 // scores.itemsize, dtype), scores, indices)
    pairs = out.view(np.uint32).reshape(3, 32, 2)
    for part in range(3):
        order = np.argsort(-scores[part * 32 : part * 32 + 32].astype(np.float64), kind="stable") + part * 32
        np.testing.assert_array_equal(pairs[part, :, 1], indices[order])
        np.testing.assert_array_equal(out.reshape(3, 32, -1)[part, :, 0], scores[order])


@pytest.mark.parametrize(
    ("kernel", "name", "dtype"),
    [("binary", "Div", "int32"), ("binary", "And", "float32"), ("unary", "Exp", "int32"), ("scalar", "Adds", "int8")],
)
def test_a_dtype_that_the_vector_unit_lacks_does_not_compile(kernels, kernel, name, dtype):
    array = np.zeros(64, dtype)
    with pytest.raises(KernelError, match="the function has the dtype"):
        Call(kernel, name, dtype, Form(COUNT, 64, 1)).run(kernels, array, array, array)


@pytest.mark.parametrize("name", ["And", "Or"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
def test_a_count_of_bits_in_other_integers_is_one_of_16_bit_words(kernels, name, dtype):
    dst, a, b = (values(dtype, 512, seed) for seed in range(3))
    out = Call("binary", name, dtype, Form(COUNT, 64, 100)).run(kernels, dst, a, b).view(np.int16)
    words = BINARY[name][1](a.view(np.int16), b.view(np.int16), None)
    np.testing.assert_array_equal(out, np.concatenate([words[:100], dst.view(np.int16)[100:]]))


def test_at_least_60_functions_are_tested():
    others = "Duplicate CreateVecIndex ArithProgression Power ClampMax ClampMin Xor WholeReduceMax WholeReduceMin "
    others += (
        "ReduceSum ReduceMax ReduceMin Compare CompareScalar Select Copy Brcb Gather Gatherb GatherMask Transpose "
    )
    others += "Sort32 Cast"
    assert len({*BINARY, *UNARY, *SCALAR, *CASTS, *MATH, *GROUPS, *others.split()}) >= 60
