"""Times sparse flash attention beside the same computation written with ATen operators, eager and under inductor.

All run on the CPU at the sizes of DeepSeek-V3.2 (128 heads of 512 + 64, 2048 selected tokens, one new token for each
sequence), on the same paged cache in bfloat16, in turn, several rounds; the table gives medians, and how far each is
from what this machine's measured matrix speed and memory bandwidth allow. The peers round scores and softmax weights to
bfloat16, as ATen's matrix product does. The operator does not: it multiplies twice with the values, which alone keeps
it at two thirds of the limit.

    python benchmark/sparse_flash_attention.py [--rounds N]
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


def slots_of(indices: Tensor, table: Tensor, page: int) -> Tensor:
    """Where in the cache the tokens lie: [B, k]."""
    return torch.gather(table, 1, indices // page) * page + indices % page


def two_products(query: Tensor, rope: Tensor, key: Tensor, key_rope: Tensor, slots: Tensor, scale: float) -> Tensor:
    """The scores are the sum of the products of both parts."""
    rows = key[slots]
    scores = torch.bmm(query, rows.transpose(1, 2)) + torch.bmm(rope, key_rope[slots].transpose(1, 2))
    return torch.bmm((scores.float() * scale).softmax(-1).to(rows.dtype), rows)


def one_product(query: Tensor, rope: Tensor, key: Tensor, key_rope: Tensor, slots: Tensor, scale: float) -> Tensor:
    """Both parts are joined first."""
    rows = torch.cat([key[slots], key_rope[slots]], -1)
    scores = torch.bmm(torch.cat([query, rope], -1), rows.transpose(1, 2))
    weights = (scores.float() * scale).softmax(-1).to(rows.dtype)
    return torch.bmm(weights, rows[..., : key.shape[-1]])


def peers(inputs: dict) -> dict[str, Callable[[], Tensor]]:
    """Every way of writing it, eager and compiled, all sequences at once or one by one."""
    query, rope = inputs["query"][:, 0], inputs["query_rope"][:, 0]
    key, key_rope = inputs["key"].flatten(0, 2), inputs["key_rope"].flatten(0, 2)
    table, indices = inputs["block_table"].long().clamp(min=0), inputs["sparse_indices"][:, 0, 0].long()
    page, scale = inputs["key"].shape[1], inputs["scale_value"]

    def batched(function):
        return lambda: function(query, rope, key, key_rope, slots_of(indices, table, page), scale)

    def one_by_one(function):
        def run():
            slots = slots_of(indices, table, page)
            entries = [slice(b, b + 1) for b in range(len(query))]
            return torch.cat([function(query[b], rope[b], key, key_rope, slots[b], scale) for b in entries])

        return run

    functions = {"two products": two_products, "one product": one_product}
    return {f"{name}, batched": run for name, run in ways(functions, batched, dynamic=False).items()} | {
        f"{name}, one by one": run for name, run in ways(functions, one_by_one, dynamic=False).items()
    }


def case(title: str, lengths: list[int], flops: float, bandwidth: float, rounds: int) -> bool:
    inputs = goldens.sparse_flash_attention_inputs([length - 2 for length in lengths], count=TOP)
    inputs["actual_seq_lengths_kv"] += 2  # every index names a token
    _, _, heads, depth = inputs["query"].shape
    row = depth + inputs["query_rope"].shape[-1]
    tokens = len(lengths) * TOP
    work = 2 * tokens * heads * (row + depth)
    limit = max(work / flops, tokens * row * 2 / bandwidth)
    on_npu = {name: value.npu() if isinstance(value, Tensor) else value for name, value in inputs.items()}
    on_npu["value"] = on_npu["key"]
    expected = goldens.sparse_flash_attention(**inputs)[:, 0]

    def attention():
        out = torch.ops.custom_pypto.npu_sparse_flash_attention_pto(**on_npu)
        torch.npu.synchronize()
        return out[:, 0]

    def error(out):
        return f"{(out.cpu().double() - expected).abs().max().item():.1e}"

    candidates = {"npu_sparse_flash_attention_pto": attention, **peers(inputs)}
    return compare(title, candidates, error, "largest error", work, limit, rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    limits = machine(rounds)
    cases = {"B 4, 64K keys": [65536] * 4, "B 32, 8K keys": [8192] * 32}
    return conclude("attention", [case(title, lengths, *limits, rounds) for title, lengths in cases.items()])


if __name__ == "__main__":
    sys.exit(main())
