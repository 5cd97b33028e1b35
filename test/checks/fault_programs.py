# SPDX-License-Identifier: Apache-2.0
"""Programs for the check `fault`, which call CANN by ctypes as a C++ program does: what each does of a failing call.

The marked line of a wrong program is the call that it does not take well when it fails, in the way that WRONG has.
"""

import contextlib
import ctypes
import sys
import tempfile
from pathlib import Path

acl = ctypes.CDLL("libascendcl.so") if __name__ == "__main__" else None
hccl = ctypes.CDLL("libhccl.so") if __name__ == "__main__" else None
SIZE = 1 << 20
EIGHT_BYTES = ctypes.c_uint64(8), 0, 0  # the sum of so many elements of int8
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
WRONG, RIGHT = {}, []


def wrong(outcome, fault):
    def add(function):
        WRONG[function.__name__] = (outcome, fault)
        return function

    return add


def right(function):
    RIGHT.append(function.__name__)
    return function


class AclError(Exception):
    pass


def checked(code):
    if code != 0:
        raise AclError(code)


def pointer(function, *rest):
    """What a function gives by its first argument; null where it fails and nobody looks."""
    made = ctypes.c_void_p()
    checked(function(ctypes.byref(made), *rest))
    return made


# ---- wrong


@wrong("silently wrong", "aclrtMemcpy:2")
def ignores_the_code_of_a_copy():
    memory, buffer = pointer(acl.aclrtMalloc, SIZE, 0), ctypes.create_string_buffer(b"a" * 8, 8)
    acl.aclrtMemcpy(memory, 8, buffer, 8, HOST_TO_DEVICE)
    found = ctypes.create_string_buffer(8)
    acl.aclrtMemcpy(found, 8, memory, 8, DEVICE_TO_HOST)  # here
    print(found.raw)
    acl.aclrtFree(memory)


@wrong("silently wrong", "aclrtMemset:2")
def passes_over_every_exception():
    memory, found = pointer(acl.aclrtMalloc, SIZE, 0), ctypes.create_string_buffer(8)
    checked(acl.aclrtMemset(memory, 8, 1, 8))
    with contextlib.suppress(Exception):
        checked(acl.aclrtMemset(memory, 8, 2, 8))  # here
    checked(acl.aclrtMemcpy(found, 8, memory, 8, DEVICE_TO_HOST))
    print(found.raw)
    acl.aclrtFree(memory)


@wrong("silently wrong", "stream")
def waits_without_looking_at_the_code():
    memory, found = pointer(acl.aclrtMalloc, SIZE, 0), ctypes.create_string_buffer(8)
    stream = pointer(acl.aclrtCreateStream)
    checked(acl.aclrtMemsetAsync(memory, 8, 3, 8, stream))  # here
    acl.aclrtSynchronizeStream(stream)
    acl.aclrtDestroyStream(stream)
    checked(acl.aclrtMemcpy(found, 8, memory, 8, DEVICE_TO_HOST))
    print(found.raw == b"\x03" * 8)
    acl.aclrtFree(memory)


@wrong("silently wrong", "aclrtSynchronizeStream")
def reads_before_the_end_when_waiting_fails():
    stream, function = pointer(acl.aclrtCreateStream), ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    found = []

    def late(_):
        import time

        time.sleep(0.3)
        found.append(1)

    callback = function(late)
    checked(acl.aclrtLaunchHostFunc(stream, callback, None))
    acl.aclrtSynchronizeStream(stream)  # here
    print(found)
    acl.aclrtSynchronizeStream(stream)
    acl.aclrtDestroyStream(stream)


@wrong("hanging", "aclrtMalloc:1")
def tries_again_for_ever():
    memory, size = ctypes.c_void_p(), ctypes.c_size_t(SIZE)
    if acl.aclrtMalloc(ctypes.byref(memory), size, 0) != 0:  # here
        while memory.value is None:
            pass
    acl.aclrtFree(memory)


