# SPDX-License-Identifier: Apache-2.0
"""Streams: order within one, overlap of two, failures reported once, waiting with and without an end."""

import ctypes
import resource
import threading

import pytest


def test_tasks_run_in_order_on_a_thread_that_is_not_the_callers(acl, tasks):
    value = ctypes.c_int64(0)
    expected = 0
    with acl.stream() as stream:
        for i in range(2000):
            factor, summand = (i % 3) - 1 or 2, i
            acl.check(acl.status(tasks.launch_affine, stream, ctypes.byref(value), factor, summand))
            expected = ctypes.c_int64(expected * factor + summand).value
        acl.call("aclrtSynchronizeStream", stream)
        assert value.value == expected
        assert not acl.status(tasks.is_this_thread, stream, ctypes.byref(value))


@pytest.mark.unchecked("schedule", reason="tasks wait for each other")
@pytest.mark.parametrize("devices", [(0, 0), (0, 1)], ids=["one device", "two devices"])
def test_streams_overlap(acl, tasks, counter, devices):
    """Each task returns only when the other has begun."""
    streams = []
    for device in devices:
        acl.call("aclrtSetDevice", device)
        streams.append(acl.make("aclrtCreateStream"))
    for stream in streams:
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(counter), 2))
    for stream in streams:
        acl.call("aclrtSynchronizeStream", stream)
        acl.call("aclrtDestroyStream", stream)


@pytest.mark.unchecked("schedule", reason="the host takes turns with each task")
def test_a_thread_that_waits_is_not_woken_by_tasks_before_the_one_that_it_waits_for(acl):
    size, tasks = 1 << 20, 200
    with acl.stream() as stream, acl.device_memory(2 * size) as memory:
        for _ in range(tasks):
            acl.call("aclrtMemcpyAsync", memory, size, memory + size, size, acl.DEVICE_TO_DEVICE, stream)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        acl.call("aclrtSynchronizeStream", stream)
        assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < tasks / 10


def test_the_null_stream_is_the_contexts_default_stream(acl, tasks, counter):
    acl.check(acl.status(tasks.launch_increment, None, ctypes.byref(counter)))
    acl.call("aclrtSynchronizeStream", None)
    assert counter.value == 1


@pytest.mark.parametrize("device", [0, 1])
def test_a_task_works_in_its_streams_context(acl, tasks, counter, device):
    acl.call("aclrtSetDevice", device)
    with acl.stream() as stream:
        acl.call("aclrtSetDevice", 1 - device)
        acl.check(acl.status(tasks.launch_current_device, stream, ctypes.byref(counter)))
        acl.call("aclrtSynchronizeStream", stream)
    assert counter.value == device


def test_a_failure_is_reported_once_with_task_and_message_and_the_rest_still_runs(acl, tasks, counter):
    with acl.stream() as stream:
        acl.check(acl.status(tasks.launch_failing, stream, b"BadKernel", 561000, b"block number 9 is out of range"))
        acl.check(acl.status(tasks.launch_failing, stream, b"WorseKernel", 561001, b"a second failure"))
        acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
        with pytest.raises(acl.AclError) as failure:
            acl.call("aclrtSynchronizeStream", stream)
        assert failure.value.code == 561000
        assert "BadKernel on stream" in failure.value.message
        assert "block number 9 is out of range" in failure.value.message
        assert counter.value == 1
        acl.call("aclrtSynchronizeStream", stream)
        acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
        acl.call("aclrtSynchronizeStream", stream)
        assert counter.value == 2


def test_a_copy_right_after_a_failed_synchronisation_repeats_an_unread_message(acl, tasks):
    """torch_npu's copies to the host drop the message of the synchronisation before them."""
    synchronise, copy = acl.library.aclrtSynchronizeStream, acl.library.aclrtMemcpy
    with acl.stream() as stream, acl.pinned_memory(8) as host:
        arguments = (host, 8, host, 8, acl.HOST_TO_HOST)
        for reads_message in (False, True):
            acl.check(acl.status(tasks.launch_failing, stream, b"Bad", 7, b"what went wrong"))
            assert acl.status(synchronise, stream) == 7
            if reads_message:
                assert b"what went wrong" in acl.library.aclGetRecentErrMsg()
            else:
                with pytest.raises(acl.AclError, match=r"aclrtMemcpy: Bad on stream .* what went wrong") as failure:
                    acl.check(acl.status(copy, *arguments))
                assert failure.value.code == 7
            acl.check(acl.status(copy, *arguments))


def test_a_failure_is_reported_to_whichever_thread_synchronises(acl, tasks):
    seen = []

    def synchronise(stream):
        acl.call("aclrtSetDevice", 0)
        try:
            acl.call("aclrtSynchronizeStream", stream)
        except acl.AclError as failure:
            seen.append(failure.message)

    with acl.stream() as stream:
        acl.check(acl.status(tasks.launch_failing, stream, b"Bad", 7, b"told elsewhere"))
        thread = threading.Thread(target=synchronise, args=[stream])
        thread.start()
        thread.join()
        acl.call("aclrtSynchronizeStream", stream)
    assert len(seen) == 1 and "told elsewhere" in seen[0]


