# SPDX-License-Identifier: Apache-2.0
"""What the sparse attention operators compute, as one writes it with ATen operators: the peers of the benchmarks.

Matrix products are in the dtype of the queries, which need not be that of the caches: bfloat16 where ATen multiplies it
fastest, and then what ATen's products round is rounded, or else float32. What has several natural forms is written in
each.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, rms_norm


@dataclass(frozen=True)
class Span:
    """Query tokens [first, last) of batch entry `batch`, which see `keys` keys at most: those of the last of them."""

    batch: int
    first: int
    last: int
    keys: int


def spans(lengths: list[int], queries: int, size: int) -> list[Span]:
    """Every batch entry in spans of at most `size` query tokens, the last query standing at the last key."""
    starts = range(0, queries, size)
    return [
        Span(b, first, min(first + size, queries), length - queries + min(first + size, queries))
        for b, length in enumerate(lengths)
        for first in starts
    ]


# ---- lightning indexer: the positions of the best keys, of one span


def mask_later_keys(scores: Tensor) -> Tensor:
    """Hides from query i of S all keys but the last S - 1 - i; scores are (..., S, keys)."""
    queries, keys = scores.shape[-2:]
    if queries == 1:
        return scores
    visible = keys - queries + 1 + torch.arange(queries)
    return scores.masked_fill(torch.arange(keys) >= visible[:, None], -torch.inf)


def index_by_matmul(query: Tensor, keys: Tensor, weights: Tensor, top: int) -> Tensor:
    """The sum over the heads is a matrix product."""
    products = (query.flatten(0, 1) @ keys.to(query.dtype).t()).relu_().unflatten(0, query.shape[:2])
    scores = torch.bmm(weights[:, None].float(), products.float())[:, 0]
    return mask_later_keys(scores).topk(min(top, len(keys))).indices


def index_by_sum(query: Tensor, keys: Tensor, weights: Tensor, top: int) -> Tensor:
    """The sum over the heads is a reduction, which a compiler can fuse."""
    products = (keys.to(query.dtype) @ query.flatten(0, 1).t()).unflatten(1, query.shape[:2])
    scores = (products.float().relu() * weights.float()).sum(-1).t()
    return mask_later_keys(scores).topk(min(top, len(keys))).indices


INDEXERS = {"sum over heads by matmul": index_by_matmul, "sum over heads by reduction": index_by_sum}


def keys_of(cache: Tensor, pages: Tensor, count: int) -> Tensor:
    return cache[pages[: -(-count // cache.shape[1])]].flatten(0, 2)[:count]


# ---- sparse flash attention: of some query tokens, with the rows of the cache that each of them attends to


def attend_by_two_products(
    query: Tensor, rope: Tensor, key: Tensor, key_rope: Tensor, slots: Tensor, scale: float
) -> Tensor:
    """The scores are the sum of the products of both parts."""
    rows, rope_rows = key[slots].to(query.dtype), key_rope[slots].to(query.dtype)
    scores = torch.bmm(query, rows.transpose(1, 2)) + torch.bmm(rope, rope_rows.transpose(1, 2))
    return torch.bmm((scores.float() * scale).softmax(-1).to(rows.dtype), rows).to(key.dtype)


def attend_by_one_product(
    query: Tensor, rope: Tensor, key: Tensor, key_rope: Tensor, slots: Tensor, scale: float
) -> Tensor:
    """Both parts are joined first."""
    rows = torch.cat([key[slots], key_rope[slots]], -1).to(query.dtype)
    scores = torch.bmm(torch.cat([query, rope], -1), rows.transpose(1, 2))
    weights = (scores.float() * scale).softmax(-1).to(rows.dtype)
    return torch.bmm(weights, rows[..., : key.shape[-1]]).to(key.dtype)


ATTENTIONS = {"two products": attend_by_two_products, "one product": attend_by_one_product}


def slots_of(positions: Tensor, pages: Tensor, page: int) -> Tensor:
    """Where in the cache the tokens at these positions lie; `pages` has a row for each row of positions."""
    return pages.gather(1, positions // page) * page + positions % page


# ---- the prologs


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Interleaved in, half out."""
    first, second = x[..., 0::2].float(), x[..., 1::2].float()
    rotated = torch.cat([first, second], -1) * cos + torch.cat([-second, first], -1) * sin
    return rotated.to(x.dtype)


