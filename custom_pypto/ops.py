# SPDX-License-Identifier: Apache-2.0
"""The operators as typed Python functions: what each takes, computes and rejects.

All work eagerly, under autograd where a gradient is named, and inside torch.compile with torchair. They run
asynchronously on the current NPU stream. Arguments of a wrong shape, dtype, device or value raise RuntimeError at the
call, with the operator, the argument, what was expected and what came; values that only the device knows (sequence
lengths, block tables, slots) are checked there, and raise at the next synchronisation.
"""

import inspect
import typing
from typing import Literal

import torch
from torch import Tensor


def add_custom(self: Tensor, other: Tensor) -> Tensor:
    """Adds two tensors, as ``torch.add`` does: ``out = self + other``.

    Args:
        self: of up to 25 dimensions; float16, bfloat16, float32, float64, int8, uint8, int16, int32, int64 or bool.
        other: of a shape that broadcasts with ``self``; any of these dtypes. A CPU tensor without
            dimensions is accepted beside a tensor on an NPU, in either place.

    Returns:
        A new contiguous tensor of the broadcast shape and of ``torch.result_type(self, other)``. float16 and bfloat16
        are added in float32 and rounded once. The sum of two bool tensors is their logical or.

    Nothing is mutated. Differentiable, twice too: the gradient of each input is the output's, summed over the broadcast
    dimensions and cast to the input's dtype (``torch.ops.custom_pypto.add_custom_backward`` computes it). By
    torch.autograd, that is: transforms of torch.func, such as grad, vjp and jvp, reject it by name.

    Raises:
        RuntimeError: shapes do not broadcast, a dtype is not one of the above, the tensors are not on one NPU.

    Formula: ``torch.add`` with alpha 1.
    """
    return torch.ops.custom_pypto.add_custom(self, other)


