# SPDX-License-Identifier: Apache-2.0
"""Decodes as deepseek_sparse_decode.py does, with the attention of its model divided among the ranks of torchrun:

    TP  tensor parallel: each rank has some of the heads, and all caches
    DP  data parallel: each rank has some of the sequences
    CP  context parallel: each rank has some of the pages of every sequence (custom_pypto.parallel)

Rank 0 decodes alone first. Then each way is given the same tokens in every step, and must give the tokens that one
rank gives; another one only where one rank's own logits of the two are as good as equal, since parts of a sum are
rounded. The bytes that are exchanged are counted, and must be those of custom_pypto.parallel.costs, as must the weights
of a rank. Otherwise the exit code is 1.

    torchrun --nproc-per-node 2 examples/parallel_decode.py [--ways CP] [--mode npugraph_ex] [--model-widths]
"""

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

# The model and its caches; the script's folder is where Python looks first.
from deepseek_sparse_decode import (
    NEW_TOKENS,
    Decoder,
    Pages,
    Sizes,
    Step,
    attend,
    filled_caches,
    keys_of,
    rms_norm,
    sparse_attention_by_stages,
)
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from custom_pypto import parallel
from custom_pypto.modes import MODES, late_warnings
from custom_pypto.parallel import costs

SMALL = Sizes(hidden=1024, q_lora=256, heads=16, index_heads=16, top=256, vocabulary=1024)
EQUAL_LOGITS = 2**-6  # a rounding step of bfloat16 between 2 and 4, where the best logits lie


# ---- the model, divided


class Divided(Decoder):
    """The part of a model that a rank has."""

    def __init__(self, sizes: Sizes, longest: int, way: str):
        super().__init__(sizes, longest)
        self.way, self.rank, self.ranks = way, dist.get_rank(), dist.get_world_size()
        if way in ("TP", "CP"):
            self.w_uv, self.w_o = self.part(self.w_uv, 0), self.part(self.w_o, 0)
        if way == "TP":
            self.attention["w_uq_qr"] = self.part(self.attention["w_uq_qr"], 1)
            self.attention["w_uk"] = self.part(self.attention["w_uk"], 0)

    def part(self, weight: Tensor, dim: int) -> nn.Parameter:
        """Returns the part of a weight for the rank's heads."""
        return nn.Parameter(weight.chunk(self.ranks, dim)[self.rank].contiguous(), requires_grad=False)

    def forward(self, tokens: Tensor, blocks: int, **inputs: Tensor) -> Tensor:
        """The logits of the next tokens, in float32; `blocks` is how many a rank's caches have."""
        if self.way == "CP":
            inputs["block_table"] = parallel.own_blocks(inputs["block_table"], blocks)
            inputs["cache_index"] = parallel.own_slots(inputs["cache_index"], blocks, self.sizes.page)
        stages = {"index": index, "attend": attend_together} if self.way == "CP" else {}
        attention = sparse_attention_by_stages(**stages, **self.attention_arguments("stages", tokens, **inputs))
        hidden = nn.functional.embedding(tokens, self.embedding) + self.project(attention)
        return rms_norm(hidden, self.gamma_out, 1e-6).float() @ self.head.float()

    def project(self, attention: Tensor) -> Tensor:
        """The heads' parts of the output are summed in float32, whose sum is rounded as that of one rank."""
        if self.way not in ("TP", "CP"):
            return super().project(attention)
        values = torch.einsum("bsnc,ncd->bsnd", attention, self.w_uv).flatten(2)
        return parallel.all_reduce(values.float() @ self.w_o.float()).to(values.dtype)


def index(query: Tensor, weights: Tensor, a: dict) -> Tensor:
    return parallel.lightning_indexer(query, a["index_k_cache"], weights, **keys_of(a))


def attend_together(queries, selected: Tensor, a: dict) -> Tensor:
    return attend(queries, selected, a, parallel.sparse_flash_attention, scatter_heads=True)


# ---- the caches, divided


@dataclass
class Shelf:
    """What a rank has of the sequences, and of the caches on the host."""

    sequences: slice
    pages: Pages
    caches: dict[str, Tensor]

    @property
    def blocks(self) -> int:
        return len(self.caches["kv_cache"])


