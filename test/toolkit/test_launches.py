# SPDX-License-Identifier: Apache-2.0
"""Launches of a kernel library on the runtime's streams: by aclrtlaunch_X, and by functions that are loaded."""

import ctypes
import struct
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

COUNT = 256
X = np.arange(COUNT, dtype=np.float32)


class Tiling(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint32), ("factor", ctypes.c_float))


@pytest.fixture(scope="module")
def library(project):
    return ctypes.CDLL(str(project("launch") / "libscale_kernels.so"))


@pytest.fixture
def memory(acl):
    """X and room for the result on the device."""
    with acl.device_memory(X.nbytes) as x, acl.device_memory(X.nbytes) as y:
        acl.write(x, X.tobytes())
        acl.write(y, bytes(X.nbytes))
        yield x, y


@pytest.fixture
def stream(acl):
    with acl.stream() as stream:
        yield stream


@contextmanager
def held(acl, stream):
    """What is launched inside runs after it."""
    gate = threading.Event()
    function = acl.Callback(lambda _: gate.wait(60))
    acl.call("aclrtLaunchHostFunc", stream, function, None)
    try:
        yield
    finally:
        gate.set()
        acl.call("aclrtSynchronizeStream", stream)


def result(acl, y):
    return np.frombuffer(acl.read(y, X.nbytes), np.float32)


def launch(library, blocks, stream, x, y, tiling):
    return library.aclrtlaunch_scale(
        ctypes.c_uint32(blocks), ctypes.c_void_p(stream), ctypes.c_void_p(x), ctypes.c_void_p(y), tiling
    )


def test_a_launch_returns_at_once_with_its_arguments_copied(acl, library, memory, stream):
    x, y = memory
    tiling = Tiling(COUNT, 2)
    with held(acl, stream):
        assert launch(library, 4, stream, x, y, ctypes.byref(tiling)) == 0
        tiling.count, tiling.factor = 0, 0
        assert not result(acl, y).any()
    assert np.array_equal(result(acl, y), 2 * X + 2)


def test_launches_are_in_order_and_without_a_stream_on_the_default_one(acl, library, memory):
    x, y = memory
    for _ in range(2):
        assert launch(library, 2, None, x, y, ctypes.byref(Tiling(COUNT, 3))) == 0
        x, y = y, x
    acl.call("aclrtSynchronizeDevice")
    assert np.array_equal(result(acl, x), 3 * (3 * X + 2) + 2)


def test_a_captured_launch_is_replayed(acl, library, memory, stream):
    x, y = memory
    acl.call("aclmdlRICaptureBegin", stream, acl.CAPTURE_GLOBAL)
    assert launch(library, 1, stream, x, y, ctypes.byref(Tiling(COUNT, 2))) == 0
    graph = acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, stream)
    assert not result(acl, y).any()
    for start in (0, 1):
        acl.write(x, (X + start).tobytes())
        acl.call("aclmdlRIExecuteAsync", graph, stream)
        acl.call("aclrtSynchronizeStream", stream)
        assert np.array_equal(result(acl, y), 2 * (X + start) + 2)
    acl.call("aclmdlRIDestroy", graph)


@pytest.mark.parametrize(
    ("x_is", "message"),
    [
        ("given", r"scale, block 0: DataCopy reads elements .* of x"),
        ("None", r"scale, block 0: DataCopy reads .* 'x', which is None"),
        ("on the host", r"scale, block 0: DataCopy reads"),
    ],
)
def test_what_a_checked_kernel_does_wrong_is_the_streams_error(
    acl, library, memory, stream, monkeypatch, x_is, message
):
    monkeypatch.setenv("ASCENDC_CPU_CHECKS", "1")
    x, y = memory
    on_host = np.zeros(4 * COUNT, np.float32)
    x = {"given": x, "None": None, "on the host": on_host.ctypes.data}[x_is]
    assert launch(library, 1, stream, x, y, ctypes.byref(Tiling(2 * COUNT, 2))) == 0
    with pytest.raises(acl.AclError, match=f"(?s)scale on stream .*failed.*{message}"):
        acl.call("aclrtSynchronizeStream", stream)


