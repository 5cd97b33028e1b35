"""Times the lightning indexer beside the same computation written with ATen operators, eager and under inductor.

All run on the CPU, on the same paged cache in bfloat16, in turn, several rounds; the table gives medians, and how far
each is from what this machine's measured matrix speed and memory bandwidth allow. The peers round the products of
queries and keys to bfloat16, as ATen's matrix product does; the indexer keeps them in float32.

    python benchmark/indexer.py [--rounds N]
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from measure import compare, conclude, machine, ways
from torch import Tensor

import custom_pypto  # noqa: F401

sys.path.insert(0, str(Path(__file__).parents[1] / "test"))
import goldens

TOP = 2048


def mask_later_keys(scores: Tensor) -> Tensor:
    """Hides from query i of S all keys but the last S - 1 - i; scores are (..., S, keys)."""
    queries, keys = scores.shape[-2:]
    if queries == 1:
        return scores
    visible = keys - queries + 1 + torch.arange(queries)
    return scores.masked_fill(torch.arange(keys) >= visible[:, None], -torch.inf)


def entry_matmul(query: Tensor, key: Tensor, weights: Tensor, pages: Tensor, keys: int) -> Tensor:
    """One batch entry; the sum over the heads is a matrix product."""
    gathered = key[pages].flatten(0, 2)[:keys]
    products = (query.flatten(0, 1) @ gathered.t()).relu_().unflatten(0, query.shape[:2])
    scores = torch.bmm(weights[:, None], products.float())[:, 0]
    return mask_later_keys(scores).topk(min(TOP, keys)).indices


def entry_sum(query: Tensor, key: Tensor, weights: Tensor, pages: Tensor, keys: int) -> Tensor:
    """One batch entry; the sum over the heads is a reduction, which a compiler can fuse."""
    gathered = key[pages].flatten(0, 2)[:keys]
    products = (gathered @ query.flatten(0, 1).t()).unflatten(1, query.shape[:2])
    scores = (products.float().relu() * weights).sum(-1).t()
    return mask_later_keys(scores).topk(min(TOP, keys)).indices


def batch_matmul(query: Tensor, key: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    """All batch entries at once, of equal length and with one query each."""
    products = torch.bmm(key[table].flatten(1, 3), query[:, 0].transpose(1, 2)).relu_()
    return torch.bmm(products.float(), weights.transpose(1, 2))[..., 0].topk(TOP).indices


def batch_sum(query: Tensor, key: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    products = torch.bmm(key[table].flatten(1, 3), query[:, 0].transpose(1, 2))
    return (products.float().relu() * weights).sum(-1).topk(TOP).indices


def peers(inputs: dict, lengths: list[int]) -> dict[str, Callable[[], list[Tensor]]]:
    """Every way of writing it, eager and compiled; each returns the indices of every batch entry."""
    query, key, weights = inputs["query"], inputs["key"], inputs["weights"].float()
    table = inputs["block_table"].long()
    pages = [row[row >= 0] for row in table]
    equal = len(set(lengths)) == 1

    def entries(function):
        return lambda: [function(query[b], key, weights[b], pages[b], n) for b, n in enumerate(lengths)]

    def batch(function):
        full = table[:, : len(pages[0])]
        return lambda: list(function(query, key, weights, full))

    written = {"entry by entry, matmul": entry_matmul, "entry by entry, sum": entry_sum}
    found = ways(written, entries, dynamic=not equal)
    if equal and query.shape[1] == 1:
        found |= ways({"batched, matmul": batch_matmul, "batched, sum": batch_sum}, batch, dynamic=not equal)
    return found


def case(title: str, inputs: dict, lengths: list[int], flops: float, bandwidth: float, rounds: int) -> bool:
    queries, heads, depth = inputs["query"].shape[1:]
    work = 2 * sum(lengths) * queries * heads * depth
    limit = max(work / flops, sum(lengths) * depth * 2 / bandwidth)
    on_npu = {name: value.npu() if isinstance(value, Tensor) else value for name, value in inputs.items()}

    def indexer():
        out = torch.ops.custom_pypto.npu_lightning_indexer_pto(**on_npu, sparse_count=TOP)
        torch.npu.synchronize()
        return out[:, :, 0]

    def last_rows(rows):
        return [set((row if row.dim() == 1 else row[-1]).tolist()) - {-1} for row in rows]

    chosen = last_rows(indexer().cpu())

    def same_keys(rows):
        shared = sum(len(a & b) for a, b in zip(chosen, last_rows(rows), strict=True))
        return f"{shared / sum(map(len, chosen)):.2%}"

    candidates = {"npu_lightning_indexer_pto": indexer, **peers(inputs, lengths)}
    return compare(title, candidates, same_keys, "same keys", work, limit, rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    flops, bandwidth = machine(rounds)
    mixed = torch.randint(1, 8193, (32,)).tolist()
    cases = {
        "B 4, S1 1, 8K keys": ([8192] * 4, 1),
        "B 4, S1 1, 64K keys": ([65536] * 4, 1),
        "B 32, S1 3, 1 to 8192 keys": (mixed, 3),
    }
    fastest = [
        case(title, goldens.lightning_indexer_inputs(lengths, queries=queries), lengths, flops, bandwidth, rounds)
        for title, (lengths, queries) in cases.items()
    ]
    return conclude("indexer", fastest)


if __name__ == "__main__":
    sys.exit(main())
