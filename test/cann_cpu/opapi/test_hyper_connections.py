# SPDX-License-Identifier: Apache-2.0
"""Hyper-connections, against their formulas in float64 and what autograd makes of them."""

import math

import pytest
import torch
import torch_npu
from aclnn import Float, Out, Rejected, written_by

N, NORM, EPSILON = 4, 1e-5, 1e-3


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def near(actual, expected, rtol=4e-5):  # sums of 2,048 terms, in an order that depends on the processor
    assert actual.shape == expected.shape
    expected = expected.detach()
    if actual.dtype != torch.float32:
        rtol = torch.finfo(actual.dtype).eps
    size = expected.square().mean().sqrt()
    assert ((actual.double() - expected).abs() <= rtol * (expected.abs() + 0.05 * size)).all()


def doubles(*tensors):
    return [tensor if tensor is None else tensor.double().requires_grad_() for tensor in tensors]


def like(*tensors):
    return [Out(tuple(tensor.shape), tensor.dtype) for tensor in tensors]


def pre(x, phi, alpha, bias, gamma):
    n = x.shape[-2]
    flat = x.flatten(-2)
    inverse = (flat.square().mean(-1) + NORM).rsqrt()
    mixed = (flat if gamma is None else flat * gamma.flatten()) @ phi.t()
    parts = [mixed[..., :n], mixed[..., n : 2 * n], mixed[..., 2 * n :]]
    biases = [bias[:n], bias[n : 2 * n], bias[2 * n :]]
    reading, writing, *mixing = (p * inverse[..., None] * a + b for p, a, b in zip(parts, alpha, biases, strict=False))
    h_pre = torch.sigmoid(reading) + EPSILON
    h_post = 2 * torch.sigmoid(writing) + (0 if len(alpha) == 3 else EPSILON)
    h_in = (h_pre[..., None] * x).sum(-2)
    shape = (n, n) if parts[2].shape[-1] == n * n else (parts[2].shape[-1],)
    return h_in, h_post, mixing[0].unflatten(-1, shape) if mixing else None, inverse, mixed, h_pre


def pre_inputs(tokens, mixing, size=256, dtype=torch.bfloat16, has_gamma=True):
    rows = 2 * N + mixing
    x = torch.randn(*tokens, N, size).to(dtype)
    phi = torch.randn(rows, N * size) / (N * size) ** 0.5
    return x, phi, torch.randn(3 if mixing else 2), torch.randn(rows), torch.rand(N, size) + 0.5 if has_gamma else None


PRE = {
    "tokens": dict(tokens=(37,), mixing=N * N),
    "batch": dict(tokens=(2, 5), mixing=N * N, dtype=torch.float16),
    "one": dict(tokens=(1,), mixing=N * N, has_gamma=False),
    "permutations": dict(tokens=(5,), mixing=math.factorial(N)),
    "without mixing": dict(tokens=(5,), mixing=0),
    "more than at a time": dict(tokens=(1100,), mixing=N * N, size=512),
}


@pytest.mark.parametrize("sizes", PRE.values(), ids=list(PRE))
@pytest.mark.parametrize("version", ["", "V2"])
def test_pre(sizes, version):
    inputs = pre_inputs(**sizes)
    h_in, h_post, h_res, *kept = pre(*doubles(*inputs))
    outs = [Out(tuple(h_in.shape), inputs[0].dtype), Out(tuple(h_post.shape))]
    outs += [Out((1,) if h_res is None else tuple(h_res.shape))]
    more = [Out(tuple(each.shape)) for each in kept]
    mode = [1] if version else []
    expected = [h_in, h_post, torch.zeros(1) if h_res is None else h_res, *kept]
    for result in (more, [None] * 3):
        actual = written_by(f"aclnnMhcPre{version}", *inputs, NORM, EPSILON, *mode, *outs, *result)
        for each, exact in zip(actual, expected, strict=False):
            near(each, exact)


@pytest.mark.parametrize("name", ["tokens", "batch", "one", "permutations", "more than at a time"])
@pytest.mark.parametrize("version", ["", "V2"])
def test_the_gradient_of_pre(name, version):
    inputs = pre_inputs(**PRE[name])
    leaves = doubles(*inputs)
    h_in, h_post, h_res, inverse, mixed, h_pre = pre(*leaves)
    grads = [torch.randn_like(each).float() for each in (h_in, h_post, h_res)]
    grads[0] = grads[0].to(inputs[0].dtype)
    post = torch.randn_like(leaves[0]).to(inputs[0].dtype) if name != "one" else None
    wanted = [leaf for leaf in leaves if leaf is not None]
    expected = list(torch.autograd.grad([h_in, h_post, h_res], wanted, [each.double() for each in grads]))
    if post is not None:
        expected[0] = expected[0] + post.double()
    x, phi, alpha, _, gamma = inputs
    kept = [each.detach().float() for each in (inverse, mixed, h_pre, h_post)]
    mode = [0] if version else []
    outs = like(*(each for each in inputs if each is not None)) + ([None] if gamma is None else [])
    name = f"aclnnMhcPreBackward{version}"
    actual = written_by(name, x, phi, alpha, *grads, *kept, gamma, post, Float(EPSILON), *mode, *outs)
    for each, exact in zip(actual, expected, strict=True):
        near(each, exact, rtol=2e-4)


