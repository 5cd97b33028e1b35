# SPDX-License-Identifier: Apache-2.0
"""What the operators must compute, from their mathematics, in float64; for the tests, examples and benchmarks."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class IndexerRow:
    """The keys that one query token sees under one key head, and their scores."""

    place: tuple[int, ...]  # in the output, without its last dimension
    keys: Tensor  # positions in the sequence, ascending
    scores: Tensor  # float64
    magnitude: float  # the largest sum of absolute terms of a score, the scale of its rounding errors


def _spans(lengths: Tensor | None, batch: int, limit: int, packed: bool) -> list[tuple[int, int]]:
    """(first, last) token of each batch entry, from counts or, if packed, from running totals."""
    counts = [limit] * batch if lengths is None else lengths.tolist()
    return list(zip([0, *counts[:-1]], counts, strict=True)) if packed else [(0, count) for count in counts]


@dataclass
class _Sequence:
    """One batch entry: where its query and key tokens are."""

    batch: int
    first: int  # query token
    queries: int
    first_key: int
    keys: int
    packed: bool
    pages: Tensor | None  # those of its keys; -1 is none

    def place(self, query: int) -> tuple[int, ...]:
        return (self.first + query,) if self.packed else (self.batch, query)

    def visible(self, query: int, sparse_mode: int) -> int:
        """With sparse_mode 3 query token i of n sees all keys but the last n - 1 - i."""
        return self.keys - (self.queries - 1 - query if sparse_mode == 3 else 0)

    def stored(self, positions: Tensor, page_size: int) -> Tensor:
        """The positions that have a page."""
        return positions if self.pages is None else positions[self.pages[positions // page_size] >= 0]

    def take(self, tensor: Tensor, positions: Tensor) -> Tensor:
        """The key tokens at these positions, in float64: [positions, N2, D]."""
        if self.pages is not None:
            return tensor[self.pages[positions // tensor.shape[1]], positions % tensor.shape[1]].double()
        return (tensor if self.packed else tensor[self.batch])[self.first_key + positions].double()


def _sequences(
    query: Tensor,
    key: Tensor,
    query_lengths: Tensor | None,
    key_lengths: Tensor | None,
    block_table: Tensor | None,
    layout_query: str,
    layout_key: str,
) -> Iterator[_Sequence]:
    packed, paged = layout_query == "TND", layout_key == "PA_BSND"
    batch = len(query_lengths) if packed else query.shape[0]
    key_spans = _spans(key_lengths, batch, 0 if paged else key.shape[-3], packed and not paged)
    for b, (first, last) in enumerate(_spans(query_lengths, batch, query.shape[-3], packed)):
        k_first, k_last = key_spans[b]
        pages = block_table[b].long() if paged else None
        yield _Sequence(b, first, last - first, k_first, k_last - k_first, packed, pages)


def lightning_indexer_rows(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    *,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_key: Tensor | None = None,
    block_table: Tensor | None = None,
    layout_query: str = "BSND",
    layout_key: str = "PA_BSND",
    sparse_mode: int = 3,
    key_scale: Tensor | None = None,
) -> Iterator[IndexerRow]:
    """The rows of npu_lightning_indexer_pto that belong to a query token, for tensors on the CPU.

    score(query token, key token) = sum over the heads of weight * relu(query . key), times the key's scale if any.
    """
    lengths = (actual_seq_lengths_query, actual_seq_lengths_key)
    for sequence in _sequences(query, key, *lengths, block_table, layout_query, layout_key):
        positions = sequence.stored(torch.arange(sequence.keys), key.shape[1])
        k = sequence.take(key, positions)
        scales = torch.ones(k.shape[:2]) if key_scale is None else sequence.take(key_scale, positions)
        heads = query.shape[-2] // k.shape[1]
        for s in range(sequence.queries):
            place = sequence.place(s)
            seen = positions < sequence.visible(s, sparse_mode)
            for n in range(k.shape[1]):
                group = slice(n * heads, (n + 1) * heads)
                products = (query[place][group].double() @ k[seen, n].t()).relu_() * scales[seen, n]
                w = weights[place][group].double()
                yield IndexerRow(
                    place=(*place, n),
                    keys=positions[seen],
                    scores=w @ products,
                    magnitude=(w.abs() @ products).max().item() if seen.any() else 0.0,
                )


def lightning_indexer_inputs(
    key_lengths: list[int],
    *,
    queries: int = 1,
    query_lengths: list[int] | None = None,
    heads: int = 64,
    key_heads: int = 1,
    depth: int = 128,
    layout_query: str = "BSND",
    layout_key: str = "PA_BSND",
    block_size: int = 128,
    dtype: torch.dtype = torch.bfloat16,
    weights_dtype: torch.dtype | None = None,
    values=torch.randn,
) -> dict:
    """Arguments for a batch whose entries have these lengths; `values` draws the contents of the tensors.

    The pages of the cache are assigned in random order; two belong to nobody, and the table ends each row with -1.
    `query_lengths` are at most `queries`, and all of them by default.
    """
    batch = len(key_lengths)
    packed, paged = layout_query == "TND", layout_key == "PA_BSND"
    counts = query_lengths or [queries] * batch
    tokens = (sum(counts),) if packed else (batch, queries)
    inputs = dict(
        query=values(*tokens, heads, depth).to(dtype),
        weights=values(*tokens, heads).to(weights_dtype or dtype),
        layout_query=layout_query,
        layout_key=layout_key,
        actual_seq_lengths_key=torch.tensor(key_lengths, dtype=torch.int32),
    )
    if packed:
        inputs["actual_seq_lengths_query"] = torch.tensor(counts).cumsum(0).int()
    elif query_lengths:
        inputs["actual_seq_lengths_query"] = torch.tensor(counts, dtype=torch.int32)
    if paged:
        pages = [-(-length // block_size) for length in key_lengths]
        inputs["key"] = values(sum(pages) + 2, block_size, key_heads, depth).to(dtype)
        numbers = iter(torch.randperm(sum(pages) + 2).tolist())
        table = [[next(numbers) for _ in range(count)] + [-1] * (max(pages) + 1 - count) for count in pages]
        inputs["block_table"] = torch.tensor(table, dtype=torch.int32)
    elif packed:
        inputs["key"] = values(sum(key_lengths) + 2, key_heads, depth).to(dtype)
        inputs["actual_seq_lengths_key"] = inputs["actual_seq_lengths_key"].cumsum(0).int()
    else:
        inputs["key"] = values(batch, max(key_lengths) + 2, key_heads, depth).to(dtype)
    return inputs


def lightning_indexer(
    query: Tensor, key: Tensor, weights: Tensor, *, sparse_count: int = 2048, return_value: bool = False, **kwargs
) -> Tensor | tuple[Tensor, Tensor]:
    """npu_lightning_indexer_pto: each row's best keys by descending score, of equal scores the first; then -1. And
    their scores in float64, then -inf."""
    out = query.new_full((*query.shape[:-2], key.shape[-2], sparse_count), -1, dtype=torch.int32)
    values = torch.full(out.shape, -torch.inf, dtype=torch.float64)
    for row in lightning_indexer_rows(query, key, weights, **kwargs):
        best = row.scores.argsort(descending=True, stable=True)[:sparse_count]
        out[row.place][: len(best)] = row.keys[best]
        values[row.place][: len(best)] = row.scores[best]
    return (out, values) if return_value else out


def check_lightning_indexer(
    actual: Tensor, query: Tensor, key: Tensor, weights: Tensor, *, values: Tensor | None = None, **kwargs
) -> float:
    """Asserts that `actual` selects the best keys, up to rounding of their scores in float32.

    In every row exactly min(seen keys, sparse_count) distinct keys come first, best first, and -1 after them; a key may
    be taken for another only where their scores lie within the rounding error. Returns the largest error that was so
    excused, relative to the scores' magnitude. `values`, if given, are the scores of these keys, rounded to their
    dtype, and -inf after them.
    """
    sparse_count = actual.shape[-1]
    assert actual.shape[: query.dim() - 2] == query.shape[:-2] and actual.dim() == query.dim(), f"{actual.shape}"
    expected = torch.full(actual.shape[:-1], 0)
    worst = 0.0
    for row in lightning_indexer_rows(query, key, weights, **kwargs):
        count = expected[row.place] = min(len(row.keys), sparse_count)
        if count == 0:
            continue
        chosen = actual[row.place][:count].long()
        at = torch.searchsorted(row.keys, chosen).clamp(max=len(row.keys) - 1)
        assert torch.equal(row.keys[at], chosen), f"row {row.place} holds keys that its query does not see: {chosen}"
        assert len(chosen.unique()) == count, f"row {row.place} holds a key twice: {chosen}"
        mine = row.scores[at]
        best = row.scores.topk(count).values
        error = (mine - best).abs().max().item() / row.magnitude if row.magnitude else 0.0
        assert error <= 1e-5, f"row {row.place}: its scores differ from the best ones by {error:.1e}: {mine}, {best}"
        worst = max(worst, error)
        if values is not None:
            off = (values[row.place][:count].double() - mine).abs() - torch.finfo(values.dtype).eps / 2 * mine.abs()
            excess = (off.max().item() - torch.finfo(values.dtype).smallest_normal) / (row.magnitude or 1.0)
            assert excess <= 1e-5, f"row {row.place}: its values differ from its scores: {values[row.place]}, {mine}"
    found = (actual >= 0).sum(-1)
    assert torch.equal(found, expected), f"rows hold {found.tolist()} keys instead of {expected.tolist()}"
    tail = torch.arange(sparse_count) >= expected[..., None]
    assert (actual[tail] == -1).all(), "what follows the keys of a row must be -1"
    if values is not None:
        assert values.shape == actual.shape, f"values are {tuple(values.shape)}, indices {tuple(actual.shape)}"
        assert (values[tail] == -torch.inf).all(), "what follows the scores of a row must be -inf"
    return worst


def lightning_indexer_quant_inputs(
    key_lengths: list[int],
    *,
    weights_dtype: torch.dtype = torch.float16,
    query_scale_dtype: torch.dtype = torch.float16,
    key_scale_dtype: torch.dtype = torch.float16,
    as_prolog: bool = True,
    **shapes,
) -> dict:
    """Arguments of npu_lightning_indexer_quant_pto; `shapes` as in lightning_indexer_inputs. Scales of queries have a
    last dimension of 1, as the prolog gives them, or none."""

    def bytes_(*sizes):
        return torch.randint(-128, 128, sizes)

    inputs = lightning_indexer_inputs(key_lengths, **{"dtype": torch.int8, "values": bytes_} | shapes)
    tokens = inputs["weights"].shape
    scale = torch.rand(*tokens, *[1] * as_prolog).add_(0.1) / 100
    return inputs | {
        "weights": torch.randn(tokens).to(weights_dtype),
        "query_dequant_scale": scale.to(query_scale_dtype),
        "key_dequant_scale": torch.rand(inputs["key"].shape[:-1]).add_(0.1).div_(100).to(key_scale_dtype),
    }


def _without_scales_of_queries(weights: Tensor, query_dequant_scale: Tensor, key_dequant_scale: Tensor) -> dict:
    """npu_lightning_indexer_quant_pto's arguments as lightning_indexer_rows takes them."""
    weights = weights.double() * query_dequant_scale.double().view_as(weights)
    return {"weights": weights, "key_scale": key_dequant_scale}


