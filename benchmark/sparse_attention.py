# SPDX-License-Identifier: Apache-2.0
"""Times the operators of DeepSeek sparse attention beside the same computations written with ATen operators.

All run on the CPU at the sizes of DeepSeek-V3.2, on the same paged caches, in turns, several rounds; the tables give
medians, and how far each is from what the speed of matrix products and of memory allows, measured in the same rounds.
The peers run eagerly and under inductor, in each natural form (peers.py). Where the processor has instructions for
bfloat16, they round scores and softmax weights to it, as ATen's matrix products do. Where it has none, ATen multiplies
float32 a hundred times as fast: they do so, their weights and queries are float32 from the start, and what they take of
a cache is converted. The same holds for int8.
Sparse flash attention multiplies its softmax weights in two parts of bfloat16; the peers round them once.
Operands come from memory: a call that touches few of them is made for several layers in turn. Then come, for longer
and longer caches, the operators' times and what memory they take beside their arguments and results, as a table and as
a picture.

Threads are bound to cores (OMP_PROC_BIND): where there are few, Linux likes to wake a thread on the core of the one
that wakes it, and lets both share it for milliseconds.

    python benchmark/sparse_attention.py [--rounds N] [--operators NAME ...] [--rows ROW ...]
"""

import argparse
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_PROC_BIND", "true")  # read when torch is loaded

import torch
from measure import Work, compare, fastest, medians, peak_memory, progress, ways
from peers import (
    ATTENTIONS,
    INDEXERS,
    indexer_prolog,
    keys_of,
    layer_prologs,
    slots_of,
    spans,
)
from torch import Tensor

import custom_pypto

sys.path.insert(0, str(Path(__file__).parents[1] / "test/support"))
import references

TOP = 2048
SPAN = 128  # query tokens that the peers take at once
TOUCHED = 64 << 20  # bytes of operands that the layers of a turn touch at least, more than caches hold
SAMPLE = 16  # tokens whose results are compared with the reference