@pytest.mark.parametrize("name", ["tokens", "batch", "one"])
def test_pre_and_its_gradient_by_their_names_in_torch_npu(name):
    inputs = pre_inputs(**PRE[name])
    leaves = doubles(*inputs)
    expected = pre(*leaves)
    x, phi, alpha, bias, gamma = (each if each is None else each.npu() for each in inputs)
    found = torch_npu.npu_mhc_pre(x, phi, alpha, bias, gamma=gamma, norm_eps=NORM, hc_eps=EPSILON, out_flag=1)
    for each, exact in zip(found, expected, strict=True):
        near(each.cpu(), exact)
    grads = [torch.randn_like(each) for each in found[:3]]
    _, h_post, _, inverse, mixed, h_pre = found
    kept = (inverse, mixed, h_pre, h_post)
    found = torch_npu.npu_mhc_pre_backward(x, phi, alpha, *grads, *kept, gamma=gamma, hc_eps=EPSILON)
    wanted = [leaf for leaf in leaves if leaf is not None]
    expected = torch.autograd.grad(expected[:3], wanted, [each.cpu().double() for each in grads])
    for each, exact in zip(found, expected, strict=False):
        near(each.cpu(), exact, rtol=2e-4)


@pytest.mark.parametrize("tokens", [(37,), (2, 5), (1,), (1100,)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_post_and_its_gradient(tokens, dtype):
    size = 512
    x, h_out, dy = (torch.randn(*tokens, *shape, size).to(dtype) for shape in [(N,), (), (N,)])
    h_res, h_post = torch.rand(*tokens, N, N), torch.rand(*tokens, N)
    leaves = doubles(x, h_res, h_out, h_post)
    y = torch.einsum("...ij,...id->...jd", leaves[1], leaves[0]) + leaves[3][..., None] * leaves[2][..., None, :]
    (actual,) = written_by("aclnnMhcPost", x, h_res, h_out, h_post, *like(x))
    near(actual, y)
    expected = torch.autograd.grad(y, leaves, dy.double())
    results = written_by("aclnnMhcPostBackward", dy, x, h_res, h_out, h_post, *like(x, h_res, h_out, h_post))
    for each, exact in zip(results, expected, strict=True):
        near(each, exact)


def sinkhorn(matrix, iterations):
    """From the softmax, plus epsilon, on."""
    matrix = matrix / (matrix.sum(-2, keepdim=True) + EPSILON)
    for _ in range(iterations - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + EPSILON)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + EPSILON)
    return matrix


@pytest.mark.parametrize("shape", [(37, 4, 4), (2, 5, 6, 6), (1, 8, 8)])
@pytest.mark.parametrize("iterations", [1, 20])
def test_sinkhorn_and_its_gradient(shape, iterations):
    x, dy = torch.randn(shape), torch.randn(shape)
    n, tokens = shape[-1], math.prod(shape[:-2])
    kept = Out((2 * iterations * tokens * n * 8,)), Out((2 * iterations * tokens * 8,))
    (first,) = doubles((x.double().softmax(-1) + EPSILON).detach())
    y = sinkhorn(first, iterations)
    (alone,) = written_by("aclnnMhcSinkhorn", x, Float(EPSILON), iterations, Out(shape), None, None)
    actual, norm, total = written_by("aclnnMhcSinkhorn", x, Float(EPSILON), iterations, Out(shape), *kept)
    near(actual, y)
    assert torch.equal(actual, alone)
    last = norm.view(2 * iterations, n, 8, tokens)[-1, :, :n].permute(2, 0, 1)
    assert torch.equal(last.reshape(shape), actual)
    (dx,) = written_by("aclnnMhcSinkhornBackward", dy, norm, total, Out(shape))
    # CANN's formula takes the first step's result for the softmax, which is less by epsilon.
    (gradient,) = torch.autograd.grad(y, first, dy.double())
    near(dx, (gradient - (gradient * first).sum(-1, keepdim=True)) * first, rtol=2e-4)


REJECTED = {
    "streams": ("aclnnMhcPost", [torch.ones(2, 6, 128).half()], "x has 6 streams, shape [2, 6, 128]; expected 4"),
    "size": ("aclnnMhcPost", [torch.ones(2, 4, 64).half()], "x has streams of 64 numbers; expected a multiple of 128"),
    "matrices": ("aclnnMhcSinkhorn", [torch.ones(2, 5, 5)], "x has matrices of 5 rows; expected 4, 6 or 8"),
    "iterations": ("aclnnMhcSinkhorn", [torch.ones(2, 4, 4)], "num_iters is 101; expected 1 to 100"),
    "phi": ("aclnnMhcPre", [torch.ones(2, 4, 128).half()], "phi has shape [8, 512]; expected 24 rows, as alpha has 3"),
}


@pytest.mark.parametrize("name, inputs, message", REJECTED.values(), ids=list(REJECTED))
def test_bad_arguments_are_rejected(name, inputs, message):
    (x,) = inputs
    of_tokens = torch.ones(*x.shape[:-2], x.shape[-1]).to(x.dtype)
    arguments = {
        "aclnnMhcPost": [torch.ones(*x.shape[:-1], x.shape[-2]), of_tokens, torch.ones(x.shape[:-1]), *like(x)],
        "aclnnMhcSinkhorn": [Float(EPSILON), 101, *like(x), None, None],
        "aclnnMhcPre": [
            *(torch.ones(8, 512), torch.ones(3), torch.ones(8), None, NORM, EPSILON),
            *(Out((2, 128), torch.float16), Out((2, 4)), Out((2, 4, 4)), None, None, None),
        ],
    }
    with pytest.raises(Rejected) as rejected:
        written_by(name, x, *arguments[name])
    assert message in str(rejected.value)
