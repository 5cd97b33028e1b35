# SPDX-License-Identifier: Apache-2.0
"""Every built-in node type is bitwise equal to eager: one table of functions, compiled with torchair."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu
import torchair

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32)


def compiled(function, *, dynamic):
    torch._dynamo.reset()
    return torch.compile(function, backend=torchair.get_npu_backend(), dynamic=dynamic, fullgraph=True)


def make(spec, dtype, seed=0):
    """A tensor on the NPU from its sizes, or from ("int", high, sizes), ("bool", sizes), ("positive", sizes)."""
    generator = torch.Generator().manual_seed(seed)
    kind = spec[0] if spec and isinstance(spec[0], str) else "normal"
    if kind == "int":
        return torch.randint(0, spec[1], spec[2], generator=generator).npu()
    if kind == "bool":
        return (torch.rand(spec[1], generator=generator) > 0.5).npu()
    if kind == "positive":
        return (torch.rand(spec[1], generator=generator) + 0.1).to(dtype).npu()
    if dtype.is_floating_point:
        return torch.randn(spec, generator=generator).to(dtype).npu()
    return torch.randint(-9, 9, spec, generator=generator).to(dtype).npu()


def flat(outputs):
    return [outputs] if isinstance(outputs, torch.Tensor) else [leaf for output in outputs for leaf in flat(output)]


def assert_same_bits(actual, expected):
    for got, want in zip(flat(actual), flat(expected), strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        got, want = got.detach().cpu().contiguous(), want.detach().cpu().contiguous()
        if got.dtype.is_floating_point:
            same = (got == want) | (got.isnan() & want.isnan())
            assert same.all(), f"{int((~same).sum())} of {same.numel()} differ: {got[~same][:4]} {want[~same][:4]}"
        else:
            assert torch.equal(got, want)


M = (5, 7)
CASES = [
    # name, function, inputs, dtypes
    ("add", lambda x, y: x + y, [M, M], FLOATS + INTEGERS),
    ("add_broadcast", lambda x, y: x + y, [(5, 1), (1, 7)], FLOATS),
    ("add_scalar", lambda x: x + 2, [M], FLOATS + INTEGERS),
    ("add_alpha", lambda x, y: torch.add(x, y, alpha=2), [M, M], FLOATS + INTEGERS),
    ("add_mixed", lambda x, y: x + y.float(), [M, M], FLOATS),
    ("sub", lambda x, y: x - y, [M, M], FLOATS + INTEGERS),
    ("sub_alpha", lambda x, y: torch.sub(x, y, alpha=4), [M, M], FLOATS),
    ("rsub", lambda x: 1 - x, [M], FLOATS),
    ("mul", lambda x, y: x * y, [M, M], FLOATS + INTEGERS),
    ("mul_scalar", lambda x: x * 1.3, [M], FLOATS),
    ("div", lambda x, y: x / y, [M, ("positive", M)], FLOATS),
    ("div_scalar", lambda x: x / 3, [M], (torch.float32,)),
    ("floor_divide", lambda x, y: x // y, [M, ("positive", M)], FLOATS),
    ("div_trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), [M, ("positive", M)], (torch.float32,)),
    ("remainder", lambda x, y: x % y, [M, ("positive", M)], FLOATS),
    ("pow", lambda x: x**2, [M], FLOATS),
    ("pow_tensor", lambda x, y: x**y, [("positive", M), M], FLOATS),
    ("neg_abs", lambda x: (-x).abs(), [M], FLOATS + INTEGERS),
    ("exp_log", lambda x: (x.exp(), x.log(), x.log2(), x.log10(), x.log1p(), x.expm1()), [("positive", M)], FLOATS),
    ("roots", lambda x: (x.sqrt(), x.rsqrt(), x.reciprocal()), [("positive", M)], FLOATS),
    ("circular", lambda x: (x.sin(), x.cos(), x.tan(), x.atan(), x.sinh(), x.cosh(), x.tanh()), [M], FLOATS),
    (
        "inverse",
        lambda x: (x.asin(), x.acos(), x.asinh(), (x + 1).acosh(), (x / 4).atanh()),
        [("positive", M)],
        (torch.float32,),
    ),
    ("erf", lambda x: (x.erf(), (x / 8).erfinv()), [M], (torch.float32,)),
    ("rounding", lambda x: (x.floor(), x.ceil(), x.round(), x.sign()), [M], FLOATS),
    ("clamp", lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0.25), x.clamp(max=0.25)), [M], FLOATS),
    ("extrema", lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), [M, M], FLOATS + INTEGERS),
    (
        "addcmul",
        lambda x, y, z: (torch.addcmul(x, y, z, value=2), torch.addcdiv(x, y, z, value=2)),
        [M, M, ("positive", M)],
        (torch.float32,),
    ),
    ("lerp", lambda x, y: torch.lerp(x, y, 0.25), [M, M], (torch.float32,)),
    (
        "foreach_binary",
        lambda x, y, z: (
            torch._foreach_add([x, z], [y, z], alpha=-0.1),
            torch._foreach_sub([x, z], [y, z], alpha=3),
            torch._foreach_mul([x, z], [y, z]),
            torch._foreach_add([x, z], 0.3),
            torch._foreach_mul([x, z], 0.9),
            torch._foreach_div([x, z], [3.0, 7.0]),
            torch._foreach_maximum([x, z], [0.1, 0.2]),
        ),
        [M, M, (3,)],
        (torch.float32,),
    ),
    (
        "foreach_ternary",
        lambda x, y, z: (
            torch._foreach_addcmul([x, y], [y, z], [z, x], 0.3),
            torch._foreach_addcdiv([x, y], [y, x], [z, z], [0.3, 2.0]),
            torch._foreach_lerp([x, y], [y, z], 0.3),
            torch._foreach_lerp([x, y], [y, z], [z, x]),
        ),
        [M, M, ("positive", M)],
        (torch.float32,),
    ),
    (
        "foreach_unary",
        lambda x, y: (
            *(torch._foreach_exp([x, y]), torch._foreach_log([x, y]), torch._foreach_sigmoid([x, y])),
            *(torch._foreach_norm([x, y], 2), torch._foreach_pow([x, y], 2.5), torch._foreach_pow(0.9, [x, y])),
        ),
        [("positive", M), ("positive", (3,))],
        (torch.float32,),
    ),
    ("cast", lambda x: (x.float(), x.to(torch.float16), x.to(torch.bfloat16), x.int(), x.bool()), [M], FLOATS),
    ("bits", lambda x, y: (x & y, x | y, ~x), [("int", 99, M), ("int", 99, M)], (torch.int64,)),
    ("compare", lambda x, y: (x > y, x >= y, x < y, x <= y, x == y, x != y), [M, M], FLOATS + INTEGERS),
    ("compare_scalar", lambda x: (x > 0.5, x >= 0.5, x < 0.5, x <= 0.5, x == 0.5, x != 0.5), [M], (torch.float32,)),
    (
        "logic",
        lambda x, y: (x & y, x | y, ~x, torch.logical_and(x, y), torch.logical_or(x, y), x.logical_not()),
        [("bool", M), ("bool", M)],
        (torch.bool,),
    ),
    ("where", lambda x, y: torch.where(x > 0, x, y), [M, M], FLOATS),
    ("masked_fill", lambda x: x.masked_fill(x > 0, -1.5), [M], FLOATS),
    ("isinf", lambda x: (x / 0).isinf(), [M], (torch.float32,)),
    ("sum", lambda x: (x.sum(), x.sum(0), x.sum((0, 1), keepdim=True)), [M], FLOATS + INTEGERS),
    ("mean", lambda x: (x.mean(), x.mean(-1), x.mean(0, keepdim=True)), [M], FLOATS),
    (
        "max",
        lambda x: (x.max(), x.max(1).values, x.max(1).indices, x.argmax(), x.argmax(0), x.argmin(1)),
        [M],
        (torch.float32,),
    ),
    ("std", lambda x: x.std(1), [M], (torch.float32,)),
    ("all_any", lambda x: (x.all(), x.any(), x.any(1)), [("bool", M)], (torch.bool,)),
    ("cumsum", lambda x: (x.cumsum(0), x.cumsum(-1)), [M], (torch.float32, torch.int64)),
    ("norm", lambda x: (torch.linalg.vector_norm(x), torch.linalg.vector_norm(x, 1, 0)), [M], (torch.float32,)),
    ("matmul", lambda x, y: x @ y, [(5, 7), (7, 3)], FLOATS),
    ("matmul_transposed", lambda x, y: (x @ y.t(), x.t() @ y), [(5, 7), (5, 7)], FLOATS),
    ("bmm", lambda x, y: (x @ y, torch.bmm(x, y)), [(2, 5, 7), (2, 7, 3)], FLOATS),
    ("matmul_batched", lambda x, y: x @ y, [(2, 3, 5, 7), (7, 3)], FLOATS),
    ("matmul_vector", lambda x, y: x @ y, [(5, 7), (7,)], (torch.float32,)),
    ("linear", F.linear, [(5, 7), (3, 7)], FLOATS),
    ("linear_with_bias", F.linear, [(33, 257), (65, 257), (65,)], FLOATS),
    ("addmm", lambda x, w, b: torch.addmm(b, x, w, beta=0.5, alpha=2.0), [(33, 257), (257, 65), (65,)], FLOATS),
    ("softmax", lambda x: (x.softmax(-1), x.log_softmax(0)), [M], FLOATS),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, (7,), w, b), [(3, 5, 7), (7,), (7,)], FLOATS),
    ("layer_norm_plain", lambda x: F.layer_norm(x, (7,), eps=1e-3), [M], (torch.float32,)),
    ("rms_norm", lambda x, w: F.rms_norm(x, (7,), w, 1e-6), [M, (7,)], (torch.float32,)),
    (
        "activations",
        lambda x: (x.relu(), x.sigmoid(), F.silu(x), F.gelu(x), F.leaky_relu(x, 0.1), F.elu(x)),
        [M],
        FLOATS,
    ),
    (
        "hard_activations",
        lambda x: (F.hardswish(x), F.hardsigmoid(x), F.hardtanh(x), F.logsigmoid(x), F.mish(x)),
        [M],
        (torch.float32,),
    ),
    ("glu", lambda x: F.glu(x, 1), [(5, 8)], (torch.float32,)),
    ("threshold", lambda x: F.threshold(x, 0.1, 2.0), [M], (torch.float32,)),
    ("embedding", lambda w, i: F.embedding(i, w), [(11, 7), ("int", 11, (3, 4))], FLOATS),
    ("gather", lambda x, i: x.gather(1, i), [M, ("int", 7, (5, 3))], FLOATS),
    ("index", lambda x, i: (x[i], x[:, i], x[i, i]), [(7, 7), ("int", 7, (4,))], FLOATS),
    ("index_select", lambda x, i: x.index_select(1, i), [M, ("int", 7, (4,))], FLOATS),
    ("select", lambda x: (x[0], x[-1], x[:, 2]), [M], FLOATS),
    (
        "scatter",
        lambda x, i, y: (x.scatter(1, i, y), x.scatter(1, i, 3.0)),
        [M, ("int", 1, (5, 1)), (5, 1)],
        (torch.float32,),
    ),
    ("scatter_add", lambda x, i, y: x.scatter_add(1, i, y), [M, ("int", 7, (5, 3)), (5, 3)], (torch.float32,)),
    ("index_add", lambda x, i, y: x.index_add(0, i, y), [M, ("int", 5, (3,)), (3, 7)], (torch.float32,)),
    ("topk", lambda x: x.topk(3), [M], FLOATS),
    ("topk_smallest", lambda x: x.topk(2, dim=0, largest=False), [M], (torch.float32,)),
    ("sort", lambda x: (x.sort(), x.sort(0, descending=True)), [M], FLOATS),
    ("searchsorted", lambda x: torch.searchsorted(x.sort(-1).values, x), [M], (torch.float32,)),
    ("cat", lambda x, y: (torch.cat((x, y), 0), torch.cat((x, y), -1)), [M, M], FLOATS + INTEGERS),
    ("stack", lambda x, y: torch.stack((x, y), 1), [M, M], FLOATS),
    ("split", lambda x: (x.split(3, 1), x.split((1, 4), 0), x.chunk(2, 1)), [M], FLOATS),
    ("unbind", lambda x: x.unbind(0), [M], FLOATS),
    ("slice", lambda x: (x[1:3] * 2, x[:, ::2] * 2, x[..., -2:] * 2), [M], FLOATS),
    (
        "views",
        lambda x: (x.reshape(-1) + 1, x.view(7, 5) + 1, x.unsqueeze(1) + 1, x.unsqueeze(0).squeeze(0) + 1),
        [M],
        FLOATS,
    ),
    ("permute", lambda x: (x.permute(2, 0, 1) + 1, x.transpose(1, 2) + 1, x.mT.contiguous()), [(2, 5, 7)], FLOATS),
    ("expand", lambda x: (x.expand(3, 5, 7) + 1, x.repeat(2, 3)), [M], FLOATS),
    ("pad", lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 0), value=3.0)), [M], FLOATS),
    ("triangles", lambda x: (x.tril(), x.triu(1), x.tril(-1)), [M], FLOATS),
    ("flip", lambda x: (x.flip(0), x.flip(0, 1)), [M], FLOATS),
    ("clone", lambda x: (x.clone(), x.contiguous() + 0), [M], FLOATS),
    ("as_strided", lambda x: torch.as_strided(x, (3, 2), (7, 2), 1) + 1, [M], (torch.float32,)),
    (
        "creation",
        lambda x: (
            torch.zeros_like(x),
            torch.ones_like(x),
            torch.full_like(x, 2.5),
            x.new_zeros(3),
            torch.full((2, 3), 1.5, device=x.device),
            torch.zeros(2, 3, device=x.device),
            torch.ones(4, device=x.device, dtype=x.dtype),
        ),
        [M],
        FLOATS,
    ),
    (
        "arange",
        lambda x: (
            torch.arange(7, device=x.device),
            torch.arange(1, 9, 3, device=x.device),
            torch.arange(0, 1, 0.1, device=x.device),
            torch.linspace(0, 1, 5, device=x.device),
        ),
        [M],
        (torch.float32,),
    ),
    ("slice_scatter", lambda x, y: torch.slice_scatter(x, y, 0, 1, 3), [M, (2, 7)], (torch.float32,)),
    ("select_scatter", lambda x, y: torch.select_scatter(x, y, 0, 1), [M, (7,)], (torch.float32,)),
    ("nan_to_num", lambda x: torch.nan_to_num(x / 0, 1.0, 2.0, 3.0), [M], (torch.float32,)),
    ("prelu", F.prelu, [M, (7,)], (torch.float32,)),
    ("mse", F.mse_loss, [M, M], (torch.float32,)),
    ("conv1d", lambda x, w, b: F.conv1d(x, w, b, 2, 1), [(2, 3, 9), (4, 3, 3), (4,)], (torch.float32,)),
    ("conv2d", lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0)), [(2, 3, 7, 9), (4, 3, 3, 3), (4,)], FLOATS),
    ("conv2d_groups", lambda x, w: F.conv2d(x, w, groups=2), [(2, 4, 7, 9), (6, 2, 3, 3)], (torch.float32,)),
    ("conv3d", lambda x, w: F.conv3d(x, w, None, 1, 1), [(2, 3, 4, 5, 6), (4, 3, 2, 2, 2)], (torch.float32,)),
    (
        "conv_transpose2d",
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1),
        [(2, 4, 5, 6), (4, 3, 3, 3)],
        (torch.float32,),
    ),
    (
        "avg_pool2d",
        lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=3)),
        [(2, 3, 7, 9)],
        (torch.float32,),
    ),
    ("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), [(2, 3, 7, 9)], FLOATS),
    ("max_pool3d", lambda x: F.max_pool3d(x, 2, 1), [(2, 3, 4, 5, 6)], (torch.float32,)),
    ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), [(2, 3, 7, 9)], (torch.float32,)),
    ("nearest", lambda x: F.interpolate(x, (10, 5)), [(2, 3, 7, 9)], FLOATS),
    (
        "grid_sample",
        lambda x, g: F.grid_sample(x, g.sin(), padding_mode="border", align_corners=True),
        [(2, 3, 7, 9), (2, 4, 5, 2)],
        (torch.float32,),
    ),
    ("reflect", lambda x: F.pad(x, (1, 2, 2, 0), mode="reflect"), [(2, 3, 5, 4)], (torch.float32,)),
    ("group_norm", lambda x, w, b: F.group_norm(x, 3, w, b), [(2, 6, 5), (6,), (6,)], (torch.float32,)),
    (
        "batch_norm",
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
        [(2, 6, 5, 4), (6,), ("positive", (6,)), (6,), (6,)],
        (torch.float32,),
    ),
    ("swiglu", lambda x: torch_npu.npu_swiglu(x, -1), [(5, 8)], FLOATS),
    ("add_rms_norm", lambda x, y, w: torch_npu.npu_add_rms_norm(x, y, w, 1e-6), [M, M, (7,)], FLOATS),
    (
        "fast_gelu, rotary_mul",
        lambda x, c, s: torch_npu.npu_rotary_mul(torch_npu.npu_fast_gelu(x), c, s),
        [(2, 3, 5, 64), (1, 1, 5, 64), (1, 1, 5, 64)],
        FLOATS,
    ),
    (
        "grouped_matmul",
        lambda x, w, v, b, c: (
            *torch_npu.npu_grouped_matmul([x, x], [w, v], bias=[b, c], split_item=0, group_type=-1),
            *torch_npu.npu_grouped_matmul([x, x], [w, v], split_item=3, group_type=0),
        ),
        [M, (7, 4), (7, 4), (4,), (4,)],
        (torch.float32, torch.float16),
    ),
    (
        "grouped_matmul of rows",
        lambda x, w, i: torch_npu.npu_grouped_matmul(
            [x], [w], group_list=i + 3, split_item=3, group_type=0, group_list_type=1
        ),
        [(9, 7), (3, 7, 4), ("int", 1, (3,))],
        (torch.float32, torch.bfloat16),
    ),
    (
        "fusion_attention",
        lambda q, k, v: torch_npu.npu_fusion_attention(q, k, v, 3, "BNSD", scale=0.5)[:3],
        [(2, 3, 5, 8)] * 3,
        FLOATS,
    ),
    ("complex", lambda x: torch.view_as_real(torch.view_as_complex(x) * 1), [(5, 2)], (torch.float32,)),
    (
        "foreach_rounding",
        lambda x, y: (torch._foreach_floor([x, y]), torch._foreach_trunc([x, y]), torch._foreach_frac([x, y])),
        [M, (3,)],
        (torch.float32,),
    ),
    (
        "scatter_update",
        lambda x, u: torch_npu.scatter_update(x, torch.tensor([2, 0], device=x.device), u, -2),
        [(2, 3, 5, 4), (2, 3, 1, 4)],
        (torch.float32,),
    ),
    ("attention", lambda q, k, v: ((q @ k.transpose(-2, -1)) * 0.125).softmax(-1) @ v, [(2, 3, 5, 8)] * 3, FLOATS),
]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function, inputs, dtypes", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_graph_gives_the_bits_of_eager(function, inputs, dtypes, dynamic):
    graph = compiled(function, dynamic=dynamic)
    for dtype in dtypes[:1] if dynamic else dtypes:  # where sizes are symbols has nothing to do with types
        arguments = [make(spec, dtype, seed) for seed, spec in enumerate(inputs)]
        assert_same_bits(graph(*arguments), function(*arguments))


GRADIENTS = [
    # name, function, inputs
    ("conv2d", lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 0), groups=2), [(2, 4, 7, 9), (4, 2, 3, 3)]),
    ("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), [(2, 4, 5, 6), (4, 3, 3, 3)]),
    ("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), [(2, 3, 7, 9)]),
    ("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), [(2, 3, 7, 9)]),
    ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), [(2, 3, 7, 9)]),
    ("nearest", lambda x: F.interpolate(x, (10, 5)), [(2, 3, 7, 9)]),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, (7,), w, b), [(3, 5, 7), (7,), (7,)]),
    ("rms_norm", lambda x, w: torch_npu.npu_rms_norm(x, w)[0], [M, (7,)]),
    ("swiglu", lambda x: torch_npu.npu_swiglu(x, -1), [(5, 8)]),
    ("prelu", F.prelu, [(5, 7, 3), (7,)]),
    ("gelu", F.gelu, [M]),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function, inputs", [case[1:] for case in GRADIENTS], ids=[case[0] for case in GRADIENTS])
def test_gradient_of_a_graph_has_the_bits_of_eager(function, inputs, dtype):
    graph = compiled(function, dynamic=False)

    def gradients(call):
        leaves = [make(spec, dtype, seed).requires_grad_() for seed, spec in enumerate(inputs)]
        result = call(*leaves)
        result.backward(make(tuple(result.shape), dtype, 9))
        return [leaf.grad for leaf in leaves]

    assert_same_bits(gradients(graph), gradients(function))