def test_a_checked_kernel_may_touch_the_memory_of_its_arguments(acl, library, memory, stream, monkeypatch):
    monkeypatch.setenv("ASCENDC_CPU_CHECKS", "1")
    x, y = memory
    assert launch(library, 4, stream, x, y, ctypes.byref(Tiling(COUNT, 2))) == 0
    acl.call("aclrtSynchronizeStream", stream)
    assert np.array_equal(result(acl, y), 2 * X + 2)


def test_a_launch_that_cannot_be_made_says_why(acl, library, memory, stream, capfd):
    x, y = memory
    tiling = ctypes.byref(Tiling(COUNT, 2))
    with acl.stream() as ended:
        pass
    for arguments, reason in (
        ((0, stream, x, y, tiling), "the number of blocks is 0; it must be from 1 to 65535"),
        ((65536, stream, x, y, tiling), "the number of blocks is 65536"),
        ((1, ended, x, y, tiling), "is not a valid stream"),
        ((1, stream, x, y, None), "the address of a struct is null"),
    ):
        code = launch(library, *arguments)
        with pytest.raises(acl.AclError, match=reason):
            acl.check(code)
        assert capfd.readouterr().err.count(reason) == 1
    acl.call("aclrtSynchronizeStream", stream)


# ---- functions of loaded libraries


@pytest.fixture
def binary(acl, project):
    handle = ctypes.c_void_p()
    path = project("launch") / "fatbin/scale_binary/scale_binary.o"
    acl.call("aclrtBinaryLoadFromFile", str(path).encode(), None, ctypes.byref(handle))
    yield handle.value
    acl.status(acl.library.aclrtBinaryUnLoad, handle.value)


@pytest.fixture
def function(acl, binary):
    return acl.get("aclrtBinaryGetFunction", ctypes.c_void_p, binary, b"scale")


def test_a_function_is_found_by_its_entry(acl, binary, memory, stream):
    x, y = memory
    function = acl.get("aclrtBinaryGetFunctionByEntry", ctypes.c_void_p, binary, 3)
    assert function == acl.get("aclrtBinaryGetFunction", ctypes.c_void_p, binary, b"scale_by_3")
    acl.call("aclrtLaunchKernel", function, 2, ctypes.create_string_buffer(packed(x, y, 9), 24), 24, stream)
    acl.call("aclrtSynchronizeStream", stream)
    assert np.array_equal(result(acl, y), 3 * X + 2)
    with pytest.raises(acl.AclError, match="no meta information of type 1 of kernel scale_by_3"):
        acl.get("rtFunctionGetMetaInfoSize", ctypes.c_size_t, function, 1)


def arguments_of(acl, function, *values):
    """The handle of a list of these bytes; None is a placeholder. And the handles of its parameters."""
    handle = acl.get("aclrtKernelArgsInit", ctypes.c_void_p, function)
    parameters = []
    for value in values:
        if value is None:
            parameters.append(acl.get("aclrtKernelArgsAppendPlaceHolder", ctypes.c_void_p, handle))
        else:
            data = ctypes.create_string_buffer(value, len(value))
            parameters.append(acl.get("aclrtKernelArgsAppend", ctypes.c_void_p, handle, data, len(value)))
    return handle, parameters


def packed(x, y, factor):
    return struct.pack("=QQIf", x, y, COUNT, factor)


@pytest.mark.parametrize("checks", "01")
def test_a_function_is_launched_with_a_list_of_arguments(acl, function, memory, stream, monkeypatch, checks):
    monkeypatch.setenv("ASCENDC_CPU_CHECKS", checks)
    x, y = memory
    addresses = [struct.pack("=Q", address) for address in (x, y)]
    handle, (_, _, tiling) = arguments_of(acl, function, *addresses, bytes(Tiling(COUNT, 2)))
    acl.call("aclrtKernelArgsFinalize", handle)
    for factor in (2, 5):
        update = ctypes.create_string_buffer(bytes(Tiling(COUNT, factor)), 8)
        acl.call("aclrtKernelArgsParaUpdate", handle, tiling, update, 8)
        acl.call("aclrtLaunchKernelWithConfig", function, 2, stream, None, handle, None)
        acl.call("aclrtSynchronizeStream", stream)
        assert np.array_equal(result(acl, y), factor * X + 2)


