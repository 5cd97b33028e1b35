# SPDX-License-Identifier: Apache-2.0
"""Functions that other tests call as C functions or through autograd, by their names in torch_npu."""

import itertools
import math
import os
import pathlib
import sys

import fresh
import pytest
import torch
import torch.nn.functional as F
import torch_npu
from torch.testing import assert_close


def floats(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gradients(function, grad, *inputs):
    """Of a function of float64."""
    leaves = [x.double().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*leaves), leaves, grad.double(), allow_unused=True)


def sinkhorn(matrix, iterations=3, epsilon=1e-6):
    matrix = matrix.double().softmax(-1) + epsilon
    matrix = matrix / (matrix.sum(-2, keepdim=True) + epsilon)
    for _ in range(iterations - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + epsilon)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + epsilon)
    return matrix


def added_norm(x1, x2, gamma):
    return F.layer_norm(x1 + x2, gamma.shape, gamma, None, 1e-5)


def hyper_post(x, h_res, h_out, h_post):
    return (h_res.transpose(-1, -2) @ x) + h_post.unsqueeze(-1) * h_out.unsqueeze(-2)


def convolved(x, weight):
    """x[S, B, H], weight[3, H]: y[t] is the sum of w[k] * x[t - 2 + k]."""
    padded = F.pad(x, (0, 0, 0, 0, 2, 0))
    return sum(weight[k] * padded[k : k + len(x)] for k in range(3))


def softmax_gradient(grad, y, mask, scale):
    inner = (grad - (grad * y).sum(-1, keepdim=True)) * y * scale
    return inner.masked_fill(mask, 0)


def attention(query, key, value, scale):
    return (query @ key.mT * scale).softmax(-1) @ value


