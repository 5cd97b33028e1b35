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
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import device_rules, precompiled
from .activation import HOME, LIBRARIES, choose
from .ascendc_names import PAGE, missing_in

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
        ("written", ctypes.POINTER(ctypes.c_size_t)),
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


def _wait_for_npu(arguments) -> None:
    """Until what writes the npu tensors among the arguments has been done; their memory is then the CPU's to read."""
    if not any(_is_tensor(argument) and argument.device.type == "npu" for argument in arguments):
        return
    if choose().cann != "cpu":
        raise KernelError("tensors of a real NPU cannot be given to a kernel on the CPU; call .cpu() on them first")
    sys.modules["torch"].npu.synchronize()


_TYPES = {"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "const"}


def _without_comments(text: str) -> str:
    """Without comments and line markers, but with `/*name*/`, which is how a parameter without a name is called."""
    text = re.sub(r"//[^\n]*|^#.*$", " ", text, flags=re.MULTILINE)
    return re.sub(r"/\*\s*(\w*)\s*\*/|/\*.*?\*/", r" @\1 ", text, flags=re.DOTALL).replace("@ ", " ")


def _name_of(parameter: str) -> str:
    """The name in `type name` or `type /*name*/`; empty if it has none."""
    code = re.sub(r"@\w+", "", parameter)
    named = re.search(r"[\w>*&]\s*[\s*&](\w+)\s*$", code)
    if named and named[1] not in _TYPES and re.sub(r"\bconst\b|\W", "", code[: named.start(1)]):
        return named[1]
    comment = re.search(r"@(\w+)", parameter)
    return comment[1] if comment else ""


def _kernels_of(preprocessed: str) -> dict[str, tuple[str, ...]]:
    """The kernels that a file defines, by macros, too, and the names of their parameters."""
    kernels = {}
    for begin in re.finditer(r"__global__\b", preprocessed):
        if re.search(r">\s*(?:inline\s+)?$", preprocessed[max(0, begin.start() - 100) : begin.start()]):
            continue  # a template; what is called is what calls it
        text = _without_comments(preprocessed[begin.end() : begin.end() + 10_000])
        if found := re.match(r"[\s\w\[\]]*?\bvoid\s+(\w+)\s*\(([^()]*)\)\s*\{", text):
            parameters = [part for part in found[2].split(",") if part.strip() not in ("", "void")]
            kernels[found[1]] = tuple(_name_of(part) or f"argument {i + 1}" for i, part in enumerate(parameters))
    return kernels


def _with_launches(text: str) -> str:
    """kernel<<<blocks, ...>>>(...) is a call of launch_from_host."""
    parts, done = [], 0
    for launch in re.finditer(r"<<<((?:(?!<<<|>>>)[^;])*)>>>\s*\(", text):
        before = text[max(done, launch.start() - 200) : launch.start()]
        if kernel := re.search(r"(\w+(?:\s*<[^<>;(){}]*>)?)\s*$", before):
            parts += [text[done : launch.start() - len(before) + kernel.start()]]
            parts += [f'AscendC::cpu::launch_from_host("{kernel[1]}", {kernel[1]}, {launch[1]})(']
            done = launch.end()
    return "".join([*parts, text[done:]])


def _with_entries(preprocessed: str, kernels: dict[str, tuple[str, ...]]) -> str:
    """A file as it is compiled: its launches are calls, and each kernel has the functions by which it is called."""
    text = _with_launches(device_rules.without_words(preprocessed))
    exported = 'extern "C" __attribute__((visibility("default")))'
    listed = "".join(f"{name}({','.join(parameters)})" for name, parameters in kernels.items())
    text += f'{exported} const char* ascendc_cpu_kernels() {{ return "{listed}"; }}\n'
    for name in kernels:
        text += f"""
{exported} const char* ascendc_cpu_signature_{name}() {{ return AscendC::cpu::Entry<&{name}>::signature(); }}
{exported} bool ascendc_cpu_call_{name}(const AscendC::cpu::Call* call, char* error, size_t error_size) {{
  return AscendC::cpu::Entry<&{name}>::call("{name}", *call, error, error_size);
}}
"""
    return text


class Kernel:
    """One kernel of a file. Call it with its arguments in their order; arrays are read and written where they lie."""

    def __init__(self, library: ctypes.CDLL, name: str, parameters: tuple[str, ...]):
        self.name = name
        signature = getattr(library, f"ascendc_cpu_signature_{name}")
        signature.restype = ctypes.c_char_p
        self._letters = signature().decode()
        self.parameters = parameters
        self.written: dict[str, tuple[int, int]] = {}
        """How many bytes of each array the last call wrote, and how many there are, if it was checked."""
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
        _wait_for_npu(arguments)
        self.written = {}
        error = ctypes.create_string_buffer(4096)
        if not self._function(ctypes.byref(call), error, ctypes.c_size_t(len(error))):
            raise KernelError(error.value.decode(errors="replace"))
        if checks:
            pairs = zip(buffers, written, strict=False)
            self.written = {buffer.name.decode(): (count, buffer.bytes) for buffer, count in pairs}


class KernelFile:
    """A compiled file of kernels; index it by a kernel's name.

    `options` go to the compiler (`$CXX`, else g++) behind `-std=c++20 -O2` and `$CXXFLAGS`; `--cce-auto-sync` and
    `--cce-auto-sync=off` say what the device's compiler orders, which the checks do not ask for then. `keep` is where
    the library is to stay, for debuggers and for KernelFile.kept.
    """

    def __init__(self, path: str | os.PathLike, options: tuple[str, ...] = (), keep: str | os.PathLike | None = None):
        self.path = Path(path).resolve()
        given = [*shlex.split(os.environ.get("CXXFLAGS", "")), *options]
        self._command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O2", "-g", "-fPIC", "-Wall"]
        self._command += ["-ffp-contract=off"]  # a product and a sum are rounded one by one, on every processor
        self._command += map(device_rules.compiler_option, given)
        preprocessed = self._preprocess()
        kernels = _kernels_of(preprocessed)
        if not kernels:
            raise KernelError(f'{path}: no kernel; one is defined by extern "C" __global__ __aicore__ void NAME(...)')
        if f'"{HOME}/include/kernel_operator.h"' not in preprocessed:  # its names are there, but not on the device
            raise KernelError(f'{path}: does not include "kernel_operator.h"')
        if broken := device_rules.broken(preprocessed):
            raise KernelError("\n".join([f"{path}: the device's compiler would not take it", *broken]))
        with tempfile.TemporaryDirectory() as folder:
            library = str(Path(keep).resolve()) if keep else os.path.join(folder, "kernel.so")
            self.warnings = self._compile(_with_entries(preprocessed, kernels), library)
            self._open(library)

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
        kernels = re.findall(r"(\w+)\(([^)]*)\)", listing().decode())
        self._parameters = {name: tuple(filter(None, parameters.split(","))) for name, parameters in kernels}

    @property
    def names(self) -> list[str]:
        return list(self._parameters)

    def __getitem__(self, name: str) -> Kernel:
        if name not in self._parameters:
            raise KernelError(f"{self.path}: no kernel {name}; there is {', '.join(self._parameters)}")
        return Kernel(self._library, name, self._parameters[name])

    def _preprocess(self) -> str:
        words = "".join(f"#undef {word}\n#define {word} {word}\n" for word in device_rules.WORDS)
        source = f'#include "{precompiled.HEADER}"\n{words}#include "{self.path}"\n'
        # Ours last: where torch_npu's headers are given, ACL is theirs.
        include = [*precompiled.include(self._command), f"-I{HOME}/include"]
        return self._run_compiler(["-E", "-CC", "-fpch-preprocess", *include, "-x", "c++", "-"], source).stdout

    def _compile(self, preprocessed: str, library: str) -> str:
        options = ["-shared", "-x", "c++-cpp-output", "-", "-o", library]
        options += [f"-L{LIBRARIES}", "-lascendc_cpu", f"-Wl,-rpath,{LIBRARIES}"]
        return self._run_compiler(options, preprocessed).stderr

    def _run_compiler(self, options: list[str], source: str) -> subprocess.CompletedProcess:
        done = subprocess.run([*self._command, *options], input=source, text=True, capture_output=True)
        if done.returncode != 0:
            missing = ", ".join(missing_in(done.stderr))
            said = f"not in Ascend C on the CPU: {missing}; {PAGE} has what is\n" if missing else ""
            raise KernelError(f"{self.path} does not compile:\n{said}{done.stderr}")
        return done
