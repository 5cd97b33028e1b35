# SPDX-License-Identifier: Apache-2.0
"""Captured graphs: recording, replay, forks and joins through events, what is illegal meanwhile."""

import ctypes
import json
import threading
from contextlib import contextmanager

import pytest


@contextmanager
def capturing(acl, stream, mode=0):
    """Captures on the stream; the list that it gives holds the graph afterwards."""
    graphs = []
    acl.call("aclmdlRICaptureBegin", stream, mode)
    try:
        yield graphs
    except BaseException:
        acl.status(acl.library.aclmdlRICaptureEnd, stream, ctypes.byref(ctypes.c_void_p()))
        raise
    graphs.append(acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, stream))


def test_what_is_captured_runs_at_the_replay_and_not_before(acl, tasks, counter, stream):
    with capturing(acl, stream) as graphs:
        for _ in range(3):
            acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
        assert acl.capture_status(stream)[0] == acl.CAPTURE_ACTIVE
    assert acl.capture_status(stream) == (acl.CAPTURE_NONE, None)
    acl.call("aclrtSynchronizeStream", stream)
    assert counter.value == 0
    for replays in (1, 2):
        acl.call("aclmdlRIExecuteAsync", graphs[0], stream)
        acl.call("aclrtSynchronizeStream", stream)
        assert counter.value == 3 * replays
    acl.call("aclmdlRIDestroy", graphs[0])


def test_copies_and_fills_are_captured_with_their_addresses(acl, stream):
    with acl.device_memory(16) as first, acl.device_memory(16) as second, acl.pinned_memory(16) as pinned:
        with capturing(acl, stream) as graphs:
            acl.call("aclrtMemcpyAsync", first, 16, pinned, 16, acl.HOST_TO_DEVICE, stream)
            acl.call("aclrtMemsetAsync", first, 16, ord("z"), 4, stream)
            acl.call("aclrtMemcpyAsync", second, 16, first, 16, acl.DEVICE_TO_DEVICE, stream)
        for text in (b"abcdefghijklmnop", b"ABCDEFGHIJKLMNOP"):
            acl.write(pinned, text)
            acl.call("aclmdlRIExecuteAsync", graphs[0], stream)
            acl.call("aclrtSynchronizeStream", stream)
            assert acl.read(second, 16) == b"zzzz" + text[4:]
        acl.call("aclmdlRIDestroy", graphs[0])


def test_an_empty_capture_is_a_graph(acl, stream):
    with capturing(acl, stream) as graphs:
        pass
    acl.call("aclmdlRIExecuteAsync", graphs[0], stream)
    acl.call("aclrtSynchronizeStream", stream)
    acl.call("aclmdlRIDestroy", graphs[0])


def test_a_graph_replays_on_other_streams_even_when_its_own_is_gone(acl, tasks, counter, side):
    found = ctypes.c_int64(-1)
    with acl.stream() as gone, capturing(acl, gone) as graphs:
        acl.check(acl.status(tasks.launch_nested, gone, gone, ctypes.byref(counter), ctypes.byref(found)))
    for target in (side, None):
        acl.call("aclmdlRIExecuteAsync", graphs[0], target)
        acl.call("aclrtSynchronizeStream", target)
    assert (counter.value, found.value) == (2, 2)
    acl.call("aclmdlRIDestroy", graphs[0])


@pytest.mark.unchecked("schedule", reason="a task waits for the host")
def test_a_graph_destroyed_after_its_replay_was_asked_for_still_runs(acl, tasks, counter, stream):
    arrived = ctypes.c_int64(0)
    with capturing(acl, stream) as graphs:
        acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
    acl.check(acl.status(tasks.launch_rendezvous, stream, ctypes.byref(arrived), 2))
    acl.call("aclmdlRIExecuteAsync", graphs[0], stream)
    acl.call("aclmdlRIDestroy", graphs[0])
    arrived.value = 2
    acl.call("aclrtSynchronizeStream", stream)
    assert counter.value == 1
    with pytest.raises(acl.AclError, match="is not a valid captured graph"):
        acl.call("aclmdlRIExecuteAsync", graphs[0], stream)