X, Y, GAMMA = floats(5, 7), floats(5, 7, seed=1), floats(7, seed=2)
MEAN = (X + Y).mean(-1, keepdim=True)
RSTD = ((X + Y).var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
GRAD = floats(5, 7, seed=3)
INDEX = torch.tensor([3, 0, 3])
POST = [floats(11, 4, 128), floats(11, 4, 4, seed=1), floats(11, 128, seed=2), floats(11, 4, seed=3)]
HALF_POST = [POST[0].bfloat16(), POST[1], POST[2].bfloat16(), POST[3]]
MATRIX = floats(13, 4, 4)
PROBABILITIES, MASK = floats(2, 3, 5, 32).softmax(-1).half(), floats(2, 1, 5, 32, seed=1) > 0
SOFTMAX_GRAD = floats(2, 3, 5, 32, seed=2).half()
SEQUENCE = [floats(6, 2, 64).bfloat16(), floats(3, 64, seed=1).bfloat16(), floats(6, 2, 64, seed=2).bfloat16()]
TOKENS, CHOICES = floats(7, 16), torch.stack([torch.randperm(5)[:2] for _ in range(7)]).int()
QKV = [floats(2, 3, 17, 16, seed=seed).half() for seed in range(3)]
ROWS = [floats(6, 8).half(), floats(6, 5, seed=1).half()]
TOTALS, GROUPS = floats(3 * 8, 5, seed=2), torch.tensor([2, 2, 6])


def summed_groups(total, x, weight, ends):
    starts = [0, *ends.tolist()]
    products = [x[a:b].double().T @ weight[a:b].double() for a, b in itertools.pairwise(starts)]
    return total.double() + torch.cat(products)


# What torch_npu's function gives for these inputs, and what it should give.
CASES = {
    "_npu_index_add": (
        lambda x, i, s: torch_npu._npu_index_add(x, i, s, alpha=2),
        lambda x, i, s: x.index_add(0, i, s, alpha=2),
        [X, INDEX, GRAD[:3]],
    ),
    "_npu_index_add_": (
        lambda x, i, s: torch_npu._npu_index_add_(x, i, s, alpha=2),
        lambda x, i, s: x.index_add(0, i, s, alpha=2),
        [X, INDEX, GRAD[:3]],
    ),
    "npu_add_layer_norm_backward": (
        lambda *t: torch_npu.npu_add_layer_norm_backward(*t, None),
        lambda dy, x1, x2, rstd, mean, gamma: [*gradients(added_norm, dy, x1, x2, gamma), dy.sum(0)],
        [GRAD, X, Y, RSTD, MEAN, GAMMA],
    ),
    "npu_confusion_transpose": (
        lambda x: torch_npu.npu_confusion_transpose(x, [1, 0, 2], [7, 1, 5], False),
        lambda x: x.reshape(7, 1, 5).permute(1, 0, 2),
        [X],
    ),
    "npu_indexing": (
        lambda x: torch_npu.npu_indexing(x, [1, 0], [5, 7], [2, 3]),
        lambda x: x[1:5:2, 0:7:3],
        [X],
    ),
    "npu_linear": (torch_npu.npu_linear, F.linear, [X, floats(3, 7, seed=5), floats(3, seed=6)]),
    "npu_linear without bias": (torch_npu.npu_linear, F.linear, [X, floats(3, 7, seed=5)]),
    "npu_conv2d": (
        lambda x, w: torch_npu.npu_conv2d(x, w, None, [2, 1], [1, 0], [1, 1], 1),
        lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 0)),
        [floats(2, 3, 7, 9), floats(4, 3, 3, 3)],
    ),
    "npu_masked_causal_conv1d_backward": (
        lambda x, w, dy: torch_npu.npu_masked_causal_conv1d_backward(dy, x, w),
        lambda x, w, dy: gradients(convolved, dy, x, w),
        SEQUENCE,
    ),
    "npu_mhc_post": (torch_npu.npu_mhc_post, lambda *t: hyper_post(*[x.double() for x in t]), HALF_POST),
    "npu_mhc_post_backward": (
        lambda *t: torch_npu.npu_mhc_post_backward(t[0], *t),
        lambda *t: gradients(hyper_post, t[0], *t),
        HALF_POST,
    ),
    "npu_mhc_sinkhorn": (lambda x: torch_npu.npu_mhc_sinkhorn(x, num_iters=3)[0], sinkhorn, [MATRIX]),
    "npu_mhc_sinkhorn_backward": (
        lambda x, dy: torch_npu.npu_mhc_sinkhorn_backward(
            dy, *torch_npu.npu_mhc_sinkhorn(x, num_iters=3, out_flag=1)[1:]
        ),
        lambda x, dy: gradients(sinkhorn, dy, x)[0],
        [MATRIX, floats(13, 4, 4, seed=1)],
    ),
    "npu_scaled_masked_softmax_backward": (
        lambda dy, y, m: torch_npu.npu_scaled_masked_softmax_backward(dy, y, m, 0.5, False),
        lambda dy, y, m: softmax_gradient(dy.double(), y.double(), m, 0.5),
        [SOFTMAX_GRAD, PROBABILITIES, MASK],
    ),
    "npu_grouped_matmul_add": (
        torch_npu.npu_grouped_matmul_add,
        summed_groups,
        [TOTALS, *ROWS, GROUPS],
    ),
    "npu_moe_token_permute": (
        lambda x, i: torch_npu.npu_moe_token_permute(x, i)[0],
        lambda x, i: x[i.flatten().sort(stable=True)[1] // 2],
        [TOKENS, CHOICES],
    ),
    "npu_moe_token_unpermute": (
        lambda x, i: torch_npu.npu_moe_token_unpermute(*torch_npu.npu_moe_token_permute(x, i), torch.ones(7, 2).npu()),
        lambda x, i: x * 2,
        [TOKENS, CHOICES],
    ),
    "npu_rms_norm_backward": (
        lambda dy, x, g: torch_npu.npu_rms_norm_backward(dy, x, g, torch_npu.npu_rms_norm(x, g)[1]),
        lambda dy, x, g: gradients(lambda a, b: F.rms_norm(a, b.shape, b, 1e-6), dy, x, g),
        [GRAD, X, GAMMA],
    ),
    "npu_swiglu_backward": (
        torch_npu.npu_swiglu_backward,
        lambda dy, x: gradients(lambda a: F.silu(a[:, :3]) * a[:, 3:], dy, x)[0],
        [floats(5, 3), floats(5, 6)],
    ),
    "npu_fast_gelu_backward": (
        torch_npu.npu_fast_gelu_backward,
        lambda dy, x: gradients(lambda a: a * torch.sigmoid(1.702 * a), dy, x)[0],
        [GRAD, X],
    ),
    "npu_gelu_backward": (
        lambda dy, x: torch_npu.npu_gelu_backward(dy, x, approximate="tanh"),
        lambda dy, x: gradients(lambda a: F.gelu(a, approximate="tanh"), dy, x)[0],
        [GRAD, X],
    ),
    "npu_fusion_attention_v3": (
        lambda q, k, v: torch_npu.npu_fusion_attention_v3(q, k, v, 3, "BNSD", scale=0.25)[0],
        lambda q, k, v: attention(q.double(), k.double(), v.double(), 0.25),
        QKV,
    ),
}