def test_a_thread_has_one_list_of_arguments_which_its_next_replaces(acl, function):
    """No function gives lists back: a program that makes one for each launch would grow without end."""
    x, y, tiling = struct.pack("=Q", 8), struct.pack("=Q", 8), bytes(Tiling(COUNT, 2))
    handle, _ = arguments_of(acl, function, x, y, tiling)
    of_another_thread = []
    thread = threading.Thread(target=lambda: of_another_thread.extend(arguments_of(acl, function, x, y, tiling)))
    thread.start()
    thread.join()
    while Path(f"/proc/self/task/{thread.native_id}").exists():  # join does not wait for the destructors of its locals
        time.sleep(0.001)
    with pytest.raises(acl.AclError, match="is not a valid list of kernel arguments"):
        acl.call("aclrtKernelArgsFinalize", of_another_thread[0])
    acl.call("aclrtKernelArgsFinalize", handle)
    arguments_of(acl, function, x)
    with pytest.raises(acl.AclError, match=r"is not a valid list .*the next aclrtKernelArgsInit of its thread ends it"):
        acl.call("aclrtKernelArgsFinalize", handle)


@pytest.mark.parametrize("checks", "01")
def test_a_placeholder_is_memory_that_is_copied_with_the_arguments(acl, function, memory, stream, monkeypatch, checks):
    monkeypatch.setenv("ASCENDC_CPU_CHECKS", checks)
    _, y = memory
    handle, (x, *_) = arguments_of(acl, function, None, struct.pack("=Q", y), bytes(Tiling(COUNT, 2)))
    buffer = acl.get("aclrtKernelArgsGetPlaceHolderBuffer", ctypes.c_void_p, handle, x, X.nbytes)
    acl.write(buffer, X.tobytes())
    acl.call("aclrtKernelArgsFinalize", handle)
    with held(acl, stream):
        acl.call("aclrtLaunchKernelWithConfig", function, 2, stream, None, handle, None)
        acl.write(buffer, bytes(X.nbytes))
    assert np.array_equal(result(acl, y), 2 * X + 2)


def test_arguments_in_one_piece_on_the_host_and_on_the_device(acl, function, memory, stream):
    x, y = memory
    host = ctypes.create_string_buffer(packed(x, y, 2), 24)
    with held(acl, stream):
        acl.call("aclrtLaunchKernel", function, 2, host, 24, stream)
        ctypes.memset(host, 0, 24)
    assert np.array_equal(result(acl, y), 2 * X + 2)
    with acl.device_memory(24) as device:
        with held(acl, stream):
            acl.call("aclrtLaunchKernelV2", function, 2, device, 24, None, stream)
            acl.write(device, packed(x, y, 7))  # as one that a copy before it in the stream would have written
        assert np.array_equal(result(acl, y), 7 * X + 2)


def test_host_arguments_with_a_placeholder(acl, function, memory, stream):
    _, y = memory
    host = ctypes.create_string_buffer(packed(0, y, 3) + X.tobytes(), 24 + X.nbytes)
    places = (ctypes.c_uint32 * 2)(0, 24)
    arguments = (function, 2, stream, None, host, len(host))
    acl.call("aclrtLaunchKernelWithHostArgs", *arguments, places, 1)
    acl.call("aclrtSynchronizeStream", stream)
    assert np.array_equal(result(acl, y), 3 * X + 2)
    places[0] = len(host)
    with pytest.raises(acl.AclError, match=r"placeHolderArray\[0\] points past the end of the arguments"):
        acl.call("aclrtLaunchKernelWithHostArgs", *arguments, places, 1)


class LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("value", ctypes.c_uint32 * 4))


class LaunchConfig(ctypes.Structure):
    _fields_ = (("attributes", ctypes.POINTER(LaunchAttribute)), ("count", ctypes.c_size_t))

    def __init__(self, *attributes):
        self.kept = (LaunchAttribute * len(attributes))(*((i, (value,)) for i, value in attributes))
        super().__init__(self.kept, len(attributes))


SCHEME, DYNAMIC_UB, ENGINE, OFFSET, PREFETCH, DUMP, SECONDS, MICROSECONDS = range(1, 9)


