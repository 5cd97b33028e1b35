# SPDX-License-Identifier: Apache-2.0
"""Quantisation and its inverse, against their formulas in float32, whose operations IEEE 754 defines bitwise."""

import pytest
import torch
import torch_npu
from aclnn import Float, Out, Rejected, written_by

RANGES = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int32: (-(2**31), 2**31 - 1), "int4": (-8, 7)}


def floats(*shape, dtype=torch.float32, seed=0, scale=1.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def rounded(x, dtype):
    low, high = RANGES[dtype]
    values = x.double().round().clamp(low, high)
    return packed(values) if dtype == "int4" else values.to(dtype)


def packed(values):
    """Eight int4 in an int32, the first in the lowest bits."""
    nibbles = values.long().remainder(16).unflatten(-1, (-1, 8))
    words = sum(nibbles[..., i] * 16**i for i in range(8))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def unpacked(words):
    nibbles = torch.stack([words.long() // 16**i % 16 for i in range(8)], -1).flatten(-2)
    return torch.where(nibbles > 7, nibbles - 16, nibbles)


def equal(actual, *expected):
    actual = actual if isinstance(actual, tuple | list) else [actual]
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype and a.shape == e.shape
        assert torch.equal(a.cpu(), e)


SHAPES = [(5, 8), (1, 4096), (0, 16), (3, 7, 24), (2, 3, 5, 8)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("to", [torch.int8, "int4"], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ascend_quant(shape, to, dtype):
    x, scale, offset = (floats(*s, dtype=dtype, seed=i) for i, s in enumerate([shape, shape[-1:], shape[-1:]]))
    scale = scale * 3
    expected = rounded(x.float() * scale.float() + offset.float(), to)
    npu_dtype = torch.quint4x2 if to == "int4" else torch.qint8
    equal(torch_npu.npu_quantize(x.npu(), scale.npu(), offset.npu(), npu_dtype, -1, False), expected)


def test_ascend_quant_has_a_scale_for_each_row_or_one_for_all():
    x, scale = floats(4, 6, 8), floats(6, seed=1)
    expected = rounded(x * scale[:, None], torch.int8)
    equal(torch_npu.npu_quantize(x.npu(), scale.npu(), None, torch.qint8, -2, False), expected)
    equal(
        torch_npu.npu_quantize(x.npu(), scale[:1].npu(), None, torch.qint8, -1, False),
        rounded(x * scale[0], torch.int8),
    )
    rows = torch_npu.npu_quantize(x.npu(), scale.reshape(1, 6, 1).npu(), None, torch.qint8, -2, False)
    equal(rows, expected)


@pytest.mark.parametrize(
    "mode, function", {"round": torch.round, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc}.items()
)
@pytest.mark.parametrize("sqrt_mode", [False, True])
def test_ascend_quant_rounds_as_it_is_told(mode, function, sqrt_mode):
    x, scale = floats(9, 16, scale=40), floats(16, seed=1)
    factor = scale * scale if sqrt_mode else scale
    expected = function(x * factor).clamp(-128, 127).to(torch.int8)
    for name, more in (("aclnnAscendQuant", [2]), ("aclnnAscendQuantV3", [2, -1])):
        equal(written_by(name, x, scale, None, sqrt_mode, mode, *more, Out(x.shape, torch.int8)), expected)


def test_halves_are_rounded_to_the_even_one_and_nan_to_zero():
    x = torch.tensor([[0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, float("nan")]])
    expected = torch.tensor([[0, 2, 2, 0, -2, 127, -128, 0]], dtype=torch.int8)
    equal(torch_npu.npu_quantize(x.npu(), torch.ones(1).npu(), None, torch.qint8, -1, False), expected)


@pytest.mark.parametrize("to", [torch.int8, torch.uint8, torch.int32], ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_quantize(axis, to):
    x = floats(3, 5, 7, scale=100)
    size = x.shape[axis]
    scales, zeros = floats(size, seed=1).abs() + 0.01, torch.arange(size, dtype=torch.int32) - 2
    shape = [1, 1, 1]
    shape[axis] = size
    expected = rounded(x / scales.reshape(shape) + zeros.reshape(shape), to)
    npu_dtype = {torch.int8: torch.qint8, torch.uint8: torch.quint8, torch.int32: torch.qint32}[to]
    equal(torch_npu.npu_quantize(x.npu(), scales.npu(), zeros.npu(), npu_dtype, axis, True), expected)
    equal(
        torch_npu.npu_quantize(x.npu(), scales[:1].npu(), zeros[:1].npu(), npu_dtype, axis, True),
        rounded(x / scales[0] + zeros[0], to),
    )


def dynamic(x, to=torch.int8, symmetric=True, dims=-1):
    """The scale, the offset and the values, in float32."""
    low, high = RANGES[to]
    greatest, least = x.amax(dims, keepdim=True), x.amin(dims, keepdim=True)
    scale = x.abs().amax(dims, keepdim=True) / high if symmetric else (greatest - least) / (high - low)
    divisor = torch.where(scale == 0, torch.ones(()), scale)
    offset = torch.zeros(()) if symmetric else high - greatest / divisor
    return scale, offset, rounded(x / divisor + offset, to)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("to", [torch.int8, "int4"], ids=str)
@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("shape", [(5, 8), (1, 4096), (3, 7, 24), (521, 2048)], ids=str)
def test_dynamic_quant(shape, smooth, to, dtype):
    x, scales = floats(*shape, dtype=dtype), floats(shape[-1], dtype=dtype, seed=1)
    x[0] = 0
    wide = x.float() * scales.float() if smooth else x.float()
    scale, _, values = dynamic(wide, to)
    result = torch_npu.npu_dynamic_quant(
        x.npu(),
        smooth_scales=scales.npu() if smooth else None,
        dst_type=torch.quint4x2 if to == "int4" else torch.int8,
    )
    equal(result, values, scale[..., 0])
    scale, offset, values = dynamic(wide, to, symmetric=False)
    result = torch_npu.npu_dynamic_quant_asymmetric(
        x.npu(),
        smooth_scales=scales.npu() if smooth else None,
        dst_type=torch.quint4x2 if to == "int4" else torch.int8,
    )
    equal(result, values, scale[..., 0], offset[..., 0])


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("mode, dims", [("pertensor", (0, 1, 2)), ("perchannel", 1)])
@pytest.mark.parametrize("smooth", [False, True])
def test_dynamic_quant_by_tensor_and_channel(mode, dims, symmetric, smooth):
    x = floats(3, 11, 24, dtype=torch.bfloat16)
    scales = floats(11 if mode == "perchannel" else 24, dtype=torch.bfloat16, seed=1)
    wide = x.float()
    if smooth:
        wide = wide * (scales.float()[:, None] if mode == "perchannel" else scales.float())
    scale, offset, values = dynamic(wide, symmetric=symmetric, dims=dims)
    shape = (1,) if mode == "pertensor" else (3, 24)
    function = torch_npu.npu_dynamic_quant if symmetric else torch_npu.npu_dynamic_quant_asymmetric
    result = function(x.npu(), smooth_scales=scales.npu() if smooth else None, quant_mode=mode)
    equal(result, values, scale.reshape(shape), *([] if symmetric else [offset.reshape(shape)]))


def test_dynamic_quant_has_smooth_scales_for_each_expert():
    x, scales = floats(12, 16, dtype=torch.bfloat16), floats(4, 16, dtype=torch.bfloat16, seed=1)
    ends = torch.tensor([5, 5, 9, 12], dtype=torch.int32)
    rows = scales[[0] * 5 + [2] * 4 + [3] * 3]
    scale, _, values = dynamic(x.float() * rows.float())
    result = torch_npu.npu_dynamic_quant(x.npu(), smooth_scales=scales.npu(), group_index=ends.npu())
    equal(result, values, scale[:, 0])


def test_dynamic_quant_of_no_rows_and_of_views():
    values, scale = torch_npu.npu_dynamic_quant(torch.empty(0, 8, dtype=torch.float16, device="npu"))
    assert values.shape == (0, 8) and scale.shape == (0,)
    x = floats(6, 40, dtype=torch.float16)
    scale, _, expected = dynamic(x[::2, 3:19].float())
    equal(torch_npu.npu_dynamic_quant(x.npu()[::2, 3:19]), expected, scale[:, 0])


def test_the_first_dynamic_quant():
    x = floats(5, 8, dtype=torch.float16)
    scale, _, values = dynamic(x.float())
    equal(written_by("aclnnDynamicQuant", x, None, Out((5, 8), torch.int8), Out((5,))), values, scale[:, 0])
    v3 = [x, None, None, 2, True, "pertoken", Out((5, 8), torch.int8), Out((5,)), None]
    equal(written_by("aclnnDynamicQuantV3", *v3), values, scale[:, 0])
    scale, offset, asymmetric = dynamic(x.float(), symmetric=False, dims=(0, 1))
    v3[4:6], v3[7:] = [False, "pertensor"], [Out((1,)), Out((1,))]
    equal(written_by("aclnnDynamicQuantV3", *v3), asymmetric, scale[0], offset[0])
    scale = dynamic(x.float())[0]
    v4 = [x, None, None, 2, True, "pertoken", Float(0.0), Out((5, 8), torch.int8), Out((5,)), None]
    equal(written_by("aclnnDynamicQuantV4", *v4), values, scale[:, 0])


@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16], ids=str)
def test_anti_quant(to):
    x = torch.randint(-128, 128, (5, 16), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    scale, offset = floats(16, seed=1), floats(16, seed=2)
    result = torch_npu.npu_anti_quant(x.npu(), scale.npu(), offset=offset.npu(), dst_dtype=to)
    equal(result, ((x.float() + offset) * scale).to(to))
    words = packed(x.clamp(-8, 7))
    result = torch_npu.npu_anti_quant(words.npu(), scale[:1].npu(), dst_dtype=to, src_dtype=torch.quint4x2)
    equal(result, (unpacked(words).float() * scale[0]).to(to))
    expected = (x.float() * (scale * scale)).to(to)
    number = 1 if to == torch.float16 else 27
    equal(written_by("aclnnAscendAntiQuant", x, scale, None, number, True, Out((5, 16), to)), expected)


@pytest.mark.parametrize("bias_dtype", [None, torch.int32, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16], ids=str)
def test_dequant_bias(bias_dtype, to):
    x = torch.randint(-(10**6), 10**6, (7, 24), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    scale = floats(24, seed=1, scale=1e-3, dtype=torch.float32 if to == torch.float16 else torch.bfloat16)
    rows, bias = floats(7, seed=2).abs(), None if bias_dtype is None else floats(24, seed=3, scale=9).to(bias_dtype)
    expected = (x + bias if bias_dtype == torch.int32 else x).float() * scale.float() * rows[:, None]
    if bias is not None and bias_dtype != torch.int32:
        expected = expected + bias.float()
    bias = None if bias is None else bias.npu()
    result = torch_npu.npu_dequant_bias(x.npu(), scale.npu(), rows.npu(), bias, output_dtype=to)
    equal(result, expected.to(to))


@pytest.mark.parametrize("to", [torch.int8, "int4"], ids=str)
def test_group_quant(to):
    x, scale, offset = floats(9, 16, dtype=torch.float16), floats(3, 16, seed=1) * 20, torch.tensor([1.5])
    ends = torch.tensor([4, 4, 9], dtype=torch.int32)
    expected = rounded(x.float() * scale[[0] * 4 + [2] * 5] + offset, to)
    dtype = torch.quint4x2 if to == "int4" else torch.int8
    equal(torch_npu.npu_group_quant(x.npu(), scale.npu(), ends.npu(), offset=offset.npu(), dst_dtype=dtype), expected)


def parameter(scale, offset, rounds):
    """The 64 bits that the hardware reads for a column."""
    bits = torch.tensor(scale, dtype=torch.float32).view(torch.int32).item() % 2**32
    if rounds:
        kept, rest = bits >> 13, bits & 0x1FFF
        bits = (kept + (rest > 0x1000 or (rest == 0x1000 and kept & 1))) << 13
    word = (bits & 0xFFFFE000) | 1 << 46
    return word if offset is None else word | (max(-256, min(255, round(offset))) & 0x1FF) << 37


@pytest.mark.parametrize("round_mode", [0, 1])
@pytest.mark.parametrize("with_offset", [False, True])
def test_trans_quant_param(with_offset, round_mode):
    scale, offset = floats(33), floats(33, seed=1, scale=200)
    pairs = zip(scale.tolist(), offset.tolist(), strict=True)
    expected = [parameter(s, o if with_offset else None, round_mode) for s, o in pairs]
    result = torch_npu.npu_trans_quant_param(scale.npu(), offset.npu() if with_offset else None, round_mode=round_mode)
    equal(result, torch.tensor(expected, dtype=torch.int64))
    if round_mode == 0:
        out = Out((33,), torch.int64)
        equal(written_by("aclnnTransQuantParamV2", scale, offset if with_offset else None, out), result.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_fake_quantize(dtype):
    x, scale = floats(3, 5, 7, scale=30).to(dtype), floats(5, seed=1).abs().to(dtype) + 0.1
    zero = torch.tensor([0, 3, -3, 7, 1], dtype=torch.int32)
    q = (x.float() / scale.float()[:, None]).round() + zero[:, None]
    expected = ((q.clamp(-20, 20) - zero[:, None]) * scale.float()[:, None]).to(dtype), (q >= -20) & (q <= 20)
    outs = [Out(x.shape, dtype), Out(x.shape, torch.bool)]
    equal(written_by("aclnnFakeQuantPerChannelAffineCachemask", x, scale, zero, 1, -20, 20, *outs), *expected)
    if dtype == torch.float32:
        given = [x.npu(), scale.npu(), zero.npu(), 1, -20, 20]
        equal(torch.ops.aten.fake_quantize_per_channel_affine_cachemask(*given), *expected)
    q = (x.float() / scale[0].float()).round() + 3
    expected = ((q.clamp(-20, 20) - 3) * scale[0].float()).to(dtype), (q >= -20) & (q <= 20)
    for enabled in (1, 0):
        flag = torch.tensor([enabled]).npu()
        result = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
            x.npu(), scale[:1].npu(), zero[1:2].npu(), flag, -20, 20
        )
        wanted = expected if enabled else (x, torch.ones_like(x, dtype=torch.bool))
        equal(result, *wanted)
        given = [x, scale[:1], zero[1:2], Float(float(enabled)), -20, 20]
        equal(written_by("aclnnFakeQuantPerTensorAffineCachemask", *given, *outs), *wanted)


FLOAT8 = {torch.float8_e5m2: (35, 57344), torch.float8_e4m3fn: (36, 448)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("to", FLOAT8, ids=str)
def test_quant_max(to, dtype):
    number, highest = FLOAT8[to]
    x, scale = floats(9, 3, 16, dtype=dtype, scale=20), torch.tensor([9.0, 5.0, 7.0, highest / 3])

    def expected(x, scale):
        return (x.float() * scale).clamp(-highest, highest).to(to).view(torch.uint8)

    values, largest = written_by("aclnnQuantMax", x, scale[:1], "rint", number, Out(x.shape, to), Out((1,), dtype))
    equal([values.view(torch.uint8), largest], expected(x, scale[0]), x.abs().max()[None])
    ends = torch.tensor([2, 2, 8, 9])
    outs = [Out(x.shape, to), Out((4,), dtype)]
    values, largest = written_by("aclnnGroupedQuantMax", x, scale, ends, "rint", number, *outs)
    rows = scale[[0] * 2 + [2] * 6 + [3]][:, None, None]
    none = torch.zeros((), dtype=dtype)
    maxima = torch.stack([x[:2].abs().max(), none, x[2:8].abs().max(), x[8:].abs().max()])
    equal([values.view(torch.uint8), largest], expected(x, rows), maxima)


@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize("shape", [(1, 16, 16), (5, 7, 8), (33, 64, 128)], ids=str)
def test_flat_quant(shape, clip):
    x = floats(*shape, dtype=torch.bfloat16)
    left, right = (floats(n, n, dtype=torch.bfloat16, seed=n) for n in shape[1:])
    exact = left.double() @ (x.double() @ right.double())
    scale = exact.abs().amax((1, 2)) / (7 / (clip or 1.0))
    values, scales = torch_npu.npu_kronecker_quant(x.npu(), left.npu(), right.npu(), clip_ratio=clip)
    torch.testing.assert_close(scales.cpu().double(), scale, rtol=1e-5, atol=0)
    error = unpacked(values.cpu()) - (exact / scale[:, None, None]).clamp(-8, 7)
    assert error.abs().max() < 0.5 + 1e-3
    again = written_by("aclnnFlatQuant", x, left, right, clip or 1.0, Out(values.shape, torch.int32), Out(scale.shape))
    equal(again, values.cpu(), scales.cpu())


X, HALF = floats(4, 8), floats(4, 8, dtype=torch.float16)
INT8 = Out((4, 8), torch.int8)
ENDS = torch.tensor([1, 4], dtype=torch.int32)
BAD = {
    "dtype of x": (
        "aclnnDynamicQuant",
        [X, None, INT8, Out((4,))],
        "x has dtype float32; expected float16 or bfloat16",
    ),
    "dtype of smooth_scales": (
        "aclnnDynamicQuant",
        [HALF, X[0], INT8, Out((4,))],
        "smooth_scales has dtype float32; expected float16, as x",
    ),
    "shape of the scale": (
        "aclnnDynamicQuant",
        [HALF, None, INT8, Out((5,))],
        r"scale_out has shape \[5\]; expected \[4\]",
    ),
    "columns for int4": (
        "aclnnDynamicQuant",
        [HALF[:, :4], None, Out((4, 1), torch.int32), Out((4,))],
        "expected a multiple of 8 columns",
    ),
    "mode": (
        "aclnnDynamicQuantV3",
        [HALF, None, None, 2, True, "perrow", INT8, Out((4,)), None],
        "quant_mode is 'perrow'; expected pertoken, pertensor or perchannel",
    ),
    "a range for int8": (
        "aclnnDynamicQuantV4",
        [HALF, None, None, 2, True, "pertoken", Float(15.0), INT8, Out((4,)), None],
        "dst_type_max is 15; expected 0",
    ),
    "an offset where none is": (
        "aclnnDynamicQuantV3",
        [HALF, None, None, 2, True, "pertoken", INT8, Out((4,)), Out((4,))],
        "offset_out is given; expected null",
    ),
    "groups that end early": (
        "aclnnDynamicQuantV2",
        [HALF, HALF[:2], torch.tensor([1, 3], dtype=torch.int32), 2, INT8, Out((4,)), None],
        "group_index ends at 3; expected 4, the number of rows",
    ),
    "groups that decrease": (
        "aclnnDynamicQuantV2",
        [HALF, HALF[:2], torch.tensor([4, 3], dtype=torch.int32), 2, INT8, Out((4,)), None],
        r"group_index\[1\] is 3; expected at least 4",
    ),
    "groups without smooth scales": (
        "aclnnDynamicQuantV2",
        [HALF, None, ENDS, 2, INT8, Out((4,)), None],
        "smooth_scales is null; expected a tensor",
    ),
    "dtype that another says": (
        "aclnnAscendQuantV3",
        [X, X[0], None, False, "round", 3, -1, INT8],
        "dst_type is 3; expected 2, as y is int8",
    ),
    "rounding": (
        "aclnnAscendQuantV3",
        [X, X[0], None, False, "away", 2, -1, INT8],
        "round_mode is 'away'; expected round",
    ),
    "scale of another size": (
        "aclnnAscendQuantV3",
        [X, X[0, :3], None, False, "round", 2, -1, INT8],
        r"scale has shape \[3\]; expected \[8\]",
    ),
    "axis": (
        "aclnnAscendQuantV3",
        [X, X[0], None, False, "round", 2, 2, INT8],
        "axis is 2; expected -2 to 1",
    ),
    "group past the rows": (
        "aclnnGroupQuant",
        [X, X[:2], torch.tensor([1, 9], dtype=torch.int32), None, 2, INT8],
        r"group_index\[1\] is 9; expected 0 to 4",
    ),
    "clip ratio": (
        "aclnnFlatQuant",
        [floats(2, 3, 8).half(), floats(3, 3).half(), floats(8, 8).half(), 1.5, Out((2, 3, 1), torch.int32), Out((2,))],
        "clip_ratio is 1.5; expected more than 0",
    ),
    "round mode of parameters": (
        "aclnnTransQuantParamV3",
        [X[0], None, 2, Out((8,), torch.int64)],
        "round_mode is 2; expected 0 to 1",
    ),
    "bounds": (
        "aclnnFakeQuantPerChannelAffineCachemask",
        [X, X[:, 0], torch.zeros(4, dtype=torch.int32), 0, 5, 4, Out((4, 8)), Out((4, 8), torch.bool)],
        "quant_min is 5; expected at most quant_max, 4",
    ),
    "bounds of a tensor": (
        "aclnnFakeQuantPerTensorAffineCachemask",
        [X, X[0, :1], ENDS[:1], Float(1.0), 5, 4, Out((4, 8)), Out((4, 8), torch.bool)],
        "quant_min is 5; expected at most quant_max, 4",
    ),
    "a scale for each row of a tensor": (
        "aclnnFakeQuantPerTensorAffineCachemask",
        [X, X[:, 0], ENDS[:1], Float(1.0), 4, 5, Out((4, 8)), Out((4, 8), torch.bool)],
        r"scale has shape \[4\]; expected 1 element",
    ),
    "rounding to float8": (
        "aclnnQuantMax",
        [X, X[0, :1], "round", 36, Out((4, 8), torch.float8_e4m3fn), Out((1,))],
        "round_mode is 'round'; expected rint",
    ),
    "float8 that another says": (
        "aclnnQuantMax",
        [X, X[0, :1], "rint", 35, Out((4, 8), torch.float8_e4m3fn), Out((1,))],
        "dst_type is 35; expected 36",
    ),
    "a maximum for all groups": (
        "aclnnGroupedQuantMax",
        [X, X[0, :2], torch.tensor([1, 4]), "rint", 36, Out((4, 8), torch.float8_e4m3fn), Out((1,))],
        r"amax has shape \[1\]; expected \[2\]",
    ),
    "groups of maxima that end early": (
        "aclnnGroupedQuantMax",
        [X, X[0, :2], torch.tensor([1, 3]), "rint", 36, Out((4, 8), torch.float8_e4m3fn), Out((2,))],
        "group_list ends at 3; expected 4",
    ),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_input_is_named(label):
    name, arguments, message = BAD[label]
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(name, *arguments)
