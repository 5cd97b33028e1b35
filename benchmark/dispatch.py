# SPDX-License-Identifier: Apache-2.0
"""Times the dispatch of small operators: our EXEC_NPU_CMD beside torch_npu's EXEC_NPU_CMD_EXT and beside its operators.

torch.add calls an aclnn function written by hand, add_custom one that is generated of an OpDef, with tiling and an
Ascend C kernel. All in one process per TASK_QUEUE_ENABLE, in turns, with cached executors. Exit code 1 if ours is
slower than EXT where only the macro is timed, or takes more than 1.1 times as long as torch.add between torch_npu's
operators.
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
ROW = "{:<18} {:<9} {:<28} {:>8} {:>8}"
# what is timed: its peer, and how many times as long as that it may take until it is done
MACRO, BETWEEN = "an operator that does nothing", "relu, add, neg, abs"
LIMITS = {MACRO: {"EXEC_NPU_CMD": ("EXT", 1.0)}, BETWEEN: {"EXEC_NPU_CMD": ("torch.add", 1.1)}}
LIMITS[BETWEEN]["add_custom"] = ("torch.add", 1.1)


def functions() -> dict[str, dict]:
    """{what is timed: {its name: a function that makes that many calls}}."""
    import torch

    import custom_pypto  # noqa: F401

    torch.ops.load_library(sys.argv[2])
    probe = torch.ops.custom_pypto_probe
    x, out = torch.zeros(8, 16).npu(), torch.zeros(8, 16).npu()

    def between(add):
        def calls():
            for _ in range(CALLS // 4):
                torch.abs(torch.neg(add(torch.relu(x), x)))

        return calls

    added = {"EXEC_NPU_CMD": probe.add.default, "EXT": probe.add_ext.default, "torch.add": torch.ops.aten.add.Tensor}
    added["add_custom"] = torch.ops.custom_pypto.add_custom.default
    return {
        MACRO: {"EXEC_NPU_CMD": lambda: probe.nothing(x, out, CALLS), "EXT": lambda: probe.nothing_ext(x, out, CALLS)},
        BETWEEN: {name: between(add) for name, add in added.items()},
    }


def measure() -> None:
    """Prints {what: {name: {"returned" | "done": microseconds a call, one for each round}}}."""
    import torch

    timed = functions()
    times = {what: {name: {"returned": [], "done": []} for name in kinds} for what, kinds in timed.items()}
    for round_ in range(ROUNDS + 5):
        for what, kinds in timed.items():
            names = list(kinds)
            for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
                torch.npu.synchronize()
                start = time.perf_counter()
                kinds[name]()
                returned = time.perf_counter()
                torch.npu.synchronize()
                done = time.perf_counter()
                if round_ >= 5:
                    times[what][name]["returned"].append((returned - start) / CALLS * 1e6)
                    times[what][name]["done"].append((done - start) / CALLS * 1e6)
    print(json.dumps(times))


def main() -> int:
    built = subprocess.run([sys.executable, PROBE / "build.py"], check=True, capture_output=True, text=True)
    package, extension = built.stdout.split()
    print(f"microseconds a call, and the ratio to its peer: medians of {ROUNDS} rounds of {CALLS} calls")
    slower = False
    for mode in ("0", "1", "2"):
        environment = os.environ | {"TASK_QUEUE_ENABLE": mode, "ASCEND_CUSTOM_OPP_PATH": package}
        command = [sys.executable, __file__, "measure", extension]
        run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        for what, kinds in json.loads(run.stdout.splitlines()[-1]).items():
            print(f"\n{what}")
            for until in ("returned", "done"):
                for name, times in kinds.items():
                    peer, limit = LIMITS[what].get(name, (None, None))
                    ratio = statistics.median(
                        own / other for own, other in zip(times[until], kinds[peer or name][until], strict=True)
                    )
                    shown = f"{ratio:.2f}" if peer else ""
                    median = f"{statistics.median(times[until]):.2f}"
                    print(ROW.format(f"TASK_QUEUE_ENABLE={mode}", until, name, median, shown), flush=True)
                    slower |= until == "done" and peer is not None and ratio > limit
    return int(slower)


if __name__ == "__main__":
    sys.exit(measure() if sys.argv[1:2] == ["measure"] else main())