def lightning_indexer_quant(
    query: Tensor, key: Tensor, weights: Tensor, query_dequant_scale: Tensor, key_dequant_scale: Tensor, **kwargs
) -> Tensor | tuple[Tensor, Tensor]:
    """npu_lightning_indexer_quant_pto, as lightning_indexer."""
    scaled = _without_scales_of_queries(weights, query_dequant_scale, key_dequant_scale)
    return lightning_indexer(query, key, **scaled, **kwargs)


def check_lightning_indexer_quant(
    actual: Tensor,
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    **kwargs,
) -> float:
    """As check_lightning_indexer, for npu_lightning_indexer_quant_pto."""
    scaled = _without_scales_of_queries(weights, query_dequant_scale, key_dequant_scale)
    return check_lightning_indexer(actual, query, key, **scaled, **kwargs)


def sparse_flash_attention_inputs(
    key_lengths: list[int],
    *,
    count: int = 2048,
    heads: int = 128,
    depth: int = 512,
    rope_depth: int = 64,
    value_depth: int | None = None,
    **shapes,
) -> dict:
    """Arguments for a batch whose entries have these lengths; further shapes as in lightning_indexer_inputs.

    Each row of indices names up to `count` positions of its sequence in random order, and two past its end. Without
    `value_depth` the value is the key, with 0 for `rope_depth` there are no rope parts.
    """
    inputs = lightning_indexer_inputs(key_lengths, heads=heads, depth=depth, **shapes)
    query, key = inputs["query"], inputs["key"]
    values = shapes.get("values", torch.randn)
    inputs["layout_kv"] = inputs.pop("layout_key")
    inputs["actual_seq_lengths_kv"] = inputs.pop("actual_seq_lengths_key")
    inputs["value"] = key if value_depth is None else values(*key.shape[:-1], value_depth).to(key.dtype)
    if rope_depth:
        inputs["query_rope"] = values(*query.shape[:-1], rope_depth).to(query.dtype)
        inputs["key_rope"] = values(*key.shape[:-1], rope_depth).to(key.dtype)
    inputs["scale_value"] = (depth + rope_depth) ** -0.5
    indices = torch.full((*inputs.pop("weights").shape[:-1], key.shape[-2], count), -1, dtype=torch.int32)
    counts = shapes.get("query_lengths") or [shapes.get("queries", 1)] * len(key_lengths)
    packed = inputs["layout_query"] == "TND"
    rows = indices.split(counts) if packed else indices
    for row, length in zip(rows, key_lengths, strict=True):
        for token in row.flatten(0, -2):
            positions = torch.randperm(length + 2, dtype=torch.int32)[:count]
            token[: len(positions)] = positions
    return inputs | {"sparse_indices": indices}


