# SPDX-License-Identifier: Apache-2.0
"""Compiles Ascend C kernels with g++ and runs them on arrays: what `python -m cann_cpu kernel` does, for programs.

    from cann_cpu.kernel import KernelFile

    scale = KernelFile("scale.cpp")["scale"]
    scale(x, y, len(x), blocks=2)  # numpy arrays or torch tensors, which the kernel reads and writes where they lie

What a kernel does wrong raises KernelError with file, line, kernel, block, reason and what to do.
"""

import ctypes
import json
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .activation import LIBRARIES, choose
from .ascendc.compiler import LINKED, CompileError, Source

CHECKS_OFF, CHECKS_ON = 1, 2
_SHARED = ("-shared", "-Wl,--as-needed", *LINKED, f"-Wl,-rpath,{LIBRARIES}")


class KernelError(RuntimeError):
    """A kernel does not compile, or did something that hardware would not forgive."""


class _DeviceBuffer(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("name", ctypes.c_char_p))


class _Profile(ctypes.Structure):
    _fields_ = (("summary", ctypes.c_char_p), ("timeline", ctypes.c_char_p))


class _Call(ctypes.Structure):
    _fields_ = (
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("buffers", ctypes.POINTER(_DeviceBuffer)),
        ("buffer_count", ctypes.c_size_t),
        ("written", ctypes.POINTER(ctypes.c_size_t)),
        ("tiling_key", ctypes.c_uint64),
        ("blocks", ctypes.c_uint32),
        ("checks", ctypes.c_uint8),
        ("profile", ctypes.POINTER(_Profile)),
        ("contexts", ctypes.c_void_p * 2),
    )


class _Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("parameters", ctypes.c_char_p),
        ("letters", ctypes.c_char_p),
        ("sizes", ctypes.POINTER(ctypes.c_uint32)),
    )


_NUMBERS = {
    "?": ctypes.c_bool,
    "b": ctypes.c_int8,
    "B": ctypes.c_uint8,
    "h": ctypes.c_int16,
    "H": ctypes.c_uint16,
    "i": ctypes.c_int32,
    "I": ctypes.c_uint32,
    "q": ctypes.c_int64,
    "Q": ctypes.c_uint64,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}


@dataclass(frozen=True)
class _Memory:
    address: int
    bytes: int


def _is_tensor(array) -> bool:
    return hasattr(array, "data_ptr")


def _memory(name: str, array) -> _Memory:
    """Where the elements of a numpy array or a torch tensor lie."""
    if _is_tensor(array):
        if array.device.type not in ("cpu", "npu") or not array.is_contiguous():
            raise KernelError(f"{name} must be a contiguous tensor on the CPU, or on an NPU that cann_cpu serves")
        return _Memory(array.data_ptr(), array.numel() * array.element_size())
    if hasattr(array, "__array_interface__"):
        if not array.flags.c_contiguous:
            raise KernelError(f"{name} must be a contiguous array")
        return _Memory(array.ctypes.data, array.nbytes)
    raise KernelError(f"{name} is an address; give a numpy array, a torch tensor or None, not {type(array).__name__}")


def _number(kernel: str, name: str, letter: str, value) -> ctypes._SimpleCData:
    """A Python number as a parameter of the kernel."""
    kind = _NUMBERS[letter]
    try:
        number = kind(value)
    except TypeError:
        raise KernelError(f"{kernel}: {name} is a number, not {type(value).__name__}") from None
    if letter not in "?fd" and number.value != value:
        raise KernelError(f"{kernel}: {name} is {value}, which its type, of {ctypes.sizeof(kind)} bytes, does not have")
    return number


def _struct(kernel: str, name: str, size: int, value) -> ctypes.Array:
    """A numpy array of one element as a struct that the kernel takes by value."""
    if getattr(value, "nbytes", None) != size:
        given = f"one of {value.nbytes}" if hasattr(value, "nbytes") else type(value).__name__
        raise KernelError(f"{kernel}: {name} is a struct of {size} bytes; give a numpy array of as many, not {given}")
    return (ctypes.c_char * size).from_buffer_copy(value.tobytes())


def _wait_for_npu(arguments) -> bool:
    """Until what uses the npu tensors among the arguments has been done; whether there are any."""
    devices = {argument.device for argument in arguments if _is_tensor(argument) and argument.device.type == "npu"}
    if devices and choose().cann != "cpu":
        raise KernelError("tensors of a real NPU cannot be given to a kernel on the CPU; call .cpu() on them first")
    for device in devices:
        sys.modules["torch"].npu.synchronize(device)
    return bool(devices)


