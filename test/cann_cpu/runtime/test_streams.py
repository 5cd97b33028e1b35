# SPDX-License-Identifier: Apache-2.0
"""Streams: order within one, overlap of two, failures reported once, waiting with and without an end."""

import ctypes
import resource
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

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
    streams = [acl.make_stream_on(device) for device in devices]
    for stream in streams:
        acl.use(stream)
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(counter), 2))
    for stream in streams:
        acl.use(stream)
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
        acl.check(acl.status(tasks.launch_current_device, stream, ctypes.byref(counter)))
        acl.call("aclrtSetDevice", 1 - device)
        acl.call("aclrtSynchronizeStream", stream)
        acl.call("aclrtSetDevice", device)
    assert counter.value == device


def test_a_failure_is_reported_once_with_task_and_message_and_the_rest_still_runs(acl, tasks, counter, context):
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


STOP_ON_FAILURE = 1


def increment(acl, tasks, stream, counter):
    acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))


def fail(acl, tasks, stream):
    acl.check(acl.status(tasks.launch_failing, stream, b"BadKernel", 561000, b"block 3 is out of range"))


@pytest.mark.parametrize("by_attribute", [False, True])
def test_behind_a_failed_task_nothing_runs_until_the_failure_is_known(acl, tasks, counter, context, by_attribute):
    with acl.stream() as stream:
        mode = ctypes.c_uint64(STOP_ON_FAILURE)
        if by_attribute:
            acl.call("aclrtSetStreamAttribute", stream, 1, ctypes.byref(mode))
        else:
            acl.call("aclrtSetStreamFailureMode", stream, STOP_ON_FAILURE)
        for total in (1, 2):  # a stream is usable again after the synchronisation that reported the failure
            fail(acl, tasks, stream)
            increment(acl, tasks, stream, counter)
            with pytest.raises(acl.AclError, match=r"^561000: .*BadKernel on stream .*block 3 is out of range"):
                acl.call("aclrtSynchronizeStream", stream)
            assert counter.value == total - 1
            increment(acl, tasks, stream, counter)
            acl.call("aclrtSynchronizeStream", stream)
            assert counter.value == total


def test_a_failure_stops_the_other_streams_of_the_context(acl, tasks, counter, context):
    with acl.stream() as failing, acl.stream() as other, acl.device_memory(8) as value:
        acl.call("aclrtSetStreamFailureMode", failing, STOP_ON_FAILURE)
        acl.write(value, bytes(8))
        acl.call("aclrtValueWait", value, ctypes.c_uint64(1), 1, other)  # for what the failure keeps from being written
        increment(acl, tasks, other, counter)
        fail(acl, tasks, failing)
        acl.call("aclrtValueWrite", value, ctypes.c_uint64(1), 0, failing)
        for stream, task in ((other, "aclrtValueWait"), (failing, "BadKernel")):
            with pytest.raises(acl.AclError, match=rf"{task} on stream .*block 3 is out of range"):
                acl.call("aclrtSynchronizeStream", stream)
        assert counter.value == 0
        increment(acl, tasks, other, counter)
        acl.call("aclrtSynchronizeStream", other)
        assert counter.value == 1


def test_an_event_behind_a_failure_is_reached_and_hands_it_on(acl, tasks, counter, context):
    with acl.stream() as stream, acl.event() as event:
        acl.call("aclrtSetStreamFailureMode", stream, STOP_ON_FAILURE)
        fail(acl, tasks, stream)
        acl.call("aclrtRecordEvent", event, stream)
        with pytest.raises(acl.AclError, match="block 3 is out of range"):
            acl.call("aclrtSynchronizeEvent", event)


