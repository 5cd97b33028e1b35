# SPDX-License-Identifier: Apache-2.0
"""Calls aclnn functions with arguments drawn from a seed, most of them wrong, and says what they did.

A call of C functions on memory between guard zones. Right is: an error with a message that names the function, from
phase one or from the stream, or a call that runs; no crash, no hang, and no byte written but the elements of the
outputs.

    python test/reliability/aclnn_calls.py [--calls N] [--seed N] [--functions NAME ...] [--only CALL]
"""

import ctypes
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import drawn_calls
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from aclnn_signatures import signatures

ARENA = 64 << 20  # bytes of device memory that the tensors of a call lie in
GUARD = 256  # bytes around each
FILL = 0xA5
ND = 2
DTYPES_OF = {1: (2, 4, 12, 34, 35, 36, 37), 2: (1, 6, 7, 27), 4: (0, 3, 8, 33), 8: (9, 10, 11, 16), 16: (17,)}
ITEMSIZE = {dtype: size for size, dtypes in DTYPES_OF.items() for dtype in dtypes}  # by aclDataType
COMMON = [0, 0, 0, 1, 27, 3, 9, 12, 2, 4, 11]
EXTREMES = [0, -1, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 20]
TEXTS = ["", "none", "mean", "sum", "linear", "reflect", "tanh", "BSND", "BNSD", "TND", "x" * 4000, "\n%s%n", "日本"]
SIGNATURES = signatures()


@dataclass
class Tensor:
    """The arguments of an aclCreateTensor: sizes, strides and offset of a view of `storage` elements."""

    dtype: int
    shape: list[int]
    strides: list[int]
    offset: int
    storage: int
    format: int
    null: bool = False
    without_data: bool = False

    @property
    def itemsize(self) -> int:
        return ITEMSIZE.get(self.dtype, 4)

    def bytes(self) -> int:
        return max(self.storage, 0) * self.itemsize

    def is_view(self) -> bool:
        """Whether it lies within its storage."""
        if min([self.offset, *self.shape, *self.strides]) < 0 or 0 in self.shape:
            return False
        last = self.offset + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return last < self.storage


