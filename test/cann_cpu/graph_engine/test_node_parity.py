# SPDX-License-Identifier: Apache-2.0
"""Every built-in node type is bitwise equal to eager: one table of functions, compiled with torchair and captured."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from graphs import MODES, assert_same_bits, compiled


def int8(numbers):
    """Of 0 to 254, whatever dtype they have."""
    return (numbers - 127).to(torch.int8)


FLOATS = (torch.float32, torch.bfloat16, torch.float16)
HALVES = FLOATS[1:]
INTEGERS = (torch.int64, torch.int32)


def make(spec, dtype, seed=0):
    """A tensor on the NPU of sizes, ("int", high, sizes), ("bool", sizes), ("positive", sizes) or ("given", values)."""
    generator = torch.Generator().manual_seed(seed)
    kind = spec[0] if spec and isinstance(spec[0], str) else "normal"
    if kind == "given":
        return torch.tensor(spec[1], dtype=torch.int32).npu()
    if kind == "int":
        return torch.randint(0, spec[1], spec[2], generator=generator).npu()
    if kind == "bool":
        return (torch.rand(spec[1], generator=generator) > 0.5).npu()
    if kind == "positive":
        return (torch.rand(spec[1], generator=generator) + 0.1).to(dtype).npu()
    if dtype.is_floating_point:
        return torch.randn(spec, generator=generator).to(dtype).npu()
    return torch.randint(-9, 9, spec, generator=generator).to(dtype).npu()


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
    ("group_norm", lambda x, w, b: F.group_norm(x, 3, w, b, 1e-3), [(2, 6, 5), (6,), (6,)], (torch.float32,)),
    (
        "batch_norm",
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
        [(2, 6, 5, 4), (6,), ("positive", (6,)), (6,), (6,)],
        (torch.float32,),
    ),
    ("swiglu", lambda x: torch_npu.npu_swiglu(x, -1), [(5, 8)], FLOATS),
    ("ascend_quant", lambda x, s, o: torch_npu.npu_quantize(x, s, o, torch.qint8, -1, False), [M, (7,), (7,)], FLOATS),
    (
        "quantize",
        lambda x, s, z: torch_npu.npu_quantize(x, s.float(), z.int(), torch.qint8, 1, True),
        [M, ("positive", (7,)), ("int", 5, (7,))],
        FLOATS,
    ),
    ("anti_quant", lambda x, s: torch_npu.npu_anti_quant((x * 9).to(torch.int8), s.float()), [M, (7,)], FLOATS),
    ("dynamic_quant", lambda x, s: torch_npu.npu_dynamic_quant(x, smooth_scales=s), [(5, 16), (16,)], HALVES),
    ("dynamic_quant by tensor", lambda x: torch_npu.npu_dynamic_quant(x, quant_mode="pertensor"), [(5, 16)], HALVES),
    ("dynamic_quant_asymmetric", lambda x: torch_npu.npu_dynamic_quant_asymmetric(x), [(5, 16)], HALVES),
    (
        "group_quant",
        lambda x, s, e: torch_npu.npu_group_quant(x, s, e + 5, dst_dtype=torch.int8),
        [M, (1, 7), ("int", 1, (1,))],
        FLOATS,
    ),
    ("trans_quant_param", lambda x: torch_npu.npu_trans_quant_param(x.float(), round_mode=1), [(7,)], FLOATS),
    ("gelu_quant", lambda x: torch_npu.npu_gelu_quant(x, quant_mode="dynamic"), [(5, 16)], FLOATS),
    ("add_rms_norm_cast", lambda x, y, w: torch_npu.npu_add_rms_norm_cast(x, y, w, 1e-6), [M, M, (7,)], HALVES),
    ("geglu", lambda x: torch_npu.npu_geglu(x, -1, 1, True), [(5, 8)], FLOATS),
    ("clipped_swiglu", lambda x: torch_npu.npu_clipped_swiglu(x), [(5, 8)], FLOATS),
    (
        "group_norm_silu",
        lambda x, w, b: torch_npu.npu_group_norm_silu(x, w, b, 2, 1e-3),
        [(2, 4, 3, 3), (4,), (4,)],
        FLOATS,
    ),
    (
        "masked_softmax_with_rel_pos_bias",
        lambda x, m, b: torch_npu.npu_masked_softmax_with_rel_pos_bias(x, m, b, 0.5),
        [(4, 2, 3, 5), (2, 3, 5), (2, 3, 5)],
        FLOATS,
    ),
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
        "quant_matmul",
        lambda a, b, s, t, c: (
            torch_npu.npu_quant_matmul(int8(a), int8(b), s, pertoken_scale=t, output_dtype=torch.float16),
            torch_npu.npu_quant_matmul(int8(a), int8(b), s, bias=c.int(), output_dtype=torch.int32),
            torch_npu.npu_quant_matmul(int8(a), int8(b), s.bfloat16(), output_dtype=torch.bfloat16),
        ),
        [("int", 255, (5, 32)), ("int", 255, (32, 16)), ("positive", (16,)), ("positive", (5,)), ("int", 99, (16,))],
        (torch.float32,),
    ),
    (
        "weight_quant_batchmatmul",
        lambda x, w, s, o: (
            torch_npu.npu_weight_quant_batchmatmul(x, int8(w), s[0], o[0]),
            torch_npu.npu_weight_quant_batchmatmul(x, int8(w), s, o, antiquant_group_size=32),
        ),
        [(5, 64), ("int", 255, (64, 16)), (2, 16), (2, 16)],
        (torch.float16, torch.bfloat16),
    ),
    (
        "grouped_matmul of int8",
        lambda x, w, s, t, i: (
            *torch_npu.npu_grouped_matmul(
                [int8(x)],
                [int8(w)],
                scale=[s],
                per_token_scale=[t],
                group_list=i + 3,
                split_item=3,
                group_type=0,
                group_list_type=1,
                output_dtype=torch.float16,
            ),
            *torch_npu.npu_grouped_matmul_swiglu_quant_v2(
                int8(x), [int8(w)], [s], t, i + 3, group_list_type=1, quant_dtype=1
            ),
        ),
        [("int", 255, (9, 32)), ("int", 255, (3, 32, 16)), ("positive", (3, 16)), ("positive", (9,)), ("int", 1, (3,))],
        (torch.float32,),
    ),
    (
        "grouped_matmul_finalize_routing",
        lambda x, w, s, t, i, j, r: torch_npu.npu_grouped_matmul_finalize_routing(
            int8(x), int8(w), i + 3, scale=s, pertoken_scale=t, logit=j, row_index=r, output_bs=4
        ),
        [
            *(("int", 255, (9, 32)), ("int", 255, (3, 32, 16)), ("positive", (3, 16)), ("positive", (9,))),
            *(("int", 1, (3,)), ("positive", (9,)), ("int", 4, (9,))),
        ],
        (torch.float32,),
    ),
    (
        "transpose_batchmatmul",
        lambda a, b: (
            torch_npu.npu_transpose_batchmatmul(a, b),
            torch_npu.npu_transpose_batchmatmul(a, b, batch_split_factor=2),
        ),
        [(4, 5, 32), (4, 32, 16)],
        (torch.float16, torch.bfloat16),
    ),
    (
        "ffn",
        lambda x, w, v: (
            torch_npu.npu_ffn(x, w[0], v[0], "gelu"),
            torch_npu.npu_ffn(x, w, v, "relu", expert_tokens=[2, 3]),
        ),
        [(5, 32), (2, 32, 48), (2, 48, 32)],
        (torch.float16,),
    ),
    (
        "quant_matmul_dequant",
        lambda x, w, s, i: (
            torch_npu.npu_quant_matmul_dequant(x, int8(w[0]), s[0].float()),
            torch_npu.npu_quant_grouped_matmul_dequant(x, int8(w), s.float(), (i + 3).cumsum(0)),
        ),
        [(9, 32), ("int", 255, (3, 16, 32)), ("positive", (3, 16)), ("int", 1, (3,))],
        (torch.float16,),
    ),
    (
        "fusion_attention",
        lambda q, k, v: torch_npu.npu_fusion_attention(q, k, v, 3, "BNSD", scale=0.5)[:3],
        [(2, 3, 5, 8)] * 3,
        FLOATS,
    ),
    (
        "activations_backward",
        lambda dy, x, half: (
            torch_npu.npu_fast_gelu_backward(dy, x),
            torch_npu.npu_gelu(x, approximate="tanh"),
            torch_npu.npu_gelu_backward(dy, x, approximate="tanh"),
            torch_npu.npu_swiglu_backward(half, x),
        ),
        [(5, 8), (5, 8), (5, 4)],
        FLOATS,
    ),
    (
        "rms_norm_backward",
        lambda dy, x, w, r: torch_npu.npu_rms_norm_backward(dy, x, w, r.float()),
        [M, M, (7,), ("positive", (5, 1))],
        FLOATS,
    ),
    (
        "scatter_nd_update",
        lambda x, i, u: torch_npu.npu_scatter_nd_update(x, i, u),
        [M, ("given", [[3], [0]]), (2, 7)],
        FLOATS,
    ),
    ("linear_by_name", torch_npu.npu_linear, [(5, 7), (3, 7), (3,)], FLOATS),
    (
        "fused_infer_attention_score",
        lambda q, k, v: torch_npu.npu_fused_infer_attention_score(
            q,
            k,
            v,
            num_heads=4,
            num_key_value_heads=2,
            scale=0.5,
            input_layout="BNSD_BSND",
            softmax_lse_flag=True,
            actual_seq_lengths=[5, 3],
            actual_seq_lengths_kv=[6, 6],
        ),
        [(2, 4, 5, 16), (2, 2, 6, 16), (2, 2, 6, 16)],
        HALVES,
    ),
    (
        "fused_infer_attention_score from pages",
        lambda q, k, v, t: torch_npu.npu_fused_infer_attention_score(
            q,
            k,
            v,
            num_heads=4,
            num_key_value_heads=2,
            scale=0.5,
            input_layout="TND",
            block_table=t.int(),
            block_size=16,
            actual_seq_lengths=[1, 2],
            actual_seq_lengths_kv=[30, 17],
        )[0],
        [(2, 4, 16), (5, 2, 16, 16), (5, 2, 16, 16), ("int", 5, (2, 2))],
        HALVES,
    ),
    (
        "fused_infer_attention_score_v2",
        lambda q, k, v, s: torch_npu.npu_fused_infer_attention_score_v2(
            q,
            k,
            v,
            num_query_heads=4,
            num_key_value_heads=2,
            softmax_scale=0.5,
            input_layout="BSH",
            learnable_sink=s,
        )[0],
        [(2, 5, 64), (2, 6, 32), (2, 6, 32), (4,)],
        HALVES,
    ),
    (
        "prompt_flash_attention",
        lambda q, k, v: torch_npu.npu_prompt_flash_attention(
            q, k, v, num_heads=4, num_key_value_heads=2, scale_value=0.5, input_layout="BNSD", next_tokens=65535
        ),
        [(2, 4, 5, 16), (2, 2, 6, 16), (2, 2, 6, 16)],
        HALVES,
    ),
    (
        "incre_flash_attention",
        lambda q, k, v: torch_npu.npu_incre_flash_attention(
            q, k, v, num_heads=4, num_key_value_heads=2, scale_value=0.5, input_layout="BNSD"
        ),
        [(2, 4, 1, 16), (2, 2, 6, 16), (2, 2, 6, 16)],
        HALVES,
    ),
    (
        "scatter_pa_kv_cache",
        lambda k, v, kc, vc, slots: torch_npu.npu_scatter_pa_kv_cache_functional(
            k, v, kc, vc, slots, cache_mode="Norm"
        ),
        [(2, 2, 16), (2, 2, 16), (3, 16, 2, 16), (3, 16, 2, 16), ("given", [3, 40])],
        FLOATS,
    ),
    (
        "quant_scatter",
        lambda c, u, s, i: torch_npu.npu_quant_scatter(c.to(torch.int8), i, u, s.float(), None, 1, -1),
        [(2, 9, 3, 32), (2, 1, 3, 32), ("positive", (32,)), ("given", [3, 1])],
        (torch.float16,),
    ),
    (
        "attention_update",
        lambda a, b, x, y: torch_npu.npu_attention_update([a.float(), b.float()], [x, y], 0)[0],
        [(5,), (5,), (5, 16), (5, 16)],
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
        lambda x, u, i: torch_npu.scatter_update(x, i.long(), u, -2),
        [(2, 3, 5, 4), (2, 3, 1, 4), ("given", [2, 0])],
        (torch.float32,),
    ),
    ("attention", lambda q, k, v: ((q @ k.transpose(-2, -1)) * 0.125).softmax(-1) @ v, [(2, 3, 5, 8)] * 3, FLOATS),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function, inputs, dtypes", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_graph_gives_the_bits_of_eager(function, inputs, dtypes, mode):
    graph = MODES[mode](function)
    for dtype in dtypes[:1] if mode == "dynamic" else dtypes:  # where sizes are symbols has nothing to do with types
        arguments = [make(spec, dtype, seed) for seed, spec in enumerate(inputs)]
        expected = function(*arguments)
        assert_same_bits(graph(*arguments), expected)


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
