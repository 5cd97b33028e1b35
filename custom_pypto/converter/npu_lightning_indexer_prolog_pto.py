"""npu_lightning_indexer_prolog_pto as a node of a Graph Engine graph."""

import torch
from torchair import register_fx_node_ge_converter
from torchair.ge import Tensor, TensorSpec

from .auto_generated_ge_raw_custom_ops import LightningIndexerPrologPto


@register_fx_node_ge_converter(torch.ops.custom_pypto.npu_lightning_indexer_prolog_pto.default)
def convert_npu_lightning_indexer_prolog_pto(
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
    meta_outputs: list[TensorSpec] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """npu_lightning_indexer_prolog_pto(Tensor token_x, ...) -> (Tensor, Tensor, Tensor)

    torchair itself finds the caches among the node's outputs, by the names of its inputs.
    """
    query, query_scale, weights, *_ = LightningIndexerPrologPto(
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
        layernorm_epsilon_k=layernorm_epsilon_k,
        layout_query="TND" if layout_query is None else layout_query,
        layout_key="PA_BSND" if layout_key is None else layout_key,
        rope_mode=rope_mode,
    )
    return query, query_scale, weights
