# SPDX-License-Identifier: Apache-2.0
"""aclnn's two phases and its executor cache, called as C functions the way torch_npu calls them."""

import ctypes
import os
import threading

import numpy as np
import pytest
import torch
from cann_cpu import activation

ACL_FLOAT, ACL_INT64, ACL_FORMAT_ND = 0, 9, 2
NULL_POINTER, INVALID = 161001, 161002


def library(name):
    lib = ctypes.CDLL(os.path.join(activation.LIBRARIES, name))
    for function in ("aclCreateTensor", "aclCreateScalar", "PTAGetExecCache"):  # those that return a pointer
        if hasattr(lib, function):
            getattr(lib, function).restype = ctypes.c_void_p
    return lib


@pytest.fixture(scope="module")
def acl():
    """libascendcl with a device set for this thread, as torch_npu has set it up."""
    torch.ones(1, device="npu")
    lib = library("libascendcl.so")
    lib.aclGetRecentErrMsg.restype = ctypes.c_char_p
    return lib


@pytest.fixture(scope="module")
def base(acl):
    return library("libnnopbase.so")


@pytest.fixture(scope="module")
def opapi(acl):
    return library("libopapi.so")


@pytest.fixture
def stream(acl):
    handle = ctypes.c_void_p()
    assert acl.aclrtCreateStream(ctypes.byref(handle)) == 0
    yield handle
    assert acl.aclrtSynchronizeStream(handle) == 0
    assert acl.aclrtDestroyStream(handle) == 0


def acl_tensor(base, array, dtype=ACL_FLOAT, data=None):
    dims = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    storage = (ctypes.c_int64 * 1)(array.size)
    address = ctypes.c_void_p(array.ctypes.data if data is None else data)
    return ctypes.c_void_p(
        # A plain int goes on the stack as 32 bits: the parameters past the sixth are wider.
        base.aclCreateTensor(
            dims, array.ndim, dtype, strides, ctypes.c_int64(0), ACL_FORMAT_ND, storage, ctypes.c_uint64(1), address
        )
    )


def acl_scalar(base, value):
    return ctypes.c_void_p(base.aclCreateScalar(ctypes.byref(ctypes.c_float(value)), ACL_FLOAT))


class AddCall:
    """The arguments of aclnnAdd; phase one may be followed by the destruction of them all."""

    def __init__(self, base, opapi, x, y, out, alpha=1.0):
        self.base = base
        self.arguments = [acl_tensor(base, x), acl_tensor(base, y), acl_scalar(base, alpha), acl_tensor(base, out)]
        self.workspace, self.executor = ctypes.c_uint64(1), ctypes.c_void_p()
        self.status = opapi.aclnnAddGetWorkspaceSize(
            *self.arguments, ctypes.byref(self.workspace), ctypes.byref(self.executor)
        )

    def destroy(self):
        x, y, alpha, out = self.arguments
        for tensor in (x, y, out):
            self.base.aclDestroyTensor(tensor)
        self.base.aclDestroyScalar(alpha)


def test_a_call_outlives_the_callers_arguments(acl, base, opapi, stream):
    x, y, out = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32), np.zeros(4, np.float32)
    call = AddCall(base, opapi, x, y, out, alpha=2.0)
    assert (call.status, call.workspace.value) == (0, 0)
    assert opapi.aclnnAdd(None, ctypes.c_uint64(0), call.executor, stream) == 0
    call.destroy()
    assert acl.aclrtSynchronizeStream(stream) == 0
    np.testing.assert_array_equal(out, [20, 21, 22, 23])


def test_a_repeatable_executor_runs_again_until_it_is_destroyed(acl, base, opapi, stream):
    x, y, out = np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(3, np.float32)
    call = AddCall(base, opapi, x, y, out)
    assert base.aclSetAclOpExecutorRepeatable(call.executor) == 0
    for value in (1.0, 5.0):
        x[:] = value
        assert opapi.aclnnAdd(None, ctypes.c_uint64(0), call.executor, stream) == 0
        assert acl.aclrtSynchronizeStream(stream) == 0
        np.testing.assert_array_equal(out, [value + 1] * 3)
    assert base.aclDestroyAclOpExecutor(call.executor) == 0
    for function in (base.aclSetAclOpExecutorRepeatable, base.aclDestroyAclOpExecutor):
        assert function(None) == 561103
    call.destroy()


