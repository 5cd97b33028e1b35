# SPDX-License-Identifier: Apache-2.0
"""Copies and fills of every kind, their bounds, and when pageable memory may be used again."""

import ctypes
import threading

import numpy as np
import pytest

KINDS = {"host to host": 0, "host to device": 1, "device to host": 2, "device to device": 3}


@pytest.fixture
def places(acl):
    """A buffer of 100 bytes in every place a copy can start from or end in."""
    acl.call("aclrtSetDevice", 1)
    other = acl.make("aclrtMallocAlign32", 100, 0)
    acl.call("aclrtSetDevice", 0)
    acl.call("aclrtDeviceEnablePeerAccess", 1, 0)
    pageable = ctypes.create_string_buffer(100)
    with acl.device_memory(100) as device, acl.pinned_memory(100) as pinned:
        yield {"device": device, "other device": other, "pinned": pinned, "pageable": ctypes.addressof(pageable)}
    acl.call("aclrtSetDevice", 1)
    acl.call("aclrtFree", other)
    acl.call("aclrtSetDevice", 0)


def kind_of(source, target):
    return 2 * ("device" in source) + ("device" in target)


PLACES = ["device", "other device", "pinned", "pageable"]
CASES = [(source, target) for source in PLACES for target in PLACES if source != target]


@pytest.mark.parametrize("source, target", CASES)
@pytest.mark.parametrize("inferred", [False, True])
def test_bytes_arrive_whatever_the_places(acl, places, source, target, inferred):
    kind = acl.DEFAULT if inferred else kind_of(source, target)
    for count in (0, 1, 97, 100):
        data = bytes((i * 7 + count) % 251 for i in range(100))
        acl.write(places[source], data)
        acl.write(places[target], bytes(100))
        acl.call("aclrtMemcpy", places[target], 100, places[source], count, kind)
        assert acl.read(places[target], 100) == data[:count] + bytes(100 - count)


@pytest.mark.parametrize("source, target", [case for case in CASES if kind_of(*case) > 0])
@pytest.mark.parametrize("name", ["aclrtMemcpyAsync", "aclrtMemcpyAsyncWithCondition"])
def test_asynchronous_copies_arrive(acl, places, source, target, name):
    data = bytes(range(100, 200))
    acl.write(places[source], data)
    acl.write(places[target], bytes(100))
    with acl.stream() as stream:
        acl.call(name, places[target], 100, places[source], 99, kind_of(source, target), stream)
        acl.call("aclrtSynchronizeStream", stream)
    assert acl.read(places[target], 100) == data[:99] + b"\0"


@pytest.mark.parametrize("inferred", [False, True])
def test_no_stream_copies_within_the_host(acl, places, inferred):
    with acl.stream() as stream, pytest.raises(acl.AclError, match="are host memory") as failure:
        kind = acl.DEFAULT if inferred else acl.HOST_TO_HOST
        acl.call("aclrtMemcpyAsync", places["pinned"], 100, places["pageable"], 99, kind, stream)
    assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT


@pytest.mark.parametrize("size", [1000, 200_000])
def test_pageable_memory_may_change_as_soon_as_the_copy_returns(acl, tasks, size):
    with acl.stream() as stream, acl.device_memory(size) as device:
        pageable = ctypes.create_string_buffer(b"a" * size, size)
        acl.call("aclrtMemcpyAsync", device, size, ctypes.addressof(pageable), size, acl.HOST_TO_DEVICE, stream)
        ctypes.memset(pageable, ord("b"), size)
        acl.call("aclrtSynchronizeStream", stream)
        assert acl.read(device, size) == b"a" * size


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
@pytest.mark.parametrize("name", ["aclrtMemcpyAsync", "aclrtMemcpyAsyncWithCondition", "aclrtMemcpyBatchAsync"])
def test_a_copy_from_pageable_memory_is_done_when_it_returns(acl, tasks, counter, name):
    data = ctypes.create_string_buffer(b"pageable", 8)
    with acl.stream() as stream, acl.device_memory(8) as device:
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(counter), 2))
        timer = threading.Timer(0.05, lambda: setattr(counter, "value", 2))
        timer.start()
        if name == "aclrtMemcpyBatchAsync":
            copies = batch([(device, ctypes.addressof(data), 8)], to_device=True)
            acl.call(name, *copies, ctypes.byref(ctypes.c_size_t()), stream)
        else:
            acl.call(name, device, 8, data, 8, acl.HOST_TO_DEVICE, stream)
        assert acl.read(device, 8) == b"pageable"
        timer.join()


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
@pytest.mark.parametrize("place", ["pinned", "pageable"])
def test_a_copy_through_the_runtimes_buffer_leaves_the_host_its_memory(acl, tasks, places, counter, place):
    through_buffer = 5
    acl.write(places[place], b"a" * 100)
    with acl.stream() as stream, acl.device_memory(100) as device:
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(counter), 2))
        acl.call("aclrtMemcpyAsync", device, 100, places[place], 100, through_buffer, stream)
        acl.write(places[place], b"b" * 100)
        counter.value = 2
        acl.call("aclrtSynchronizeStream", stream)
        assert acl.read(device, 100) == b"a" * 100


def test_a_copy_to_pageable_memory_is_there_when_it_returns(acl):
    with acl.stream() as stream, acl.device_memory(50) as device:
        acl.call("aclrtMemsetAsync", device, 50, ord("x"), 50, stream)
        pageable = ctypes.create_string_buffer(50)
        acl.call("aclrtMemcpyAsync", ctypes.addressof(pageable), 50, device, 50, acl.DEVICE_TO_HOST, stream)
        assert pageable.raw == b"x" * 50


def test_overlapping_copies_are_as_if_through_a_buffer(acl):
    with acl.device_memory(20) as device:
        acl.write(device, bytes(range(20)))
        acl.call("aclrtMemcpy", device + 3, 17, device, 17, acl.DEVICE_TO_DEVICE)
        assert acl.read(device, 20) == bytes([0, 1, 2]) + bytes(range(17))


def wrong_copies(acl, places):
    device, pinned, pageable = places["device"], places["pinned"], places["pageable"]
    return {
        "count 101 is more than destMax 100": (device, 100, pinned, 101, acl.HOST_TO_DEVICE),
        "dst 0x.* has 412 bytes left": (device + 100, 1000, pageable, 413, acl.HOST_TO_DEVICE),
        "src 0x.* has 512 bytes left": (pageable, 1000, device, 513, acl.DEVICE_TO_HOST),
        "src 0x.* has 90 bytes left": (device, 1000, pinned + 10, 91, acl.HOST_TO_DEVICE),
        "dst 0x.* should be device memory and is host memory": (pageable, 100, pinned, 10, acl.HOST_TO_DEVICE),
        "src 0x.* should be device memory": (device, 100, pageable, 10, acl.DEVICE_TO_DEVICE),
        "dst is null": (0, 100, pinned, 10, acl.HOST_TO_DEVICE),
        "src is null": (device, 100, 0, 10, acl.HOST_TO_DEVICE),
        "kind 99 is unknown": (device, 100, pinned, 10, 99),
    }


LARGE = 33 << 20  # copied in another way than few bytes are
PAGE = 4096


