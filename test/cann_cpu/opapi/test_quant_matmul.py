# SPDX-License-Identifier: Apache-2.0
"""Quantised matrix products, against references in exact integers and float64."""

import os
import subprocess
import sys

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, nz, written_by

SEED = 7


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(SEED)


def integers(*shape, bits=8):
    high = 2 ** (bits - 1)
    return torch.randint(-high, high, shape, dtype=torch.int8)


def packed(values):
    """Int4, eight in an int32, the first in the lowest bits."""
    nibbles = (values.long() & 15).unflatten(-1, (-1, 8))
    return (nibbles << torch.arange(0, 32, 4)).sum(-1).to(torch.int32)


def exact(x1, x2):
    return x1.double() @ x2.double()


def rounded_to_int8(values):
    return values.round().clamp(-128, 127).to(torch.int8)


def assert_rounds(actual, expected, scale=1):
    """The result is the float64 value, but for the rounding of its dtype and a few of float32."""
    error = torch.finfo(actual.dtype).eps * expected.abs() + 8 * torch.finfo(torch.float32).eps * expected.abs() * scale
    assert ((actual.double() - expected).abs() <= error + 1e-6).all()


SHAPES = {
    "one row": (1, 256, 512),
    "primes": (13, 127, 131),
    "many rows": (257, 192, 640),
    "a deep sum": (3, 5000, 33),
    "no rows": (0, 64, 32),
}