class Kernel:
    """One kernel of a file. Call it with its arguments in their order; arrays are read and written where they lie."""

    def __init__(self, library: ctypes.CDLL, name: str):
        self.name = name
        describe = getattr(library, f"ascendc_cpu_kernel_{name}")
        describe.restype = ctypes.POINTER(_Entry)
        entry = describe().contents
        self._letters = entry.letters.decode()
        self._sizes = entry.sizes[: len(self._letters)]
        self.parameters = tuple(filter(None, entry.parameters.decode().split(",")))
        self.written: dict[str, tuple[int, int]] = {}
        """How many bytes of each array the last call wrote, and how many there are, if it was checked."""
        self.profile: dict = {}
        """What the last call costs by the model of docs/ascendc_cost.md, if it was to be profiled."""
        self._function = getattr(library, f"ascendc_cpu_call_{name}")
        self._function.restype = ctypes.c_bool

    def __call__(
        self,
        *arguments,
        blocks: int = 1,
        checks: bool = True,
        tiling_key: int = 0,
        profile: bool = False,
        timeline: str | os.PathLike | None = None,
    ) -> None:
        """Runs the kernel in `blocks` blocks; KernelError, unless it returns from all of them without an error.

        Arguments for addresses are contiguous numpy arrays or torch tensors, or None for the null pointer; for numbers
        Python's numbers; for structs numpy arrays of one element. Tensors may lie on an NPU that cann_cpu serves: the
        call then waits for the device, and the kernel is a task of the default stream. With `profile` the call fills in
        Kernel.profile, and with `timeline` it also writes a Chrome trace to that file. Both are generated from the
        checks' records.
        """
        __tracebackhide__ = True  # the caller's line is what the checks of whole programs name
        if (profile or timeline) and not checks:
            raise KernelError(f"{self.name}: a profile is generated from the checks' records; call it with checks")
        if len(arguments) != len(self.parameters):
            expected = f"{len(self.parameters)} arguments ({', '.join(self.parameters)})"
            raise KernelError(f"{self.name} takes {expected}, but {len(arguments)} were given")
        if blocks < 1:
            raise KernelError(f"{self.name}: blocks must be at least 1, but is {blocks}")
        values, buffers = [], []
        for name, letter, size, argument in zip(self.parameters, self._letters, self._sizes, arguments, strict=True):
            if letter == "s":
                values.append(_struct(self.name, name, size, argument))
            elif letter != "p":
                values.append(_number(self.name, name, letter, argument))
            elif argument is None:
                values.append(ctypes.c_void_p())
                buffers.append(_DeviceBuffer(None, 0, name.encode()))
            else:
                memory = _memory(name, argument)
                values.append(ctypes.c_void_p(memory.address))
                buffers.append(_DeviceBuffer(memory.address, memory.bytes, name.encode()))
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        written = (ctypes.c_size_t * (len(buffers) + 1))()
        call = _Call(
            pointers,
            (_DeviceBuffer * (len(buffers) + 1))(*buffers),  # never empty: nothing but these may be touched
            len(buffers),
            written,
            tiling_key,
            blocks,
            CHECKS_ON if checks else CHECKS_OFF,
        )
        on_npu = _wait_for_npu(arguments)
        self.written, self.profile = {}, {}
        if profile or timeline:
            with tempfile.NamedTemporaryFile(suffix=".json") as summary:
                trace = os.fsencode(Path(timeline).resolve()) if timeline else None
                call.profile = ctypes.pointer(_Profile(os.fsencode(summary.name), trace))
                self._run(call, on_npu)
                self.profile = json.load(summary)
        else:
            self._run(call, on_npu)
        if checks:
            pairs = zip(buffers, written, strict=False)
            self.written = {buffer.name.decode(): (count, buffer.bytes) for buffer, count in pairs}

    def _run(self, call: _Call, on_npu: bool) -> None:
        __tracebackhide__ = True
        error = ctypes.create_string_buffer(4096)
        arguments = (ctypes.byref(call), error, ctypes.c_size_t(len(error)))
        if on_npu:
            run = ctypes.CDLL("libascendcl.so").cann_cpu_call_kernel
            run.restype = ctypes.c_bool
            buffers = call.buffers, ctypes.c_size_t(call.buffer_count)
            succeeded = run(self.name.encode(), *buffers, self._function, *arguments)
        else:
            succeeded = self._function(*arguments)
        if not succeeded:
            raise KernelError(error.value.decode(errors="replace"))


class KernelFile:
    """A compiled file of kernels; index it by a kernel's name.

    `options` are passed to the compiler (`$CXX`, else g++) after `-std=c++20 -O2` and `$CXXFLAGS`. `--cce-auto-sync`
    and `--cce-auto-sync=off` specify what the device's compiler orders, which the checks then do not require. The
    library is kept at `keep`, for debuggers and for KernelFile.kept.
    """

    def __init__(self, path: str | os.PathLike, options: tuple[str, ...] = (), keep: str | os.PathLike | None = None):
        self.path = Path(path).resolve()
        given = ["-O2", "-Wall", *shlex.split(os.environ.get("CXXFLAGS", "")), *options]
        try:
            source = Source(self.path, given)
            if not source.kernels:
                how = 'one is defined by extern "C" __global__ __aicore__ void NAME(...)'
                raise KernelError(f"{path}: no kernel; {how}")
            source.check()
            with tempfile.TemporaryDirectory() as folder:
                library = str(Path(keep).resolve()) if keep else os.path.join(folder, "kernel.so")
                listing = f'extern "C" const char* ascendc_cpu_kernels() {{ return "{" ".join(source.kernels)}"; }}\n'
                self.warnings = source.compile([*_SHARED, "-o", library], listing)
                self._open(library)
        except CompileError as error:
            raise KernelError(str(error)) from None

    @classmethod
    def kept(cls, path: str | os.PathLike, library: str | os.PathLike) -> "KernelFile":
        """The file as it was compiled into a library that was kept."""
        file = cls.__new__(cls)
        file.path, file.warnings = Path(path).resolve(), ""
        file._open(str(Path(library).resolve()))
        return file

    def _open(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        listing = self._library.ascendc_cpu_kernels
        listing.restype = ctypes.c_char_p
        self.names = listing().decode().split()

    def __getitem__(self, name: str) -> Kernel:
        if name not in self.names:
            raise KernelError(f"{self.path}: no kernel {name}; there is {', '.join(self.names)}")
        return Kernel(self._library, name)
