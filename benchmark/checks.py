# SPDX-License-Identifier: Apache-2.0
"""Times the decode example's steps under the checks of whole programs, each beside the same steps without checks.

Every run is a separate process, in turns, and a ratio compares consecutive runs. The exit code is 1 if a check slows
the example down by more than its limit.
"""

import re
import statistics
import subprocess
import sys
from pathlib import Path

from measure import progress

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "deepseek_sparse_decode.py"
ROUNDS = 3
LIMITS = {"cost": 1.1, "memory": 2.0, "race": 2.0, "schedule": 1.5}
ROW = "{:<10} {:>16} {:>16} {:>7} {:>7}"


def step(*options: str) -> float:
    """Milliseconds of an eager step, the mean of the example's layers."""
    example = [sys.executable, str(EXAMPLE), "--modes", "eager", "--steps", "6"]
    command = [sys.executable, "-m", "cann_cpu", "run", *options, "--", *example]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    steps = [float(found) for found in re.findall(r"eager +[\d.]+ s +([\d.]+) ms", run.stdout)]
    if not steps:
        sys.exit(f"{' '.join(command)} printed no eager step, exit code {run.returncode}:\n{run.stdout}")
    return statistics.mean(steps)


def main() -> int:
    missed = False
    print(f"milliseconds of an eager step, and the ratio: medians of {ROUNDS} runs each")
    print(ROW.format("check", "with", "without", "ratio", "limit"))
    for check, limit in LIMITS.items():
        pairs = []
        for round_ in range(ROUNDS):
            progress(f"{check}: run {round_ + 1} of {ROUNDS}")
            pairs.append((step(f"--check={check}"), step()))
        progress("")
        ratio = statistics.median(a / b for a, b in pairs)
        missed |= ratio > limit
        with_, without = (f"{statistics.median(side):.1f}" for side in zip(*pairs, strict=True))
        print(ROW.format(check, with_, without, f"{ratio:.2f}", f"{limit:.2f}"))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
