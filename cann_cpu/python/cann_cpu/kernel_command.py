# SPDX-License-Identifier: Apache-2.0
"""`python -m cann_cpu kernel FILE.cpp [FILE.py]`: runs a kernel as a Python file beside it describes.

The description is a Python file that sets:

    arguments   a dict: for each parameter of the kernel by name, a numpy array, a CPU tensor, None or a number
    expected    optional, a dict: what arrays among them shall hold afterwards
    tolerance   optional: how far from expected, relatively and absolutely (default: 0)
    blocks      optional: in how many blocks it runs (default: 1)
    kernel      its name, if the file has several
    tiling_key  optional: what TILING_KEY_IS compares with (default: 0)

Macros that the build of an operator defines are defined by the arguments' dtypes: DTYPE_X is half if x is of float16.
"""

import contextlib
import ctypes
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from .activation import LIBRARIES
from .ascendc.compiler import symbol_of
from .kernel import Kernel, KernelError, KernelFile
from .names import BY_INFO, DTYPES
from .profiler import kernel_costs


def debug_described(
    source: str, description: str | None, checks: bool, options: list[str], library: str | None = None, **_
) -> int:
    """Compiles the kernel for a debugger, into FILE.so, and stops in gdb where it begins; gdb's exit code."""
    path = _description_of(source, description)
    kept = Path(library or Path(source).with_suffix(".so"))
    kernel = _compiled(source, path, _described(path), [*options, "-O0", "-g"], kept)
    gdb = shutil.which("gdb")
    if gdb is None:
        raise KernelError(f"gdb is not installed; {kept} is what it would debug")
    before = ["set print thread-events off", "set breakpoint pending on", "set startup-with-shell off"]
    before += [f"break {Path(source).name}:{symbol_of(kernel.name)}", "run"]
    command = [
        gdb,
        "-q",
        "-iex",
        "set auto-load python-scripts off",
        "-x",
        str(Path(__file__).parent / "ascendc/gdb_printers.py"),
    ]
    command += [part for line in before for part in ("-ex", line)]
    command += ["--args", sys.executable, "-m", "cann_cpu", "kernel", source, str(path), "--library", str(kept)]
    command += [] if checks else ["--no-checks"]
    return subprocess.run(command, env={**os.environ, "ASCENDC_CPU_THREADS": "1"}).returncode


def run_described(
    source: str,
    description: str | None,
    checks: bool,
    options: list[str],
    library: str | None = None,
    profile: bool = False,
    timeline: str | None = None,
) -> int:
    """0 if the kernel ran without an error and gave what is expected; KernelError if it did something wrong."""
    path = _description_of(source, description)
    described = _described(path)
    if library:
        kernel = _chosen(KernelFile.kept(source, library), path, described)
    else:
        kernel = _compiled(source, path, described, options)
    arguments = _in_order(path, kernel, described["arguments"])
    blocks = described.get("blocks", 1)
    start = time.perf_counter()
    with _trace_for(timeline) as trace:
        how = {"checks": checks, "tiling_key": described.get("tiling_key", 0), "profile": profile, "timeline": trace}
        _interruptibly(lambda: kernel(*arguments.values(), blocks=blocks, **how))
        spent = time.perf_counter() - start
        print(f"{kernel.name}: {blocks} blocks, checks {'on' if checks else 'off'}, {spent * 1e3:.2f} ms on the CPU")
        if profile:
            print(*kernel_costs.lines(kernel.profile), sep="\n")
        if trace != timeline:
            _draw(trace, timeline, kernel)

    if "expected" not in described:
        return 1 if any([_written_in_part(kernel, name) for name in kernel.written]) else 0
    tolerance = described.get("tolerance", 0)
    complaints = [
        _compare(path, kernel, name, arguments, value, tolerance) for name, value in described["expected"].items()
    ]
    return 1 if any(complaints) else 0


def _draw(trace: str, picture: str, kernel: Kernel) -> None:
    try:
        kernel_costs.draw(trace, picture, f"{kernel.name}, {kernel.profile['soc']}")
    except RuntimeError as error:
        raise KernelError(str(error)) from None


@contextlib.contextmanager
def _trace_for(timeline: str | None):
    """Yields where to write a timeline's Chrome trace: the file itself, or a temporary one for drawing a picture."""
    if timeline is None or not timeline.endswith(".png"):
        yield timeline
        return
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "trace.json")


def _description_of(source: str, description: str | None) -> Path:
    path = Path(description) if description else Path(source).with_suffix(".py")
    for needed in (Path(source), path):
        if not needed.exists():
            raise KernelError(f"{needed} does not exist; a kernel FILE.cpp has its arguments in FILE.py beside it")
    return path