@pytest.mark.parametrize(("position", "name"), enumerate(["self", "other", "alpha", "out"]))
def test_a_null_argument_is_rejected_by_its_position(acl, base, opapi, position, name):
    x = np.zeros(3, np.float32)
    call = AddCall(base, opapi, x, x, x)
    base.aclDestroyAclOpExecutor(call.executor)
    arguments = list(call.arguments)
    arguments[position] = None
    executor = ctypes.c_void_p()
    status = opapi.aclnnAddGetWorkspaceSize(*arguments, ctypes.byref(call.workspace), ctypes.byref(executor))
    assert status == NULL_POINTER and not executor.value
    assert acl.aclGetRecentErrMsg().decode() == f"aclnnAdd: argument {position + 1} ({name}) is a null pointer"
    call.destroy()


def test_a_tensor_without_data_is_rejected_by_phase_two_unless_it_is_empty(acl, base, opapi, stream):
    x, empty = np.zeros(3, np.float32), np.zeros((0, 3), np.float32)
    workspace, executor = ctypes.c_uint64(), ctypes.c_void_p()
    arguments = [acl_tensor(base, x), acl_tensor(base, x, data=0), acl_scalar(base, 1.0), acl_tensor(base, x)]
    assert opapi.aclnnAddGetWorkspaceSize(*arguments, ctypes.byref(workspace), ctypes.byref(executor)) == 0
    assert opapi.aclnnAdd(None, ctypes.c_uint64(0), executor, stream) == NULL_POINTER
    message = "aclnnAdd: argument 2 has no device memory; aclSetTensorAddr gives it some"
    assert acl.aclGetRecentErrMsg().decode() == message
    call = AddCall(base, opapi, empty, empty, empty)
    assert call.status == 0
    assert opapi.aclnnAdd(None, ctypes.c_uint64(0), call.executor, stream) == 0


class Repeated:
    """A call that was given no memory, and gets some before each run."""

    def __init__(self, acl, base, opapi, stream, name, *arguments):
        self.acl, self.base, self.stream, self.executor = acl, base, stream, ctypes.c_void_p()
        self.function = getattr(opapi, name)
        phase_one = getattr(opapi, f"{name}GetWorkspaceSize")
        assert phase_one(*arguments, ctypes.byref(ctypes.c_uint64()), ctypes.byref(self.executor)) == 0
        assert base.aclSetAclOpExecutorRepeatable(self.executor) == 0

    def set(self, name, index, tensor, array, relative=None):
        """The status of aclSet{name}TensorAddr; `relative` is the index in a list."""
        address = ctypes.c_void_p(None if array is None else array.ctypes.data)
        indices = [ctypes.c_size_t(i) for i in (index, relative) if i is not None]
        old = getattr(self.base, f"AclSet{name}TensorAddr")(self.executor, *indices, tensor, None)
        status = getattr(self.base, f"aclSet{name}TensorAddr")(self.executor, *indices, tensor, address)
        assert old == status
        return status

    def run(self):
        assert self.function(None, ctypes.c_uint64(0), self.executor, self.stream) == 0
        assert self.acl.aclrtSynchronizeStream(self.stream) == 0


def floats(*values):
    return np.array(values, np.float32)


def test_a_repeatable_executor_is_given_other_addresses(acl, base, opapi, stream):
    shape, another = floats(0, 0), acl_tensor(base, floats(0, 0))
    x, y, out = (acl_tensor(base, shape, data=0) for _ in range(3))
    call = Repeated(acl, base, opapi, stream, "aclnnAdd", x, y, acl_scalar(base, 1.0), out)
    # Tensors of the call identify themselves; for any other tensor the index names the argument.
    for name, indices in (("", (0, 1, 2)), ("Input", (0, 1)), ("Output", (0,))):
        for tensors in ((x, y, out), (another,) * 3):
            arrays = [floats(1, 2), floats(10, 20), floats(0, 0)]
            for which, (tensor, array) in enumerate(zip(tensors, arrays, strict=True)):
                kind, index = (name, which) if len(indices) == 3 else (("Input", which) if which < 2 else ("Output", 0))
                assert call.set(kind, index, tensor, array) == 0
            call.run()
            np.testing.assert_array_equal(arrays[2], [11, 22])
        assert call.set(name, indices[-1] + 1, another, shape) == INVALID
        assert f"index is {len(indices)}; expected less than {len(indices)}" in acl.aclGetRecentErrMsg().decode()
    address = ctypes.c_void_p()
    assert base.aclGetRawTensorAddr(another, ctypes.byref(address)) == 0
    assert address.value == shape.ctypes.data
    # One tensor in two places.
    call = Repeated(acl, base, opapi, stream, "aclnnAdd", x, x, acl_scalar(base, 1.0), out)
    result = floats(0, 0)
    assert call.set("", 0, x, floats(3, 4)) == call.set("", 2, out, result) == 0
    held = floats(5, 6)
    assert call.set("", 0, x, held) == 0
    call.run()
    np.testing.assert_array_equal(result, [10, 12])


