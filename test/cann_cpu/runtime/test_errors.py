# SPDX-License-Identifier: Apache-2.0
"""The state after a failed call, what is not supported, and settings that are kept."""

import ctypes
import re
import threading
from pathlib import Path

import pytest

TABLE = Path(__file__).resolve().parents[3] / "cann_cpu" / "runtime" / "unsupported.txt"
UNSUPPORTED = re.findall(r"^(status|pointer) (\w+)$", TABLE.read_text(), re.MULTILINE)


def test_the_message_is_given_once(acl):
    assert acl.status(acl.library.aclrtSetDevice, 99) == acl.RT_INVALID_DEVICEID
    assert acl.library.aclGetRecentErrMsg() == b"aclrtSetDevice: there is no device 99; there are 2 (CANN_CPU_DEVICES)"
    assert acl.library.aclGetRecentErrMsg() is None


def test_the_last_code_stays_until_it_is_taken(acl):
    acl.library.aclrtGetLastError(0)
    assert acl.library.aclrtPeekAtLastError(0) == 0
    acl.status(acl.library.aclrtSetDevice, 99)
    acl.call("aclrtSetDevice", 0)
    assert acl.library.aclrtPeekAtLastError(0) == acl.RT_INVALID_DEVICEID
    assert acl.library.aclrtGetLastError(0) == acl.RT_INVALID_DEVICEID
    assert acl.library.aclrtPeekAtLastError(0) == 0
    assert acl.library.aclrtPeekAtLastError(1) == acl.library.aclrtGetLastError(1) == acl.INVALID_PARAM


def test_errors_are_of_the_thread_that_made_the_call(acl):
    acl.status(acl.library.aclrtSetDevice, 99)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(acl.library.aclGetRecentErrMsg()))
    thread.start()
    thread.join()
    assert seen == [None]
    assert b"no device 99" in acl.library.aclGetRecentErrMsg()


@pytest.mark.parametrize("kind, name", UNSUPPORTED)
def test_what_is_not_supported_says_so_with_its_name(acl, kind, name):
    function = getattr(acl.library, name)
    function.restype = ctypes.c_void_p if kind == "pointer" else ctypes.c_int
    assert function() == (None if kind == "pointer" else acl.FEATURE_UNSUPPORTED)
    assert acl.library.aclGetRecentErrMsg().decode().startswith(f"{name} is not supported by cann_cpu")


def test_channels_are_not_supported_but_data_sets_are_real(acl, cann_cpu_lib):
    channel = ctypes.CDLL(str(cann_cpu_lib / "libacl_tdt_channel.so"))
    for name in ("acltdtCreateChannelWithCapacity", "acltdtCreateDataset", "acltdtCreateDataItem", "acltdtGetDataItem"):
        getattr(channel, name).restype = ctypes.c_void_p
    assert channel.acltdtCreateChannelWithCapacity(0, b"channel", ctypes.c_size_t(3)) is None
    assert b"acltdtCreateChannelWithCapacity is not supported" in acl.library.aclGetRecentErrMsg()

    dims, data = (ctypes.c_int64 * 2)(3, 5), ctypes.create_string_buffer(60)
    item = channel.acltdtCreateDataItem(0, dims, ctypes.c_size_t(2), 0, data, ctypes.c_size_t(60))
    dataset = channel.acltdtCreateDataset()
    assert acl.status(channel.acltdtAddDataItem, dataset, item) == 0
    assert acl.status(channel.acltdtGetDatasetSize, dataset) == 1
    assert acl.status(channel.acltdtGetDataItem, dataset, 0) == item
    assert acl.status(channel.acltdtGetDataItem, dataset, 1) is None
    found = (ctypes.c_int64 * 2)()
    assert acl.status(channel.acltdtGetDimsFromItem, item, found, 2) == 0
    assert list(found) == [3, 5]
    assert acl.status(channel.acltdtGetDimsFromItem, item, found, 1) == acl.INVALID_PARAM
    assert acl.status(channel.acltdtDestroyDataset, dataset) == 0 == acl.status(channel.acltdtDestroyDataItem, item)


NO_OPERANDS = (0, None, None, 0, None, None, None)


