# SPDX-License-Identifier: Apache-2.0
"""Events: waits across streams and devices, state, times."""

import ctypes
import time

import pytest


@pytest.fixture(params=[(0, 0), (0, 1), (1, 0)], ids=["one device", "to another device", "from another device"])
def two_streams(acl, request):
    """The stream that records and the stream that waits, on the devices of the case; the former's is current."""
    waiting, recording = (acl.make_stream_on(device) for device in request.param[::-1])
    yield recording, waiting
    for stream in (recording, waiting):
        acl.use(stream)
        acl.call("aclrtDestroyStreamForce", stream)


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_a_stream_waits_for_the_work_before_the_event(acl, tasks, counter, two_streams):
    recording, waiting = two_streams
    arrived = ctypes.c_int64(0)
    with acl.event() as event:
        acl.check(acl.status(tasks.launch_rendezvous, recording, ctypes.byref(arrived), 2))
        acl.call("aclrtRecordEvent", event, recording)
        acl.use(waiting)
        acl.call("aclrtStreamWaitEvent", waiting, event)
        acl.check(acl.status(tasks.launch_increment, waiting, ctypes.byref(counter)))
        with pytest.raises(acl.AclError):
            acl.call("aclrtSynchronizeStreamWithTimeout", waiting, 20)
        assert counter.value == 0
        arrived.value = 2
        acl.call("aclrtSynchronizeStream", waiting)
        assert counter.value == 1


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_a_wait_is_for_the_recording_that_was_the_latest_then(acl, tasks, counter, two_streams):
    recording, waiting = two_streams
    arrived = ctypes.c_int64(0)
    with acl.event() as event:
        acl.call("aclrtRecordEvent", event, recording)
        acl.use(waiting)
        acl.call("aclrtStreamWaitEvent", waiting, event)
        acl.use(recording)
        acl.check(acl.status(tasks.launch_rendezvous, recording, ctypes.byref(arrived), 2))
        acl.call("aclrtRecordEvent", event, recording)
        acl.call("aclrtSynchronizeStream", waiting)
        arrived.value = 2
        acl.call("aclrtSynchronizeEvent", event)


def test_waiting_for_what_was_never_recorded_is_no_wait(acl):
    with acl.stream() as stream, acl.event() as event:
        acl.call("aclrtStreamWaitEvent", stream, event)
        acl.call("aclrtSynchronizeStream", stream)
        acl.call("aclrtSynchronizeEvent", event)
        assert acl.get("aclrtQueryEventStatus", ctypes.c_int, event) == 1


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_an_event_may_be_destroyed_while_it_is_waited_for(acl, tasks, counter):
    arrived = ctypes.c_int64(0)
    with acl.stream() as first, acl.stream() as second:
        event = acl.make("aclrtCreateEventExWithFlag", acl.EVENT_SYNC)
        acl.check(acl.status(tasks.launch_rendezvous, first, ctypes.byref(arrived), 2))
        acl.call("aclrtRecordEvent", event, first)
        acl.call("aclrtStreamWaitEvent", second, event)
        acl.check(acl.status(tasks.launch_increment, second, ctypes.byref(counter)))
        acl.call("aclrtDestroyEvent", event)
        assert counter.value == 0
        arrived.value = 2
        acl.call("aclrtSynchronizeStream", second)
        assert counter.value == 1
        with pytest.raises(acl.AclError, match="is not a valid event"):
            acl.call("aclrtRecordEvent", event, first)


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_state_and_timeout_tell_a_reached_event_from_a_pending_one(acl, tasks):
    arrived = ctypes.c_int64(0)
    with acl.stream() as stream, acl.event() as event:
        acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(arrived), 2))
        acl.call("aclrtRecordEvent", event, stream)
        assert acl.get("aclrtQueryEventStatus", ctypes.c_int, event) == 0
        with pytest.raises(acl.AclError) as failure:
            acl.call("aclrtSynchronizeEventWithTimeout", event, 20)
        assert failure.value.code == acl.RT_EVENT_SYNC_TIMEOUT
        with pytest.raises(acl.AclError, match="not reached yet") as failure:
            acl.call("aclrtEventElapsedTime", ctypes.byref(ctypes.c_float()), event, event)
        assert failure.value.code == acl.RT_EVENT_NOT_COMPLETE
        arrived.value = 2
        acl.call("aclrtSynchronizeEvent", event)
        assert acl.get("aclrtQueryEventStatus", ctypes.c_int, event) == 1


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_the_wait_state_tells_whether_streams_still_wait(acl, tasks):
    arrived = ctypes.c_int64(0)
    with acl.stream() as first, acl.stream() as second:
        event = acl.make("aclrtCreateEventWithFlag", acl.EVENT_SYNC)
        acl.check(acl.status(tasks.launch_rendezvous, first, ctypes.byref(arrived), 2))
        acl.call("aclrtRecordEvent", event, first)
        acl.call("aclrtStreamWaitEvent", second, event)
        assert acl.get("aclrtQueryEventWaitStatus", ctypes.c_int, event) == 1
        arrived.value = 2
        acl.call("aclrtSynchronizeStream", second)
        assert acl.get("aclrtQueryEventWaitStatus", ctypes.c_int, event) == 0
        acl.call("aclrtDestroyEvent", event)
        with acl.event() as newer, pytest.raises(acl.AclError, match="do not count their waits") as failure:
            acl.get("aclrtQueryEventWaitStatus", ctypes.c_int, newer)
        assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT


