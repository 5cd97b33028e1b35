# SPDX-License-Identifier: Apache-2.0
"""Decodes with DeepSeek-V3.2's sparse attention, as a server does: several sequences, a paged cache, graphs.

A layer of the model's true widths on random weights, between an embedding and a small vocabulary. Every step takes the
two newest tokens of each sequence and gives the two after them (as multi-token prediction does whose drafts are all
accepted). The attention is computed in three ways:

    fused       npu_sparse_attention_pto, the whole attention in one operator
    stages      matrix products of torch, reshape_and_cache, npu_lightning_indexer_pto, npu_sparse_flash_attention_pto,
                which write to the same caches
    quantised   the stages with an indexer on int8: npu_lightning_indexer_prolog_pto, npu_lightning_indexer_quant_pto

advance_step_flashattn leads from step to step, without leaving the device.

Each runs eagerly and in graphs, from the same caches. The attention of the first eager step must be that of the
formulas. In graphs the tokens, and attention and caches of the first step, must be bitwise equal to eager; otherwise
the exit code is 1. The quantised indexer selects other keys near the last place than the others do, so its tokens may
differ from theirs; the example prints how many are the same.

    python examples/deepseek_sparse_decode.py [--longest 131072] [--layer fused] [--modes "GE static" npugraph_ex]
"""

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import torch
from torch import Tensor, nn
from tqdm import tqdm

import custom_pypto
from custom_pypto.modes import MODES, late_warnings

sys.path.insert(0, str(Path(__file__).parents[1] / "test/support"))
import references

NEW_TOKENS = 2  # that a step decodes of each sequence


@dataclass(frozen=True)
class Sizes:
    """DeepSeek-V3.2's, but for the vocabulary."""

    hidden: int = 7168
    q_lora: int = 1536
    kv_lora: int = 512
    heads: int = 128
    depth: int = 128  # of a head of queries, keys and values
    rope_depth: int = 64  # of the rotary part beside it
    index_heads: int = 64
    index_depth: int = 128
    top: int = 2048  # tokens that the indexer selects
    page: int = 128  # tokens on a page of the caches
    vocabulary: int = 8192


# ---- the paged cache: which token lies where