def test_synchronising_the_device_reports_the_failures_of_all_streams(acl, tasks):
    with acl.stream() as first, acl.stream() as second:
        acl.check(acl.status(tasks.launch_failing, first, b"One", 7, b"failure one"))
        acl.check(acl.status(tasks.launch_failing, second, b"Two", 7, b"failure two"))
        with pytest.raises(acl.AclError, match=r"(?s)failure one.*failure two|failure two.*failure one"):
            acl.call("aclrtSynchronizeDevice")
        acl.call("aclrtSynchronizeDevice")
        acl.call("aclrtSynchronizeStream", first)


def test_synchronising_an_event_reports_a_failure_before_it_and_none_behind(acl, tasks):
    with acl.stream() as stream, acl.event() as before, acl.event() as behind:
        acl.call("aclrtRecordEvent", before, stream)
        acl.check(acl.status(tasks.launch_failing, stream, b"Bad", 7, b"between the events"))
        acl.call("aclrtRecordEvent", behind, stream)
        acl.call("aclrtSynchronizeEvent", before)
        with pytest.raises(acl.AclError, match="between the events"):
            acl.call("aclrtSynchronizeEvent", behind)
        acl.call("aclrtSynchronizeStream", stream)


def test_an_exception_in_a_task_is_a_failure_with_its_text(acl, tasks):
    with acl.stream() as stream:
        acl.check(acl.status(tasks.launch_throwing, stream, b"thrown text"))
        with pytest.raises(acl.AclError, match=r"Throwing on stream .* failed: thrown text"):
            acl.call("aclrtSynchronizeStream", stream)


def test_a_failure_without_a_message_says_its_code(acl, tasks):
    with acl.stream() as stream:
        acl.check(acl.status(tasks.launch_failing, stream, b"Mute", 4711, b""))
        with pytest.raises(acl.AclError, match=r"Mute .* returned 4711 and left no message"):
            acl.call("aclrtSynchronizeStream", stream)


def test_an_empty_task_is_rejected(acl, tasks):
    with acl.stream() as stream, pytest.raises(acl.AclError, match="Empty: the task is empty"):
        acl.check(acl.status(tasks.launch_empty, stream))


def test_inside_a_task_launches_to_its_own_stream_run_in_place(acl, tasks, counter):
    found = ctypes.c_int64(-1)
    with acl.stream() as stream:
        acl.check(acl.status(tasks.launch_nested, stream, stream, ctypes.byref(counter), ctypes.byref(found)))
        acl.call("aclrtSynchronizeStream", stream)
    assert found.value == 1


def test_inside_a_task_another_stream_can_be_used_and_awaited(acl, tasks, counter):
    found = ctypes.c_int64(-1)
    with acl.stream() as outer, acl.stream() as inner:
        acl.check(acl.status(tasks.launch_nested, outer, inner, ctypes.byref(counter), ctypes.byref(found)))
        acl.call("aclrtSynchronizeStream", outer)
    assert found.value == 1


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_query_and_timeouts_tell_work_from_rest(acl, tasks, counter):
    with acl.stream() as stream:
        assert acl.get("aclrtStreamQuery", ctypes.c_int, stream) == 0
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(counter), 2))
        assert acl.get("aclrtStreamQuery", ctypes.c_int, stream) == 1
        with pytest.raises(acl.AclError, match="still working after 20 ms") as failure:
            acl.call("aclrtSynchronizeStreamWithTimeout", stream, 20)
        assert failure.value.code == acl.RT_STREAM_SYNC_TIMEOUT
        with pytest.raises(acl.AclError) as failure:
            acl.call("aclrtSynchronizeDeviceWithTimeout", 20)
        assert failure.value.code == acl.RT_STREAM_SYNC_TIMEOUT
        counter.value = 2
        acl.call("aclrtSynchronizeStreamWithTimeout", stream, 10_000)
        assert acl.get("aclrtStreamQuery", ctypes.c_int, stream) == 0


def test_destroying_a_stream_waits_for_its_tasks(acl, tasks, counter):
    stream = acl.make("aclrtCreateStream")
    for _ in range(100):
        acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
    acl.call("aclrtDestroyStream", stream)
    assert counter.value == 100


