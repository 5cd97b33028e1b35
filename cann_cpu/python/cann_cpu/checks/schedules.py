# SPDX-License-Identifier: Apache-2.0
"""The check `schedule` over many seeds: which is the first that changes a program's result, and by what task."""

import os
import re
import sys
import tempfile

from .repeated_runs import Outcome, difference, run, run_all, tail

FACTOR, PATIENCE = 10, 60
"""A run has this times the unperturbed one's seconds, and so many more, before it counts as hanging."""


def seeds_of(text: str) -> range:
    """1..200 or 7."""
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    seeds = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
    if not seeds:
        raise ValueError(f"--seeds is {text!r}; expected a number, or the first and the last as in 1..200")
    return seeds


def try_seeds(command: list[str], variables: dict[str, str], checks: str, seeds: range, ignored: str | None):
    """The exit code of the unperturbed run, and a report of the first seed that gives another result, in a list."""
    plain = run(command, variables)
    sys.stdout.write(plain.stdout)
    sys.stderr.write(plain.stderr)
    limit = FACTOR * plain.seconds + PATIENCE

    def perturbed(seed: int) -> Outcome:
        return run(command, variables | {"CANN_CPU_CHECK": checks, "CANN_CPU_SEED": str(seed)}, limit)

    trials = run_all(seeds, perturbed, "schedule")
    for seed, outcome in trials:
        text = hang(limit) if outcome.code is None else difference(plain, outcome, ignored)
        if text:
            trials.close()
            report = {"check": "schedule", "seed": seed, "difference": text}
            task = first_wrong_task(command, variables | {"CANN_CPU_CHECK": checks}, seed, limit)
            report |= {"task": task} if task else {}
            print(f"cann_cpu schedule: seed {seed} changes the result: {text}", file=sys.stderr)
            if task:
                print(f"  The first task that computes something else: {task}", file=sys.stderr)
                print("  Something that it uses is not ordered before it; --check=race names the two", file=sys.stderr)
            else:
                print("  No task computes anything else than in the order of the launches: either the", file=sys.stderr)
                print("  unperturbed run has another order, or the host reads before it has waited", file=sys.stderr)
            print(
                f"  The same order again: CANN_CPU_SEED={seed} python -m cann_cpu run --check={checks} -- COMMAND",
                file=sys.stderr,
            )
            if outcome.code not in (0, plain.code):
                sys.stderr.write(tail(outcome.stderr))
            return plain.code, [report]
    print(f"cann_cpu schedule: {len(seeds)} seeds, the same result", file=sys.stderr)
    return plain.code, []


def hang(limit: float) -> str:
    return f"it had not ended after {limit:.0f} s"


def first_wrong_task(command: list[str], variables: dict[str, str], seed: int, limit: float) -> str | None:
    """The first task, by launch, that writes something else than it does in the order of the launches."""
    expected = digests(command, variables | {"CANN_CPU_SEED": "0"}, limit)
    found = digests(command, variables | {"CANN_CPU_SEED": str(seed)}, limit)
    for key in sorted(expected.keys() & found.keys()):
        if expected[key] != found[key]:
            task, where, _ = found[key]
            on_rank = f" on rank {key[2]}" if any(rank for _, _, rank in found) else ""
            return task + on_rank + (f", launched at {where}" if where else "")
    return None


def digests(command: list[str], variables: dict[str, str], limit: float) -> dict:
    """What every task has written: its name, the place of its launch and the digest, by launch, node and rank."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "digests")
        run(command, variables | {"CANN_CPU_DIGESTS": file}, limit)
        return read_digests(file)


def read_digests(file: str) -> dict:
    if not os.path.exists(file):
        return {}
    with open(file) as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    return {(int(launch), int(node), int(rank)): tuple(rest) for rank, launch, node, *rest in rows}
