# SPDX-License-Identifier: Apache-2.0
"""Normalisation whose result is quantised, against the formulas in float64. Where a value lies within an error of
float32 of the middle of two integers, either is right."""

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, written_by

EPSILON = 1e-6


def floats(*shape, dtype=torch.float32, seed=0, scale=1.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def normalized(x, gamma, beta=None):
    dims = tuple(range(-gamma.dim(), 0))
    y = x.double() * (x.double().square().mean(dims, keepdim=True) + EPSILON).rsqrt() * gamma.double()
    return y if beta is None else y + beta.double()


def unpacked(words):
    nibbles = torch.stack([words.long() // 16**i % 16 for i in range(8)], -1).flatten(-2)
    return torch.where(nibbles > 7, nibbles - 16, nibbles)


def check_rounded(values, exact, low=-128, high=127):
    exact = exact.clamp(low, high)
    assert values.shape == exact.shape
    assert ((values.cpu().double() - exact).abs() <= 0.5 + 2e-3).all()


SHAPES = [(1, 4096), (5, 64), (2, 3, 24), (131, 512)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("to", [torch.int8, torch.quint4x2], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_norm_quant(shape, to, dtype):
    x, gamma, beta = floats(*shape, dtype=dtype), floats(shape[-1], dtype=dtype), floats(shape[-1], dtype=dtype, seed=1)
    scale, offset = torch.tensor([0.031], dtype=dtype), torch.tensor([-3], dtype=torch.int8)
    given = [x.npu(), gamma.npu(), beta.npu(), scale.npu(), offset.npu(), EPSILON]
    values = torch_npu.npu_rms_norm_quant(*given, dst_dtype=to).cpu()
    exact = normalized(x, gamma, beta) / scale.double() + offset.double()
    if to == torch.quint4x2:
        check_rounded(unpacked(values), exact, -8, 7)
    else:
        check_rounded(values, exact)


@pytest.mark.parametrize("divides", [True, False])
@pytest.mark.parametrize("columns", [1, 64])
@pytest.mark.parametrize("offset_dtype", [None, torch.int32, torch.float32], ids=str)
def test_rms_norm_quant_v2(offset_dtype, columns, divides):
    x, gamma, beta = floats(7, 64).half(), floats(64, seed=1).half(), floats(64, seed=2).half()
    scale = floats(columns, seed=3).abs() + 0.01
    offset = None if offset_dtype is None else floats(columns, seed=4, scale=4).to(offset_dtype)
    exact = normalized(x, gamma, beta)
    exact = exact / scale.double() if divides else exact * scale.double()
    values, _ = torch_npu.npu_rms_norm_quant_v2(
        x.npu(), gamma.npu(), scale.npu(), offset=None if offset is None else offset.npu(), beta=beta.npu(),
        epsilon=EPSILON, div_mode=divides,
    )  # fmt: skip
    check_rounded(values, exact if offset is None else exact + offset.double())
    given = [x, gamma, scale, offset, beta, EPSILON, divides, True]
    again, rstd = written_by("aclnnRmsNormQuantV3", *given, Out((7, 64), torch.int8), Out((7, 1)))
    assert torch.equal(again, values.cpu())
    expected = (x.double().square().mean(-1, keepdim=True) + EPSILON).rsqrt()
    torch.testing.assert_close(rstd.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape, gamma_shape", [((1, 4096), (4096,)), ((5, 64), (64,)), ((7, 3, 24), (3, 24))], ids=str)
@pytest.mark.parametrize("second, with_beta", [(True, True), (False, False)])
def test_add_rms_norm_quant(second, with_beta, shape, gamma_shape, dtype):
    x1, x2 = floats(*shape, dtype=dtype), floats(*shape, dtype=dtype, seed=1)
    gamma, beta = floats(*gamma_shape, dtype=dtype, seed=2), floats(*gamma_shape, dtype=dtype, seed=3)
    of_scale, of_zero = (torch.float32, torch.int32) if dtype == torch.float16 else (torch.bfloat16,) * 2
    scales = [(floats(*gamma_shape, seed=4 + i).abs() + 0.02).to(of_scale) for i in range(2)]
    zeros = [(floats(*gamma_shape, seed=6 + i) * 5).to(of_zero) for i in range(2)]
    y1, y2, x = torch_npu.npu_add_rms_norm_quant(
        x1.npu(), x2.npu(), gamma.npu(), scales[0].npu(), zeros[0].npu(), beta.npu() if with_beta else None,
        *([scales[1].npu(), zeros[1].npu()] if second else [None, None]), axis=-1, epsilon=EPSILON, div_mode=True,
    )  # fmt: skip
    assert torch.equal(x.cpu(), x1 + x2)
    exact = normalized(x1 + x2, gamma, beta if with_beta else None)
    check_rounded(y1, exact / scales[0].double() + zeros[0].double())
    if second:
        check_rounded(y2, exact / scales[1].double() + zeros[1].double())
    if not with_beta:
        given = [x1, x2, gamma, scales[0], None, zeros[0], None, -1, EPSILON, True]
        outs = [Out(shape, torch.int8), Out(shape, torch.int8), Out(shape, dtype)]
        assert torch.equal(written_by("aclnnAddRmsNormQuant", *given, *outs)[0], y1.cpu())
        norm = written_by("aclnnAddRmsNormQuantV2", *given[:7], None, *given[7:], *outs, Out(shape, dtype))[3]
        torch.testing.assert_close(norm.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", [None, [True, True], [True, False], [False, True]], ids=str)
@pytest.mark.parametrize("to", [None, torch.quint4x2], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_add_rms_norm_dynamic_quant(shape, to, mask, dtype):
    x1, x2 = floats(*shape, dtype=dtype), floats(*shape, dtype=dtype, seed=1)
    gamma, beta, *smooth = (floats(shape[-1], dtype=dtype, seed=i) for i in range(2, 6))
    y1, y2, x, scale1, scale2 = torch_npu.npu_add_rms_norm_dynamic_quant(
        x1.npu(), x2.npu(), gamma.npu(), smooth_scale1=smooth[0].npu(), smooth_scale2=smooth[1].npu(), beta=beta.npu(),
        epsilon=EPSILON, output_mask=mask, y_dtype=to,
    )  # fmt: skip
    assert torch.equal(x.cpu(), x1 + x2)
    exact, highest = normalized(x1 + x2, gamma, beta), 127 if to is None else 7
    for given, y, scale, factor in zip(mask or [True, True], (y1, y2), (scale1, scale2), smooth, strict=True):
        if not given:
            continue
        smoothed = exact * factor.double()
        expected = smoothed.abs().amax(-1) / highest
        torch.testing.assert_close(scale.cpu().double(), expected, rtol=1e-5, atol=0)
        check_rounded(y.cpu() if to is None else unpacked(y.cpu()), smoothed / expected[..., None])


def test_one_smooth_scale_makes_one_result():
    x, gamma = floats(5, 16).half(), floats(16, seed=1).half()
    results = torch_npu.npu_add_rms_norm_dynamic_quant(x.npu(), x.npu(), gamma.npu(), smooth_scale1=gamma.npu())
    exact = normalized(x + x, gamma) * gamma.double()
    check_rounded(results[0], exact / exact.abs().amax(-1, keepdim=True) * 127)


@pytest.mark.parametrize("divides", [True, False])
def test_rms_norm_grad_quant(divides):
    x, dy, gamma = floats(7, 24), floats(7, 24, seed=1), floats(24, seed=2)
    leaves = [x.double().requires_grad_(), gamma.double().requires_grad_()]
    wide = leaves[0]
    rstd = (wide.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
    (wide * rstd * leaves[1] * dy.double()).sum().backward()
    scale, offset = torch.tensor([0.05 if divides else 20.0]), torch.tensor([3], dtype=torch.int32)
    given = [dy, x, rstd.detach().float()[:, 0], gamma, scale, offset, "static", divides]
    dx, dgamma = written_by("aclnnRmsNormGradQuant", *given, Out((7, 24), torch.int8), Out((24,)))
    exact = leaves[0].grad / scale.double() if divides else leaves[0].grad * scale.double()
    check_rounded(dx, exact + 3)
    torch.testing.assert_close(dgamma.double(), leaves[1].grad, rtol=1e-5, atol=1e-5)


X, G = floats(4, 16).half(), floats(16, seed=1).half()
INT8 = Out((4, 16), torch.int8)
BAD = {
    "gamma": (
        "aclnnRmsNormQuant",
        [X, G[:8], G, G[:1], torch.zeros(1, dtype=torch.int8), EPSILON, INT8],
        r"gamma has shape \[8\]; expected \[16\]",
    ),
    "offset": (
        "aclnnRmsNormQuant",
        [X, G, G, G[:1], G[:1], EPSILON, INT8],
        "offset has dtype float16; expected int8",
    ),
    "division": (
        "aclnnAddRmsNormQuant",
        [X, X, G, G.float(), None, None, None, -1, EPSILON, False, INT8, INT8, Out((4, 16), torch.float16)],
        "div_mode is false; expected true",
    ),
    "axis": (
        "aclnnAddRmsNormQuant",
        [X, X, G, G.float(), None, None, None, 0, EPSILON, True, INT8, INT8, Out((4, 16), torch.float16)],
        "axis is 0; expected -1",
    ),
    "x2": (
        "aclnnAddRmsNormQuant",
        [X, X[:3], G, G.float(), None, None, None, -1, EPSILON, True, INT8, INT8, Out((4, 16), torch.float16)],
        r"x2 has shape \[3, 16\]; expected \[4, 16\]",
    ),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_input_is_named(label):
    name, arguments, message = BAD[label]
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(name, *arguments)