def test_attributes_of_a_launch_that_change_nothing_are_taken(acl, function, memory, stream):
    x, y = memory
    config = LaunchConfig((SCHEME, 1), (ENGINE, 1), (PREFETCH, 1), (DUMP, 0), (OFFSET, 0), (DYNAMIC_UB, 0))
    acl.call("aclrtLaunchKernelV2", function, 2, packed(x, y, 2), 24, ctypes.byref(config), stream)
    acl.call("aclrtSynchronizeStream", stream)
    assert np.array_equal(result(acl, y), 2 * X + 2)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ([(DYNAMIC_UB, 64)], "ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE of 64 is not supported"),
        ([(OFFSET, 3)], "ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET of 3 is not supported"),
        ([(DUMP, 1)], "ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP of 1 is not supported"),
        ([(SECONDS, 1), (MICROSECONDS, 1)], "two time-outs"),
        ([(99, 0)], "attribute 99 of cfg is unknown"),
    ],
)
def test_other_attributes_are_rejected_by_name(acl, function, memory, stream, attributes, message):
    config = ctypes.byref(LaunchConfig(*attributes))
    with pytest.raises(acl.AclError, match=message):
        acl.call("aclrtLaunchKernelV2", function, 2, packed(*memory, 2), 24, config, stream)
    handle, _ = arguments_of(acl, function, *(struct.pack("=Q", each) for each in memory), bytes(Tiling(COUNT, 2)))
    acl.call("aclrtKernelArgsFinalize", handle)
    with pytest.raises(acl.AclError, match=message):
        acl.call("aclrtLaunchKernelWithConfig", function, 2, stream, config, handle, None)


@pytest.mark.parametrize("by_launch", [None, (SECONDS, 0), (MICROSECONDS, 200_000)])
def test_a_kernel_that_hangs_ends_with_its_time(acl, binary, function, memory, stream, by_launch):
    """The stream goes on. The kernel's memory is not given back, as the kernel may still read it."""
    hanging = acl.get("aclrtBinaryGetFunction", ctypes.c_void_p, binary, b"until_set")
    x, y = memory
    flag = acl.make("aclrtMallocAlign32", 512, 0)
    acl.call("aclrtMemset", flag, 512, 0, 512)
    actual = ctypes.c_uint64()
    acl.call("aclrtSetOpExecuteTimeOutV2", 10**9 if by_launch else 200_000, ctypes.byref(actual))
    try:
        config = ctypes.byref(LaunchConfig(by_launch)) if by_launch else None
        acl.call("aclrtLaunchKernelV2", hanging, 2, struct.pack("=Q", flag), 8, config, stream)
        if by_launch == (SECONDS, 0):  # is without end
            with pytest.raises(acl.AclError, match="was still working"):
                acl.call("aclrtSynchronizeStreamWithTimeout", stream, 500)
            return
        with pytest.raises(
            acl.AclError, match=r"until_set on stream .*kernel until_set did not end within 0\.2"
        ) as error:
            acl.call("aclrtSynchronizeStreamWithTimeout", stream, 30_000)
        assert error.value.code == 507014
        acl.call("aclrtLaunchKernel", function, 2, packed(x, y, 3), 24, stream)
        acl.call("aclrtSynchronizeStream", stream)
        assert np.array_equal(result(acl, y), 3 * X + 2)
    finally:
        acl.call("aclrtSetOpExecuteTimeOutV2", 0, ctypes.byref(actual))
        assert actual.value == 2**64 - 1
        acl.write(flag, b"1234")
        acl.call("aclrtSynchronizeStream", stream)
        acl.call("aclrtFree", flag)


class LoadOption(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("value", ctypes.c_uint32 * 4))


@pytest.mark.parametrize(
    ("option", "message"),
    [(1, None), (2, None), (3, "CPU_KERNEL_MODE is not supported"), (9, "option 9 is unknown")],
)
def test_options_of_loading_are_known_or_rejected(acl, project, option, message):
    path = str(project("launch") / "fatbin/scale_binary/scale_binary.o").encode()
    options = (ctypes.c_size_t * 2)(ctypes.addressof(given := LoadOption(option, (1,))), 1)
    handle = ctypes.c_void_p()
    if message is None:
        acl.call("aclrtBinaryLoadFromFile", path, options, ctypes.byref(handle))
        acl.call("aclrtBinaryUnLoad", handle.value)
    else:
        with pytest.raises(acl.AclError, match=message):
            acl.call("aclrtBinaryLoadFromFile", path, options, ctypes.byref(handle))
    assert given.type == option


