# SPDX-License-Identifier: Apache-2.0
"""Times the dispatch of an operator that does nothing: our EXEC_NPU_CMD beside torch_npu's EXEC_NPU_CMD_EXT.

Both in one process per TASK_QUEUE_ENABLE, in turns, with cached executors. Exit code 1 if ours is slower.
  returned: until the calls have returned to the caller
  done:     until the stream has run them
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROBE = Path(__file__).resolve().parents[1] / "test" / "custom_pypto" / "probe"
ROUNDS, CALLS = 61, 500
ROW = "{:<18} {:<9} {:>10} {:>10} {:>7}"


def measure(extension: str) -> None:
    """Prints {kind: {"returned" | "done": microseconds a call, one for each round}}."""
    import torch
    import torch_npu  # noqa: F401

    torch.ops.load_library(extension)
    x, out = torch.zeros(8, 16).npu(), torch.zeros(8, 16).npu()
    kinds = {"ours": torch.ops.custom_pypto_probe.nothing, "ext": torch.ops.custom_pypto_probe.nothing_ext}
    times = {kind: {"returned": [], "done": []} for kind in kinds}
    for round_ in range(ROUNDS + 5):
        for kind in sorted(kinds, reverse=round_ % 2 == 0):
            torch.npu.synchronize()
            start = time.perf_counter()
            kinds[kind](x, out, CALLS)
            returned = time.perf_counter()
            torch.npu.synchronize()
            done = time.perf_counter()
            if round_ >= 5:
                times[kind]["returned"].append((returned - start) / CALLS * 1e6)
                times[kind]["done"].append((done - start) / CALLS * 1e6)
    print(json.dumps(times))


def main() -> int:
    built = subprocess.run([sys.executable, PROBE / "build.py"], check=True, capture_output=True, text=True)
    package, extension = built.stdout.split()
    print(
        f"dispatch of an operator that does nothing: microseconds a call, medians of {ROUNDS} rounds of {CALLS} calls"
    )
    print(ROW.format("", "", "ours", "EXT", "ratio"))
    slower = False
    for mode in ("0", "1", "2"):
        environment = os.environ | {"TASK_QUEUE_ENABLE": mode, "ASCEND_CUSTOM_OPP_PATH": package}
        command = [sys.executable, __file__, "measure", extension]
        run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        times = json.loads(run.stdout.splitlines()[-1])
        for until in ("returned", "done"):
            ours, ext = (statistics.median(times[kind][until]) for kind in ("ours", "ext"))
            ratios = zip(times["ours"][until], times["ext"][until], strict=True)
            ratio = statistics.median(ours_ / ext_ for ours_, ext_ in ratios)
            print(
                ROW.format(f"TASK_QUEUE_ENABLE={mode}", until, f"{ours:.2f}", f"{ext:.2f}", f"{ratio:.2f}"), flush=True
            )
            slower |= until == "done" and ratio > 1
    return int(slower)


if __name__ == "__main__":
    sys.exit(measure(sys.argv[2]) if sys.argv[1:2] == ["measure"] else main())
