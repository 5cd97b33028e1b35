# SPDX-License-Identifier: Apache-2.0
"""Copies and fills of every kind, their bounds, and when pageable memory may be used again."""

import ctypes

import numpy as np
import pytest

KINDS = {"host to host": 0, "host to device": 1, "device to host": 2, "device to device": 3}


@pytest.fixture
def places(acl):
    """A buffer of 100 bytes in every place a copy can start from or end in."""
    acl.call("aclrtSetDevice", 1)
    other = acl.make("aclrtMallocAlign32", 100, 0)
    acl.call("aclrtSetDevice", 0)
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


@pytest.mark.parametrize("source, target", CASES)
@pytest.mark.parametrize("name", ["aclrtMemcpyAsync", "aclrtMemcpyAsyncWithCondition"])
def test_asynchronous_copies_arrive(acl, places, source, target, name):
    data = bytes(range(100, 200))
    acl.write(places[source], data)
    acl.write(places[target], bytes(100))
    with acl.stream() as stream:
        acl.call(name, places[target], 100, places[source], 99, kind_of(source, target), stream)
        acl.call("aclrtSynchronizeStream", stream)
    assert acl.read(places[target], 100) == data[:99] + b"\0"


@pytest.mark.parametrize("size", [1000, 200_000])
def test_pageable_memory_may_change_as_soon_as_the_copy_returns(acl, tasks, size):
    """Small copies are staged, big ones waited for: neither may depend on what the host does next."""
    with acl.stream() as stream, acl.device_memory(size) as device:
        pageable = ctypes.create_string_buffer(b"a" * size, size)
        acl.call("aclrtMemcpyAsync", device, size, ctypes.addressof(pageable), size, acl.HOST_TO_DEVICE, stream)
        ctypes.memset(pageable, ord("b"), size)
        acl.call("aclrtSynchronizeStream", stream)
        assert acl.read(device, size) == b"a" * size


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_a_small_copy_from_pageable_memory_does_not_wait_for_the_stream(acl, tasks, counter):
    with acl.stream() as stream, acl.device_memory(8) as device:
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(counter), 2))
        acl.call("aclrtMemcpyAsync", device, 8, b"pageable", 8, acl.HOST_TO_DEVICE, stream)
        counter.value = 2
        acl.call("aclrtSynchronizeStream", stream)
        assert acl.read(device, 8) == b"pageable"


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
        "dst 0x.* should be device memory and is host memory": (pinned, 100, pageable, 10, acl.HOST_TO_DEVICE),
        "dst 0x.* should be host memory and is device memory": (device, 100, device, 10, acl.DEVICE_TO_HOST),
        "src 0x.* should be device memory": (device, 100, pageable, 10, acl.DEVICE_TO_DEVICE),
        "src 0x.* should be host memory": (device, 100, device, 10, acl.HOST_TO_DEVICE),
        "dst is null": (0, 100, pinned, 10, acl.HOST_TO_DEVICE),
        "src is null": (device, 100, 0, 10, acl.HOST_TO_DEVICE),
        "kind 99 is unknown": (device, 100, pinned, 10, 99),
    }


LARGE = 33 << 20  # copied in another way than few bytes are
PAGE = 4096


@pytest.mark.parametrize("behind", [1, 64, 700, 1023, 1024, PAGE - 64])
def test_large_copies_arrive_wherever_in_a_page_they_go(acl, behind):
    source = np.arange(LARGE // 4 + PAGE, dtype=np.uint32).view(np.uint8)
    target = np.zeros_like(source)
    with acl.device_memory(source.nbytes) as device:
        acl.call("aclrtMemcpy", device, source.nbytes, source.ctypes.data, source.nbytes, acl.HOST_TO_DEVICE)
        for count in (LARGE, LARGE - 63):
            target[:] = 0
            start = (device - target.ctypes.data) % PAGE + behind
            to = target[start : start + count]
            assert (to.ctypes.data - device) % PAGE == behind % PAGE
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
