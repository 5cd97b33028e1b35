# SPDX-License-Identifier: Apache-2.0
"""Feed-forward layers, LoRA, products of rows that are quantised first, and products fused with what follows them."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from aclnn import Out, Rejected, nz, written_by

pytestmark = pytest.mark.usefixtures("internal_formats")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


def integers(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


ACTIVATIONS = {
    "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
    "geglu": lambda x: x.chunk(2, -1)[0] * F.gelu(x.chunk(2, -1)[1]),
    "swiglu": lambda x: x.chunk(2, -1)[0] * F.silu(x.chunk(2, -1)[1]),
    "reglu": lambda x: x.chunk(2, -1)[0] * F.relu(x.chunk(2, -1)[1]),
}


WRONG_LAYER = {
    "activation": (["x"], {"activation": "tanh"}, "activation is 'tanh'; expected fastgelu"),
    "tokens": (["x"], {"expert_tokens": [4, 4]}, r"weight1 has shape \[32, 48\]; expected 3 dimensions"),
}


class TestFeedForward:
    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_without_experts(self, activation):
        gated = activation.endswith("glu") and activation != "gelu" and activation != "fastgelu"
        x, weight1, weight2 = torch.randn(2, 5, 32), torch.randn(32, 64), torch.randn(32 if gated else 64, 32)
        x, weight1, weight2 = ((t / 4).half() for t in (x, weight1, weight2))
        bias1, bias2 = torch.randn(64).half(), torch.randn(32).half()
        result = torch_npu.npu_ffn(
            x.npu(), weight1.npu(), weight2.npu(), activation, bias1=bias1.npu(), bias2=bias2.npu()
        )
        between = ACTIVATIONS[activation](x.double() @ weight1.double() + bias1.double())
        expected = between @ weight2.double() + bias2.double()
        torch.testing.assert_close(result.cpu().double(), expected, rtol=2e-3, atol=1e-2)

    @pytest.mark.parametrize("are_ends", [False, True])
    def test_experts(self, are_ends):
        x, weight1, weight2 = torch.randn(9, 32), torch.randn(3, 32, 48), torch.randn(3, 48, 32)
        x, weight1, weight2 = ((t / 4).bfloat16() for t in (x, weight1, weight2))
        tokens = {"expert_tokens_index": [4, 4, 9]} if are_ends else {"expert_tokens": [4, 0, 5]}
        result = torch_npu.npu_ffn(x.npu(), weight1.npu(), weight2.npu(), "silu", **tokens)
        expected = torch.cat(
            [
                F.silu(x[rows].double() @ weight1[i].double()) @ weight2[i].double()
                for i, rows in ((0, slice(0, 4)), (2, slice(4, 9)))
            ]
        )
        torch.testing.assert_close(result.cpu().double(), expected, rtol=2e-2, atol=5e-2)

    def test_int8(self):
        x, weight1, weight2 = integers(5, 32), integers(32, 48), integers(48, 32)
        scale1, scale2, scale = torch.rand(48) / 1000, torch.rand(32) / 100, torch.tensor([3.0])
        bias1, bias2 = (torch.randint(-99, 99, (n,), dtype=torch.int32) for n in (48, 32))
        result = torch_npu.npu_ffn(
            x.npu(),
            weight1.npu(),
            weight2.npu(),
            "relu",
            bias1=bias1.npu(),
            bias2=bias2.npu(),
            scale=scale.npu(),
            deq_scale1=scale1.npu(),
            deq_scale2=scale2.npu(),
            output_dtype=torch.float16,
        )
        between = (F.relu((x.double() @ weight1.double() + bias1) * scale1) * 3).round().clamp(-128, 127)
        expected = (between @ weight2.double() + bias2) * scale2.double()
        torch.testing.assert_close(result.cpu().double(), expected, rtol=2e-3, atol=1)

    def test_quantised_weights(self):
        x, weight1, weight2 = torch.randn(5, 32).half(), integers(32, 48), integers(48, 32)
        scale1, scale2 = (torch.rand(48) / 1000).half(), (torch.rand(32) / 1000).half()
        offset1, offset2 = torch.ones(48).half(), torch.ones(32).half() * 2
        result = torch_npu.npu_ffn(
            x.npu(),
            weight1.npu(),
            weight2.npu(),
            "gelu",
            antiquant_scale1=scale1.npu(),
            antiquant_scale2=scale2.npu(),
            antiquant_offset1=offset1.npu(),
            antiquant_offset2=offset2.npu(),
        )
        between = F.gelu(x.double() @ ((weight1.double() + 1) * scale1.double()))
        expected = between @ ((weight2.double() + 2) * scale2.double())
        torch.testing.assert_close(result.cpu().double(), expected, rtol=5e-3, atol=5e-3)

    @pytest.mark.parametrize("case", WRONG_LAYER)
    def test_wrong_arguments_are_named(self, case):
        _, change, message = WRONG_LAYER[case]
        given = {"activation": "relu", **change}
        x, weight1, weight2 = torch.randn(9, 32).half(), torch.randn(32, 48).half(), torch.randn(48, 32).half()
        with pytest.raises(RuntimeError, match="aclnnFFNV2: " + message):
            torch_npu.npu_ffn(x.npu(), weight1.npu(), weight2.npu(), **given)


class TestAddLora:
    @pytest.mark.parametrize("with_first", [False, True])
    def test_the_formula(self, with_first):
        y, x = torch.randn(5, 64).half(), torch.randn(5, 32 if with_first else 16).half()
        weight_a, weight_b = torch.randn(3, 2, 16, 32).half() / 8, torch.randn(3, 2, 48, 16).half() / 8
        indices = torch.tensor([2, 0, 2, 1, 0], dtype=torch.int32)
        result = y.npu()
        torch_npu.npu_batch_gather_matmul_(
            result, x.npu(), weight_b.npu(), indices.npu(), weight_a.npu() if with_first else None, 1, 0.5, 16, 48
        )
        expected = y.double()
        for row, i in enumerate(indices.tolist()):
            values = x[row].double()
            if with_first:
                values = weight_a[i, 1].double() @ values
            expected[row, 16:] += 0.5 * (weight_b[i, 1].double() @ values)
        torch.testing.assert_close(result.cpu().double(), expected, rtol=2e-3, atol=5e-3)

    def test_an_index_outside_the_weights_is_named(self):
        arguments = [
            torch.zeros(2, 32).half(),
            torch.zeros(2, 16).half(),
            torch.zeros(3, 1, 32, 16).half(),
            torch.tensor([0, 3], dtype=torch.int32),
            None,
            0,
            1.0,
            0,
            32,
            Out((2, 32), torch.float16),
        ]
        with pytest.raises(RuntimeError, match=r"indices\[1\] is 3; expected 0 to 2"):
            written_by("aclnnAddLora", *arguments)


class TestQuantisedRows:
    @pytest.mark.parametrize("static", [False, True])
    def test_one_weight(self, static):
        x, weight, scale, smooth = (
            torch.randn(5, 64).half(),
            integers(48, 64),
            torch.rand(48) / 10,
            torch.rand(64).half(),
        )
        x_scale = torch.rand(1) / 10 + 0.01
        result = torch_npu.npu_quant_matmul_dequant(
            x.npu(),
            weight.npu(),
            scale.npu(),
            smooth_scale=smooth.npu(),
            x_scale=x_scale.npu() if static else None,
            quant_mode="pertensor" if static else "pertoken",
        )
        rows = x.double() * smooth.double()
        row_scale = x_scale.double() if static else (rows.abs().amax(1) / 127)[:, None]
        values = (rows / row_scale).round().clamp(-128, 127)
        expected = values @ weight.t().double() * scale.double() * row_scale
        # An element in the middle of two integers may be rounded to either.
        torch.testing.assert_close(result.cpu().double(), expected, rtol=2e-2, atol=0.2)

    def test_experts(self):
        x, weight, scale = torch.randn(9, 64).half(), integers(3, 48, 64), torch.rand(3, 48) / 10
        result = torch_npu.npu_quant_grouped_matmul_dequant(
            x.npu(), weight.npu(), scale.npu(), torch.tensor([4, 4, 9]).npu()
        )
        row_scale = (x.double().abs().amax(1) / 127)[:, None]
        values = (x.double() / row_scale).round()
        expected = torch.cat(
            [
                values[r] @ weight[i].t().double() * scale[i].double() * row_scale[r]
                for i, r in ((0, slice(0, 4)), (2, slice(4, 9)))
            ]
        )
        torch.testing.assert_close(result.cpu().double(), expected, rtol=2e-2, atol=0.2)

    @pytest.mark.parametrize("mode", ["pertoken", "pertensor", "packed scales"])
    def test_experts_in_fractal_nz(self, mode):
        x, weight, smooth = torch.randn(9, 64).half(), integers(3, 48, 64), torch.rand(64).half()
        scale, x_scale, quant_mode = torch.rand(3, 48) / 10, None, mode
        if mode == "pertensor":
            x_scale = torch.rand(1) / 10 + 0.01
        elif mode == "packed scales":
            scale = scale.view(torch.int32).long() & 0xFFFFE000
            x_scale, quant_mode = torch.rand(1).half() / 10 + 0.01, "pertensor"
        last = scale, torch.tensor([4, 4, 9]), None, x_scale, None, smooth, quant_mode, 1, Out((9, 48), torch.float16)
        [expected] = written_by("aclnnQuantGroupedMatmulDequant", x, weight, *last)
        [result] = written_by("aclnnQuantGroupedMatmulDequantWeightNZ", x, nz(weight), *last)
        assert expected.any()
        assert torch.equal(result, expected)

    def test_a_group_list_beside_fractal_nz_is_checked(self):
        weight, scale = nz(integers(3, 48, 64)), torch.rand(3, 48)
        x, group_list, out = torch.randn(9, 64).half(), torch.tensor([4, 9]), Out((9, 48), torch.float16)
        message = r"aclnnQuantGroupedMatmulDequantWeightNZ: group_list has shape \[2\]; expected \[3\]"
        with pytest.raises(Rejected, match=message):
            written_by(
                "aclnnQuantGroupedMatmulDequantWeightNZ",
                *(x, weight, scale, group_list, None, None, None, None, "pertoken", 1, out),
            )


class TestQuantConvolution:
    @pytest.mark.parametrize("bias", [None, torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("channels", [4, 40])
    def test_the_formula(self, channels, bias):
        x, weight, scale = integers(2, channels, 5, 6, 7), integers(8, channels, 3, 3, 3), torch.rand(8) / 100
        given = None if bias is None else torch.randn(8).to(bias)
        [result] = written_by(
            "aclnnQuantConvolution",
            x,
            weight,
            given,
            scale,
            None,
            [1, 2, 1],
            [1, 0, 1],
            [1, 1, 2],
            0,
            None,
            1,
            0,
            "",
            Out((2, 8, 5, 2, 5), torch.bfloat16),
        )
        sums = F.conv3d(x.double(), weight.double(), None, (1, 2, 1), (1, 0, 1), (1, 1, 2))
        expected = sums * scale.double().view(-1, 1, 1, 1)
        if given is not None:
            expected = expected + given.double().view(-1, 1, 1, 1)
        torch.testing.assert_close(result.double(), expected, rtol=5e-3, atol=1e-2)

    def test_groups_are_rejected(self):
        with pytest.raises(Rejected, match="groups is 2; expected 1 to 1"):
            written_by(
                "aclnnQuantConvolution",
                integers(1, 4, 5, 5),
                integers(8, 2, 3, 3),
                None,
                torch.rand(8),
                None,
                [1, 1],
                [0, 0],
                [1, 1],
                0,
                None,
                2,
                0,
                "",
                Out((1, 8, 3, 3), torch.float16),
            )


class TestTransposedProducts:
    @pytest.mark.parametrize("in_blocks", [False, True], ids=["ND", "NZ"])
    @pytest.mark.parametrize("perm_x1", [[0, 1, 2], [1, 0, 2]])
    @pytest.mark.parametrize("factor", [1, 2])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_the_products(self, dtype, factor, perm_x1, in_blocks):
        x, weight = torch.randn(4, 5, 32).to(dtype), torch.randn(4, 32, 48).to(dtype)
        given = x.transpose(0, 1).contiguous() if perm_x1[0] == 1 else x
        stored = torch_npu.npu_format_cast(weight.npu(), 29) if in_blocks else weight.npu()
        result = torch_npu.npu_transpose_batchmatmul(given.npu(), stored, perm_x1=perm_x1, batch_split_factor=factor)
        expected = (x.double() @ weight.double()).transpose(0, 1)
        if factor > 1:
            expected = expected.reshape(5, 2, 96).transpose(0, 1)
        assert result.dtype == dtype
        torch.testing.assert_close(result.cpu().double(), expected, rtol=1e-2, atol=5e-2)

    def test_an_int8_result(self):
        x, weight = torch.randint(-4, 4, (3, 5, 16)).half(), torch.randint(-4, 4, (3, 16, 8)).half()
        parameters = torch_npu.npu_trans_quant_param(torch.full((24,), 0.5).npu()).cpu()
        [result] = written_by(
            "aclnnTransposeBatchMatMul",
            x,
            weight,
            None,
            parameters,
            [0, 1, 2],
            [0, 1, 2],
            [1, 0, 2],
            0,
            1,
            Out((5, 1, 24), torch.int8),
        )
        expected = ((x.double() @ weight.double()) * 0.5).round().clamp(-128, 127).transpose(0, 1).reshape(5, 1, 24)
        assert torch.equal(result, expected.to(torch.int8))

    def test_wrong_arguments_are_named(self):
        x, weight = torch.randn(3, 5, 16), torch.randn(3, 16, 8)
        with pytest.raises(RuntimeError, match="batch_split_factor is 2; expected a divisor of 3"):
            torch_npu.npu_transpose_batchmatmul(x.npu(), weight.npu(), batch_split_factor=2)


FUSED = {
    "": lambda y, z: y,
    "relu": lambda y, z: F.relu(y),
    "add": lambda y, z: y + z,
    "mul": lambda y, z: y * z,
    "gelu_erf": lambda y, z: F.gelu(y),
    "gelu_tanh": lambda y, z: F.gelu(y, approximate="tanh"),
    "16cast32": lambda y, z: y,
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_products(name):
    x1, x2, x3, bias = (torch.randn(shape).half() for shape in ((5, 32), (32, 24), (5, 24), (24,)))
    given_bias = None if name.startswith("gelu") else bias
    result = torch_npu.npu_fused_matmul(
        x1.npu(),
        x2.npu(),
        bias=None if given_bias is None else given_bias.npu(),
        x3=x3.npu() if name in ("add", "mul") else None,
        fused_op_type=name,
    )
    sums = x1.double() @ x2.double() + (0 if given_bias is None else bias.double())
    assert result.dtype == (torch.float32 if name == "16cast32" else torch.float16)
    torch.testing.assert_close(result.cpu().double(), FUSED[name](sums, x3.double()), rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_in_fractal_nz(dtype):
    x, weight, bias = torch.randn(5, 32).to(dtype), torch.randn(32, 48).to(dtype), torch.randn(48).to(dtype)
    stored = torch_npu.npu_format_cast(weight.npu(), 29)
    expected = x.double() @ weight.double()
    torch.testing.assert_close(torch.mm(x.npu(), stored).cpu().double(), expected, rtol=1e-2, atol=5e-2)
    added = torch.addmm(bias.npu(), x.npu(), stored).cpu().double()
    torch.testing.assert_close(added, expected + bias.double(), rtol=1e-2, atol=5e-2)
    for name, extra in (("aclnnMatmulWeightNz", []), ("aclnnBatchMatMulWeightNz", [1])):
        shape = (5, 48)
        given = [t.unsqueeze(0) if extra else t for t in (x, weight)]
        [result] = written_by(name, *given, Out((1, *shape) if extra else shape, dtype), 0)
        torch.testing.assert_close(result.view(shape).double(), expected, rtol=1e-2, atol=5e-2)
