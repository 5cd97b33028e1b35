# SPDX-License-Identifier: Apache-2.0
"""Context parallelism: the pages of a sequence lie on several ranks, and its sparse attention is computed there.

Every rank calls these functions with the same queries, lengths and weights of heads, with its own blocks of the caches,
and with a block table that has its own blocks' numbers and -1 for the others' blocks (`own_blocks`). Positions
stay those in the whole sequence, so that nothing else about a call changes. All work eagerly, and inside torch.compile
where collectives do.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .. import ops

__all__ = [
    "all_reduce",
    "lightning_indexer",
    "lightning_indexer_quant",
    "merge_attentions",
    "merge_selections",
    "own_blocks",
    "own_slots",
    "sparse_flash_attention",
]


def own_blocks(block_table: Tensor, blocks: int, group: dist.ProcessGroup | None = None) -> Tensor:
    """The block table of this rank, where each rank of the group has so many blocks of the caches.

    Args:
        block_table: of any shape, int32 or int64: numbers of blocks in the order of the ranks, those of the first rank
            from 0, those of the second from ``blocks`` on, and so on; negative ones are no blocks.
        blocks: the number of blocks in the caches of each rank.
        group: the ranks; None is all of them.

    Returns:
        The numbers in this rank's caches, from 0, in a tensor of the same shape and dtype; -1 for blocks of other ranks
        and where there is none.
    """
    return own(block_table, dist.get_rank(group) * blocks, blocks, -1)


def own_slots(slot_mapping: Tensor, blocks: int, block_size: int, group: dist.ProcessGroup | None = None) -> Tensor:
    """The slots of this rank: as ``own_blocks``, for slots. A block has ``block_size`` slots. reshape_and_cache and
    npu_lightning_indexer_prolog_pto write nothing to the others, which are -1."""
    return own_blocks(slot_mapping, blocks * block_size, group)


def own(numbers: Tensor, first: int, count: int, elsewhere: int) -> Tensor:
    """Maps `count` numbers from `first` on to numbers from 0, negative ones to -1, and the others to `elsewhere`."""
    mine = numbers - first
    mine = torch.where((mine >= 0) & (mine < count), mine, elsewhere)
    return torch.where(numbers < 0, -1, mine)


def merge_selections(
    sparse_indices: Tensor, sparse_values: Tensor, group: dist.ProcessGroup | None = None
) -> tuple[Tensor, Tensor]:
    """The best of what all ranks have selected, in the order that one indexer over all keys gives.

    Args:
        sparse_indices: ``[..., sparse_count]``, int32: the positions that this rank has selected, then -1.
        sparse_values: of the same shape, float32: their scores.
        group: the ranks, each with other selected positions; None is all of them.

    Returns:
        The same on all ranks: the positions of the ``sparse_count`` highest scores, highest first, then -1, and the
        scores, then -inf. Of equal scores the lowest position comes first; NaN is higher than any number, as it is for
        the indexers.

    A rank receives 8 bytes for each position of another.

    Raises:
        TypeError: sparse_values are not float32: rounded scores do not say which is higher.
    """
    if sparse_values.dtype != torch.float32:
        raise TypeError(
            f"merge_selections: sparse_values must be float32, but are {sparse_values.dtype}; the indexer gives float32"
            " where its weights are float32"
        )
    count = sparse_indices.shape[-1]
    pairs = torch.stack([sparse_indices, sparse_values.view(torch.int32)])
    positions, scores = (each.movedim(0, -2).flatten(-2) for each in _gathered(pairs, group).unbind(1))
    order = _keys(positions, scores).sort(-1, descending=True)[1][..., :count]
    return positions.gather(-1, order), scores.gather(-1, order).view(torch.float32)


def _keys(positions: Tensor, scores: Tensor) -> Tensor:
    """One integer for the bits of a float32 score and its position, higher as it comes earlier in a selection: no two
    positions have the same, so that they need no stable sort, which Graph Engine graphs do not have."""
    rising = scores.long()  # sign and magnitude, as integers: with the floats, and of both zeros the same
    rising = torch.where(rising < 0, -(2**31) - rising, rising)
    rising = torch.where(rising.abs() > 0x7F800000, 2**31 - 1, rising)  # beyond infinity: NaN
    return torch.where(positions < 0, -(2**63), rising * 2**32 - positions)


def merge_attentions(
    attention_out: Tensor,
    softmax_lse: Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    scatter_heads: bool = False,
) -> tuple[Tensor, Tensor]:
    """The attention over all keys, of the attentions of the ranks over parts of them.

    It is their mean, weighted with ``exp(softmax_lse)``, in float32 and in the order of the ranks, so that all ranks
    have the same bits.

    Args:
        attention_out: ``[..., N1, Dv]``, float16 or bfloat16: this rank's result of npu_sparse_flash_attention_pto.
        softmax_lse: ``[..., N1]``, float32: its logarithm; -inf where it has attended to nothing.
        group: the ranks, each with other attended keys; None is all of them.
        scatter_heads: whether a rank gets N1 / ranks heads only, those of its number, as an output projection that is
            divided by heads wants them. It receives fewer bytes then.

    Returns:
        attention_out and softmax_lse of all heads, or of the rank's: zeros and -inf where no rank has attended to
        anything.

    A rank receives ``(ranks - 1) * N1 * (2 * Dv + 4)`` bytes for a token; with scatter_heads a ``ranks``-th of that.

    Raises:
        ValueError: scatter_heads, and the number of ranks does not divide N1.
    """
    dtype = attention_out.dtype
    ranks, heads = dist.get_world_size(group), attention_out.shape[-2]
    if scatter_heads and heads % ranks:
        raise ValueError(
            f"merge_attentions: scatter_heads needs a number of heads that the {ranks} ranks divide, but attention_out"
            f" has {heads}"
        )
    # A node that takes the bits for another size of elements gives another rank than torch does: hence the reshapes.
    halves = softmax_lse.contiguous().view(dtype).reshape(*softmax_lse.shape, 2)
    parts = torch.cat([attention_out, halves], -1)
    if scatter_heads:
        parts = _exchanged(parts.unflatten(-2, (ranks, -1)).movedim(-3, 0), group)
    else:
        parts = _gathered(parts, group)
    outs, lses = parts[..., :-2].float(), parts[..., -2:].contiguous().view(torch.float32).reshape(parts.shape[:-1])
    lse = lses.logsumexp(0)
    shares = (lses - torch.where(lse == -torch.inf, 0.0, lse)).exp()
    return (outs * shares[..., None]).sum(0).to(dtype), lse


def lightning_indexer(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    *,
    group: dist.ProcessGroup | None = None,
    return_value: bool = False,
    **arguments: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """npu_lightning_indexer_pto over the keys of all ranks of the group: its result, to the index, on each of them.

    Takes its arguments; ``key`` are this rank's blocks and ``block_table`` names them. Every rank selects among its own
    keys, and the selections are merged (`merge_selections`). With return_value the scores are float32, exact.
    """
    operator = ops.npu_lightning_indexer_pto
    return _select(operator, query, key, weights.float(), group=group, return_value=return_value, **arguments)


def lightning_indexer_quant(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    query_dequant_scale: Tensor,
    key_dequant_scale: Tensor,
    *,
    group: dist.ProcessGroup | None = None,
    return_value: bool = False,
    **arguments: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """npu_lightning_indexer_quant_pto over the keys of all ranks, as ``lightning_indexer``."""
    inputs = (query, key, weights, query_dequant_scale, key_dequant_scale)
    operator = ops.npu_lightning_indexer_quant_pto
    return _select(operator, *inputs, group=group, return_value=return_value, **arguments)


def _select(operator, *inputs: Tensor, group, return_value: bool, **arguments: Any) -> Tensor | tuple[Tensor, Tensor]:
    merged = merge_selections(*operator(*inputs, return_value=True, **arguments), group)
    return merged if return_value else merged[0]


def sparse_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sparse_indices: Tensor,
    scale_value: float,
    *,
    group: dist.ProcessGroup | None = None,
    scatter_heads: bool = False,
    attention_sinks: Tensor | None = None,
    return_softmax_lse: bool = False,
    **arguments: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """npu_sparse_flash_attention_pto over the keys of all ranks of the group.

    Takes its arguments; ``key``, ``value`` and ``key_rope`` are this rank's blocks, ``block_table`` names them, and
    ``sparse_indices`` are those of the whole sequence, the same on all ranks. Every rank attends to those of them that
    it holds, and the parts are merged (`merge_attentions`, which says what ``scatter_heads`` does). Each part is
    rounded to the dtype of ``query``, and so is the result.
    """
    part = ops.npu_sparse_flash_attention_pto(
        query,
        key,
        value,
        sparse_indices,
        scale_value,
        attention_sinks=attention_sinks if dist.get_rank(group) == 0 else None,  # one more score, which counts once
        return_softmax_lse=True,
        **arguments,
    )
    merged = merge_attentions(*part, group, scatter_heads=scatter_heads)
    return merged if return_softmax_lse else merged[0]


# The functional collectives, which torch.compile traces; torch's Python functions of them change their names.


def all_reduce(tensor: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """The sum of the tensors of all ranks, as an output projection divided by heads needs it: a new tensor."""
    return torch.ops._c10d_functional.wait_tensor(
        torch.ops._c10d_functional.all_reduce(tensor.contiguous(), "sum", _name(group))
    )


def _gathered(tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The tensors of all ranks, stacked."""
    size, name = dist.get_world_size(group), _name(group)
    gathered = torch.ops._c10d_functional.all_gather_into_tensor(tensor.contiguous()[None], size, name)
    return torch.ops._c10d_functional.wait_tensor(gathered)


def _exchanged(tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Each rank's part for this rank. The parts lie along the first dimension."""
    parts = [tensor[0].numel()] * tensor.shape[0]  # elements: torchair takes the sizes for those of one dimension
    exchanged = torch.ops._c10d_functional.all_to_all_single(tensor.flatten(), parts, parts, _name(group))
    return torch.ops._c10d_functional.wait_tensor(exchanged).view(tensor.shape)


def _name(group: dist.ProcessGroup | None) -> str:
    return (dist.group.WORLD if group is None else group).group_name
