# SPDX-License-Identifier: Apache-2.0
"""`python -m cann_cpu kernel FILE.cpp [FILE.py]`: runs a kernel as a Python file beside it describes.

The description is a Python file that sets:

    arguments   a dict: for each parameter of the kernel by name, a numpy array, a CPU tensor, None or a number
    expected    optional, a dict: what arrays among them shall hold afterwards
    tolerance   optional: how far from expected, relatively and absolutely (default: 0)
    blocks      optional: in how many blocks it runs (default: 1)
    kernel      its name, if the file has several
    tiling_key  optional: what TILING_KEY_IS compares with (default: 0)
"""

import runpy
import sys
import time
from pathlib import Path

from .kernel import Kernel, KernelError, KernelFile


def run_described(source: str, description: str | None, checks: bool) -> int:
    """0 if the kernel ran without an error and gave what is expected; KernelError if it did something wrong."""
    path = Path(description) if description else Path(source).with_suffix(".py")
    for needed in (Path(source), path):
        if not needed.exists():
            raise KernelError(f"{needed} does not exist; a kernel FILE.cpp has its arguments in FILE.py beside it")
    start = time.perf_counter()
    file = KernelFile(source)
    sys.stderr.write(file.warnings)
    print(f"{source}: compiled in {time.perf_counter() - start:.1f} s", flush=True)

    described = runpy.run_path(str(path))
    if "arguments" not in described:
        raise KernelError(f"{path}: no arguments; set `arguments = {{name: array or number, ...}}`")
    if "kernel" not in described and len(file.names) > 1:
        raise KernelError(f"{path}: {source} has several kernels; set `kernel` to one of {', '.join(file.names)}")
    kernel = file[described.get("kernel", file.names[0])]
    arguments = _in_order(path, kernel, described["arguments"])
    blocks = described.get("blocks", 1)
    start = time.perf_counter()
    kernel(*arguments.values(), blocks=blocks, checks=checks, tiling_key=described.get("tiling_key", 0))
    spent = time.perf_counter() - start
    print(f"{kernel.name}: {blocks} blocks, checks {'on' if checks else 'off'}, {spent * 1e3:.2f} ms")

    tolerance = described.get("tolerance", 0)
    complaints = [
        _compare(path, name, arguments, value, tolerance) for name, value in described.get("expected", {}).items()
    ]
    return 1 if any(complaints) else 0


def _in_order(path: Path, kernel: Kernel, given: dict) -> dict:
    wrong = set(given) ^ set(kernel.parameters)
    if wrong:
        raise KernelError(
            f"{path}: {kernel.name} has the parameters {', '.join(kernel.parameters)}; "
            f"missing or too many in arguments: {', '.join(sorted(wrong))}"
        )
    return {name: given[name] for name in kernel.parameters}


def _compare(path: Path, name: str, arguments: dict, expected, tolerance: float) -> bool:
    """Prints how an array compares with what is expected of it; True if it differs."""
    if not hasattr(arguments.get(name), "shape"):
        raise KernelError(f"{path}: expected has {name}, which is no array among the arguments")
    if arguments[name].shape != expected.shape:
        raise KernelError(f"{path}: {name} has shape {arguments[name].shape}, expected {expected.shape}")
    actual = arguments[name].reshape(-1).tolist()  # Python's numbers, be it numpy's or torch's
    wanted = expected.reshape(-1).tolist()
    different = [i for i, pair in enumerate(zip(actual, wanted, strict=True)) if not _close(*pair, tolerance)]
    if different:
        i = different[0]
        print(
            f"  {name}: {len(different)} of {len(actual)} elements differ; [{i}] is {actual[i]}, expected {wanted[i]}"
        )
    else:
        print(f"  {name}: as expected")
    return bool(different)


def _close(actual, expected, tolerance: float) -> bool:
    if actual == expected or (actual != actual and expected != expected):
        return True
    return abs(actual - expected) <= tolerance * (1 + abs(expected))