def sparse_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sparse_indices: Tensor,
    scale_value: float,
    *,
    block_table: Tensor | None = None,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_kv: Tensor | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    layout_query: str = "BSND",
    layout_kv: str = "PA_BSND",
    sparse_mode: int = 3,
    attention_sinks: Tensor | None = None,
    return_softmax_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """npu_sparse_flash_attention_pto in float64: softmax(scale * (query . key + query_rope . key_rope)) . value, where
    a sink is one more score, of a value of zeros; and the logarithm of the sum of the scores' exponentials."""
    out = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=torch.float64)
    sinks = torch.full((query.shape[-2],), -torch.inf) if attention_sinks is None else attention_sinks
    lse = sinks.double().expand(query.shape[:-1]).clone()
    lengths = (actual_seq_lengths_query, actual_seq_lengths_kv)
    for sequence in _sequences(query, key, *lengths, block_table, layout_query, layout_kv):
        for s in range(sequence.queries):
            place = sequence.place(s)
            for n, (row, result) in enumerate(
                zip(sparse_indices[place].long(), out[place].chunk(key.shape[-2]), strict=True)
            ):
                ends = (row == -1).nonzero()
                named = row[: ends[0]] if len(ends) else row
                positions = sequence.stored(named[named < sequence.visible(s, sparse_mode)], key.shape[1])
                if len(positions) == 0:
                    continue
                group = slice(n * len(result), (n + 1) * len(result))
                scores = query[place][group].double() @ sequence.take(key, positions)[:, n].t()
                if query_rope is not None:
                    scores += query_rope[place][group].double() @ sequence.take(key_rope, positions)[:, n].t()
                with_sinks = torch.cat([scale_value * scores, sinks[group, None]], -1)
                result[:] = with_sinks.softmax(-1)[:, :-1] @ sequence.take(value, positions)[:, n]
                lse[place][group] = with_sinks.logsumexp(-1)
    return (out, lse) if return_softmax_lse else out


def _check_form(actual: Tensor, shape: torch.Size) -> None:
    assert actual.shape == shape, f"the shape is {tuple(actual.shape)} instead of {tuple(shape)}"
    assert torch.isfinite(actual).all(), "not all of the result is finite"


def check_attention(
    actual: Tensor, expected: Tensor, *, atol: float | Tensor = 1e-4, rtol: float = 5e-3, limit: float = 3e-2
) -> float:
    """Asserts that every head of every token is near, and every element; returns the largest error of an element.

    The root mean square of a head's error is at most `atol` plus `rtol` times that of the expected head, so that one
    lost key of 2,048 is seen. An element is off by at most `limit`. The defaults are for bfloat16; float16 has eight
    times its precision.
    """
    _check_form(actual, expected.shape)
    if actual.numel() == 0:
        return 0.0
    precision = torch.finfo(actual.dtype).eps / torch.finfo(torch.bfloat16).eps
    error = actual.double() - expected
    of_error, of_expected = (tensor.square().mean(-1, keepdim=True).sqrt() for tensor in (error, expected))
    ratio = (of_error / (precision * (atol + rtol * of_expected)))[..., 0]
    place = tuple(int(index) for index in torch.unravel_index(ratio.argmax(), ratio.shape))
    assert ratio.max() <= 1, (
        f"head {place} is off by {of_error[place].item():.1e}, root mean square, {ratio.max():.1f} times the tolerance"
    )
    assert error.abs().max() <= precision * limit, f"an element is off by {error.abs().max()}"
    return error.abs().max().item()