def test_times_follow_the_order_of_the_stream(acl):
    with acl.stream() as stream, acl.event() as first, acl.event() as second:
        acl.call("aclrtRecordEvent", first, stream)
        acl.call("aclrtRecordEvent", second, stream)
        acl.call("aclrtSynchronizeStream", stream)
        stamps = [acl.get("aclrtEventGetTimestamp", ctypes.c_uint64, event) for event in (first, second)]
        assert stamps[0] <= stamps[1] <= time.monotonic_ns() / 1000 < stamps[0] + 60e6  # microseconds
        elapsed = ctypes.c_float()
        acl.call("aclrtEventElapsedTime", ctypes.byref(elapsed), first, second)
        assert elapsed.value == pytest.approx((stamps[1] - stamps[0]) / 1000, abs=1e-3)
        acl.call("aclrtEventElapsedTime", ctypes.byref(elapsed), second, first)
        assert elapsed.value == pytest.approx((stamps[0] - stamps[1]) / 1000, abs=1e-3)


def test_times_need_the_flag_and_a_recording(acl):
    elapsed = ctypes.c_float()
    with acl.stream() as stream, acl.event(acl.EVENT_SYNC) as untimed, acl.event() as fresh:
        acl.call("aclrtRecordEvent", untimed, stream)
        acl.call("aclrtSynchronizeStream", stream)
        for start, end, message in [
            (untimed, fresh, "startEvent was created without ACL_EVENT_TIME_LINE"),
            (fresh, untimed, "startEvent was never recorded"),
        ]:
            with pytest.raises(acl.AclError, match=message) as failure:
                acl.call("aclrtEventElapsedTime", ctypes.byref(elapsed), start, end)
            assert failure.value.code == acl.RT_EVENT_TIMESTAMP_INVALID


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_a_stream_waits_for_a_flag_that_is_recorded_later(acl, tasks, counter, two_streams):
    recording, waiting = two_streams
    with acl.flag_event() as event:
        assert acl.get("aclrtQueryEventStatus", ctypes.c_int, event) == 0
        acl.use(waiting)
        acl.call("aclrtStreamWaitEvent", waiting, event)
        acl.check(acl.status(tasks.launch_increment, waiting, ctypes.byref(counter)))
        with pytest.raises(acl.AclError):
            acl.call("aclrtSynchronizeStreamWithTimeout", waiting, 20)
        assert counter.value == 0
        acl.use(recording)
        acl.call("aclrtRecordEvent", event, recording)
        acl.call("aclrtSynchronizeStream", waiting)
        assert counter.value == 1 == acl.get("aclrtQueryEventStatus", ctypes.c_int, event)


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_a_reset_is_in_the_order_of_its_stream(acl, tasks, counter, two_streams):
    recording, waiting = two_streams
    arrived = ctypes.c_int64(0)
    with acl.flag_event() as event, acl.stream() as third:
        acl.call("aclrtRecordEvent", event, recording)
        acl.use(waiting)
        acl.check(acl.status(tasks.launch_rendezvous, waiting, ctypes.byref(arrived), 2))
        acl.call("aclrtStreamWaitEvent", waiting, event)
        acl.call("aclrtResetEvent", event, waiting)
        acl.use(recording)
        acl.call("aclrtStreamWaitEvent", third, event)  # before the reset, whose stream has not come to it
        acl.call("aclrtSynchronizeStream", third)
        arrived.value = 2
        acl.call("aclrtSynchronizeStream", waiting)
        assert acl.get("aclrtQueryEventStatus", ctypes.c_int, event) == 0
        acl.call("aclrtStreamWaitEvent", third, event)
        acl.check(acl.status(tasks.launch_increment, third, ctypes.byref(counter)))
        with pytest.raises(acl.AclError):
            acl.call("aclrtSynchronizeStreamWithTimeout", third, 20)
        acl.call("aclrtRecordEvent", event, recording)
        acl.call("aclrtSynchronizeStream", third)
        assert counter.value == 1