def test_destroying_by_force_drops_what_waits_and_frees_those_who_wait_for_it(acl, tasks, counter):
    with acl.stream() as other, acl.event() as never, acl.event() as dropped, acl.device_memory(8) as value:
        acl.call("aclrtMemset", value, 8, 0, 8)
        stream = acl.make("aclrtCreateStream")
        acl.call("aclrtValueWait", value, 1, 1, stream)
        acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
        acl.call("aclrtRecordEvent", dropped, stream)
        acl.call("aclrtStreamWaitEvent", other, dropped)
        acl.call("aclrtDestroyStreamForce", stream)
        acl.call("aclrtSynchronizeStream", other)
        assert counter.value == 0
        with pytest.raises(acl.AclError, match="destroyed before it was reached"):
            acl.call("aclrtEventElapsedTime", ctypes.byref(ctypes.c_float()), dropped, dropped)
        acl.call("aclrtSynchronizeEvent", never)


def test_a_dead_or_foreign_handle_is_rejected_by_name(acl, tasks, counter):
    stream = acl.make("aclrtCreateStream")
    acl.call("aclrtDestroyStream", stream)
    for handle in (stream, 0xDEAD0):
        with pytest.raises(acl.AclError, match="is no living stream") as failure:
            acl.call("aclrtSynchronizeStream", handle)
        assert failure.value.code == acl.RT_INVALID_HANDLE
        with pytest.raises(acl.AclError, match=r"Increment: .* is no living stream"):
            acl.check(acl.status(tasks.launch_increment, handle, ctypes.byref(counter)))


def test_ids_differ_and_settings_are_kept(acl):
    with acl.stream() as first, acl.stream() as second:
        ids = {acl.get("aclrtStreamGetId", ctypes.c_int32, stream) for stream in (first, second)}
        assert len(ids) == 2
        acl.call("aclrtSetStreamOverflowSwitch", first, 1)
        assert acl.get("aclrtGetStreamOverflowSwitch", ctypes.c_uint32, first) == 1
        assert acl.get("aclrtGetStreamOverflowSwitch", ctypes.c_uint32, second) == 0
        value = ctypes.c_uint64(1)
        acl.call("aclrtSetStreamAttribute", first, 4, ctypes.byref(value))
        assert acl.get("aclrtGetStreamAttribute", ctypes.c_uint32, first, 4) == 1
        with pytest.raises(acl.AclError, match="mode is 7"):
            acl.call("aclrtSetStreamFailureMode", first, 7)


@pytest.mark.parametrize(
    "flag, value, written, goes_on",
    [(0, 5, 4, False), (0, 5, 5, True), (0, 5, 6, True), (1, 5, 6, False), (1, 5, 5, True),
     (2, 6, 8, False), (2, 6, 2, True), (3, 2**64 - 2, 1, False), (3, 2**64 - 2, 0, True)],
)  # fmt: skip
def test_a_stream_waits_for_a_value_that_another_writes(acl, flag, value, written, goes_on):
    with acl.device_memory(8) as address, acl.stream() as waiting, acl.stream() as writing:
        start = {0: 0, 1: 0, 2: 0, 3: 2**64 - 1}[flag]
        acl.write(address, start.to_bytes(8, "little"))
        acl.call("aclrtValueWait", address, ctypes.c_uint64(value), flag, waiting)
        acl.call("aclrtValueWrite", address, ctypes.c_uint64(written), 0, writing)
        acl.call("aclrtSynchronizeStream", writing)
        if goes_on:
            acl.call("aclrtSynchronizeStream", waiting)
        else:
            with pytest.raises(acl.AclError):
                acl.call("aclrtSynchronizeStreamWithTimeout", waiting, 30)


def test_values_must_be_aligned_device_memory(acl):
    with acl.stream() as stream, acl.device_memory(16) as address, acl.pinned_memory(16) as pinned:
        for wrong in (address + 4, pinned, 0):
            with pytest.raises(acl.AclError, match="devAddr"):
                acl.call("aclrtValueWrite", wrong, 1, 0, stream)


def test_threads_share_streams_without_losing_a_task(acl, tasks):
    """Two threads use two streams each, and one they share, with events between them."""
    rounds = 300
    with acl.stream() as shared:
        shared_count = ctypes.c_int64(0)
        failures = []

        def work():
            try:
                acl.call("aclrtSetDevice", 0)
                own_count = ctypes.c_int64(0)
                with acl.stream() as first, acl.stream() as second, acl.event() as event:
                    for _ in range(rounds):
                        acl.check(acl.status(tasks.launch_increment, first, ctypes.byref(own_count)))
                        acl.call("aclrtRecordEvent", event, first)
                        acl.call("aclrtStreamWaitEvent", second, event)
                        acl.check(acl.status(tasks.launch_increment, second, ctypes.byref(own_count)))
                        acl.call("aclrtRecordEvent", event, second)
                        acl.call("aclrtStreamWaitEvent", first, event)
                        acl.check(acl.status(tasks.launch_increment, shared, ctypes.byref(shared_count)))
                    acl.call("aclrtSynchronizeStream", first)
                    acl.call("aclrtSynchronizeStream", second)
                assert own_count.value == 2 * rounds
            except Exception as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        acl.call("aclrtSynchronizeStream", shared)
    assert not failures
    assert shared_count.value == 2 * rounds
