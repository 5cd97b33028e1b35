# SPDX-License-Identifier: Apache-2.0
"""The costs of a layer of DeepSeek's sparse attention for a rank in a decode step, for each way to divide it.

    TP  tensor parallel: each rank has some of the heads; caches and indexer are on all ranks
    DP  data parallel: each rank has some of the sequences
    CP  context parallel: each rank has some of the pages of every sequence, and the output projection of some heads

`python -m custom_pypto.parallel.costs` prints the table of docs/parallel.md.
"""

from dataclasses import dataclass
from typing import Protocol

WAYS = ("TP", "DP", "CP")
ITEM = 2  # bytes of bfloat16
PARTIAL = 4  # bytes of a partial sum: float32, so that the sum is rounded once, as on one rank


class Sizes(Protocol):
    """The sizes of a model, by default DeepSeek-V3.2's."""

    hidden: int = 7168
    q_lora: int = 1536
    kv_lora: int = 512
    heads: int = 128
    depth: int = 128
    rope_depth: int = 64
    index_heads: int = 64
    index_depth: int = 128
    top: int = 2048


class DeepSeek(Sizes):
    """DeepSeek-V3.2's."""


@dataclass(frozen=True)
class Machine:
    """A rank's bytes and operations per second. The latency of a collective is an assumption."""

    memory: float
    operations: float
    link: float
    latency: float = 10e-6


# One of the two dies of an Ascend 910C in CloudMatrix384, by the paper that describes it (arXiv:2506.12708): a package
# has 3.2 TB/s, 752 TFLOPS in bfloat16, 392 GB/s in each direction over the UB plane and 400 Gbit/s over the RDMA plane.
UB = Machine(memory=1.6e12, operations=376e12, link=196e9)
RDMA = Machine(memory=1.6e12, operations=376e12, link=25e9)


# ---- what is exchanged


def exchanged(way: str, sizes: Sizes, tokens: int, ranks: int) -> dict[str, float]:
    """The bytes that a rank receives in a step of so many tokens (sequences times new tokens of each), by their use.

    An all-gather brings a rank what the others have; an all-to-all their parts for it; an all-reduce, which is a
    reduce-scatter and an all-gather, a share of both.
    """
    if way == "DP":
        return {}
    others = ranks - 1
    hidden = {"output projection": 2 * others / ranks * tokens * sizes.hidden * PARTIAL}
    if way == "TP":
        return hidden
    return {
        "selection": others * tokens * sizes.top * (4 + 4),  # a score and a position
        "attention": others / ranks * tokens * sizes.heads * (sizes.kv_lora * ITEM + 4),  # and its logarithm
        **hidden,
    }


# ---- what a rank holds


def bytes_of_weights(way: str, sizes: Sizes, ranks: int) -> float:
    """The bytes of the weights of a layer's attention."""
    by_heads_in = (
        sizes.q_lora * sizes.heads * (sizes.depth + sizes.rope_depth) + sizes.heads * sizes.depth * sizes.kv_lora
    )
    by_heads_out = sizes.heads * sizes.kv_lora * sizes.depth + sizes.heads * sizes.depth * sizes.hidden
    whole = (
        sizes.hidden * (sizes.q_lora + sizes.kv_lora + sizes.rope_depth)
        + sizes.q_lora * sizes.index_heads * sizes.index_depth
        + sizes.hidden * (sizes.index_depth + sizes.index_heads)
    )
    into, out = {"TP": (ranks, ranks), "DP": (1, 1), "CP": (1, ranks)}[way]
    return ITEM * (whole + by_heads_in / into + by_heads_out / out)


def bytes_of_token(sizes: Sizes) -> int:
    """The bytes of a token in the caches of a layer."""
    return ITEM * (sizes.kv_lora + sizes.rope_depth + sizes.index_depth)