def _compiled(source: str, path: Path, described: dict, options: list[str], keep: Path | None = None) -> Kernel:
    start = time.perf_counter()
    file = KernelFile(source, (*_dtype_macros(described["arguments"]), *options), keep)
    sys.stderr.write(file.warnings)
    print(f"{source}: compiled in {time.perf_counter() - start:.1f} s", flush=True)
    return _chosen(file, path, described)


def _chosen(file: KernelFile, path: Path, described: dict) -> Kernel:
    if "kernel" not in described and len(file.names) > 1:
        raise KernelError(f"{path}: {file.path} has several kernels; set `kernel` to one of {', '.join(file.names)}")
    return file[described.get("kernel", file.names[0])]


def _described(path: Path) -> dict:
    try:
        described = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        trace, line = error.__traceback__, 0
        while trace is not None:
            line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == str(path) else line
            trace = trace.tb_next
        place = f"{path}:{getattr(error, 'lineno', None) or line}"
        raise KernelError(f"{place}: {type(error).__name__}: {error}") from None
    if not isinstance(described.get("arguments"), dict):
        raise KernelError(f"{path}: no arguments; set `arguments = {{name: array or number, ...}}`")
    return described


def _dtype_macros(arguments: dict) -> list[str]:
    macros = [f"-DDT_{dtype.ge}={number}" for number, dtype in DTYPES.items()]
    dtypes = {name: str(array.dtype).removeprefix("torch.") for name, array in arguments.items() if _is_array(array)}
    for name, dtype in dtypes.items():
        if dtype in BY_INFO and name.isidentifier():
            number = BY_INFO[dtype]
            macros += [f"-DDTYPE_{name.upper()}={DTYPES[number].kernel}", f"-DORIG_DTYPE_{name.upper()}={number}"]
    return macros


def _is_array(value) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _interruptibly(run) -> None:
    """Runs it beside this thread, which Ctrl-C interrupts even if the kernel never ends."""
    ctypes.CDLL(os.path.join(LIBRARIES, "libascendc_cpu.so")).ascendc_cpu_report_crashes()
    errors = []

    def runs():
        try:
            run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=runs, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    for error in errors:
        raise error


def _in_order(path: Path, kernel: Kernel, given: dict) -> dict:
    wrong = set(given) ^ set(kernel.parameters)
    if wrong:
        raise KernelError(
            f"{path}: {kernel.name} has the parameters {', '.join(kernel.parameters)}; "
            f"missing or too many in arguments: {', '.join(sorted(wrong))}"
        )
    return {name: given[name] for name in kernel.parameters}


def _written_in_part(kernel: Kernel, name: str) -> bool:
    """Prints it if the kernel wrote some bytes of an array and left others as they were."""
    written, size = kernel.written.get(name, (0, 0))
    if written in (0, size):
        return False
    print(f"  {name}: wrote {written} of {size} bytes; set `expected` if that is right")
    return True


def _compare(path: Path, kernel: Kernel, name: str, arguments: dict, expected, tolerance: float) -> bool:
    """Prints how an array compares with what is expected of it; True if it differs."""
    if not hasattr(arguments.get(name), "shape"):
        raise KernelError(f"{path}: expected has {name}, which is not an array among the arguments")
    if not hasattr(expected, "shape"):
        raise KernelError(f"{path}: expected has for {name} an array, not {type(expected).__name__}")
    shape = tuple(arguments[name].shape)
    if shape != tuple(expected.shape):
        raise KernelError(f"{path}: {name} has shape {shape}, expected {tuple(expected.shape)}")
    actual = arguments[name].reshape(-1).tolist()  # Python's numbers, be it numpy's or torch's
    wanted = expected.reshape(-1).tolist()
    different = [i for i, pair in enumerate(zip(actual, wanted, strict=True)) if not _close(*pair, tolerance)]
    if not different:
        print(f"  {name}: as expected")
        return False
    i = different[0]
    place = ", ".join(map(str, _index(i, shape)))
    print(
        f"  {name}: {len(different)} of {len(actual)} elements differ; [{place}] is {actual[i]}, expected {wanted[i]}"
    )
    written, size = kernel.written.get(name, (0, 0))
    if written < size:
        print(f"  {name}: wrote {written} of {size} bytes")
    return True


def _index(position: int, shape: tuple[int, ...]) -> list[int]:
    """The place of an element in all dimensions."""
    index = []
    for size in reversed(shape):
        position, i = divmod(position, size)
        index.insert(0, i)
    return index


def _close(actual, expected, tolerance: float) -> bool:
    if actual == expected or (actual != actual and expected != expected):
        return True
    return abs(actual - expected) <= tolerance * (1 + abs(expected))
