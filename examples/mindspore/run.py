# SPDX-License-Identifier: Apache-2.0
"""Runs MindSpore on the NPU in PyNative and graph mode and prints a table; the exit code is 1 if a line failed.

MindSpore's own operators are compared with its CPU target, the custom operators with NumPy.
"""

import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
COLUMNS = "{:<40} {:<10} {:>14} {:>12}  {}"
REFERENCES = {"CPU": 1e-5, "NumPy": 0.0}
"""What a computation is compared with, and how much of the largest element a result may differ."""


def results_of(program: str, *arguments: str) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """What a program has written: by computation and mode, arrays by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.npz")
        done = subprocess.run(
            [sys.executable, HERE / program, *arguments, path], cwd=folder, capture_output=True, text=True
        )
        if done.returncode != 0:
            print(f"{program} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}", file=sys.stderr)
            return {}
        results = defaultdict(lambda: defaultdict(dict))
        with np.load(path) as arrays:
            for key, array in arrays.items():
                computation, mode, name = key.split("/")
                results[computation][mode][name] = array
        return results


def difference(result: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, in parts of the largest element."""
    if result.dtype != expected.dtype or result.shape != expected.shape or not np.isfinite(result).all():
        return float("inf")
    largest = max(float(np.abs(expected.astype(np.float64)).max()), 1.0)
    return float(np.abs(result.astype(np.float64) - expected.astype(np.float64)).max()) / largest


def line(computation: str, mode: str, results: dict, expected: dict, allowed: float, reference: str) -> bool:
    differences = {name: difference(results[name], expected[name]) for name in expected if name in results}
    missing = sorted(expected.keys() ^ results.keys())
    worst = max(differences, key=differences.get) if differences else ""
    ok = not missing and differences[worst] <= allowed
    verdict = "ok" if ok else f"FAILED: {', '.join(missing) or worst}"
    print(COLUMNS.format(computation, mode, reference, f"{differences.get(worst, 0):.1e}", verdict), flush=True)
    return ok


def main() -> int:
    programs = [("networks.py", mode) for mode in ("CPU", "PyNative", "graph", "graph, O2")] + [("custom_ops.py",)]
    results, failed = defaultdict(dict), False
    for program in programs:
        of_program = results_of(*program)
        failed |= not of_program
        for computation, modes in of_program.items():
            results[computation].update(modes)
    print(COLUMNS.format("computation", "mode", "compared with", "difference", ""))
    for computation, modes in results.items():
        for reference, allowed in REFERENCES.items():
            for mode in sorted(modes.keys() - REFERENCES.keys()) if reference in modes else ():
                failed |= not line(computation, mode, modes[mode], modes[reference], allowed, reference)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
