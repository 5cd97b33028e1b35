# SPDX-License-Identifier: Apache-2.0
"""Tasks in Python: functions that run on a stream of torch_npu, in the order of its operators.

    from cann_cpu import python_task

    python_task.launch("scale", lambda: numpy.multiply(x, 2, out=y), [(x_address, 64, False), (y_address, 64, True)])

A task runs in the stream's thread, with the GIL, and without Python's garbage collector: what it frees may wait for the
stream. A captured graph records the task, and each replay runs it again.
"""

import atexit
import ctypes
import functools
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Sequence

Access = tuple[int, int, bool]
"""An address, a number of bytes, and whether they are written."""

# Files of these are not the user's.
_TRITON = tuple(f"/triton/{part}/" for part in ("runtime", "compiler", "backends", "language"))
_LIBRARIES = (
    "/torch/",
    "/torch_npu/",
    "/torchair/",
    *_TRITON,
    os.path.dirname(__file__),
    "<frozen ",
    "<eval_with_key>",
)


class _Access(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("is_write", ctypes.c_bool))


_functions: dict[int, tuple[Callable[[], object], str]] = {}
_numbers = itertools.count(1)
_devices: set[int] = set()


def launch(
    name: str, function: Callable[[], object], accesses: Sequence[Access] = (), location: str | None = None
) -> None:
    """Lets the current stream of the current device run a function after all work that it was given.

    `name` is the kernel's in errors, profiles and checks. `accesses` is the memory that it reads and writes, for the
    checks (docs/checks.md). `location` is the line of the launch for errors; by default it is the caller's. What the
    function raises becomes an error of the stream: the next synchronisation raises it, with the name and the line.

    Raises:
        RuntimeError: the runtime in use is not cann_cpu, or it rejects the launch.
    """
    __tracebackhide__ = True  # the checks name the caller's line
    library = _library()
    import torch
    import torch_npu

    while ended := library.cann_cpu_take_ended_python_function():
        del _functions[ended]
    # Asking for the handle waits until torch_npu's task queue has given its operators to the stream.
    device = torch.npu.current_device()
    stream = torch_npu._C._npu_getCurrentRawStream(device)
    _devices.add(device)
    number = next(_numbers)
    _functions[number] = function, location or call_site()
    memory = (_Access * len(accesses))(*accesses)
    if library.cann_cpu_launch_python_task(stream, name.encode(), number, _run, memory, len(accesses)):
        raise RuntimeError(f"{name} was not launched: {library.aclGetRecentErrMsg().decode()}")


def call_site() -> str:
    """The line of the innermost frame that is the user's: "model.py:12 in forward"."""
    frame = sys._getframe(1)
    while _is_librarys(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _is_librarys(file: str) -> bool:
    return any(part in file for part in _LIBRARIES)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)
def _run(number: int) -> int:
    function, location = _functions[number]
    try:
        function()
    except BaseException as error:
        return fail(error, location)
    return 0


def fail(error: BaseException, location: str | None = None) -> int:
    """Sets the error of the task that the thread runs, and gives its code."""
    launched = f", launched at {location}" if location else ""
    return _library().cann_cpu_python_task_failed(f"{_described(error)}{launched}".encode())


def expect() -> None:
    """Lets threads that wait for a stream give the GIL away: its tasks may need it."""
    _library().cann_cpu_expect_python_tasks()


def _described(error: BaseException) -> str:
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_librarys(frame.filename)]
    return f"{text}, at {own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else text


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libascendcl.so")
    if not hasattr(library, "cann_cpu_launch_python_task"):
        raise RuntimeError("tasks in Python need cann_cpu; this process uses another CANN (python -m cann_cpu info)")
    library.cann_cpu_launch_python_task.argtypes = (
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_uint64,
        type(_run),
        ctypes.POINTER(_Access),
        ctypes.c_size_t,
    )
    library.cann_cpu_take_ended_python_function.restype = ctypes.c_uint64
    library.aclGetRecentErrMsg.restype = ctypes.c_char_p
    atexit.register(_finish)
    return library


def _finish() -> None:
    """Before Python ends: later, no task gets the GIL. Errors are those of whoever has not asked for them."""
    import torch

    for device in _devices:
        try:
            torch.npu.synchronize(device)
        except RuntimeError as error:
            print(f"npu:{device}: {error}", file=sys.stderr)
