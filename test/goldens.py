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
    magnitude: float  # of the largest sum of absolute terms behind a score, the scale of its rounding errors


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
) -> Iterator[IndexerRow]:
    """The rows of npu_lightning_indexer_pto that belong to a query token, for tensors on the CPU.

    score(query token, key token) = sum over the heads of weight * relu(query . key).
    """
    lengths = (actual_seq_lengths_query, actual_seq_lengths_key)
    for sequence in _sequences(query, key, *lengths, block_table, layout_query, layout_key):
        positions = sequence.stored(torch.arange(sequence.keys), key.shape[1])
        k = sequence.take(key, positions)
        heads = query.shape[-2] // k.shape[1]
        for s in range(sequence.queries):
            place = sequence.place(s)
            seen = positions < sequence.visible(s, sparse_mode)
            for n in range(k.shape[1]):
                group = slice(n * heads, (n + 1) * heads)
                products = (query[place][group].double() @ k[seen, n].t()).relu_()
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

    The pages of the cache are dealt out in random order; two belong to nobody, and the table ends each row with -1.
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


def lightning_indexer(query: Tensor, key: Tensor, weights: Tensor, *, sparse_count: int = 2048, **kwargs) -> Tensor:
    """npu_lightning_indexer_pto: each row's best keys by descending score, of equal scores the first; then -1."""
    out = query.new_full((*query.shape[:-2], key.shape[-2], sparse_count), -1, dtype=torch.int32)
    for row in lightning_indexer_rows(query, key, weights, **kwargs):
        best = row.scores.argsort(descending=True, stable=True)[:sparse_count]
        out[row.place][: len(best)] = row.keys[best]
    return out


def check_lightning_indexer(actual: Tensor, query: Tensor, key: Tensor, weights: Tensor, **kwargs) -> float:
    """Asserts that `actual` selects the best keys, up to rounding of their scores in float32.

    In every row exactly min(seen keys, sparse_count) distinct keys come first, best first, and -1 after them; a key may
    be taken for another only where their scores lie within the rounding error. Returns the largest error that was so
    excused, relative to the scores' magnitude.
    """
    sparse_count = actual.shape[-1]
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
    found = (actual >= 0).sum(-1)
    assert torch.equal(found, expected), f"rows hold {found.tolist()} keys instead of {expected.tolist()}"
    tail = torch.arange(sparse_count) >= expected[..., None]
    assert (actual[tail] == -1).all(), "what follows the keys of a row must be -1"
    return worst


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
) -> Tensor:
    """npu_sparse_flash_attention_pto in float64: softmax(scale * (query . key + query_rope . key_rope)) . value."""
    out = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=torch.float64)
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
                result[:] = (scale_value * scores).softmax(-1) @ sequence.take(value, positions)[:, n]
    return out


def check_attention(actual: Tensor, expected: Tensor) -> float:
    """Asserts rtol 5e-3 and atol 1e-4 in 99 % of the elements, and 3e-2 in all; returns the largest error."""
    assert actual.shape == expected.shape, f"the shape is {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    assert torch.isfinite(actual).all(), "not all of the result is finite"
    if actual.numel() == 0:
        return 0.0
    error = (actual.double() - expected).abs()
    close = (error <= 1e-4 + 5e-3 * expected.abs()).double().mean().item()
    worst = error.max().item()
    assert close >= 0.99, (
        f"only {close:.2%} of the elements are within rtol 5e-3 and atol 1e-4, the worst is off by {worst}"
    )
    assert worst <= 3e-2, f"an element is off by {worst}"
    return worst