def test_the_aclop_path_that_waits_returns_the_error(acl):
    """torch_npu calls this function in the caller's thread."""
    with acl.stream() as stream:
        function = acl.op_compiler.aclopCompileAndExecuteV2
        with pytest.raises(acl.AclError, match=r"operator Im2colBackward .* does not serve") as failure:
            acl.check(acl.status(function, b"Im2colBackward", *NO_OPERANDS, 0, 0, None, ctypes.c_void_p(stream)))
        assert failure.value.code == acl.OP_NOT_FOUND
        acl.call("aclrtSynchronizeStream", stream)


def test_the_asynchronous_aclop_path_answers_as_an_error_of_the_stream(acl):
    """Returned from the call, the error would end torch_npu's task queue for good."""
    with acl.stream() as stream:
        function = acl.op_compiler.aclopCompileAndExecute
        acl.check(acl.status(function, b"Im2colBackward", *NO_OPERANDS, 0, 0, None, ctypes.c_void_p(stream)))
        with pytest.raises(acl.AclError, match=r"operator Im2colBackward .* does not serve") as failure:
            acl.call("aclrtSynchronizeStream", stream)
        assert failure.value.code == acl.OP_NOT_FOUND
        acl.call("aclrtSynchronizeStream", stream)


@pytest.mark.parametrize("count, values, name", [(-1, 8, "numValues is -1"), (1, None, "values is null")])
def test_a_list_in_a_list_attribute_is_checked(acl, count, values, name):
    acl.op_compiler.aclopCreateAttr.restype = ctypes.c_void_p
    attributes = ctypes.c_void_p(acl.op_compiler.aclopCreateAttr())
    counts, lists = (ctypes.c_int * 1)(count), (ctypes.c_void_p * 1)(values)
    with pytest.raises(acl.AclError, match=f"one of {name}"):
        acl.check(acl.status(acl.op_compiler.aclopSetAttrListListInt, attributes, b"name", 1, counts, lists))
    acl.op_compiler.aclopDestroyAttr(attributes)


def test_attributes_are_of_the_runtime_and_lists_of_them_are_checked(acl):
    """MindSpore looks for them in libascendcl."""
    acl.library.aclopCreateAttr.restype = ctypes.c_void_p
    attributes = ctypes.c_void_p(acl.library.aclopCreateAttr())
    acl.call("aclopSetAttrListString", attributes, b"names", 2, (ctypes.c_char_p * 2)(b"a", b"bc"))
    acl.call("aclopSetAttrListDataType", attributes, b"dtypes", 2, (ctypes.c_int * 2)(0, 1))
    with pytest.raises(acl.AclError, match="one of values is null"):
        acl.call("aclopSetAttrListString", attributes, b"names", 2, (ctypes.c_char_p * 2)(b"a", None))
    for name in ("aclopSetAttrListString", "aclopSetAttrListDataType"):
        with pytest.raises(acl.AclError, match="numValues is -1"):
            acl.call(name, attributes, b"names", -1, None)
        with pytest.raises(acl.AclError, match="values is null"):
            acl.call(name, attributes, b"names", 1, None)
    acl.library.aclopDestroyAttr(attributes)


def test_the_compile_flag_is_one_of_two(acl):
    for flag in (0, 1):
        acl.check(acl.status(acl.op_compiler.aclopSetCompileFlag, flag))
    with pytest.raises(acl.AclError, match="flag is 2; expected ACL_OP_COMPILE_DEFAULT"):
        acl.check(acl.status(acl.op_compiler.aclopSetCompileFlag, 2))


def test_a_dimension_of_a_description_is_minus_one_where_there_is_none(acl):
    acl.library.aclCreateTensorDesc.restype = ctypes.c_void_p
    acl.library.aclGetTensorDescDim.restype = ctypes.c_int64
    desc = ctypes.c_void_p(acl.status(acl.library.aclCreateTensorDesc, 0, 2, (ctypes.c_int64 * 2)(3, 5), 2))
    assert [acl.status(acl.library.aclGetTensorDescDim, desc, i) for i in range(3)] == [3, 5, -1]
    assert acl.status(acl.library.aclGetTensorDescDim, None, 0) == -1
    acl.library.aclDestroyTensorDesc(desc)


FIELDS = ("Device", "Stream", "Task", "Thread", "ErrorCode")


