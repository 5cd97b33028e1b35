# SPDX-License-Identifier: Apache-2.0
"""libascendcl.so as Python sees it: every call checked, handles and memory made and given back by context managers."""

import ctypes
import os
from contextlib import contextmanager, suppress

from cann_cpu import activation

INVALID_PARAM = 100000
REPEAT_INITIALIZE = 100002
OP_NOT_FOUND = 100024
FEATURE_UNSUPPORTED = 200006
RT_PARAM_INVALID = 107000
RT_INVALID_DEVICEID = 107001
RT_CONTEXT_NULL = 107002
RT_STREAM_CONTEXT = 107003
RT_EVENT_TIMESTAMP_INVALID = 107006
RT_STREAM_NO_CB_REG = 107015
RT_INVALID_HANDLE = 107017
RT_STREAM_UNJOINED = 107025
RT_MODEL_CAPTURED = 107026
RT_STREAM_CAPTURED = 107027
RT_EVENT_CAPTURED = 107028
RT_STREAM_NOT_CAPTURED = 107029
RT_CAPTURE_MODE_NOT_SUPPORT = 107030
RT_STREAM_CAPTURE_IMPLICIT = 107031
STREAM_TASK_GROUP_STATUS = 107033
STREAM_TASK_GROUP_INTR = 107034
RT_STREAM_CAPTURE_UNMATCHED = 107036
RT_STREAM_CAPTURE_WRONG_THREAD = 107038
RT_CAPTURE_MODE_BLOCK_ASYNC = 107041
RT_FEATURE_NOT_SUPPORT = 207000
RT_MEMORY_ALLOCATION = 207001
RT_NO_STREAM_RESOURCE = 207008
RT_INTERNAL_ERROR = 507000
RT_EVENT_NOT_COMPLETE = 507006
RT_TASK_TYPE_NOT_SUPPORT = 507009
RT_REPORT_TIMEOUT = 507012
RT_STREAM_SYNC_TIMEOUT = 507046
RT_EVENT_SYNC_TIMEOUT = 507047
RT_STREAM_CAPTURE_INVALIDATED = 507903

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)
HBM = 1
OPT_DETERMINISTIC = 0
EVENT_SYNC, EVENT_CAPTURE_STREAM_PROGRESS, EVENT_TIME_LINE = 0x1, 0x2, 0x8  # they may be combined
EVENT_DEVICE_USE_ONLY, EVENT_EXTERNAL, EVENT_IPC = 0x10, 0x20, 0x40
CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED = range(3)
CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED = range(3)

# Loaded here by its path, the library would look like a CANN of the machine's to a later import of torch_npu.
os.environ.setdefault("ASCEND_HOME_PATH", activation.HOME)
library = ctypes.CDLL(os.path.join(activation.LIBRARIES, "libascendcl.so"))
op_compiler = ctypes.CDLL(os.path.join(activation.LIBRARIES, "libacl_op_compiler.so"))
library.aclGetRecentErrMsg.restype = ctypes.c_char_p

Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class AclError(Exception):
    """A call that failed: its code and the message it left."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


def status(function, *arguments):
    """Calls without a check. Integers and addresses go as 64 bits, which every parameter of ACL accepts."""
    return function(*(ctypes.c_int64(a) if isinstance(a, int) else a for a in arguments))


def check(code):
    if code != 0:
        message = library.aclGetRecentErrMsg()
        raise AclError(code, message.decode() if message else "")


def call(name, *arguments):
    check(status(getattr(library, name), *arguments))


def get(name, kind, *arguments):
    """Calls a function whose last parameter is a pointer to its result."""
    result = kind()
    call(name, *arguments, ctypes.byref(result))
    return result.value


def make(name, *arguments):
    """Calls a function whose first parameter is a pointer to its result, an address or handle."""
    result = ctypes.c_void_p()
    call(name, ctypes.byref(result), *arguments)
    return result.value


@contextmanager
def _released_by(name, value):
    try:
        yield value
    finally:
        with suppress(AclError):
            call(name, value)


def stream(flags=0):
    return _released_by("aclrtDestroyStreamForce", make("aclrtCreateStreamWithConfig", 0, flags))


_devices = {}


def make_stream_on(device):
    call("aclrtSetDevice", device)
    made = make("aclrtCreateStream")
    _devices[made] = device
    return made


def use(stream):
    """Sets the device that make_stream_on() made the stream on: only threads of its context may use it."""
    call("aclrtSetDevice", _devices[stream])


def event(flags=EVENT_SYNC | EVENT_TIME_LINE):
    return _released_by("aclrtDestroyEvent", make("aclrtCreateEventExWithFlag", flags))


def flag_event():
    """An event of the older kind: set by a record, cleared by a reset."""
    return _released_by("aclrtDestroyEvent", make("aclrtCreateEventWithFlag", EVENT_SYNC))


def external_event():
    return _released_by("aclrtDestroyEvent", make("aclrtCreateEventWithFlag", EVENT_EXTERNAL))


def device_memory(size):
    return _released_by("aclrtFree", make("aclrtMallocAlign32", size, 0))


def pinned_memory(size):
    return _released_by("aclrtFreeHost", make("aclrtMallocHost", size))


def memory_info():
    """Free and total bytes of the current device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("aclrtGetMemInfo", HBM, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def write(address, data):
    """Writes to memory of the host or of a device."""
    call("aclrtMemcpy", address, len(data), data, len(data), DEFAULT)


def read(address, size):
    buffer = ctypes.create_string_buffer(size)
    call("aclrtMemcpy", buffer, size, address, size, DEFAULT)
    return buffer.raw


def capture_status(stream):
    state, graph = ctypes.c_int(-1), ctypes.c_void_p()
    call("aclmdlRICaptureGetInfo", stream, ctypes.byref(state), ctypes.byref(graph))
    return state.value, graph.value