@dataclass(frozen=True)
class Row:
    """A batch: the keys of its sequences, the new tokens included, and how many of these there are in each."""

    lengths: list[int]
    queries: int

    @property
    def tokens(self) -> int:
        return len(self.lengths) * self.queries

    @property
    def seen(self) -> int:
        """Pairs of a query token and a key that it sees."""
        before = [length - self.queries for length in self.lengths]
        return sum(self.queries * keys + self.queries * (self.queries + 1) // 2 for keys in before)


ROWS = {
    "B 4, 64K keys": Row([65536] * 4, 1),
    "B 32, 8K keys": Row([8192] * 32, 1),
    "prefill of 4K queries": Row([8192], 4096),
}
SERIES = [8192, 16384, 32768, 65536, 131072]


@dataclass
class Case:
    """One call of an operator, its peers, and how to judge the result of each."""

    ours: Callable[[], Tensor]
    peers: dict[str, Callable[[], Tensor]]
    judge: Callable[[Tensor], str]
    judged: str
    stages: list[Work]
    results: int  # bytes

    @property
    def layers(self) -> int:
        """How many such calls, with separate operands, evict the first one's operands from the caches."""
        return math.ceil(TOUCHED / (self.results + sum(stage.read for stage in self.stages)))


def on_npu(inputs: dict) -> dict:
    moved = {id(value): value.npu() for value in inputs.values() if isinstance(value, Tensor)}
    return {name: moved.get(id(value), value) for name, value in inputs.items()}


def for_peers(inputs: dict) -> dict:
    """The inputs, with bfloat16 tensors other than caches in the dtype that ATen multiplies faster."""
    caches = {"key", "key_rope", "kv_cache", "kr_cache", "index_k_cache"}
    return {
        name: value.to(fastest(torch.bfloat16))
        if isinstance(value, Tensor) and value.dtype == torch.bfloat16 and name not in caches
        else value
        for name, value in inputs.items()
    }


def call(operator: Callable, inputs: dict) -> Callable[[], Tensor]:
    """A call of the operator; of several results it gives the first."""

    def run():
        out = operator(**inputs)
        return out[0] if isinstance(out, tuple) else out

    return run


# ---- npu_lightning_indexer_pto


def indexer_work(row: Row, heads: int = 64, depth: int = 128) -> Work:
    return Work(bfloat16=2 * row.seen * heads * depth, read=sum(row.lengths) * depth * 2)


def same_keys(ours: Tensor) -> Callable[[Tensor], str]:
    def last_rows(indices):
        return [set(row[-1].flatten().tolist()) - {-1} for row in indices]

    chosen = last_rows(ours)

    def judge(indices):
        shared = sum(len(a & b) for a, b in zip(chosen, last_rows(indices), strict=True))
        return f"{shared / sum(map(len, chosen)):.2%}"

    return judge


def indexer(row: Row) -> Case:
    inputs = references.lightning_indexer_inputs(row.lengths, queries=row.queries)
    operands = for_peers(inputs)
    pages = inputs["block_table"].long()

    def entries(function):
        def index(span):
            query, weights = (operands[name][span.batch, span.first : span.last] for name in ("query", "weights"))
            return function(query, keys_of(operands["key"], pages[span.batch], span.keys), weights, TOP)

        return lambda: (
            torch.stack([index(span) for span in spans(row.lengths, row.queries, SPAN)])
            .unflatten(0, (len(row.lengths), -1))
            .flatten(1, 2)
        )

    ours = call(custom_pypto.npu_lightning_indexer_pto, on_npu(inputs) | {"sparse_count": TOP})
    return Case(
        ours,
        ways(INDEXERS, entries, dynamic=row.queries > 1),
        same_keys(ours()),
        "same keys",
        [indexer_work(row)],
        row.tokens * TOP * 4,
    )


# ---- npu_sparse_flash_attention_pto


def attention_work(row: Row, heads: int = 128, depth: int = 512, rope_depth: int = 64) -> Work:
    pairs = row.tokens * TOP
    return Work(bfloat16=2 * pairs * heads * (2 * depth + rope_depth), read=pairs * (depth + rope_depth) * 2)


def error_of_last(inputs: dict) -> Callable[[Tensor], str]:
    """Compares the last tokens of the first sequence with the reference; each stands at its sequence's end."""
    count = min(SAMPLE, inputs["query"].shape[1])
    last = {name: inputs[name][:1, -count:] for name in ("query", "query_rope", "sparse_indices")}
    first = {name: inputs[name][:1] for name in ("block_table", "actual_seq_lengths_kv")}
    expected = references.sparse_flash_attention(**inputs | last | first)

    def judge(out):
        return f"{(out[:1, -count:].cpu().double() - expected).abs().max().item():.1e}"

    return judge


def attention(row: Row) -> Case:
    inputs = references.sparse_flash_attention_inputs([n - 2 for n in row.lengths], count=TOP, queries=row.queries)
    # Every index names a token, and every token sees what its indices name.
    inputs |= {"actual_seq_lengths_kv": inputs["actual_seq_lengths_kv"] + 2, "sparse_mode": 0}
    operands = for_peers(inputs)
    query, rope, indices = (operands[name].flatten(0, 1) for name in ("query", "query_rope", "sparse_indices"))
    key, key_rope = inputs["key"].flatten(0, 2), inputs["key_rope"].flatten(0, 2)
    pages, page, scale = inputs["block_table"].long().clamp(min=0), inputs["key"].shape[1], inputs["scale_value"]

    def by(count):
        def make(function):
            def part(tokens):
                slots = slots_of(
                    indices[tokens, 0].long(), pages[torch.arange(len(query))[tokens] // row.queries], page
                )
                return function(query[tokens], rope[tokens], key, key_rope, slots, scale)

            parts = [slice(first, first + count) for first in range(0, len(query), count)]
            return lambda: torch.cat([part(tokens) for tokens in parts]).view(len(row.lengths), row.queries, -1, 512)

        return make

    together = min(row.tokens, 32)
    peers = {f"{name}, {together} at once": run for name, run in ways(ATTENTIONS, by(together), dynamic=False).items()}
    if row.tokens <= 32:
        peers |= {f"{name}, one by one": run for name, run in ways(ATTENTIONS, by(1), dynamic=False).items()}
    ours = call(custom_pypto.npu_sparse_flash_attention_pto, on_npu(inputs))
    return Case(ours, peers, error_of_last(inputs), "largest error", [attention_work(row)], query.nbytes)


# ---- npu_lightning_indexer_prolog_pto


def prolog(row: Row) -> Case:
    inputs = references.lightning_indexer_prolog_inputs(row.tokens, cache=(sum(row.lengths) // 128, 128))
    products = row.tokens * (inputs["wk"].numel() + inputs["weights_proj"].numel())
    rotations = row.tokens * (inputs["weights_proj"].shape[1] + 1) * inputs["hadamard_q"].numel()
    work = Work(
        int8=2 * row.tokens * inputs["wq_b"].numel(),
        bfloat16=2 * (products + rotations),
        read=sum(inputs[name].nbytes for name in ("wq_b", "wk", "weights_proj", "token_x")),
    )
    copies = for_peers(inputs) | {name: inputs[name].clone() for name in ("idx_k_cache", "idx_k_scale_cache")}
    copies = {name: value for name, value in copies.items() if not name.startswith("layout")}
    peers = {}
    for dtype in dict.fromkeys([fastest(torch.int8), fastest(torch.bfloat16)]):
        operands = copies | {"wq_b": copies["wq_b"].to(dtype)}
        functions = {f"{dtype} products".removeprefix("torch."): indexer_prolog}
        peers |= ways(functions, lambda function, operands=operands: lambda: function(**operands), dynamic=False)
    expected = references.lightning_indexer_prolog(**inputs)[0]

    def equal(out):
        return f"{(out[0] if isinstance(out, tuple) else out).cpu().eq(expected).double().mean().item():.3%}"

    ours = call(custom_pypto.npu_lightning_indexer_prolog_pto, on_npu(inputs))
    return Case(ours, peers, equal, "equal to reference", [work], expected.nbytes)


# ---- npu_sparse_attention_pto


def layer_work(inputs: dict, row: Row) -> list[Work]:
    weights = [value for name, value in inputs.items() if name.startswith("w_")]
    prologs = Work(
        bfloat16=2 * row.tokens * sum(weight.numel() for weight in weights),
        read=sum(weight.nbytes for weight in weights),
    )
    return [prologs, indexer_work(row), attention_work(row)]


def layer(row: Row) -> Case:
    inputs = references.sparse_attention_inputs(row.lengths, queries=row.queries)
    caches = {name: inputs[name].clone() for name in ("kv_cache", "kr_cache", "index_k_cache")}
    copies = for_peers(inputs) | caches
    key, key_rope = caches["kv_cache"].flatten(0, 2), caches["kr_cache"].flatten(0, 2)
    pages, page = inputs["block_table"].long().clamp(min=0), inputs["kv_cache"].shape[1]
    scale = (key.shape[-1] + key_rope.shape[-1]) ** -0.5

    def run(functions):
        prologs, index, attend = functions

        def part(span):
            tokens = slice(span.batch * row.queries + span.first, span.batch * row.queries + span.last)
            query, query_rope, index_query, weights = prologs(copies, tokens)
            keys = keys_of(caches["index_k_cache"], pages[span.batch], span.keys)
            positions = index(index_query, keys, weights, TOP)
            slots = slots_of(positions, pages[span.batch].expand(len(positions), -1), page)
            each = range(len(slots))
            return torch.cat(
                [attend(query[i, None], query_rope[i, None], key, key_rope, slots[i, None], scale) for i in each]
            )

        return lambda: torch.cat([part(span) for span in spans(row.lengths, row.queries, SPAN)])

    eager = (layer_prologs, INDEXERS["sum over heads by matmul"], ATTENTIONS["one product"])
    compiled = (torch.compile(layer_prologs), INDEXERS["sum over heads by reduction"], ATTENTIONS["one product"])
    peers = {
        "ATen eager": run(eager),
        "inductor": run((compiled[0], *(torch.compile(f, dynamic=row.queries > 1) for f in compiled[1:]))),
    }
    ours = call(custom_pypto.npu_sparse_attention_pto, on_npu(inputs) | {"sparse_count": TOP})
    expected = ours().cpu().flatten(0, 1).double()

    def difference(out):
        return f"{(out.cpu().double().view_as(expected) - expected).abs().max().item():.1e}"

    return Case(ours, peers, difference, "off ours by", layer_work(inputs, row), expected.numel() * 2)


OPERATORS = {
    "npu_lightning_indexer_prolog_pto": prolog,
    "npu_lightning_indexer_pto": indexer,
    "npu_sparse_flash_attention_pto": attention,
    "npu_sparse_attention_pto": layer,
}


# ---- tables


def compare_rows(operators: list[str], rows: list[str], rounds: int) -> list[str]:
    """Prints a table for each operator and row; returns those that ours is not the fastest of."""
    lost = []
    for name in operators:
        for title in rows:
            progress(f"{name}, {title}: inputs")
            torch._dynamo.reset()
            case = OPERATORS[name](ROWS[title])
            cases = [case] + [OPERATORS[name](ROWS[title]) for _ in range(1, case.layers)]
            candidates = {name: [c.ours for c in cases]}
            candidates |= {peer: [c.peers[peer] for c in cases] for peer in case.peers}
            case.ours()  # what is set up once
            memory = max(peak_memory(case.ours) - case.results, 0)
            few = rounds if ROWS[title].tokens < 1000 else min(rounds, 3)
            if not compare(f"{name}, {title}", candidates, case.judge, case.judged, case.stages, few):
                lost.append(f"{name}, {title}")
            print(f"{name} takes {memory / 2**20 / torch.get_num_threads():.0f} MiB a core beside arguments and result")
    return lost


# ---- growth


@dataclass
class Point:
    keys: int
    seconds: float
    memory: int


def grow(name: str, rounds: int) -> list[Point]:
    """Time and memory of calls with four sequences of more and more keys."""
    OPERATORS[name](Row([256] * 4, 1)).ours()  # what is set up once
    points = []
    for keys in SERIES:
        progress(f"{name}, {keys} keys")
        case = OPERATORS[name](Row([keys] * 4, 1))
        memory = peak_memory(case.ours) - case.results
        points.append(Point(keys, medians({name: [case.ours]}, rounds)[name], max(memory, 0)))
    return points


def off_the_line(points: list[Point]) -> float:
    """The largest deviation from the straight line through the points (least squares), as a part of the time there."""
    keys, times = (torch.tensor(values).double() for values in zip(*((p.keys, p.seconds) for p in points), strict=True))
    ones = torch.ones_like(keys)
    # Weighted by the time, so that short calls count as much as long ones.
    system = torch.stack([ones, keys], 1) / times[:, None]
    line = torch.linalg.lstsq(system, ones[:, None]).solution
    return (system @ line - 1).abs().max().item()


def print_series(series: dict[str, list[Point]]) -> None:
    print("\nB 4, one query token each: ms a call, and MiB a core beside arguments and results")
    print(f"{'':34}" + "".join(f"{f'{keys // 1024}K keys':>16}" for keys in SERIES) + f"{'off a line':>12}")
    for name, points in series.items():
        cells = (f"{p.seconds * 1e3:.2f} / {p.memory / 2**20 / torch.get_num_threads():.0f}" for p in points)
        print(f"{name:34}" + "".join(f"{cell:>16}" for cell in cells) + f"{off_the_line(points):12.0%}")


def draw(series: dict[str, list[Point]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for name, points in series.items():
        axes.plot([p.keys / 1024 for p in points], [p.seconds * 1e3 for p in points], marker="o", label=name)
    axes.set(title="Four sequences, one query token each", xlabel="thousand (1024) keys in each", ylabel="ms a call")
    axes.set(xlim=0, ylim=0)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"Picture: {path}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--operators", nargs="+", choices=OPERATORS, default=list(OPERATORS))
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    lost = compare_rows(arguments.operators, arguments.rows, arguments.rounds)
    series = {name: grow(name, arguments.rounds) for name in arguments.operators}
    print_series(series)
    draw(series, Path(__file__).parents[1] / "build" / "sparse_attention.png")
    print("\nOurs are the fastest in every row." if not lost else f"\nNOT the fastest: {'; '.join(lost)}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
