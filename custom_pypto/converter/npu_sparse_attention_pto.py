"""npu_sparse_attention_pto as a node of a Graph Engine graph."""

import torch
from torchair import register_fx_node_ge_converter
from torchair.ge import Tensor, TensorSpec

from .auto_generated_ge_raw_custom_ops import SparseAttentionPto


@register_fx_node_ge_converter(torch.ops.custom_pypto.npu_sparse_attention_pto.default)
def convert_npu_sparse_attention_pto(
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
    meta_outputs: TensorSpec = None,
) -> Tensor:
    """npu_sparse_attention_pto(Tensor x, ...) -> Tensor

    torchair itself finds the caches among the node's outputs, by the names of its inputs.
    """
    attn_out, *_ = SparseAttentionPto(
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
        softmax_scale=0.0 if softmax_scale is None else softmax_scale,
        rms_norm_eps=rms_norm_eps,
        layer_norm_eps=layer_norm_eps,
        rope_mode=rope_mode,
        indexer_rope_mode=indexer_rope_mode,
    )
    return attn_out