def shelf(way: str, pages: Pages, caches: dict[str, Tensor], steps: int) -> Shelf:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    everything = slice(0, len(pages.lengths))
    if way == "CP":
        each = -(-pages.blocks // ranks)
        own = {name: cache[rank * each : (rank + 1) * each] for name, cache in caches.items()}
        missing = each - len(own["kv_cache"])
        own = {name: torch.cat([c, c.new_zeros(missing, *c.shape[1:])]) for name, c in own.items()}
        return Shelf(everything, pages, own)
    if way == "DP":
        each = len(pages.lengths) // ranks
        sequences = slice(rank * each, (rank + 1) * each)
        own_pages = Pages(pages.lengths[sequences].tolist(), steps * NEW_TOKENS, pages.page)
        used = own_pages.block_table >= 0
        theirs = pages.block_table[sequences, : used.shape[1]]
        own = {name: cache.new_zeros(own_pages.blocks, *cache.shape[1:]) for name, cache in caches.items()}
        for name, cache in own.items():
            cache[own_pages.block_table[used].long()] = caches[name][theirs[used].long()]
        return Shelf(sequences, own_pages, own)
    return Shelf(everything, pages, caches)


# ---- decoding


class Received(TorchDispatchMode):
    """Counts the bytes that this rank receives in collectives, by their algorithms that move least."""

    def __init__(self):
        super().__init__()
        self.bytes, ranks = 0.0, dist.get_world_size()
        self.shares = {
            "all_gather_into_tensor": ranks - 1,
            "all_reduce": 2 * (ranks - 1) / ranks,
            "all_to_all_single": (ranks - 1) / ranks,
            "wait_tensor": 0,
        }

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.namespace == "_c10d_functional":
            self.bytes += self.shares[op._opname] * args[0].nbytes
        return op(*args, **(kwargs or {}))


@dataclass
class Run:
    way: str
    sequences: slice  # the rank's
    seconds: list[float] = field(default_factory=list)  # of each step; the first one compiles
    logits: list[Tensor] = field(default_factory=list)
    received: float = 0.0
    weights: int = 0
    caches: int = 0

    @property
    def step(self) -> float:
        return statistics.median(self.seconds[1:])


@dataclass(frozen=True)
class Problem:
    sizes: Sizes
    pages: Pages
    caches: dict[str, Tensor]
    prompt: Tensor
    longest: int
    steps: int


def decode(way: str, mode: str, problem: Problem, seed: int, given: list[Tensor] | None) -> Run:
    """Decodes in one way; after each step it goes on to the given tokens, or to its own."""
    torch.manual_seed(seed)
    model = Divided(problem.sizes, problem.longest, way).npu()
    own = shelf(way, copy.deepcopy(problem.pages), problem.caches, problem.steps)
    caches = {name: cache.npu() for name, cache in own.caches.items()}
    run = Run(way, own.sequences)
    run.weights = sum(
        weight.nbytes for weight in [*model.attention.values(), model.w_uv, model.w_o] if weight.dim() > 1
    )
    run.caches = sum(cache.nbytes for cache in caches.values())
    call, step = MODES[mode](model), Step(own.pages)
    for tokens in step_by_step(run, given, problem):
        start = time.perf_counter()
        step.advance(tokens.npu())
        logits = call(step.tokens, own.blocks, **step.inputs, **caches)
        run.logits.append(logits.cpu())
        run.seconds.append(time.perf_counter() - start)
    with Received() as counted:
        model(step.tokens, own.blocks, **step.inputs, **caches)
    run.received = counted.bytes
    torch.npu.synchronize()
    torch._dynamo.reset()
    return run


def step_by_step(run: Run, given: list[Tensor] | None, problem: Problem) -> Iterator[Tensor]:
    """The tokens that each step begins with."""
    tokens = problem.prompt
    for number in range(problem.steps):
        yield tokens[run.sequences]
        tokens = given[number] if given else run.logits[-1].argmax(-1)


# ---- what it comes to


def verdict(run: Run, given: list[Tensor], best: list[Tensor], problem: Problem) -> tuple[str, str]:
    """What is wrong, if anything, and what is to be said of the tokens."""
    ranks, same, total, wrong = dist.get_world_size(), 0, 0, ""
    for logits, tokens, reference in zip(run.logits, given, best, strict=True):
        ours, theirs = logits.argmax(-1), tokens[run.sequences]
        gaps = reference.max(-1).values[run.sequences] - reference[run.sequences].gather(-1, ours[..., None])[..., 0]
        same, total = same + int((ours == theirs).sum()), total + ours.numel()
        if total and (gaps > EQUAL_LOGITS).any():
            wrong = wrong or f"other tokens than one rank: its logits of the two differ by {gaps.max():.2f}"
    counts = torch.tensor([same, total]).npu()
    if run.way == "DP":  # the others have all sequences
        dist.all_reduce(counts)
    same, total = counts.tolist()
    said = "the same" if same == total else f"{same} of {total} the same, the others as good within {EQUAL_LOGITS}"
    tokens = len(problem.prompt[run.sequences]) * NEW_TOKENS
    expected = sum(costs.exchanged(run.way, problem.sizes, tokens, ranks).values())
    if run.received != expected:
        wrong = wrong or f"{run.received:.0f} bytes were exchanged, but the formula says {expected:.0f}"
    weights = costs.bytes_of_weights(run.way, problem.sizes, ranks)
    if run.weights != weights:
        wrong = wrong or f"the weights have {run.weights} bytes, but the formula says {weights:.0f}"
    return wrong, said


COLUMNS = "{:<10} {:>10} {:>16} {:>14} {:>14}  {}"


def show(*cells: str) -> None:
    if dist.get_rank() == 0:
        print(COLUMNS.format(*cells), flush=True)


def show_run(way: str, run: Run, said: str) -> None:
    """The slowest and the fullest of the ranks."""
    numbers = torch.tensor([run.step * 1e3, run.received / 1024, run.weights / 2**20, run.caches / 2**20])
    if run.way != "one rank":
        numbers = numbers.npu()
        dist.all_reduce(numbers, dist.ReduceOp.MAX)
    step, received, weights, caches = numbers.tolist()
    show(way, f"{step:.1f} ms", f"{received:.1f} KiB", f"{weights:.1f} MiB", f"{caches:.1f} MiB", said)


def decode_in_every_way(sizes: Sizes, lengths: list[int], steps: int, ways: list[str], mode: str) -> int:
    torch.manual_seed(0)
    pages = Pages(lengths, steps * NEW_TOKENS, sizes.page)
    caches = filled_caches(pages.blocks, sizes)
    prompt = torch.randint(sizes.vocabulary, (len(lengths), NEW_TOKENS))
    problem = Problem(sizes, pages, caches, prompt, max(lengths) + steps * NEW_TOKENS, steps)
    show("", "a step", "received", "weights", "caches", "tokens")
    best = [torch.empty(len(lengths), NEW_TOKENS, sizes.vocabulary) for _ in range(steps)]
    if dist.get_rank() == 0:
        alone = decode("one rank", mode, problem, 1, None)
        best = alone.logits
        show_run("one rank", alone, "")
    best = [whole.npu() for whole in best]
    for whole in best:
        dist.broadcast(whole, 0)
    best = [whole.cpu() for whole in best]
    given = [whole.argmax(-1) for whole in best]
    failed = torch.zeros(1).npu()
    for way in ways:
        run = decode(way, mode, problem, 1, given)
        wrong, said = verdict(run, given, best, problem)
        if wrong:
            print(f"FAILED: {way} on rank {dist.get_rank()}: {wrong}", flush=True)
            failed += 1
        show_run(way, run, said)
    dist.all_reduce(failed)
    return 1 if failed.item() else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=int, default=8192, help="tokens of the longest sequence")
    parser.add_argument("--sequences", type=int, default=4, help="how many; the shortest has 300 tokens")
    parser.add_argument("--steps", type=int, default=6, help="2 or more")
    parser.add_argument("--ways", nargs="+", choices=costs.WAYS, default=list(costs.WAYS))
    parser.add_argument("--mode", choices=list(MODES), default="eager")
    parser.add_argument("--model-widths", action="store_true", help="those of DeepSeek-V3.2 instead of small ones")
    options = parser.parse_args()
    rank, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    sizes = Sizes() if options.model_widths else SMALL
    if options.steps < 2 or options.sequences % ranks or sizes.heads % ranks:
        parser.error(f"at least 2 steps, and sequences and heads that {ranks} ranks divide are needed")
    torch.npu.set_device(rank)
    dist.init_process_group("hccl")
    lengths = torch.logspace(*torch.tensor([options.longest, 300.0]).log2().tolist(), options.sequences, base=2)
    if rank == 0:
        print(
            f"{ranks} ranks, sequences of {lengths.int().tolist()} tokens, {NEW_TOKENS} tokens a step, {options.mode}"
        )
    try:
        with torch.no_grad(), late_warnings():
            return decode_in_every_way(sizes, lengths.round().int().tolist(), options.steps, options.ways, options.mode)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