def test_a_fork_and_a_join_bring_a_side_streams_work_into_the_graph(acl, tasks, stream, side):
    value = ctypes.c_int64(1)
    with acl.event() as fork, acl.event() as join:
        with capturing(acl, stream) as graphs:
            acl.check(acl.status(tasks.launch_affine, stream, ctypes.byref(value), 10, 1))
            acl.call("aclrtRecordEvent", fork, stream)
            acl.call("aclrtStreamWaitEvent", side, fork)
            assert acl.capture_status(side) == acl.capture_status(stream)
            acl.check(acl.status(tasks.launch_affine, side, ctypes.byref(value), 10, 2))
            acl.call("aclrtRecordEvent", join, side)
            acl.call("aclrtStreamWaitEvent", stream, join)
            acl.check(acl.status(tasks.launch_affine, stream, ctypes.byref(value), 10, 3))
        assert acl.capture_status(side)[0] == acl.CAPTURE_NONE
        assert value.value == 1
        acl.call("aclmdlRIExecuteAsync", graphs[0], stream)
        acl.call("aclrtSynchronizeStream", stream)
        assert value.value == 1123
        acl.check(acl.status(tasks.launch_affine, side, ctypes.byref(value), 0, 5))
        acl.call("aclrtSynchronizeStream", side)
        assert value.value == 5
    acl.call("aclmdlRIDestroy", graphs[0])


def forked(acl, stream, side, work, side_work):
    """A graph with a side stream's work beside the stream's."""
    with acl.event() as fork, acl.event() as join, capturing(acl, stream) as graphs:
        acl.call("aclrtRecordEvent", fork, stream)
        acl.call("aclrtStreamWaitEvent", side, fork)
        work()
        side_work()
        acl.call("aclrtRecordEvent", join, side)
        acl.call("aclrtStreamWaitEvent", stream, join)
    return graphs[0]


@pytest.mark.parametrize("waits_first", [False, True])
def test_streams_of_a_graph_run_side_by_side_and_wait_for_what_the_others_write(acl, tasks, stream, side, waits_first):
    counter = ctypes.c_int64(0)
    with acl.device_memory(8) as flag:

        def wait():
            acl.call("aclrtValueWait", flag, 1, 1, stream)
            acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))

        def write():
            acl.call("aclrtValueWrite", flag, 1, 0, side)

        graph = forked(acl, stream, side, wait, write) if waits_first else forked(acl, side, stream, write, wait)
        for replays in (1, 2, 3):
            acl.write(flag, bytes(8))
            acl.call("aclmdlRIExecuteAsync", graph, side)
            acl.call("aclrtSynchronizeStreamWithTimeout", side, 20_000)
            assert counter.value == replays
    acl.call("aclmdlRIDestroy", graph)


@pytest.mark.parametrize(("name", "expected"), [(b"HcclAllReduce", 12), (b"Kernel", 21)])
def test_collectives_of_a_graph_keep_their_order_whatever_their_streams(acl, tasks, stream, side, name, expected):
    """Other ranks come to them in the order of their captures."""
    value = ctypes.c_int64(0)
    with acl.device_memory(8) as flag, acl.stream() as third:
        acl.write(flag, bytes(8))

        def first():
            acl.call("aclrtValueWait", flag, 1, 1, stream)
            acl.check(acl.status(tasks.launch_digit, stream, name, ctypes.byref(value), 1))

        graph = forked(
            acl, stream, side, first,
            lambda: acl.check(acl.status(tasks.launch_digit, side, name, ctypes.byref(value), 2)),
        )  # fmt: skip
        acl.call("aclmdlRIExecuteAsync", graph, stream)
        with pytest.raises(acl.AclError):
            acl.call("aclrtSynchronizeStreamWithTimeout", stream, 50)
        acl.call("aclrtValueWrite", flag, 1, 0, third)
        acl.call("aclrtSynchronizeStream", stream)
        assert value.value == expected
    acl.call("aclmdlRIDestroy", graph)


