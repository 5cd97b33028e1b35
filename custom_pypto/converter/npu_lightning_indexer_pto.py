"""npu_lightning_indexer_pto as a node of a Graph Engine graph."""

import torch
from torchair import register_fx_node_ge_converter
from torchair.ge import Tensor, TensorSpec

from .auto_generated_ge_raw_custom_ops import LightningIndexerPto


@register_fx_node_ge_converter(torch.ops.custom_pypto.npu_lightning_indexer_pto.default)
def convert_npu_lightning_indexer_pto(
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
    meta_outputs: TensorSpec = None,
) -> Tensor:
    """npu_lightning_indexer_pto(Tensor query, Tensor key, Tensor weights, *, ...) -> Tensor"""
    return LightningIndexerPto(
        query,
        key,
        weights,
        actual_seq_lengths_query,
        actual_seq_lengths_key,
        block_table,
        layout_query=layout_query,
        layout_key=layout_key,
        sparse_count=sparse_count,
        sparse_mode=sparse_mode,
    )