class Pages:
    """The pages of the caches: a free list, and for every sequence a row of the block table that names its pages."""

    def __init__(self, lengths: list[int], max_new_tokens: int, page: int):
        """Sequences of these lengths, which may each grow by `max_new_tokens` tokens."""
        self.page = page
        counts = [self.count(length + max_new_tokens) for length in lengths]
        self.blocks = sum(counts)
        self.free = torch.randperm(self.blocks).tolist()  # in no particular order, as in a server that has run a while
        self.block_table = torch.full((len(lengths), max(counts)), -1, dtype=torch.int32)  # as wide as it ever gets
        self.lengths = torch.zeros(len(lengths), dtype=torch.int32)
        self.extend(torch.tensor(lengths, dtype=torch.int32))  # what a prefill has cached

    def count(self, tokens: int) -> int:
        return -(-tokens // self.page)

    def extend(self, tokens: Tensor) -> None:
        """Makes every sequence longer by so many tokens, and takes free pages where it needs them."""
        before, self.lengths = self.lengths.tolist(), self.lengths + tokens
        for row, old, new in zip(self.block_table, before, self.lengths.tolist(), strict=True):
            for block in range(self.count(old), self.count(new)):
                row[block] = self.free.pop()


class Step:
    """What the model takes in a step, on the NPU: it keeps its size and its address, so that one graph serves all."""

    def __init__(self, pages: Pages):
        self.pages = pages
        shape = len(pages.lengths), NEW_TOKENS
        self.tokens = torch.zeros(shape, dtype=torch.int64, device="npu")
        self.inputs = {
            "positions": torch.zeros(shape, dtype=torch.int64, device="npu"),
            "cache_index": torch.zeros(shape, dtype=torch.int32, device="npu"),  # the slot of each new token
            "block_table": pages.block_table.npu(),
            "act_seqs": pages.lengths.npu(),
        }

    def advance(self, sampled: Tensor) -> None:
        """Goes on to these tokens, [B, NEW_TOKENS]. Only the pages are assigned on the host."""
        self.pages.extend(torch.tensor(NEW_TOKENS))
        self.inputs["block_table"].copy_(self.pages.block_table)
        for column in range(NEW_TOKENS):
            custom_pypto.advance_step_flashattn(
                num_seqs=len(sampled),
                num_queries=len(sampled),
                block_size=self.pages.page,
                input_tokens=self.tokens[:, column],
                sampled_token_ids=sampled[:, column, None],
                input_positions=self.inputs["positions"][:, column],
                seq_lens=self.inputs["act_seqs"],
                slot_mapping=self.inputs["cache_index"][:, column],
                block_tables=self.inputs["block_table"],
            )


def filled_caches(blocks: int, sizes: Sizes) -> dict[str, Tensor]:
    """Caches as a prefill leaves them: normalised rows, here random ones."""
    depths = {"kv_cache": sizes.kv_lora, "kr_cache": sizes.rope_depth, "index_k_cache": sizes.index_depth}
    return {name: random(blocks, sizes.page, 1, depth, deviation=1) for name, depth in depths.items()}


def quantised_caches(caches: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with the indexer's keys as npu_lightning_indexer_prolog_pto writes them."""
    keys = caches["index_k_cache"]
    rows, scales = quantise(keys @ hadamard(keys.shape[-1]))
    return caches | {"index_k_cache": rows, "index_k_scale_cache": scales.squeeze(-1).half()}


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of int8, and a scale for each."""
    scale = x.float().abs().max(-1, keepdim=True).values / 127
    return (x.float() / scale).round().to(torch.int8), scale


def hadamard(size: int) -> Tensor:
    """Turns rows so that no number of them is much larger than the others; it is its own inverse."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (matrix / size**0.5).bfloat16()


# ---- the attention, stage by stage


def rms_norm(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * gamma.float()).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, mode: str) -> Tensor:
    """Rotary embedding of neighbours ("interleave") or of elements a half apart ("half"), as its results always lie."""
    wide = x.float()
    first, second = wide.unflatten(-1, (-1, 2)).unbind(-1) if mode == "interleave" else wide.chunk(2, -1)
    rotated = torch.cat([first, second], -1) * cos.float() + torch.cat([-second, first], -1) * sin.float()
    return rotated.to(x.dtype)


def rotate_first(x: Tensor, cos: Tensor, sin: Tensor, mode: str) -> Tensor:
    """The indexer rotates the first elements of a head and leaves the rest."""
    first, rest = x.split([cos.shape[-1], x.shape[-1] - cos.shape[-1]], -1)
    return torch.cat([rotate(first, cos, sin, mode), rest], -1)


def no_lap(stage: str) -> None:
    """What is called after each stage when nobody measures them."""


@dataclass
class Queries:
    """What the attention takes of the new tokens."""

    latent: Tensor  # [B, S1, q_lora]
    query: Tensor  # [B, S1, heads, kv_lora]
    rope: Tensor  # [B, S1, heads, rope_depth]


def mla_prolog(a: dict) -> Queries:
    """Multi-head latent attention with absorbed weights: queries come to the keys' latent space, keys stay there."""
    heads, depth, kv_lora = a["w_uk"].shape
    rope_depth = a["cos"].shape[-1]
    latent = rms_norm(a["x"] @ a["w_dq"], a["gamma_cq"], a["rms_norm_eps"])
    query, query_rope = (latent @ a["w_uq_qr"]).unflatten(-1, (heads, -1)).split([depth, rope_depth], -1)
    query = torch.einsum("bsnd,ndc->bsnc", query, a["w_uk"])
    query_rope = rotate(query_rope, *of_heads(a), a["rope_mode"])
    key, key_rope = (a["x"] @ a["w_dkv_kr"]).split([kv_lora, rope_depth], -1)
    key = rms_norm(key, a["gamma_ckv"], a["rms_norm_eps"])
    key_rope = rotate(key_rope, a["cos"], a["sin"], a["rope_mode"])
    torch.ops.custom_pypto.reshape_and_cache(key, key_rope, a["kv_cache"], a["kr_cache"], a["cache_index"])
    return Queries(latent, query, query_rope)


def of_heads(a: dict) -> tuple[Tensor, Tensor]:
    """The rotary embedding's cos and sin, which are the same for all heads of a token."""
    return a["cos"][..., None, :], a["sin"][..., None, :]


def keys_of(a: dict) -> dict:
    """Where the indexers find the keys, and how many they select."""
    return {
        "actual_seq_lengths_key": a["act_seqs"],
        "block_table": a["block_table"],
        "sparse_count": a["sparse_count"],
    }


def index(query: Tensor, weights: Tensor, a: dict) -> Tensor:
    return torch.ops.custom_pypto.npu_lightning_indexer_pto(query, a["index_k_cache"], weights, **keys_of(a))


def attend(
    queries: Queries,
    selected: Tensor,
    a: dict,
    operator: Callable[..., Tensor] = torch.ops.custom_pypto.npu_sparse_flash_attention_pto,
    **more,
) -> Tensor:
    return operator(
        queries.query,
        a["kv_cache"],
        a["kv_cache"],
        selected,
        a["softmax_scale"],
        block_table=a["block_table"],
        actual_seq_lengths_kv=a["act_seqs"],
        query_rope=queries.rope,
        key_rope=a["kr_cache"],
        **more,
    )


def sparse_attention_by_stages(
    lap: Callable[[str], None] = no_lap, index: Callable = index, attend: Callable = attend, **a
) -> Tensor:
    """What npu_sparse_attention_pto computes, with its arguments: [B, S1, heads, kv_lora]."""
    queries = mla_prolog(a)
    lap("MLA prolog")

    # The lightning indexer has its own small queries and keys.
    index_q = (queries.latent @ a["w_idx_qb"]).unflatten(-1, (-1, a["w_idx_k"].shape[1]))
    index_q = rotate_first(index_q, *of_heads(a), a["indexer_rope_mode"])
    index_k = a["x"].float() @ a["w_idx_k"].float()
    index_k = nn.functional.layer_norm(
        index_k, index_k.shape[-1:], a["in_gamma_k"].float(), a["in_beta_k"].float(), a["layer_norm_eps"]
    )
    index_k = rotate_first(index_k.to(a["x"].dtype), a["cos"], a["sin"], a["indexer_rope_mode"])
    torch.ops.custom_pypto.reshape_and_cache(index_k, None, a["index_k_cache"], None, a["cache_index"])
    weights = a["x"] @ a["w_idx_proj"]
    lap("indexer prolog")

    selected = index(index_q, weights, a)
    lap("lightning indexer")
    attention = attend(queries, selected, a)
    lap("sparse flash attention")
    return attention


def fused_sparse_attention(lap: Callable[[str], None] = no_lap, **a) -> Tensor:
    attention = torch.ops.custom_pypto.npu_sparse_attention_pto(**a)
    lap("sparse attention, fused")
    return attention


def index_prolog_arguments(latent: Tensor, a: dict) -> dict:
    """Returns the arguments of npu_lightning_indexer_prolog_pto."""
    q_norm, q_norm_scale = quantise(latent)
    return {
        "token_x": a["x"],
        "q_norm": q_norm,
        "q_norm_scale": q_norm_scale,
        "wq_b": a["w_idx_qb"],
        "wq_b_scale": a["w_idx_qb_scale"],
        "wk": a["w_idx_k"],
        "weights_proj": a["w_idx_proj"],
        "ln_gamma_k": a["in_gamma_k"],
        "ln_beta_k": a["in_beta_k"],
        "cos_idx_rope": a["cos"],
        "sin_idx_rope": a["sin"],
        "hadamard_q": a["hadamard"],
        "hadamard_k": a["hadamard"],
        "idx_k_cache": a["index_k_cache"],
        "idx_k_scale_cache": a["index_k_scale_cache"],
        "idx_k_cache_index": a["cache_index"],
        "layernorm_epsilon_k": a["layer_norm_eps"],
        "layout_query": "BSND",
        "rope_mode": a["indexer_rope_mode"],
    }


def index_quantised(indexed: tuple[Tensor, Tensor, Tensor], a: dict) -> Tensor:
    query, query_scale, weights = indexed
    return torch.ops.custom_pypto.npu_lightning_indexer_quant_pto(
        query, a["index_k_cache"], weights, query_scale, a["index_k_scale_cache"], **keys_of(a)
    )


def quantised_sparse_attention(lap: Callable[[str], None] = no_lap, **a) -> Tensor:
    queries = mla_prolog(a)
    lap("MLA prolog")
    indexed = torch.ops.custom_pypto.npu_lightning_indexer_prolog_pto(**index_prolog_arguments(queries.latent, a))
    lap("indexer prolog")
    selected = index_quantised(indexed, a)
    lap("lightning indexer")
    attention = attend(queries, selected, a)
    lap("sparse flash attention")
    return attention


LAYERS = {
    "fused": fused_sparse_attention,
    "stages": sparse_attention_by_stages,
    "quantised": quantised_sparse_attention,
}

DEFAULT_MODES = {"fused": list(MODES), "stages": ["eager", "npugraph_ex"], "quantised": ["eager", "npugraph_ex"]}
"""By layer, the fused one first: torchair cannot be set up after npugraph_ex."""


# ---- a small model around it


def random(*shape: int, deviation: float) -> Tensor:
    return torch.empty(*shape, dtype=torch.bfloat16).normal_(std=deviation)


def weight(*shape: int, fan_in: int = -2) -> nn.Parameter:
    """A random weight whose product over the dimension `fan_in` keeps the scale of its input."""
    return nn.Parameter(random(*shape, deviation=shape[fan_in] ** -0.5), requires_grad=False)


def ones(size: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(size, dtype=torch.bfloat16), requires_grad=False)


class Decoder(nn.Module):
    """Embedding, one layer of attention, output head. All weights are random."""

    def __init__(self, sizes: Sizes, longest: int):
        super().__init__()
        self.sizes = sizes
        heads, depth, kv_lora = sizes.heads, sizes.depth, sizes.kv_lora
        self.embedding = nn.Parameter(random(sizes.vocabulary, sizes.hidden, deviation=0.02), requires_grad=False)
        self.gamma_in = ones(sizes.hidden)
        self.attention = nn.ParameterDict(
            {
                "w_dq": weight(sizes.hidden, sizes.q_lora),
                "w_uq_qr": weight(sizes.q_lora, heads * (depth + sizes.rope_depth)),
                "w_uk": weight(
                    heads, depth, kv_lora, fan_in=-1
                ),  # made to give keys of latents; absorbed, it is transposed
                "w_dkv_kr": weight(sizes.hidden, kv_lora + sizes.rope_depth),
                "gamma_cq": ones(sizes.q_lora),
                "gamma_ckv": ones(kv_lora),
                "w_idx_qb": weight(sizes.q_lora, sizes.index_heads * sizes.index_depth),
                "w_idx_k": weight(sizes.hidden, sizes.index_depth),
                "w_idx_proj": weight(sizes.hidden, sizes.index_heads),
                "in_gamma_k": ones(sizes.index_depth),
                "in_beta_k": nn.Parameter(torch.zeros(sizes.index_depth).bfloat16(), requires_grad=False),
            }
        )
        columns, scales = quantise(self.attention["w_idx_qb"].t())
        self.register_buffer("w_idx_qb", columns.t().contiguous())
        self.register_buffer("w_idx_qb_scale", scales)
        self.register_buffer("hadamard", hadamard(sizes.index_depth))
        self.w_uv = weight(heads, kv_lora, depth)
        self.w_o = weight(heads * depth, sizes.hidden)
        self.gamma_out = ones(sizes.hidden)
        self.head = weight(sizes.hidden, sizes.vocabulary)
        angles = torch.arange(longest)[:, None] * 10000 ** -torch.linspace(0, 1, sizes.rope_depth // 2 + 1)[:-1]
        self.register_buffer("cos", angles.cos().repeat(1, 2).bfloat16())
        self.register_buffer("sin", angles.sin().repeat(1, 2).bfloat16())

    def attention_arguments(self, layer: str, tokens: Tensor, positions: Tensor, **paging: Tensor) -> dict:
        """The arguments of npu_sparse_attention_pto; `paging` are slots, block table, lengths and caches. A quantised
        layer has other weights and caches of the indexer, and more."""
        hidden = nn.functional.embedding(tokens, self.embedding)
        names = ["w_idx_qb", "w_idx_qb_scale", "hadamard"] if layer == "quantised" else []
        return {
            "x": rms_norm(hidden, self.gamma_in, 1e-6),
            "cos": nn.functional.embedding(positions, self.cos),
            "sin": nn.functional.embedding(positions, self.sin),
            **dict(self.attention.items()),
            **{name: getattr(self, name) for name in names},
            **paging,
            "sparse_count": self.sizes.top,
            # The model itself multiplies this with the square of YaRN's mscale.
            "softmax_scale": (self.sizes.depth + self.sizes.rope_depth) ** -0.5,
            "rms_norm_eps": 1e-6,
            "layer_norm_eps": 1e-6,
            "rope_mode": "interleave",
            "indexer_rope_mode": "half",
        }

    def forward(self, layer: str, tokens: Tensor, lap: Callable[[str], None] = no_lap, **inputs: Tensor):
        """Gives the next two tokens of every sequence, and the attention for whoever wants to judge it."""
        arguments = self.attention_arguments(layer, tokens, **inputs)
        lap("embedding")
        attention = LAYERS[layer](**arguments, lap=lap)
        hidden = nn.functional.embedding(tokens, self.embedding) + self.project(attention)
        lap("value and output projections")
        logits = rms_norm(hidden, self.gamma_out, 1e-6) @ self.head
        next_tokens = logits.float().argmax(-1)
        lap("output head")
        return next_tokens, attention

    def project(self, attention: Tensor) -> Tensor:
        """The value and output projections."""
        values = torch.einsum("bsnc,ncd->bsnd", attention, self.w_uv)
        return values.flatten(2) @ self.w_o


# ---- the decode loop


class Server:
    """The model and its caches on the NPU, with sequences that have been prefilled."""

    def __init__(self, sizes: Sizes, lengths: list[int], steps: int):
        self.pages = Pages(lengths, steps * NEW_TOKENS, sizes.page)
        self.prompt = torch.randint(sizes.vocabulary, (len(lengths), NEW_TOKENS))  # not in the caches yet
        self.model = Decoder(sizes, max(lengths) + steps * NEW_TOKENS).npu()
        filled = filled_caches(self.pages.blocks, sizes)
        self.filled = {"stages": filled, "fused": filled, "quantised": quantised_caches(filled)}
        self.caches = {layer: {name: c.npu() for name, c in caches.items()} for layer, caches in self.filled.items()}

    def decode(self, run: "Run", steps: int, lap: Callable[[str], None] = no_lap) -> Iterator[None]:
        """Decodes from the prompt on, a step at a time, and writes down in `run` what happens."""
        caches = self.caches[run.layer]
        for name, cache in self.filled[run.layer].items():
            caches[name].copy_(cache)
        step, sampled = Step(copy.deepcopy(self.pages)), self.prompt.npu()
        model = MODES[run.mode](self.model)
        for _ in range(steps):
            start = time.perf_counter()
            step.advance(sampled)
            sampled, attention = model(run.layer, step.tokens, lap, **step.inputs, **caches)
            run.tokens.append(sampled.cpu())  # waits for the step
            run.seconds.append(time.perf_counter() - start)
            if run.attention is None:
                run.attention, run.caches = attention.cpu(), {name: c.cpu() for name, c in caches.items()}
            yield

    def first_arguments(self, layer: str) -> dict:
        """The arguments of the attention in the first step, on the host."""
        step = Step(copy.deepcopy(self.pages))
        step.advance(self.prompt.npu())
        arguments = self.model.attention_arguments(layer, step.tokens, **step.inputs)
        return on_host(arguments) | self.filled[layer]


@dataclass
class Run:
    """What the model did in one layer and mode."""

    layer: str
    mode: str
    seconds: list[float] = field(default_factory=list)  # of each step; the first one compiles
    tokens: list[Tensor] = field(default_factory=list)
    attention: Tensor | None = None  # of the first step, and the caches after it
    caches: dict[str, Tensor] = field(default_factory=dict)
    error: float | None = None
    verdict: str = "ok"

    @property
    def step(self) -> float:
        return statistics.median(self.seconds[1:])

    def began_like(self, other: "Run") -> bool:
        """Whether attention and caches of the first step are bitwise equal."""
        return equal(*([run.attention, *run.caches.values()] for run in (self, other)))


def equal(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


class Stopwatch:
    """How long each stage takes: waits for the NPU after each."""

    def __init__(self):
        self.seconds: dict[str, list[float]] = {}
        self.last = time.perf_counter()

    def lap(self, stage: str) -> None:
        torch.npu.synchronize()
        now = time.perf_counter()
        self.seconds.setdefault(stage, []).append(now - self.last)
        self.last = now

    def medians(self) -> dict[str, float]:
        return {stage: statistics.median(seconds[1:]) for stage, seconds in self.seconds.items()}


def on_host(arguments: dict) -> dict:
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in arguments.items()}


def check_attention(run: Run, arguments: dict) -> float:
    """Asserts that the attention and the caches of the first step are those of the formulas; gives the error."""
    if run.layer != "quantised":
        return references.check_sparse_attention(run.attention, tuple(run.caches.values()), **arguments)
    # Which keys come near the last place is open in every stage, so each is compared on what the one before has given.
    a = {name: value.npu() if isinstance(value, Tensor) else value for name, value in arguments.items()}
    queries = mla_prolog(a)
    prolog = index_prolog_arguments(queries.latent, a)
    before = on_host(prolog)
    indexed = torch.ops.custom_pypto.npu_lightning_indexer_prolog_pto(**prolog)
    written = [a[name].cpu() for name in ("index_k_cache", "index_k_scale_cache")]
    references.check_lightning_indexer_prolog((*(each.cpu() for each in indexed), *written), **before)
    assert equal([a[name].cpu() for name in run.caches], list(run.caches.values())), "the caches are not repeatable"
    selected = index_quantised(indexed, a)
    query, query_scale, weights = (each.cpu() for each in indexed)
    references.check_lightning_indexer_quant(
        selected.cpu(),
        query=query,
        key=written[0],
        weights=weights,
        query_dequant_scale=query_scale,
        key_dequant_scale=written[1],
        **{name: value for name, value in on_host(keys_of(a)).items() if name != "sparse_count"},
    )
    assert torch.equal(attend(queries, selected, a).cpu(), run.attention), "the attention is not repeatable"
    expected = references.sparse_flash_attention(
        queries.query.cpu(),
        run.caches["kv_cache"],
        run.caches["kv_cache"],
        selected.cpu(),
        arguments["softmax_scale"],
        block_table=arguments["block_table"],
        actual_seq_lengths_kv=arguments["act_seqs"],
        query_rope=queries.rope.cpu(),
        key_rope=run.caches["kr_cache"],
    )
    return references.check_attention(run.attention, expected)


def judge(run: Run, eager: Run, arguments: dict) -> None:
    """Compares eager with the formulas, and the other modes with eager."""
    if eager.verdict != "ok":
        run.verdict = "FAILED: eager has failed"
    elif run is eager:
        try:
            run.error = check_attention(run, arguments)
        except AssertionError as failure:
            run.verdict = f"FAILED: {failure}"
    elif not run.began_like(eager):
        run.verdict = "FAILED: attention or caches of the first step differ from eager"
    elif not equal(run.tokens, eager.tokens):
        run.verdict = "FAILED: other tokens than eager"


COLUMNS = "{:<10} {:<16} {:>12} {:>10} {:>9} {:>13}  {}"


def show(*cells: str) -> None:
    """Prints a line of the table, above the progress bar."""
    with tqdm.external_write_mode():
        print(COLUMNS.format(*cells), flush=True)


def show_run(run: Run, eager: Run) -> None:
    if run.verdict != "ok":
        show(run.layer, run.mode, "", "", "", "", run.verdict)
        return
    times = f"{run.seconds[0]:.2f} s", f"{run.step * 1e3:.1f} ms", f"{eager.step / run.step:.2f} x"
    error = f"{run.error:.1e}" if run is eager else "as eager"
    show(run.layer, run.mode, *times, error, "the same")


def decode_in_every_way(server: Server, modes_of: dict[str, list[str]], steps: int):
    """Prints the runs of each layer in its modes; gives them, and by layer the seconds of an eager step's stages."""
    runs, stages = [], {}
    with tqdm(total=sum(len(modes) + 1 for modes in modes_of.values()) * steps, unit="step") as bar:
        for layer, modes in modes_of.items():
            eager, arguments = None, server.first_arguments(layer)
            for mode in modes:
                bar.set_description(f"{layer}, {mode}")
                torch._dynamo.reset()
                run = Run(layer, mode)
                eager = eager or run
                runs.append(run)
                try:
                    for _ in server.decode(run, steps):
                        bar.update()
                except Exception as failure:
                    run.verdict = f"FAILED: {type(failure).__name__}: {failure}"
                else:
                    judge(run, eager, arguments)
                show_run(run, eager)
                if run is not eager:
                    run.caches.clear()  # they are large
            eager.caches.clear()
            bar.set_description(f"{layer}, stages of a step")
            stopwatch = Stopwatch()
            for _ in server.decode(Run(layer, "eager"), steps, stopwatch.lap):
                bar.update()
            stages[layer] = stopwatch.medians()
    return runs, stages


# ---- what it comes to


def say_what_quantisation_changes(runs: list[Run]) -> None:
    """Compares the eager tokens of the quantised layer with those of the stages."""
    eager = {run.layer: torch.stack(run.tokens, 1) for run in runs if run.mode == "eager" and run.verdict == "ok"}
    if not {"stages", "quantised"} <= eager.keys():
        return
    same = (eager["stages"] == eager["quantised"]).flatten(1)  # of each sequence, one after the other
    first = same.int().cumprod(1).sum(1).tolist()
    print(f"With int8 indices the first {first} of {same.shape[1]} tokens of the sequences are those of the stages")


def draw(runs: list[Run], stages: dict[str, dict[str, float]], path: Path) -> None:
    """A picture of the stages of an eager step in each layer, and of the time of a step in each mode."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(15, 4.5), layout="constrained")
    names = list(dict.fromkeys(stage for seconds in stages.values() for stage in seconds))
    for layer, seconds in stages.items():
        start = 0.0
        for stage, duration in seconds.items():
            color = plt.get_cmap("tab10")(names.index(stage))
            bar = left.barh(layer, duration * 1e3, left=start, color=color, label=stage)
            if duration > 0.03 * sum(seconds.values()):
                left.bar_label(bar, fmt="%.0f", label_type="center")
            start += duration * 1e3
    handles, labels = left.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    left.legend(unique.values(), unique.keys(), loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)
    left.set(title="stages of an eager step, one after the other", xlabel="ms")
    good = [run for run in runs if run.verdict == "ok"]
    bars = right.barh([f"{run.layer}, {run.mode}" for run in good], [run.step * 1e3 for run in good], color="tab:gray")
    right.bar_label(bars, fmt="%.0f", padding=3)
    right.margins(x=0.1)
    right.set(title="a step in each mode", xlabel="ms")
    for axes in (left, right):
        axes.invert_yaxis()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)


def serve(sizes: Sizes, lengths: list[int], modes_of: dict[str, list[str]], steps: int, picture: Path) -> int:
    """Decodes with each layer in its modes, eager first; gives the exit code."""
    torch.manual_seed(0)
    print(f"Sequences of {lengths} tokens, {steps} steps of {NEW_TOKENS} tokens each; making the weights and caches")
    show("layer", "mode", "first step", "a step", "to eager", "error", "tokens")
    server = Server(sizes, lengths, steps)
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True), late_warnings():
        runs, stages = decode_in_every_way(server, modes_of, steps)
    say_what_quantisation_changes(runs)
    draw(runs, stages, picture)
    print(f"Where the time of a step goes: {picture}")
    return 0 if all(run.verdict == "ok" for run in runs) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=int, default=65536, help="tokens of the longest sequence")
    parser.add_argument("--sequences", type=int, default=4, help="how many; the shortest has 300 tokens")
    parser.add_argument("--steps", type=int, default=5, help="2 or more: the first one compiles")
    parser.add_argument("--layer", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--modes", nargs="+", choices=MODES, help="of all layers, beside eager; default: by layer")
    options = parser.parse_args()
    if options.steps < 2 or options.sequences < 1 or options.longest < 1:
        parser.error("at least 2 steps, 1 sequence and 1 token are needed")
    # Very different lengths, equally spaced on a logarithmic scale.
    ends = torch.tensor([options.longest, 300.0]).log2()
    lengths = torch.logspace(*ends.tolist(), options.sequences, base=2).round().int().tolist()
    modes_of = {layer: ["eager", *options.modes] if options.modes else DEFAULT_MODES[layer] for layer in options.layer}
    modes_of = {layer: list(dict.fromkeys(modes)) for layer, modes in modes_of.items()}
    picture = Path(__file__).parents[1] / "build" / "deepseek_sparse_decode.png"
    return serve(Sizes(), lengths, modes_of, options.steps, picture)


if __name__ == "__main__":
    sys.exit(main())
