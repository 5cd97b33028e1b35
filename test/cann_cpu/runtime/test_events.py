# SPDX-License-Identifier: Apache-2.0
"""Events: waits across streams and devices, state, times."""

import ctypes

import pytest


@pytest.fixture(params=[(0, 0), (0, 1), (1, 0)], ids=["one device", "to another device", "from another device"])
def two_streams(acl, request):
    """The stream that records and the stream that waits, on the devices of the case."""
    streams = []
    for device in request.param:
        acl.call("aclrtSetDevice", device)
        streams.append(acl.make("aclrtCreateStream"))
    yield streams
    for stream in streams:
        acl.call("aclrtDestroyStreamForce", stream)


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_a_stream_waits_for_the_work_before_the_event(acl, tasks, counter, two_streams):
    recording, waiting = two_streams
    arrived = ctypes.c_int64(0)
    with acl.event() as event:
        acl.check(acl.status(tasks.launch_rendezvous, recording, ctypes.byref(arrived), 2))
        acl.call("aclrtRecordEvent", event, recording)
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
        acl.call("aclrtStreamWaitEvent", waiting, event)
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
        with pytest.raises(acl.AclError, match="is no living event"):
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


def test_times_follow_the_order_of_the_stream(acl):
    with acl.stream() as stream, acl.event() as first, acl.event() as second:
        acl.call("aclrtRecordEvent", first, stream)
        acl.call("aclrtRecordEvent", second, stream)
        acl.call("aclrtSynchronizeStream", stream)
        stamps = [acl.get("aclrtEventGetTimestamp", ctypes.c_uint64, event) for event in (first, second)]
        assert 0 < stamps[0] <= stamps[1]
        elapsed = ctypes.c_float()
        acl.call("aclrtEventElapsedTime", ctypes.byref(elapsed), first, second)
        assert elapsed.value == pytest.approx((stamps[1] - stamps[0]) * 1e-6)
        acl.call("aclrtEventElapsedTime", ctypes.byref(elapsed), second, first)
        assert elapsed.value == pytest.approx((stamps[0] - stamps[1]) * 1e-6)


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


def test_only_events_of_the_older_kind_are_reset(acl):
    with acl.stream() as stream, acl.event() as newer:
        older = acl.make("aclrtCreateEvent")
        acl.call("aclrtRecordEvent", older, stream)
        acl.call("aclrtResetEvent", older, stream)
        with pytest.raises(acl.AclError, match="never recorded"):
            acl.get("aclrtEventGetTimestamp", ctypes.c_uint64, older)
        acl.call("aclrtDestroyEvent", older)
        with pytest.raises(acl.AclError, match="without a reset"):
            acl.call("aclrtResetEvent", newer, stream)


@pytest.mark.parametrize("flag", ["EVENT_IPC", "EVENT_EXTERNAL"])
def test_events_of_unsupported_kinds_answer_with_the_code_that_callers_probe_for(acl, flag):
    with pytest.raises(acl.AclError, match="not supported") as failure:
        acl.make("aclrtCreateEventExWithFlag", getattr(acl, flag))
    assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT
    assert acl.library.aclrtPeekAtLastError(0) != acl.RT_FEATURE_NOT_SUPPORT