def test_a_wrong_failure_mode_is_rejected(acl, context):
    with acl.stream() as stream:
        mode = ctypes.c_uint64(77)
        with pytest.raises(acl.AclError, match="mode is 77; expected 0 or 1"):
            acl.call("aclrtSetStreamAttribute", stream, 1, ctypes.byref(mode))
        acl.call("aclrtSetStreamFailureMode", stream, STOP_ON_FAILURE)
        with pytest.raises(acl.AclError, match="stops on a failure, which cannot be taken back") as failure:
            acl.call("aclrtSetStreamFailureMode", stream, 0)
        assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT


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
        acl.check(acl.status(tasks.launch_failing, stream, b"Bad", 7, b"reported elsewhere"))
        thread = threading.Thread(target=synchronise, args=[stream])
        thread.start()
        thread.join()
        acl.call("aclrtSynchronizeStream", stream)
    assert len(seen) == 1 and "reported elsewhere" in seen[0]


def test_synchronising_the_device_reports_the_failures_of_all_streams(acl, tasks, context):
    with acl.stream() as first, acl.stream() as second:
        acl.check(acl.status(tasks.launch_failing, first, b"One", 7, b"failure one"))
        acl.check(acl.status(tasks.launch_failing, second, b"Two", 7, b"failure two"))
        with pytest.raises(acl.AclError, match=r"(?s)failure one.*failure two|failure two.*failure one"):
            acl.call("aclrtSynchronizeDevice")
        acl.call("aclrtSynchronizeDevice")
        acl.call("aclrtSynchronizeStream", first)


def test_synchronising_an_event_reports_a_failure_before_it_and_none_behind(acl, tasks):
    with acl.stream() as stream, acl.event() as before, acl.event() as after:
        acl.call("aclrtRecordEvent", before, stream)
        acl.check(acl.status(tasks.launch_failing, stream, b"Bad", 7, b"between the events"))
        acl.call("aclrtRecordEvent", after, stream)
        acl.call("aclrtSynchronizeEvent", before)
        with pytest.raises(acl.AclError, match="between the events"):
            acl.call("aclrtSynchronizeEvent", after)
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


def test_what_is_no_time_and_no_switch_is_rejected(acl):
    with acl.stream() as stream, acl.event() as event:
        for name, arguments in (
            ("aclrtSynchronizeStreamWithTimeout", (stream,)),
            ("aclrtSynchronizeEventWithTimeout", (event,)),
            ("aclrtSynchronizeDeviceWithTimeout", ()),
        ):
            for timeout in (0, -2):
                with pytest.raises(acl.AclError, match=f"timeout is {timeout}; expected milliseconds") as failure:
                    acl.call(name, *arguments, timeout)
                assert failure.value.code == acl.RT_PARAM_INVALID
        with pytest.raises(acl.AclError, match="flag is 7; expected 0 or 1"):
            acl.call("aclrtSetStreamOverflowSwitch", stream, 7)


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
        with pytest.raises(acl.AclError, match="is not a valid stream") as failure:
            acl.call("aclrtSynchronizeStream", handle)
        assert failure.value.code == acl.RT_INVALID_HANDLE
        with pytest.raises(acl.AclError, match=r"Increment: .* is not a valid stream"):
            acl.check(acl.status(tasks.launch_increment, handle, ctypes.byref(counter)))


CREATED, TO_BE_DESTROYED = 1, 2
StreamState = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


@contextmanager
def states_of_streams(acl, name, use=lambda stream, state: None):
    """What a callback of this name sees of streams."""
    seen = []

    @StreamState
    def callback(stream, state, arguments):
        seen.append((stream, state, arguments))
        use(stream, state)

    acl.call("aclrtRegStreamStateCallback", name, callback, 7)
    try:
        yield seen
    finally:
        acl.call("aclrtRegStreamStateCallback", name, None, None)


def test_callbacks_are_told_of_streams_until_they_are_taken_away(acl):
    with states_of_streams(acl, b"first") as first, states_of_streams(acl, b"second") as second:
        stream = acl.make("aclrtCreateStream")
        assert first == second == [(stream, CREATED, 7)]
        acl.call("aclrtDestroyStream", stream)
        with acl.stream() as other:
            pass
        ended = [(stream, CREATED, 7), (stream, TO_BE_DESTROYED, 7), (other, CREATED, 7), (other, TO_BE_DESTROYED, 7)]
        assert first == second == ended
        with pytest.raises(acl.AclError, match="regName first has a callback already"):
            acl.call("aclrtRegStreamStateCallback", b"first", StreamState(lambda *_: None), None)
        with pytest.raises(acl.AclError, match="regName is null"):
            acl.call("aclrtRegStreamStateCallback", None, StreamState(lambda *_: None), None)
    with acl.stream():
        assert first == second == ended


