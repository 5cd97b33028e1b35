# SPDX-License-Identifier: Apache-2.0
"""Fused arithmetic, element by element."""

import pytest
import torch
from aclnn import Float, Out, Rejected, written_by


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask_dtype", [torch.uint8, torch.int8, torch.float32], ids=str)
def test_masked_scale(mask_dtype, dtype):
    x, mask = torch.randn(5, 7).to(dtype), (torch.rand(5, 7) > 0.5).to(mask_dtype)
    expected = (x.double() * mask.double() * 1.25).to(dtype)
    assert torch.equal(written_by("aclnnMaskedScale", x, mask, Float(1.25), Out(x.shape, dtype))[0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape, heads", [((2, 5, 48), 2), ((1, 1, 24), 1)])
def test_transform_bias_rescale_qkv(shape, heads, dtype):
    qkv, bias = torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)
    size = shape[-1] // 3 // heads
    parts = (qkv.double() + bias.double()).chunk(3, -1)
    expected = [part.reshape(*shape[:2], heads, size).transpose(1, 2) for part in parts]
    expected[0] = expected[0] / size**0.5
    results = torch._transform_bias_rescale_qkv(qkv.npu(), bias.npu(), heads)
    for actual, exact in zip(results, expected, strict=True):
        torch.testing.assert_close(actual.cpu(), exact.to(dtype))


def test_bad_input_is_named():
    x, out = torch.randn(2, 5, 48), Out((2, 2, 5, 8))
    with pytest.raises(Rejected, match="num_heads is 5; expected a divisor of a third of 48"):
        written_by("aclnnTransformBiasRescaleQkv", x, x[0, 0], 5, out, out, out)
    with pytest.raises(Rejected, match=r"mask has shape \[5\]; expected \[5, 7\]"):
        written_by("aclnnMaskedScale", torch.ones(5, 7), torch.ones(5), Float(1.0), Out((5, 7)))