class TestQuantMatmul:
    @pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
    @pytest.mark.parametrize("transposed", [False, True])
    def test_int32_sums_are_exact(self, shape, transposed):
        m, k, n = shape
        x1, x2, bias = integers(m, k), integers(k, n), torch.randint(-1000, 1000, (n,), dtype=torch.int32)
        on_device = x2.t().contiguous().npu().t() if transposed else x2.npu()
        scale = torch.ones(1).npu()
        result = torch_npu.npu_quant_matmul(x1.npu(), on_device, scale, bias=bias.npu(), output_dtype=torch.int32)
        assert torch.equal(result.cpu(), (exact(x1, x2) + bias).int())

    def test_extremes_do_not_saturate_sums(self):
        x1, x2 = torch.full((7, 3000), -128, dtype=torch.int8), torch.full((3000, 65), -128, dtype=torch.int8)
        result = torch_npu.npu_quant_matmul(x1.npu(), x2.npu(), torch.ones(1).npu(), output_dtype=torch.int32)
        assert (result.cpu() == 3000 * 128 * 128).all()

    @pytest.mark.parametrize("columns", ["tensor", "channel"])
    @pytest.mark.parametrize("with_offset", [False, True])
    @pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
    def test_int8_equals_the_formula(self, shape, columns, with_offset):
        m, k, n = shape
        x1, x2 = integers(m, k), integers(k, n)
        # Powers of two: float32 has every product.
        scale = 2.0 ** torch.randint(-14, -8, (1 if columns == "tensor" else n,)).float()
        offset = torch.randint(-20, 20, scale.shape).float() if with_offset else None
        bias = torch.randint(-1000, 1000, (n,), dtype=torch.int32)
        result = torch_npu.npu_quant_matmul(
            x1.npu(), x2.npu(), scale.npu(), offset=None if offset is None else offset.npu(), bias=bias.npu()
        )
        expected = (exact(x1, x2) + bias) * scale + (0 if offset is None else offset)
        assert torch.equal(result.cpu(), rounded_to_int8(expected))

    def test_int8_takes_the_offset_of_a_packed_scale(self):
        x1, x2, scale = integers(5, 64), integers(64, 16), torch.full((16,), 2.0**-12)
        offset = torch.arange(-8, 8).float()
        parameters = torch_npu.npu_trans_quant_param(scale.npu(), offset.npu())
        result = torch_npu.npu_quant_matmul(x1.npu(), x2.npu(), parameters)
        assert torch.equal(result.cpu(), rounded_to_int8(exact(x1, x2) * scale + offset))

    @pytest.mark.parametrize("bias", [None, torch.int32, torch.float32, "as out"], ids=str)
    @pytest.mark.parametrize("out", [torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
    def test_scales_of_tokens_and_channels(self, shape, out, bias):
        m, k, n = shape
        x1, x2 = integers(m, k), integers(k, n)
        scale, token_scale = torch.rand(n) / 100, torch.rand(m) / 100
        given = None
        if bias is not None:
            given = torch.randint(-50, 50, (n,)).to(out if bias == "as out" else bias)
        result = torch_npu.npu_quant_matmul(
            x1.npu(),
            x2.npu(),
            scale.npu(),
            pertoken_scale=token_scale.npu(),
            bias=None if given is None else given.npu(),
            output_dtype=out,
        )
        before = given is not None and given.dtype == torch.int32
        expected = (exact(x1, x2) + (given if before else 0)) * scale.double() * token_scale.double()[:, None]
        expected = expected + (given if given is not None and not before else 0)
        assert result.dtype == out
        assert_rounds(result.cpu(), expected, 4)

    def test_batches_are_broadcast(self):
        x1, x2 = integers(1, 3, 5, 64), integers(2, 1, 64, 24)
        scale, bias = torch.rand(24).bfloat16(), torch.rand(24)
        result = torch_npu.npu_quant_matmul(
            x1.npu(), x2.npu(), scale.npu(), bias=bias.npu(), output_dtype=torch.bfloat16
        )
        assert result.shape == (2, 3, 5, 24)
        assert_rounds(result.cpu(), exact(x1, x2) * scale.double() + bias, 4)

    def test_a_batch_has_a_bias_each(self):
        x1, x2 = integers(3, 5, 64), integers(64, 24)
        scale, bias = torch.ones(24) / 4096, torch.randint(-900, 900, (3, 1, 24), dtype=torch.int32)
        result = torch_npu.npu_quant_matmul(x1.npu(), x2.npu(), scale.npu(), bias=bias.npu())
        assert torch.equal(result.cpu(), rounded_to_int8((exact(x1, x2) + bias) * scale))

    @pytest.mark.parametrize("transposed", [False, True])
    def test_int4_in_int32(self, transposed):
        x1, x2 = integers(7, 128, bits=4), integers(128, 72, bits=4)
        weight = packed(x2.t()).npu().t() if transposed else packed(x2).npu()
        scale, token_scale = torch.rand(72), torch.rand(7)
        result = torch_npu.npu_quant_matmul(
            packed(x1).npu(), weight, scale.npu(), pertoken_scale=token_scale.npu(), output_dtype=torch.float16
        )
        assert_rounds(result.cpu(), exact(x1, x2) * scale.double() * token_scale.double()[:, None], 4)

    def test_int4_with_groups(self):
        m, k, n = 5, 2048, 256
        x1, x2 = integers(m, k, bits=4), integers(k, n, bits=4)
        scale, offset = torch.rand(k // 256, n) / 100, torch.randint(-5, 5, (k // 256, n)).half()
        token_scale = torch.rand(m, 1)
        result = torch_npu.npu_quant_matmul(
            packed(x1).npu(),
            packed(x2.t()).npu().t(),
            scale.t().contiguous().npu().t(),
            offset=offset.npu(),
            pertoken_scale=token_scale.npu(),
            output_dtype=torch.bfloat16,
            group_sizes=[0, 0, 256],
        )
        spread = (x2.double() - offset.double().repeat_interleave(256, 0)) * scale.double().repeat_interleave(256, 0)
        expected = x1.double() @ spread * token_scale.double()
        bound = x1.double().abs() @ spread.abs() * token_scale.double()
        error = torch.finfo(torch.bfloat16).eps * expected.abs() + 16 * torch.finfo(torch.float32).eps * bound
        assert ((result.cpu().double() - expected).abs() <= error).all()

    @pytest.mark.parametrize("groups", [0, 256])
    def test_int8_by_int4(self, groups):
        m, k, n = 6, 512, 64
        x1, x2 = integers(m, k), integers(k, n, bits=4)
        scale = torch.rand(k // 256 if groups else 1, n) / 100
        wide = scale.double().repeat_interleave(k // len(scale), 0)
        assist = (8 * (x2.double() * wide).sum(0)).float()
        parameters = torch_npu.npu_trans_quant_param(scale.flatten().npu()).cpu()
        kept = (parameters & 0xFFFFFFFF).to(torch.int32).view(torch.float32).double().view(scale.shape)
        token_scale = torch.rand(m)
        result = torch_npu.npu_quant_matmul(
            x1.npu(),
            packed(x2).npu(),
            parameters.view(scale.shape if groups else (n,)).npu(),
            offset=assist.npu(),
            pertoken_scale=token_scale[:, None].npu() if groups else token_scale.npu(),
            output_dtype=torch.float16,
            group_sizes=[0, 0, 256] if groups else None,
        )
        # The weights that are multiplied have the scales that 19 bits hold.
        wide = kept.repeat_interleave(k // len(scale), 0)
        expected = ((x1.double() - 8) @ (x2.double() * wide) + assist.double()) * token_scale.double()[:, None]
        bound = (x1.double().abs() + 8) @ (x2.double() * wide).abs() * token_scale.double()[:, None]
        error = torch.finfo(torch.float16).eps * expected.abs() + 16 * torch.finfo(torch.float32).eps * bound
        assert ((result.cpu().double() - expected).abs() <= error).all()

    def test_scales_of_blocks(self):
        m, k, n = 3, 1024, 512
        x1, x2 = integers(m, k), integers(n, k)
        x1_scale, x2_scale, bias = torch.rand(m, k // 128), torch.rand(n // 128, k // 128), torch.rand(n)
        group_size = 128 | 128 << 16 | 1 << 32
        [result] = written_by(
            "aclnnQuantMatmulV5",
            *(x1, x2, x1_scale, x2_scale, None, None, None, None, bias, 0, 1, group_size),
            Out((m, n), torch.bfloat16),
        )
        left = x1.double() * x1_scale.double().repeat_interleave(128, 1)
        right = x2.double() * x2_scale.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
        expected, bound = left @ right.t() + bias, left.abs() @ right.t().abs()
        error = torch.finfo(torch.bfloat16).eps * expected.abs() + 16 * torch.finfo(torch.float32).eps * bound
        assert ((result.double() - expected).abs() <= error).all()

    @pytest.mark.usefixtures("internal_formats")
    @pytest.mark.parametrize("transposed", [False, True])
    def test_weights_in_fractal_nz(self, transposed):
        x1, x2, scale = integers(5, 96), integers(96, 80), torch.rand(80)
        stored = x2.t().contiguous() if transposed else x2
        weight = torch_npu.npu_format_cast(stored.npu(), 29)
        assert torch_npu.get_npu_format(weight) == 29
        result = torch_npu.npu_quant_matmul(
            x1.npu(), weight.t() if transposed else weight, scale.npu(), output_dtype=torch.bfloat16
        )
        assert_rounds(result.cpu(), exact(x1, x2) * scale.double(), 4)

    def test_older_versions(self):
        x1, x2, scale = integers(5, 64), integers(16, 64), torch.full((16,), 2.0**-12)
        parameters = torch_npu.npu_trans_quant_param(scale.npu()).cpu()
        expected = rounded_to_int8(exact(x1, x2.t()) * scale)
        [third] = written_by("aclnnQuantMatmulV3", x1, x2, parameters, None, None, 0, 1, Out((5, 16), torch.int8))
        [fourth] = written_by(
            "aclnnQuantMatmulV4", x1, x2, parameters, None, None, None, 0, 1, Out((5, 16), torch.int8)
        )
        assert torch.equal(third, expected)
        assert torch.equal(fourth, expected)

    def test_the_meta_function_agrees(self):
        x1, x2, scale = integers(5, 64), integers(64, 16), torch.rand(16)
        result = torch_npu.npu_quant_matmul(x1.npu(), x2.npu(), scale.npu(), output_dtype=torch.bfloat16)
        meta = torch_npu.npu_quant_matmul(x1.to("meta"), x2.to("meta"), scale.to("meta"), output_dtype=torch.bfloat16)
        assert (meta.shape, meta.dtype) == (result.shape, result.dtype)

    @pytest.mark.parametrize("capability", ["default", "avx2"])
    def test_each_level_of_instructions_is_exact(self, capability):
        program = (
            "import torch, torch_npu\n"
            "x1 = torch.randint(-128, 128, (70, 1500), dtype=torch.int8)\n"
            "x2 = torch.randint(-128, 128, (1500, 90), dtype=torch.int8)\n"
            "for weight in (x2.npu(), x2.t().contiguous().npu().t()):\n"
            "    result = torch_npu.npu_quant_matmul("
            "x1.npu(), weight, torch.ones(1).npu(), output_dtype=torch.int32).cpu()\n"
            "    assert torch.equal(result, (x1.double() @ x2.double()).int())\n"
        )
        subprocess.run(
            [sys.executable, "-c", program], check=True, env={**os.environ, "CANN_CPU_CAPABILITY": capability}
        )


X1, X2, SCALE, PACKED = integers(4, 64), integers(64, 16), torch.rand(16), torch.zeros(16, dtype=torch.int64)


BFLOAT16 = Out((4, 16), torch.bfloat16)


def v5(
    x1=X1,
    x2=X2,
    x1_scale=None,
    x2_scale=SCALE,
    y_scale=None,
    x1_offset=None,
    x2_offset=None,
    y_offset=None,
    bias=None,
    group_size=0,
    out=BFLOAT16,
):
    return [x1, x2, x1_scale, x2_scale, y_scale, x1_offset, x2_offset, y_offset, bias, 0, 0, group_size, out]


INT8 = Out((4, 16), torch.int8)
WRONG = {
    "dtype of x1": (v5(x1=X1.float()), "x1 has dtype float32; expected int8 or int32"),
    "y_scale": (v5(y_scale=PACKED), r"argument 5 \(y_scale\) is not implemented"),
    "x1_offset": (v5(x1_offset=SCALE), r"argument 6 \(x1_offset\) is not implemented"),
    "scale of int8": (v5(out=INT8), "x2_scale has dtype float32; expected int64 or uint64, where x1 is int8"),
    "token scale of int8": (
        v5(x1_scale=torch.rand(4), x2_scale=PACKED, out=INT8),
        "x1_scale has dtype float32; expected null",
    ),
    "no token scale": (v5(out=Out((4, 16), torch.float16)), "x1_scale is null; expected float32"),
    "offset of bfloat16": (v5(x2_offset=SCALE), "x2_offset has dtype float32; expected null"),
    "bias": (v5(bias=SCALE.half()), "bias has dtype float16; expected null, int32, bfloat16 or float32"),
    "rows of x2": (v5(x2=integers(60, 16)), r"x2 has shape \[60, 16\]; expected 64 rows"),
    "rank of x1": (v5(x1=X1[0]), r"x1 has 1 dimensions, shape \[64\]; expected 2 to 6"),
    "scale": (v5(x2_scale=torch.rand(5)), r"x2_scale has shape \[5\]; expected \[1\] or \[16\]"),
    "token scale": (v5(x1_scale=torch.rand(5)), r"x1_scale has shape \[5\]; expected \[4\]"),
    "shape of the bias": (v5(bias=torch.rand(4)), r"bias has shape \[4\]; expected \[16\]"),
    "out": (v5(out=Out((4, 15), torch.bfloat16)), r"out has shape \[4, 15\]; expected \[4, 16\]"),
    "group": (v5(group_size=32), r"group_size is \[0, 0, 32\] \(m, n, k\); expected \[0, 0, 0\]"),
}


@pytest.mark.parametrize("arguments, message", WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(Rejected, match="aclnnQuantMatmulV5: " + message):
        written_by("aclnnQuantMatmulV5", *arguments)


WRONG_WEIGHT_QUANT = {
    "scale": ({"antiquant_scale": torch.rand(5).half()}, r"antiquant_scale has shape \[5\]; expected \[1\], \[16\]"),
    "dtype": ({"antiquant_scale": torch.rand(16).bfloat16()}, "antiquant_scale has dtype bfloat16; expected float16"),
    "group": ({"group": 48}, "antiquant_group_size is 48; expected 0, or a multiple of 32 below 64"),
    "offset": ({"antiquant_offset": torch.rand(1).half()}, r"antiquant_offset has shape \[1\]; expected \[16\]"),
    "y": ({"y": Out((4, 16), torch.float32)}, "y has dtype float32; expected float16, bfloat16 or int8"),
}


class TestWeightQuantBatchMatmul:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("groups", ["tensor", "channel", "group"])
    @pytest.mark.parametrize("bits", [4, 8])
    @pytest.mark.parametrize("transposed", [False, True])
    def test_the_product_is_the_formula_s(self, dtype, groups, bits, transposed):
        m, k, n = 9, 256, 136
        x, weight = torch.randn(m, k).to(dtype), integers(k, n, bits=bits)
        shape = {"tensor": (1,), "channel": (n,), "group": (k // 64, n)}[groups]
        scale, offset = (torch.rand(shape) / 10).to(dtype), torch.randint(-5, 5, shape).to(dtype)
        bias = torch.randn(n).to(dtype)
        given = weight.t().contiguous() if transposed else weight
        given = (packed(given) if bits == 4 else given).npu()
        result = torch_npu.npu_weight_quant_batchmatmul(
            x.npu(),
            given.t() if transposed else given,
            scale.npu(),
            offset.npu(),
            bias=bias.npu(),
            antiquant_group_size=64 if groups == "group" else 0,
        )
        rows = [t.double().repeat_interleave(64, 0) if groups == "group" else t.double() for t in (scale, offset)]
        values = (weight.double() + rows[1]) * rows[0]
        expected, bound = x.double() @ values + bias.double(), x.double().abs() @ values.abs()
        error = torch.finfo(dtype).eps * expected.abs() + 64 * torch.finfo(torch.float32).eps * bound
        assert result.dtype == dtype
        assert ((result.cpu().double() - expected).abs() <= error).all()

    @pytest.mark.parametrize("inner_precise", [0, 1])
    def test_both_precisions(self, inner_precise):
        x, weight, scale = torch.ones(2, 64).half(), integers(64, 8), torch.ones(8).half()
        result = torch_npu.npu_weight_quant_batchmatmul(x.npu(), weight.npu(), scale.npu(), inner_precise=inner_precise)
        assert torch.equal(result.cpu(), weight.sum(0, dtype=torch.float).half().expand(2, 8))

    @pytest.mark.parametrize("with_offset", [False, True])
    def test_a_quantised_result(self, with_offset):
        x, weight = torch.randint(-4, 4, (3, 64)).half(), integers(64, 16)
        scale, y_scale = torch.ones(16).half(), torch.full((16,), 2.0**-5)
        offset = torch.arange(-8, 8).float() if with_offset else None
        result = torch_npu.npu_weight_quant_batchmatmul(
            x.npu(),
            weight.npu(),
            scale.npu(),
            quant_scale=y_scale.npu(),
            quant_offset=None if offset is None else offset.npu(),
        )
        expected = exact(x, weight) * y_scale + (0 if offset is None else offset)
        assert torch.equal(result.cpu(), rounded_to_int8(expected))

    @pytest.mark.parametrize("change, message", WRONG_WEIGHT_QUANT.values(), ids=WRONG_WEIGHT_QUANT)
    def test_wrong_arguments_are_named(self, change, message):
        given = {
            "x": X1.half(),
            "weight": X2,
            "antiquant_scale": torch.rand(16).half(),
            "antiquant_offset": None,
            "quant_scale": None,
            "quant_offset": None,
            "bias": None,
            "group": 0,
            "y": Out((4, 16), torch.float16),
        }
        with pytest.raises(Rejected, match="aclnnWeightQuantBatchMatmulV2: " + message):
            written_by("aclnnWeightQuantBatchMatmulV2", *{**given, **change}.values())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("groups", [0, 64])
    @pytest.mark.parametrize("bits", [4, 8])
    def test_weights_in_fractal_nz(self, bits, groups, dtype):
        m, k, n = 9, 256, 136
        x, weight = torch.randn(m, k).to(dtype), integers(k, n, bits=bits)
        weight = packed(weight) if bits == 4 else weight
        shape = (k // groups, n) if groups else (n,)
        scale, offset = (torch.rand(shape) / 10).to(dtype), torch.randint(-5, 5, shape).to(dtype)
        last = scale, offset, None, None, torch.randn(n).to(dtype), groups, Out((m, n), dtype)
        [expected] = written_by("aclnnWeightQuantBatchMatmulV2", x, weight, *last)
        [result] = written_by("aclnnWeightQuantBatchMatmulNz", x, nz(weight), *last)
        assert expected.any()
        assert torch.equal(result, expected)

    def test_a_group_in_fractal_nz_is_checked(self):
        message = "aclnnWeightQuantBatchMatmulNz: antiquant_group_size is 48; expected 0, or a multiple of 32 below 64"
        scale = torch.rand(16).half()
        with pytest.raises(Rejected, match=message):
            written_by(
                "aclnnWeightQuantBatchMatmulNz",
                *(X1.half(), nz(X2), scale, None, None, None, None, 48, Out((4, 16), torch.float16)),
            )


class TestFusedQuantMatmul:
    @pytest.mark.parametrize("approximate", ["gelu_erf", "gelu_tanh"])
    @pytest.mark.parametrize("out", [torch.float16, torch.bfloat16], ids=str)
    def test_the_gelu_of_the_product(self, out, approximate):
        x1, x2 = integers(5, 64), integers(64, 24)
        x1_scale, x2_scale = torch.rand(5) / 100, torch.rand(24) / 100
        given = x2_scale if out == torch.float16 else x2_scale.bfloat16()
        result = torch_npu.npu_quant_matmul_gelu(
            x1.npu(), x2.npu(), x1_scale.npu(), given.npu(), approximate=approximate
        )
        sums = exact(x1, x2) * given.double() * x1_scale.double()[:, None]
        kind = "none" if approximate == "gelu_erf" else "tanh"
        expected = torch.nn.functional.gelu(sums, approximate=kind)
        assert result.dtype == out
        error = torch.finfo(out).eps * expected.abs() + 1e-5 * sums.abs() + 1e-6
        assert ((result.cpu().double() - expected).abs() <= error).all()

    @pytest.mark.parametrize("operation", ["gelu_erf", "gelu_tanh"])
    @pytest.mark.parametrize("transposed", [False, True])
    def test_weights_in_fractal_nz(self, transposed, operation):
        x1, x2, bias = integers(5, 96), integers(96, 40), torch.rand(40)
        weight = x2.t().contiguous().t() if transposed else x2
        x1_scale, x2_scale = torch.rand(5) / 100, torch.rand(40) / 100
        last = x1_scale, x2_scale, *[None] * 4, bias, None, operation, 0, Out((5, 40), torch.bfloat16)
        [expected] = written_by("aclnnFusedQuantMatmul", x1, x2, *last)
        [result] = written_by("aclnnFusedQuantMatmulWeightNz", x1, nz(weight), *last)
        assert expected.any()
        assert torch.equal(result, expected)

    @pytest.mark.parametrize(
        "name, x2", [("aclnnFusedQuantMatmul", X2), ("aclnnFusedQuantMatmulWeightNz", nz(X2))], ids=["ND", "NZ"]
    )
    def test_another_operation_is_named(self, name, x2):
        arguments = [X1, x2, torch.rand(4), SCALE, *[None] * 6, "relu", 0, Out((4, 16), torch.bfloat16)]
        with pytest.raises(Rejected, match=f"{name}: fused_op_type is 'relu'; expected gelu_erf or gelu_tanh"):
            written_by(name, *arguments)


@pytest.mark.usefixtures("internal_formats")
class TestReduceSum:
    def test_the_sum_of_a_batch(self):
        x1, x2 = integers(3, 5, 64), integers(3, 64, 32)
        x1_scale, x2_scale = torch.rand(3, 5), torch.rand(32).bfloat16()
        weight = torch_npu.npu_format_cast(x2.npu(), 29)
        result = torch_npu.npu_quant_matmul_reduce_sum(
            x1.npu(), weight, x1_scale=x1_scale.npu(), x2_scale=x2_scale.npu()
        )
        terms = exact(x1, x2) * x1_scale.double()[..., None] * x2_scale.double()
        error = torch.finfo(torch.bfloat16).eps * terms.sum(0).abs() + 1e-5 * terms.abs().sum(0)
        assert ((result.cpu().double() - terms.sum(0)).abs() <= error).all()
