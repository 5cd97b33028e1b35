"""The operators as typed Python functions: what each takes, computes and refuses.

All work eagerly, under autograd where a gradient is named, and inside torch.compile with torchair. They run
asynchronously on the current NPU stream. Arguments of a wrong shape, dtype, device or value raise RuntimeError at the
call, with the operator, the argument, what was expected and what came; values that only the device knows (sequence
lengths, block tables) are checked there, and raise at the next synchronisation.
"""

import torch
from torch import Tensor


def add_custom(self: Tensor, other: Tensor) -> Tensor:
    """Adds two tensors, as ``torch.add`` does: ``out = self + other``.

    Args:
        self: of any shape; float16, bfloat16, float32, float64, int8, uint8, int16, int32, int64 or bool.
        other: of a shape that broadcasts with ``self``; any of these dtypes. A CPU tensor without
            dimensions is accepted beside a tensor on an NPU, in either place.

    Returns:
        A new contiguous tensor of the broadcast shape and of ``torch.result_type(self, other)``. float16 and bfloat16
        are added in float32 and rounded once. The sum of two bool tensors is their logical or.

    Nothing is mutated. Differentiable, twice too: the gradient of each input is the output's, summed over the broadcast
    dimensions and cast to the input's dtype (``torch.ops.custom_pypto.add_custom_backward`` computes it).

    Raises:
        RuntimeError: shapes do not broadcast, a dtype is none of the above, the tensors are not on one NPU.

    Formula: torch.add with alpha 1.
    """
    return torch.ops.custom_pypto.add_custom(self, other)


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
) -> Tensor:
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
            them. Mandatory with layout_key "PA_BSND", refused otherwise.
        layout_query: "BSND" (padded) or "TND" (packed).
        layout_key: "PA_BSND" (paged), or the same as layout_query.
        sparse_count: how many tokens to select, 1 or more. CANN's own indexer takes up to 2048.
        sparse_mode: 0: every query token sees all key tokens of its sequence. 3: causal, aligned to the end: the last
            query token sees all, the one before it all but the last, and so on.

    Returns:
        A new int32 tensor ``[B, S1, N2, sparse_count]`` or ``[T, N2, sparse_count]``: positions in the sequence from 0
        (not slots of the cache), then -1 where fewer tokens are seen. Rows of padded query tokens are all -1.

    All tensors may have any strides. Nothing is mutated. There is no gradient.

    Raises:
        RuntimeError: at the call for shapes, dtypes, devices, layouts, sparse_count, sparse_mode and missing arguments;
            at the next synchronisation for negative or too long lengths, a block table too short for its sequence and
            block numbers out of range.

    Formula: the lightning indexer of DeepSeek-V3.2 (DeepSeek Sparse Attention), as torch_npu's npu_lightning_indexer.
    """
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
    )


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
) -> Tensor:
    """Attends from every query token to the key tokens that its indices name.

    With ``N1 / N2`` query heads to each key head ``n``, the result for query token ``i`` and head ``h`` of ``n`` is ::

        score(j) = scale_value * (query[i, h] . key[j, n] + query_rope[i, h] . key_rope[j, n])
        out[i, h] = sum over j:  softmax(score)(j) * value[j, n]

    where ``j`` goes over the tokens in ``sparse_indices[i, n]`` up to the first -1. Scores, softmax and sums are in
    float32, the softmax weights enter the product with the values in 16 significant bits or more, and the result is
    rounded once, to the dtype of ``query``. It is the same to the bit for any number of threads.

    B is the batch size, S1 and S2 are query and key tokens per sequence, T and T2 those of all sequences together, N1
    and N2 query and key heads, D, Dr and Dv the head dimensions of query and key, of their rotary parts and of values.

    Args:
        query: ``[B, S1, N1, D]`` or ``[T, N1, D]``, float16 or bfloat16.
        key: ``[blocks, block_size, N2, D]``, ``[B, S2, N2, D]`` or ``[T2, N2, D]``, of the dtype of ``query``. N2
            divides N1.
        value: of the shape of ``key``, with Dv in place of D, and its dtype. It may be ``key`` itself, as in MLA with
            absorbed weights.
        sparse_indices: ``[B, S1, N2, k]`` or ``[T, N2, k]``, int32: positions in the sequence from 0 (not slots of the
            cache), as npu_lightning_indexer_pto gives them. A row ends at its first -1. Positions that the query token
            does not see (sparse_mode, or past the length of the sequence) are left out, and so are those on a page that
            the block table gives as -1. A position that is named twice counts twice.
        scale_value: what the products are multiplied by; used as float32.
        block_table: ``[B, blocks per sequence]``, int32: the blocks that hold a sequence's keys, in order; -1 past
            them. Mandatory with layout_kv "PA_BSND", refused otherwise.
        actual_seq_lengths_query: ``[B]``, int32. With layout_query "BSND" the number of query tokens of each sequence
            (default: S1); with "TND" its running total, the last one T (mandatory).
        actual_seq_lengths_kv: ``[B]``, int32. With layout_kv "PA_BSND" the number of key tokens of each sequence, the
            new ones included (mandatory); with "BSND" the same (default: S2); with "TND" its running total (mandatory).
        query_rope: ``[B, S1, N1, Dr]`` or ``[T, N1, Dr]``, of the dtype of ``query``; given with ``key_rope`` or not
            at all.
        key_rope: of the shape of ``key``, with Dr in place of D, and its dtype.
        layout_query: "BSND" (padded) or "TND" (packed).
        layout_kv: "PA_BSND" (paged), or the same as layout_query.
        sparse_mode: 0: every query token sees all key tokens of its sequence. 3: causal, aligned to the end: the last
            query token sees all, the one before it all but the last, and so on.

    Returns:
        A new contiguous tensor ``[B, S1, N1, Dv]`` or ``[T, N1, Dv]`` of the dtype of ``query``. Where no token is
        left, and for padded query tokens, it is zero.

    All tensors may have any strides. Nothing is mutated. There is no gradient.

    Raises:
        RuntimeError: at the call for shapes, dtypes, devices, layouts, sparse_mode and missing arguments; at the next
            synchronisation for negative or too long lengths, a block table too short for its sequence, block numbers
            out of range and indices below -1. Nothing is written then.

    Formula: the sparse attention of DeepSeek-V3.2 (DeepSeek Sparse Attention), as in npu_sparse_flash_attention of
    torch_npu with sparse_block_size 1.
    """
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
    )
