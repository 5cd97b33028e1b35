# SPDX-License-Identifier: Apache-2.0
"""What the handles of tensors are here: the values of all programs of a group, with the programs as the first axis.

A value that is equal in all programs has a first axis of 1. Integers whose elements are a start plus a stride for each
dimension (offsets, pointers, masks before they are needed) are kept in that form and become arrays where an operation
asks for elements; loads and stores of such pointers are slices of memory.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ElementType:
    """A scalar type: `array` is what computes, `memory` what a tensor in memory holds."""

    name: str
    array: np.dtype
    memory: np.dtype
    bits: int

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def is_int(self) -> bool:
        return self.array.kind in "ib"

    def round(self, data: np.ndarray) -> np.ndarray:
        """The result of an operation in this type; types narrower than their array are rounded."""
        if data.dtype != self.array:
            data = data.astype(self.array)
        return NARROW[self.name].round(data) if self.name in NARROW else data

    def encode(self, data: np.ndarray) -> np.ndarray:
        return NARROW[self.name].encode(data) if self.name in NARROW else data

    def decode(self, data: np.ndarray) -> np.ndarray:
        return NARROW[self.name].decode(data) if self.name in NARROW else data


@dataclass(frozen=True)
class PointerType:
    element: ElementType
    name = "pointer"
    bits = 64
    bytes = 8
    is_int = False
    array = np.dtype(np.int64)
    memory = np.dtype(np.int64)

    def round(self, data):
        return data

    encode = decode = round


@dataclass(frozen=True)
class BlockType:
    element: ElementType | PointerType
    shape: tuple


def element_of(type):
    return type.element if isinstance(type, BlockType) else type


class BFloat16:
    """Held as float32; round-to-nearest-even at 8 bits of mantissa."""

    @staticmethod
    def bits(data):
        bits = np.ascontiguousarray(data, np.float32).view(np.uint32)
        rounded = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
        nan = np.isnan(data)
        return np.where(nan, bits | np.uint32(0x400000), rounded) if nan.any() else rounded

    @classmethod
    def round(cls, data):
        return (cls.bits(data) & np.uint32(0xFFFF0000)).view(np.float32)

    @classmethod
    def encode(cls, data):
        return (cls.bits(data) >> 16).astype(np.uint16)

    @staticmethod
    def decode(data):
        return (data.astype(np.uint32) << 16).view(np.float32)


class Float8:
    """Held as float32; torch converts, which has these types."""

    def __init__(self, name):
        self.name = name

    def encode(self, data):
        import torch

        kept = torch.from_numpy(np.ascontiguousarray(data, np.float32)).to(getattr(torch, self.name))
        return kept.view(torch.uint8).numpy()

    def decode(self, data):
        import torch

        stored = torch.from_numpy(np.ascontiguousarray(data)).view(getattr(torch, self.name))
        return stored.to(torch.float32).numpy()

    def round(self, data):
        return self.decode(self.encode(data))


NARROW = {
    "bf16": BFloat16,
    "fp8e4nv": Float8("float8_e4m3fn"),
    "fp8e5": Float8("float8_e5m2"),
    "fp8e4b8": Float8("float8_e4m3fnuz"),
    "fp8e5b16": Float8("float8_e5m2fnuz"),
}


def _type(name, array, bits, memory=None):
    return ElementType(name, np.dtype(array), np.dtype(memory or array), bits)


TYPES = {
    type.name: type
    for type in (
        _type("int1", np.bool_, 1),
        _type("int8", np.int8, 8),
        _type("int16", np.int16, 16),
        _type("int32", np.int32, 32),
        _type("int64", np.int64, 64),
        _type("fp16", np.float16, 16),
        _type("fp32", np.float32, 32),
        _type("fp64", np.float64, 64),
        _type("bf16", np.float32, 16, np.uint16),
        *(_type(name, np.float32, 8, np.uint8) for name in NARROW if name != "bf16"),
    )
}
INT1, INT32, INT64, FP32 = (TYPES[name] for name in ("int1", "int32", "int64", "fp32"))


class Affine:
    """Integers of a block: start (an int, or one for each program) + the sum of index[d] * strides[d]."""

    __slots__ = ("bounds", "start", "strides")

    def __init__(self, start, strides, shape):
        self.start = start
        self.strides = strides
        first, last = (start, start) if isinstance(start, int) else (int(start.min()), int(start.max()))
        for stride, size in zip(strides, shape, strict=True):
            if stride > 0:
                last += stride * (size - 1)
            else:
                first += stride * (size - 1)
        self.bounds = first, last

    @property
    def constant(self) -> int | None:
        """The integer, if all elements of all programs are this one."""
        return self.start if isinstance(self.start, int) and not any(self.strides) else None

    def array(self, shape) -> np.ndarray:
        start = np.array([self.start]) if isinstance(self.start, int) else self.start
        total = start.reshape(-1, *[1] * len(shape))
        for axis, (stride, size) in enumerate(zip(self.strides, shape, strict=True)):
            if stride:
                index = np.arange(size, dtype=np.int64) * stride
                total = total + index.reshape(-1, *[1] * (len(shape) - axis - 1))
        return np.broadcast_to(total, (len(start), *shape))


class Value:
    """A tensor or a scalar of each program.

    data: shape (programs or 1, *shape); for pointers the offset in elements from the start of `region`
    wrapped: where an int32 operation wrapped on the way to this value, as an array of bool, or None
    is_product: whether it is the result of tl.dot, or its sum with another block, which the matrix unit computes
    """

    __slots__ = ("_data", "affine", "is_product", "region", "shape", "type", "wrapped")

    def __init__(self, type, shape, data=None, affine=None, region=None, wrapped=None):
        self.type = type
        self.shape = shape
        self._data = data
        self.affine = affine
        self.region = region
        self.wrapped = wrapped
        self.is_product = False

    def __repr__(self):
        return str(self.data[0] if len(self.data) == 1 else self.data)

    @property
    def data(self) -> np.ndarray:
        if self._data is None:
            self._data = self.affine.array(self.shape).astype(self.type.array)
        return self._data

    def as_affine(self) -> Affine | None:
        """The affine form of integers and pointers; every scalar has one."""
        if self.affine is None and not self.shape and self.type.array.kind == "i":
            data = self._data.astype(np.int64)
            self.affine = Affine(int(data[0]) if len(data) == 1 else data, (), ())
        return self.affine

    @property
    def bounds(self) -> tuple[int, int]:
        if self.affine:
            return self.affine.bounds
        return int(self.data.min()), int(self.data.max())

    @property
    def constant(self):
        """The Python number, if all elements of all programs are this one; otherwise None."""
        if self.affine:
            return self.affine.constant
        return self._data[0].item() if self._data.shape == (1,) else None

    @property
    def programs(self) -> int:
        if self.affine and self._data is None:
            return 1 if isinstance(self.affine.start, int) else len(self.affine.start)
        return len(self._data)

    def like(self, shape, function, strides=None) -> "Value":
        """This value in another shape: function(data) gives the array, strides the affine form's."""
        wrapped = None if self.wrapped is None else function(self.wrapped)
        if self.affine and strides is not None:
            affine = Affine(self.affine.start, strides, shape)
            return Value(self.type, shape, affine=affine, region=self.region, wrapped=wrapped)
        return Value(self.type, shape, function(self.data), region=self.region, wrapped=wrapped)

    def take(self, programs: np.ndarray) -> "Value":
        """The value of some programs of the group."""
        if self.programs == 1:
            return self
        wrapped = self.wrapped
        if wrapped is not None and len(wrapped) > 1:
            wrapped = wrapped[programs]
        if self.affine:
            affine = Affine(self.affine.start[programs], self.affine.strides, self.shape)
            return Value(self.type, self.shape, affine=affine, region=self.region, wrapped=wrapped)
        return Value(self.type, self.shape, self._data[programs], region=self.region, wrapped=wrapped)


def join(parts: list[tuple[np.ndarray, Value]], programs: int) -> Value:
    """One value of values that some of the programs each have."""
    values = [value for _, value in parts]
    first = values[0]
    if all(value is first for value in values):
        return first
    if any(value.region is not first.region for value in values):
        values = [value.region.absolute(value) for value in values]
        first = values[0]
    wrapped = None
    if any(value.wrapped is not None for value in values):
        wrapped = np.zeros((programs, *first.shape), bool)
        for (places, _), value in zip(parts, values, strict=True):
            wrapped[places] = False if value.wrapped is None else value.wrapped
    forms = [value.as_affine() for value in values]
    if all(form and form.strides == forms[0].strides for form in forms):
        start = np.empty(programs, np.int64)
        for (places, _), form in zip(parts, forms, strict=True):
            start[places] = form.start
        affine = Affine(start, forms[0].strides, first.shape)
        return Value(first.type, first.shape, affine=affine, region=first.region, wrapped=wrapped)
    data = np.empty((programs, *first.shape), first.type.array)
    for (places, _), value in zip(parts, values, strict=True):
        data[places] = value.data
    return Value(first.type, first.shape, data, region=first.region, wrapped=wrapped)
