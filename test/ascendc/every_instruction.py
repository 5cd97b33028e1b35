# SPDX-License-Identifier: Apache-2.0
"""Runs the instructions of the vector unit on special and random numbers and saves what they give: test_levels.py
compares it for the levels of the CPU's vector instructions."""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from cann_cpu.kernel import KernelFile
from test_cast import PAIRS, stored
from test_vector import BINARY, CAST_DTYPES, FLOATS, SCALAR, UNARY, rows
from vector_calls import COUNT, MASK_OF_ELEMENTS, Call, Form

HERE = Path(__file__).parent
ELEMENTS = 2048 + 37
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    -1e-45,
    6e-5,
    6e-8,
    65504,
    65520,
    3e38,
    -87.5,
    88.7,
    0.5,
]


def numbers(dtype, seed):
    """All magnitudes: random bits, small numbers, special ones."""
    generator = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    bits = generator.integers(0, 256, ELEMENTS * dtype.itemsize, dtype=np.uint8).view(dtype)
    if dtype.kind != "f":
        return bits
    small = generator.uniform(-9, 9, ELEMENTS).astype(dtype)
    with np.errstate(over="ignore"):
        small[:289] = np.tile(SPECIAL, 17)[:289] if seed % 2 else np.repeat(SPECIAL, 17)[:289]
    return np.where(generator.random(ELEMENTS) < 0.5, bits, small)[generator.permutation(ELEMENTS)]


def without_payload(array, dtype):
    """NaN is NaN: which of two operands it comes from is the compiler's choice."""
    if dtype == "bfloat16":
        return np.where((array & 0x7FFF) > 0x7F80, 0x7FC0, array).astype(array.dtype)
    return np.where(np.isnan(array), np.nan, array).astype(array.dtype) if array.dtype.kind == "f" else array


def calls():
    """(the key, the call, dtypes of its operands, of dst)"""
    for dtype in ("float16", "float32", "int16", "uint16", "int32", "uint32"):
        lanes = 256 // np.dtype(dtype).itemsize
        forms = (
            Form(COUNT, lanes, ELEMENTS),
            Form(
                MASK_OF_ELEMENTS, lanes, repeats=7, bits=2**lanes - 1, block_stride=(1, 1, 0), repeat_stride=(8, 8, 1)
            ),
        )
        for table, kernel, operands in ((BINARY, "binary", 2), (UNARY, "unary", 1), (SCALAR, "scalar", 1)):
            for (name, of), (i, form) in itertools.product(rows(table), enumerate(forms)):
                if of == dtype:
                    call = Call(kernel, name, dtype, form, options={"scalar": 3})
                    yield f"{name} {dtype} {i}", call, (dtype,) * operands, dtype
    for name, pair in itertools.product(("AddReluCast", "SubReluCast"), CAST_DTYPES):
        yield (
            f"{name} {pair}",
            Call("binary_cast", name, pair[0], Form(COUNT, 64, ELEMENTS), pair[1]),
            pair[:1] * 2,
            pair[1],
        )
    for pair, modes in PAIRS.items():
        for mode in modes:
            call = Call("cast", "Cast", pair[0], Form(COUNT, 64, ELEMENTS), pair[1], {"option": mode})
            yield f"Cast {pair} {mode}", call, pair[:1], pair[1]
    for dtype in FLOATS:
        lanes = 256 // np.dtype(dtype).itemsize
        form = Form(COUNT, lanes, ELEMENTS // lanes * lanes)
        for name, mode in itertools.product(("Compare", "CompareScalar"), range(6)):
            call = Call("selection", name, dtype, form, options={"option": mode, "scalar": 0.5})
            yield f"{name} {dtype} {mode}", call, (dtype, dtype), "uint8"
        for bits, name in itertools.product(
            (2**lanes - 1, 2 ** (lanes - 5) - 1),
            (
                "WholeReduceMax",
                "WholeReduceMin",
                "WholeReduceSum",
                "BlockReduceMax",
                "BlockReduceMin",
                "BlockReduceSum",
                "PairReduceSum",
            ),
        ):
            form = Form(MASK_OF_ELEMENTS, lanes, repeats=13, bits=bits, repeat_stride=(1, 8, 8))
            yield f"{name} {dtype} {bits}", Call("reduce", name, dtype, form), (dtype,), dtype


def main():
    with ThreadPoolExecutor(2) as pool:
        names = ("binary", "unary", "cast", "select", "reduce")
        paths = [HERE / "kernels" / f"{name}.cpp" for name in names]
        files = dict(zip(names, pool.map(lambda path: KernelFile(path, ("-O1",)), paths), strict=True))
    results = {}
    for number, (key, call, dtypes, to) in enumerate(calls()):
        sources = [numbers(stored(dtype), 2 * number + i) for i, dtype in enumerate(dtypes)]
        if call.kernel in ("binary_cast", "reduce") or call.name in ("Compare", "Select"):
            sources = [np.nan_to_num(source, posinf=9, neginf=-9) for source in sources]
        dst = np.ones(ELEMENTS, stored(to))
        results[key] = without_payload(call.run(files.__getitem__, dst, *sources), to)
    np.savez(sys.argv[1], **results)


if __name__ == "__main__":
    main()