def test_of_failures_in_several_streams_of_a_graph_the_first_one_counts(acl, tasks, counter, stream, side):
    graph = forked(
        acl, stream, side,
        lambda: acl.check(acl.status(tasks.launch_failing, stream, b"First", 561001, b"first")),
        lambda: acl.check(acl.status(tasks.launch_failing, side, b"Second", 561002, b"second")),
    )  # fmt: skip
    acl.call("aclmdlRIExecuteAsync", graph, stream)
    with pytest.raises(acl.AclError, match="First: first") as failure:
        acl.call("aclrtSynchronizeStream", stream)
    assert failure.value.code == 561001
    acl.call("aclmdlRIDestroy", graph)


def test_a_stream_that_replays_a_graph_which_waits_for_ever_can_be_destroyed_by_force(
    acl, tasks, counter, stream, side
):
    with acl.device_memory(8) as flag:
        acl.write(flag, bytes(8))
        graph = forked(
            acl, stream, side,
            lambda: acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter))),
            lambda: acl.call("aclrtValueWait", flag, 1, 1, side),
        )  # fmt: skip
        replaying = acl.make("aclrtCreateStream")
        acl.call("aclmdlRIExecuteAsync", graph, replaying)
        with pytest.raises(acl.AclError):
            acl.call("aclrtSynchronizeStreamWithTimeout", replaying, 20)
        acl.call("aclrtDestroyStreamForce", replaying)
        acl.write(flag, (1).to_bytes(8, "little"))
        acl.call("aclmdlRIExecuteAsync", graph, stream)
        acl.call("aclrtSynchronizeStream", stream)
        assert counter.value == 2
    acl.call("aclmdlRIDestroy", graph)


def test_work_that_was_never_joined_is_an_error_that_names_its_stream(acl, tasks, counter, stream, side):
    with acl.event() as fork:
        acl.call("aclmdlRICaptureBegin", stream, 0)
        acl.call("aclrtRecordEvent", fork, stream)
        acl.call("aclrtStreamWaitEvent", side, fork)
        acl.check(acl.status(tasks.launch_increment, side, ctypes.byref(counter)))
        with pytest.raises(acl.AclError, match="never waited for") as failure:
            acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, stream)
        assert failure.value.code == acl.RT_STREAM_UNJOINED
        side_id = acl.get("aclrtStreamGetId", ctypes.c_int32, side)
        assert f"stream {side_id} took part" in failure.value.message
        for each in (stream, side):
            assert acl.capture_status(each)[0] == acl.CAPTURE_NONE
            acl.check(acl.status(tasks.launch_increment, each, ctypes.byref(counter)))
            acl.call("aclrtSynchronizeStream", each)
        assert counter.value == 2


def test_a_side_stream_without_work_of_its_own_needs_no_join(acl, stream, side):
    with acl.event() as fork, capturing(acl, stream) as graphs:
        acl.call("aclrtRecordEvent", fork, stream)
        acl.call("aclrtStreamWaitEvent", side, fork)
    acl.call("aclmdlRIDestroy", graphs[0])


ILLEGAL = {
    "aclrtSynchronizeStream": lambda acl, stream: acl.call("aclrtSynchronizeStream", stream),
    "aclrtStreamQuery": lambda acl, stream: acl.get("aclrtStreamQuery", ctypes.c_int, stream),
    "aclrtSynchronizeDevice": lambda acl, stream: acl.call("aclrtSynchronizeDevice"),
    "aclrtMemset": lambda acl, stream: acl.call("aclrtMemset", ctypes.create_string_buffer(8), 8, 0, 8),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_call_fails_and_invalidates_the_capture_and_then_all_is_well(acl, tasks, counter, stream, name):
    acl.call("aclmdlRICaptureBegin", stream, 0)
    with pytest.raises(acl.AclError, match=f"{name}: .*captured") as failure:
        ILLEGAL[name](acl, stream)
    assert failure.value.code in (acl.RT_STREAM_CAPTURED, acl.RT_CAPTURE_MODE_NOT_SUPPORT)
    assert acl.capture_status(stream)[0] == acl.CAPTURE_INVALIDATED
    acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
    with pytest.raises(acl.AclError, match="the capture was invalidated: ") as failure:
        acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, stream)
    assert failure.value.code == acl.RT_STREAM_CAPTURE_INVALIDATED
    acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
    ILLEGAL[name](acl, stream)
    acl.call("aclrtSynchronizeStream", stream)
    assert counter.value == 1


def in_another_thread(acl, function):
    """What the function raised there, or None."""
    raised = []

    def run():
        acl.call("aclrtSetDevice", 0)
        try:
            function()
        except acl.AclError as failure:
            raised.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("mode, here, there", [(0, True, True), (1, True, False), (2, False, False)])
def test_the_mode_says_whose_unsafe_calls_are_illegal(acl, stream, mode, here, there):
    buffer = ctypes.create_string_buffer(8)

    def unsafe():
        acl.call("aclrtMemset", buffer, 8, 0, 8)

    acl.call("aclmdlRICaptureBegin", stream, mode)
    assert (in_another_thread(acl, unsafe) is not None) == there
    assert acl.capture_status(stream)[0] == acl.CAPTURE_ACTIVE
    if here:
        with pytest.raises(acl.AclError):
            unsafe()
    else:
        unsafe()
    acl.status(acl.library.aclmdlRICaptureEnd, stream, ctypes.byref(ctypes.c_void_p()))


def test_a_thread_can_allow_itself_unsafe_calls_for_a_while(acl, stream):
    with capturing(acl, stream):
        mode = ctypes.c_int(acl.CAPTURE_RELAXED)
        acl.call("aclmdlRICaptureThreadExchangeMode", ctypes.byref(mode))
        assert mode.value == acl.CAPTURE_GLOBAL
        acl.call("aclrtMemset", ctypes.create_string_buffer(8), 8, 0, 8)
        acl.call("aclmdlRICaptureThreadExchangeMode", ctypes.byref(mode))
        assert mode.value == acl.CAPTURE_RELAXED


def test_a_capture_ends_where_it_began(acl, stream, side):
    with acl.event() as fork:
        acl.call("aclmdlRICaptureBegin", stream, 0)
        acl.call("aclrtRecordEvent", fork, stream)
        acl.call("aclrtStreamWaitEvent", side, fork)
        with pytest.raises(acl.AclError) as failure:
            acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, side)
        assert failure.value.code == acl.RT_STREAM_CAPTURE_UNMATCHED
        elsewhere = in_another_thread(acl, lambda: acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, stream))
        assert elsewhere.code == acl.RT_STREAM_CAPTURE_WRONG_THREAD
        acl.call("aclmdlRIDestroy", acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, stream))
    with pytest.raises(acl.AclError) as failure:
        acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, stream)
    assert failure.value.code == acl.RT_STREAM_NOT_CAPTURED


def ended_with(acl, stream):
    """The message of a capture's end that fails because the capture was invalidated."""
    with pytest.raises(acl.AclError) as failure:
        acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, stream)
    assert failure.value.code == acl.RT_STREAM_CAPTURE_INVALIDATED
    return failure.value.message


def test_waiting_for_an_event_of_outside_invalidates_the_capture(acl, stream, side):
    with acl.event() as plain, acl.event() as fresh:
        acl.call("aclrtRecordEvent", plain, side)
        acl.call("aclmdlRICaptureBegin", stream, 0)
        acl.call("aclrtStreamWaitEvent", stream, fresh)
        assert acl.capture_status(stream)[0] == acl.CAPTURE_ACTIVE
        acl.call("aclrtStreamWaitEvent", stream, plain)
        assert acl.capture_status(stream)[0] == acl.CAPTURE_INVALIDATED
        assert "waited for an event that was recorded outside" in ended_with(acl, stream)


def test_captures_do_not_mix(acl, stream, side):
    with acl.event() as captured, capturing(acl, stream) as graphs:
        acl.call("aclrtRecordEvent", captured, stream)
        acl.call("aclmdlRICaptureBegin", side, 0)
        acl.call("aclrtStreamWaitEvent", side, captured)
        assert "waited for an event that was recorded outside" in ended_with(acl, side)
    acl.call("aclmdlRIDestroy", graphs[0])


def test_a_captured_event_has_no_state_until_it_is_recorded_again(acl, stream, side):
    with acl.event() as event:
        with capturing(acl, stream) as graphs:
            acl.call("aclrtRecordEvent", event, stream)
        for function in (
            lambda: acl.call("aclrtSynchronizeEvent", event),
            lambda: acl.get("aclrtQueryEventStatus", ctypes.c_int, event),
        ):
            with pytest.raises(acl.AclError) as failure:
                function()
            assert failure.value.code == acl.RT_EVENT_CAPTURED
        acl.call("aclrtStreamWaitEvent", side, event)
        with pytest.raises(acl.AclError, match="recorded in a capture that has ended") as failure:
            acl.call("aclrtSynchronizeStream", side)
        assert failure.value.code == acl.RT_EVENT_CAPTURED
        acl.call("aclrtRecordEvent", event, side)
        acl.call("aclrtSynchronizeEvent", event)
    acl.call("aclmdlRIDestroy", graphs[0])


def test_a_copy_with_pageable_memory_invalidates_the_capture(acl, stream):
    pageable = ctypes.create_string_buffer(8)
    with acl.device_memory(8) as device:
        acl.call("aclmdlRICaptureBegin", stream, 0)
        acl.call("aclrtMemcpyAsync", device, 8, pageable, 8, acl.HOST_TO_DEVICE, stream)
        assert "host memory that is not pinned" in ended_with(acl, stream)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_the_device_is_not_synchronised_while_a_stream_of_the_context_is_captured(acl, stream, mode):
    acl.call("aclmdlRICaptureBegin", stream, mode)
    error = in_another_thread(acl, lambda: acl.call("aclrtSynchronizeDevice"))
    assert error.code == acl.RT_STREAM_CAPTURED
    assert "asked for the state of stream" in ended_with(acl, stream)


def test_a_copy_with_pageable_memory_beside_a_capture_is_unsafe(acl, stream, side):
    pageable = ctypes.create_string_buffer(8)
    with acl.device_memory(8) as device:
        acl.call("aclmdlRICaptureBegin", stream, acl.CAPTURE_GLOBAL)
        with pytest.raises(acl.AclError) as failure:
            acl.call("aclrtMemcpyAsync", device, 8, pageable, 8, acl.HOST_TO_DEVICE, side)
        assert failure.value.code == acl.RT_CAPTURE_MODE_BLOCK_ASYNC
        assert "beside the streams" in ended_with(acl, stream)


def test_the_default_stream_takes_no_part_in_a_capture(acl, stream):
    with acl.event() as event, capturing(acl, stream) as graphs:
        acl.call("aclrtRecordEvent", event, stream)
        with pytest.raises(acl.AclError, match="the default stream") as failure:
            acl.call("aclrtStreamWaitEvent", None, event)
        assert failure.value.code == acl.RT_STREAM_CAPTURE_IMPLICIT
    acl.call("aclmdlRIDestroy", graphs[0])


def test_a_capture_takes_the_newer_kind_of_events_only(acl, stream):
    with acl.flag_event() as event, capturing(acl, stream) as graphs:
        for name, arguments in (("aclrtRecordEvent", (event, stream)), ("aclrtStreamWaitEvent", (stream, event))):
            with pytest.raises(acl.AclError, match="aclrtCreateEventExWithFlag only") as failure:
                acl.call(name, *arguments)
            assert failure.value.code == acl.RT_FEATURE_NOT_SUPPORT
    acl.call("aclmdlRIDestroy", graphs[0])


def test_a_graph_is_not_executed_in_a_capture(acl, stream, side):
    with capturing(acl, side) as inner:
        pass
    with capturing(acl, stream) as graphs, pytest.raises(acl.AclError, match="graphs within graphs") as failure:
        acl.call("aclmdlRIExecuteAsync", inner[0], stream)
    assert failure.value.code == acl.RT_STREAM_CAPTURED
    for graph in inner + graphs:
        acl.call("aclmdlRIDestroy", graph)


def test_the_state_of_a_capture_is_of_a_stream_and_gives_what_is_asked_for(acl, stream):
    graph = ctypes.c_void_p()
    with capturing(acl, stream) as graphs:
        acl.call("aclmdlRICaptureGetInfo", stream, None, ctypes.byref(graph))
    assert graphs == [graph.value]
    acl.call("aclmdlRIDestroy", graphs[0])
    for arguments, reason in (
        ((None, ctypes.byref(ctypes.c_int()), None), "stream is null"),
        ((stream, None, None), "status, and so is modelRI, is null"),
    ):
        with pytest.raises(acl.AclError, match=reason):
            acl.call("aclmdlRICaptureGetInfo", *arguments)


def test_a_captured_stream_or_graph_is_not_captured_again_executed_or_destroyed(acl, stream):
    with capturing(acl, stream) as graphs:
        graph = acl.capture_status(stream)[1]
        for code, function in [
            (acl.RT_STREAM_CAPTURED, lambda: acl.call("aclmdlRICaptureBegin", stream, 0)),
            (acl.RT_STREAM_CAPTURED, lambda: acl.call("aclrtDestroyStream", stream)),
            (acl.RT_MODEL_CAPTURED, lambda: acl.call("aclmdlRIExecuteAsync", graph, stream)),
            (acl.RT_MODEL_CAPTURED, lambda: acl.call("aclmdlRIDestroy", graph)),
            (acl.RT_MODEL_CAPTURED, lambda: acl.call("aclmdlRIDebugPrint", graph)),
        ]:
            with pytest.raises(acl.AclError) as failure:
                function()
            assert failure.value.code == code
    assert graphs == [graph]
    acl.call("aclmdlRIDestroy", graph)


def test_a_failure_in_a_replay_names_the_task_and_the_rest_runs(acl, tasks, counter, context, stream):
    with capturing(acl, stream) as graphs:
        acl.check(acl.status(tasks.launch_failing, stream, b"BadKernel", 561000, b"wrong in the replay"))
        acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
    for replays in (1, 2):
        acl.call("aclmdlRIExecuteAsync", graphs[0], stream)
        with pytest.raises(acl.AclError, match=r"captured graph on stream .*BadKernel: wrong in the replay") as failure:
            acl.call("aclrtSynchronizeStream", stream)
        assert failure.value.code == 561000
        assert counter.value == replays
    acl.call("aclmdlRIDestroy", graphs[0])


def test_nodes_behind_a_failed_one_do_not_run_where_a_failure_stops_the_stream(acl, tasks, counter, context, stream):
    acl.call("aclrtSetStreamFailureMode", stream, 1)
    with capturing(acl, stream) as graphs:
        acl.check(acl.status(tasks.launch_failing, stream, b"BadKernel", 561000, b"wrong in the replay"))
        acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
    acl.call("aclmdlRIExecuteAsync", graphs[0], stream)
    with pytest.raises(acl.AclError, match="BadKernel: wrong in the replay"):
        acl.call("aclrtSynchronizeStream", stream)
    assert counter.value == 0
    acl.call("aclmdlRIDestroy", graphs[0])


def test_a_graph_tells_its_nodes(acl, tasks, counter, stream, tmp_path):
    with capturing(acl, stream) as graphs:
        acl.check(acl.status(tasks.launch_increment, stream, ctypes.byref(counter)))
        acl.check(acl.status(tasks.launch_failing, stream, b'quoted "name"\\\n', 0, b""))
    path = tmp_path / "graph.json"
    acl.call("aclmdlRIDebugJsonPrint", graphs[0], str(path).encode(), 0)
    nodes = json.loads(path.read_text())["traceEvents"]
    assert [node["name"] for node in nodes] == ["Increment", 'quoted "name"\\\n']
    number = acl.get("aclmdlRIGetId", ctypes.c_uint32, graphs[0])
    assert all(node["ph"] == "X" and node["pid"] == f"graph {number} of device 0" for node in nodes)
    with pytest.raises(acl.AclError, match="flags is 2"):
        acl.call("aclmdlRIDebugJsonPrint", graphs[0], str(path).encode(), 2)
    with pytest.raises(acl.AclError, match="cannot write"):
        acl.call("aclmdlRIDebugJsonPrint", graphs[0], str(tmp_path / "none" / "graph.json").encode(), 0)
    acl.call("aclmdlRIDestroy", graphs[0])


def test_a_graph_stays_on_its_device(acl, stream):
    with capturing(acl, stream) as graphs:
        pass
    acl.call("aclrtSetDevice", 1)
    with acl.stream() as other, pytest.raises(acl.AclError, match="the graph is of device 0, the stream of device 1"):
        acl.call("aclmdlRIExecuteAsync", graphs[0], other)
    acl.call("aclrtSetDevice", 0)
    acl.call("aclmdlRIDestroy", graphs[0])
