# SPDX-License-Identifier: Apache-2.0
"""What goes away while a kernel is at work: streams, memory, and who waits for them."""

import ctypes
import threading
import time
from contextlib import contextmanager

import pytest

SHORT = 0.2  # seconds in which a call that does not wait would have returned

pytestmark = pytest.mark.unchecked("schedule", reason="a task waits for the host")


@contextmanager
def working(acl, tasks, stream, arrived=None):
    """A kernel in the stream that goes on until the block is left, or ten seconds."""
    arrived = arrived or ctypes.c_int64(0)
    acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(arrived), 2))
    while arrived.value == 0:
        time.sleep(0.001)
    try:
        yield
    finally:
        arrived.value = 2


class Call(threading.Thread):
    """A call of ACL in a separate thread."""

    def __init__(self, acl, name, *arguments):
        super().__init__()
        self.acl, self.name, self.arguments, self.failure = acl, name, arguments, None
        self.start()

    def run(self):
        self.acl.call("aclrtSetDevice", 0)
        try:
            self.acl.call(self.name, *self.arguments)
        except self.acl.AclError as failure:
            self.failure = failure

    def is_waiting(self):
        self.join(SHORT)
        return self.is_alive()

    def end(self):
        self.join(10)
        assert not self.is_alive()
        return self.failure


def wait_until_destroyed(acl, stream):
    while acl.status(acl.library.aclrtStreamGetId, stream, ctypes.byref(ctypes.c_int32())) == 0:
        time.sleep(0.001)


KINDS = {
    "device": ("aclrtMallocAlign32", "aclrtFree", "aclrtFreeWithDevSync"),
    "pinned": ("aclrtMallocHost", "aclrtFreeHost", "aclrtFreeHostWithDevSync"),
}
SIZE = 512 << 20  # more than malloc keeps free, hence a separate mapping, which free() unmaps


def is_mapped(address):
    process = ctypes.CDLL(None)
    if hasattr(process, "__asan_address_is_poisoned"):  # AddressSanitizer keeps freed memory mapped for a while
        return not process.__asan_address_is_poisoned(ctypes.c_void_p(address))
    with open("/proc/self/maps") as maps:
        ranges = [line.split(" ")[0].split("-") for line in maps]
    return any(int(first, 16) <= address < int(last, 16) for first, last in ranges)


@pytest.mark.unchecked("memory", reason="there freed memory is inaccessible")
@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_free_waits_for_nothing_and_leaves_the_memory_to_what_was_launched_before(acl, tasks, device, kind):
    make, free, _ = KINDS[kind]
    memory = acl.make(make, SIZE, 0)
    acl.call("aclrtSetDevice", device)
    with acl.stream() as stream:
        with working(acl, tasks, stream):
            acl.check(acl.status(tasks.launch_increment, stream, memory))
            before = acl.memory_info()[0]
            call = Call(acl, free, memory)
            assert call.end() is None
            assert acl.memory_info()[0] - before == (SIZE if (kind, device) == ("device", 0) else 0)
            with pytest.raises(acl.AclError, match="was given back already"):
                acl.call(free, memory)
            assert is_mapped(memory)
        acl.call("aclrtSynchronizeStream", stream)
        assert not is_mapped(memory)
    acl.call("aclrtSetDevice", 0)


@pytest.mark.unchecked("memory", reason="there freed memory is inaccessible")
@pytest.mark.parametrize("destroy", ["aclrtDestroyStream", "aclrtDestroyStreamForce"])
def test_a_free_leaves_the_memory_to_a_stream_that_is_being_destroyed(acl, tasks, destroy):
    memory, stream = acl.make("aclrtMallocAlign32", SIZE, 0), acl.make("aclrtCreateStream")
    with working(acl, tasks, stream):
        acl.check(acl.status(tasks.launch_increment, stream, memory))
        destroying = Call(acl, destroy, stream)
        wait_until_destroyed(acl, stream)
        assert Call(acl, "aclrtFree", memory).end() is None
        assert is_mapped(memory)
    assert destroying.end() is None
    assert not is_mapped(memory)


@pytest.mark.parametrize("kind", KINDS)
def test_a_free_with_a_device_synchronisation_waits_and_returns_a_failure_before_it_frees(acl, tasks, kind):
    make, _, free = KINDS[kind]
    memory = acl.make(make, 64, 0)
    with acl.stream() as stream:
        with working(acl, tasks, stream):
            call = Call(acl, free, memory)
            assert call.is_waiting()
        assert call.end() is None
        with pytest.raises(acl.AclError, match="was given back already"):
            acl.call(free, memory)
        memory = acl.make(make, 64, 0)
        acl.check(acl.status(tasks.launch_failing, stream, b"Failing", 5, b"on purpose"))
        with pytest.raises(acl.AclError, match="on purpose"):
            acl.call(free, memory)
        acl.call(free, memory)
    with pytest.raises(acl.AclError, match="is null"):
        acl.call(free, None)


def test_host_memory_is_unregistered_while_streams_work(acl, tasks):
    buffer = ctypes.create_string_buffer(2 * 4096)
    page = (ctypes.addressof(buffer) + 4095) // 4096 * 4096
    acl.call("aclrtHostRegisterV2", page, 4096, 2)
    with acl.stream() as stream, working(acl, tasks, stream):
        assert Call(acl, "aclrtHostUnregister", page).end() is None


def test_who_waits_for_a_stream_hears_of_its_destruction_when_the_running_task_has_ended(acl, tasks, counter):
    stream = acl.make("aclrtCreateStream")
    with working(acl, tasks, stream):
        early = Call(acl, "aclrtSynchronizeStream", stream)
        assert early.is_waiting()
        for _ in range(3):
            acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
        late = Call(acl, "aclrtSynchronizeStream", stream)
        assert late.is_waiting()
        destroying = Call(acl, "aclrtDestroyStreamForce", stream)
        assert early.is_waiting() and late.is_waiting()
    assert destroying.end() is None and early.end() is None
    assert "3 tasks on stream" in late.end().message and counter.value == 0


def test_who_waits_for_a_stream_whose_task_never_ends_hears_of_its_destruction(acl, tasks, counter):
    """Five seconds of patience with the running task."""
    arrived, stream = ctypes.c_int64(0), acl.make("aclrtCreateStream")
    with acl.event() as event, acl.stream() as other, working(acl, tasks, stream, arrived):
        acl.call("aclrtRecordEvent", event, stream)
        acl.call("aclrtStreamWaitEvent", other, event)
        acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
        waiting = [
            Call(acl, "aclrtSynchronizeEvent", event),
            Call(acl, "aclrtSynchronizeStream", other),
            Call(acl, "aclrtSynchronizeStream", stream),
        ]
        assert all(call.is_waiting() for call in waiting)
        acl.call("aclrtDestroyStreamForce", stream)
        assert not any(call.is_waiting() for call in waiting)
    time.sleep(SHORT)  # the worker leaves
    failures = [call.end() for call in waiting]
    assert failures[:2] == [None, None] and counter.value == 0
    assert "was destroyed, and the task that it ran did not end in time" in failures[2].message


def test_the_end_of_a_stream_ends_its_subscription(acl):
    stream = acl.make("aclrtCreateStream")
    acl.call("aclrtSubscribeReport", threading.get_ident(), stream)
    acl.call("aclrtDestroyStream", stream)
    with pytest.raises(acl.AclError, match="subscribed to no stream"):
        acl.call("aclrtProcessReport", 1)
