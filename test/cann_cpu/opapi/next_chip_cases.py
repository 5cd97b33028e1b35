# SPDX-License-Identifier: Apache-2.0
"""Functions that torch_npu calls on Ascend 950 alone, by their names in torch_npu: each gives the bits of its aclnn
function, which other tests compare with a reference. test_public_names.py runs it."""

import ctypes

import hifloat8
import pytest
import torch
import torch_npu
from aclnn import InOut, Out, written_by

ALL = 2147483647
BF16, E4M3, E8M0 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e8m0fnu


def floats(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def data(x):
    """What torch_npu takes for hifloat8."""
    return x.view(torch.uint8)


Q, K, V = (hifloat8.random(1, tokens, 2, 128, seed=tokens, below=3) for tokens in (5, 7, 7))
ONE, FACTOR = torch.ones(1, 2, 1, 1), torch.tensor([64.0])
STATISTICS = Out((1, 2, 5, 1))
MAXIMUM, SUM = floats(1, 2, 5, 1).abs() + 9, floats(1, 2, 5, 1, seed=1).abs() + 1
RESULT = floats(1, 5, 2, 128, dtype=BF16)
SCORE = [0.125, ALL, ALL, 2, "BSND", 0]
FORWARD = ["aclnnQuantFlashAttentionScore", Q, K, V, None]
GRADIENT = ["aclnnQuantFlashAttentionScoreGrad", Q, K, V, Q, None, MAXIMUM, SUM, RESULT]
OF_QUERIES = dict(d_scale_q=ONE, d_scale_k=ONE, d_scale_v=ONE)
IMAGE, FILTER, MOVES = floats(1, 4, 5, 5), floats(2, 4, 3, 3), floats(1, 27, 5, 5)
POINTS, GRAD = floats(1, 4, 15, 15), floats(1, 2, 5, 5, seed=3)
CONVOLUTION = [[3, 3], [1] * 4, [1] * 4, [1] * 4, 1, 1, True]
BOXES = torch.rand(4, 1024, generator=torch.Generator().manual_seed(0)) * 9
ADAM = [0.9, 0.99, 0.01, 0.9, 0.99, 1e-8]
X = floats(3, 128, dtype=BF16)
X8, EXPONENTS = floats(5, 64).to(E4M3), torch.full((5, 1, 2), 126, dtype=torch.uint8).view(E8M0)


def npu(tensors):
    return {name: each.npu() for name, each in tensors.items()}


def attended():
    return torch_npu.npu_quant_fusion_attention(
        data(Q).npu(), data(K).npu(), data(V).npu(), 2, "BSND", **npu(OF_QUERIES), p_scale=FACTOR.npu(), scale=0.125,
        query_dtype=torch_npu.hifloat8,
    )[:3]  # fmt: skip


def differentiated():
    kept = dict(softmax_max=MAXIMUM, softmax_sum=SUM, attention_in=RESULT, p_scale=FACTOR, ds_scale=FACTOR)
    return torch_npu.npu_quant_fusion_attention_backward(
        *[data(x).npu() for x in (Q, K, V, Q)], 2, "BSND", **npu(OF_QUERIES), d_scale_dy=ONE.npu(), **npu(kept),
        scale_value=0.125, query_dtype=torch_npu.hifloat8,
    )[:3]  # fmt: skip


def optimised():
    state = tuple(floats(5, seed=seed).abs().npu() for seed in range(3))
    return torch_npu.npu_apply_adam(*ADAM, floats(5, seed=3).npu(), False, False, out=state)


CASES = {
    "npu_quant_fusion_attention": (
        attended,
        [*FORWARD, *[ONE] * 3, FACTOR, *SCORE, STATISTICS, STATISTICS, None, Out(Q.shape, BF16)],
        [2, 0, 1],
    ),
    "npu_quant_fusion_attention_backward": (
        differentiated,
        [*GRADIENT, *[ONE] * 4, FACTOR, FACTOR, *SCORE, 1, *[Out(x.shape, BF16) for x in (Q, K, V)]],
        [0, 1, 2],
    ),
    "npu_deformable_conv2d": (
        lambda: torch_npu.npu_deformable_conv2d(IMAGE.npu(), FILTER.npu(), MOVES.npu(), None, *CONVOLUTION),
        ["aclnnDeformableConv2d", IMAGE, FILTER, MOVES, None, *CONVOLUTION, Out(GRAD.shape), Out(POINTS.shape)],
        [0, 1],
    ),
    "npu_deformable_conv2dbk": (
        lambda: torch_npu.npu_deformable_conv2dbk(
            *[x.npu() for x in (IMAGE, GRAD, POINTS, FILTER, MOVES)], *CONVOLUTION
        ),
        ["aclnnDeformableConv2dBackward", IMAGE, GRAD, POINTS, FILTER, MOVES, *CONVOLUTION]
        + [Out(x.shape) for x in (IMAGE, FILTER, MOVES)]
        + [Out((2,))],
        [0, 1, 2, 3],
    ),
    "npu_ciou": (
        lambda: [torch_npu.npu_ciou(BOXES.npu(), (BOXES + 1).npu(), False, False, 0, True)],
        ["aclnnCIoU", BOXES, BOXES + 1, False, False, "iou", Out((1, 1024)), Out((1, 1024))],
        [0],
    ),
    "_npu_ciou": (
        lambda: torch_npu._npu_ciou(BOXES.npu(), (BOXES + 1).npu(), True, False, 1, True),
        ["aclnnCIoU", BOXES, BOXES + 1, True, False, "iof", Out((1, 1024)), Out((1, 1024))],
        [0, 1],
    ),
    "npu_dynamic_block_quant": (
        lambda: torch_npu.npu_dynamic_block_quant(X.npu(), dst_type=E4M3),
        ["aclnnDynamicBlockQuantV2", X, 0.0, "rint", 36, 1, 128, 0.0, Out(X.shape, E4M3), Out((3, 1))],
        [0, 1],
    ),
    "npu_dynamic_mx_quant": (
        lambda: torch_npu.npu_dynamic_mx_quant(X.npu(), dst_type=E4M3),
        ["aclnnDynamicMxQuantV3", X, -1, "rint", 36, 32, 0, 0.0, 0.0, Out(X.shape, E4M3), Out((3, 2, 2), E8M0)],
        [0, 1],
    ),
    "npu_anti_mx_quant": (
        lambda: [torch_npu.npu_anti_mx_quant(X8.npu(), EXPONENTS.npu(), src_type=E4M3)],
        ["aclnnAntiMxQuant", X8, EXPONENTS, -1, 27, Out(X8.shape, BF16)],
        [0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_name_gives_what_its_function_gives(name):
    call, arguments, order = CASES[name]
    expected = written_by(*arguments)
    for got, place in zip(call(), order, strict=True):
        got, wanted = got.cpu(), expected[place]
        # torch_npu gives exponents as bytes.
        assert got.dtype in (wanted.dtype, torch.uint8) and got.shape == wanted.shape
        assert torch.equal(got.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8))


def test_adam_makes_the_step_of_its_function():
    var, m, v = (floats(5, seed=seed).abs() for seed in range(3))
    numbers = [torch.tensor([each]) for each in ADAM]
    expected = written_by("aclnnApplyAdam", InOut(var), InOut(m), InOut(v), *numbers, floats(5, seed=3), False, False)
    for got, wanted in zip(optimised(), expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


def test_an_error_keeps_its_words():
    """torch_npu asks what the hardware reports before it reads the message."""
    with pytest.raises(RuntimeError, match="aclnnCIoU: is_cross is true; expected false"):
        torch_npu.npu_ciou(BOXES.npu(), BOXES.npu(), False, True, 0, True)


def preprocessed(shape, **options):
    """npu_weight_quant_preprocess of weights (..., N, K / 2 bytes), its bytes and scales, and these."""
    weight = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    scales = torch.randint(0, 256, (*shape[:-1], -(-shape[-1] // 32), 2), dtype=torch.uint8)
    dtypes = dict(x_dtype=E4M3, weight_dtype=torch_npu.float4_e2m1fn_x2)
    dtypes |= dict(weight_scale_dtype=torch_npu.float8_e8m0fnu, x_scale_dtype=torch_npu.float8_e8m0fnu)
    given = (weight.npu().transpose(-1, -2), scales.npu().transpose(-2, -3))
    out, out_scale, _, bias = torch_npu.npu_weight_quant_preprocess(*given, **dtypes | {"k_group_size": 32} | options)
    torch.npu.synchronize()
    blocks = ctypes.string_at(out.data_ptr(), out.untyped_storage().nbytes())  # of a format that torch_npu cannot copy
    written = torch.frombuffer(bytearray(blocks), dtype=torch.uint8)
    return weight, scales, written, out_scale.cpu().transpose(-2, -3), bias


@pytest.mark.parametrize("shape", [(16, 16), (20, 48), (3, 1, 80)])
def test_weights_in_float4_go_to_blocks(shape):
    """By element: 16 columns of a block of 32 rows of K lie one after the other, two to a byte, the first in the low
    bits, and past N there are zeros."""
    bias = torch.randn(shape[-2]).half()
    weight, scales, written, out_scales, out_bias = preprocessed(shape, bias=bias.npu())
    *groups, width, columns = shape
    number, depth, rows = groups[0] if groups else 1, 2 * columns, -(-width // 16)
    expected = torch.zeros(number, depth // 32 * rows * 16 * 32, dtype=torch.uint8)
    for group, row in enumerate(weight.reshape(number * width, columns)):
        group, n = divmod(group, width)
        for k in range(depth):
            place = (k // 32 * rows + n // 16) * 512 + n % 16 * 32 + k % 32
            expected[group, place] = row[k // 2] >> (4 * (k % 2)) & 15
    found = torch.stack([written & 15, written >> 4], 1).reshape(number, -1)
    assert torch.equal(found, expected)
    assert torch.equal(out_scales, scales) and torch.equal(out_bias.cpu(), bias)


def test_weights_in_float4_that_do_not_fit_are_rejected():
    with pytest.raises(RuntimeError, match="k_group_size is 64; expected 32 to 32"):
        preprocessed((16, 16), k_group_size=64)
    with pytest.raises(RuntimeError, match=r"weight has shape \[48, 16\]; expected .* K a multiple of 32"):
        preprocessed((16, 24))
    with pytest.raises(RuntimeError, match="weight_offset"):
        preprocessed((16, 16), weight_offset=torch.zeros(16).half().npu())