def test_a_library_from_memory_outlives_its_unloading_until_its_launches_end(acl, project, memory, stream):
    x, y = memory
    data = (project("launch") / "fatbin/scale_binary/scale_binary.o").read_bytes()
    handle = ctypes.c_void_p()
    acl.call("aclrtBinaryLoadFromData", data, len(data), None, ctypes.byref(handle))
    function = acl.get("aclrtBinaryGetFunction", ctypes.c_void_p, handle.value, b"scale_by")
    name = ctypes.create_string_buffer(16)
    acl.call("aclrtGetFunctionName", function, 16, name)
    assert name.value == b"scale_by"
    with held(acl, stream):
        acl.call("aclrtLaunchKernel", function, 2, ctypes.create_string_buffer(packed(x, y, 4), 24), 24, stream)
        acl.call("aclrtBinaryUnLoad", handle.value)
        with pytest.raises(acl.AclError, match="is not a valid kernel function"):
            acl.call("aclrtGetFunctionName", function, 16, name)
    assert np.array_equal(result(acl, y), 4 * X + 2)


def loaded(acl, project, tmp_path, way, offset):
    """The handle of a library that is loaded that way, whose kernels add `offset`."""
    handle = ctypes.c_void_p()
    data = (project("launch", OFFSET=offset) / "fatbin/scale_binary/scale_binary.o").read_bytes()
    if way == "data":
        acl.call("aclrtBinaryLoadFromData", data, len(data), None, ctypes.byref(handle))
    else:
        (tmp_path / "scale.o").write_bytes(data)  # the same file each time, written anew
        acl.call("aclrtBinaryLoadFromFile", bytes(tmp_path / "scale.o"), None, ctypes.byref(handle))
    return handle.value


@pytest.mark.parametrize("unloaded", [False, True])
@pytest.mark.parametrize("way", ["data", "file"])
def test_libraries_with_kernels_of_one_name_run_their_own(acl, project, tmp_path, memory, stream, way, unloaded):
    x, y = memory
    kernels = []
    for offset in (2, 3, 2):
        kernels.append((offset, loaded(acl, project, tmp_path, way, offset)))
        for adds, handle in kernels:
            function = acl.get("aclrtBinaryGetFunction", ctypes.c_void_p, handle, b"scale")
            size = 24 if adds == 2 else 28  # its struct has one more member
            arguments = ctypes.create_string_buffer(packed(x, y, 4), 32)
            with pytest.raises(acl.AclError, match=rf"of kernel scale \(x,y,tiling\) have {size} bytes"):
                acl.call("aclrtLaunchKernel", function, 2, arguments, size - 1, stream)
            acl.call("aclrtLaunchKernel", function, 2, arguments, size, stream)
            acl.call("aclrtSynchronizeStream", stream)
            assert np.array_equal(result(acl, y), 4 * X + adds)
        if unloaded:
            acl.call("aclrtBinaryUnLoad", kernels.pop()[1])
    for _, handle in kernels:
        acl.call("aclrtBinaryUnLoad", handle)


@pytest.mark.parametrize("way", ["data", "file"])
def test_a_library_that_is_loaded_twice_is_unloaded_twice(acl, project, tmp_path, memory, stream, way):
    x, y = memory
    first, second = (loaded(acl, project, tmp_path, way, 2) for _ in range(2))
    functions = [acl.get("aclrtBinaryGetFunction", ctypes.c_void_p, of, b"scale_by") for of in (first, second)]
    acl.call("aclrtBinaryUnLoad", first)
    acl.call("aclrtLaunchKernel", functions[1], 2, ctypes.create_string_buffer(packed(x, y, 4), 24), 24, stream)
    acl.call("aclrtSynchronizeStream", stream)
    assert np.array_equal(result(acl, y), 4 * X + 2)
    acl.call("aclrtBinaryUnLoad", second)
    third = loaded(acl, project, tmp_path, way, 2)
    for name, dead in (("aclrtBinaryGetFunction", first), ("aclrtKernelArgsInit", functions[0])):
        with pytest.raises(acl.AclError, match="is not a valid"):
            acl.call(name, dead, *([b"scale_by"] if dead == first else []), ctypes.byref(ctypes.c_void_p()))
    acl.call("aclrtBinaryUnLoad", third)


