# SPDX-License-Identifier: Apache-2.0
"""Compiles Ascend C kernels with g++ and runs them on arrays: what `python -m cann_cpu kernel` does, for programs.

    from cann_cpu.kernel import KernelFile

    scale = KernelFile("scale.cpp")["scale"]
    scale(x, y, len(x), blocks=2)  # numpy arrays or torch tensors, which the kernel reads and writes where they lie

What a kernel does wrong raises KernelError with file, line, kernel, block, reason and what to do.
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .activation import HOME, LIBRARIES, choose

CHECKS_OFF, CHECKS_ON = 1, 2


class KernelError(RuntimeError):
    """A kernel does not compile, or did something that hardware would not forgive."""


class _DeviceBuffer(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("name", ctypes.c_char_p))


class _Call(ctypes.Structure):
    _fields_ = (
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("buffers", ctypes.POINTER(_DeviceBuffer)),
        ("buffer_count", ctypes.c_size_t),
        ("tiling_key", ctypes.c_uint64),
        ("blocks", ctypes.c_uint32),
        ("checks", ctypes.c_uint8),
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


def _wait_for_npu(arguments) -> None:
    """Until what writes the npu tensors among the arguments has been done; their memory is then the CPU's to read."""
    if not any(_is_tensor(argument) and argument.device.type == "npu" for argument in arguments):
        return
    if choose().cann != "cpu":
        raise KernelError("tensors of a real NPU cannot be given to a kernel on the CPU; call .cpu() on them first")
    sys.modules["torch"].npu.synchronize()


def _without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)


def _kernels_of(source: str) -> dict[str, tuple[str, ...]]:
    """The kernels that a file defines, and the names of their parameters."""
    pattern = r"\b__global__\s+(?:__aicore__\s+)?void\s+(\w+)\s*\(([^)]*)\)\s*\{"
    found = re.findall(pattern, _without_comments(source))
    return {name: tuple(re.findall(r"\b(\w+)\s*(?:,|$)", parameters.strip())) for name, parameters in found}


class Kernel:
    """One kernel of a file. Call it with its arguments in their order; arrays are read and written where they lie."""

    def __init__(self, library: ctypes.CDLL, name: str, parameters: tuple[str, ...]):
        self.name = name
        signature = getattr(library, f"ascendc_cpu_signature_{name}")
        signature.restype = ctypes.c_char_p
        self._letters = signature().decode()
        named = len(parameters) == len(self._letters)
        self.parameters = parameters if named else tuple(f"argument {i + 1}" for i in range(len(self._letters)))
        self._function = getattr(library, f"ascendc_cpu_call_{name}")
        self._function.restype = ctypes.c_bool

    def __call__(self, *arguments, blocks: int = 1, checks: bool = True, tiling_key: int = 0) -> None:
        """Runs the kernel in `blocks` blocks; KernelError, unless it returns from all of them without an error.

        Arguments for addresses are contiguous numpy arrays or torch tensors, or None for the null pointer; for numbers
        Python's numbers. Tensors may lie on an NPU that cann_cpu serves: the call then waits for the device.
        """
        if len(arguments) != len(self.parameters):
            expected = f"{len(self.parameters)} arguments ({', '.join(self.parameters)})"
            raise KernelError(f"{self.name} takes {expected}, but {len(arguments)} were given")
        if blocks < 1:
            raise KernelError(f"{self.name}: blocks must be at least 1, but is {blocks}")
        values, buffers = [], []
        for name, letter, argument in zip(self.parameters, self._letters, arguments, strict=True):
            if letter != "p":
                values.append(_NUMBERS[letter](argument))
            elif argument is None:
                values.append(ctypes.c_void_p())
            else:
                memory = _memory(name, argument)
                values.append(ctypes.c_void_p(memory.address))
                buffers.append(_DeviceBuffer(memory.address, memory.bytes, name.encode()))
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        call = _Call(
            pointers,
            (_DeviceBuffer * (len(buffers) + 1))(*buffers),  # never empty: nothing but these may be touched
            len(buffers),
            tiling_key,
            blocks,
            CHECKS_ON if checks else CHECKS_OFF,
        )
        _wait_for_npu(arguments)
        error = ctypes.create_string_buffer(4096)
        if not self._function(ctypes.byref(call), error, ctypes.c_size_t(len(error))):
            raise KernelError(error.value.decode(errors="replace"))


class KernelFile:
    """A compiled file of kernels; index it by a kernel's name.

    `options` go to the compiler (`$CXX`, else g++) behind `-std=c++20 -O2`.
    """

    def __init__(self, path: str | os.PathLike, options: tuple[str, ...] = ()):
        self.path = Path(path).resolve()
        self._parameters = _kernels_of(self.path.read_text())
        if not self._parameters:
            raise KernelError(f'{path}: no kernel; one is defined by extern "C" __global__ __aicore__ void NAME(...)')
        self.warnings, self._library = self._compile(options)

    @property
    def names(self) -> list[str]:
        return list(self._parameters)

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._parameters:
            raise KernelError(f"{self.path}: no kernel {name}; there is {', '.join(self._parameters)}")
        return Kernel(self._library, name, self._parameters[name])

    def _compile(self, options: tuple[str, ...]) -> tuple[str, ctypes.CDLL]:
        entries = "".join(f"ASCENDC_CPU_ENTRY({name})\n" for name in self._parameters)
        source = f'#include "{self.path}"\n#include "ascendc/entry.h"\n{entries}'
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "kernel.so")
            command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-g", "-fPIC", "-shared", "-Wall"]
            command += ["-ffp-contract=off"]  # a product and a sum are rounded one by one, on every processor
            command += [f"-I{HOME}/include", *options, "-x", "c++", "-", "-o", library]
            command += [f"-L{LIBRARIES}", "-lascendc_cpu", f"-Wl,-rpath,{LIBRARIES}"]
            done = subprocess.run(command, input=source, text=True, capture_output=True)
            if done.returncode != 0:
                raise KernelError(f"{self.path} does not compile:\n{done.stderr}")
            return done.stderr, ctypes.CDLL(library)