def test_only_flags_are_reset_and_an_event_of_aclrtCreateEvent_is_waited_for_when_it_was_recorded(acl):
    with acl.stream() as stream, acl.event() as newer:
        older = acl.make("aclrtCreateEvent")
        assert acl.get("aclrtQueryEventStatus", ctypes.c_int, older) == 0
        with pytest.raises(acl.AclError, match="the event was never recorded") as failure:
            acl.call("aclrtStreamWaitEvent", stream, older)
        assert failure.value.code == acl.RT_PARAM_INVALID
        acl.call("aclrtRecordEvent", older, stream)
        acl.call("aclrtStreamWaitEvent", stream, older)
        for event in (older, newer):
            with pytest.raises(acl.AclError, match="only an event of aclrtCreateEventWithFlag") as failure:
                acl.call("aclrtResetEvent", event, stream)
            assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT
        acl.call("aclrtDestroyEvent", older)


def test_a_stream_waits_for_events_with_the_flag_for_that_only(acl):
    flags = acl.EVENT_TIME_LINE | acl.EVENT_CAPTURE_STREAM_PROGRESS
    with acl.stream() as stream, acl.event(flags) as event:
        acl.call("aclrtRecordEvent", event, stream)
        with pytest.raises(acl.AclError, match="without ACL_EVENT_SYNC") as failure:
            acl.call("aclrtStreamWaitEvent", stream, event)
        assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT


@pytest.mark.parametrize("create", ["aclrtCreateEventWithFlag", "aclrtCreateEventExWithFlag"])
def test_flags_of_events_are_checked(acl, create):
    for flag in (0, 0x80, 0x81):
        with pytest.raises(acl.AclError, match=f"flag is {f'{flag:#x}' if flag else 0}; ACL_EVENT_SYNC") as failure:
            acl.make(create, flag)
        assert failure.value.code == acl.RT_PARAM_INVALID
    acl.call("aclrtDestroyEvent", acl.make(create, 0xF))