@typing.overload
def npu_lightning_indexer_pto(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    *,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_key: Tensor | None = None,
    block_table: Tensor | None = None,
    layout_query: str = "BSND",
    layout_key: str = "PA_BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    return_value: Literal[False] = False,
) -> Tensor: ...
@typing.overload
def npu_lightning_indexer_pto(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    *,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_key: Tensor | None = None,
    block_table: Tensor | None = None,
    layout_query: str = "BSND",
    layout_key: str = "PA_BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    return_value: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def npu_lightning_indexer_pto(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    *,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_key: Tensor | None = None,
    block_table: Tensor | None = None,
    layout_query: str = "BSND",
    layout_key: str = "PA_BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    return_value: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Selects for every query token the ``sparse_count`` key tokens with the highest index scores.

    With ``g = N1 / N2`` query heads to each key head ``n``, the score of key token ``j`` for query token ``i`` is ::

        score(i, j) = sum over the g heads h of n:  weights[i, h] * relu(query[i, h] . key[j, n])

    with products and sums in float32 and no scale factor. Of the key tokens that ``i`` sees, the best are given in
    descending order of score.

    B is the batch size, S1 and S2 are query and key tokens per sequence, T and T2 those of all sequences together, N1
    and N2 query and key heads, D the head dimension.

    Args:
        query: ``[B, S1, N1, D]`` or ``[T, N1, D]``, float16 or bfloat16.
        key: ``[blocks, block_size, N2, D]``, ``[B, S2, N2, D]`` or ``[T2, N2, D]``, of the dtype of ``query``; N2
            divides N1.
        weights: ``[B, S1, N1]`` or ``[T, N1]``, of the dtype of ``query`` or float32.
        actual_seq_lengths_query: ``[B]``, int32. With layout_query "BSND" the number of query tokens of each sequence
            (default: S1); with "TND" its running total, the last one T (mandatory).
        actual_seq_lengths_key: ``[B]``, int32. With layout_key "PA_BSND" the number of key tokens of each sequence, the
            new ones included (mandatory); with "BSND" the same (default: S2); with "TND" its running total (mandatory).
        block_table: ``[B, blocks per sequence]``, int32: the blocks that hold a sequence's keys, in order; -1 past
            them. Mandatory with layout_key "PA_BSND", rejected otherwise.
        layout_query: "BSND" (padded) or "TND" (packed).
        layout_key: "PA_BSND" (paged), or the same as layout_query, "BSND" or "TND".
        sparse_count: how many tokens to select, 1 or more. CANN's own indexer takes up to 2048.
        sparse_mode: 0: every query token sees all key tokens of its sequence. 3: causal, aligned to the end: the last
            query token sees all, the one before it all but the last, and so on.
        return_value: whether to also return the scores of the selected tokens.

    Returns:
        A new int32 tensor ``[B, S1, N2, sparse_count]`` or ``[T, N2, sparse_count]``: positions in the sequence from 0
        (not slots of the cache), then -1 where fewer tokens are seen. Rows of padded query tokens are all -1. With
        return_value a pair of it and sparse_values of the same shape: the scores, of the dtype of ``weights``,
        and -inf where the position is -1. With float32 ``weights`` they are bitwise equal to the compared scores.

    In torch.ops, where the number of results is fixed, return_value is a separate overload, which always returns a
    pair, as torch_npu's npu_lightning_indexer does: with False its second tensor is empty, ``[0]``.

    All tensors may have any strides. Nothing is mutated. There is no gradient.

    Raises:
        RuntimeError: at the call for shapes, dtypes, devices, layouts, sparse_count, sparse_mode and missing arguments;
            at the next synchronisation for negative or too long lengths, a block table too short for its sequence and
            block numbers out of range.

    Limits: any number of heads, head dimension, block size and length. The work is N1 * D multiplications for each pair
    of a query token and a key token that it sees. The best keys are selected block by block: the scores of a whole
    sequence are never kept.

    Formula: the index score of DeepSeek Sparse Attention, equation 1 of the DeepSeek-V3.2-Exp report; torch_npu's
    npu_lightning_indexer computes the same.
    """
    more = {"return_value": True} if return_value else {}
    return torch.ops.custom_pypto.npu_lightning_indexer_pto(
        query,
        key,
        weights,
        actual_seq_lengths_query=actual_seq_lengths_query,
        actual_seq_lengths_key=actual_seq_lengths_key,
        block_table=block_table,
        layout_query=layout_query,
        layout_key=layout_key,
        sparse_count=sparse_count,
        sparse_mode=sparse_mode,
        **more,
    )


@typing.overload
def npu_lightning_indexer_quant_pto(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    query_quant_mode: int = 0,
    key_quant_mode: int = 0,
    *,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_key: Tensor | None = None,
    block_table: Tensor | None = None,
    layout_query: str = "BSND",
    layout_key: str = "PA_BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    return_value: Literal[False] = False,
) -> Tensor: ...
@typing.overload
def npu_lightning_indexer_quant_pto(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    query_quant_mode: int = 0,
    key_quant_mode: int = 0,
    *,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_key: Tensor | None = None,
    block_table: Tensor | None = None,
    layout_query: str = "BSND",
    layout_key: str = "PA_BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    return_value: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def npu_lightning_indexer_quant_pto(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    query_quant_mode: int = 0,
    key_quant_mode: int = 0,
    *,
    actual_seq_lengths_query: Tensor | None = None,
    actual_seq_lengths_key: Tensor | None = None,
    block_table: Tensor | None = None,
    layout_query: str = "BSND",
    layout_key: str = "PA_BSND",
    sparse_count: int = 2048,
    sparse_mode: int = 3,
    return_value: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Selects as npu_lightning_indexer_pto does, on int8 queries and keys with a scale for each of their rows.

    It takes what npu_lightning_indexer_prolog_pto gives and writes. With ``g = N1 / N2`` query heads to each key head
    ``n``, the score of key token ``j`` for query token ``i`` is ::

        score(i, j) = key_dequant_scale[j, n] * sum over the g heads h of n:
                          weights[i, h] * query_dequant_scale[i, h] * relu(query[i, h] . key[j, n])

    with the products of int8 exact, and all else in float32. Scales are not negative: then they may as well stand
    inside relu, as torch_npu writes it. Of the key tokens that ``i`` sees, the best are given in descending order of
    score.

    B is the batch size, S1 and S2 are query and key tokens per sequence, T and T2 those of all sequences together, N1
    and N2 query and key heads, D the head dimension.

    Args:
        query: ``[B, S1, N1, D]`` or ``[T, N1, D]``, int8.
        key: ``[blocks, block_size, N2, D]``, ``[B, S2, N2, D]`` or ``[T2, N2, D]``, int8; N2 divides N1.
        weights: ``[B, S1, N1]`` or ``[T, N1]``, float16, bfloat16 or float32.
        query_dequant_scale: ``[B, S1, N1]``, ``[B, S1, N1, 1]``, ``[T, N1]`` or ``[T, N1, 1]``, float16 or float32.
        key_dequant_scale: ``[blocks, block_size, N2]``, ``[B, S2, N2]`` or ``[T2, N2]``, float16 or float32.
        query_quant_mode: 0: a scale for each token and head.
        key_quant_mode: 0: a scale for each token and head.
        actual_seq_lengths_query: ``[B]``, int32. With layout_query "BSND" the number of query tokens of each sequence
            (default: S1); with "TND" its running total, the last one T (mandatory).
        actual_seq_lengths_key: ``[B]``, int32. With layout_key "PA_BSND" the number of key tokens of each sequence, the
            new ones included (mandatory); with "BSND" the same (default: S2); with "TND" its running total (mandatory).
        block_table: ``[B, blocks per sequence]``, int32: the blocks that hold a sequence's keys, in order; -1 past
            them. Mandatory with layout_key "PA_BSND", rejected otherwise.
        layout_query: "BSND" (padded) or "TND" (packed).
        layout_key: "PA_BSND" (paged), or the same as layout_query, "BSND" or "TND".
        sparse_count: how many tokens to select, 1 or more. CANN's own indexer takes up to 2048.
        sparse_mode: 0: every query token sees all key tokens of its sequence. 3: causal, aligned to the end: the last
            query token sees all, the one before it all but the last, and so on.
        return_value: whether to also return the scores of the selected tokens.

    Returns:
        A new int32 tensor ``[B, S1, N2, sparse_count]`` or ``[T, N2, sparse_count]``: positions in the sequence from 0
        (not slots of the cache), then -1 where fewer tokens are seen. Rows of padded query tokens are all -1. With
        return_value a pair of it and sparse_values of the same shape: the scores in float32, and -inf where the
        position is -1. As an overload of torch.ops it always gives a pair: with False its second tensor is empty,
        ``[0]``.

    All tensors may have any strides. Nothing is mutated. There is no gradient.

    Raises:
        RuntimeError: at the call for shapes, dtypes, devices, layouts, quantisation modes, sparse_count, sparse_mode
            and missing arguments; at the next synchronisation for negative or too long lengths, a block table too short
            for its sequence and block numbers out of range.

    Limits: any number of heads, block size and length, and head dimensions up to 131071. It reads half of the memory
    that npu_lightning_indexer_pto reads, and multiplies bytes where the processor does.

    Formula: that of npu_lightning_indexer_pto on ``query * query_dequant_scale`` and ``key * key_dequant_scale``;
    torch_npu's npu_quant_lightning_indexer computes the same, but for what it rounds to float16 on the way.
    """
    more = {"return_value": True} if return_value else {}
    return torch.ops.custom_pypto.npu_lightning_indexer_quant_pto(
        query,
        key,
        weights,
        query_dequant_scale,
        key_dequant_scale,
        query_quant_mode,
        key_quant_mode,
        actual_seq_lengths_query=actual_seq_lengths_query,
        actual_seq_lengths_key=actual_seq_lengths_key,
        block_table=block_table,
        layout_query=layout_query,
        layout_key=layout_key,
        sparse_count=sparse_count,
        sparse_mode=sparse_mode,
        **more,
    )


def npu_lightning_indexer_prolog_pto(
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
    layout_query: str | None = "TND",
    layout_key: str | None = "PA_BSND",
    rope_mode: str = "interleave",
) -> tuple[Tensor, Tensor, Tensor]:
    """Makes what the quantised lightning indexer works on: int8 queries, int8 keys in their cache, and head weights.

    For every token, with ``round`` to the dtype of ``token_x`` and sums in float32 (exact int32 for int8) ::

        q = round((q_norm @ wq_b) * q_norm_scale * wq_b_scale)        as N heads of D
        query, query_scale = quantise(round(round(rope(q)) @ hadamard_q))          for each head
        k = round(layer_norm(token_x @ wk, ln_gamma_k, ln_beta_k, layernorm_epsilon_k))
        key, key_scale = quantise(round(round(rope(k)) @ hadamard_k))
        weights = float16(float32(round(token_x @ weights_proj)) * N ** -0.5 * D ** -0.5)

    ``quantise`` gives ``round_half_even(x * 127 / amax)`` and the scale ``amax / 127``, amax being the greatest ``|x|``
    of the row; where amax is 0 both are 0. ``layer_norm`` uses the biased variance. ``rope`` turns the first R numbers
    ``x`` of a head to ``x' * cos + rotate_half(x') * sin``, with ``rotate_half([a, b]) = [-b, a]`` for the halves a and
    b; with rope_mode "half" x' is x, with "interleave" it is first the numbers of x in even places, then those in odd
    ones. Key and key_scale are written to the caches at the token's slot.

    T is the number of tokens, or B sequences of S1 tokens each; h is the hidden size, q_lora the width of the latent
    query, N the number of heads, D the head dimension, R the width of the rotary embedding.

    Args:
        token_x: ``[T, h]`` (layout_query "TND") or ``[B, S1, h]`` ("BSND"): the hidden states; bfloat16 or float16.
        q_norm: ``[T, q_lora]`` or ``[B, S1, q_lora]``, int8: the normalised latent query, quantised for each token.
        q_norm_scale: ``[T, 1]`` or ``[B, S1, 1]``, float32: its scales.
        wq_b: ``[q_lora, N * D]``, int8; ND or FRACTAL_NZ.
        wq_b_scale: ``[N * D, 1]``, float32: a scale for each column of ``wq_b``.
        wk: ``[h, D]``, of the dtype of ``token_x``; ND or FRACTAL_NZ.
        weights_proj: ``[h, N]``, of the dtype of ``token_x``; ND or FRACTAL_NZ.
        ln_gamma_k, ln_beta_k: ``[D]``, of the dtype of ``token_x``.
        cos_idx_rope, sin_idx_rope: ``[T, R]`` or ``[B, S1, R]``, of the dtype of ``token_x``; R is even, at most D.
        hadamard_q, hadamard_k: ``[D, D]``, of the dtype of ``token_x``.
        idx_k_cache: ``[blocks, block_size, 1, D]`` (layout_key "PA_BSND"), ``[sequences, S2, 1, D]`` ("BSND") or
            ``[T2, 1, D]`` ("TND"), int8; **mutated**: a row for each token.
        idx_k_scale_cache: ``[blocks, block_size, 1]``, ``[sequences, S2, 1]`` or ``[T2, 1]``, float16; **mutated**: a
            scale for each token.
        idx_k_cache_index: ``[T]`` or ``[B, S1]``, int64 or int32: the slot of each token, which counts tokens over the
            flattened leading dimensions of the cache (``block * block_size + offset``). -1 writes nothing. Of tokens
            with the same slot the last one is written.
        layernorm_epsilon_k: what is added to the variance, 0 or more; used as float32.
        layout_query: "TND" (packed) or "BSND" (padded); None is "TND".
        layout_key: "PA_BSND" (paged), "BSND" or "TND"; None is "PA_BSND".
        rope_mode: "interleave" or "half".

    Returns:
        New contiguous tensors: query ``[T, N, D]`` or ``[B, S1, N, D]``, int8; query_scale ``[T, N, 1]`` or
        ``[B, S1, N, 1]``, float16; weights ``[T, N]`` or ``[B, S1, N]``, float16.

    The caches are written in place and share no memory with another argument. All tensors in ND may have any strides.
    Results are bitwise equal for weights in ND and FRACTAL_NZ. There is no gradient.

    Raises:
        RuntimeError: at the call for shapes, dtypes, devices, formats, layouts, rope_mode, epsilon and shared memory;
            at the next synchronisation for slots below -1 or past the end of the cache. Nothing is written then.

    Limits: any sizes. With the few tokens of a decode step the time is that of reading the weights once; many tokens go
    through in blocks of up to 256 tokens and some heads, each rotated, transformed and quantised while it lies in a
    core's cache, so that what is needed beside arguments and results does not grow with them.

    Formula: the indexer of the DeepSeek-V3.2-Exp report, section 1, with a W8A8 query path and int8 keys, as
    npu_lightning_indexer_prolog_pto of cann-recipes-infer. DeepSeek's own inference code rotates with "half"; the
    recipes' operator with "interleave".
    """
    return torch.ops.custom_pypto.npu_lightning_indexer_prolog_pto(
        token_x,
        q_norm,
        q_norm_scale,
        wq_b,
        wq_b_scale,
        wk,
        weights_proj,
        ln_gamma_k,
        ln_beta_k,
        cos_idx_rope,
        sin_idx_rope,
        hadamard_q,
        hadamard_k,
        idx_k_cache,
        idx_k_scale_cache,
        idx_k_cache_index,
        layernorm_epsilon_k,
        layout_query=layout_query,
        layout_key=layout_key,
        rope_mode=rope_mode,
    )


def npu_sparse_attention_pto(
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
    sparse_count: int = 2048,
    softmax_scale: float | None = None,
    rms_norm_eps: float = 1e-5,
    layer_norm_eps: float = 1e-6,
    rope_mode: str = "interleave",
    indexer_rope_mode: str = "interleave",
) -> Tensor:
    """DeepSeek's sparse attention in decode, from hidden states to the latent outputs of the heads, in one operator.

    For every token, with every matrix product summed in float32 and rounded to the dtype of ``x``, and so all that is
    normalised or rotated ::

        cq = rms_norm(x @ w_dq, gamma_cq, rms_norm_eps)
        q = cq @ w_uq_qr                                           as N heads of [Dn, R]
        q_nope, q_rope = q[:Dn] @ w_uk, rope(q[Dn:])
        ckv, kr = x @ w_dkv_kr                                     split as [Dkv, R]
        kv_cache[slot], kr_cache[slot] = rms_norm(ckv, gamma_ckv, rms_norm_eps), rope(kr)
        q_index = rope(cq @ w_idx_qb)                              as Ni heads of Di
        index_k_cache[slot] = rope(layer_norm(x @ w_idx_k, in_gamma_k, in_beta_k, layer_norm_eps))

    ``x @ w_idx_k`` stays in float32 up to the norm. Once all tokens are in the caches, npu_lightning_indexer_pto
    selects sparse_count tokens by ``q_index``, ``index_k_cache`` and the weights ``x @ w_idx_proj``, and
    npu_sparse_flash_attention_pto attends to them with ``q_nope`` and ``q_rope`` on ``kv_cache`` (keys and values) and
    ``kr_cache``; both are causal. ``rope`` is that of npu_lightning_indexer_prolog_pto; in the indexer it turns the
    first R of the Di numbers of a head.

    B is the batch size, S1 the number of new tokens per sequence, h the hidden size, q_lora and Dkv the widths of the
    latent query and key, N and Ni the heads of attention and indexer, Dn, R and Di the head dimensions without rotary
    embedding, of its part, and of the indexer.

    Args:
        x: ``[B, S1, h]``: the hidden states; bfloat16 or float16. All tensors without a dtype below are of this one.
        w_dq: ``[h, q_lora]``; ND or FRACTAL_NZ.
        w_uq_qr: ``[q_lora, N * (Dn + R)]``; ND or FRACTAL_NZ.
        w_uk: ``[N, Dn, Dkv]``.
        w_dkv_kr: ``[h, Dkv + R]``; ND or FRACTAL_NZ.
        gamma_cq: ``[q_lora]``.
        gamma_ckv: ``[Dkv]``.
        sin, cos: ``[B, S1, R]``; R is even, at most Di.
        cache_index: ``[B, S1]``, int32 or int64: the slot of each token, ``block * block_size + offset``. -1 writes
            nothing. Of tokens with the same slot the last one is written.
        kv_cache: ``[blocks, block_size, 1, Dkv]``; **mutated**: a row for each token.
        kr_cache: ``[blocks, block_size, 1, R]``; **mutated** likewise.
        block_table: ``[B, blocks per sequence]``, int32: the blocks that hold a sequence's tokens, in order; -1 past
            them. All three caches use it.
        act_seqs: ``[B]``, int32: the number of tokens of each sequence, the S1 new ones included.
        w_idx_qb: ``[q_lora, Ni * Di]``; ND or FRACTAL_NZ.
        w_idx_k: ``[h, Di]``; ND or FRACTAL_NZ.
        w_idx_proj: ``[h, Ni]``; ND or FRACTAL_NZ.
        in_gamma_k, in_beta_k: ``[Di]``.
        index_k_cache: ``[blocks, block_size, 1, Di]``; **mutated** likewise.
        sparse_count: how many tokens each token attends to at most, 1 or more.
        softmax_scale: what the scores are multiplied by, greater than 0; used as float32. None is
            ``(Dkv + R) ** -0.5``.
        rms_norm_eps, layer_norm_eps: what is added to mean square and variance, 0 or more; used as float32.
        rope_mode: "interleave" or "half", for the attention.
        indexer_rope_mode: "interleave" or "half", for the indexer.

    Returns:
        A new contiguous tensor ``[B, S1, N, Dkv]`` of the dtype of ``x``. Where no token is attended to it is zero.

    The caches are written in place and share no memory with another argument. All tensors in ND may have any strides.
    Results are bitwise equal for weights in ND and FRACTAL_NZ. There is no gradient.

    Raises:
        RuntimeError: at the call for shapes, dtypes, devices, formats, rope modes, sparse_count, scale, epsilons and
            shared memory; at the next synchronisation for slots below -1 or past the end of the caches, negative or too
            long lengths, a block table too short for its sequence and block numbers out of range. Nothing is written
            then.

    Limits: any sizes, batch and number of new tokens. Caches are written before any token attends, so that a new
    token sees the new ones before it. Many tokens go through in chunks, so that what is needed beside arguments and
    result does not grow with them.

    Formula: multi-head latent attention with absorbed weights (DeepSeek-V2 report, section 2.1) on the tokens that the
    indexer of the DeepSeek-V3.2-Exp report, section 1, selects; as npu_sparse_attention_pto of cann-recipes-infer,
    whose scale is the default. DeepSeek-V3.2 itself scales with ``(Dn + R) ** -0.5`` times the square of YaRN's mscale,
    and rotates with "half" in the indexer.
    """
    return torch.ops.custom_pypto.npu_sparse_attention_pto(
        x,
        w_dq,
        w_uq_qr,
        w_uk,
        w_dkv_kr,
        gamma_cq,
        gamma_ckv,
        sin,
        cos,
        cache_index,
        kv_cache,
        kr_cache,
        block_table,
        act_seqs,
        w_idx_qb,
        w_idx_k,
        w_idx_proj,
        in_gamma_k,
        in_beta_k,
        index_k_cache,
        sparse_count=sparse_count,
        softmax_scale=softmax_scale,
        rms_norm_eps=rms_norm_eps,
        layer_norm_eps=layer_norm_eps,
        rope_mode=rope_mode,
        indexer_rope_mode=indexer_rope_mode,
    )


@typing.overload
def npu_sparse_flash_attention_pto(
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
    return_softmax_lse: Literal[False] = False,
) -> Tensor: ...
@typing.overload
def npu_sparse_flash_attention_pto(
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
    return_softmax_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def npu_sparse_flash_attention_pto(
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
    """Attends from every query token to the key tokens that its indices name.

    With ``N1 / N2`` query heads to each key head ``n``, the result for query token ``i`` and head ``h`` of ``n`` is ::

        score(j) = scale_value * (query[i, h] . key[j, n] + query_rope[i, h] . key_rope[j, n])
        out[i, h] = sum over j:  softmax(score)(j) * value[j, n]

    where ``j`` goes over the tokens in ``sparse_indices[i, n]`` up to the first -1. ``attention_sinks[h]``, where
    given, is one more score of the softmax, without a value. With return_softmax_lse there is a second result ::

        softmax_lse[i, h] = log(sum over j:  exp(score(j))  +  exp(attention_sinks[h]))

    by which results over parts of the tokens are merged, as in context parallelism: their mean, weighted with
    ``exp(softmax_lse)``, is the result over all. Sinks then go to one of the parts.

    Scores, softmax and sums are in float32, and the result is rounded once, to the dtype of ``query``. The softmax
    weights enter the product with the values in two parts of that dtype, which together have twice its precision. The
    result is bitwise equal for any number of threads.

    B is the batch size, S1 and S2 are query and key tokens per sequence, T and T2 those of all sequences together, N1
    and N2 query and key heads, D, Dr and Dv the head dimensions of query and key, of their rotary parts and of values.

    Args:
        query: ``[B, S1, N1, D]`` or ``[T, N1, D]``, float16 or bfloat16.
        key: ``[blocks, block_size, N2, D]``, ``[B, S2, N2, D]`` or ``[T2, N2, D]``, of the dtype of ``query``. N2
            divides N1.
        value: ``[blocks, block_size, N2, Dv]``, ``[B, S2, N2, Dv]`` or ``[T2, N2, Dv]``, of the dtype of ``query``. It
            may be ``key`` itself, as in MLA with absorbed weights.
        sparse_indices: ``[B, S1, N2, k]`` or ``[T, N2, k]``, int32: positions in the sequence from 0 (not slots of the
            cache), as npu_lightning_indexer_pto gives them. A row ends at its first -1. Positions that the query token
            does not see (sparse_mode, or past the length of the sequence) are left out, and so are those on a page that
            the block table gives as -1. A position that is named twice counts twice.
        scale_value: what the products are multiplied by; used as float32.
        block_table: ``[B, blocks per sequence]``, int32: the blocks that hold a sequence's keys, in order; -1 past
            them. Mandatory with layout_kv "PA_BSND", rejected otherwise.
        actual_seq_lengths_query: ``[B]``, int32. With layout_query "BSND" the number of query tokens of each sequence
            (default: S1); with "TND" its running total, the last one T (mandatory).
        actual_seq_lengths_kv: ``[B]``, int32. With layout_kv "PA_BSND" the number of key tokens of each sequence, the
            new ones included (mandatory); with "BSND" the same (default: S2); with "TND" its running total (mandatory).
        query_rope: ``[B, S1, N1, Dr]`` or ``[T, N1, Dr]``, of the dtype of ``query``; given with ``key_rope`` or not
            at all.
        key_rope: ``[blocks, block_size, N2, Dr]``, ``[B, S2, N2, Dr]`` or ``[T2, N2, Dr]``, of the dtype of ``query``.
        layout_query: "BSND" (padded) or "TND" (packed).
        layout_kv: "PA_BSND" (paged), or the same as layout_query, "BSND" or "TND".
        sparse_mode: 0: every query token sees all key tokens of its sequence. 3: causal, aligned to the end: the last
            query token sees all, the one before it all but the last, and so on.
        attention_sinks: ``[N1]``, float32: a score for each head, not scaled; -inf is none.
        return_softmax_lse: whether to also return the logarithm of the sum of exponentials.

    Returns:
        A new contiguous tensor ``[B, S1, N1, Dv]`` or ``[T, N1, Dv]`` of the dtype of ``query``; with
        return_softmax_lse a pair of it and softmax_lse ``[B, S1, N1]`` or ``[T, N1]``, float32. Where no token is left,
        and for padded query tokens, the first is zero, and softmax_lse that of the sinks alone: -inf without any.

    In torch.ops, where the number of results is fixed, return_softmax_lse is a separate overload, which always
    returns a pair: with False its second tensor is empty, ``[0]``, as torch_npu's are. torch_npu returns the greatest
    score and the sum of exponentials relative to it in two tensors ``[B, N2, S1, N1 / N2]``. Here it is one number,
    which is enough for a merge, in the order of the result, as npu_attention_update takes it.

    All tensors may have any strides. Nothing is mutated. There is no gradient.

    Raises:
        RuntimeError: at the call for shapes, dtypes, devices, layouts, sparse_mode and missing arguments; at the next
            synchronisation for negative or too long lengths, a block table too short for its sequence, block numbers
            out of range and indices below -1. Nothing is written then.

    Limits: any number of heads, head dimensions, block size and length. The work is N1 * (D + Dr + 2 * Dv)
    multiplications for each token that a query token attends to, however long its sequence is. A ``value`` that is
    ``key`` itself is read once.

    Formula: the attention over selected tokens of DeepSeek Sparse Attention, equation 2 of the DeepSeek-V3.2-Exp
    report; torch_npu's npu_sparse_flash_attention with sparse_block_size 1 computes the same.
    """
    more = {"return_softmax_lse": True} if return_softmax_lse else {}
    return torch.ops.custom_pypto.npu_sparse_flash_attention_pto(
        query,
        key,
        value,
        sparse_indices,
        scale_value,
        block_table=block_table,
        actual_seq_lengths_query=actual_seq_lengths_query,
        actual_seq_lengths_kv=actual_seq_lengths_kv,
        query_rope=query_rope,
        key_rope=key_rope,
        layout_query=layout_query,
        layout_kv=layout_kv,
        sparse_mode=sparse_mode,
        attention_sinks=attention_sinks,
        **more,
    )


def reshape_and_cache(
    key: Tensor,
    value: Tensor | None = None,
    key_cache: Tensor | None = None,
    value_cache: Tensor | None = None,
    slot_mapping: Tensor | None = None,
    head_num: int = 0,
    *,
    cache_mode: int = 0,
    cache_layout: str | None = None,
) -> None:
    """Writes the keys of new tokens, and their values if there are any, to their slots in paged caches.

    For every token ``t`` that has a slot ``s = slot_mapping[t]`` which is not negative ::

        key_cache[s // block_size, s % block_size] = key[t]
        value_cache[s // block_size, s % block_size] = value[t]

    T is the number of tokens, or B sequences of S tokens each; N is the number of heads, D the head dimension, hidden
    the N * D elements of a token; Nv, Dv and hidden_v are those of values. c0, and c0v of values, is the number of
    elements in 32 bytes: 16 of float16 and bfloat16, 32 of int8, 8 of float32.

    The first three of these calls are those of ms_custom_ops, the last one is the operator itself ::

        custom_pypto.reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, head_num)
        custom_pypto.reshape_and_cache(key, key_cache=key_cache, slot_mapping=slot_mapping)                # keys only
        custom_pypto.reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, cache_mode=1, head_num=16)
        torch.ops.custom_pypto.reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, cache_layout="NZ")

    Args:
        key: ``[T, N, D]``, ``[T, hidden]``, ``[B, S, N, D]`` or ``[B, S, hidden]``; float16, bfloat16, int8 or float32.
        value: ``[T, Nv, Dv]``, ``[T, hidden_v]``, ``[B, S, Nv, Dv]`` or ``[B, S, hidden_v]``; float16, bfloat16, int8
            or float32. Given with ``value_cache`` or not at all.
        key_cache: ``[blocks, block_size, N, D]`` or ``[blocks, block_size, hidden]`` (cache_layout "ND"), or
            ``[blocks, hidden / c0, block_size, c0]`` ("NZ"), of the dtype of ``key``; **mutated**: a row for each
            token. It is needed.
        value_cache: ``[blocks, block_size, Nv, Dv]`` or ``[blocks, block_size, hidden_v]`` ("ND"), or
            ``[blocks, hidden_v / c0v, block_size, c0v]`` ("NZ"), of the dtype of ``value``; **mutated** likewise.
        slot_mapping: ``[T or less]``, or for tokens of B sequences ``[B, S]`` or ``[B * S or less]``; int64 or int32:
            the slot of each token, ``block * block_size + offset``. Tokens after those that have a slot are padding.
            A negative slot writes nothing. If tokens share a slot, the last one is written. Required.
        head_num: the number of heads, which ms_custom_ops needs; here it need not be given, and must be N or divide
            hidden if it is.
        cache_mode: 0, or 1 for cache_layout "NZ".
        cache_layout: "ND" or "NZ"; None is what cache_mode says. NZ is how a tensor in FRACTAL_NZ lies, but for the
            block_size, which need not be 16: here it is an ordinary tensor of the shape above.

    Returns:
        None. The caches are written in place and share no memory with another argument.

    All tensors may have any strides. Rows whose elements lie side by side are read where they lie, for example keys
    and values in a fused projection; blocks of the caches may lie apart. There is no gradient: a backward through the
    caches raises.

    Raises:
        RuntimeError: at the call for shapes, dtypes, devices, layouts and shared memory; at the next synchronisation
            for slots past the end of the cache. Nothing is written then.
        ValueError: for a cache_mode or head_num that does not fit.

    Limits: any sizes; offsets have 64 bits, so caches may have more than 2**32 elements. Every byte is read and written
    once.

    Formula: what reshape_and_cache_flash of vLLM computes, for the cache layouts of ms_custom_ops and of CANN's
    ReshapeAndCache.
    """
    if cache_mode not in (0, 1):
        raise ValueError(f"reshape_and_cache: cache_mode must be 0 (ND) or 1 (NZ), but is {cache_mode}")
    if cache_layout is None:
        cache_layout = "NZ" if cache_mode == 1 else "ND"
    elif cache_mode == 1 and cache_layout != "NZ":
        raise ValueError(f"reshape_and_cache: cache_layout must be 'NZ' with cache_mode 1, but is '{cache_layout}'")
    if head_num and key.shape[-1] % head_num and (key.dim() < 3 or key.shape[-2] != head_num):
        raise ValueError(f"reshape_and_cache: head_num must be the heads of key {tuple(key.shape)}, but is {head_num}")
    torch.ops.custom_pypto.reshape_and_cache(
        key, value, key_cache, value_cache, slot_mapping, cache_layout=cache_layout
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
) -> None:
    """Moves every sequence on by the token that was sampled for it: makes the inputs of the next decode step.

    For each row ``i`` below num_queries ::

        position = seq_lens[i]
        block = block_tables[i, position // block_size]
        input_tokens[i] = sampled_token_ids[i]
        input_positions[i] = position
        slot_mapping[i] = block * block_size + position % block_size      -1 without a block
        seq_lens[i] = position + 1

    and for the rows of padding after them, up to num_seqs, ``input_tokens`` and ``input_positions`` become 0 and
    ``slot_mapping`` -1; their ``seq_lens`` stay. A position has no block where the block table gives a negative number
    or is not that wide: the token is then not cached, and its slot is -1.

    The call of vLLM and of vllm-mindspore ::

        custom_pypto.advance_step_flashattn(
            num_seqs=num_seqs, num_queries=num_queries, block_size=block_size, input_tokens=input_tokens,
            sampled_token_ids=sampled_token_ids, input_positions=input_positions, seq_lens=seq_lens,
            slot_mapping=slot_mapping, block_tables=block_tables)

    Args:
        num_seqs: the number of rows, padding included; 0 or more.
        num_queries: the number of sequences; from 0 to num_seqs.
        block_size: the number of tokens in a block of the caches; 1 or more.
        input_tokens: ``[num_seqs]``, int64; **mutated**.
        sampled_token_ids: ``[num_queries, 1]`` or ``[num_queries]``, int64.
        input_positions: ``[num_seqs]``, int64; **mutated**.
        seq_lens: ``[num_seqs]``, int32 or int64: the number of tokens of each sequence; **mutated**.
        slot_mapping: ``[num_seqs]``, int32 or int64; **mutated**.
        block_tables: ``[num_seqs, blocks per sequence]``, int32 or int64: the blocks that hold a sequence's tokens, in
            order; -1 past them.

    Returns:
        None. What is written is written in place and shares no memory with another argument.

    All tensors may have any strides. There is no gradient.

    Raises:
        RuntimeError: at the call for shapes, dtypes, devices, numbers and shared memory; at the next synchronisation
            for lengths below 0, and nothing is written then; and for slots that an int32 ``slot_mapping`` cannot hold.

    Limits: any sizes, in 64 bits; a slot beyond 2**31 - 1 needs an int64 ``slot_mapping``.

    Formula: what advance_step_flashattn of vLLM computes; torch_npu has it as npu_advance_step_flashattn.
    """
    torch.ops.custom_pypto.advance_step_flashattn(
        num_seqs,
        num_queries,
        block_size,
        input_tokens,
        sampled_token_ids,
        input_positions,
        seq_lens,
        slot_mapping,
        block_tables,
    )


# Type checkers, which cannot compute it, are not to see it: they take every function then.
globals()["__all__"] = sorted(n for n, value in vars().items() if inspect.isfunction(value) and not n.startswith("_"))