class Draw:
    """The arguments of a call: a few related shapes and one dtype, with faults among them."""

    def __init__(self, seed: str):
        self.random = random.Random(seed)
        rank = self.random.choice([0, 1, 2, 2, 3, 4, 4, 5])
        self.shape = [self.random.choice([1, 2, 3, 4, 7, 16]) for _ in range(rank)]
        self.dtype = self.random.choice(COMMON)
        self.faults = self.random.choice([0.0, 0.03, 0.15])

    def is_faulty(self) -> bool:
        return self.random.random() < self.faults

    def sizes(self) -> list[int]:
        pick, shape = self.random.random(), list(self.shape)
        if pick < 0.6 or not shape:
            return shape
        if pick < 0.7:
            shape[self.random.randrange(len(shape))] = self.random.choice([0, 1, 2, 5])
        elif pick < 0.8:
            del shape[self.random.randrange(len(shape))]
        elif pick < 0.9:
            shape = [self.random.choice([0, 1, 3]), *shape]
        else:
            self.random.shuffle(shape)
        return shape

    def tensor(self) -> Tensor:
        dtype = self.dtype if self.random.random() < 0.85 else self.random.choice(list(ITEMSIZE))
        shape = self.sizes()
        strides = [int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]
        if shape and self.random.random() < 0.15:  # a view
            axis = self.random.randrange(len(shape))
            strides = [s * 2 for s in strides] if self.random.random() < 0.5 else strides
            strides[axis] = self.random.choice([0, strides[axis]])
        offset = self.random.choice([0, 0, 0, 3])
        extent = (
            sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1 if 0 not in shape else 0
        )
        tensor = Tensor(dtype, shape, strides, offset, offset + extent, ND)
        if self.is_faulty():
            self.spoil(tensor)
        return tensor

    def spoil(self, tensor: Tensor) -> None:
        match self.random.randrange(9):
            case 0:
                tensor.null = True
            case 1:
                tensor.without_data = True
            case 2:
                tensor.dtype = self.random.choice([5, 13, 25, 28, 36, 99, -1])
            case 3:
                tensor.format = self.random.choice([0, 3, 4, 29, 30, 99, -1])
            case 4 if tensor.shape:
                tensor.shape[self.random.randrange(len(tensor.shape))] = self.random.choice(EXTREMES)
            case 5 if tensor.shape:
                tensor.strides[self.random.randrange(len(tensor.shape))] = self.random.choice(EXTREMES)
            case 6:
                tensor.offset = self.random.choice(EXTREMES)
            case 7:
                tensor.storage = self.random.choice([0, tensor.storage // 2, -1])
            case 8:
                tensor.shape, tensor.strides = [1] * 30, [1] * 30

    def integer(self) -> int:
        if self.is_faulty():
            return self.random.choice(EXTREMES)
        return self.random.choice([0, 0, 1, 1, 2, 3, -1, -2, 4, 7])

    def number(self) -> float:
        if self.is_faulty():
            return self.random.choice([float("nan"), float("inf"), -float("inf"), 1e308, -1e308])
        return self.random.choice([0.0, 1.0, 0.5, -1.0, 2.0, 1e-6])

    def argument(self, kind: str):
        """(kind, value), which Memory makes a C argument of."""
        few = range(self.random.choice([0, 1, 2, 2, 3, 4]))
        null = self.is_faulty() and self.random.random() < 0.3
        match kind:
            case "tensor":
                return kind, self.tensor()
            case "tensors":
                return kind, None if null else [self.tensor() for _ in few]
            case "scalar":
                return kind, None if null else self.scalar()
            case "scalars":
                return kind, None if null else [self.scalar() for _ in few]
            case "ints":
                sizes = self.random.choice([list(self.shape), [self.integer() for _ in few]])
                return kind, None if null else sizes
            case "floats" | "bools":
                return kind, None if null else [self.number() for _ in few]
            case "text":
                return kind, None if null else self.random.choice(TEXTS)
            case "bool":
                return kind, self.random.choice([0, 1])
            case "float" | "double":
                return kind, self.number()
            case "dtype":
                return kind, self.random.choice([*ITEMSIZE, -1, 5, 99])
            case "int":
                return kind, max(min(self.integer(), 2**31 - 1), -(2**31))
            case _:
                return kind, self.integer()

    def scalar(self) -> tuple[int, int | float]:
        return self.random.choice([(9, self.integer()), (11, self.number()), (12, 1), (0, self.number())])


class Memory:
    """Device memory with guard zones, and the C objects of a call."""

    def __init__(self, acl):
        self.base = ctypes.CDLL("libnnopbase.so")
        address = ctypes.c_void_p()
        assert acl.aclrtMalloc(ctypes.byref(address), ctypes.c_size_t(ARENA), 0) == 0
        self.address = address.value
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * ARENA).from_address(self.address))
        self.contents = np.random.default_rng(0).integers(0, 4, 4096, dtype=np.uint8)

    def start(self) -> None:
        self.end, self.made, self.tensors = GUARD, [], []
        self.bytes[:GUARD] = FILL

    def take(self, size: int) -> int:
        """The place of new memory of small numbers, in whichever dtype, between guard zones."""
        begin, self.end = self.end, self.end + size + (-size) % 64 + GUARD
        self.bytes[begin : self.end] = FILL
        self.bytes[begin : begin + size] = np.resize(self.contents, size)
        return begin

    def tensor(self, tensor: Tensor):
        if tensor.null:
            return ctypes.c_void_p()
        begin = self.take(tensor.bytes())
        self.tensors.append((begin, tensor))
        data = ctypes.c_void_p(None if tensor.without_data else self.address + begin)
        rank, storage = ctypes.c_uint64(len(tensor.shape)), integers([tensor.storage])
        shape, strides, offset = integers(tensor.shape), integers(tensor.strides), ctypes.c_int64(tensor.offset)
        return self.make(
            "Tensor", shape, rank, tensor.dtype, strides, offset, tensor.format, storage, ctypes.c_uint64(1), data
        )

    def make(self, kind: str, *arguments):
        create = getattr(self.base, f"aclCreate{kind}")
        create.restype = ctypes.c_void_p
        self.made.append((kind, ctypes.c_void_p(create(*arguments))))
        return self.made[-1][1]

    def scalar(self, value: tuple[int, int | float]):
        dtype, number = value
        types = {9: ctypes.c_int64, 11: ctypes.c_double, 12: ctypes.c_bool, 0: ctypes.c_float}
        return self.make("Scalar", ctypes.byref(types[dtype](number)), dtype)

    def list(self, kind: str, elements: list):
        if not all(element.value for element in elements):
            return ctypes.c_void_p()
        del self.made[len(self.made) - len(elements) :]  # the list destroys them
        return self.make(kind, (ctypes.c_void_p * len(elements))(*elements), ctypes.c_uint64(len(elements)))

    def argument(self, kind: str, value):
        if value is None:
            return ctypes.c_void_p()
        match kind:
            case "tensor":
                return self.tensor(value)
            case "tensors":
                return self.list("TensorList", [self.tensor(each) for each in value])
            case "scalar":
                return self.scalar(value)
            case "scalars":
                return self.list("ScalarList", [self.scalar(each) for each in value])
            case "ints":
                return self.make("IntArray", integers(value), ctypes.c_uint64(len(value)))
            case "floats":
                return self.make("FloatArray", (ctypes.c_float * len(value))(*value), ctypes.c_uint64(len(value)))
            case "bools":
                flags = (ctypes.c_bool * len(value))(*map(bool, value))
                return self.make("BoolArray", flags, ctypes.c_uint64(len(value)))
            case "text":
                return ctypes.c_char_p(value.encode())
            case "float":
                return ctypes.c_float(value)
            case "double":
                return ctypes.c_double(value)
            case "uint64_t":
                return ctypes.c_uint64(value % (1 << 64))
            case "int64_t":
                return ctypes.c_int64(value)
            case _:
                return ctypes.c_int(value)

    def before(self) -> np.ndarray:
        return self.bytes[: self.end].copy()

    def is_written_outside(self, before: np.ndarray, outcome: str) -> bool:
        """Whether a byte has changed that is no element of a tensor of the call, or of its storage if it has failed in
        the stream."""
        changed = np.flatnonzero(self.bytes[: self.end] != before)
        allowed = np.zeros(self.end, bool)
        for begin, tensor in [] if outcome == "rejected" else self.tensors:
            item = tensor.itemsize
            if outcome != "ran" or tensor.format != ND or not tensor.is_view():
                allowed[begin : begin + tensor.bytes()] = True
                continue
            places = np.lib.stride_tricks.as_strided(
                allowed[begin + tensor.offset * item :],
                [*tensor.shape, item],
                [*(stride * item * (size > 1) for size, stride in zip(tensor.shape, tensor.strides, strict=True)), 1],
            )
            places[...] = True
        return bool((~allowed[changed]).any())

    def destroy(self) -> None:
        for kind, made in self.made:
            getattr(self.base, f"aclDestroy{kind}")(made)


