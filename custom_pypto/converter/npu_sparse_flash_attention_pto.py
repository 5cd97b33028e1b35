"""npu_sparse_flash_attention_pto as a node of a Graph Engine graph."""

import torch
from torchair import register_fx_node_ge_converter
from torchair.ge import Tensor, TensorSpec

from .auto_generated_ge_raw_custom_ops import SparseFlashAttentionPto


@register_fx_node_ge_converter(torch.ops.custom_pypto.npu_sparse_flash_attention_pto.default)
def convert_npu_sparse_flash_attention_pto(
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
    meta_outputs: TensorSpec = None,
) -> Tensor:
    """npu_sparse_flash_attention_pto(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, ...) -> Tensor"""
    return SparseFlashAttentionPto(
        query,
        key,
        value,
        sparse_indices,
        block_table,
        actual_seq_lengths_query,
        actual_seq_lengths_kv,
        query_rope,
        key_rope,
        scale_value=scale_value,
        layout_query=layout_query,
        layout_kv=layout_kv,
        sparse_mode=sparse_mode,
    )