def check_softmax_lse(actual: Tensor, expected: Tensor, limit: float = 2e-5) -> float:
    """Asserts float32, and `limit` beside the rounding of the number itself; returns the largest error.

    The error comes from the scores, which are rounded sums of products: a score of 576 products of numbers of size 1
    is seen to be off by up to 4e-6.
    """
    assert (actual.shape, actual.dtype) == (expected.shape, torch.float32), f"{tuple(actual.shape)}, {actual.dtype}"
    error = torch.where(actual == expected, 0.0, (actual.double() - expected).abs())
    excess = error - 2 * torch.finfo(torch.float32).eps * expected.abs().nan_to_num(posinf=0)
    assert (excess <= limit).all(), f"an element is off by {error.max().item()}"
    return error.max().item() if error.numel() else 0.0


def rope(x: Tensor, cos: Tensor, sin: Tensor, mode: str = "interleave") -> Tensor:
    """Rotates pairs of the last dimension, in float64: neighbours with "interleave", whose results lie a half apart
    (interleaved in, half out); elements a half apart with "half"."""
    if mode == "interleave":
        x = torch.cat([x[..., 0::2], x[..., 1::2]], -1)
    first, second = x.double().chunk(2, -1)
    return torch.cat([first, second], -1) * cos.double() + torch.cat([-second, first], -1) * sin.double()