@pytest.mark.parametrize("offset", [1, 64, 700, 1023, 1024, PAGE - 64])
def test_large_copies_arrive_wherever_in_a_page_they_go(acl, offset):
    source = np.arange(LARGE // 4 + PAGE, dtype=np.uint32).view(np.uint8)
    target = np.zeros_like(source)
    with acl.device_memory(source.nbytes) as device:
        acl.call("aclrtMemcpy", device, source.nbytes, source.ctypes.data, source.nbytes, acl.HOST_TO_DEVICE)
        for count in (LARGE, LARGE - 63):
            target[:] = 0
            start = (device - target.ctypes.data) % PAGE + offset
            to = target[start : start + count]
            assert (to.ctypes.data - device) % PAGE == offset % PAGE
            acl.call("aclrtMemcpy", to.ctypes.data, count, device, count, acl.DEVICE_TO_HOST)
            np.testing.assert_array_equal(to, source[:count])
            assert not target[:start].any() and not target[start + count :].any()


@pytest.mark.parametrize("distance", [64, -64, 64 - PAGE])
def test_large_copies_may_overlap(acl, distance):
    source = np.arange(LARGE // 4, dtype=np.uint32).view(np.uint8)
    result = np.empty_like(source)
    with acl.device_memory(LARGE + PAGE) as device:
        begin, end = device + max(-distance, 0), device + max(distance, 0)
        acl.call("aclrtMemcpy", begin, LARGE, source.ctypes.data, LARGE, acl.HOST_TO_DEVICE)
        acl.call("aclrtMemcpy", end, LARGE, begin, LARGE, acl.DEVICE_TO_DEVICE)
        acl.call("aclrtMemcpy", result.ctypes.data, LARGE, end, LARGE, acl.DEVICE_TO_HOST)
    np.testing.assert_array_equal(result, source)


@pytest.mark.unchecked("memory", reason="asks for what is out of bounds")
def test_wrong_copies_are_rejected_and_copy_nothing(acl, places):
    with acl.stream() as stream:
        for message, arguments in wrong_copies(acl, places).items():
            before = acl.read(places["device"], 100)
            with pytest.raises(acl.AclError, match=message):
                acl.call("aclrtMemcpy", *arguments)
            with pytest.raises(acl.AclError, match=message) as failure:
                acl.call("aclrtMemcpyAsync", *arguments, stream)
            assert failure.value.code == acl.INVALID_PARAM
            acl.call("aclrtSynchronizeStream", stream)
            assert acl.read(places["device"], 100) == before


def test_devices_copy_to_each_other_once_one_has_access(acl, places):
    arguments = (places["device"], 100, places["other device"], 100, acl.DEVICE_TO_DEVICE)
    acl.call("aclrtMemcpy", *arguments)
    for device, peer in ((1, 0), (0, 1), (0, 1)):  # either side's access serves; twice is once
        acl.call("aclrtSetDevice", device)
        acl.call("aclrtDeviceDisablePeerAccess", peer)
    with acl.stream() as stream:
        for name, rest in (("aclrtMemcpy", ()), ("aclrtMemcpyAsync", (stream,))):
            with pytest.raises(acl.AclError, match="device 0 and src of device 1, which lack access") as failure:
                acl.call(name, *arguments, *rest)
            assert failure.value.code == acl.RT_PARAM_INVALID
    acl.call("aclrtSetDevice", 1)
    acl.call("aclrtDeviceEnablePeerAccess", 0, 0)
    acl.call("aclrtMemcpy", *arguments)
    acl.call("aclrtDeviceDisablePeerAccess", 0)
    acl.call("aclrtSetDevice", 0)
    with pytest.raises(acl.AclError, match="flags is 1") as failure:
        acl.call("aclrtDeviceEnablePeerAccess", 1, 1)
    assert failure.value.code == acl.FEATURE_UNSUPPORTED


def test_a_synchronous_copy_goes_by_the_addresses_whatever_its_kind(acl, places):
    device, pinned = places["device"], places["pinned"]
    acl.write(pinned, bytes(range(100)))
    with acl.stream() as stream:
        for kind, message in (
            (acl.DEVICE_TO_HOST, "dst 0x.* should be host memory and is device memory"),
            (acl.DEVICE_TO_DEVICE, "src 0x.* should be device memory and is host memory"),
        ):
            acl.write(device, bytes(100))
            acl.call("aclrtMemcpy", device, 100, pinned, 100, kind)
            assert acl.read(device, 100) == bytes(range(100))
            with pytest.raises(acl.AclError, match=message):
                acl.call("aclrtMemcpyAsync", device, 100, pinned, 100, kind, stream)


def test_nothing_is_copied_and_filled_whatever_the_addresses(acl):
    with acl.stream() as stream:
        acl.call("aclrtMemcpy", 0, 0, 0, 0, acl.DEVICE_TO_HOST)
        acl.call("aclrtMemcpyAsync", 0, 0, 0, 0, acl.DEVICE_TO_HOST, stream)
        acl.call("aclrtMemset", 0, 0, 0, 0)
        acl.call("aclrtMemsetAsync", 0, 0, 0, 0, stream)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [0, 1, 255, 256 + 5])
def test_memory_is_filled_with_the_low_byte(acl, places, place, value):
    acl.write(places[place], bytes(range(100)))
    acl.call("aclrtMemset", places[place], 100, value, 50)
    with acl.stream() as stream:
        acl.call("aclrtMemsetAsync", places[place] + 60, 40, value, 10, stream)
        acl.call("aclrtSynchronizeStream", stream)
    fill = bytes([value % 256])
    assert acl.read(places[place], 100) == fill * 50 + bytes(range(50, 60)) + fill * 10 + bytes(range(70, 100))


@pytest.mark.unchecked("memory", reason="asks for what is out of bounds")
def test_fills_beyond_their_bounds_are_rejected(acl, places):
    for arguments, message in [
        ((places["device"], 10, 0, 11), "more than maxCount"),
        ((places["device"], 1000, 0, 513), "bytes left in its allocation"),
        ((places["pinned"] + 1, 1000, 0, 100), "bytes left in its allocation"),
        ((0, 10, 0, 10), "devPtr is null"),
    ]:
        with pytest.raises(acl.AclError, match=message):
            acl.call("aclrtMemset", *arguments)


PREFETCH, WRITEBACK = range(2)


def test_a_prefetch_changes_nothing(acl):
    with acl.device_memory(512) as memory, acl.stream() as stream:
        acl.write(memory, bytes(range(100)))
        acl.call("aclrtCmoAsync", memory + 10, 502, PREFETCH, stream)
        acl.call("aclrtSynchronizeStream", stream)
        assert acl.read(memory, 100) == bytes(range(100))


@pytest.mark.unchecked("memory", reason="asks for what is out of bounds")
def test_bad_prefetches_are_rejected(acl, places):
    with acl.stream() as stream:
        for arguments, message in [
            ((0, 8, PREFETCH), "src is null"),
            ((places["device"], 0, PREFETCH), "size is 0; expected at least 1"),
            ((places["device"], 513, PREFETCH), "512 bytes left in its allocation, 513 are needed"),
            ((places["pinned"], 8, PREFETCH), "should be device memory and is host memory"),
            ((places["device"], 8, WRITEBACK), "cmoType is 1; expected 0, ACL_RT_CMO_TYPE_PREFETCH"),
        ]:
            with pytest.raises(acl.AclError, match=message):
                acl.call("aclrtCmoAsync", *arguments, stream)
        acl.call("aclrtSetDevice", 1)
        with acl.device_memory(512) as other:
            acl.call("aclrtSetDevice", 0)
            with pytest.raises(acl.AclError, match="src is of device 1; expected the current device, 0"):
                acl.call("aclrtCmoAsync", other, 8, PREFETCH, stream)


class BatchAttribute(ctypes.Structure):
    _fields_ = [
        ("dst_id", ctypes.c_uint32),
        ("dst_type", ctypes.c_int),
        ("src_id", ctypes.c_uint32),
        ("src_type", ctypes.c_int),
        ("reserved", ctypes.c_uint8 * 16),
    ]


def batch(copies, to_device):
    """The arguments of aclrtMemcpyBatch for copies (target, source, size), all in one direction."""
    count = len(copies)
    targets, sources, sizes = (list(column) for column in zip(*copies, strict=True))
    attribute = BatchAttribute(dst_type=int(to_device), src_type=int(not to_device))
    return (
        (ctypes.c_void_p * count)(*targets),
        (ctypes.c_size_t * count)(*sizes),
        (ctypes.c_void_p * count)(*sources),
        (ctypes.c_size_t * count)(*sizes),
        count,
        ctypes.byref(attribute),
        (ctypes.c_size_t * 1)(0),
        1,
    )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_batch_copies_all_or_names_the_wrong_one(acl, places, asynchronous):
    device, pinned = places["device"], places["pinned"]
    acl.write(pinned, bytes(range(100)))
    acl.write(device, bytes(100))
    failed = ctypes.c_size_t(12345)
    with acl.stream() as stream:
        name, rest = ("aclrtMemcpyBatchAsync", [stream]) if asynchronous else ("aclrtMemcpyBatch", [])
        copies = [(device, pinned, 10), (device + 50, pinned + 20, 5), (device + 99, pinned + 7, 1)]
        acl.call(name, *batch(copies, to_device=True), ctypes.byref(failed), *rest)
        acl.call("aclrtSynchronizeStream", stream)
        expected = bytes(range(10)) + bytes(40) + bytes(range(20, 25)) + bytes(44) + b"\7"
        assert acl.read(device, 100) == expected

        with pytest.raises(acl.AclError, match="bytes left in its allocation"):
            wrong = [(device, pinned + 90, 10), (device, pinned + 90, 11)]
            acl.call(name, *batch(wrong, to_device=True), ctypes.byref(failed), *rest)
        assert failed.value == 1
        acl.call("aclrtSynchronizeStream", stream)
        assert acl.read(device, 100) == expected


@pytest.mark.parametrize(
    ("indexes", "attributes", "message", "failed"),
    [
        ([1], ["to device"], r"attrsIndexes\[0\] is 1", None),
        ([0, 0], ["to device"] * 2, r"attrsIndexes\[1\] is 0", None),
        ([0, 2], ["to device"] * 2, r"attrsIndexes\[1\] is 2", None),
        ([0, 1], ["to device", "to host"], "a batch copies in one direction, and copy 1 in another", 1),
        ([0], ["on the device"], "a batch copies from the host", 0),
        ([0, 1], ["to device", "to the other"], r"attrs\[1\] has another device than the memory of copy 1", 1),
    ],
)
def test_the_attributes_of_a_batch_are_checked(acl, places, indexes, attributes, message, failed):
    kinds = {
        "to device": BatchAttribute(dst_type=1, src_type=0),
        "to host": BatchAttribute(dst_type=0, src_type=1),
        "on the device": BatchAttribute(dst_type=1, src_type=1),
        "to the other": BatchAttribute(dst_type=1, dst_id=1, src_type=0),
    }
    copies = [(places["device"], places["pinned"], 1), (places["device"] + 1, places["pinned"] + 1, 1)]
    arguments = batch(copies, to_device=True)[:5]
    attrs = (BatchAttribute * len(attributes))(*(kinds[name] for name in attributes))
    index = ctypes.c_size_t(12345)
    count = len(indexes)
    with pytest.raises(acl.AclError, match=message) as failure:
        acl.call("aclrtMemcpyBatch", *arguments, attrs, (ctypes.c_size_t * count)(*indexes), count, ctypes.byref(index))
    assert failure.value.code == acl.RT_PARAM_INVALID
    assert index.value == (2**64 - 1 if failed is None else failed)
    with pytest.raises(acl.AclError, match="failIndex is null"):
        acl.call("aclrtMemcpyBatch", *arguments, attrs, (ctypes.c_size_t * count)(*indexes), count, None)