@pytest.mark.parametrize("part", [0.05, 0.1, 0.25, 0.5])
def test_a_library_that_was_cut_off_is_rejected(acl, project, part):
    data = (project("launch") / "fatbin/scale_binary/scale_binary.o").read_bytes()
    with pytest.raises(acl.AclError, match="the file has been cut off"):
        acl.call("aclrtBinaryLoadFromData", data, int(part * len(data)), None, ctypes.byref(ctypes.c_void_p()))


def test_what_is_wrong_with_a_loaded_function_is_said(acl, binary, function, memory, stream, tmp_path):
    x, y = memory
    (tmp_path / "no.o").write_text("no library")
    out = ctypes.byref(ctypes.c_void_p())
    address = struct.pack("=Q", x)
    short, _ = arguments_of(acl, function, address, address)
    for name, arguments, reason in (
        (
            "aclrtBinaryLoadFromFile",
            (bytes(tmp_path / "no.o"), None, out),
            "no.o is not a kernel library that cann_cpu's",
        ),
        ("aclrtBinaryGetFunction", (binary, b"other", out), "the library has no kernel other"),
        ("aclrtBinaryGetFunctionByEntry", (binary, 4, out), "0 of the library's kernels have the entry 4: .*scale_by"),
        ("aclrtKernelArgsFinalize", (short,), r"scale takes 3 arguments \(x,y,tiling\), but 2 were appended"),
        ("aclrtKernelArgsAppend", (short, address, 4, out), r"argument 3 of kernel scale .* has 8 bytes, not 4"),
        ("aclrtLaunchKernelWithConfig", (function, 1, stream, None, short, None), "lack aclrtKernelArgsFinalize"),
        ("aclrtLaunchKernel", (function, 1, packed(x, y, 2), 20, stream), "argsSize is 20; the arguments .* 24 bytes"),
        ("aclrtLaunchKernel", (function, 0, packed(x, y, 2), 24, stream), "the number of blocks is 0"),
    ):
        with pytest.raises(acl.AclError, match=reason):
            acl.call(name, *arguments)
    acl.call("aclrtSynchronizeStream", stream)


def test_the_host_launches_what_each_kind_of_cores_has(acl, toolkit, stream, tmp_path):
    source = Path(__file__).parents[1] / "ascendc" / "kernels" / "by_core.cpp"
    compiler = toolkit.home / "bin" / "bisheng"
    toolkit.command(compiler, "-O0", "-DHOST_LAUNCHES", "-c", source, "-o", tmp_path / "by_core.o")
    toolkit.command(compiler, "-shared", tmp_path / "by_core.o", "-o", tmp_path / "libby_core.so")
    file = ctypes.CDLL(str(tmp_path / "libby_core.so"))
    assert file.times_loaded() == 1
    a, b = np.random.default_rng(0).normal(size=(2, 16, 16)).astype(np.float16)
    blocks, of_stream = ctypes.c_uint32(1), ctypes.c_void_p(stream)
    with ExitStack() as memories:
        device = [memories.enter_context(acl.device_memory(1024)) for _ in range(6)]
        for memory, host in zip(device, (a, b), strict=False):
            acl.write(memory, host.tobytes())
        for memory in device[2:]:
            acl.write(memory, bytes(1024))
        given = [ctypes.c_void_p(memory) for memory in device]
        file.launch_both(blocks, of_stream, *given[:5])
        file.launch_cube_alone(blocks, of_stream, *given[:2], given[5])
        acl.call("aclrtSynchronizeStream", stream)
        c, y, once = (np.frombuffer(acl.read(device[i], 1024), np.float32) for i in (2, 3, 5))
        seen = np.frombuffer(acl.read(device[4], 192), np.int32)
    assert np.allclose(c.reshape(16, 16), a.astype(float) @ b.astype(float), atol=1e-5)
    assert (y == c + 1).all()
    assert (once == c).all()
    assert seen[::16].tolist() == [202, 202, 101]