def test_the_program_is_told_of_each_task_that_fails(acl, tasks):
    functions = [
        getattr(acl.library, f"aclrtGet{field.removesuffix('Code')}{end}FromExceptionInfo")
        for field, end in zip(FIELDS, ("Id", "Id", "Id", "Id", "Code"), strict=True)
    ]
    for function in functions:
        function.restype = ctypes.c_uint32
        assert acl.status(function, None) == 0xFFFFFFFF
    told = []
    callback = acl.Callback(lambda info: told.append([f(ctypes.c_void_p(info)) for f in functions]))
    acl.call("aclrtSetExceptionInfoCallback", callback)
    try:
        with acl.stream() as stream:
            number = acl.get("aclrtStreamGetId", ctypes.c_int32, stream)
            digits = ctypes.c_int64(0)
            acl.check(acl.status(tasks.launch_digit, ctypes.c_void_p(stream), b"Digit", ctypes.byref(digits), 7))
            acl.check(acl.status(tasks.launch_failing, ctypes.c_void_p(stream), b"Failing", 507015, b"wrong"))
            with pytest.raises(acl.AclError, match="Failing on stream"):
                acl.call("aclrtSynchronizeStream", stream)
            assert len(told) == 1 and told[0][3] != threading.get_native_id()
            assert told[0][:3] + told[0][4:] == [0, number, 2, 507015]
            acl.call("aclrtSetExceptionInfoCallback", None)
            acl.check(acl.status(tasks.launch_failing, ctypes.c_void_p(stream), b"Failing", 507015, b"wrong"))
            with pytest.raises(acl.AclError, match="Failing on stream"):
                acl.call("aclrtSynchronizeStream", stream)
            assert len(told) == 1
    finally:
        acl.call("aclrtSetExceptionInfoCallback", None)


@pytest.mark.parametrize(
    ("name", "answer"),
    [("aclmdlUnload", 200006), ("aclmdlCreateDesc", 0), ("aclmdlGetInputFormat", -1), ("halHostRegister", 200006)],
)
def test_what_is_not_there_says_its_name(acl, name, answer):
    function = ctypes.CFUNCTYPE(ctypes.c_int64 if answer == 0 else ctypes.c_int)((name, acl.library))
    assert function() == answer
    assert acl.library.aclGetRecentErrMsg().decode().startswith(f"{name} is not supported")


def test_compile_options_are_kept_and_their_size_is_real(acl):
    size, value = acl.op_compiler.aclGetCompileoptSize, ctypes.create_string_buffer(64)
    size.restype = ctypes.c_size_t
    assert size(10) == len("disable") + 1  # ACL_OP_JIT_COMPILE has a value before anybody sets it
    acl.check(acl.status(acl.op_compiler.aclSetCompileopt, 6, b"/some/folder"))
    assert size(6) == len("/some/folder") + 1
    acl.check(acl.status(acl.op_compiler.aclGetCompileopt, 6, value, 64))
    assert value.value == b"/some/folder"
    with pytest.raises(acl.AclError, match="takes 13"):
        acl.check(acl.status(acl.op_compiler.aclGetCompileopt, 6, value, 12))
    assert size(8) == 0
    with pytest.raises(acl.AclError, match="was never set"):
        acl.check(acl.status(acl.op_compiler.aclGetCompileopt, 8, value, 64))
    with pytest.raises(acl.AclError, match="option 99 is unknown"):
        acl.check(acl.status(acl.op_compiler.aclSetCompileopt, 99, b"x"))


def test_settings_are_kept(acl):
    acl.call("aclrtSetSysParamOpt", 0, 1)
    assert acl.get("aclrtGetSysParamOpt", ctypes.c_int64, 0) == 1
    acl.call("aclrtSetSysParamOpt", 0, 0)
    assert acl.get("aclrtGetSysParamOpt", ctypes.c_int64, 0) == 0
    with pytest.raises(acl.AclError, match="value is 9; expected 0 to 2"):
        acl.call("aclrtCtxSetSysParamOpt", 0, 9)
    with pytest.raises(acl.AclError, match="ACL_OPT_ENABLE_DEBUG_KERNEL is not supported"):
        acl.call("aclrtSetSysParamOpt", 1, 1)
    with pytest.raises(acl.AclError, match="option 9 is unknown"):
        acl.call("aclrtCtxSetSysParamOpt", 9, 1)
    acl.make("aclrtCreateContext", 0)
    with pytest.raises(acl.AclError, match="option 2 was not set by aclrtCtxSetSysParamOpt") as failure:
        acl.get("aclrtCtxGetSysParamOpt", ctypes.c_int64, 2)
    assert failure.value.code == 107021
    acl.call("aclrtCtxSetSysParamOpt", 2, 1)
    assert acl.get("aclrtCtxGetSysParamOpt", ctypes.c_int64, 2) == 1
    acl.call("aclrtDestroyContext", acl.get("aclrtGetCurrentContext", ctypes.c_void_p))
    acl.call("aclrtSetDevice", 0)
    with pytest.raises(acl.AclError, match="infinities and NaNs"):
        acl.call("aclrtSetDeviceSatMode", 0)


