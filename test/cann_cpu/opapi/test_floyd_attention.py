# SPDX-License-Identifier: Apache-2.0
"""Attention to two kinds of keys at once, and its gradient, against the formula in float64 and autograd."""

import math

import pytest
import torch
import torch_npu


def randn(*shape, seed=0, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(actual, expected, factor=1):
    tolerance = factor * 2 * torch.finfo(actual.dtype).eps
    torch.testing.assert_close(actual.cpu().double(), expected.double(), rtol=tolerance, atol=tolerance)


def floyd(query, key1, value1, key2, value2, mask, scale):
    scores = torch.einsum("bhnmd,bhnkd->bhnmk", query, key1) + torch.einsum("bhnmd,bhkmd->bhnmk", query, key2)
    scores = scores * scale
    if mask is not None:
        scores = scores.masked_fill(mask.bool(), -math.inf)
    p = scores.softmax(-1)
    out = torch.einsum("bhnmk,bhnkd->bhnmd", p, value1) + torch.einsum("bhnmk,bhkmd->bhnmd", p, value2)
    maximum = scores.amax(-1, keepdim=True)
    return out, maximum, (scores - maximum).exp().sum(-1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", [(1, 2, 16, 128, 128, 32), (2, 1, 3, 5, 7, 32)], ids=str)
def test_floyd_attention(shape, masked, dtype):
    b, h, n, m, k, d = shape
    sizes = [(b, h, n, m, d), (b, h, n, k, d), (b, h, n, k, d), (b, h, k, m, d), (b, h, k, m, d)]
    inputs = [randn(*size, seed=i, dtype=dtype) for i, size in enumerate(sizes)]
    mask = randn(b, 1, n, 1, k, seed=9) > 0.7 if masked else None
    dy = randn(b, h, n, m, d, seed=8, dtype=dtype)
    leaves = [x.double().requires_grad_() for x in inputs]
    expected, maximum, total = floyd(*leaves, mask, 0.2)
    gradients = torch.autograd.grad(expected, leaves, dy.double())
    on_npu, mask = [x.npu() for x in inputs], mask.npu() if masked else None
    found = torch_npu.npu_fused_floyd_attention(*on_npu, atten_mask=mask, scale_value=0.2)
    close(found[0], maximum.detach().expand(-1, -1, -1, -1, 8), 20)
    close(found[1], total.detach().expand(-1, -1, -1, -1, 8), 20)
    close(found[2], expected.detach())
    back = torch_npu.npu_fused_floyd_attention_backward(
        dy.npu(), *on_npu, found[2], found[0], found[1], atten_mask=mask, scale_value=0.2
    )
    for actual, wanted in zip(back, gradients, strict=True):
        close(actual, wanted, 8)


def test_what_does_not_fit_is_rejected():
    query, key, key2 = (randn(1, 1, *rest).npu() for rest in ((2, 3, 32), (2, 4, 32), (4, 3, 32)))
    with pytest.raises(RuntimeError, match=r"key2 has shape \[1, 1, 2, 4, 32\]; expected \[1, 1, 4, 3, 32\]"):
        torch_npu.npu_fused_floyd_attention(query, key, key, key, key)
        torch.npu.synchronize()
    with pytest.raises(RuntimeError, match=r"atten_mask has shape \[1, 1, 2, 1, 3\]; expected \[1, 1, 2, 3, 4\]"):
        mask = torch.zeros(1, 1, 2, 1, 3, dtype=torch.bool).npu()
        torch_npu.npu_fused_floyd_attention(query, key, key, key2, key2, atten_mask=mask)
        torch.npu.synchronize()
