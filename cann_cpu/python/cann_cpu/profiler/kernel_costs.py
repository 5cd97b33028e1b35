# SPDX-License-Identifier: Apache-2.0
"""Shows the costs of launches by the model: the table of a launch's summary, and a picture of its timeline."""

import json
import os
from pathlib import Path

TRACE = ".trace.json"
_COLORS = {"S": "C7", "V": "C0", "MTE2": "C2", "MTE3": "C1", "M": "C3", "MTE1": "C4", "FIX": "C5"}


def lines(summary: dict) -> list[str]:
    """A summary as it is printed: the pipes, the ways of bytes, the time, and what bounds it."""
    cycles, chip = summary["cycles"], summary["soc"]
    table = [f"by the model of {chip}, {summary['clock_mhz']} MHz (docs/ascendc_cost.md):"]
    for name, pipe in summary["pipes"].items():
        share = pipe["busiest_core_cycles"] / cycles
        table.append(
            f"  {name:<5}{pipe['instructions']:>9} instructions{pipe['work']:>13} {pipe['unit']:<21}"
            f"busy for {pipe['busiest_core_cycles']:.0f} cycles, {share:.0%}"
        )
    for name, path in summary["paths"].items():
        table.append(f"  {name:<14}{path['bytes']:>13} bytes, {path['bytes'] / path['instructions']:.0f} a copy")
    if summary["l2_bytes"]:
        table.append(f"  L2{summary['l2_bytes']:>25.0f} bytes; device memory {summary['device_memory_bytes']:.0f}")
    if summary["unified_buffer_bytes"]:
        table.append(f"  unified buffer: {summary['unified_buffer_bytes']} of {summary['unified_buffer_limit']} bytes")
    roofline = summary["roofline"]
    table.append(
        f"  {cycles:.0f} cycles, {summary['microseconds']:.2f} us; one by one {summary['one_by_one_cycles']:.0f} cycles"
    )
    table.append(
        f"  roofline: {roofline['cycles']:.0f} cycles, {roofline['microseconds']:.2f} us ({roofline['bound']}); "
        f"the schedule reaches {roofline['share']:.1%} of it"
    )
    return table


def print_folder(folder: str) -> int:
    """The tables of all launches in a folder that ASCENDC_CPU_PROFILE has named, and their time in all."""
    summaries = sorted(path for path in Path(folder).glob("*.json") if not path.name.endswith(TRACE))
    if not summaries:
        raise SystemExit(f"{folder}: no launches; run a program with ASCENDC_CPU_PROFILE={folder}")
    total = 0.0
    for path in summaries:
        summary = json.loads(path.read_text())
        total += summary["microseconds"]
        print(f"{path.stem}: {summary['blocks']} blocks")
        print(*lines(summary), sep="\n")
    print(f"{len(summaries)} launches: {total:.2f} us")
    return 0


def draw(trace: str | os.PathLike, picture: str | os.PathLike, title: str, block: int | None = None) -> None:
    """The timeline of a Chrome trace as a picture, a row for each pipe of each core, or of those of one block."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise RuntimeError(
            f"{picture}: a picture takes matplotlib; pip install matplotlib, or give FILE.json"
        ) from None
    events = json.loads(Path(trace).read_text())["traceEvents"]
    cores = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    if block is not None:
        cores = {core: name for core, name in cores.items() if name.split(",")[0] == f"block {block}"}
    pipes = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] in cores
    }
    rows = {key: row for row, key in enumerate(pipes)}
    spans: dict[tuple[int, int], list[tuple[float, float]]] = {key: [] for key in rows}
    for event in events:
        if event["ph"] == "X" and event["pid"] in cores:
            spans[event["pid"], event["tid"]].append((event["ts"], event["dur"]))
    figure = Figure(figsize=(14, 1.2 + 0.22 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for key, row in rows.items():
        axes.broken_barh(
            spans[key], (row - 0.4, 0.8), facecolors=_COLORS[pipes[key]], edgecolors="white", linewidth=0.1
        )
    axes.set_yticks(range(len(rows)), [f"{cores[core]}  {pipes[core, pipe]}" for core, pipe in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("us, by the model")
    axes.set_title(title)
    figure.savefig(picture, dpi=150)
