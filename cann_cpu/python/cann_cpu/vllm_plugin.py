# SPDX-License-Identifier: Apache-2.0
"""A general plugin of vLLM, which it loads in each of its processes: what vllm-ascend needs on this CANN."""

from . import activation


def moe_gating_top_k(*, bias_opt, renorm, norm_type, **options):
    """CANN's function of this name normalizes weights always if they are sigmoids, and never those of a softmax."""
    import torch

    y, experts, out = torch.ops.npu.npu_moe_gating_top_k(bias=bias_opt, renorm=0, norm_type=norm_type, **options)
    if renorm and norm_type == 0:
        total = y.float().sum(-1, keepdim=True)
        y = (y * (options["routed_scaling_factor"] / total)).to(y.dtype)
    return y, experts, out


OPERATORS = {
    "moe_gating_top_k(Tensor x, int k, int k_group, int group_count, int group_select_mode, int renorm, int norm_type, "
    "bool out_flag, float routed_scaling_factor, float eps, Tensor? bias_opt=None) -> (Tensor, Tensor, Tensor)": (
        moe_gating_top_k
    ),
    "npu_moe_init_routing_custom(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? offset=None, "
    "int active_num=-1, int expert_capacity=-1, int expert_num=-1, int drop_pad_mode=0, int expert_tokens_num_type=0, "
    "bool expert_tokens_num_flag=False, int quant_mode=0, int[2] active_expert_range=[], int row_idx_type=0) "
    "-> (Tensor, Tensor, Tensor, Tensor)": "npu_moe_init_routing_v2",
    "npu_lightning_indexer(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, "
    "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query='BSND', str layout_key='BSND', "
    "int sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, "
    "int next_tokens=9223372036854775807, bool return_value=False) -> (Tensor, Tensor)": "npu_lightning_indexer",
    "npu_sparse_flash_attention(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, *, "
    "Tensor? block_table=None, Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, "
    "Tensor? query_rope=None, Tensor? key_rope=None, int sparse_block_size=1, str layout_query='BSND', "
    "str layout_kv='BSND', int sparse_mode=3, int pre_tokens=9223372036854775807, "
    "int next_tokens=9223372036854775807, int attention_mode=2, bool return_softmax_lse=False) "
    "-> (Tensor, Tensor, Tensor)": "npu_sparse_flash_attention",
}
"""Operators of vllm-ascend's compiled extension, by their schemas. A name is that of torch_npu's operator that calls
the same function of CANN, with arguments of the same names."""


def define_operators():
    """Defines OPERATORS in the namespace of vllm-ascend's extension, `torch.ops._C_ascend`.

    They are composite: a kernel that another library registers for NPUs is called instead.
    """
    import torch

    global library  # the operators live as long as it does
    library = torch.library.Library("_C_ascend", "FRAGMENT")
    for schema, function in OPERATORS.items():
        name = library.define(schema)
        arguments = getattr(torch.ops._C_ascend, name).default._schema.arguments
        # What equals its default reaches a kernel in Python as an argument that was not given.
        defaults = {x.name: x.default_value for x in arguments if x.has_default_value()}
        names = [x.name for x in arguments]
        called = getattr(torch.ops.npu, function) if isinstance(function, str) else function

        def call(*positional, called=called, names=names, defaults=defaults, **by_name):
            return called(**(defaults | dict(zip(names, positional, strict=False)) | by_name))

        library.impl(name, call, "CompositeImplicitAutograd")


def register():
    """Lets vllm-ascend look for its compiled operators now, where this CANN is the one in use, or defines some of them.

    It looks when a model first needs one. In graph modes that is while Dynamo traces, where an import that fails is an
    error of the trace; now it makes vllm-ascend go on without these operators, and log why. Its binary is for one
    torch; with another, OPERATORS are those that it calls without asking whether they are there.
    """
    if activation.choose().cann != "cpu":
        return
    try:
        from vllm_ascend.utils import enable_custom_op
    except ImportError:  # vLLM with another platform
        return
    if not enable_custom_op():
        define_operators()
