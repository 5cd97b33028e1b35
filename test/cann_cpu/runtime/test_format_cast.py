# SPDX-License-Identifier: Apache-2.0
"""The operator Identity of the aclop path: a tensor of one format written in another."""

import ctypes
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest

INT8, FLOAT16 = 2, 1
NC1HWC0, ND, FRACTAL_NZ = 3, 2, 29


@dataclass
class Operand:
    memory: bytes
    format: int = ND
    dims: list = field(default_factory=lambda: [3, 5])
    storage: list = field(default_factory=lambda: [3, 5])
    dtype: int = INT8


ROWS = bytes(range(1, 16))
BLOCKS = b"".join(ROWS[5 * i : 5 * i + 5] + bytes(27) for i in range(3)) + bytes(32 * 13)
IN_ROWS = Operand(ROWS)
IN_BLOCKS = Operand(BLOCKS, FRACTAL_NZ, storage=[1, 1, 16, 32])


def pointers(*values):
    return (ctypes.c_void_p * len(values))(*values)


def described(acl, operand):
    dims, storage = ((ctypes.c_int64 * len(sizes))(*sizes) for sizes in (operand.dims, operand.storage))
    acl.library.aclCreateTensorDesc.restype = acl.library.aclCreateDataBuffer.restype = ctypes.c_void_p
    description = acl.status(acl.library.aclCreateTensorDesc, operand.dtype, len(dims), dims, ND)
    acl.call("aclSetTensorFormat", description, operand.format)
    acl.call("aclSetTensorShape", description, len(storage), storage)
    return description


def identity(acl, source, target):
    """The target's memory after the cast; what describes the tensors is gone before the stream comes to it."""
    with ExitStack() as stack:
        stream = stack.enter_context(acl.stream())
        addresses, descriptions, buffers = [], [], []
        for operand in (source, target):
            addresses.append(stack.enter_context(acl.device_memory(len(operand.memory))))
            acl.write(addresses[-1], operand.memory)
            descriptions.append(described(acl, operand))
            buffers.append(acl.status(acl.library.aclCreateDataBuffer, addresses[-1], len(operand.memory)))
        inputs = 1, pointers(descriptions[0]), pointers(buffers[0])
        outputs = 1, pointers(descriptions[1]), pointers(buffers[1])
        run = acl.op_compiler.aclopCompileAndExecute
        acl.check(acl.status(run, b"Identity", *inputs, *outputs, None, 0, 0, None, ctypes.c_void_p(stream)))
        for description, buffer in zip(descriptions, buffers, strict=True):
            acl.status(acl.library.aclDestroyTensorDesc, ctypes.c_void_p(description))
            acl.call("aclDestroyDataBuffer", ctypes.c_void_p(buffer))
        acl.call("aclrtSynchronizeStream", stream)
        return acl.read(addresses[1], len(target.memory))


@pytest.mark.parametrize("source", [IN_ROWS, IN_BLOCKS])
@pytest.mark.parametrize("target", [IN_ROWS, IN_BLOCKS])
def test_rows_and_blocks_are_written_from_each_other(acl, source, target):
    dirty = replace(target, memory=b"\xff" * len(target.memory))
    assert identity(acl, source, dirty) == target.memory


def test_stacked_matrices_of_wider_elements_are_cast(acl):
    rows = Operand(bytes(range(2 * 17 * 3 * 2)), dims=[2, 17, 3], storage=[2, 17, 3], dtype=FLOAT16)
    blocks = replace(rows, memory=b"\xff" * (2 * 32 * 16 * 2), format=FRACTAL_NZ, storage=[2, 1, 2, 16, 16])
    written = identity(acl, rows, blocks)
    assert written[32 * 17 + 6 : 32 * 32] == bytes(32 * 15 - 6)
    assert identity(acl, replace(blocks, memory=written), replace(rows, memory=bytes(len(rows.memory)))) == rows.memory


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (IN_ROWS, replace(IN_BLOCKS, format=NC1HWC0)),
        (IN_ROWS, replace(IN_BLOCKS, dtype=FLOAT16)),
        (IN_ROWS, replace(IN_BLOCKS, dims=[5, 3])),
        (IN_BLOCKS, replace(IN_BLOCKS, storage=[1, 1, 32, 16])),
    ],
)
def test_what_is_no_cast_of_a_format_is_not_served(acl, source, target):
    with pytest.raises(acl.AclError, match=r"operator Identity .* does not serve") as failure:
        identity(acl, source, target)
    assert failure.value.code == acl.OP_NOT_FOUND


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (replace(IN_ROWS, memory=bytes(14)), IN_BLOCKS, "the input has 14 bytes of memory, its shape takes 15"),
        (IN_ROWS, replace(IN_BLOCKS, memory=bytes(511)), "the output has 511 bytes of memory, its shape takes 512"),
        (IN_ROWS, replace(IN_BLOCKS, storage=[1, 1, 32, 16]), "its storage does not consist of blocks of 16 rows"),
        (IN_ROWS, replace(IN_BLOCKS, storage=[16, 32]), "its storage does not consist of blocks of 16 rows"),
    ],
)
def test_a_cast_that_does_not_fit_its_memory_is_an_error_of_the_stream(acl, source, target, message):
    with pytest.raises(acl.AclError, match=message):
        identity(acl, source, target)
