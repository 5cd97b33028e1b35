"""advance_step_flashattn as a node of a Graph Engine graph."""

import torch
from torchair import register_fx_node_ge_converter
from torchair.ge import Tensor

from .auto_generated_ge_raw_custom_ops import AdvanceStepFlashattn


@register_fx_node_ge_converter(torch.ops.custom_pypto.advance_step_flashattn.default)
def convert_advance_step_flashattn(
    num_seqs: int,
    num_queries: int,
    block_size: int,
    input_tokens: Tensor,
    sampled_token_ids: Tensor,
    input_positions: Tensor,
    seq_lens: Tensor,
    slot_mapping: Tensor,
    block_tables: Tensor,
    *,
    meta_outputs: None = None,
) -> None:
    """advance_step_flashattn(int num_seqs, int num_queries, int block_size, Tensor(a!) input_tokens, ...) -> ()

    torchair itself finds what is written among the node's outputs, by the names of its inputs.
    """
    AdvanceStepFlashattn(
        input_tokens,
        sampled_token_ids,
        input_positions,
        seq_lens,
        slot_mapping,
        block_tables,
        num_seqs=num_seqs,
        num_queries=num_queries,
        block_size=block_size,
    )
