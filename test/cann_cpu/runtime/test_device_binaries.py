# SPDX-License-Identifier: Apache-2.0
"""Kernels of binaries for NPUs: they are found and described, and a launch of one fails and names it."""

import ctypes
import struct

import pytest
from device_binary import device_binary

KERNEL_TYPE, MIX_RATIO = 1, 3
META = {"scale_half_0": [(KERNEL_TYPE, struct.pack("<I", 2))], "mixed_12_mix_aiv": [(MIX_RATIO, b"\1\0\2\0")]}
BINARY = device_binary(["scale_half_0", "mixed_12_mix_aic", "mixed_12_mix_aiv", "shift_3", "plain"], META)
HANDLE = ctypes.c_void_p


@pytest.fixture
def load(acl):
    handles = []

    def loaded(data):
        handle = HANDLE()
        acl.call("aclrtBinaryLoadFromData", data, len(data), None, ctypes.byref(handle))
        handles.append(handle.value)
        return handle.value

    yield loaded
    for handle in handles:
        acl.call("aclrtBinaryUnLoad", handle)


def name_of(acl, function):
    name = ctypes.create_string_buffer(32)
    acl.call("aclrtGetFunctionName", function, 32, name)
    return name.value.decode()


@pytest.mark.parametrize(("entry", "name"), [(3, "shift_3"), (12, "mixed_12")])
def test_a_kernel_is_found_by_its_entry_and_by_its_name(acl, load, entry, name):
    binary = load(BINARY)
    function = acl.get("aclrtBinaryGetFunctionByEntry", HANDLE, binary, entry)
    assert name_of(acl, function) == name
    assert acl.get("aclrtBinaryGetFunction", HANDLE, binary, name.encode()) == function


def test_an_entry_that_is_not_one_kernels_is_an_error_with_the_kernels(acl, load):
    binary = load(BINARY)
    kernels = "scale_half_0, mixed_12, shift_3, plain"
    for entry, found in ((7, 0), (2**64 - 1, 0), (0, 2)):
        with pytest.raises(acl.AclError, match=f"{found} of the library's kernels have the entry {entry}: {kernels}"):
            acl.get("aclrtBinaryGetFunctionByEntry", HANDLE, binary, ctypes.c_uint64(entry))
    with pytest.raises(acl.AclError, match="the library has no kernel shift_4"):
        acl.get("aclrtBinaryGetFunction", HANDLE, binary, b"shift_4")
    with pytest.raises(acl.AclError, match="binHandle is null"):
        acl.get("aclrtBinaryGetFunctionByEntry", HANDLE, None, 3)


def test_a_launch_of_it_is_an_error_of_the_stream_that_names_it(acl, load, context, stream):
    function = acl.get("aclrtBinaryGetFunctionByEntry", HANDLE, load(BINARY), 3)
    arguments = ctypes.create_string_buffer(8)
    for name, given in (
        ("aclrtLaunchKernelWithHostArgs", (1, stream, None, arguments, 8, None, 0)),
        ("aclrtLaunchKernel", (1, arguments, 8, stream)),
    ):
        acl.call(name, function, *given)
        with pytest.raises(
            acl.AclError, match=r"shift_3 on stream .*kernel shift_3 is from a device binary.*cannot run"
        ):
            acl.call("aclrtSynchronizeStream", stream)
        acl.call("aclrtSynchronizeStream", stream)
    with pytest.raises(acl.AclError, match="kernel shift_3 is from a device binary"):
        acl.get("aclrtKernelArgsInit", HANDLE, function)


def test_what_the_compiler_has_written_of_a_kernel_is_given(acl, load):
    binary = load(BINARY)
    scale, mixed = (acl.get("aclrtBinaryGetFunction", HANDLE, binary, name) for name in (b"scale_half_0", b"mixed_12"))
    for function, kind, value in ((scale, KERNEL_TYPE, b"\2\0\0\0"), (mixed, MIX_RATIO, b"\1\0\2\0")):
        assert acl.get("rtFunctionGetMetaInfoSize", ctypes.c_size_t, function, kind) == 4
        data = ctypes.create_string_buffer(4)
        acl.call("rtFunctionGetMetaInfo", function, kind, data, 4)
        assert data.raw == value
        with pytest.raises(acl.AclError, match=f"length is 8; meta information of type {kind} of kernel .* has 4 byte"):
            acl.call("rtFunctionGetMetaInfo", function, kind, ctypes.create_string_buffer(8), 8)
    with pytest.raises(acl.AclError, match="no meta information of type 3 of kernel scale_half_0"):
        acl.get("rtFunctionGetMetaInfoSize", ctypes.c_size_t, scale, MIX_RATIO)


def test_one_that_has_been_cut_off_is_rejected(load, acl):
    for size in range(64, len(BINARY)):
        with pytest.raises(acl.AclError, match="data: the file has been cut off, or is damaged"):
            load(BINARY[:size])


def test_the_address_for_synchronising_cores_is_no_memory(acl):
    address = acl.make("aclrtGetHardwareSyncAddr")
    assert address == acl.make("aclrtGetHardwareSyncAddr")
    attributes = (ctypes.c_uint32 * 7)()
    acl.call("aclrtPointerGetAttributes", address, attributes)
    assert attributes[1] == 2  # ACL_MEM_LOCATION_TYPE_UNREGISTERED
