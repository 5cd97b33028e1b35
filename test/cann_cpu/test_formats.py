"""FRACTAL_NZ: a matrix [K, N] in blocks [N / c0, K / 16, 16, c0] with c0 = 32 bytes, padded by zeros."""

import ctypes

import pytest
import torch

INVALID = 161002
ND, FRACTAL_NZ = 2, 29
ACL_DTYPES = {torch.float32: 0, torch.float16: 1, torch.int8: 2, torch.bfloat16: 27}

SIZES = [(16, 32), (32, 64), (1, 1), (17, 33), (5, 100), (50, 3)]
DTYPES = [torch.int8, torch.float16, torch.bfloat16]


def random(*shape, dtype=torch.bfloat16):
    return torch.randint(-100, 100, shape).to(dtype)


def blocks_of(matrix):
    c0 = 32 // matrix.element_size()
    rows, columns = matrix.shape[-2:]
    padded = torch.nn.functional.pad(matrix, (0, -columns % c0, 0, -rows % 16))
    return padded.unflatten(-1, (-1, c0)).unflatten(-3, (-1, 16)).movedim(-2, -4).contiguous()


class Argument:
    """An aclTensor: a view's sizes, strides and offset, and the memory behind it."""

    def __init__(self, view, memory, format):
        self.memory = memory
        base = ctypes.CDLL("libnnopbase.so")
        base.aclCreateTensor.restype = ctypes.c_void_p
        sizes, strides, storage = (
            (ctypes.c_int64 * len(values))(*values) for values in (view.shape, view.stride(), memory.shape)
        )
        self.handle = ctypes.c_void_p(
            base.aclCreateTensor(
                sizes,
                ctypes.c_uint64(view.dim()),
                ACL_DTYPES[view.dtype],
                strides,
                ctypes.c_int64(view.storage_offset()),
                format,
                storage,
                ctypes.c_uint64(memory.dim()),
                ctypes.c_void_p(memory.data_ptr()),
            )
        )


def nd(view):
    return Argument(view, view.new_empty(0).set_(view.untyped_storage()), ND)


def nz(view):
    """The view with the matrices it views laid out in blocks."""
    matrix = view if view._base is None else view._base
    return Argument(view, blocks_of(matrix), FRACTAL_NZ)


class ArgumentList:
    """An aclTensorList."""

    def __init__(self, *arguments):
        self.arguments = arguments
        base = ctypes.CDLL("libnnopbase.so")
        base.aclCreateTensorList.restype = ctypes.c_void_p
        handles = (ctypes.c_void_p * len(arguments))(*(argument.handle for argument in arguments))
        self.handle = ctypes.c_void_p(base.aclCreateTensorList(handles, ctypes.c_uint64(len(arguments))))


def call(name, *arguments):
    """Runs an aclnn function on host memory; the status and the message where phase one refuses it."""
    torch.ones(1, device="npu")  # sets a device for this thread
    opapi, acl = ctypes.CDLL("libopapi.so"), ctypes.CDLL("libascendcl.so")
    acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    handles = [getattr(argument, "handle", argument) for argument in arguments]
    status = getattr(opapi, f"{name}GetWorkspaceSize")(*handles, ctypes.byref(size), ctypes.byref(executor))
    if status != 0:
        return status, acl.aclGetRecentErrMsg().decode()
    assert getattr(opapi, name)(None, ctypes.c_uint64(0), executor, None) == 0
    assert acl.aclrtSynchronizeStream(None) == 0
    return None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_an_input_in_blocks_is_read_as_its_matrix(size, dtype):
    matrix = random(*size, dtype=dtype)
    out = torch.empty_like(matrix)
    assert call("aclnnNeg", nz(matrix), nd(out)) is None
    assert out.equal(-matrix)


@pytest.mark.parametrize(
    "view",
    [
        lambda matrix: matrix.t(),
        lambda matrix: matrix[3:17],
        lambda matrix: matrix[:, 5:40],
        lambda matrix: matrix[2:20, 1:2],
        lambda matrix: matrix[7:8, 3:9].t(),
    ],
)
def test_a_view_of_blocks_is_read_as_the_view_of_their_matrix(view):
    viewed = view(random(23, 41))
    out = torch.empty(viewed.shape, dtype=viewed.dtype)
    assert call("aclnnNeg", nz(viewed), nd(out)) is None
    assert out.equal(-viewed)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.transpose(1, 2), lambda x: x[1:, 2:20]])
def test_a_stack_of_matrices_is_read(view):
    viewed = view(random(3, 23, 41))
    out = torch.empty(viewed.shape, dtype=viewed.dtype)
    assert call("aclnnNeg", nz(viewed), nd(out)) is None
    assert out.equal(-viewed)


def test_inputs_in_lists_and_those_that_may_be_null_are_read():
    x, y = random(20, 40), random(5, 40)
    out = torch.empty(25, 40, dtype=x.dtype)
    assert call("aclnnCat", ArgumentList(nz(x), nz(y)), ctypes.c_int64(0), nd(out)) is None
    assert out.equal(torch.cat([x, y]))

    probability, target, weight = (torch.rand(20, 40) for _ in range(3))
    loss = torch.empty(20, 40)
    arguments = (nz(probability), nd(target), nz(weight), ctypes.c_int64(0), nd(loss))
    assert call("aclnnBinaryCrossEntropy", *arguments) is None
    expected = torch.nn.functional.binary_cross_entropy(probability, target, weight, reduction="none")
    torch.testing.assert_close(loss, expected)


def test_outputs_in_blocks_are_refused():
    x = random(20, 40)
    message = "is written, so it must be in format ND, but is in FRACTAL_NZ"
    assert call("aclnnNeg", nd(x), nz(x.clone())) == (INVALID, f"aclnnNeg: argument 2 {message}")
    assert call("aclnnInplaceCopy", nz(x), nd(x)) == (INVALID, f"aclnnInplaceCopy: argument 1 {message}")
    refused = call("aclnnForeachNeg", ArgumentList(nd(x)), ArgumentList(nz(x.clone())))
    assert refused == (INVALID, f"aclnnForeachNeg: argument 2 {message}")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            lambda x: Argument(x, blocks_of(x[:16]), FRACTAL_NZ),
            "is in FRACTAL_NZ, but its storage is not made of blocks of 16 rows for its shape",
        ),
        (
            lambda x: Argument(x.flatten(), blocks_of(x), FRACTAL_NZ),
            "is a view of FRACTAL_NZ that has another rank; cast the viewed tensor to ND first",
        ),
        (lambda x: Argument(x, x, 3), "is in format 3, which the CPU does not have"),
    ],
)
def test_what_is_in_no_known_layout_is_refused(argument, message):
    x = random(20, 40)
    given = argument(x)
    out = torch.empty(given.memory.shape)
    assert call("aclnnNeg", given, nd(out)) == (INVALID, f"aclnnNeg: argument 1 {message}")