def test_the_tensors_of_a_list_are_given_other_addresses(acl, base, opapi, stream):
    shape = floats(0, 0)

    def listed(count):
        tensors = [acl_tensor(base, shape, data=0) for _ in range(count)]
        base.aclCreateTensorList.restype = ctypes.c_void_p
        made = base.aclCreateTensorList((ctypes.c_void_p * count)(*tensors), ctypes.c_uint64(count))
        return ctypes.c_void_p(made), tensors

    (terms, tensors), (other, _), arrays = listed(2), listed(3), [floats(1, 2), floats(3, 4), np.zeros(4, np.float32)]
    out = acl_tensor(base, arrays[2], data=0)
    call = Repeated(acl, base, opapi, stream, "aclnnCat", terms, ctypes.c_int64(0), out)
    result = arrays[2]
    # By the list, by another one in its place, by its tensors, and by their number among all tensors.
    ways = [
        [("Dynamic", 0, terms, i) for i in range(2)],
        [("DynamicInput", 0, other, i) for i in range(2)],
        [("", 0, tensors[0], None), ("Input", 1, tensors[1], None)],
        [("", i, acl_tensor(base, shape), None) for i in range(2)],
    ]
    # MindSpore counts parameters here and not tensors; the tensor itself identifies the argument.
    assert call.set("", 1, out, result) == 0
    for way, given in enumerate(ways):
        pair = [arrays[0] + way, arrays[1] + way]
        for (name, index, tensor, relative), array in zip(given, pair, strict=True):
            assert call.set(name, index, tensor, array, relative) == 0
        call.run()
        np.testing.assert_array_equal(result, np.concatenate(pair))
    for name, index, relative, words in (
        ("Dynamic", 0, 3, "relativeIndex is 3; expected less than 3"),
        ("Dynamic", 0, 2, "relativeIndex is 2; argument 1 of aclnnCat had 2 tensors in phase one"),
        ("Dynamic", 2, 0, "irIndex is 2; expected less than 2"),
        ("DynamicInput", 1, 0, "irIndex is 1; expected less than 1"),
        ("DynamicOutput", 1, 0, "irIndex is 1; expected less than 1"),
    ):
        assert call.set(name, index, other, shape, relative) == INVALID
        assert words in acl.aclGetRecentErrMsg().decode()
    for name in ("", "Input", "Output", "Dynamic", "DynamicInput", "DynamicOutput"):
        function = getattr(base, f"aclSet{name}TensorAddr")
        indices = [ctypes.c_size_t(0)] * (2 if "Dynamic" in name else 1)
        assert function(None, *indices, terms if "Dynamic" in name else out, None) == 561103
        assert function(call.executor, *indices, None, None) == 561103


def test_a_tensor_that_is_null_is_counted_and_keeps_no_address(acl, base, opapi, stream):
    """aclnnLayerNorm(input, normalizedShape, weight, bias, eps, out, mean, rstd); weight is null."""
    x, base.aclCreateIntArray.restype = floats(1, 3), ctypes.c_void_p
    sizes = ctypes.c_void_p(base.aclCreateIntArray((ctypes.c_int64 * 1)(2), ctypes.c_uint64(1)))
    another = acl_tensor(base, x)
    arguments = [acl_tensor(base, x, data=0), sizes, None, acl_tensor(base, x, data=0), ctypes.c_double(0)]
    arguments += [acl_tensor(base, x, data=0), None, None]
    call = Repeated(acl, base, opapi, stream, "aclnnLayerNorm", *arguments)
    bias, out = floats(10, 20), floats(0, 0)
    assert [call.set("", i, another, array) for i, array in ((0, x), (2, bias), (3, out))] == [0, 0, 0]
    for name, index in (("", 1), ("Input", 1), ("", 4), ("Output", 1)):
        assert call.set(name, index, another, x) == INVALID
        assert "has no device memory: phase one was given null" in acl.aclGetRecentErrMsg().decode()
    call.run()
    np.testing.assert_allclose(out, [9, 21])


