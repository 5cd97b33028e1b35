# SPDX-License-Identifier: Apache-2.0
"""Calls aclnn functions as C functions, on the memory of torch tensors."""

import contextlib
import ctypes
from collections import namedtuple

import torch

NULL_POINTER, INVALID, TILING = 161001, 161002, 561002
ND, FRACTAL_NZ = 2, 29
DTYPES = {
    torch.float32: 0,
    torch.float16: 1,
    torch.int8: 2,
    torch.int32: 3,
    torch.uint8: 4,
    torch.int16: 6,
    torch.int64: 9,
    torch.float64: 11,
    torch.bool: 12,
    torch.bfloat16: 27,
    torch.bits8: 34,  # hifloat8
    torch.float8_e5m2: 35,
    torch.float8_e4m3fn: 36,
    torch.float8_e8m0fnu: 37,
}

Scalar = namedtuple("Scalar", "value")  # aclScalar
Float = namedtuple("Float", "value")  # float, where a Python float is a double
Stored = namedtuple("Stored", "view memory format")  # sizes, strides and offset of a view, on memory in a format
Out = namedtuple("Out", "shape dtype", defaults=[torch.float32])  # a tensor to write
InOut = namedtuple("InOut", "tensor")  # a copy of a tensor to write to


def blocks_of(matrix):
    """FRACTAL_NZ: [K, N] in blocks [N / c0, K / 16, 16, c0] with c0 = 32 bytes, padded by zeros."""
    c0 = 32 // matrix.element_size()
    rows, columns = matrix.shape[-2:]
    padded = torch.nn.functional.pad(matrix, (0, -columns % c0, 0, -rows % 16))
    return padded.unflatten(-1, (-1, c0)).unflatten(-3, (-1, 16)).movedim(-2, -4).contiguous()


def nz(view):
    """The view with the matrices it views laid out in blocks."""
    matrix = view if view._base is None else view._base
    return Stored(view, blocks_of(matrix), FRACTAL_NZ)


class Rejected(Exception):
    """The status of the phase that failed, and the message that it left."""


def call(library, name, *arguments):
    """Runs a function of a library: tensors are used where they lie, numbers are int64_t or double, lists aclIntArray
    or aclTensorList. Raises Rejected where a phase fails; has run when it returns."""
    torch.ones(1, device="npu")  # sets a device for this thread
    torch.npu.synchronize()  # the tensors' contents are there, whatever queue they went through
    acl, functions = ctypes.CDLL("libascendcl.so"), ctypes.CDLL(library)
    acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
    size, executor, made = ctypes.c_uint64(), ctypes.c_void_p(), Made()
    converted = [made.argument(argument) for argument in arguments]
    status = getattr(functions, f"{name}GetWorkspaceSize")(*converted, ctypes.byref(size), ctypes.byref(executor))
    if status == 0:
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        memory = torch.empty(size.value, dtype=torch.uint8, device="npu")
        workspace = ctypes.c_void_p(memory.data_ptr() or None)
        status = getattr(functions, name)(workspace, size, executor, stream)
    torch.npu.synchronize()
    made.destroy()
    if status != 0:
        raise Rejected(status, acl.aclGetRecentErrMsg().decode())


def written_by(name, *arguments):
    """What a function of libopapi has written, in the order of its arguments; tensors are on the CPU.

    Of hifloat8 they are the bytes.
    """
    written = []

    def result(tensor):
        written.append(tensor)
        return tensor

    def on_the_device(given):
        match given:
            case torch.Tensor(dtype=torch.bits8):
                return given.view(torch.uint8).contiguous().npu().view(torch.bits8)
            case torch.Tensor():
                return given.contiguous().npu()
            case Out(shape, torch.bits8):
                return result(torch.zeros(shape, dtype=torch.uint8, device="npu")).view(torch.bits8)
            case Out(shape, dtype):
                return result(torch.zeros(shape, dtype=dtype, device="npu"))
            case InOut(tensor):
                return result(tensor.contiguous().npu())
            case [Out(), *_]:
                return [on_the_device(out) for out in given]
        return given

    call("libopapi.so", name, *map(on_the_device, arguments))
    return [tensor.cpu() for tensor in written]


@contextlib.contextmanager
def group_of_one():
    """The name of a communicator of one rank; of several they are in test/collectives."""
    torch.ones(1, device="npu")  # sets a device for this thread
    hccl, comm = ctypes.CDLL("libhccl.so"), ctypes.c_void_p()
    root_info, name = ctypes.create_string_buffer(4108), ctypes.create_string_buffer(128)
    assert hccl.HcclGetRootInfo(root_info) == 0
    assert hccl.HcclCommInitRootInfo(1, root_info, 0, ctypes.byref(comm)) == 0
    assert hccl.HcclGetCommName(comm, name) == 0
    yield name.value.decode()
    assert hccl.HcclCommDestroy(comm) == 0


class Made:
    """Owns the CANN objects that a call creates."""

    def __init__(self):
        self.base, self.objects = ctypes.CDLL("libnnopbase.so"), []

    def argument(self, given):
        match given:
            case None:
                return ctypes.c_void_p()
            case torch.Tensor():
                storage = given.untyped_storage()
                return self.tensor(given, [storage.nbytes() // given.element_size()], storage.data_ptr(), ND)
            case Stored(view, memory, format):
                return self.tensor(view, memory.shape, memory.data_ptr(), format)
            case Scalar(value):
                kind, dtype = (ctypes.c_double, 11) if isinstance(value, float) else (ctypes.c_int64, 9)
                return self.make("Scalar", ctypes.byref(kind(value)), dtype)
            case Float(value):
                return ctypes.c_float(value)
            case str():
                return ctypes.c_char_p(given.encode())
            case float():
                return ctypes.c_double(given)
            case int():
                return ctypes.c_int64(given)
            case [torch.Tensor() | Stored(), *_]:
                elements = [self.argument(element) for element in given]
                del self.objects[-len(elements) :]  # the list destroys them
                return self.make("TensorList", (ctypes.c_void_p * len(given))(*elements), ctypes.c_uint64(len(given)))
            case [*values]:
                return self.make("IntArray", integers(values), ctypes.c_uint64(len(values)))

    def tensor(self, view, storage, address, format):
        sizes, strides, offset = integers(view.shape), integers(view.stride()), ctypes.c_int64(view.storage_offset())
        ranks = ctypes.c_uint64(view.dim()), ctypes.c_uint64(len(storage))
        kind = (DTYPES[view.dtype], strides, offset, format)
        return self.make("Tensor", sizes, ranks[0], *kind, integers(storage), ranks[1], ctypes.c_void_p(address))

    def make(self, kind, *arguments):
        create = getattr(self.base, f"aclCreate{kind}")
        create.restype = ctypes.c_void_p
        self.objects.append((kind, ctypes.c_void_p(create(*arguments))))
        return self.objects[-1][1]

    def destroy(self):
        for kind, made in self.objects:
            assert getattr(self.base, f"aclDestroy{kind}")(made) == 0


def integers(values):
    return (ctypes.c_int64 * len(values))(*values)
