# SPDX-License-Identifier: Apache-2.0
"""Handles: one that was destroyed is rejected, whatever is created after it."""

import ctypes
from contextlib import contextmanager

import pytest

GRANULE = 2 << 20


def captured(acl):
    with acl.stream() as stream:
        acl.call("aclmdlRICaptureBegin", stream, 0)
        return acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, stream)


def physical(acl):
    property_ = (ctypes.c_uint32 * 8)()  # of the device 0, in huge pages
    property_[2], property_[4] = 4, 1
    return acl.make("aclrtMallocPhysical", GRANULE, property_, 0)


def context(acl):
    made = acl.make("aclrtCreateContext", 0)
    acl.call("aclrtSetDevice", 0)
    return made


def binary(acl):
    acl.library.aclrtCreateBinary.restype = ctypes.c_void_p
    return acl.library.aclrtCreateBinary(b"kernels", ctypes.c_size_t(7))


INT = ctypes.c_int32
KINDS = {
    "stream": (lambda acl: acl.make("aclrtCreateStream"), "aclrtDestroyStream", ("aclrtStreamGetId", INT())),
    "stream ended by force": (
        lambda acl: acl.make("aclrtCreateStream"),
        "aclrtDestroyStreamForce",
        ("aclrtStreamQuery", INT()),
    ),
    "event": (lambda acl: acl.make("aclrtCreateEvent"), "aclrtDestroyEvent", ("aclrtQueryEventStatus", INT())),
    "context": (context, "aclrtDestroyContext", ("aclrtSetCurrentContext", None)),
    "captured graph": (captured, "aclmdlRIDestroy", ("aclmdlRIGetId", INT())),
    "physical memory": (physical, "aclrtFreePhysical", None),
    "binary": (binary, "aclrtDestroyBinary", ("aclrtBinaryLoad", ctypes.c_void_p())),
}


@contextmanager
def rejecting(acl, handle):
    with pytest.raises(acl.AclError, match=rf"0x{handle:x} is not a valid ") as failure:
        yield
    assert failure.value.code == acl.RT_INVALID_HANDLE


@pytest.mark.parametrize("kind", KINDS)
def test_a_destroyed_handle_is_never_given_again(acl, kind):
    make, destroy, use = KINDS[kind]
    dead = make(acl)
    acl.call(destroy, dead)
    live = []
    for _ in range(40):
        live.append(make(acl))
        with rejecting(acl, dead):
            acl.call(destroy, dead)
        if use is not None:
            with rejecting(acl, dead):
                acl.call(use[0], dead, *([] if use[1] is None else [ctypes.byref(use[1])]))
        if len(live) > 3:
            acl.call(destroy, live.pop(0))
    assert len({*live, dead}) == len(live) + 1
    for handle in live:
        acl.call(destroy, handle)


def test_what_was_captured_of_a_stream_that_is_gone_is_not_of_a_new_one(acl, tasks):
    seen = ctypes.c_int64(0)
    old = acl.make("aclrtCreateStream")
    acl.call("aclmdlRICaptureBegin", old, 0)
    acl.check(acl.status(tasks.launch_increment, old, ctypes.byref(seen)))
    graph = acl.get("aclmdlRICaptureEnd", ctypes.c_void_p, old)
    acl.call("aclrtDestroyStream", old)
    with acl.stream() as new:
        assert new != old
        acl.call("aclmdlRIExecuteAsync", graph, new)
        acl.call("aclrtSynchronizeStream", new)
        with rejecting(acl, old):
            acl.call("aclmdlRIExecuteAsync", graph, old)
    assert seen.value == 1
    acl.call("aclmdlRIDestroy", graph)


def test_the_current_context_is_known_by_the_handle_that_set_it(acl):
    made = acl.make("aclrtCreateContext", 1)
    assert acl.get("aclrtGetCurrentContext", ctypes.c_void_p) == made
    acl.call("aclrtSetDevice", 0)
    primary = acl.get("aclrtGetCurrentContext", ctypes.c_void_p)
    assert primary != made
    acl.call("aclrtSetCurrentContext", primary)
    acl.call("aclrtDestroyContext", made)


def test_null_makes_no_binary_and_is_none(acl):
    acl.library.aclrtCreateBinary.restype = ctypes.c_void_p
    assert acl.library.aclrtCreateBinary(None, ctypes.c_size_t(7)) is None
    with pytest.raises(acl.AclError, match="binary is null"):
        acl.call("aclrtDestroyBinary", None)
