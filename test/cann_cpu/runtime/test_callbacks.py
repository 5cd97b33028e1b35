# SPDX-License-Identifier: Apache-2.0
"""Host functions in a stream, by its worker and by a subscribed thread."""

import ctypes
import threading
import time

import pytest


class Subscriber(threading.Thread):
    """A thread that processes the reports of its streams until it is stopped."""

    def __init__(self, acl):
        super().__init__()
        self.acl, self.stopping, self.codes = acl, threading.Event(), set()
        self.start()

    def run(self):
        while not self.stopping.is_set():
            self.codes.add(self.acl.status(self.acl.library.aclrtProcessReport, 20))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.join()


def test_a_host_function_runs_in_order_in_the_stream(acl, tasks):
    value, seen = ctypes.c_int64(1), []
    function = acl.Callback(lambda argument: seen.append((value.value, argument)))
    with acl.stream() as stream:
        acl.check(acl.status(tasks.launch_affine, stream, ctypes.byref(value), 10, 1))
        acl.call("aclrtLaunchHostFunc", stream, function, 77)
        acl.check(acl.status(tasks.launch_affine, stream, ctypes.byref(value), 10, 2))
        acl.call("aclrtSynchronizeStream", stream)
    assert seen == [(11, 77)]
    assert value.value == 112


@pytest.mark.parametrize("block", [True, False])
def test_a_callback_runs_in_the_subscribed_thread(acl, block):
    threads, called = [], threading.Event()

    def function(_):
        threads.append(threading.get_ident())
        called.set()

    callback = acl.Callback(function)
    with acl.stream() as stream, Subscriber(acl) as subscriber:
        acl.call("aclrtSubscribeReport", subscriber.ident, stream)
        acl.call("aclrtLaunchCallback", callback, None, int(block), stream)
        acl.call("aclrtSynchronizeStream", stream)
        if block:
            assert called.is_set()
        assert called.wait(10)
        acl.call("aclrtUnSubscribeReport", subscriber.ident, stream)
    assert threads == [subscriber.ident]


def test_a_callback_without_a_subscriber_is_rejected(acl):
    with acl.stream() as stream, pytest.raises(acl.AclError, match="aclrtSubscribeReport") as failure:
        acl.call("aclrtLaunchCallback", acl.Callback(lambda _: None), None, 1, stream)
    assert failure.value.code == acl.RT_STREAM_NO_CB_REG


def test_ending_the_subscription_frees_a_stream_that_waits_for_its_callback(acl):
    with acl.stream() as stream:
        nobody = 123456
        callback = acl.Callback(lambda _: None)
        acl.call("aclrtSubscribeReport", nobody, stream)
        acl.call("aclrtLaunchCallback", callback, None, 1, stream)
        with pytest.raises(acl.AclError):
            acl.call("aclrtSynchronizeStreamWithTimeout", stream, 20)
        acl.call("aclrtUnSubscribeReport", nobody, stream)
        with pytest.raises(acl.AclError, match=r"the subscription ended before the function was called|no thread"):
            acl.call("aclrtSynchronizeStream", stream)
        acl.call("aclrtSynchronizeStream", stream)


def test_a_stream_has_one_subscriber(acl):
    with acl.stream() as stream:
        acl.call("aclrtSubscribeReport", 1, stream)
        with pytest.raises(acl.AclError, match="has a subscriber already"):
            acl.call("aclrtSubscribeReport", 2, stream)
        with pytest.raises(acl.AclError, match="thread 2 is not subscribed"):
            acl.call("aclrtUnSubscribeReport", 2, stream)
        acl.call("aclrtUnSubscribeReport", 1, stream)


def test_processing_reports_ends_with_the_timeout(acl):
    with pytest.raises(acl.AclError, match="subscribed to no stream"):
        acl.call("aclrtProcessReport", 1)
    with acl.stream() as stream:
        acl.call("aclrtSubscribeReport", threading.get_ident(), stream)
        with pytest.raises(acl.AclError) as failure:
            acl.call("aclrtProcessReport", 1)
        assert failure.value.code == acl.RT_REPORT_TIMEOUT
        acl.call("aclrtUnSubscribeReport", threading.get_ident(), stream)


@pytest.mark.timeout(60)
def test_a_thread_whose_streams_ended_between_two_calls_does_not_wait(acl):
    called = []
    callback = acl.Callback(called.append)
    with acl.stream() as stream:
        acl.call("aclrtSubscribeReport", threading.get_ident(), stream)
        acl.call("aclrtLaunchCallback", callback, 7, 1, stream)
        acl.call("aclrtProcessReport", -1)
    assert called == [7]
    with pytest.raises(acl.AclError, match="subscribed to no stream"):
        acl.call("aclrtProcessReport", -1)


def test_null_functions_are_rejected(acl):
    with acl.stream() as stream, pytest.raises(acl.AclError, match="fn is null"):
        acl.call("aclrtLaunchHostFunc", stream, None, None)


def test_host_functions_and_callbacks_do_not_mix_on_a_stream(acl):
    function, nobody = acl.Callback(lambda _: None), 123456
    with acl.stream() as stream, acl.stream() as other:
        acl.call("aclrtSubscribeReport", nobody, stream)
        with pytest.raises(acl.AclError, match="has a subscriber") as failure:
            acl.call("aclrtLaunchHostFunc", stream, function, None)
        assert failure.value.code == 107011
        acl.call("aclrtUnSubscribeReport", nobody, stream)
        acl.call("aclrtLaunchHostFunc", other, function, None)
        with pytest.raises(acl.AclError, match="has had host functions") as failure:
            acl.call("aclrtSubscribeReport", nobody, other)
        assert failure.value.code == 107011


def test_a_thread_subscribes_to_streams_of_one_device(acl):
    nobody = 123456
    with acl.stream() as stream:
        acl.call("aclrtSetDevice", 1)
        with acl.stream() as other:
            acl.call("aclrtSubscribeReport", nobody, stream)
            with pytest.raises(acl.AclError, match="is subscribed to streams of device 0") as failure:
                acl.call("aclrtSubscribeReport", nobody, other)
            assert failure.value.code == 107012
            acl.call("aclrtUnSubscribeReport", nobody, stream)
        acl.call("aclrtSetDevice", 0)


def test_a_thread_without_a_subscription_hears_so_at_once(acl):
    begin = time.monotonic()
    with pytest.raises(acl.AclError, match="is subscribed to no stream") as failure:
        acl.call("aclrtProcessReport", 20_000)
    assert failure.value.code == 107012 and time.monotonic() - begin < 10
    with pytest.raises(acl.AclError, match="timeout is 0") as failure:
        acl.call("aclrtProcessReport", 0)
    assert failure.value.code == acl.INVALID_PARAM