def test_a_callback_destroys_what_belongs_to_the_stream(acl):
    """The stream is still alive when it is called."""
    beside = {}

    def use(stream, state):
        acl.get("aclrtStreamGetId", ctypes.c_int32, stream)
        if state == TO_BE_DESTROYED and stream in beside:
            acl.call("aclrtDestroyStream", beside.pop(stream))

    with states_of_streams(acl, b"beside", use) as seen:
        stream, other = acl.make("aclrtCreateStream"), acl.make("aclrtCreateStream")
        beside[stream] = other
        acl.call("aclrtDestroyStream", stream)
    assert [each[:2] for each in seen[2:]] == [(stream, TO_BE_DESTROYED), (other, TO_BE_DESTROYED)]
    with pytest.raises(acl.AclError, match="is not a valid stream"):
        acl.call("aclrtSynchronizeStream", other)


def test_a_context_has_a_default_stream_which_comes_with_its_first_use_and_goes_with_it(acl):
    before = acl.get("aclrtGetCurrentContext", ctypes.c_void_p)
    default = acl.make("aclrtCtxGetCurrentDefaultStream")
    with states_of_streams(acl, b"default") as seen:
        context = acl.make("aclrtCreateContext", 0)
        assert seen == []
        stream = acl.make("aclrtCtxGetCurrentDefaultStream")
        assert stream == acl.make("aclrtCtxGetCurrentDefaultStream") != default
        assert seen == [(stream, CREATED, 7)]
        ids = [acl.get("aclrtStreamGetId", ctypes.c_int32, handle) for handle in (stream, None)]
        assert ids[0] == ids[1]
        with pytest.raises(acl.AclError, match=f"stream {ids[0]} is a default stream, which goes with its context"):
            acl.call("aclrtDestroyStream", stream)
        other = acl.make("aclrtCreateStream")
        acl.call("aclrtDestroyContext", context)
        assert {each[:2] for each in seen[2:]} == {(stream, TO_BE_DESTROYED), (other, TO_BE_DESTROYED)}
    acl.call("aclrtSetCurrentContext", before)
    assert acl.make("aclrtCtxGetCurrentDefaultStream") == default


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
    "name, arguments, message",
    [
        ("aclrtCreateStreamWithConfig", (0, 0x4), "flag is 0x4; ACL_STREAM_FAST_LAUNCH"),
        ("aclrtCreateStreamWithConfig", (0, 0x10), "flag is 0x10;"),
        ("aclrtCreateStreamWithConfig", (8, 0), "priority is 8; expected 0 to 7"),
        ("aclrtSetStreamOverflowSwitch", (2,), "flag is 2; expected 0 or 1"),
        ("aclrtSetStreamAttribute", (2, 5), "overflowSwitch is 5; expected 0 or 1"),
        ("aclrtSetStreamAttribute", (4, 5), "cacheOpInfoSwitch is 5; expected 0 or 1"),
        ("aclrtSetStreamAttribute", (5, 8), "priority is 8; expected 0 to 7"),
        ("aclrtSetStreamAttribute", (6, 0), "attribute 6 is unknown"),
    ],
)
def test_settings_of_streams_are_checked(acl, name, arguments, message):
    with acl.stream() as stream:
        if name == "aclrtSetStreamAttribute":
            arguments = (arguments[0], ctypes.byref(ctypes.c_uint64(arguments[1])))
        first = ctypes.byref(ctypes.c_void_p()) if name == "aclrtCreateStreamWithConfig" else stream
        with pytest.raises(acl.AclError, match=message):
            acl.call(name, first, *arguments)


