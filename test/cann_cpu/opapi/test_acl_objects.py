# SPDX-License-Identifier: Apache-2.0
"""The arguments of aclnn functions: the functions that read them, and those that change them."""

import ctypes

import aclnn
import numpy as np
import pytest
import torch

NULL_POINTER, INVALID = 161001, 161002
ACL_FLOAT16, ND, NCHW = 1, 2, 0


@pytest.fixture(scope="module")
def base():
    torch.ones(1, device="npu")
    return ctypes.CDLL("libnnopbase.so")


@pytest.fixture
def made(base):
    made = aclnn.Made()
    yield made
    made.destroy()


def numbers(base, function, tensor):
    """What a function gives that has the caller free it."""
    values, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64()
    assert function(tensor, ctypes.byref(values), ctypes.byref(count)) == 0
    listed = values[: count.value]
    process = ctypes.CDLL(None)
    delete = process if hasattr(process, "_ZdaPv") else ctypes.CDLL("libstdc++.so.6")  # a sanitizer has its own
    delete._ZdaPv(values)  # delete[]
    return listed


def number(function, object_, kind=ctypes.c_int64):
    value = kind(77)
    assert function(object_, ctypes.byref(value)) == 0
    return value.value


def described(base, tensor):
    return (
        *(numbers(base, getattr(base, f"aclGet{of}"), tensor) for of in ("ViewShape", "ViewStrides", "StorageShape")),
        number(base.aclGetViewOffset, tensor),
        number(base.aclGetDataType, tensor, ctypes.c_int),
        number(base.aclGetFormat, tensor, ctypes.c_int),
        number(base.aclGetRawTensorAddr, tensor, ctypes.c_void_p),
    )


def test_a_tensor_tells_what_it_was_made_of_and_takes_everything_anew(base, made):
    memory = torch.empty(4, 6, dtype=torch.float16)
    tensor = made.argument(aclnn.Stored(memory.T[1:, ::2], memory, NCHW))
    assert described(base, tensor) == ([5, 2], [1, 12], [4, 6], 1, ACL_FLOAT16, NCHW, memory.data_ptr())
    assert base.aclSetRawTensorAddr(tensor, ctypes.c_void_p(4096)) == 0
    assert number(base.aclGetRawTensorAddr, tensor, ctypes.c_void_p) == 4096
    sizes = aclnn.integers([2, 3])
    anew = (sizes, ctypes.c_uint64(2), 9, None, ctypes.c_int64(0), ND, sizes, ctypes.c_uint64(2), None)
    assert base.aclInitTensor(tensor, *anew) == 0
    assert described(base, tensor) == ([2, 3], [3, 1], [2, 3], 0, 9, ND, None)
    assert base.aclInitTensor(None, *anew) == NULL_POINTER
    assert base.aclInitTensor(tensor, None, *anew[1:]) == NULL_POINTER
    assert described(base, tensor)[0] == [2, 3]  # as before


def test_arrays_and_lists_tell_their_sizes(base, made):
    floats, flags = (ctypes.c_float * 3)(), (ctypes.c_bool * 2)()
    scalars = (ctypes.c_void_p * 2)(*(made.argument(aclnn.Scalar(i)) for i in range(2)))
    del made.objects[-2:]  # the list's
    for name, size, of in (
        ("IntArray", 4, made.argument([1, 2, 3, 4])),
        ("FloatArray", 3, made.make("FloatArray", floats, ctypes.c_uint64(3))),
        ("BoolArray", 2, made.make("BoolArray", flags, ctypes.c_uint64(2))),
        ("TensorList", 1, made.argument([torch.ones(2)])),
        ("ScalarList", 2, made.make("ScalarList", scalars, ctypes.c_uint64(2))),
    ):
        function = getattr(base, f"aclGet{name}Size")
        assert number(function, of, ctypes.c_uint64) == size
        assert function(of, None) == function(None, ctypes.byref(ctypes.c_uint64())) == NULL_POINTER


def test_a_null_argument_is_rejected(base, made):
    tensor, room, count = made.argument(torch.ones(2)), ctypes.c_void_p(), ctypes.c_uint64()
    for name in ("ViewShape", "ViewStrides", "StorageShape"):
        function, arguments = getattr(base, f"aclGet{name}"), (tensor, ctypes.byref(room), ctypes.byref(count))
        for i in range(3):
            assert function(*arguments[:i], None, *arguments[i + 1 :]) == NULL_POINTER
    for name in ("ViewOffset", "Format", "DataType", "RawTensorAddr"):
        function = getattr(base, f"aclGet{name}")
        assert function(None, ctypes.byref(room)) == function(tensor, None) == NULL_POINTER
    assert base.aclSetRawTensorAddr(None, room) == NULL_POINTER


def test_a_list_has_the_tensors_that_it_was_made_of(made):
    """A change of a tensor of a list changes the list."""
    memory, out = [torch.full((2,), float(i)).npu() for i in range(3)], torch.zeros(4).npu()
    tensors = [made.argument(tensor) for tensor in memory[:2]]
    del made.objects[-2:]
    terms = made.make("TensorList", (ctypes.c_void_p * 2)(*tensors), ctypes.c_uint64(2))
    assert made.base.aclSetRawTensorAddr(tensors[0], ctypes.c_void_p(memory[2].data_ptr())) == 0
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    arguments = (terms, ctypes.c_int64(0), made.argument(out), ctypes.byref(size), ctypes.byref(executor))
    functions = ctypes.CDLL("libopapi.so")
    assert functions.aclnnCatGetWorkspaceSize(*arguments) == 0
    torch.npu.synchronize()
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    assert functions.aclnnCat(None, size, executor, stream) == 0
    np.testing.assert_array_equal(out.cpu(), [2, 2, 1, 1])


def test_tensors_are_dumped_only_where_dumps_are_on(base, made):
    tensors = (ctypes.c_void_p * 1)(made.argument(torch.ones(2)))
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    arguments = (b"Add", b"add", tensors, ctypes.c_size_t(1), ctypes.c_size_t(0), stream)
    assert base.aclDumpOpTensors(*arguments) == 0
    for i in (0, 1, 2, 5):
        assert base.aclDumpOpTensors(*arguments[:i], None, *arguments[i + 1 :]) == NULL_POINTER


@pytest.mark.parametrize(
    ("configuration", "error"),
    [
        ("", None),
        ('{"op_debug_config": {"enable_debug_kernel": "off"}}', None),
        ('{"op_debug_config": {"enable_debug_kernel": "on"}}', '"op_debug_config.enable_debug_kernel" of on'),
        ('{"dump": {"dump_path": "x"}}', '"dump.dump_path" of x'),
        ("{", "syntax error"),
    ],
)
def test_aclnn_init_takes_what_acl_init_takes(base, tmp_path, configuration, error):
    path = tmp_path / "acl.json"
    path.write_text(configuration)
    status = base.aclnnInit(str(path).encode())
    acl = ctypes.CDLL("libascendcl.so")
    acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
    assert status == (INVALID if error else 0)
    assert not error or error in acl.aclGetRecentErrMsg().decode()
    assert base.aclnnInit(None) == base.aclnnFinalize() == 0
    assert base.aclnnInit(str(tmp_path / "none").encode()) == INVALID
