# SPDX-License-Identifier: Apache-2.0
"""What the Ascend C kernels of sparse attention cost on an NPU, by the model of docs/ascendc_cost.md: a table, and a
picture of the timeline of each kernel's first block. Nothing is timed: what else the machine does makes no difference.

Exit code 1 if one of them reaches less than 60 % of its roofline.

    python benchmark/npu_cost.py [FOLDER for the pictures, as docs/timelines] [--soc Ascend910_9391]
"""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

DEVICE_MEMORY = 1.6e12  # bytes a second
SHARE_OF_ROOFLINE = 0.6


@dataclass(frozen=True)
class Row:
    """A call: the operator, its sequences' lengths, the inputs that it reads whole, and how many bytes of others."""

    operator: str
    what: str
    lengths: list[int]
    read: tuple[str, ...] = ()
    others: int = 0


TOP = 2048
ROWS = [
    Row("npu_lightning_indexer_pto", "64K keys, 64 heads, top 2048", [65536] * 4, others=4 * 65536 * 128 * 2),
    Row(
        "npu_sparse_flash_attention_pto",
        "2048 of 16K tokens, 128 heads",
        [16384] * 4,
        others=4 * TOP * (512 + 64) * 2,
    ),
    Row(
        "npu_sparse_attention_pto",
        "the fused layer, 768 to 131071 tokens",
        [768, 4097, 8192, 131071],
        read=("w_dq", "w_uq_qr", "w_uk", "w_dkv_kr", "w_idx_qb", "w_idx_k", "w_idx_proj"),
        others=(768 + 4097 + 8192 + 131071) * 128 * 2 + (768 + 3 * TOP) * (512 + 64) * 2,
    ),
]


def profile(row: Row, folder: Path) -> tuple[dict, Path, float]:
    """The summary of the call's launch, its trace, and the microseconds to read its inputs once."""
    import references
    import torch

    import custom_pypto  # noqa: F401  (registers the operators)

    torch.manual_seed(0)
    inputs = getattr(references, row.operator.removeprefix("npu_").removesuffix("_pto") + "_inputs")(row.lengths)
    moved = {id(value): value.npu() for value in inputs.values() if isinstance(value, torch.Tensor)}
    before = set(folder.iterdir())
    getattr(torch.ops.custom_pypto, row.operator)(**{name: moved.get(id(v), v) for name, v in inputs.items()})
    torch.npu.synchronize()
    name = row.operator.removeprefix("npu_")
    (trace,) = (path for path in set(folder.iterdir()) - before if path.name.endswith(f"{name}.trace.json"))
    least = sum(inputs[each].nbytes for each in row.read) + row.others
    return json.loads(Path(str(trace).replace(".trace", "")).read_text()), trace, least / DEVICE_MEMORY * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("pictures", nargs="?", type=Path)
    parser.add_argument("--soc", default="Ascend910_9391")
    arguments = parser.parse_args()
    if arguments.pictures is not None:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CANN_CPU_SOC": arguments.soc, "ASCENDC_CPU_PROFILE": folder}
        sys.path.insert(0, str(Path(__file__).parents[1] / "test/support"))
        from cann_cpu.profiler.kernel_costs import draw

        print(f"By the model of {arguments.soc}, one new token in each of 4 sequences, bfloat16, top {TOP}:")
        shares = []
        for row in ROWS:
            summary, trace, least = profile(row, Path(folder))
            roofline = summary["roofline"]
            shares.append(roofline["share"])
            print(
                f"  {row.operator}, {row.what}: {summary['microseconds']:.1f} us, {roofline['share']:.1%} of the "
                f"roofline of {roofline['microseconds']:.1f} us ({roofline['bound']}); {least:.0f} us to read inputs"
            )
            if arguments.pictures is not None:
                picture = arguments.pictures / f"{row.operator}.png"
                draw(trace, picture, f"{row.operator}, {row.what}: block 0 on {arguments.soc}", block=0)
                print(f"    {picture}")
    return 0 if min(shares) >= SHARE_OF_ROOFLINE else 1


if __name__ == "__main__":
    sys.exit(main())
