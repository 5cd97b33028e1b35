# SPDX-License-Identifier: Apache-2.0
"""The check `fault:all` over the decode example and over calls of every operator, with what they import loaded once.

Each call fails in a process that is forked when torch is loaded and neither torch_npu nor CANN is, which takes half of
the time. Time in which the machine has stopped all of this does not count. Programs are of small sizes:

    decode LAYER MODES   the decode example, in a layer and some modes ("fused eager 'GE static' npugraph_ex")
    operator NAME        its first call, eagerly, in the backward and in graphs of each mode, as `check` does

A call that an earlier report has tried (--tried) is left out: programs begin and end alike. The report is written
after each call, so that a run that is stopped goes on with it.

    python test/reliability/failing_calls.py [--report FILE] [--tried FILE] [--functions REGEX] operator add_custom
"""

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
IGNORED = r" +[0-9.]+ (s|ms|x)\b|/tmp/\S+"
MODULES = [
    *("torch._dynamo.testing", "torch._dynamo.backends.debugging", "torch._inductor.compile_fx"),
    *("torch._functorch.aot_autograd", "torch._functorch.partitioners", "torch.distributed.tensor"),
    *("torch.ao.quantization.fx", "torch.testing._internal.common_utils", "google.protobuf.text_format"),
    *("matplotlib.pyplot", "networkx", "pytest", "tqdm"),
]
sys.path[:0] = [str(ROOT / "test/support"), str(ROOT / "examples")]


def decode(layer: str, *modes: str) -> int:
    import deepseek_sparse_decode
    from test_examples import LENGTHS, SMALL

    with tempfile.TemporaryDirectory() as folder:
        return deepseek_sparse_decode.serve(SMALL, LENGTHS, {layer: modes}, 2, Path(folder) / "picture.png")


def operator(name: str) -> int:
    import torchair  # noqa: F401  (converters are registered)

    import custom_pypto
    from custom_pypto.authoring import check
    from custom_pypto.modes import MODES

    class OfOneCall(check.Operator):
        @property
        def samples(self):
            found = super().samples
            return replace(found, calls=dict(list(found.calls.items())[:1]))

    of_one_call, failed = OfOneCall(custom_pypto, name, ROOT), False
    for line in ("eager", "autograd", *MODES):
        try:
            print(line, check.BEHAVIOUR[line](of_one_call))
        except Exception as error:
            failed = True
            print(line, "FAILED", type(error).__name__, error)
    return 1 if failed else 0


class Fork:
    """Runs the program in a separate process, and the caller awaits its end."""

    def __init__(self, folder: str, checks: str):
        self.folder, self.checks = Path(folder), checks
        sys.stdout.flush()
        self.child = os.fork()

    def enter(self) -> None:
        os.setsid()
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT, 0o644), number)
        os.environ |= {"CANN_CPU_CHECK": self.checks, "CANN_CPU_FAULT_LOG": str(self.folder / "log")}

    def outcome(self, limit: float):
        from cann_cpu.checks.repeated_runs import SLICE, Outcome

        seconds, last, code = 0.0, time.monotonic(), None
        while seconds < limit:
            child, status = os.waitpid(self.child, os.WNOHANG)
            if child != 0:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.05)
            now = time.monotonic()
            seconds, last = seconds + min(now - last, SLICE), now
        else:
            os.killpg(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
        text = [(self.folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
        return Outcome(code, *text, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, help="for all calls, as JSON")
    parser.add_argument("--tried", type=Path, action="append", default=[], help="a report of calls that are left out")
    parser.add_argument("--functions", default="", metavar="REGEX", help="which fail; default: all that are called")
    parser.add_argument("program", choices=("decode", "operator"))
    parser.add_argument("arguments", nargs="+")
    options = parser.parse_args()
    os.environ |= {"CANN_CPU_CHECK": "fault", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    for module in MODULES:
        import_module(module)
    del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
    from cann_cpu.checks import fault_injection

    def run(checks: str, limit: float):
        """The outcome and the log; None in the process that is to run the program."""
        folder = tempfile.mkdtemp()
        fork = Fork(folder, checks)
        if fork.child == 0:
            fork.enter()
            return None
        outcome, log = fork.outcome(limit), fault_injection.read_log(os.path.join(folder, "log"))
        shutil.rmtree(folder)
        return outcome, log

    def program() -> int:
        import torch
        import torch_npu  # noqa: F401

        torch.manual_seed(0)
        return globals()[options.program](*options.arguments)

    if (unfailed := run("fault", float("inf"))) is None:
        return program()
    plain, log = unfailed
    print(plain.stdout, f"{len(log.calls)} places, {plain.seconds:.0f} s", sep="")
    if plain.code != 0:
        print(plain.stderr, file=sys.stderr)
        return plain.code or 1
    tried = {report["fault"] for file in options.tried for report in json.loads(file.read_text())}
    found = dict.fromkeys(fault_injection.spelled(*call) for call in log.calls if re.match(options.functions, call[0]))
    reports = []

    def write_report() -> None:
        if options.report:
            options.report.write_text(json.dumps(reports, indent=2))

    write_report()
    for fault in [fault for fault in found if fault not in tried]:
        if (failed := run(f"fault:{fault}", fault_injection.FACTOR * plain.seconds + fault_injection.PATIENCE)) is None:
            return program()
        word, more = fault_injection.judge(plain, log, *failed, IGNORED)
        reports.append({"fault": fault, "outcome": word, "detail": more})
        write_report()
        print(f"{word} when {fault} fails: {more}", flush=True)
        if word in fault_injection.WRONG:
            print(fault_injection.tail(failed[0].stderr), end="", flush=True)
    words = [report["outcome"] for report in reports]
    counts = ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
    print(f"{len(words)} calls failed in turn: {counts}")
    return 1 if set(words) & set(fault_injection.WRONG) else 0


if __name__ == "__main__":
    sys.exit(main())
