# SPDX-License-Identifier: Apache-2.0
"""Times Triton kernels on an NPU of cann_cpu beside triton's plain interpreter, which takes one program at a time.

Medians of a launch until the stream has run it, each in a separate process, since the interpreter
is chosen when a kernel is decorated. What the interpreter would take more than LIMIT seconds for it does for a part of
the grid, and the time is scaled. Exit code 1 if one of those that have a goal misses it.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "support"))

LIMIT = 20
ROUNDS = 9
GOALS = {"add, 4M elements": 20, "softmax, 4096 rows of 1000": 20}
ROW = "{:<28} {:>12} {:>14} {:>8} {:>6}"


def kernels(device: str) -> dict:
    """{name: (kernel, grid, arguments)}."""
    import torch
    import triton_kernels as these

    count, rows, columns, size, tokens = 1 << 22, 4096, 1000, 512, 1024
    x, y = (torch.randn(count).to(device) for _ in range(2))
    table = torch.randn(rows, columns).to(device)
    a, b = (torch.randn(size, size).half().to(device) for _ in range(2))
    q, k, v = (torch.randn(4, tokens, 64).to(device) for _ in range(3))
    matmul = (a, b, torch.empty_like(a), size, size, size, size, 1, size, 1, size, 1, 64, 64, 32, 8)
    return {
        "add, 4M elements": (these.add_kernel, (count // 1024,), (x, y, torch.empty_like(x), count, 1024)),
        "softmax, 4096 rows of 1000": (
            these.softmax_kernel,
            (rows,),
            (torch.empty_like(table), table, columns, columns, 1024),
        ),
        "matmul, 512 x 512 x 512": (these.matmul_kernel, (64,), matmul),
        "attention, 4 x 1024 x 64": (
            these.attention_kernel,
            (tokens // 64, 4),
            (q, k, v, torch.empty_like(q), tokens, 0.125, 64, 64, 64),
        ),
    }


def measure() -> None:
    """Prints {name: [milliseconds of the whole grid, the part of it that was timed]}."""
    import torch

    plain = os.environ.get("TRITON_INTERPRET") == "1"
    finish = (lambda: None) if plain else torch.npu.synchronize
    times = {}
    for name, (kernel, grid, arguments) in kernels("cpu" if plain else "npu").items():

        def launch(grid, kernel=kernel, arguments=arguments):
            start = time.perf_counter()
            kernel[grid](*arguments)
            finish()
            return time.perf_counter() - start

        part = (max(1, grid[0] // 32), *grid[1:])
        launch(part)
        expected = launch(part) * grid[0] / part[0]
        if plain and expected > LIMIT / 3:
            seconds, share = statistics.median(launch(part) for _ in range(3)) * grid[0] / part[0], part[0] / grid[0]
        else:
            seconds, share = statistics.median(launch(grid) for _ in range(3 if plain else ROUNDS)), 1
        times[name] = seconds * 1e3, share
    print(json.dumps(times))


def main() -> int:
    of = {}
    for who, variable in (("ours", {}), ("plain", {"TRITON_INTERPRET": "1"})):
        command = [sys.executable, __file__, "measure"]
        run = subprocess.run(command, env={**os.environ, **variable}, capture_output=True, text=True)
        if run.returncode:
            print(run.stderr, file=sys.stderr)
            return 1
        of[who] = json.loads(run.stdout.strip().splitlines()[-1])
    print(ROW.format("kernel", "cann_cpu ms", "interpreter ms", "ratio", "goal"))
    missed, parts = [], set()
    for name, (ours, _) in of["ours"].items():
        plain, share = of["plain"][name]
        goal = GOALS.get(name)
        ratio = plain / ours
        parts |= {share} - {1}
        mark = "" if share == 1 else f" (1/{1 / share:.0f})"
        print(ROW.format(name, f"{ours:.1f}", f"{plain:.0f}{mark}", f"{ratio:.0f}", goal or ""))
        if goal and ratio < goal:
            missed.append(name)
    if parts:
        print("(1/n): the interpreter ran that part of the grid, and its time is n times as long")
    for name in missed:
        print(f"{name} is not {GOALS[name]} times as fast", file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        measure()
    else:
        sys.exit(main())