@pytest.mark.parametrize("flag", ["EVENT_IPC", "EVENT_DEVICE_USE_ONLY"])
def test_events_of_unsupported_kinds_answer_with_the_code_that_callers_probe_for(acl, flag):
    with pytest.raises(acl.AclError, match="not supported") as failure:
        acl.make("aclrtCreateEventExWithFlag", getattr(acl, flag))
    assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT
    assert acl.library.aclrtPeekAtLastError(0) != acl.RT_FEATURE_NOT_SUPPORT


def test_a_wait_for_an_external_event_is_until_it_is_set_and_a_reset_clears_it(acl, tasks, counter):
    with acl.stream() as recording, acl.stream() as waiting, acl.external_event() as event:
        for waits in (1, 2, 3):
            acl.call("aclrtStreamWaitEvent", waiting, event)  # asked for before the record
            acl.call("aclrtResetEvent", event, waiting)
            acl.check(acl.status(tasks.launch_increment, waiting, ctypes.byref(counter)))
            acl.call("aclrtRecordEvent", event, recording)
            acl.call("aclrtSynchronizeStream", waiting)
            assert counter.value == waits


@pytest.mark.unchecked("schedule", reason="no stream can go on")
def test_an_external_event_that_was_reset_is_waited_for_again(acl):
    with acl.stream() as recording, acl.stream() as waiting, acl.external_event() as event:
        acl.call("aclrtRecordEvent", event, recording)
        acl.call("aclrtSynchronizeStream", recording)
        for _ in range(2):  # a wait does not clear it
            acl.call("aclrtStreamWaitEvent", waiting, event)
        acl.call("aclrtSynchronizeStream", waiting)
        acl.call("aclrtResetEvent", event, waiting)
        acl.call("aclrtStreamWaitEvent", waiting, event)
        with pytest.raises(acl.AclError) as failure:
            acl.call("aclrtSynchronizeStreamWithTimeout", waiting, 50)
        assert failure.value.code == acl.RT_STREAM_SYNC_TIMEOUT
        acl.call("aclrtRecordEvent", event, recording)
        acl.call("aclrtSynchronizeStream", waiting)


def test_an_external_event_carries_the_failure_of_the_work_before_it(acl, tasks, context):
    with acl.stream() as recording, acl.stream() as waiting, acl.external_event() as event:
        acl.check(acl.status(tasks.launch_failing, recording, b"Failing", 507018, b"broken"))
        acl.call("aclrtRecordEvent", event, recording)
        acl.call("aclrtStreamWaitEvent", waiting, event)
        with pytest.raises(acl.AclError, match=r"waited for work that failed: .*broken"):
            acl.call("aclrtSynchronizeStream", waiting)


def test_an_external_event_has_no_state_and_is_not_combined_with_other_kinds(acl):
    with acl.stream() as stream, acl.external_event() as event:
        acl.call("aclrtRecordEvent", event, stream)
        for name, *arguments in (
            ("aclrtSynchronizeEvent", event),
            ("aclrtSynchronizeEventWithTimeout", event, 10),
            ("aclrtQueryEventStatus", event, ctypes.byref(ctypes.c_int())),
            ("aclrtQueryEventWaitStatus", event, ctypes.byref(ctypes.c_int())),
            ("aclrtEventElapsedTime", ctypes.byref(ctypes.c_float()), event, event),
            ("aclrtEventGetTimestamp", event, ctypes.byref(ctypes.c_uint64())),
        ):
            with pytest.raises(acl.AclError, match="external event") as failure:
                acl.call(name, *arguments)
            assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT
    with pytest.raises(acl.AclError, match="ACL_EVENT_EXTERNAL is not combined") as failure:
        acl.make("aclrtCreateEventWithFlag", acl.EVENT_EXTERNAL | acl.EVENT_SYNC)
    assert failure.value.code == acl.RT_PARAM_INVALID
    with pytest.raises(acl.AclError, match="aclrtCreateEventWithFlag") as failure:
        acl.make("aclrtCreateEventExWithFlag", acl.EVENT_EXTERNAL)
    assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT
