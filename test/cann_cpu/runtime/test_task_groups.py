# SPDX-License-Identifier: Apache-2.0
"""Task groups of captured graphs: replaced tasks, external events that order them, what is illegal."""

import ctypes
import threading

import pytest
from test_capture import capturing


class Value:
    """A number that tasks append digits to."""

    def __init__(self, acl, tasks):
        self.acl, self.tasks, self.held = acl, tasks, ctypes.c_int64(0)

    def digit(self, stream, digit, name=b"Digit"):
        self.acl.check(self.acl.status(self.tasks.launch_digit, stream, name, ctypes.byref(self.held), digit))

    def update(self, stream, group, *tasks):
        """Replaces the tasks by ones with these digits and names."""
        self.acl.call("aclmdlRICaptureTaskUpdateBegin", stream, group)
        for task in tasks:
            self.digit(stream, *task)
        self.acl.call("aclmdlRICaptureTaskUpdateEnd", stream)

    def after(self, graph, stream):
        self.held.value = 0
        self.acl.call("aclmdlRIExecuteAsync", graph, stream)
        self.acl.call("aclrtSynchronizeStream", stream)
        return self.held.value


@pytest.fixture
def value(acl, tasks):
    return Value(acl, tasks)


def begin(acl, stream):
    acl.call("aclmdlRICaptureTaskGrpBegin", stream)


def end(acl, stream):
    return acl.get("aclmdlRICaptureTaskGrpEnd", ctypes.c_void_p, stream)


@pytest.fixture
def captured(acl, value, stream):
    """A graph of the digits 1 to 4 and the handle of the group of 2 and 3, named First and Second."""
    with capturing(acl, stream) as graphs:
        value.digit(stream, 1)
        begin(acl, stream)
        value.digit(stream, 2, b"First")
        value.digit(stream, 3, b"Second")
        group = end(acl, stream)
        value.digit(stream, 4)
    yield graphs[0], group
    acl.status(acl.library.aclmdlRIDestroy, ctypes.c_void_p(graphs[0]))


def fails(acl, code, name, *arguments, match=None):
    with pytest.raises(acl.AclError, match=match) as failure:
        acl.call(name, *arguments)
    assert failure.value.code == code


def test_an_update_replaces_the_tasks_of_a_group_in_later_replays(acl, value, captured, stream, side):
    graph, group = captured
    assert value.after(graph, stream) == 1234
    for first, second in ((5, 6), (7, 8), (2, 3)):
        value.update(side, group, (first, b"First"), (second, b"Second"))
        acl.call("aclrtSynchronizeStream", side)
        for _ in range(2):
            assert value.after(graph, stream) == 1004 + 100 * first + 10 * second


def test_tasks_of_an_update_do_not_run_themselves_and_those_after_it_do(acl, value, captured, side):
    value.update(side, captured[1], (5, b"First"), (6, b"Second"))
    value.digit(side, 9)
    acl.call("aclrtSynchronizeStream", side)
    assert value.held.value == 9


def test_an_update_on_the_replaying_stream_is_in_order_with_its_replays(acl, value, captured, stream):
    graph, group = captured
    acl.call("aclmdlRIExecuteAsync", graph, stream)
    value.update(stream, group, (5, b"First"), (6, b"Second"))
    acl.call("aclmdlRIExecuteAsync", graph, stream)
    acl.call("aclrtSynchronizeStream", stream)
    assert value.held.value == 12341564


@pytest.mark.parametrize(
    "digits, match",
    [
        ([], "has 2 tasks, and the update has 0"),
        ([(5, b"First")], "has 2 tasks, and the update has 1"),
        ([(5, b"First"), (6, b"Second"), (7, b"Third")], "has 2 tasks, and the update has 3"),
        ([(5, b"Second"), (6, b"First")], "task 0 of the task group is First, and the update has Second"),
        ([(5, b"First"), (6, b"Other")], "task 1 of the task group is Second, and the update has Other"),
    ],
)
def test_an_update_with_other_kernels_fails_and_the_graph_keeps_its_tasks(
    acl, value, captured, stream, side, digits, match
):
    graph, group = captured
    acl.call("aclmdlRICaptureTaskUpdateBegin", side, group)
    for digit, name in digits:
        value.digit(side, digit, name)
    fails(acl, acl.RT_INTERNAL_ERROR, "aclmdlRICaptureTaskUpdateEnd", side, match=match)
    acl.call("aclrtSynchronizeStream", side)
    assert value.after(graph, stream) == 1234
    value.update(side, group, (5, b"First"), (6, b"Second"))
    acl.call("aclrtSynchronizeStream", side)
    assert value.after(graph, stream) == 1564


def test_an_update_takes_operators_only(acl, value, captured, stream, side):
    graph, group = captured
    with acl.device_memory(8) as memory, acl.event() as event:
        for name, *arguments in (
            ("aclrtMemsetAsync", memory, 8, 0, 8, side),
            ("aclrtRecordEvent", event, side),
            ("aclrtStreamWaitEvent", side, event),
            ("aclrtValueWrite", memory, ctypes.c_uint64(1), 0, side),
            ("aclmdlRIExecuteAsync", graph, side),
        ):
            acl.call("aclmdlRICaptureTaskUpdateBegin", side, group)
            acl.call(name, *arguments)
            value.digit(side, 5, b"Second")
            fails(acl, acl.RT_TASK_TYPE_NOT_SUPPORT, "aclmdlRICaptureTaskUpdateEnd", side, match="operators only")
    assert value.after(graph, stream) == 1234


def test_a_group_takes_operators_only(acl, value, stream):
    with acl.device_memory(8) as memory:
        acl.call("aclmdlRICaptureBegin", stream, 0)
        begin(acl, stream)
        acl.call("aclrtMemsetAsync", memory, 8, 0, 8, stream)
        found = ctypes.c_void_p(1)
        fails(acl, acl.RT_TASK_TYPE_NOT_SUPPORT, "aclmdlRICaptureTaskGrpEnd", stream, ctypes.byref(found),
              match="aclrtMemsetAsync is not an operator")  # fmt: skip
        assert found.value is None
        fails(acl, acl.RT_TASK_TYPE_NOT_SUPPORT, "aclmdlRICaptureEnd", stream, ctypes.byref(found))
    assert acl.capture_status(stream)[0] == acl.CAPTURE_NONE


def test_groups_do_not_nest_and_one_that_is_open_fails_the_end_of_the_capture(acl, value, stream):
    acl.call("aclmdlRICaptureBegin", stream, 0)
    begin(acl, stream)
    fails(acl, acl.STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureTaskGrpBegin", stream, match="do not nest")
    graph = ctypes.c_void_p()
    fails(acl, acl.STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureEnd", stream, ctypes.byref(graph), match="was not ended")
    assert graph.value is None
    assert acl.capture_status(stream)[0] == acl.CAPTURE_NONE


def test_a_group_is_of_a_captured_stream_and_ends_where_it_began(acl, value, stream, side):
    found = ctypes.c_void_p()
    fails(acl, acl.RT_STREAM_NOT_CAPTURED, "aclmdlRICaptureTaskGrpBegin", stream)
    fails(acl, acl.RT_STREAM_NOT_CAPTURED, "aclmdlRICaptureTaskGrpEnd", stream, ctypes.byref(found))
    for name, *arguments in (
        ("aclmdlRICaptureTaskGrpBegin", None),
        ("aclmdlRICaptureTaskGrpEnd", None, ctypes.byref(found)),
        ("aclmdlRICaptureTaskGrpEnd", stream, None),
        ("aclmdlRICaptureTaskUpdateBegin", None, stream),
        ("aclmdlRICaptureTaskUpdateBegin", stream, None),
        ("aclmdlRICaptureTaskUpdateEnd", None),
    ):
        with pytest.raises(acl.AclError, match="null"):
            acl.call(name, *arguments)
    with capturing(acl, stream) as graphs:
        fails(acl, acl.STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureTaskGrpEnd", stream, ctypes.byref(found))
        begin(acl, stream)
        fails(acl, acl.RT_STREAM_NOT_CAPTURED, "aclmdlRICaptureTaskGrpEnd", side, ctypes.byref(found))
        end(acl, stream)
    acl.call("aclmdlRIDestroy", graphs[0])


def test_a_task_of_another_captured_stream_interrupts_an_open_group(acl, value, stream, side):
    with acl.event() as fork, acl.event() as join:
        acl.call("aclmdlRICaptureBegin", stream, 0)
        acl.call("aclrtRecordEvent", fork, stream)
        acl.call("aclrtStreamWaitEvent", side, fork)
        begin(acl, stream)
        value.digit(side, 1)
        found = ctypes.c_void_p()
        fails(acl, acl.STREAM_TASK_GROUP_INTR, "aclmdlRICaptureTaskGrpEnd", stream, ctypes.byref(found), match="Digit")
        acl.call("aclrtRecordEvent", join, side)
        acl.call("aclrtStreamWaitEvent", stream, join)
        fails(acl, acl.STREAM_TASK_GROUP_INTR, "aclmdlRICaptureEnd", stream, ctypes.byref(found))


def test_streams_of_a_capture_each_have_a_group(acl, value, stream, side):
    other = Value(acl, value.tasks)
    with acl.event() as fork, acl.event() as join, capturing(acl, stream) as graphs:
        acl.call("aclrtRecordEvent", fork, stream)
        acl.call("aclrtStreamWaitEvent", side, fork)
        begin(acl, stream)
        begin(acl, side)
        value.digit(stream, 1)
        other.digit(side, 2)
        groups = end(acl, stream), end(acl, side)
        acl.call("aclrtRecordEvent", join, side)
        acl.call("aclrtStreamWaitEvent", stream, join)
    other.update(side, groups[1], (5,))
    acl.call("aclrtSynchronizeStream", side)
    assert (value.after(graphs[0], stream), other.held.value) == (1, 5)
    acl.call("aclmdlRIDestroy", graphs[0])


def test_an_update_is_of_one_stream_that_is_not_captured(acl, value, captured, stream, side):
    graph, group = captured
    fails(acl, acl.STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureTaskUpdateEnd", side, match="updates no task group")
    acl.call("aclmdlRICaptureTaskUpdateBegin", side, group)
    fails(acl, acl.STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureTaskUpdateBegin", side, group, match="already")
    fails(acl, acl.STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureTaskUpdateBegin", stream, group, match="another stream")
    fails(acl, acl.STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureTaskUpdateEnd", stream)
    fails(acl, acl.STREAM_TASK_GROUP_STATUS, "aclmdlRICaptureBegin", side, 0)
    value.digit(side, 5, b"First")
    value.digit(side, 6, b"Second")
    acl.call("aclmdlRICaptureTaskUpdateEnd", side)
    acl.call("aclrtSynchronizeStream", side)
    assert value.after(graph, stream) == 1564
    with capturing(acl, stream) as graphs:
        fails(acl, acl.RT_STREAM_CAPTURED, "aclmdlRICaptureTaskUpdateBegin", stream, group)
        fails(acl, acl.RT_STREAM_CAPTURED, "aclmdlRICaptureTaskUpdateEnd", stream)
    acl.call("aclmdlRIDestroy", graphs[0])


def test_a_handle_is_valid_from_the_end_of_the_capture_until_its_graph_is_destroyed(acl, value, stream, side):
    with capturing(acl, stream) as graphs:
        begin(acl, stream)
        value.digit(stream, 1)
        group = end(acl, stream)
        fails(acl, acl.RT_MODEL_CAPTURED, "aclmdlRICaptureTaskUpdateBegin", side, group)
    unknown = ctypes.c_void_p(group + 1)
    fails(acl, acl.RT_INVALID_HANDLE, "aclmdlRICaptureTaskUpdateBegin", side, unknown, match="not a valid task group")
    acl.call("aclmdlRICaptureTaskUpdateBegin", side, group)
    value.digit(side, 2)
    acl.call("aclmdlRIDestroy", graphs[0])
    fails(acl, acl.RT_INVALID_HANDLE, "aclmdlRICaptureTaskUpdateEnd", side, match="not a valid task group")
    fails(acl, acl.RT_INVALID_HANDLE, "aclmdlRICaptureTaskUpdateBegin", side, group, match="not a valid task group")
    value.digit(side, 3)
    acl.call("aclrtSynchronizeStream", side)
    assert value.held.value == 3


def test_a_stream_that_goes_away_drops_its_update(acl, value, captured, stream, side):
    graph, group = captured
    with acl.stream() as gone:
        acl.call("aclmdlRICaptureTaskUpdateBegin", gone, group)
        value.digit(gone, 9, b"First")
    value.update(side, group, (5, b"First"), (6, b"Second"))
    acl.call("aclrtSynchronizeStream", side)
    assert value.after(graph, stream) == 1564


def test_a_group_of_another_device_is_not_updated(acl, captured):
    other = acl.make_stream_on(1)
    acl.use(other)
    fails(acl, acl.RT_STREAM_CONTEXT, "aclmdlRICaptureTaskUpdateBegin", other, captured[1], match="of device 0")
    acl.call("aclrtDestroyStream", other)
    acl.call("aclrtSetDevice", 0)


@pytest.fixture
def awaiting(acl, value, stream):
    """A graph that waits for an external event before a group of one task, the event and the group."""
    with acl.external_event() as event:
        with capturing(acl, stream) as graphs:
            value.digit(stream, 1)
            acl.call("aclrtStreamWaitEvent", stream, event)
            acl.call("aclrtResetEvent", event, stream)
            begin(acl, stream)
            value.digit(stream, 2)
            group = end(acl, stream)
        yield graphs[0], event, group
        acl.call("aclmdlRIDestroy", graphs[0])


def test_each_replay_waits_for_an_external_record_and_sees_the_update_before_it(acl, value, awaiting, stream, side):
    graph, event, group = awaiting
    for digit in (3, 7, 5):
        value.held.value = 0
        acl.call("aclmdlRIExecuteAsync", graph, stream)  # before the update
        value.update(side, group, (digit,))
        acl.call("aclrtRecordEvent", event, side)
        acl.call("aclrtSynchronizeStream", stream)
        assert value.held.value == 10 + digit


@pytest.mark.unchecked("schedule", reason="no stream can go on")
def test_a_replay_does_not_pass_an_external_event_that_is_not_recorded(acl, value, awaiting, stream, side):
    graph, event, _ = awaiting
    for _ in range(2):
        value.held.value = 0
        acl.call("aclmdlRIExecuteAsync", graph, stream)
        fails(acl, acl.RT_STREAM_SYNC_TIMEOUT, "aclrtSynchronizeStreamWithTimeout", stream, 30)
        assert value.held.value == 1
        acl.call("aclrtRecordEvent", event, side)
        acl.call("aclrtSynchronizeStream", stream)
        assert value.held.value == 12


def test_a_replay_waits_no_longer_when_the_work_before_the_record_failed(acl, tasks, value, context):
    """With ACL_STOP_ON_FAILURE, which torch_npu sets, the record does not run."""
    with acl.external_event() as event, acl.stream() as stream, acl.stream() as side:
        for each in (stream, side):
            acl.call("aclrtSetStreamFailureMode", each, ctypes.c_uint64(1))
        with capturing(acl, stream) as graphs:
            acl.call("aclrtStreamWaitEvent", stream, event)
            value.digit(stream, 1)
        acl.call("aclmdlRIExecuteAsync", graphs[0], stream)
        acl.check(acl.status(tasks.launch_failing, side, b"Failing", 507018, b"broken"))
        acl.call("aclrtRecordEvent", event, side)
        with pytest.raises(acl.AclError, match="broken"):
            acl.call("aclrtSynchronizeStreamWithTimeout", stream, 5000)
        assert value.held.value == 0
        acl.status(acl.library.aclrtSynchronizeStream, side)
        acl.call("aclmdlRIDestroy", graphs[0])


def test_an_external_record_in_a_graph_is_seen_outside_at_each_replay(acl, value, stream, side):
    with acl.external_event() as event:
        with capturing(acl, stream) as graphs:
            value.digit(stream, 1)
            acl.call("aclrtRecordEvent", event, stream)
        for _ in range(2):
            value.held.value = 0
            acl.call("aclrtStreamWaitEvent", side, event)
            acl.call("aclrtResetEvent", event, side)
            value.digit(side, 2)
            acl.call("aclmdlRIExecuteAsync", graphs[0], stream)
            acl.call("aclrtSynchronizeStream", side)
            assert value.held.value == 12
    acl.call("aclmdlRIDestroy", graphs[0])


@pytest.mark.unchecked("schedule", reason="threads of the program's own")
def test_a_thread_updates_while_another_replays(acl, value, captured, stream, side):
    graph, group = captured
    raised = []

    def work():
        acl.call("aclrtSetDevice", 0)
        try:
            for i in range(300):
                digit = i % 10
                value.update(side, group, (digit, b"First"), (digit, b"Second"))
        except acl.AclError as failure:
            raised.append(failure)

    thread = threading.Thread(target=work)
    value.update(side, group, (0, b"First"), (0, b"Second"))
    acl.call("aclrtSynchronizeStream", side)
    thread.start()
    while thread.is_alive():
        found = value.after(graph, stream)  # an update may come between the group's tasks
        assert (found // 1000, found % 10) == (1, 4)
    thread.join()
    assert not raised
    acl.call("aclrtSynchronizeStream", side)
    assert value.after(graph, stream) == 1994