def rms_norm(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gamma.double()


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return torch.layer_norm(x.double(), x.shape[-1:], gamma.double(), beta.double(), eps)


def write_by_slot(cache: Tensor, slots: Tensor, rows: Tensor) -> Tensor:
    """A copy of a cache [blocks, block_size, ...] with a row for each slot; -1 is none, of equal ones the last wins."""
    tokens = cache.clone().flatten(0, 1)
    for slot, row in zip(slots.flatten().tolist(), rows.flatten(0, slots.dim() - 1), strict=True):
        if slot >= 0:
            tokens[slot] = row.reshape(tokens.shape[1:])
    return tokens.view_as(cache)


def slots_of(block_table: Tensor, lengths: Tensor, queries: int, block_size: int) -> Tensor:
    """Where the last `queries` tokens of each sequence lie, [B, queries]; -1 for those before its start."""
    positions = lengths[:, None].long() - queries + torch.arange(queries)
    pages = block_table.long().gather(1, positions.clamp(min=0) // block_size)
    return torch.where(positions < 0, -1, pages * block_size + positions % block_size)


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """The last dimension as int8, and what its numbers are to be multiplied by, (..., 1) in float64: amax / 127."""
    x = x.double()
    amax = x.abs().amax(-1, keepdim=True)
    return torch.where(amax > 0, x * 127 / amax, 0.0).round().to(torch.int8), amax / 127  # round: ties to even


def lightning_indexer_prolog_inputs(
    tokens: int | tuple[int, int],
    *,
    hidden: int = 7168,
    q_lora: int = 1536,
    heads: int = 64,
    depth: int = 128,
    rope_depth: int = 64,
    cache: tuple[int, ...] = (64, 128),
    dtype: torch.dtype = torch.bfloat16,
    slot_dtype: torch.dtype = torch.int64,
) -> dict:
    """Arguments for T tokens, or B x S1 tokens with layout BSND, each with its own slot in a cache that holds
    random numbers: (block_num, block_size), or (T2,) with layout TND. Sizes are DeepSeek-V3.2's by default, scales may
    be negative, and cos and sin are of independent angles."""
    leading = (tokens,) if isinstance(tokens, int) else tokens
    count = torch.Size(leading).numel()

    def uniform(*sizes):
        return torch.rand(*sizes).mul_(2).sub_(1)

    def bytes_(*sizes):
        return torch.randint(-128, 128, sizes, dtype=torch.int8)

    angles = torch.rand(*leading, rope_depth) * 6.3
    return dict(
        token_x=uniform(*leading, hidden).to(dtype),
        q_norm=bytes_(*leading, q_lora),
        q_norm_scale=uniform(*leading, 1),
        wq_b=bytes_(q_lora, heads * depth),
        wq_b_scale=uniform(heads * depth, 1) / (128 * q_lora**0.5),
        wk=uniform(hidden, depth).to(dtype),
        weights_proj=uniform(hidden, heads).to(dtype),
        ln_gamma_k=uniform(depth).add_(1.5).to(dtype),
        ln_beta_k=uniform(depth).to(dtype),
        cos_idx_rope=angles.cos().to(dtype),
        sin_idx_rope=angles.sin().to(dtype),
        hadamard_q=uniform(depth, depth).to(dtype),
        hadamard_k=uniform(depth, depth).to(dtype),
        idx_k_cache=bytes_(*cache, 1, depth),
        idx_k_scale_cache=uniform(*cache, 1).half(),
        idx_k_cache_index=torch.randperm(torch.Size(cache).numel())[:count].view(leading).to(slot_dtype),
        layernorm_epsilon_k=1e-6,
        layout_query="TND" if isinstance(tokens, int) else "BSND",
        layout_key="TND" if len(cache) == 1 else "PA_BSND",
    )


def lightning_indexer_prolog(
    token_x: Tensor,
    q_norm: Tensor,
    q_norm_scale: Tensor,
    wq_b: Tensor,
    wq_b_scale: Tensor,
    wk: Tensor,
    weights_proj: Tensor,
    ln_gamma_k: Tensor,
    ln_beta_k: Tensor,
    cos_idx_rope: Tensor,
    sin_idx_rope: Tensor,
    hadamard_q: Tensor,
    hadamard_k: Tensor,
    idx_k_cache: Tensor,
    idx_k_scale_cache: Tensor,
    idx_k_cache_index: Tensor,
    layernorm_epsilon_k: float,
    *,
    layout_query: str = "TND",
    layout_key: str = "PA_BSND",
    rope_mode: str = "interleave",
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """npu_lightning_indexer_prolog_pto: query, query_scale, weights, and copies of both caches with the new keys.

    In float64 and exact integers, rounded to token_x's dtype where the operator rounds.
    """
    dtype = token_x.dtype
    heads, depth, rope_depth = weights_proj.shape[1], wk.shape[1], cos_idx_rope.shape[-1]

    def rotated_and_quantised(x, cos, sin, hadamard):
        rotated = rope(x[..., :rope_depth], cos, sin, rope_mode).to(dtype)
        x = torch.cat([rotated, x[..., rope_depth:]], -1)
        x, scale = quantise((x.double() @ hadamard.double()).to(dtype))
        return x, scale.half()

    sums = q_norm.double() @ wq_b.double()  # exact, below 2^53
    q = (sums * q_norm_scale.double() * wq_b_scale.double()[:, 0]).to(dtype).unflatten(-1, (heads, depth))
    query, query_scale = rotated_and_quantised(q, cos_idx_rope[..., None, :], sin_idx_rope[..., None, :], hadamard_q)
    k = layer_norm(token_x.double() @ wk.double(), ln_gamma_k, ln_beta_k, layernorm_epsilon_k).to(dtype)
    key, key_scale = rotated_and_quantised(k, cos_idx_rope, sin_idx_rope, hadamard_k)
    weights = (token_x.double() @ weights_proj.double()).to(dtype).double() / (heads * depth) ** 0.5
    paged = layout_key != "TND"
    caches = [
        write_by_slot(cache if paged else cache[None], idx_k_cache_index, rows).view_as(cache)
        for cache, rows in ((idx_k_cache, key), (idx_k_scale_cache, key_scale))
    ]
    return query, query_scale, weights.half(), *caches


def check_lightning_indexer_prolog(actual: tuple[Tensor, ...], **inputs) -> None:
    """Asserts that query, query_scale, weights and both caches are what npu_lightning_indexer_prolog_pto makes of
    `inputs`: int8 within 1 and equal in 99.5 %, float16 equal in 95 % and within 2.5e-5 or a rounding step in 99.5 %,
    and cache rows of no token unchanged, bitwise.

    (A product that is rounded otherwise may move a whole head of a token, and the scale with it. So even a small tensor
    may differ in as many int8, by 1, and in two scales, by two rounding steps of token_x's dtype.)
    """
    expected = lightning_indexer_prolog(**inputs)
    depth = inputs["wk"].shape[1]
    slots = inputs["idx_k_cache_index"].flatten()
    names = ("query", "query_scale", "weights", "idx_k_cache", "idx_k_scale_cache")
    for name, result, want in zip(names, actual, expected, strict=True):
        assert (result.shape, result.dtype) == (want.shape, want.dtype), f"{name}: {result.shape}, {result.dtype}"
        if name in inputs:
            width = depth if name == "idx_k_cache" else 1
            result, want, before = (cache.reshape(-1, width) for cache in (result, want, inputs[name]))
            written = torch.zeros(len(before), dtype=torch.bool)
            written[slots[slots >= 0].long()] = True
            assert torch.equal(result[~written], before[~written]), f"{name}: slots of no token have changed"
            result, want = result[written], want[written]
        error = (result.double() - want.double()).abs()
        if result.dtype == torch.int8:
            assert (error <= 1).all(), f"{name}: an element is off by {int(error.max())}"
            differ, allowed = (error > 0).sum().item(), max(0.005 * error.numel(), depth)
        else:
            step = want.double().abs().clamp(min=2.0**-14).log2().floor().exp2() * torch.finfo(torch.half).eps
            assert torch.isfinite(result).all(), f"{name}: not all of it is finite"
            differ, allowed = (error > step.clamp(min=2.5e-5)).sum().item(), max(0.005 * error.numel(), 2)
            limit = (2 * torch.finfo(inputs["token_x"].dtype).eps * want.double().abs()).clamp(min=2.5e-5)
            assert (error <= limit).all(), f"{name}: an element is off by {(error / limit).max()} times the limit"
            other = (error != 0).sum().item()
            assert other <= max(0.05 * error.numel(), 2), f"{name}: {other} of {error.numel()} elements are not equal"
        assert differ <= allowed, f"{name}: {differ} of {error.numel()} elements differ"


def sparse_attention_inputs(
    key_lengths: list[int],
    *,
    queries: int = 1,
    hidden: int = 7168,
    q_lora: int = 1536,
    heads: int = 128,
    depth: int = 128,
    rope_depth: int = 64,
    kv_lora: int = 512,
    index_heads: int = 64,
    index_depth: int = 128,
    count: int = 2048,
    block_size: int = 128,
    dtype: torch.dtype = torch.bfloat16,
    slot_dtype: torch.dtype = torch.int32,
) -> dict:
    """Arguments for a batch whose sequences have these lengths, the `queries` new tokens of each included.

    Sizes are DeepSeek-V3.2's by default. As in a trained model, the output of a layer is about as large as its
    input: weights are normal with deviation fan_in ** -0.5, so that activations, caches and the scaled scores of the
    attention have a deviation of about 1. (Were they uniform in (-1, 1), scores would be in the thousands, and the
    softmax would pick one token.) The pages of the caches are assigned in random order; two belong to nobody, and the
    block table ends each row with -1.
    """

    def weight(fan_in, *sizes):
        return torch.randn(*sizes).mul_(fan_in**-0.5).to(dtype)

    def vector(size, mean):
        return torch.randn(size).mul_(0.1).add_(mean).to(dtype)

    tokens = (len(key_lengths), queries)
    angles = torch.rand(*tokens, rope_depth) * 6.3
    pages = [-(-length // block_size) for length in key_lengths]
    blocks = sum(pages) + 2
    numbers = iter(torch.randperm(blocks).tolist())
    block_table = torch.full((len(pages), max(pages, default=0) + 1), -1, dtype=torch.int32)
    for row, count_of_pages in zip(block_table, pages, strict=True):
        row[:count_of_pages] = torch.tensor([next(numbers) for _ in range(count_of_pages)])
    act_seqs = torch.tensor(key_lengths, dtype=torch.int32)
    return dict(
        x=torch.randn(*tokens, hidden).to(dtype),
        w_dq=weight(hidden, hidden, q_lora),
        w_uq_qr=weight(q_lora, q_lora, heads * (depth + rope_depth)),
        w_uk=weight(depth, heads, depth, kv_lora),
        w_dkv_kr=weight(hidden, hidden, kv_lora + rope_depth),
        gamma_cq=vector(q_lora, 1),
        gamma_ckv=vector(kv_lora, 1),
        sin=angles.sin().to(dtype),
        cos=angles.cos().to(dtype),
        cache_index=slots_of(block_table, act_seqs, queries, block_size).to(slot_dtype),
        kv_cache=torch.randn(blocks, block_size, 1, kv_lora).to(dtype),
        kr_cache=torch.randn(blocks, block_size, 1, rope_depth).to(dtype),
        block_table=block_table,
        act_seqs=act_seqs,
        w_idx_qb=weight(q_lora, q_lora, index_heads * index_depth),
        w_idx_k=weight(hidden, hidden, index_depth),
        w_idx_proj=weight(hidden, hidden, index_heads),
        in_gamma_k=vector(index_depth, 1),
        in_beta_k=vector(index_depth, 0),
        index_k_cache=torch.randn(blocks, block_size, 1, index_depth).to(dtype),
        sparse_count=count,
    )


@dataclass
class _SparseAttention:
    """What the stages of npu_sparse_attention_pto hand on: queries of the indexer and of the attention, and caches; and
    for which tokens [B, S] float32 may round a number of the queries' latent to either of two."""

    indexer: dict
    attention: dict
    open_tokens: Tensor

    @property
    def caches(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.attention["key"], self.attention["key_rope"], self.indexer["key"]


def _sparse_attention_prologs(
    x: Tensor,
    w_dq: Tensor,
    w_uq_qr: Tensor,
    w_uk: Tensor,
    w_dkv_kr: Tensor,
    gamma_cq: Tensor,
    gamma_ckv: Tensor,
    sin: Tensor,
    cos: Tensor,
    cache_index: Tensor,
    kv_cache: Tensor,
    kr_cache: Tensor,
    block_table: Tensor,
    act_seqs: Tensor,
    w_idx_qb: Tensor,
    w_idx_k: Tensor,
    w_idx_proj: Tensor,
    in_gamma_k: Tensor,
    in_beta_k: Tensor,
    index_k_cache: Tensor,
    *,
    softmax_scale: float | None = None,
    rms_norm_eps: float = 1e-5,
    layer_norm_eps: float = 1e-6,
    rope_mode: str = "interleave",
    indexer_rope_mode: str = "interleave",
    other_way: bool = False,
) -> _SparseAttention:
    """Products are exact and rounded to x's dtype where the operator rounds them; with `other_way`, numbers of the
    queries' latent that lie between two of that dtype, and that float32 may round to either, to the farther."""
    dtype = x.dtype
    heads, depth, kv_lora = w_uk.shape
    rope_depth, index_depth = cos.shape[-1], w_idx_k.shape[1]

    def linear(a, weight):
        return (a.double() @ weight.double()).to(dtype)

    def rotated(a, heads, mode):
        shared = (cos[..., None, :], sin[..., None, :]) if heads else (cos, sin)
        return rope(a, *shared, mode).to(dtype)

    open_tokens = torch.zeros(x.shape[:-1], dtype=torch.bool)

    def rounded(exact):
        error = 3e-7 * exact.abs().maximum(exact.square().mean(-1, keepdim=True).sqrt())
        nearest, low, high = (number.to(dtype) for number in (exact, exact - error, exact + error))
        open_tokens.logical_or_((low != high).any(-1))
        return torch.where(nearest == low, high, low) if other_way else nearest

    cq = rounded(rms_norm(rounded(x.double() @ w_dq.double()), gamma_cq, rms_norm_eps))
    q = linear(cq, w_uq_qr).unflatten(-1, (heads, depth + rope_depth))
    kv = linear(x, w_dkv_kr)
    index_q = linear(cq, w_idx_qb).unflatten(-1, (-1, index_depth))
    index_k = layer_norm(x.double() @ w_idx_k.double(), in_gamma_k, in_beta_k, layer_norm_eps).to(dtype)

    def first_rotated(a, heads):
        head = rotated(a[..., :rope_depth], heads, indexer_rope_mode)
        return torch.cat([head, a[..., rope_depth:]], -1)

    new_kv = rms_norm(kv[..., :kv_lora], gamma_ckv, rms_norm_eps).to(dtype)
    kv_cache = write_by_slot(kv_cache, cache_index, new_kv)
    paged = dict(block_table=block_table, layout_query="BSND")
    return _SparseAttention(
        indexer=dict(
            query=first_rotated(index_q, True),
            key=write_by_slot(index_k_cache, cache_index, first_rotated(index_k, False)),
            weights=linear(x, w_idx_proj),
            actual_seq_lengths_key=act_seqs,
            layout_key="PA_BSND",
            **paged,
        ),
        attention=dict(
            query=torch.einsum("bsnd,ndc->bsnc", q[..., :depth].double(), w_uk.double()).to(dtype),
            query_rope=rotated(q[..., depth:], True, rope_mode),
            key=kv_cache,
            value=kv_cache,
            key_rope=write_by_slot(kr_cache, cache_index, rotated(kv[..., kv_lora:], False, rope_mode)),
            scale_value=(kv_lora + rope_depth) ** -0.5 if softmax_scale is None else softmax_scale,
            actual_seq_lengths_kv=act_seqs,
            layout_kv="PA_BSND",
            **paged,
        ),
        open_tokens=open_tokens,
    )


def sparse_attention(*args, sparse_count: int = 2048, **kwargs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """npu_sparse_attention_pto: the result in float64, and copies of the three caches with the new tokens written."""
    stages = _sparse_attention_prologs(*args, **kwargs)
    indices = lightning_indexer(**stages.indexer, sparse_count=sparse_count)
    return sparse_flash_attention(sparse_indices=indices, **stages.attention), *stages.caches


def check_cache(actual: Tensor, expected: Tensor, before: Tensor) -> None:
    """Asserts that rows the reference does not write are unchanged, and that the others are what it writes: within
    a rounding step in all elements but four and 1 %, and nowhere off by more than two steps of the row's largest.

    (An element of a row's product that is rounded otherwise moves those computed from it by such a step.)
    """
    assert actual.shape == before.shape, f"the shape is {tuple(actual.shape)} instead of {tuple(before.shape)}"
    actual, expected, before = (cache.flatten(0, 1).flatten(1) for cache in (actual, expected, before))
    written = (expected != before).any(-1)
    assert torch.equal(actual[~written], before[~written]), "rows of no token of the call have changed"
    if not written.any():
        return
    step = torch.finfo(expected.dtype).eps
    values = expected[written].double()
    error = (actual[written].double() - values).abs()
    far = (error > step * values.abs()).sum().item()
    assert far <= 4 + 0.01 * error.numel(), f"{far} of {error.numel()} elements written are not within a rounding step"
    excess = (error / (2 * step * values.abs().amax(-1, keepdim=True))).max().item()
    assert excess <= 1, f"an element written is off by {excess} times two rounding steps of the largest of its row"


def score_error(indexer: dict) -> float:
    """How far the operator's score may be from the reference's, relative to its terms: query and weights are rounded,
    and a sum in float32 is now and then rounded to the neighbour, which matters less the more products a score has.

    At DeepSeek's sizes this is 5.5e-4; seen are 1.5e-4.
    """
    return 0.05 / (indexer["query"].shape[-2] * indexer["query"].shape[-1]) ** 0.5


def _selection(row: IndexerRow, count: int, error: float, attention: dict, actual: Tensor) -> Tensor:
    """The positions that a row of the result attends to, as far as the scores leave open which those are.

    Keys whose scores lie within the error of the count-th may or may not be among the best. A softmax over the
    selected keys fulfils, for every head, sum over j of exp(score(j)) * (value(j) - result) = 0: linear equations in
    whether each open key is selected. What solves them up to rounding is sought near the reference's own selection.
    """
    if len(row.keys) <= count:
        return row.keys
    scores, ranks = row.scores.sort(descending=True, stable=True)
    distance = scores - scores[count - 1]
    margin = error * row.magnitude
    sure, open_keys = row.keys[ranks[distance > margin]], row.keys[ranks[distance.abs() <= margin]]
    room = count - len(sure)
    b, s, _ = row.place
    positions = torch.cat([sure, open_keys])
    page_size = attention["key"].shape[1]
    at = (attention["block_table"][b].long()[positions // page_size], positions % page_size, 0)
    value = attention["key"][at].double()
    products = attention["query"][b, s].double() @ value.t()
    products += attention["query_rope"][b, s].double() @ attention["key_rope"][at].double().t()
    weights = (attention["scale_value"] * products).softmax(-1)  # [N, positions]
    result = actual[b, s].double()
    of_reference = weights[:, :count] @ value[:count] - weights[:, :count].sum(-1, keepdim=True) * result
    terms = weights[:, len(sure) :, None] * (value[len(sure) :] - result[:, None])  # [N, open keys, Dv]
    no_change = 4 * torch.finfo(actual.dtype).eps * result.square().mean().sqrt() * torch.eye(len(open_keys))
    equations = torch.cat([terms.transpose(1, 2).flatten(0, 1), no_change])
    right = torch.cat([-of_reference.flatten(), torch.zeros(len(open_keys))])
    change = torch.linalg.lstsq(equations, right[:, None]).solution[:, 0]
    selected = (torch.arange(len(open_keys)) < room) + change
    return torch.cat([sure, open_keys[selected.topk(room).indices]])


def _attended(stages: _SparseAttention, count: int, actual: Tensor) -> tuple[Tensor, Tensor]:
    """The positions that each token attends to, as far as the scores leave open which those are, and what it gets."""
    width = min(count, max(stages.indexer["actual_seq_lengths_key"].tolist(), default=0))
    indices = torch.full((*actual.shape[:2], 1, width), -1, dtype=torch.int32)
    for row in lightning_indexer_rows(**stages.indexer):
        selected = _selection(row, count, score_error(stages.indexer), stages.attention, actual)
        indices[row.place][: len(selected)] = selected
    return indices, sparse_flash_attention(sparse_indices=indices, **stages.attention)


def check_sparse_attention(
    attn_out: Tensor, caches: tuple[Tensor, Tensor, Tensor], *, sparse_count: int = 2048, **inputs
) -> float:
    """Asserts that the result and the caches (kv, kr, index_k) are what npu_sparse_attention_pto makes of `inputs`;
    returns the largest error of the result.

    The indexer's scores are of rounded numbers, so which keys near the last place are selected is open, and each weighs
    about as much as the tolerance. So the result is compared with the attention over a selection of sparse_count keys
    in which every key that scores clearly better than the last place is, and none that scores clearly worse: of these
    selections the one that explains the result best, the same for all heads of a token. Likewise of the two ways to
    round numbers of a token's latent that lie between two.
    """
    stages = _sparse_attention_prologs(**inputs)
    _check_form(attn_out, stages.attention["query"].shape)
    before = (inputs["kv_cache"], inputs["kr_cache"], inputs["index_k_cache"])
    for cache, expected, old in zip(caches, stages.caches, before, strict=True):
        check_cache(cache, expected, old)
    indices, expected = _attended(stages, sparse_count, attn_out)
    if stages.open_tokens.any():
        _, other = _attended(_sparse_attention_prologs(**inputs, other_way=True), sparse_count, attn_out)
        error, error_of_other = (
            (attn_out.double() - each).norm(dim=(-2, -1), keepdim=True) for each in (expected, other)
        )
        expected = torch.where(error_of_other < error, other, expected)
    # Errors of the attention's scores matter more where a score sums fewer than 576 products, and where fewer than
    # 768 keys share them.
    of_depth = max(1, (576 / (attn_out.shape[-1] + inputs["cos"].shape[-1])) ** 0.5)
    of_keys = (768 / (indices >= 0).sum(-1, keepdim=True).clamp(1, 768)).sqrt()
    return check_attention(attn_out, expected, atol=7e-5 * of_depth * of_keys, limit=3e-2 * of_depth)


# ---- the paged KV cache, and the step from token to token


def reshape_and_cache_inputs(
    tokens: int | tuple[int, int],
    *,
    heads: int = 8,
    depth: int = 128,
    value_depth: int | None = None,
    cache: tuple[int, int] = (64, 128),
    dtype: torch.dtype = torch.bfloat16,
    value_dtype: torch.dtype | None = None,
    slot_dtype: torch.dtype = torch.int64,
    cache_layout: str = "ND",
    keys_only: bool = False,
) -> dict:
    """Arguments for T tokens [T, heads, depth], or B x S tokens [B, S, heads * depth], each with its own slot in
    caches of (blocks, block_size) tokens that hold random numbers. Values have the keys' depth and dtype by default."""
    leading = (tokens,) if isinstance(tokens, int) else tokens
    count = torch.Size(leading).numel()
    blocks, block_size = cache

    def random(dtype, *sizes):
        return torch.randint(-128, 128, sizes).to(dtype)  # exact in every dtype

    def rows_and_cache(depth, dtype):
        row = (heads, depth) if isinstance(tokens, int) else (heads * depth,)
        c0 = 32 // dtype.itemsize
        nz = (blocks, heads * depth // c0, block_size, c0)
        shape = (blocks, block_size, heads, depth) if cache_layout == "ND" else nz
        return random(dtype, *leading, *row), random(dtype, *shape)

    key, key_cache = rows_and_cache(depth, dtype)
    value, value_cache = rows_and_cache(value_depth or depth, value_dtype or dtype)
    return dict(
        key=key,
        value=None if keys_only else value,
        key_cache=key_cache,
        value_cache=None if keys_only else value_cache,
        slot_mapping=torch.randperm(blocks * block_size)[:count].to(slot_dtype),
        cache_layout=cache_layout,
    )


def _in_tokens(cache: Tensor, cache_layout: str) -> Tensor:
    """The view of a cache whose first two dimensions are blocks and tokens."""
    return cache if cache_layout == "ND" else cache.transpose(1, 2)


def reshape_and_cache(
    key: Tensor,
    value: Tensor | None,
    key_cache: Tensor,
    value_cache: Tensor | None,
    slot_mapping: Tensor,
    *,
    cache_layout: str = "ND",
) -> tuple[Tensor, Tensor | None]:
    """reshape_and_cache: copies of the caches with the tokens written."""

    def written(rows, cache):
        if rows is None:
            return None
        tokens = _in_tokens(cache, cache_layout)
        row = tokens.shape[2:]
        rows = rows.reshape(rows.numel() // row.numel(), *row)[: slot_mapping.numel()]  # what follows is padding
        return _in_tokens(write_by_slot(tokens, slot_mapping.flatten(), rows), cache_layout)

    return written(key, key_cache), written(value, value_cache)


def advance_step_flashattn_inputs(
    lengths: list[int],
    *,
    padding: int = 0,
    block_size: int = 16,
    table_width: int | None = None,
    dtype: torch.dtype = torch.int64,
) -> dict:
    """Arguments for sequences of these lengths followed by some rows of padding, with pages that are all different. By
    default the block table is wide enough for the next token; `dtype` is that of lengths, slots and block table."""
    queries, sequences = len(lengths), len(lengths) + padding
    width = max(lengths, default=0) // block_size + 1 if table_width is None else table_width
    return dict(
        num_seqs=sequences,
        num_queries=queries,
        block_size=block_size,
        input_tokens=torch.randint(50000, (sequences,)),
        sampled_token_ids=torch.randint(50000, (queries, 1)),
        input_positions=torch.randint(50000, (sequences,)),
        seq_lens=torch.tensor([*lengths, *torch.randint(1, 99, (padding,)).tolist()], dtype=dtype),
        slot_mapping=torch.randint(50000, (sequences,), dtype=dtype),
        block_tables=torch.randperm(sequences * width).view(sequences, width).to(dtype),
    )


def advance_step_flashattn(
    num_seqs: int,
    num_queries: int,
    block_size: int,
    input_tokens: Tensor,
    sampled_token_ids: Tensor,
    input_positions: Tensor,
    seq_lens: Tensor,
    slot_mapping: Tensor,
    block_tables: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """advance_step_flashattn: tokens, positions, lengths and slots of the next step."""
    tokens, positions, slots = [0] * num_seqs, [0] * num_seqs, [-1] * num_seqs
    lengths, sampled, pages = seq_lens.tolist(), sampled_token_ids.flatten().tolist(), block_tables.tolist()
    for row in range(num_queries):
        position = lengths[row]
        page, offset = divmod(position, block_size)
        tokens[row], positions[row] = sampled[row], position
        if page < len(pages[row]) and pages[row][page] >= 0:
            slots[row] = pages[row][page] * block_size + offset
        lengths[row] = position + 1
    made = zip(
        (tokens, positions, lengths, slots), (input_tokens, input_positions, seq_lens, slot_mapping), strict=True
    )
    return tuple(torch.tensor(values, dtype=tensor.dtype) for values, tensor in made)