def float8(*shape, seed):
    return floats(*shape, seed=seed).to(torch.float8_e4m3fn)


def exponents(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(124, 130, shape, generator=generator).to(torch.uint8).view(torch.float8_e8m0fnu)


def scaled(x, scale):
    """Rows of 64 numbers times the two exponents of each."""
    return x.double() * scale.double().reshape(len(x), 2).repeat_interleave(32, 1)


PRODUCT = [floats(5, 7), float8(5, 64, seed=1), float8(64, 7, seed=2)]
for name in ("npu_add_quant_matmul", "npu_add_quant_matmul_"):
    CASES[name] = (
        lambda y, a, b, s, t, name=name: getattr(torch_npu, name)(y, a, b, s, x1_scale=t, group_sizes=[1, 1, 32]),
        lambda y, a, b, s, t: y.double() + scaled(a, t) @ scaled(b.T, s).T,
        [*PRODUCT, exponents(1, 7, 2, seed=3), exponents(5, 1, 2, seed=4)],
    )
for name in ("npu_add_quant_gmm", "npu_add_quant_gmm_"):  # one group, after which the scales have a row without use
    CASES[name] = (
        lambda y, a, b, s, g, t, name=name: getattr(torch_npu, name)(y[None], a, b, s, g, x1_scale=t)[0],
        lambda y, a, b, s, g, t: y.double() + scaled(a, t.double()[0]) @ scaled(b.T, s.double()[0]).T,
        [*PRODUCT, exponents(2, 7, 2, seed=3), torch.tensor([64]), exponents(2, 5, 2, seed=4)],
    )
BOXES = [torch.tensor([[0.0, 0, 4, 2], [1, 1, 3, 3]]), torch.tensor([[0.0, 0, 4, 2], [2, 0, 6, 2], [5, 5, 6, 6]])]
SHARED, AREAS = torch.tensor([[8.0, 2], [4, 1], [0, 0]]), [((x[:, 2:] - x[:, :2]) + 0.01).prod(-1) for x in BOXES]
OVERLAPS = SHARED / (AREAS[0] + AREAS[1][:, None] - SHARED)
for name in ("npu_iou", "npu_ptiou"):  # sides are larger by 0.01
    CASES[name] = (getattr(torch_npu, name), lambda a, b: OVERLAPS, [x.half() for x in BOXES])
for name in ("npu_fusion_attention_grad", "npu_fusion_attention_grad_v3"):

    def differentiated(q, k, v, name=name):
        forward = torch_npu.npu_fusion_attention_v3 if name.endswith("v3") else torch_npu.npu_fusion_attention
        out, maximum, total, *_ = forward(q, k, v, 3, "BNSD", scale=0.25)
        kept = dict(softmax_max=maximum, softmax_sum=total, attention_in=out)
        return getattr(torch_npu, name)(q, k, v, q, 3, "BNSD", scale_value=0.25, **kept)[:3]

    CASES[name] = (differentiated, lambda q, k, v: gradients(lambda *t: attention(*t, 0.25), q, q, k, v), QKV)


def tuple_of(result):
    return [result] if isinstance(result, torch.Tensor) else [x for x in result if x is not None]


@pytest.mark.parametrize("name", CASES)
def test_a_name_of_torch_npu_gives_the_reference(name):
    function, reference, inputs = CASES[name]
    results = tuple_of(function(*[x.npu() for x in inputs]))
    for got, wanted in zip(results, tuple_of(reference(*inputs)), strict=True):
        got, tolerance = got.cpu(), 2e-5 if got.dtype == torch.float32 else math.sqrt(torch.finfo(got.dtype).eps) / 8
        assert_close(got.double(), wanted.double(), rtol=tolerance, atol=tolerance)


def shapes(results):
    return [(x.shape, x.dtype) for x in results]


def test_attention_gives_what_graphs_ask_for_before_they_call_it():
    """Empty results, and the most workspace that any lengths need; the functions with `out` take both."""
    q, k, v = (x.npu() for x in QKV)
    of_v1 = dict(num_heads=3, input_layout="BNSD", softmax_lse_flag=True)
    of_v2 = dict(num_query_heads=3, input_layout="BNSD", return_softmax_lse=True)
    for name, options in {"": of_v1, "_v2": of_v2}.items():
        operator = getattr(torch_npu, f"npu_fused_infer_attention_score{name}")
        infer = getattr(torch_npu, f"_npu_fused_infer_attention_score{name}_infer_output")
        find_workspace = getattr(torch_npu, f"_npu_fused_infer_attention_score{name}_get_max_workspace")
        expected, outputs = operator(q, k, v, **options), infer(q, v, **options)
        assert shapes(outputs) == shapes(expected)
        operator.out(q, k, v, **options, workspace=find_workspace(q, k, v, **options), out=[x.zero_() for x in outputs])
        assert all(torch.equal(got, want) for got, want in zip(outputs, expected, strict=True))


def test_attention_of_training_gives_what_graphs_ask_for_before_they_call_it():
    tokens = [x.npu().transpose(1, 2).flatten(0, 1) for x in QKV]
    of_tokens = dict(head_num=3, input_layout="TND", actual_seq_qlen=torch.tensor([17, 34]))
    of_tokens["actual_seq_kvlen"] = of_tokens["actual_seq_qlen"]
    out, maximum, total, *_ = forward = torch_npu.npu_fusion_attention_v3(*tokens, **of_tokens)
    assert shapes(torch_npu._npu_fusion_attention_v3_infer_output(*tokens, 3, "TND")) == shapes(forward[:3])
    kept = dict(softmax_max=maximum, softmax_sum=total, attention_in=out)
    gradients = torch_npu.npu_fusion_attention_grad_v3(*tokens, out, **of_tokens, **kept)
    inferred = torch_npu._npu_fusion_attention_grad_v3_infer_output(*tokens)
    assert shapes(inferred[:3]) == shapes(gradients[:3])
    find, find_backward = (
        getattr(torch_npu, f"_npu_fusion_attention_{name}_get_max_workspace") for name in ("v3", "grad_v3")
    )
    for workspace in (find(*tokens, **of_tokens), find_backward(*tokens, out, **of_tokens, **kept)):
        assert workspace.dim() == 1 and workspace.device == out.device


NEXT_CHIP = pathlib.Path(__file__).with_name("next_chip_cases.py")


def test_names_of_the_next_chip():
    """torch_npu reads the chip once a process."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", NEXT_CHIP.name]
    variables = os.environ | {"CANN_CPU_SOC": "Ascend950PR_9579"}
    result = fresh.run(command, cwd=NEXT_CHIP.parent, env=variables)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