def test_a_wait_for_an_event_ends_with_its_time(acl, context):
    with acl.device_memory(8) as value, acl.stream() as late, acl.stream() as waiting, acl.event() as event:
        acl.write(value, bytes(8))
        acl.call("aclrtSetOpWaitTimeout", 1)
        try:
            acl.call("aclrtValueWait", value, ctypes.c_uint64(1), 1, late)
            acl.call("aclrtRecordEvent", event, late)
            acl.call("aclrtStreamWaitEvent", waiting, event)
            with pytest.raises(
                acl.AclError, match=r"the event was not reached within 1 s \(aclrtSetOpWaitTimeout\)"
            ) as error:
                acl.call("aclrtSynchronizeStreamWithTimeout", waiting, 30_000)
            assert error.value.code == 107020
        finally:
            acl.call("aclrtSetOpWaitTimeout", 0)
            acl.write(value, (1).to_bytes(8, "little"))
            acl.call("aclrtSynchronizeStream", late)


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


def _work(acl, tasks, stream, event, memory):
    """What gives a stream work or ends it, by name; with memory of the current device."""
    host_function = acl.Callback(lambda _: None)
    return {
        "launch": lambda: acl.check(acl.status(tasks.launch_increment, stream, memory)),
        "aclrtMemcpyAsync": lambda: acl.call(
            "aclrtMemcpyAsync", memory, 8, memory + 8, 8, acl.DEVICE_TO_DEVICE, stream
        ),
        "aclrtMemsetAsync": lambda: acl.call("aclrtMemsetAsync", memory, 8, 0, 8, stream),
        "aclrtLaunchHostFunc": lambda: acl.call("aclrtLaunchHostFunc", stream, host_function, None),
        "aclrtRecordEvent": lambda: acl.call("aclrtRecordEvent", event, stream),
        "aclrtStreamWaitEvent": lambda: acl.call("aclrtStreamWaitEvent", stream, event),
        "aclrtValueWrite": lambda: acl.call("aclrtValueWrite", memory, 1, 0, stream),
        "aclmdlRICaptureBegin": lambda: acl.call("aclmdlRICaptureBegin", stream, acl.CAPTURE_GLOBAL),
        "aclrtDestroyStream": lambda: acl.call("aclrtDestroyStream", stream),
    }


@pytest.mark.parametrize("other", ["device", "context"])
def test_a_stream_takes_work_of_its_own_context_alone(acl, tasks, context, other):
    """So does aclrtRecordEvent with an event; waits for an event and for a stream go across devices."""
    with acl.stream() as stream, acl.event() as event:
        if other == "device":
            acl.call("aclrtSetDevice", 1)
        else:
            elsewhere = acl.make("aclrtCreateContext", 0)
        with acl.device_memory(16) as memory, acl.stream() as own:
            for name, work in _work(acl, tasks, stream, event, memory).items():
                with pytest.raises(acl.AclError, match="of another context, of device 0") as failure:
                    work()
                assert failure.value.code == acl.RT_STREAM_CONTEXT, name
            acl.call("aclrtSynchronizeStream", stream)
            if other == "device":
                with pytest.raises(acl.AclError, match="the event was created on device 0, and stream") as failure:
                    acl.call("aclrtRecordEvent", event, own)
                assert failure.value.code == acl.RT_STREAM_CONTEXT
            acl.call("aclrtStreamWaitEvent", own, event)
        if other == "context":
            acl.call("aclrtDestroyContext", elsewhere)
        acl.call("aclrtSetCurrentContext", context)


def test_an_option_of_the_context_counts_before_that_of_the_process(acl, tasks, context):
    assert not tasks.is_deterministic()
    acl.call("aclrtSetSysParamOpt", acl.OPT_DETERMINISTIC, 1)
    try:
        assert tasks.is_deterministic()
        acl.call("aclrtCtxSetSysParamOpt", acl.OPT_DETERMINISTIC, 0)
        assert not tasks.is_deterministic()
    finally:
        acl.call("aclrtSetSysParamOpt", acl.OPT_DETERMINISTIC, 0)
    acl.call("aclrtCtxSetSysParamOpt", acl.OPT_DETERMINISTIC, 2)
    assert tasks.is_deterministic()


