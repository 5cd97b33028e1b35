# SPDX-License-Identifier: Apache-2.0
"""A decode step compiled ahead: once for all processes, as a file for the Graph Engine, and as a torch.export program.

Run it twice: the second process loads what the first one compiled.
"""

import time
from pathlib import Path

import torch
import torchair

import custom_pypto

FOLDER = Path(__file__).parents[1] / "build" / "compiled_ahead"


class Step(torch.nn.Module):
    """Writes the keys of new tokens to their cache, selects the best 16 for each query, and attends to them."""

    def forward(self, query, weights, key, slots, key_cache, lengths, block_table):
        custom_pypto.reshape_and_cache(key, None, key_cache, None, slots)
        selected = custom_pypto.npu_lightning_indexer_pto(
            query, key_cache, weights, actual_seq_lengths_key=lengths, block_table=block_table, sparse_count=16
        )
        return custom_pypto.npu_sparse_flash_attention_pto(
            query,
            key_cache,
            key_cache,
            selected,
            query.shape[-1] ** -0.5,
            actual_seq_lengths_kv=lengths,
            block_table=block_table,
        )


def inputs(batch, heads=8, depth=64, pages=4, page=16):
    """A decode step of one token for each sequence, in the order of Step.forward's arguments."""
    lengths = torch.randint(1, pages * page, (batch,))
    block_table = torch.randperm(batch * pages).view(batch, pages)
    last = lengths - 1  # the new token's position, and the slot that it is written to
    slots = block_table.gather(1, (last // page)[:, None])[:, 0] * page + last % page
    sizes = [(batch, 1, heads, depth), (batch, 1, heads), (batch, 1, depth), (batch * pages, page, 1, depth)]
    query, weights, key, key_cache = (torch.randn(*size).bfloat16() for size in sizes)
    return [t.npu() for t in (query, weights, key, slots, key_cache, lengths.int(), block_table.int())]


def main(folder: Path = FOLDER) -> None:
    torch.manual_seed(0)
    step, arguments = Step(), inputs(batch=3)
    eager = step(*arguments)

    # For later processes of this program: the first call compiles, or loads what an earlier process has compiled.
    start = time.perf_counter()
    cached = torchair.inference.cache_compile(step.forward, dynamic=False, cache_dir=str(folder / "cache"))
    assert torch.equal(cached(*arguments), eager)
    print(f"cache_compile: the first call took {time.perf_counter() - start:.2f} s")

    # For the Graph Engine: the graph (export.air; dynamo.pbtxt to read) and the options it was made with.
    torchair.dynamo_export(*arguments, model=step, export_path=str(folder / "air"))
    print(f"dynamo_export: {', '.join(sorted(path.name for path in (folder / 'air').iterdir()))}")

    # For torch: a program that any process with custom_pypto can load.
    program = torch.export.export(step, tuple(arguments))
    torch.export.save(program, folder / "step.pt2")
    assert torch.equal(torch.export.load(folder / "step.pt2").module()(*arguments), eager)
    print("torch.export: saved, loaded, and equal to eager")


if __name__ == "__main__":
    main()
