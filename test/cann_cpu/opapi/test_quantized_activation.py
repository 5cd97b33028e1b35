# SPDX-License-Identifier: Apache-2.0
"""Activation functions between the scales of quantised products, against their formulas in float64. Where a value lies
within an error of float32 of the middle of two integers, either is right."""

import hifloat8
import pytest
import torch
import torch.nn.functional as F
import torch_npu
from aclnn import Out, Rejected, written_by


def floats(*shape, dtype=torch.float32, seed=0, scale=1.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def integers(*shape, seed=0):
    return torch.randint(-20000, 20000, shape, dtype=torch.int32, generator=torch.Generator().manual_seed(seed))


def check_rounded(values, exact, low=-128, high=127):
    exact = exact.clamp(low, high)
    assert values.shape == exact.shape
    assert ((values.cpu().double() - exact).abs() <= 0.5 + 2e-3).all()


def check_dynamic(result, exact, highest=127):
    values, scale = result
    expected = exact.abs().amax(-1) / highest
    torch.testing.assert_close(scale.cpu().double(), expected, rtol=1e-5, atol=0)
    check_rounded(values, exact / expected[..., None])


def gate(x, left, mode, limit=7.0, alpha=1.702, bias=1.0):
    if mode == 1:
        a, b = x[..., ::2], x[..., 1::2]
    else:
        a, b = x.chunk(2, -1)
    if not left:
        a, b = b, a
    if mode == 0:
        return F.silu(a) * b
    b = b.clamp(-limit, limit)
    if mode == 3:
        return F.silu(a).clamp(max=limit) * b
    a = a.clamp(max=limit)
    return a * torch.sigmoid(alpha * a) * (b + bias)


COUNTS = {1: None, 5: [2, 0, 3], 37: [7, 11, 19], 6: [2, 1, 0]}  # of rows; the last leaves rows out


@pytest.mark.parametrize("mode, left", [(0, True), (0, False), (1, True), (2, True), (2, False)])
@pytest.mark.parametrize("rows", COUNTS)
def test_dequant_swiglu_quant(rows, mode, left):
    columns, counts = 128, COUNTS[rows]
    groups = 1 if counts is None else len(counts)
    x, by_row = integers(rows, columns), floats(rows, 1, seed=1).abs()
    weight, smooth = floats(groups, columns, seed=2, scale=1e-4), floats(groups, columns // 2, seed=3)
    group = torch.repeat_interleave(torch.arange(groups), torch.tensor(counts or [rows]))
    used = len(group)
    exact = x[:used].double() * weight[group].double() * by_row[:used].double()
    exact = gate(exact, left, mode) * smooth[group].double()
    values, scale = torch_npu.npu_dequant_swiglu_quant(
        x.npu(),
        weight_scale=weight.npu(),
        activation_scale=by_row.npu(),
        quant_scale=smooth.npu(),
        group_index=None if counts is None else torch.tensor(counts).npu(),
        activate_left=left,
        quant_mode=1,
        swiglu_mode=mode,
    )
    check_dynamic((values[:used], scale[:used]), exact)


@pytest.mark.parametrize("bias_dtype", [torch.int32, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_dequant_swiglu_quant_with_a_bias(bias_dtype):
    x, weight = integers(7, 64), floats(64, seed=1, scale=1e-4)
    bias = integers(64, seed=2) if bias_dtype == torch.int32 else floats(64, seed=2).to(bias_dtype)
    if bias_dtype == torch.int32:
        exact = (x + bias).double() * weight.double()
    else:
        exact = x.double() * weight.double() + bias.double()
    result = torch_npu.npu_dequant_swiglu_quant(
        x.npu(), weight_scale=weight.npu(), bias=bias.npu(), activate_left=True, quant_mode=1
    )
    check_dynamic(result, gate(exact, True, 0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scales", [1, 64])
def test_dequant_swiglu_quant_with_given_scales(scales, dtype):
    x, scale, offset = floats(7, 128, dtype=dtype), floats(scales, seed=1).abs() + 0.01, floats(scales, seed=2)
    values, _ = torch_npu.npu_dequant_swiglu_quant(
        x.npu(), quant_scale=scale.npu(), quant_offset=offset.npu(), activate_left=True, quant_mode=0
    )
    check_rounded(values, gate(x.double(), True, 0) / scale.double() + offset.double())
    out = [Out((7, 64), torch.int8), Out((7,))]
    again = written_by("aclnnDequantSwigluQuant", x, *[None] * 3, scale, offset, None, True, "static", *out)
    assert torch.equal(again[0], values.cpu())


def test_limited_swish():
    x, scale = floats(7, 128, dtype=torch.float16, scale=9), torch.ones(1)
    values = written_by(
        "aclnnDequantSwigluQuantV2", x, *[None] * 3, scale, scale - 1, None, True, "static", 2, "rint", -1, 3, 2.0,
        1.0, 0.0, Out((7, 64), torch.int8), Out((7,)),
    )[0]  # fmt: skip
    check_rounded(values, gate(x.double(), True, 3, limit=2.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("to", [torch.int8, torch.quint4x2], ids=str)
@pytest.mark.parametrize("list_type", [None, 0, 1])
def test_swiglu_quant(list_type, to, dynamic, dtype):
    x, groups = floats(13, 64, dtype=dtype), 1 if list_type is None else 3
    smooth, offsets = floats(groups, 32, seed=1) * 9, floats(groups, 32, seed=2)
    index = {None: None, 0: [4, 4, 13], 1: [4, 0, 9]}[list_type]
    group = [0] * 13 if index is None else [0] * 4 + [2] * 9
    values, scale = torch_npu.npu_swiglu_quant(
        x.npu(),
        smooth_scales=smooth.npu(),
        offsets=None if dynamic else offsets.npu(),
        group_index=None if index is None else torch.tensor(index, dtype=torch.int32).npu(),
        activate_left=True,
        quant_mode=int(dynamic),
        group_list_type=list_type or 0,
        dst_type=to,
    )
    exact = gate(x.double(), True, 0) * smooth[group].double()
    low, high = (-128, 127) if to == torch.int8 else (-8, 7)
    if dynamic:
        expected = high / exact.abs().amax(-1)
        torch.testing.assert_close(scale.cpu().double(), expected, rtol=1e-5, atol=0)
        exact = exact * expected[:, None]
    else:
        exact = exact + offsets[group].double()
    values = values.cpu()
    if to == torch.quint4x2:
        nibbles = torch.stack([values.long() % 16, values.long().remainder(256) // 16], -1).flatten(-2)
        values = torch.where(nibbles > 7, nibbles - 16, nibbles)
    check_rounded(values, exact, low, high)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("columns", [1, 24])
@pytest.mark.parametrize("shape", [(1, 24), (5, 24), (2, 3, 24)], ids=str)
def test_gelu_quant(shape, columns, approximate):
    x, scale, offset = floats(*shape, dtype=torch.bfloat16), floats(columns, seed=1) * 40, floats(columns, seed=2)
    exact = F.gelu(x.double(), approximate=approximate) * scale.double()
    given = {"input_scale": scale.npu(), "approximate": approximate}
    values, _ = torch_npu.npu_gelu_quant(x.npu(), input_offset=offset.npu(), quant_mode="static", **given)
    check_rounded(values, exact + offset.double())
    check_dynamic(torch_npu.npu_gelu_quant(x.npu(), quant_mode="dynamic", **given), exact)


@pytest.mark.parametrize("to", [torch.int8, torch.quint4x2], ids=str)
@pytest.mark.parametrize("rows, columns, size", [(1, 128, 16), (7, 144, 48), (33, 1024, 1024)])
def test_rotate_quant(rows, columns, size, to):
    x, rotation = floats(rows, columns, dtype=torch.bfloat16), floats(size, size, dtype=torch.bfloat16, seed=1)
    exact = (x.double().reshape(rows, -1, size) @ rotation.double()).reshape(rows, columns)
    values, scale = torch_npu.npu_rotate_quant(x.npu(), rotation.npu(), dst_dtype=to)
    values = values.cpu()
    if to == torch.quint4x2:
        nibbles = torch.stack([values.long() // 16**i % 16 for i in range(8)], -1).flatten(-2)
        values = torch.where(nibbles > 7, nibbles - 16, nibbles)
    check_dynamic((values, scale), exact, 127 if to == torch.int8 else 7)


def test_gradient_of_the_grouped_gate():
    x, dy, weight = floats(9, 64, scale=3), floats(9, 32, seed=1), floats(9, seed=2)
    leaves = [x.double().requires_grad_(), weight.double().requires_grad_()]
    a, b = leaves[0].chunk(2, -1)
    origin = F.silu(a.clamp(max=2.0)) * b.clamp(-2.0, 2.0)
    used = torch.arange(9) < 7
    ((origin * leaves[1][:, None] * dy.double())[used]).sum().backward()
    index = torch.tensor([3, 4])
    result = torch_npu.npu_swiglu_group_quant_backward(
        dy.npu(), x.npu(), weight=weight.npu(), y_origin=origin.detach().float().npu(), group_index=index.npu(),
        clamp_limit=2.0,
    )  # fmt: skip
    for actual, leaf in zip(result, leaves, strict=True):
        torch.testing.assert_close(actual.cpu().double(), leaf.grad, rtol=1e-5, atol=1e-5)


def next_power_of_two(x):
    fraction, exponent = torch.frexp(x)
    return torch.ldexp(torch.ones_like(x), exponent - (fraction == 0.5).int())


FLOAT8 = {torch.float8_e5m2: (35, 57344, 2), torch.float8_e4m3fn: (36, 448, 3)}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("to", FLOAT8, ids=str)
@pytest.mark.parametrize("full", [False, True], ids=["plain", "weight, groups, limit"])
@pytest.mark.parametrize("mode, rounds", [(0, False), (0, True), (1, True)])
def test_swiglu_group_quant(mode, rounds, full, to, dtype):
    number, highest, bits = FLOAT8[to]
    x, weight, counts = floats(9, 512, dtype=dtype, scale=3), floats(9, seed=2), torch.tensor([3, 0, 4])
    used, limit = (7, 2.0) if full else (9, -1.0)
    a, b = x[:used].double().chunk(2, -1)
    exact = F.silu(a.clamp(max=limit)) * b.clamp(-limit, limit) * weight[:used, None] if full else F.silu(a) * b
    blocks = exact.unflatten(-1, (-1, 128 if mode == 0 else 32))
    expected = blocks.abs().amax(-1) / highest
    expected = next_power_of_two(expected) if rounds else expected
    scale_out = Out((9, 2)) if mode == 0 else Out((9, 4, 2), torch.float8_e8m0fnu)
    values, scale, _ = written_by(
        "aclnnSwigluGroupQuant", x, weight if full else None, counts if full else None, None, number, mode, 0, rounds,
        limit, 0.0, False, Out((9, 256), to), scale_out, Out((0,), dtype),
    )  # fmt: skip
    assert (values[used:].view(torch.uint8) == 0).all()
    if mode == 1:  # the exponent of each scale, with float32's bias
        scale = torch.exp2(scale.view(torch.uint8).double() - 127)
    scale = scale.reshape(9, -1)[:used].double()
    torch.testing.assert_close(scale, expected, rtol=0 if rounds else 1e-5, atol=0)
    scaled = blocks / expected[..., None]
    values = values[:used].double().view(scaled.shape)
    spacing = torch.ldexp(
        torch.ones_like(scaled), torch.frexp(scaled)[1].clamp(min=-5 if bits == 3 else -13) - 1 - bits
    )
    assert ((values - scaled).abs() <= spacing / 2 + scaled.abs() * 1e-5).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("full", [False, True], ids=["plain", "weight, groups, limit"])
@pytest.mark.parametrize("mode", [2, 3])
def test_swiglu_group_quant_to_hifloat8(mode, full, dtype):
    x, counts, limit = floats(9, 512, dtype=dtype, scale=3), torch.tensor([3, 0, 4]), 2.0 if full else -1.0
    weight, used = floats(9, seed=2), 7 if full else 9
    a, b = x[:used].double().chunk(2, -1)
    exact = F.silu(a.clamp(max=limit)) * b.clamp(-limit, limit) * weight[:used, None] if full else F.silu(a) * b
    group = torch.tensor([0, 0, 0, 2, 2, 2, 2] if full else [0] * 9)
    groups = 3 if full else 1
    static = torch.tensor([0.5, 7.0, 3.0])[:groups] if mode == 2 else None
    largest = torch.tensor([exact[group == g].abs().max() if (group == g).any() else 1e-4 for g in range(groups)])
    factor = static.double() if mode == 2 else 15 / largest
    values, scale, origin = torch_npu.npu_swiglu_group_quant(
        x.npu(), weight=weight.npu() if full else None, group_index=counts.npu() if full else None,
        scale=None if static is None else static.npu(), quant_mode=mode, clamp_limit=limit, output_origin=True,
    )  # fmt: skip
    if mode == 3:
        torch.testing.assert_close(scale.cpu().double(), largest.double() / 15, rtol=1e-5, atol=0)
    torch.testing.assert_close(origin.cpu()[:used].double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)
    assert (values.cpu()[used:] == 0).all()
    scaled = exact * factor[group, None].double()
    low, high = (hifloat8.rounded(scaled * (1 + error)) for error in (-1e-5, 1e-5))
    found = hifloat8.wide(values.cpu()[:used])
    assert ((found == low) | (found == high)).all()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({4: 35}, "dst_type is 35; expected 36"),
        ({5: 4}, "quant_mode is 4; expected 0 to 3"),
        ({5: 3}, "y_out must be hifloat8, since quant_mode is 3"),
        ({3: torch.ones(1)}, "scale is given, and quant_mode is 0"),
        ({6: 32}, "block_size is 32; expected 0 or 128"),
        ({8: -2.0}, "clamp_limit is -2; expected -1"),
        ({10: True}, "output_origin is true; expected false"),
        ({12: Out((4, 2))}, r"y_scale_out has shape \[4, 2\]; expected \[4, 1\]"),
    ],
)
def test_what_swiglu_group_quant_does_not_take_is_rejected(changes, message):
    arguments = [floats(4, 256, dtype=torch.float16), None, None, None, 36, 0, 0, False, -1.0, 0.0, False]
    arguments += [Out((4, 128), torch.float8_e4m3fn), Out((4, 1)), Out((0,), torch.float16)]
    for index, value in changes.items():
        arguments[index] = value
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by("aclnnSwigluGroupQuant", *arguments)


FULL = integers(4, 64)
BAD = {
    "int32 without its scale": (
        [FULL, None, None, None, None, None, None, True, "dynamic"],
        "weight_scale is null; expected a tensor, since x is int32",
    ),
    "a scale for floats": (
        [FULL.half(), torch.ones(64), None, None, None, None, None, True, "dynamic"],
        "weight_scale is given; expected null, since x is not int32",
    ),
    "a scale of another size": (
        [FULL, torch.ones(32), None, None, None, None, None, True, "dynamic"],
        r"weight_scale has shape \[32\]; expected \[1, 64\] or a vector",
    ),
    "no static scale": (
        [FULL, torch.ones(64), None, None, None, None, None, True, "static"],
        "quant_scale is null; expected a tensor, since quant_mode is static",
    ),
    "mode": (
        [FULL, torch.ones(64), None, None, None, None, None, True, "some"],
        "quant_mode is 'some'; expected static",
    ),
    "more rows than there are": (
        [FULL, torch.ones(2, 64), None, None, None, None, torch.tensor([3, 2]), True, "dynamic"],
        r"group_index\[1\] ends group 1 at row 5; expected 3 to 4",
    ),
    "a negative count": (
        [FULL, torch.ones(2, 64), None, None, None, None, torch.tensor([-1, 2]), True, "dynamic"],
        r"group_index\[0\] is -1; expected 0 to 4",
    ),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_input_is_named(label):
    arguments, message = BAD[label]
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by("aclnnDequantSwigluQuant", *arguments, Out((4, 32), torch.int8), Out((4,)))