def integers(values):
    return (ctypes.c_int64 * len(values))(*values)


def drawn(seed: int, number: int, functions: list[str]):
    """The function's name and its arguments."""
    draw = Draw(f"{seed}:{number}")
    name = draw.random.choice(functions)
    return name, *(draw.argument(kind) for kind in SIGNATURES[name])


def caller():
    """What makes such a call, and says what it did."""
    import torch

    torch.set_num_threads(1)
    torch.npu.set_device(0)
    acl, library = ctypes.CDLL("libascendcl.so"), ctypes.CDLL("libopapi.so")
    acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
    stream = ctypes.c_void_p()
    assert acl.aclrtCreateStream(ctypes.byref(stream)) == 0
    memory = Memory(acl)

    def phase_two(name: str, size: ctypes.c_uint64, executor: ctypes.c_void_p) -> tuple[int, str]:
        workspace = ctypes.c_void_p()
        if size.value:
            assert acl.aclrtMalloc(ctypes.byref(workspace), size, 0) == 0
        status, outcome = getattr(library, name)(workspace, size, executor, stream), "rejected"
        if status == 0:
            status = acl.aclrtSynchronizeStream(stream)
            outcome = "ran" if status == 0 else "failed in the stream"
        if size.value:
            acl.aclrtFree(workspace)
        return status, outcome

    def call(name: str, *arguments) -> tuple[str, str]:
        memory.start()
        converted = [memory.argument(*argument) for argument in arguments]
        acl.aclGetRecentErrMsg()
        before = memory.before()
        size, executor = ctypes.c_uint64(), ctypes.c_void_p()
        status = getattr(library, f"{name}GetWorkspaceSize")(*converted, ctypes.byref(size), ctypes.byref(executor))
        outcome = "rejected"
        if status == 0:
            status, outcome = phase_two(name, size, executor)
        message = (acl.aclGetRecentErrMsg() or b"").decode() if status else ""
        if status and name not in message:
            outcome = "no message"
        elif memory.is_written_outside(before, outcome):
            outcome = "wrote outside"
        memory.destroy()
        return outcome, message

    return call


if __name__ == "__main__":
    sys.exit(drawn_calls.main(__file__, __doc__.split("\n")[0], sorted(SIGNATURES), drawn, caller))
