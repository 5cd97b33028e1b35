# SPDX-License-Identifier: Apache-2.0
"""Operators of vllm-ascend's compiled extension, for a torch that its binary is not for.

They take arguments by their names and are composite: torch_npu's operators compute them.
"""

import itertools

import torch
from torch.nn import functional


def moe_gating_top_k(*, bias_opt, renorm, norm_type, **options):
    """CANN's function of this name normalizes weights always if they are sigmoids, and never those of a softmax."""
    y, experts, out = torch.ops.npu.npu_moe_gating_top_k(bias=bias_opt, renorm=0, norm_type=norm_type, **options)
    if renorm and norm_type == 0:
        total = y.float().sum(-1, keepdim=True)
        y = (y * (options["routed_scaling_factor"] / total)).to(y.dtype)
    return y, experts, out


def rows_of_adapters(x, weight, indices):
    """The product of each row of x with the weight of its adapter; 0 for index -1, which means none."""
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
    row = torch.arange(x.shape[0], device=x.device)
    sequence = (row[:, None] >= seq_len.cumsum(0)).sum(1)
    return torch.cat([lora_indices, lora_indices.new_full((1,), -1)])[sequence]


def sgmv_shrink(*, x, lora_indices, seq_len, **others):
    bgmv_shrink(x=x, indices=indices_of_rows(x, lora_indices, seq_len), **others)


def sgmv_expand(*, x, lora_indices, seq_len, **others):
    return bgmv_expand(x=x, indices=indices_of_rows(x, lora_indices, seq_len), **others)


# ---- the gated delta rule. Tensors of prefill are [1, heads, tokens, width]; sequences follow each other.


def npu_gemma_rms_norm(*, x, gamma, epsilon):
    return torch.ops.npu.npu_gemma_rms_norm(x, gamma, epsilon)


def npu_fused_gdn_gating(*, A_log, a, b, dt_bias, beta, threshold):
    """The logarithms of the gates, and the factors of updates, as [1, tokens, heads]."""
    g = -A_log.float().exp() * functional.softplus(a.float() + dt_bias.float(), beta, threshold)
    return g[None], b.float().sigmoid().to(b.dtype)[None]


def npu_causal_conv1d_custom(
    *,
    output,
    x,
    weight,
    conv_state,
    bias_opt,
    query_start_loc_opt,
    cache_indices_opt,
    initial_state_mode_opt,
    num_accepted_tokens_opt,
    activation_mode,
    pad_slot_id,
    run_mode,
):
    """A convolution along the tokens of each sequence, which goes on from the inputs that conv_state keeps."""
    if num_accepted_tokens_opt is not None:
        raise NotImplementedError("npu_causal_conv1d_custom: num_accepted_tokens_opt")
    kept = len(weight) - 1
    starts, ends = query_start_loc_opt[:-1, None].long(), query_start_loc_opt[1:, None].long()
    place_of = cache_indices_opt if cache_indices_opt.dim() == 1 else cache_indices_opt[:, 0]  # of a block table
    before = conv_state[place_of.clamp(min=0).long()]
    old = before[:, :kept]
    if initial_state_mode_opt is not None:
        old = old * initial_state_mode_opt.to(old.dtype)[:, None, None]

    def inputs(sequence, place):
        """Of sequences, at places relative to their starts; before these are the old inputs."""
        from_x = x[(starts[sequence][:, 0] + place).clamp(0, len(x) - 1)]
        return torch.where(place[..., None] < 0, old[sequence, (place + kept).clamp(0, kept - 1)], from_x)

    row, step = torch.arange(len(x), device=x.device), torch.arange(kept + 1, device=x.device)
    sequence = (row >= ends).sum(0).clamp(max=len(ends) - 1)[:, None]  # padding follows the last
    window = inputs(sequence, row[:, None] - starts[sequence[:, 0]] + step - kept)
    y = (window.float() * weight.float()).sum(1)
    y = y if bias_opt is None else y + bias_opt.float()
    output.copy_(functional.silu(y) if activation_mode else y)

    last = inputs(torch.arange(len(ends), device=x.device)[:, None], ends - starts + step[:kept] - kept)
    changed = ((ends > starts) & (place_of != pad_slot_id)[:, None])[..., None]
    after = before.clone()
    after[:, :kept] = torch.where(changed, last, before[:, :kept])
    conv_state.index_copy_(0, place_of.clamp(min=0).long(), after)
    return output


def npu_recurrent_gated_delta_rule(*, actual_seq_lengths, **others):
    """The first of the lengths is where the first sequence starts; the others are those of CANN's operator."""
    return torch.ops.npu.npu_recurrent_gated_delta_rule(actual_seq_lengths=actual_seq_lengths[1:], **others)


def chunks(cu_seqlens, tokens: int, size: int):
    """The number of each sequence, its chunk's number, first and last token, and whether it starts the sequence."""
    count, ends = 0, [0, tokens] if cu_seqlens is None else cu_seqlens
    for sequence, (start, end) in enumerate(itertools.pairwise(ends)):
        for first in range(start, end, size):
            yield sequence, count, slice(first, min(first + size, end)), first == start
            count += 1