def bytes_of_caches(way: str, sizes: Sizes, sequences: int, length: int, ranks: int) -> float:
    """The bytes of a layer's caches on the rank that has the most, with sequences of one length."""
    tokens = {"TP": sequences * length, "DP": -(-sequences // ranks) * length, "CP": sequences * length / ranks}[way]
    return tokens * bytes_of_token(sizes)


# ---- how long it takes


def seconds(
    way: str, sizes: Sizes, sequences: int, length: int, ranks: int, machine: Machine, new_tokens: int = 1
) -> float:
    """A step of a layer on the rank that has the most to do: each stage takes as long as its memory or its operations,
    whichever is longer, and collectives overlap with nothing."""
    busy = -(-sequences // ranks) if way == "DP" else sequences  # sequences of a rank
    keys = length / ranks if way == "CP" else length
    heads = sizes.heads / ranks if way == "TP" else sizes.heads
    tokens = busy * new_tokens
    selected = min(sizes.top, length) / (ranks if way == "CP" else 1)
    row = sizes.kv_lora + sizes.rope_depth
    weights = bytes_of_weights(way, sizes, ranks)
    stages = [  # bytes and operations
        (weights, 2 * tokens * weights / ITEM),
        (busy * keys * sizes.index_depth * ITEM, 2 * tokens * keys * sizes.index_heads * sizes.index_depth),
        (tokens * selected * row * ITEM, 2 * tokens * selected * heads * (row + sizes.kv_lora)),
    ]
    parts = exchanged(way, sizes, tokens, ranks)
    links = sum(received / machine.link + machine.latency for received in parts.values())
    return links + sum(max(moved / machine.memory, done / machine.operations) for moved, done in stages)


# ---- the table

RANKS, LAYERS, CAPACITY = 16, 61, 64e9
LENGTHS, BATCHES = {"64K": 65536, "1M": 1048576}, (1, 4, 16, 64, 256)


def best_way(sizes: Sizes, sequences: int, length: int, machine: Machine) -> str:
    """The fastest whose caches and weights of all layers a rank can hold; with its ranks, if it takes more."""

    def fits(way: str, ranks: int) -> bool:
        caches = bytes_of_caches(way, sizes, sequences, length, ranks)
        return LAYERS * (caches + bytes_of_weights(way, sizes, ranks)) <= CAPACITY

    ranks = RANKS
    while not (ways := [way for way in WAYS if fits(way, ranks)]):
        ranks *= 2
    best = min(ways, key=lambda way: seconds(way, sizes, sequences, length, ranks, machine))
    return best if ranks == RANKS else f"{best} ({ranks} ranks)"


def table() -> str:
    """For DeepSeek-V3.2 on 16 ranks: KiB that a rank receives in a step and layer, microseconds of a step and layer,
    over UB and over RDMA, and GB of the caches of all layers on a rank; the best is the fastest that fits."""
    sizes = DeepSeek()
    lines = [
        "| tokens | sequences | KiB received: TP | CP | µs, UB: TP | DP | CP | µs, RDMA: TP | DP | CP "
        "| GB of caches: TP | DP | CP | best, UB | RDMA |",
        "|" + "--:|" * 13 + "---|---|",
    ]
    for name, length in LENGTHS.items():
        for batch in BATCHES:
            received = [sum(exchanged(way, sizes, batch, RANKS).values()) / 1024 for way in ("TP", "CP")]
            caches = {way: bytes_of_caches(way, sizes, batch, length, RANKS) * LAYERS for way in WAYS}
            times = [
                f"{seconds(way, sizes, batch, length, RANKS, machine) * 1e6:.0f}"
                for machine in (UB, RDMA)
                for way in WAYS
            ]
            best = [best_way(sizes, batch, length, machine) for machine in (UB, RDMA)]
            cells = [name, batch, *(f"{each:.0f}" for each in received), *times]
            cells += [*(f"{caches[way] / 1e9:.0f}" for way in WAYS), *best]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