def test_cann_has_all_attributes(acl):
    attributes, count = ctypes.POINTER(ctypes.c_int)(), ctypes.c_size_t()
    acl.call("aclGetCannAttributeList", ctypes.byref(attributes), ctypes.byref(count))
    assert attributes[: count.value] == [0, 1, 2]
    assert [acl.get("aclGetCannAttribute", ctypes.c_int32, attribute) for attribute in range(3)] == [1, 1, 1]


def test_core_limits_pass_from_device_to_stream_to_thread(acl):
    cube, vector = 0, 1
    with acl.stream() as stream:
        assert acl.get("aclrtGetStreamResLimit", ctypes.c_uint32, stream, cube) == 20
        acl.call("aclrtSetDeviceResLimit", 0, vector, 30)
        acl.call("aclrtSetStreamResLimit", stream, cube, 8)
        acl.call("aclrtUseStreamResInCurrentThread", stream)
        assert acl.get("aclrtGetResInCurrentThread", ctypes.c_uint32, cube) == 8
        assert acl.get("aclrtGetResInCurrentThread", ctypes.c_uint32, vector) == 30
        acl.call("aclrtUnuseStreamResInCurrentThread", stream)
        assert acl.get("aclrtGetResInCurrentThread", ctypes.c_uint32, cube) == 20
        acl.call("aclrtResetDeviceResLimit", 0)
        acl.call("aclrtResetStreamResLimit", stream)
        assert acl.get("aclrtGetStreamResLimit", ctypes.c_uint32, stream, vector) == 40
        with pytest.raises(acl.AclError, match="value is 21; expected 1 to 20 cores"):
            acl.call("aclrtSetStreamResLimit", stream, cube, 21)


@pytest.mark.parametrize(
    "function, size, count, text, code, left",
    [
        ("snprintf_s", 8, 7, b"short", 5, b"short"),
        ("snprintf_s", 8, 7, b"seven77", 7, b"seven77"),
        ("snprintf_s", 8, 3, b"cut here", -1, b"cut"),
        ("snprintf_s", 4, 9, b"too long", -1, b""),
        ("strcpy_s", 6, None, b"short", 0, b"short"),
        ("strcpy_s", 5, None, b"short", 162, b""),
    ],
)
def test_the_checked_c_functions_stay_in_bounds(acl, function, size, count, text, code, left):
    buffer = ctypes.create_string_buffer(b"#" * 16)
    arguments = [buffer, size, text] if count is None else [buffer, size, count, b"%s", text]
    assert acl.status(getattr(acl.library, function), *arguments) == code
    assert buffer.value == left
    assert buffer.raw[size:16] == b"#" * (16 - size)


def test_the_checked_c_functions_tell_errors_that_cleared_the_target_from_others(acl):
    library, data = acl.library, ctypes.create_string_buffer(b"0123456789", 16)
    address = ctypes.addressof(data)
    for code, name, arguments in (
        (162, "memcpy_s", (address, 4, b"12345", 5)),
        (150, "memcpy_s", (address, 4, None, 4)),
        (182, "memcpy_s", (address, 8, address + 1, 4)),
        (162, "memset_s", (address, 4, 7, 5)),
        (150, "strcpy_s", (address, 4, None)),
        (34, "memcpy_s", (address, 1 << 32, b"1", 1)),
        (34, "memset_s", (address, 0, 7, 1)),
        (34, "strcpy_s", (address, 1 << 31, b"1")),
        (22, "memcpy_s", (None, 4, b"1", 1)),
        (0, "memcpy_s", (address, 4, b"1234", 4)),
        (0, "memcpy_s", (address, 8, address, 8)),
    ):
        data.raw = b"0123456789      "
        assert acl.status(getattr(library, name), *arguments) == code, (name, arguments)
        assert data.raw[10:] == b"      "
        if code < 128 and code != 0:
            assert data.raw[:10] == b"0123456789"