def of_each_value_head(x, heads: int):
    return x[0].float().repeat_interleave(heads // x.shape[1], 0)


def chunk_gated_delta_rule_fwd_h(*, k, w, u, g, initial_state, cu_seqlens, chunk_size, **others):
    """The state before each chunk, the new values, and the last state of each sequence."""
    reject_others("chunk_gated_delta_rule_fwd_h", others, gk=None, use_exp2=False, transpose_state_layout=False)
    heads, tokens, width = u.shape[1:]
    k, w, u, g = (of_each_value_head(x, heads) for x in (k, w, u, g[..., None]))
    places = list(chunks(cu_seqlens, tokens, chunk_size))
    states = u.new_empty(heads, len(places), k.shape[-1], width)
    final = u.new_zeros(1 + max(place[0] for place in places), heads, k.shape[-1], width)
    values = torch.empty_like(u)
    for sequence, count, part, starts in places:
        if starts and initial_state is not None:
            final[sequence] = initial_state[sequence].float()
        states[:, count] = state = final[sequence]
        values[:, part] = new = u[:, part] - w[:, part] @ state
        total = g[:, part][:, -1:]
        decayed = new * (total - g[:, part]).exp()
        final[sequence] = state * total.exp() + k[:, part].mT @ decayed
    return states[None].bfloat16(), values[None].bfloat16(), final


def chunk_fwd_o(*, q, k, v, h, scale, g, cu_seqlens, chunk_size, **others):
    """The outputs: of the state before a token's chunk, and of the chunk's tokens up to it."""
    reject_others("chunk_fwd_o", others, g_gamma=None, transpose_state_layout=False)
    heads, tokens = v.shape[1:3]
    q, k, v, h, g = (of_each_value_head(x, heads) for x in (q, k, v, h, g[..., None]))
    out = torch.empty_like(v)
    for _, count, part, _ in chunks(cu_seqlens, tokens, chunk_size):
        gates = g[:, part]
        inside = (q[:, part] @ k[:, part].mT * (gates - gates.mT).tril().exp()).tril() @ v[:, part]
        out[:, part] = (inside + q[:, part] @ h[:, count] * gates.exp()) * scale
    return out[None].bfloat16()


def reject_others(operator: str, others: dict, **only):
    """Raises an error for an argument that is not implemented and has another value than `only`."""
    for name, value in only.items():
        if others[name] not in (value, None):
            raise NotImplementedError(f"{operator}: {name}={others[name]}")


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
    "npu_gemma_rms_norm(Tensor x, Tensor gamma, float epsilon=1e-6) -> (Tensor, Tensor)": npu_gemma_rms_norm,
    "npu_fused_gdn_gating(Tensor A_log, Tensor a, Tensor b, Tensor dt_bias, float beta=1.0, float threshold=20.0) "
    "-> (Tensor, Tensor)": npu_fused_gdn_gating,
    "npu_causal_conv1d_custom(Tensor(a!) output, Tensor x, Tensor weight, Tensor(b!) conv_state, Tensor? bias_opt, "
    "Tensor? query_start_loc_opt, Tensor? cache_indices_opt, Tensor? initial_state_mode_opt, "
    "Tensor? num_accepted_tokens_opt, int activation_mode, int pad_slot_id, int run_mode) -> Tensor(a!)": (
        npu_causal_conv1d_custom
    ),
    "npu_recurrent_gated_delta_rule(Tensor query, Tensor key, Tensor value, Tensor(a!) state, *, Tensor? beta=None, "
    "float? scale=None, Tensor? actual_seq_lengths=None, Tensor? ssm_state_indices=None, "
    "Tensor? num_accepted_tokens=None, Tensor? g=None, Tensor? gk=None) -> Tensor": npu_recurrent_gated_delta_rule,
    "chunk_gated_delta_rule_fwd_h(Tensor k, Tensor w, Tensor u, Tensor? g=None, *, Tensor? gk=None, "
    "Tensor? initial_state=None, bool? output_final_state=False, int? chunk_size=None, bool? save_new_value=True, "
    "int[]? cu_seqlens=None, int[]? chunk_indices=None, bool? use_exp2=False, bool? transpose_state_layout=False) "
    "-> (Tensor, Tensor, Tensor)": chunk_gated_delta_rule_fwd_h,
    "chunk_fwd_o(Tensor q, Tensor k, Tensor v, Tensor h, float scale, *, Tensor? g=None, Tensor? g_gamma=None, "
    "int[]? cu_seqlens=None, int[]? chunk_indices=None, int? chunk_size=None, bool? transpose_state_layout=False) "
    "-> Tensor": chunk_fwd_o,
}
"""Operators by schema. A string names the operator of torch_npu that calls the same function of CANN, with arguments of
the same names."""