def test_phase_two_rejects_a_null_executor(acl, opapi, stream):
    assert opapi.aclnnAdd(None, ctypes.c_uint64(0), None, stream) == NULL_POINTER
    assert "executor is null" in acl.aclGetRecentErrMsg().decode()


def test_an_unknown_scalar_dtype_is_rejected(acl, base):
    assert base.aclCreateScalar(ctypes.byref(ctypes.c_float(1)), 999) is None
    assert "dtype 999 is unknown" in acl.aclGetRecentErrMsg().decode()


# torch_npu writes what determines a call into a key, lists the addresses, and asks for an executor.
def with_hash(base, key, addresses, action):
    base.InitPTACacheThreadLocal()
    base.SetPTAHashKey(ctypes.c_uint64(key))
    for address in addresses:
        base.AddTensorAddrToCachedList(ctypes.c_void_p(address))
    try:
        return action()
    finally:
        base.UnInitPTACacheThreadLocal()


def cached_executor(base, key):
    workspace = ctypes.c_uint64(1)
    return base.PTAGetExecCache(ctypes.c_uint64(key), ctypes.byref(workspace))


def test_a_cached_call_runs_on_the_addresses_of_the_day(acl, base, opapi, stream):
    arrays = [np.full(4, i, np.float32) for i in range(6)]
    addresses = [a.ctypes.data for a in arrays]
    key = 0x1234567
    assert with_hash(base, key, addresses[:3], lambda: cached_executor(base, key)) is None

    def first_call():
        call = AddCall(base, opapi, *arrays[:3])
        assert opapi.aclnnAdd(None, ctypes.c_uint64(0), call.executor, stream) == 0
        call.destroy()

    with_hash(base, key, addresses[:3], first_call)
    executor = with_hash(base, key, addresses[3:], lambda: cached_executor(base, key))
    assert executor
    assert opapi.aclnnAdd(None, ctypes.c_uint64(0), ctypes.c_void_p(executor), stream) == 0
    assert acl.aclrtSynchronizeStream(stream) == 0
    np.testing.assert_array_equal(arrays[2], [1] * 4)
    np.testing.assert_array_equal(arrays[5], [7] * 4)


def test_hash_0_and_another_number_of_tensors_miss_the_cache(base, opapi):
    x = np.zeros(2, np.float32)

    def store():
        call = AddCall(base, opapi, x, x, x)
        base.aclDestroyAclOpExecutor(call.executor)
        call.destroy()

    for key in (0, 0x777):
        with_hash(base, key, [x.ctypes.data] * 3, store)
    assert with_hash(base, 0, [x.ctypes.data] * 3, lambda: cached_executor(base, 0)) is None
    assert with_hash(base, 0x777, [x.ctypes.data] * 2, lambda: cached_executor(base, 0x777)) is None
    hit = with_hash(base, 0x777, [x.ctypes.data] * 3, lambda: cached_executor(base, 0x777))
    assert hit
    base.aclDestroyAclOpExecutor(ctypes.c_void_p(hit))


def test_threads_share_the_cache_without_mixing_their_addresses(acl, base, opapi):
    errors = []

    def work(seed):
        try:
            context = ctypes.c_int32(0)
            assert acl.aclrtSetDevice(context) == 0
            stream = ctypes.c_void_p()
            assert acl.aclrtCreateStream(ctypes.byref(stream)) == 0
            for i in range(200):
                x, y, out = (np.full(8, v, np.float32) for v in (seed, i, -1))
                addresses = [a.ctypes.data for a in (x, y, out)]

                def call(arrays=(x, y, out)):
                    hit = cached_executor(base, 0x999)
                    if hit:
                        return ctypes.c_void_p(hit)
                    made = AddCall(base, opapi, *arrays)
                    made.destroy()
                    return made.executor

                executor = with_hash(base, 0x999, addresses, call)
                assert opapi.aclnnAdd(None, ctypes.c_uint64(0), executor, stream) == 0
                assert acl.aclrtSynchronizeStream(stream) == 0
                np.testing.assert_array_equal(out, np.full(8, seed + i))
            assert acl.aclrtDestroyStream(stream) == 0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_torch_npu_hits_the_cache_with_changing_values_and_scalars():
    x = torch.arange(5.0, device="npu")
    for step in range(5):
        y = torch.full((5,), float(step), device="npu")
        torch.testing.assert_close((x + y * 2).cpu(), torch.arange(5.0) + 2 * step, rtol=0, atol=0)
        torch.testing.assert_close(torch.add(x, y, alpha=step).cpu(), torch.arange(5.0) + step * step, rtol=0, atol=0)
