# SPDX-License-Identifier: Apache-2.0
"""Normalisation in one function with what comes before and after it, against the formulas in float64."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from aclnn import InOut, Out, Rejected, written_by

EPSILON = 1e-5
FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def floats(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(actual, exact, dtype=torch.float32):
    assert actual.dtype == dtype and actual.shape == exact.shape
    error = 4 * max(torch.finfo(dtype).eps, 2e-6)
    torch.testing.assert_close(actual.cpu().double(), exact, rtol=error, atol=error)


def rms_norm(x, gamma):
    dims = tuple(range(-gamma.dim(), 0))
    rstd = (x.double().square().mean(dims, keepdim=True) + EPSILON).rsqrt()
    return x.double() * rstd * gamma.double(), rstd


def layer_norm(x, gamma, beta):
    return F.layer_norm(x, gamma.shape, gamma, beta, EPSILON)


def statistics(x, dims):
    return x.mean(dims, keepdim=True), (x.var(dims, unbiased=False, keepdim=True) + EPSILON).rsqrt()


SHAPES = [((1, 4096), (4096,)), ((5, 64), (64,)), ((2, 7, 3, 8), (3, 8)), ((131, 512), (512,))]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape, gamma_shape", SHAPES, ids=str)
def test_add_rms_norm_cast(shape, gamma_shape, dtype):
    x1, x2 = floats(*shape, dtype=dtype), floats(*shape, dtype=dtype, seed=1)
    gamma = floats(*gamma_shape, dtype=dtype, seed=2)
    y1, y2, rstd, x = torch_npu.npu_add_rms_norm_cast(x1.npu(), x2.npu(), gamma.npu(), EPSILON)
    exact, of_rstd = rms_norm(x1.float() + x2.float(), gamma)
    close(y1, exact)
    assert torch.equal(y2.cpu(), y1.cpu().to(dtype))
    close(rstd, of_rstd)
    assert torch.equal(x.cpu(), x1 + x2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape, gamma_shape", SHAPES, ids=str)
def test_add_rms_norm_in_place(shape, gamma_shape, dtype):
    x1, x2 = floats(*shape, dtype=dtype), floats(*shape, dtype=dtype, seed=1)
    gamma, y, x = floats(*gamma_shape, dtype=dtype, seed=2), x1.npu(), x2.npu()
    rstd = torch_npu.npu_add_rms_norm_v2(y, x, gamma.npu(), EPSILON)
    assert torch.equal(x.cpu(), x1 + x2)
    exact, of_rstd = rms_norm(x1 + x2, gamma)
    close(y, exact, dtype)
    close(rstd, of_rstd)
    functional = torch_npu.npu_add_rms_norm_v2_functional(x1.npu(), x2.npu(), gamma.npu(), EPSILON)
    for actual, expected in zip(functional, (rstd, y, x), strict=True):
        assert torch.equal(actual.cpu(), expected.cpu())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape, gamma_shape", SHAPES, ids=str)
def test_gemma_rms_norm(shape, gamma_shape, dtype):
    x, gamma = floats(*shape, dtype=dtype), floats(*gamma_shape, dtype=dtype, seed=2)
    y, rstd = torch_npu.npu_gemma_rms_norm(x.npu(), gamma.npu(), EPSILON)
    exact, of_rstd = rms_norm(x, gamma.double() + 1)
    close(y, exact, dtype)
    close(rstd, of_rstd.reshape(rstd.shape))


@pytest.mark.parametrize("dtypes", [(d, d) for d in FLOATS] + [(torch.float16, torch.float32)], ids=str)
@pytest.mark.parametrize("shape", [(1, 4096), (5, 64), (2, 7, 24)], ids=str)
@pytest.mark.parametrize("additional", [True, False])
def test_add_layer_norm(additional, shape, dtypes):
    x1, x2 = (floats(*shape, dtype=dtype, seed=i) for i, dtype in enumerate(dtypes))
    gamma, beta = (floats(shape[-1], dtype=dtypes[1], seed=i) for i in (2, 3))
    given = [x1.npu(), x2.npu(), gamma.npu(), beta.npu(), EPSILON, additional]
    y, mean, rstd, x = torch_npu.npu_add_layer_norm(*given)
    total = x1.double() + x2.double()
    close(y, layer_norm(total, gamma.double(), beta.double()), dtypes[1])
    for actual, exact in zip((mean, rstd), statistics(total, -1), strict=True):
        close(actual, exact.reshape(actual.shape))
    if additional:
        close(x, total, dtypes[1])


@pytest.mark.parametrize("bias_shape", [(24,), (5, 24)], ids=str)
def test_add_layer_norm_with_a_bias(bias_shape):
    x1, x2, gamma, beta, bias = (floats(*s, seed=i) for i, s in enumerate([(5, 24)] * 2 + [(24,)] * 2 + [bias_shape]))
    given = [x1, x2, gamma, beta, bias, EPSILON, True]
    y, _, _, x = written_by("aclnnAddLayerNorm", *given, Out((5, 24)), Out((5, 1)), Out((5, 1)), Out((5, 24)))
    total = x1.double() + x2.double() + bias.double()
    close(y, layer_norm(total, gamma.double(), beta.double()))
    close(x, total)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("with_sum", [True, False])
def test_gradient_of_add_layer_norm(with_sum, dtype):
    dy, x1, x2, dsum = (floats(3, 7, 24, dtype=dtype, seed=i) for i in range(4))
    gamma = floats(24, dtype=dtype, seed=4)
    total, weight = (x1.double() + x2.double()).requires_grad_(), gamma.double().requires_grad_()
    beta = torch.zeros(24, dtype=torch.float64, requires_grad=True)
    layer_norm(total, weight, beta).backward(dy.double())
    mean, rstd = (s.detach().float() for s in statistics(total, -1))
    given = [dy, x1, x2, rstd, mean, gamma, dsum if with_sum else None]
    outs = [Out(dy.shape, dtype), Out((24,)), Out((24,))]
    dx, dgamma, dbeta = written_by("aclnnAddLayerNormGrad", *given, *outs)
    close(dx, total.grad + dsum.double() if with_sum else total.grad, dtype)
    close(dgamma, weight.grad)
    close(dbeta, beta.grad)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape, gamma_shape", SHAPES, ids=str)
def test_deep_norm_and_its_gradient(shape, gamma_shape, dtype):
    x, gx, dy = (floats(*shape, dtype=dtype, seed=i) for i in range(3))
    gamma, beta = (floats(*gamma_shape, dtype=dtype, seed=i) for i in (3, 4))
    leaves = [t.double().requires_grad_() for t in (x, gx, beta, gamma)]
    total = 0.3 * leaves[0] + leaves[1]
    exact = layer_norm(total, leaves[3], leaves[2])
    exact.backward(dy.double())
    mean, rstd, y = torch_npu.npu_deep_norm(x.npu(), gx.npu(), beta.npu(), gamma.npu(), 0.3, EPSILON)
    close(y, exact.detach(), dtype)
    for actual, s in zip((mean, rstd), statistics(total.detach(), tuple(range(-gamma.dim(), 0))), strict=True):
        close(actual, s)
    results = torch_npu.npu_deep_norm_backward(dy.npu(), x.npu(), gx.npu(), gamma.npu(), mean, rstd, 0.3)
    for actual, leaf, of in zip(results, leaves, (dtype, dtype, torch.float32, torch.float32), strict=True):
        close(actual, leaf.grad, of)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fast_layer_norm(dtype):
    x, gamma, beta = floats(5, 7, 24, dtype=dtype), floats(24, dtype=dtype, seed=1), floats(24, dtype=dtype, seed=2)
    outs = [Out(x.shape, dtype), Out((5, 7, 1)), Out((5, 7, 1))]
    y, mean, rstd = written_by("aclnnFastLayerNorm", x, [24], gamma, beta, EPSILON, *outs)
    close(y, layer_norm(x.double(), gamma.double(), beta.double()), dtype)
    for actual, exact in zip((mean, rstd), statistics(x.double(), -1), strict=True):
        torch.testing.assert_close(actual.double(), exact, rtol=1e-2 if dtype != torch.float32 else 1e-5, atol=1e-3)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1, 32, 16, 16), (3, 8, 5), (2, 4), (2, 12, 1, 3, 2)], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1.7])
def test_group_norm_and_an_activation(scale, shape, dtype):
    x, dy = floats(*shape, dtype=dtype), floats(*shape, dtype=dtype, seed=1)
    gamma, beta = floats(shape[1], dtype=dtype, seed=2), floats(shape[1], dtype=dtype, seed=3)
    leaves = [t.double().requires_grad_() for t in (x, gamma, beta)]
    value = F.group_norm(leaves[0], 4, leaves[1], leaves[2], EPSILON)
    exact = value * torch.sigmoid(scale * value)
    exact.backward(dy.double())
    y, mean, rstd = torch_npu.npu_group_norm_swish(x.npu(), 4, gamma.npu(), beta.npu(), EPSILON, scale)
    close(y, exact.detach(), dtype)
    of = [s.reshape(mean.shape) for s in statistics(x.double().reshape(shape[0], 4, -1), -1)]
    for actual, expected in zip((mean, rstd), of, strict=True):
        close(actual, expected, dtype)
    given = [dy.npu(), x.npu(), 4, gamma.npu(), beta.npu(), mean, rstd, [True] * 3, scale]
    results = torch_npu.npu_group_norm_swish_grad(*given)
    for actual, leaf in zip(results, leaves, strict=True):
        assert actual.dtype == dtype
        error = 0.1 if dtype != torch.float32 else 2e-3
        torch.testing.assert_close(actual.cpu().double(), leaf.grad, rtol=error, atol=error)
    if scale == 1.0:
        silu = torch_npu.npu_group_norm_silu(x.npu(), gamma.npu(), beta.npu(), 4, EPSILON)
        for actual, expected in zip(silu, (y, mean, rstd), strict=True):
            close(actual, expected.cpu().double(), actual.dtype)


X, G = floats(4, 16), floats(16, seed=1)
STATISTICS = [Out((4, 1)), Out((4, 1))]
BAD = {
    "x2": (
        "aclnnAddLayerNorm",
        [X, X[:3], G, G, None, EPSILON, False, Out((4, 16)), *STATISTICS, None],
        r"x2 has shape",
    ),
    "gamma": (
        "aclnnAddLayerNorm",
        [X, X, G[:8], G[:8], None, EPSILON, False, Out((4, 16)), *STATISTICS, None],
        r"gamma has shape \[8\]; expected the last dimensions of x1, \[4, 16\]",
    ),
    "dtype of the result": (
        "aclnnAddLayerNorm",
        [X, X, G, G, None, EPSILON, False, Out((4, 16), torch.float16), *STATISTICS, None],
        "y_out has dtype Half; expected Float",
    ),
    "no output": (
        "aclnnAddLayerNorm",
        [X, X, G, G, None, EPSILON, True, Out((4, 16)), *STATISTICS, None],
        "x_out is null; expected a tensor, since additional_output is true",
    ),
    "dtype": (
        "aclnnInplaceAddRmsNorm",
        [InOut(X), InOut(X.half()), G, EPSILON, Out((4, 1))],
        "x2 has dtype float16; expected float32",
    ),
    "groups": (
        "aclnnGroupNormSilu",
        [X, G, G, 3, EPSILON, Out((4, 16)), Out((4, 3)), Out((4, 3))],
        "group is 3; expected a divisor of 16",
    ),
    "epsilon": (
        "aclnnGroupNormSilu",
        [X, G, G, 4, 0.0, Out((4, 16)), Out((4, 4)), Out((4, 4))],
        "eps is 0; expected more than 0",
    ),
    "format": (
        "aclnnGroupNormSwish",
        [X, G, G, 4, "NHWC", EPSILON, True, 1.0, Out((4, 16)), Out((4, 4)), Out((4, 4))],
        "data_format is 'NHWC'; expected NCHW",
    ),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_input_is_named(label):
    name, arguments, message = BAD[label]
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(name, *arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("has_bias", [True, False])
def test_rms_norm_of_a_sum_with_a_bias(has_bias, dtype):
    x1, x2, gamma, beta = (torch.randn(shape).to(dtype) for shape in [(3, 7), (3, 7), (7,), (7,)])
    outs = [Out((3, 7), dtype), Out((3, 1)), Out((3, 7), dtype)]
    y, rstd, x = written_by("aclnnAddRmsNormBias", x1, x2, gamma, beta if has_bias else None, 1e-6, *outs)
    assert torch.equal(x, x1 + x2)
    expected = (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    torch.testing.assert_close(rstd.double(), expected, rtol=1e-5, atol=1e-5)
    expected = x.double() * expected * gamma.double() + (beta.double() if has_bias else 0)
    torch.testing.assert_close(y.double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)