def test_a_thread_without_a_context_gives_no_work(tasks):
    """Another process runs it, since torch_npu's acl.json gives every thread a context."""
    program = f"""if True:
        import ctypes, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import acl, test_streams
        acl.call("aclrtSetDevice", 0)
        test_streams.check_a_thread_without_a_context(acl, ctypes.CDLL({tasks._name!r}))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def check_a_thread_without_a_context(acl, tasks):
    with acl.stream() as stream, acl.event() as event, acl.device_memory(16) as memory, acl.pinned_memory(8) as pinned:
        calls = _work(acl, tasks, stream, event, memory) | {
            "aclrtMemcpy": lambda: acl.call("aclrtMemcpy", memory, 8, memory + 8, 8, acl.DEVICE_TO_DEVICE),
            "aclrtMemset": lambda: acl.call("aclrtMemset", memory, 8, 0, 8),
            "aclrtMallocHost": lambda: acl.make("aclrtMallocHost", 8),
            "aclrtSynchronizeStream": lambda: acl.call("aclrtSynchronizeStream", stream),
            "aclrtStreamQuery": lambda: acl.get("aclrtStreamQuery", ctypes.c_int, stream),
        }
        codes = {}

        def call_all():
            for name, function in calls.items():
                try:
                    function()
                except acl.AclError as error:
                    codes[name] = error.code

        thread = threading.Thread(target=call_all)
        thread.start()
        thread.join()
        assert codes == dict.fromkeys(calls, acl.RT_CONTEXT_NULL)
        assert pinned


def test_the_range_of_priorities_is_that_which_streams_take(acl):
    least, greatest = ctypes.c_int32(), ctypes.c_int32()
    acl.call("aclrtDeviceGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    assert (least.value, greatest.value) == (7, 0)
    with pytest.raises(acl.AclError, match="greatestPriority is null"):
        acl.call("aclrtDeviceGetStreamPriorityRange", ctypes.byref(least), None)


def test_a_stream_keeps_an_allocator_and_gives_it_back(acl):
    acl.library.aclrtAllocatorCreateDesc.restype = ctypes.c_void_p
    description = ctypes.c_void_p(acl.library.aclrtAllocatorCreateDesc())
    given = {"Obj": 16, "AllocFunc": 32, "FreeFunc": 48, "AllocAdviseFunc": 64, "GetAddrFromBlockFunc": 80}
    got = [ctypes.c_void_p() for _ in range(6)]
    with acl.stream() as stream:
        with pytest.raises(acl.AclError, match="the description's allocator is null"):
            acl.call("aclrtAllocatorRegister", stream, description)
        acl.call("aclrtAllocatorSetObjToDesc", description, given["Obj"])
        with pytest.raises(acl.AclError, match="no Alloc, Free or GetAddrFromBlock"):
            acl.call("aclrtAllocatorRegister", stream, description)
        for name, value in given.items():
            acl.call(f"aclrtAllocatorSet{name}ToDesc", description, value)
        with pytest.raises(acl.AclError, match="the stream has no allocator"):
            acl.call("aclrtAllocatorGetByStream", stream, *map(ctypes.byref, got))
        acl.call("aclrtAllocatorRegister", stream, description)
        acl.call("aclrtAllocatorDestroyDesc", description)
        acl.call("aclrtAllocatorGetByStream", stream, *map(ctypes.byref, got))
        assert [each.value for each in got] == [description.value, *given.values()]
        acl.call("aclrtAllocatorUnregister", stream)
        with pytest.raises(acl.AclError, match="the stream has no allocator"):
            acl.call("aclrtAllocatorUnregister", stream)
    with pytest.raises(acl.AclError, match="is not a valid allocator description"):
        acl.call("aclrtAllocatorDestroyDesc", description)
