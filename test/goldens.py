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

    score(query token, key token) = sum over the heads of weight * relu(query . key); with sparse_mode 3 query token
    i of n sees all keys but the last n - 1 - i.
    """
    packed, paged = layout_query == "TND", layout_key == "PA_BSND"
    batch = len(actual_seq_lengths_query) if packed else query.shape[0]
    key_spans = _spans(actual_seq_lengths_key, batch, 0 if paged else key.shape[-3], packed and not paged)
    for b, (first, last) in enumerate(_spans(actual_seq_lengths_query, batch, query.shape[-3], packed)):
        in_batch = (slice(first, last),) if packed else (b, slice(first, last))
        q, w = query[in_batch].double(), weights[in_batch].double()
        k_first, k_last = key_spans[b]
        positions = torch.arange(k_last - k_first)
        if paged:
            pages = block_table[b].long()[positions // key.shape[1]]
            positions = positions[pages >= 0]
            k = key[pages[pages >= 0], positions % key.shape[1]].double()
        else:
            k = (key[k_first:k_last] if packed else key[b, k_first:k_last]).double()
        heads = q.shape[1] // k.shape[1]
        for n in range(k.shape[1]):
            group = slice(n * heads, (n + 1) * heads)
            products = torch.einsum("shd,kd->shk", q[:, group], k[:, n]).relu_()
            scores = torch.einsum("sh,shk->sk", w[:, group], products)
            magnitudes = torch.einsum("sh,shk->sk", w[:, group].abs(), products)
            for s in range(last - first):
                visible = k_last - k_first - (last - first - 1 - s if sparse_mode == 3 else 0)
                seen = positions < visible
                yield IndexerRow(
                    place=(first + s, n) if packed else (b, s, n),
                    keys=positions[seen],
                    scores=scores[s, seen],
                    magnitude=magnitudes[s, seen].max().item() if seen.any() else 0.0,
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
