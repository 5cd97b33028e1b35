# SPDX-License-Identifier: Apache-2.0
"""Gated activation functions and masked softmax, against their formulas in float64."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from aclnn import Out, Rejected, written_by

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def floats(*shape, dtype=torch.float32, seed=0, scale=1.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def close(actual, exact, dtype):
    assert actual.dtype == dtype and actual.shape == exact.shape
    error = 2 * max(torch.finfo(dtype).eps, 2e-6)
    torch.testing.assert_close(actual.cpu().double(), exact, rtol=error, atol=error)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("approximate", [0, 1])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("shape, dim", [((1, 4096), -1), ((5, 6, 7), 1), ((4, 3), 0), ((0, 8), -1)], ids=str)
def test_geglu_and_its_gradient(shape, dim, left, approximate, dtype):
    x = floats(*shape, dtype=dtype)
    leaf = x.double().requires_grad_()
    a, b = leaf.chunk(2, dim) if left else reversed(leaf.chunk(2, dim))
    gelu = F.gelu(a, approximate="tanh" if approximate else "none")
    dy = floats(*gelu.shape, dtype=dtype, seed=1)
    (gelu * b).backward(dy.double())
    y, of_gelu = torch_npu.npu_geglu(x.npu(), dim=dim, approximate=approximate, activate_left=left)
    close(y, (gelu * b).detach(), dtype)
    close(of_gelu, gelu.detach(), dtype)
    given = [dy.npu(), x.npu(), of_gelu]
    close(torch_npu.npu_geglu_grad(*given, dim=dim, approximate=approximate, activate_left=left), leaf.grad, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_mul(approximate, dtype):
    x = floats(3, 7, 32, dtype=dtype)
    a, b = x.double().chunk(2, -1)
    exact = F.gelu(a, approximate=approximate) * b
    close(torch_npu.npu_gelu_mul(x.npu(), approximate=approximate), exact, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("groups", [None, [2, 0, 3], [5, 6]], ids=str)
@pytest.mark.parametrize("shape, dim", [((11, 64), -1), ((11, 6, 5), 1)], ids=str)
def test_clipped_swiglu(shape, dim, groups, interleaved, dtype):
    x = floats(*shape, dtype=dtype, scale=4)
    pairs = x.double().movedim(dim, -1)
    a, b = (pairs[..., ::2], pairs[..., 1::2]) if interleaved else pairs.chunk(2, -1)
    a, b = a.clamp(max=3.0), b.clamp(-3.0, 3.0)
    exact = (a * torch.sigmoid(1.5 * a) * (b + 0.5)).movedim(-1, dim)
    index = None if groups is None else torch.tensor(groups).npu()
    result = torch_npu.npu_clipped_swiglu(
        x.npu(), group_index=index, dim=dim, alpha=1.5, limit=3.0, bias=0.5, interleaved=interleaved
    )
    used = len(x) if groups is None else sum(groups)
    close(result[:used], exact[:used], dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape, mask_shape", [
    ((6, 4, 7, 7), (3, 7, 7)), ((6, 4, 7, 7), (3, 1, 7, 7)), ((2, 3, 4, 7, 7), (1, 3, 1, 7, 7)), ((6, 4, 7, 7), None),
], ids=str)  # fmt: skip
def test_masked_softmax_with_relative_positions(shape, mask_shape, dtype):
    x, bias = floats(*shape, dtype=dtype), floats(4, 7, 7, dtype=dtype, seed=1)
    scores = x.double().reshape(2, 3, 4, 7, 7) * 0.7 + bias.double()
    mask = None
    if mask_shape:
        mask = floats(*mask_shape, dtype=dtype, seed=2)
        scores = scores + mask.double().reshape(1, 3, 1, 7, 7)
    result = torch_npu.npu_masked_softmax_with_rel_pos_bias(
        x.npu(), mask.npu() if mask_shape else None, bias.npu(), 0.7
    )
    close(result, scores.softmax(-1).reshape(shape), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mask_shape", [(2, 3, 5, 11), (1, 1, 5, 11), (2, 1, 5, 11)], ids=str)
def test_scaled_masked_softmax_and_its_gradient(mask_shape, dtype):
    x, dy = floats(2, 3, 5, 11, dtype=dtype), floats(2, 3, 5, 11, dtype=dtype, seed=1)
    mask = floats(*mask_shape, seed=2) > 0.5
    mask[..., 0, :] = True
    masked = mask.expand(x.shape)
    exact = (x.double() * 0.3).masked_fill(masked, -10000).softmax(-1)
    y = torch_npu.npu_scaled_masked_softmax(x.npu(), mask.npu(), 0.3, False)
    close(y, exact, dtype)
    given = y.cpu().double()
    product = dy.double() * given
    gradient = ((product - product.sum(-1, keepdim=True) * given) * 0.3).masked_fill(masked, 0)
    outs = Out(x.shape, dtype)
    close(written_by("aclnnScaledMaskedSoftmaxBackward", dy, y.cpu(), mask, 0.3, False, outs)[0], gradient, dtype)


X, MASK = floats(2, 3, 4, 8), torch.zeros(2, 3, 4, 8, dtype=torch.bool)
BAD = {
    "odd": ("aclnnGeluMul", [X[..., :3], "none", Out((2, 3, 4, 1))], "input has shape .*; expected an even size"),
    "approximation": ("aclnnGeluMul", [X, "some", Out((2, 3, 4, 4))], "approximate is 'some'; expected none or tanh"),
    "number": (
        "aclnnGeGluV3",
        [X, -1, 2, True, Out((2, 3, 4, 4)), Out((2, 3, 4, 4))],
        "approximate is 2; expected 0 to 1",
    ),
    "dim": ("aclnnGeGluV3", [X, 4, 1, True, Out((2, 3, 4, 4)), Out((2, 3, 4, 4))], "dim is 4; expected -4 to 3"),
    "limit": (
        "aclnnClippedSwiglu",
        [X, None, -1, 1.0, 0.0, 1.0, True, Out((2, 3, 4, 4))],
        "limit is 0; expected more than 0",
    ),
    "count": (
        "aclnnClippedSwiglu",
        [X, torch.tensor([1, -2]), -1, 1.0, 7.0, 1.0, True, Out((2, 3, 4, 4))],
        r"group_index\[1\] is -2; expected 0",
    ),
    "triangle": (
        "aclnnScaledMaskedSoftmax",
        [X, MASK, 1.0, True, Out(X.shape)],
        "fix_triu_mask is true; expected false",
    ),
    "mask": (
        "aclnnScaledMaskedSoftmax",
        [X, MASK[..., :4], 1.0, False, Out(X.shape)],
        r"mask has shape \[2, 3, 4, 4\]; expected \[2, 3, 4, 8\]",
    ),
    "bias": (
        "aclnnMaskedSoftmaxWithRelPosBias",
        [X, None, X[0, :2], 1.0, 0, Out(X.shape)],
        r"relative_pos_bias has shape \[2, 4, 8\]; expected \[3, 4, 8\]",
    ),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_input_is_named(label):
    name, arguments, message = BAD[label]
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(name, *arguments)
