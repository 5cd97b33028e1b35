# SPDX-License-Identifier: Apache-2.0
"""Nodes of mixtures of experts and of rotary embeddings are bitwise equal to eager, static, dynamic and captured."""

import pytest
import torch
import torch_npu
from graphs import MODES, assert_same_bits, compiled

HALF = torch.bfloat16


def floats(*shape, dtype=HALF, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(high, *shape, dtype=torch.int32):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def routed(x, idx, scale):
    """The rows of some experts, quantised, and their way back."""
    rows, places, counts, steps = torch_npu.npu_moe_init_routing_v2(
        x, idx, scale=scale, active_num=idx.numel(), expert_num=8, expert_tokens_num_type=1,
        expert_tokens_num_flag=True, quant_mode=1, active_expert_range=[0, 8],
    )  # fmt: skip
    return rows, places, counts, steps


def finalized(rows, places, scales):
    return torch_npu.npu_moe_finalize_routing(rows, None, None, None, scales, places, None, 2)


def finalized_first(rows, skip, bias, scales, places, idx):
    return torch_npu.npu_moe_finalize_routing(rows, skip, None, bias, scales, places, idx)


def cached(*tensors, **options):
    kv, gamma, cos, sin, index, *caches = tensors
    return torch_npu.npu_kv_rmsnorm_rope_cache(kv, gamma, cos, sin, index, *caches, cache_mode="PA", **options)


def cached_functional(*tensors):
    return torch_npu.npu_kv_rmsnorm_rope_cache_v2_functional(*tensors, cache_mode="PA", is_output_kv=True)


def cached_qkv(*tensors):
    return torch_npu.npu_qkv_rms_norm_rope_cache_functional(
        *tensors, [1, 5, 4, 128], [2, 1, 1], cache_mode="PA_NZ", is_output_qkv=True
    )


KV = [floats(6, 1, 1, 576), floats(512), floats(6, 1, 1, 64), floats(6, 1, 1, 64), torch.arange(6) * 3]
CACHES = [torch.zeros(2, 16, 1, 64, dtype=HALF), torch.zeros(2, 16, 1, 512, dtype=HALF)]
QKV = [floats(5, 512), floats(128), floats(128), floats(5, 128), floats(5, 128), torch.arange(5)]
QKV_CACHES = [torch.zeros(5, 256, dtype=HALF), *[torch.zeros(2, 8, 16, 16, dtype=HALF)] * 2]
CASES = {
    "apply_rotary_pos_emb": (
        torch_npu.npu_apply_rotary_pos_emb,
        [floats(2, 3, 4, 128), floats(2, 3, 1, 128), floats(2, 3, 1, 128), floats(2, 3, 1, 128)],
    ),
    "interleave_rope": (torch_npu.npu_interleave_rope, [floats(2, 3, 4, 64), floats(2, 1, 4, 64), floats(2, 1, 4, 64)]),
    "kv_rmsnorm_rope_cache": (lambda *t: cached(*t, is_output_kv=True), [*KV, *CACHES]),
    "kv_rmsnorm_rope_cache_functional": (cached_functional, [*KV, *CACHES]),
    "qkv_rms_norm_rope_cache": (cached_qkv, [*QKV, *QKV_CACHES]),
    "gating_top_k": (
        lambda x, bias: torch_npu.npu_moe_gating_top_k(
            x, 4, bias=bias, k_group=2, group_count=4, group_select_mode=1, norm_type=1, out_flag=True
        ),
        [floats(5, 32), floats(32)],
    ),
    "gating_top_k_softmax": (
        lambda x, finished: torch_npu.npu_moe_gating_top_k_softmax(x, finished, 3),
        [floats(5, 16), torch.arange(5) == 2],
    ),
    "init_routing": (
        lambda x, rows, idx: torch_npu.npu_moe_init_routing(x, rows, idx, 4),
        [floats(5, 8), torch.arange(10).int().view(2, 5).t().contiguous(), integers(4, 5, 2)],
    ),
    "init_routing_v2": (routed, [floats(5, 8), integers(8, 5, 2), floats(8, 8, dtype=torch.float32)]),
    "finalize_routing": (finalized, [floats(10, 8), torch.randperm(10).int(), floats(5, 2)]),
    "finalize_routing_with_bias": (
        finalized_first,
        [floats(10, 8), floats(5, 8), floats(4, 8), floats(5, 2), torch.randperm(10).int(), integers(4, 5, 2)],
    ),
    "compute_expert_tokens": (
        lambda rows: torch_npu.npu_moe_compute_expert_tokens(rows, 6),
        [integers(6, 20).sort()[0]],
    ),
    "re_routing": (
        lambda tokens, counts, scales: torch_npu.npu_moe_re_routing(tokens, counts, per_token_scales=scales),
        [floats(9, 8), torch.tensor([[2, 3], [1, 3]]), floats(9, dtype=torch.float32)],
    ),
    "update_expert": (
        lambda ids, table, scales, threshold: torch_npu.npu_moe_update_expert(
            ids, table, expert_scales=scales, pruning_threshold=threshold, balance_mode=1
        ),
        [
            integers(2, 5, 3),
            torch.tensor([[1, 4, 0], [2, 1, 2]], dtype=torch.int32),
            floats(5, 3, dtype=torch.float32).abs(),
            torch.tensor([0.1, 0.3, 0.5]),
        ],
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_a_node_has_the_bits_of_eager(name, mode):
    function, inputs = CASES[name]
    expected = function(*[x.npu() for x in inputs])
    given = [x.npu() for x in inputs]
    assert_same_bits(MODES[mode](function)(*given), expected)


def test_a_cache_is_written_where_it_is():
    caches = [cache.npu() for cache in CACHES]
    expected = [cache.npu() for cache in CACHES]
    cached(*[x.npu() for x in KV], *expected)
    compiled(cached, dynamic=False)(*[x.npu() for x in KV], *caches)
    assert_same_bits(caches, expected)
    assert any(cache.any() for cache in caches)