@wrong("hanging", "aclrtRecordEvent")
def waits_for_an_event_that_was_not_recorded():
    event, stream = pointer(acl.aclrtCreateEventWithFlag, 0x8), pointer(acl.aclrtCreateStream)
    stamp = ctypes.c_uint64()
    acl.aclrtRecordEvent(event, stream)  # here
    while acl.aclrtEventGetTimestamp(event, ctypes.byref(stamp)) != 0:
        pass
    acl.aclrtDestroyEvent(event)
    acl.aclrtDestroyStream(stream)


@wrong("crashed", "aclrtMallocHost")
def writes_to_memory_that_it_did_not_get():
    memory = ctypes.c_void_p()
    acl.aclrtMallocHost(ctypes.byref(memory), ctypes.c_size_t(SIZE))  # here
    ctypes.memset(memory, 1, SIZE)
    acl.aclrtFreeHost(memory)


@wrong("crashed", "aclrtMalloc")
def aborts():
    memory = ctypes.c_void_p()
    if acl.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(SIZE), 0) != 0:  # here
        import os

        os.abort()
    acl.aclrtFree(memory)


@wrong("leaking", "aclrtMalloc:2")
def keeps_the_first_buffer_when_the_second_fails():
    one = pointer(acl.aclrtMalloc, SIZE, 0)
    two = ctypes.c_void_p()
    checked(acl.aclrtMalloc(ctypes.byref(two), ctypes.c_size_t(SIZE), 0))  # here
    acl.aclrtFree(two)
    acl.aclrtFree(one)


@wrong("leaking", "aclrtMemcpy")
def returns_past_the_clean_up():
    stream, memory = pointer(acl.aclrtCreateStream), pointer(acl.aclrtMalloc, SIZE, 0)
    code = acl.aclrtMemcpy(memory, 8, ctypes.create_string_buffer(8), 8, HOST_TO_DEVICE)  # here
    if code != 0:
        print(f"copy failed: {code}", file=sys.stderr)
        return
    acl.aclrtFree(memory)
    acl.aclrtDestroyStream(stream)


@wrong("leaking", "aclrtSynchronizeStream")
def forgets_the_event_after_a_failed_wait():
    event, stream = pointer(acl.aclrtCreateEvent), pointer(acl.aclrtCreateStream)
    try:
        checked(acl.aclrtRecordEvent(event, stream))
        checked(acl.aclrtSynchronizeStream(stream))  # here
        checked(acl.aclrtDestroyEvent(event))
    finally:
        acl.aclrtDestroyStream(stream)


@wrong("silently wrong", "aclrtMemcpyAsync:2")
def goes_on_with_half_of_an_update():
    memory, found = pointer(acl.aclrtMalloc, SIZE, 0), ctypes.create_string_buffer(16)
    stream, state = pointer(acl.aclrtCreateStream), {"length": 0}
    for part in range(2):
        state["length"] += 8
        data = ctypes.create_string_buffer(bytes([part + 1]) * 8, 8)
        to = ctypes.c_void_p(memory.value + 8 * part)
        if acl.aclrtMemcpyAsync(to, 8, data, 8, HOST_TO_DEVICE, stream) != 0:  # here
            break
    checked(acl.aclrtSynchronizeStream(stream))
    checked(acl.aclrtMemcpy(found, state["length"], memory, state["length"], DEVICE_TO_HOST))
    print(found.raw[-1])
    acl.aclrtFree(memory)
    acl.aclrtDestroyStream(stream)


@wrong("silently wrong", "disk")
def believes_that_a_file_was_written():
    stream, memory = pointer(acl.aclrtCreateStream), pointer(acl.aclrtMalloc, SIZE, 0)
    graph = ctypes.c_void_p()
    checked(acl.aclmdlRICaptureBegin(stream, 0))
    checked(acl.aclrtMemsetAsync(memory, 8, 3, 8, stream))
    checked(acl.aclmdlRICaptureEnd(stream, ctypes.byref(graph)))
    with tempfile.NamedTemporaryFile() as file:
        acl.aclmdlRIDebugJsonPrint(graph, file.name.encode(), 0)  # here
        print(file.read())
    acl.aclmdlRIDestroy(graph)
    acl.aclrtFree(memory)
    acl.aclrtDestroyStream(stream)


def second_half(memory):
    return ctypes.c_void_p(memory.value + 8)