def test_half_precision_conversions_are_numpys_but_for_infinities_and_nans(acl):
    """By their pages, what half precision does not hold saturates, and the largest exponent is one of numbers."""
    np = pytest.importorskip("numpy")
    to_float, to_half = acl.library.aclFloat16ToFloat, acl.library.aclFloatToFloat16
    to_float.restype, to_half.restype = ctypes.c_float, ctypes.c_uint16
    halves = np.arange(0, 65536, 7, dtype=np.uint16)
    halves = halves[halves & 0x7C00 != 0x7C00]
    expected = halves.view(np.float16).astype(np.float32)
    found = np.array([to_float(ctypes.c_uint16(int(h))) for h in halves], dtype=np.float32)
    np.testing.assert_array_equal(found, expected)
    for half, number in ((0x7C00, 65536.0), (0xFC00, -65536.0), (0x7E00, 98304.0)):
        assert to_float(ctypes.c_uint16(half)) == number

    rng = np.random.default_rng(3)
    floats = np.concatenate([
        rng.standard_normal(2000) * 10.0 ** rng.integers(-9, 6, 2000),
        [0.0, -0.0, np.inf, -np.inf, 65504, 65519.9, 65520, -65536, 2047.5],
        [2**-24, 2**-25, 2**-25 * 1.0001, 2**-14, 1.0009765625 / 2],
    ]).astype(np.float32)  # fmt: skip
    expected = np.clip(floats, -65504, 65504).astype(np.float16).view(np.uint16)
    found = np.array([to_half(ctypes.c_float(float(f))) for f in floats], dtype=np.uint16)
    np.testing.assert_array_equal(found, expected)
    assert to_half(ctypes.c_float(float("nan"))) == 0x7BFF


def test_elements_that_share_a_byte_count_as_one(acl):
    acl.library.aclDataTypeSize.restype = ctypes.c_size_t
    sizes = {dtype: acl.library.aclDataTypeSize(dtype) for dtype in (-1, 0, 1, 13, 29, 30)}
    assert sizes == {-1: 0, 0: 4, 1: 2, 13: 0, 29: 1, 30: 1}


def test_a_tensor_of_unknown_rank_says_so(acl):
    acl.library.aclCreateTensorDesc.restype = ctypes.c_void_p
    acl.library.aclGetTensorDescNumDims.restype = ctypes.c_size_t
    for dims, expected in (([-2], 2**64 - 2), ([-2, 3], 2), ([4], 1)):
        description = ctypes.c_void_p(
            acl.library.aclCreateTensorDesc(0, len(dims), (ctypes.c_int64 * len(dims))(*dims), 2)
        )
        assert acl.library.aclGetTensorDescNumDims(description) == expected
        acl.library.aclDestroyTensorDesc(description)


def test_the_collective_library_keeps_its_only_option(acl, cann_cpu_lib):
    hccl = ctypes.CDLL(str(cann_cpu_lib / "libhccl.so"))
    assert [hccl.HcclSetConfig(0, level) for level in (0, 1, 2)] == [0, 0, 0]
    assert hccl.HcclSetConfig(0, 3) != 0 and hccl.HcclSetConfig(5, 0) != 0
    assert acl.library.aclGetRecentErrMsg() == b"HcclSetConfig: config 5 with value 0 is unknown"


@pytest.mark.parametrize(
    ("bit", "name"),
    [(0x200, "GE_API_L0"), (0x1000000, "GE_API_L1"), (0x2000, "TASK_TIME_L2"), (0x8000, "TASK_TIME_L3"),
     (0x400000000, "API_STATS")],
)  # fmt: skip
def test_profiling_that_is_not_there_is_rejected_by_its_name(acl, bit, name):
    acl.library.aclprofCreateConfig.restype = ctypes.c_void_p
    devices = (ctypes.c_uint32 * 1)(0)
    arguments = (devices, 1, ctypes.c_int(-1), None, ctypes.c_uint64(bit))
    assert acl.library.aclprofCreateConfig(*arguments) is None
    assert f"ACL_PROF_{name} is not implemented" in acl.library.aclGetRecentErrMsg().decode()
