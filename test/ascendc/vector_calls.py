# SPDX-License-Identifier: Apache-2.0
"""Calls functions of the vector API through the kernels of request.h, and says which elements a call works on."""

from dataclasses import dataclass, field, replace

import numpy as np

REQUEST = np.dtype(
    [
        ("name", "S24"),
        ("dtype", "S1"),
        ("to", "S1"),
        ("flag", "?"),
        ("form", "u4"),
        ("count", "u4"),
        ("repeats", "u4"),
        ("option", "u4"),
        ("scalar", "f4"),
        ("mask", "u8", 2),
        ("block_stride", "u4", 3),
        ("repeat_stride", "u4", 3),
        ("bytes", "u4", 4),
    ],
    align=True,
)
COUNT, MASK_OF_ELEMENTS, MASK_OF_BITS = range(3)
BLOCK = 32


def letter(dtype):
    """The dtype as request.h names it."""
    return "E" if dtype == "bfloat16" else "l" if dtype == np.int64 else np.dtype(dtype).char


@dataclass(frozen=True)
class Form:
    """Which elements of its operands a function works on: the first `count`, or those of a mask in every repeat."""

    form: int
    lanes: int  # of a repeat
    count: int = 0
    repeats: int = 1
    bits: int = 0
    block_stride: tuple = (1, 1, 1)
    repeat_stride: tuple = (8, 8, 8)

    def indices(self, operand, itemsize):
        """Where the elements are in an operand: 0 is dst, 1 and 2 are the sources."""
        if self.form == COUNT:
            return np.arange(self.count)
        lane = np.array([i for i in range(self.lanes) if self.bits >> i & 1], dtype=np.int64)
        per_block = BLOCK // itemsize
        repeat = np.arange(self.repeats)[:, None]
        block = repeat * self.repeat_stride[operand] + lane // per_block * self.block_stride[operand]
        return (block * per_block + lane % per_block).reshape(-1)

    def request(self):
        mask = (self.bits & (2**64 - 1), self.bits >> 64)
        if self.form == MASK_OF_ELEMENTS:
            mask = (self.bits.bit_length(), 0)
        return {
            "form": self.form,
            "count": self.count,
            "repeats": self.repeats,
            "mask": mask,
            "block_stride": self.block_stride,
            "repeat_stride": self.repeat_stride,
        }


def counts(lanes):
    """The form of a count: one, odd ones, those about a repeat."""
    return [Form(COUNT, lanes, count) for count in (1, 13, lanes - 1, lanes, lanes + 1, 5 * lanes + 7)]


def masks(lanes, itemsizes):
    """The form of a mask, over operands whose elements have these sizes: odd masks, repeats, strides."""
    dense = tuple(lanes * size // BLOCK for size in itemsizes)
    wide = tuple(2 * blocks + i for i, blocks in enumerate(dense))
    full = 2**lanes - 1
    pattern = int.from_bytes(np.random.default_rng(lanes).bytes(lanes // 8), "little")
    ones = (1,) * len(dense)
    return [
        Form(MASK_OF_ELEMENTS, lanes, repeats=1, bits=1, block_stride=ones, repeat_stride=dense),
        Form(MASK_OF_ELEMENTS, lanes, repeats=3, bits=2 ** (lanes - 5) - 1, block_stride=ones, repeat_stride=dense),
        Form(MASK_OF_ELEMENTS, lanes, repeats=2, bits=full, block_stride=(2, 1, 2)[: len(dense)], repeat_stride=wide),
        Form(MASK_OF_BITS, lanes, repeats=1, bits=full, block_stride=ones, repeat_stride=dense),
        Form(MASK_OF_BITS, lanes, repeats=5, bits=pattern, block_stride=ones, repeat_stride=dense),
        Form(MASK_OF_BITS, lanes, repeats=2, bits=pattern, block_stride=(1, 2, 2)[: len(dense)], repeat_stride=wide),
        Form(MASK_OF_BITS, lanes, repeats=2, bits=1 << (lanes - 1), block_stride=ones, repeat_stride=dense),
    ]


def padded(strides):
    return (*strides, *(1,) * (3 - len(strides)))


@dataclass(frozen=True)
class Call:
    """A call of a function of the API, in a kernel file and kernel of kernels/."""

    kernel: str
    name: str
    dtype: str
    form: Form
    to: str = ""
    options: dict = field(default_factory=dict)

    def run(self, kernels, dst, src0=None, src1=None, temporary=0):
        """The elements of dst after the call; dst itself stays. They are the same with the checks on and off, where
        operands go to the library's loops in other pieces."""
        arrays = [np.zeros(0, np.uint8) if array is None else array for array in (dst, src0, src1)]
        request = np.zeros(1, REQUEST)
        form = self.form.request()
        form = {**form, "block_stride": padded(form["block_stride"]), "repeat_stride": padded(form["repeat_stride"])}
        fields = {"name": self.name, "dtype": letter(self.dtype), "to": letter(self.to) if self.to else "", **form}
        for name, value in {**fields, **self.options}.items():
            request[name] = value
        request["bytes"] = [*(array.nbytes for array in arrays), temporary]
        files = {"binary_cast": "binary", "scalar": "unary", "fill": "unary", "selection": "select"}
        kernel = kernels(files.get(self.kernel, self.kernel))[self.kernel]
        out, unchecked = dst.copy(), dst.copy()
        kernel(out, *arrays[1:], request)
        kernel(unchecked, *arrays[1:], request, checks=False)
        np.testing.assert_array_equal(out, unchecked)
        return out

    def with_options(self, **options):
        return replace(self, options={**self.options, **options})


def room(form, operand, dtype):
    """The number of elements of an operand, in whole blocks, with some after the last one that takes part."""
    itemsize = np.dtype(dtype).itemsize
    last = max(form.indices(operand, itemsize), default=0)
    return (last * itemsize // BLOCK + 3) * BLOCK // itemsize