def rope_first(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first columns, as many as the angles have."""
    width = cos.shape[-1]
    return torch.cat([rope(x[..., :width], cos, sin), x[..., width:]], -1)


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.float()
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().to(torch.int8), scale.half()


def product(x: Tensor, weight: Tensor) -> Tensor:
    """The product, in int8 if the weight is int8. Otherwise x is cast to the weight's dtype, which is exact."""
    return torch._int_mm(x, weight) if weight.dtype == torch.int8 else x.to(weight.dtype) @ weight


def indexer_prolog(
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
) -> tuple[Tensor, ...]:
    """npu_lightning_indexer_prolog_pto; the caches are written in place. wq_b is kept in the dtype of its product."""
    heads, depth = weights_proj.shape[1], wk.shape[1]
    cos, sin = cos_idx_rope, sin_idx_rope
    q = (product(q_norm, wq_b).float() * q_norm_scale * wq_b_scale.t()).to(token_x.dtype).unflatten(-1, (heads, depth))
    query, query_scale = quantise(rope_first(q, cos[:, None], sin[:, None]) @ hadamard_q)
    k = (token_x @ wk).float()
    k = layer_norm(k, [depth], ln_gamma_k.float(), ln_beta_k.float(), layernorm_epsilon_k).to(token_x.dtype)
    key, key_scale = quantise(rope_first(k, cos, sin) @ hadamard_k)
    idx_k_cache.view(-1, depth).index_copy_(0, idx_k_cache_index, key)
    idx_k_scale_cache.view(-1, 1).index_copy_(0, idx_k_cache_index, key_scale)
    return query, query_scale, ((token_x @ weights_proj).float() * (heads * depth) ** -0.5).half()


def layer_prologs(inputs: dict, tokens: slice) -> tuple[Tensor, ...]:
    """The queries of npu_sparse_attention_pto's attention and indexer, of some tokens [T, ...]; writes their caches."""
    x = inputs["x"].flatten(0, 1)[tokens]
    cos, sin = (inputs[name].flatten(0, 1)[tokens] for name in ("cos", "sin"))
    slots = inputs["cache_index"].flatten()[tokens].long()
    heads, depth, kv_lora = inputs["w_uk"].shape
    eps = 1e-5
    cq = rms_norm(x @ inputs["w_dq"], [inputs["w_dq"].shape[1]], inputs["gamma_cq"], eps)
    q = (cq @ inputs["w_uq_qr"]).unflatten(-1, (heads, -1))
    kv = x @ inputs["w_dkv_kr"]
    key = layer_norm(
        (x @ inputs["w_idx_k"]).float(),
        [inputs["w_idx_k"].shape[1]],
        inputs["in_gamma_k"].float(),
        inputs["in_beta_k"].float(),
        1e-6,
    ).to(x.dtype)
    new = {
        "kv_cache": rms_norm(kv[:, :kv_lora], [kv_lora], inputs["gamma_ckv"], eps),
        "kr_cache": rope(kv[:, kv_lora:], cos, sin),
        "index_k_cache": rope_first(key, cos, sin),
    }
    for name, rows in new.items():
        inputs[name].view(-1, rows.shape[1]).index_copy_(0, slots, rows.to(inputs[name].dtype))
    query = torch.bmm(q[..., :depth].transpose(0, 1), inputs["w_uk"]).transpose(0, 1)
    query_rope = rope(q[..., depth:], cos[:, None], sin[:, None])
    index_query = (cq @ inputs["w_idx_qb"]).unflatten(-1, (-1, inputs["w_idx_k"].shape[1]))
    return query, query_rope, rope_first(index_query, cos[:, None], sin[:, None]), x @ inputs["w_idx_proj"]