def communicator():
    """A communicator of one rank."""
    return pointer(lambda made: hccl.HcclCommInitAll(1, (ctypes.c_int32 * 1)(0), made))


@wrong("silently wrong", "HcclAllReduce")
def ignores_the_code_of_a_collective():
    comm, memory, found = communicator(), pointer(acl.aclrtMalloc, SIZE, 0), ctypes.create_string_buffer(16)
    checked(acl.aclrtMemset(memory, 8, 1, 8) or acl.aclrtMemset(second_half(memory), 8, 0, 8))
    hccl.HcclAllReduce(memory, second_half(memory), *EIGHT_BYTES, comm, None)  # here
    checked(acl.aclrtSynchronizeDevice())
    checked(acl.aclrtMemcpy(found, 16, memory, 16, DEVICE_TO_HOST))
    print(found.raw)
    checked(hccl.HcclCommDestroy(comm) or acl.aclrtFree(memory))


@wrong("leaking", "HcclBroadcast")
def keeps_the_communicator_when_a_collective_fails():
    comm, memory = communicator(), pointer(acl.aclrtMalloc, SIZE, 0)
    try:
        checked(hccl.HcclBroadcast(memory, ctypes.c_uint64(8), 0, 0, comm, None))  # here
        checked(hccl.HcclCommDestroy(comm))
    finally:
        acl.aclrtFree(memory)


@wrong("hanging", "HcclCommInitAll")
def waits_for_a_communicator_that_was_not_made():
    comm = ctypes.c_void_p()
    hccl.HcclCommInitAll(1, (ctypes.c_int32 * 1)(0), ctypes.byref(comm))  # here
    while comm.value is None:
        pass
    hccl.HcclCommDestroy(comm)


# ---- right: whichever call fails


@right
def gives_back_what_it_has():
    got = []
    try:
        got.append((acl.aclrtDestroyStream, pointer(acl.aclrtCreateStream)))
        got.append((acl.aclrtFree, pointer(acl.aclrtMalloc, SIZE, 0)))
        found, (_, memory), (_, stream) = ctypes.create_string_buffer(8), got[1], got[0]
        checked(acl.aclrtMemsetAsync(memory, 8, 3, 8, stream))
        checked(acl.aclrtSynchronizeStream(stream))
        checked(acl.aclrtMemcpy(found, 8, memory, 8, DEVICE_TO_HOST))
        print(found.raw)
    finally:
        for give_back, handle in reversed(got):
            if give_back(handle) != 0:
                checked(give_back(handle))


@right
def reduces_and_gives_back():
    comm, memory = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        checked(hccl.HcclCommInitAll(1, (ctypes.c_int32 * 1)(0), ctypes.byref(comm)))
        checked(acl.aclrtMalloc(ctypes.byref(memory), SIZE, 0))
        found = ctypes.create_string_buffer(8)
        checked(acl.aclrtMemset(memory, 8, 3, 8))
        checked(hccl.HcclAllReduce(memory, memory, *EIGHT_BYTES, comm, None))
        checked(acl.aclrtSynchronizeDevice())
        checked(acl.aclrtMemcpy(found, 8, memory, 8, DEVICE_TO_HOST))
        print(found.raw)
    finally:
        if comm and hccl.HcclCommDestroy(comm) != 0:
            hccl.HcclCommDestroy(comm)
        if memory and acl.aclrtFree(memory) != 0:
            acl.aclrtFree(memory)


@right
def tries_again_once():
    memory = ctypes.c_void_p()
    for _ in range(2):
        if acl.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(SIZE), 0) == 0:
            break
    else:
        raise AclError("no memory")
    checked(acl.aclrtFree(memory) and acl.aclrtFree(memory))
    print("done")


def line_of(name) -> str:
    code, lines = globals()[name].__code__, Path(__file__).read_text().splitlines()
    number = next(n for n in range(code.co_firstlineno, len(lines) + 1) if lines[n - 1].endswith("  # here"))
    return f"{__file__}:{number} in {name}"


if __name__ == "__main__":
    checked(acl.aclInit(None))
    checked(acl.aclrtSetDevice(0))
    globals()[sys.argv[1]]()
