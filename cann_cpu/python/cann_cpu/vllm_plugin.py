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


def rows_of_adapters(x, weight, indices):
    """The product of each row of x with the weight of its adapter; 0 for index -1, which means none."""
    import torch

    if weight.dim() == 4:
        weight = weight.squeeze(1)
    products = torch.einsum("ti,aoi->tao", x.float(), weight.float())
    rows = indices.clamp(min=0).long()[:, None, None].expand(-1, 1, weight.shape[1])
    return products.gather(1, rows)[:, 0] * (indices >= 0)[:, None]


def bgmv_shrink(*, x, weight, indices, y, scale):
    y.copy_(rows_of_adapters(x, weight, indices) * scale)


def bgmv_expand(*, x, weight, indices, y, slice_offset, slice_size):
    part = y.narrow(1, slice_offset, slice_size)
    part.copy_(part.float() + rows_of_adapters(x, weight, indices))
    return y


def indices_of_rows(x, lora_indices, seq_len):
    """Of sequences that follow each other in x; -1 for the rows after the last."""
    import torch

    row = torch.arange(len(x), device=x.device)
    sequence = (row[:, None] >= seq_len.cumsum(0)).sum(1)
    return torch.cat([lora_indices, lora_indices.new_full((1,), -1)])[sequence]


def sgmv_shrink(*, x, lora_indices, seq_len, **others):
    bgmv_shrink(x=x, indices=indices_of_rows(x, lora_indices, seq_len), **others)


def sgmv_expand(*, x, lora_indices, seq_len, **others):
    return bgmv_expand(x=x, indices=indices_of_rows(x, lora_indices, seq_len), **others)


OPERATORS = {
    "bgmv_shrink(Tensor x, Tensor weight, Tensor indices, Tensor(a!) y, float scale) -> ()": bgmv_shrink,
    "bgmv_expand(Tensor x, Tensor weight, Tensor indices, Tensor(a!) y, int slice_offset, int slice_size) "
    "-> Tensor(a!)": bgmv_expand,
    "sgmv_shrink(Tensor x, Tensor weight, Tensor lora_indices, Tensor seq_len, Tensor(a!) y, float scale) -> ()": (
        sgmv_shrink
    ),
    "sgmv_expand(Tensor x, Tensor weight, Tensor lora_indices, Tensor seq_len, Tensor(a!) y, int slice_offset, "
    "int slice_size) -> Tensor(a!)": sgmv_expand,
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
