# SPDX-License-Identifier: Apache-2.0
"""Products of the tokens of each expert, against references in float64 and exact integers."""

import pytest
import torch
import torch_npu
from aclnn import Float, InOut, Out, Rejected, nz, written_by

pytestmark = pytest.mark.usefixtures("internal_formats")

EPSILON = torch.finfo(torch.float32).eps


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


def integers(*shape, bits=8):
    high = 2 ** (bits - 1)
    return torch.randint(-high, high, shape, dtype=torch.int8)


def packed(values):
    """Int4, eight in an int32, the first in the lowest bits."""
    nibbles = (values.long() & 15).unflatten(-1, (-1, 8))
    return (nibbles << torch.arange(0, 32, 4)).sum(-1).to(torch.int32)


def trans_quant_param(scale):
    """The packed parameters, and the scales that they hold."""
    parameters = torch_npu.npu_trans_quant_param(scale.flatten().npu()).cpu().view(scale.shape)
    return parameters, (parameters & 0xFFFFFFFF).to(torch.int32).view(torch.float32)


def by_group(sizes, function):
    """The rows of function(expert, rows), where the experts' tokens follow each other."""
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return torch.cat(
        [function(i, slice(end - size, end)) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))]
    )


def assert_close(actual, expected, bound, terms=64):
    error = torch.finfo(actual.dtype).eps * expected.abs() + terms * EPSILON * bound + 1e-7
    assert ((actual.double() - expected).abs() <= error).all()


SIZES = {"even": [4, 4, 4], "uneven": [7, 0, 5], "one": [1, 0, 0], "none": [0, 0, 0], "at the end": [0, 0, 13]}
LISTS = {
    0: lambda sizes: torch.tensor(sizes).cumsum(0),
    1: torch.tensor,
    2: lambda sizes: torch.tensor([[i, size] for i, size in enumerate(sizes)]),
}
K, N = 64, 48


ACTIVATIONS = {
    1: torch.relu,
    2: lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    4: lambda x: x * torch.sigmoid(1.702 * x),
    5: torch.nn.functional.silu,
}


class TestGroupedMatmul:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("list_type", LISTS)
    @pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
    def test_floating_types(self, sizes, list_type, dtype):
        tokens = sum(sizes)
        x, weight = torch.randn(tokens, K).to(dtype), torch.randn(3, K, N).to(dtype)
        bias = torch.randn(3, N).to(torch.float32 if dtype == torch.bfloat16 else dtype)
        [result] = torch_npu.npu_grouped_matmul(
            [x.npu()],
            [weight.npu()],
            bias=[bias.npu()],
            group_list=LISTS[list_type](sizes).npu(),
            split_item=3,
            group_type=0,
            group_list_type=list_type,
        )
        x, weight, bias = x.double(), weight.double(), bias.double()
        expected = by_group(sizes, lambda i, rows: x[rows] @ weight[i] + bias[i])
        bound = by_group(sizes, lambda i, rows: x[rows].abs() @ weight[i].abs() + bias[i].abs())
        assert result.dtype == dtype
        assert_close(result.cpu(), expected, bound)

    def test_pairs_name_the_experts(self):
        x, weight = torch.randn(9, K), torch.randn(3, K, N)
        pairs = torch.tensor([[2, 5], [0, 4], [1, 0]])
        [result] = torch_npu.npu_grouped_matmul(
            [x.npu()], [weight.npu()], group_list=pairs.npu(), split_item=3, group_type=0, group_list_type=2
        )
        expected = torch.cat([x[:5].double() @ weight[2].double(), x[5:].double() @ weight[0].double()])
        torch.testing.assert_close(result.cpu().double(), expected, rtol=1e-5, atol=1e-4)

    def test_rows_past_the_groups_are_not_written(self):
        x, weight = torch.randn(9, K), torch.randn(2, K, N)
        [result] = written_by(
            "aclnnGroupedMatmulV5", *v5(x=[x], weight=[weight], group_list=torch.tensor([2, 6]), out=[Out((9, N))])
        )
        assert not result[6:].any()
        torch.testing.assert_close(result[:2], x[:2] @ weight[0], rtol=1e-4, atol=1e-4)

    def test_lists_of_tensors(self):
        xs, weights = [torch.randn(m, k) for m, k in ((3, 16), (0, 8), (5, 32))], None
        weights = [torch.randn(x.size(1), 24) for x in xs]
        results = torch_npu.npu_grouped_matmul(
            [x.npu() for x in xs], [w.npu() for w in weights], split_item=0, group_type=-1
        )
        for result, x, weight in zip(results, xs, weights, strict=True):
            torch.testing.assert_close(result.cpu(), x @ weight, rtol=1e-4, atol=1e-4)

    def test_groups_of_what_is_summed(self):
        x, weight = torch.randn(13, 8), torch.randn(13, 24)
        [result] = torch_npu.npu_grouped_matmul(
            [x.npu().t()], [weight.npu()], group_list=torch.tensor([4, 4, 13]).npu(), split_item=3, group_type=2
        )
        for i, rows in enumerate((slice(0, 4), slice(4, 4), slice(4, 13))):
            torch.testing.assert_close(result[i].cpu(), x[rows].t() @ weight[rows], rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("with_tokens", [False, True])
    @pytest.mark.parametrize("in_blocks", [False, True], ids=["ND", "NZ"])
    @pytest.mark.parametrize("out", [torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
    def test_int8(self, sizes, out, in_blocks, with_tokens):
        tokens = sum(sizes)
        x, weight = integers(tokens, K), integers(3, K, N)
        scale, token_scale = torch.rand(3, N) / 100, torch.rand(tokens) / 10
        bias = (
            torch.randint(-99, 99, (3, N), dtype=torch.int32) if out == torch.float16 else torch.rand(3, N).bfloat16()
        )
        device_weight = torch_npu.npu_format_cast(weight.npu(), 29) if in_blocks else weight.npu()
        [result] = torch_npu.npu_grouped_matmul(
            [x.npu()],
            [device_weight],
            bias=[bias.npu()],
            scale=[scale.npu()],
            per_token_scale=[token_scale.npu()] if with_tokens else None,
            group_list=torch.tensor(sizes).npu(),
            group_list_type=1,
            split_item=2,
            group_type=0,
            output_dtype=out,
        )
        factor = token_scale.double() if with_tokens else torch.ones(tokens, dtype=torch.float64)
        x, weight, wide, scale = x.double(), weight.double(), bias.double(), scale.double()
        before, after = (wide, wide * 0) if out == torch.float16 else (wide * 0, wide)
        expected = by_group(sizes, lambda i, r: (x[r] @ weight[i] + before[i]) * scale[i] * factor[r, None] + after[i])
        assert_close(result.cpu(), expected, expected.abs())

    def test_int8_results_and_sums_are_exact(self):
        sizes = [7, 0, 5]
        x, weight, bias = integers(12, K), integers(3, K, N), torch.randint(-99, 99, (3, N), dtype=torch.int32)
        sums = by_group(sizes, lambda i, r: x[r].double() @ weight[i].double() + bias[i])
        ends = torch.tensor(sizes).cumsum(0)
        [result] = torch_npu.npu_grouped_matmul(
            [x.npu()],
            [weight.npu()],
            bias=[bias.npu()],
            group_list=ends.npu(),
            split_item=3,
            group_type=0,
            output_dtype=torch.int32,
        )
        assert torch.equal(result.cpu(), sums.int())
        parameters, _ = trans_quant_param(torch.full((3, N), 2.0**-9))
        [result] = torch_npu.npu_grouped_matmul(
            [x.npu()],
            [weight.npu()],
            bias=[bias.npu()],
            scale=[parameters.npu()],
            group_list=ends.npu(),
            split_item=3,
            group_type=0,
            output_dtype=torch.int8,
        )
        assert torch.equal(result.cpu(), (sums * 2.0**-9).round().clamp(-128, 127).to(torch.int8))

    @pytest.mark.parametrize("act_type", ACTIVATIONS)
    def test_activations(self, act_type):
        x, weight, scale = integers(5, K), integers(2, K, N), torch.rand(2, N) / 1000
        [result] = torch_npu.npu_grouped_matmul(
            [x.npu()],
            [weight.npu()],
            scale=[scale.npu()],
            group_list=torch.tensor([2, 5]).npu(),
            split_item=3,
            group_type=0,
            act_type=act_type,
            output_dtype=torch.float16,
        )
        sums = by_group([2, 3], lambda i, r: x[r].double() @ weight[i].double() * scale[i].double())
        expected = ACTIVATIONS[act_type](sums)
        assert_close(result.cpu(), expected, sums.abs())

    @pytest.mark.parametrize("groups", [1, 2])
    @pytest.mark.parametrize("with_offset", [False, True])
    def test_int8_by_int4(self, groups, with_offset):
        k, sizes = 512, [7, 0, 5]
        x, weight = integers(12, k), integers(3, k, N, bits=4)
        parameters, scale = trans_quant_param(torch.rand(3, groups, N) / 100)
        scale = scale.double().repeat_interleave(k // groups, 1)
        assist = (8 * (weight.double() * scale).sum(1)).float()
        offset = torch.rand(3, 1, N) / 10 if with_offset else None
        token_scale = torch.rand(12)
        [result] = torch_npu.npu_grouped_matmul(
            [x.npu()],
            [packed(weight).npu()],
            bias=[assist.npu()],
            scale=[parameters.npu()],
            offset=[offset.npu()] if with_offset else None,
            per_token_scale=[token_scale.npu()],
            group_list=torch.tensor(sizes).npu(),
            group_list_type=1,
            split_item=3,
            group_type=0,
            output_dtype=torch.float16,
        )
        x = x.double()
        values = weight.double() * scale + (offset.double() if with_offset else 0)
        expected = by_group(sizes, lambda i, r: x[r] @ values[i] * token_scale[r, None].double())
        bound = by_group(sizes, lambda i, r: (x[r].abs() + 16) @ values[i].abs() * token_scale[r, None].double())
        assert_close(result.cpu(), expected, bound)

    @pytest.mark.parametrize("groups", [0, 2])
    def test_int4(self, groups):
        x, weight = integers(12, K, bits=4), integers(3, K, N, bits=4)
        parameters, scale = trans_quant_param(torch.rand(3, max(groups, 1), N) / 10)
        token_scale = torch.rand(12)
        [result] = written_by(
            "aclnnGroupedMatmulV5",
            *v5(
                x=[packed(x)],
                weight=[packed(weight)],
                scale=[parameters if groups else parameters[:, 0]],
                per_token_scale=[token_scale],
                group_list=torch.tensor([7, 7, 12]),
                out=[Out((12, N), torch.bfloat16)],
            ),
        )
        values = weight.double() * scale.double().repeat_interleave(K // max(groups, 1), 1)
        expected = by_group([7, 0, 5], lambda i, r: x[r].double() @ values[i] * token_scale[r, None].double())
        assert_close(result, expected, expected.abs() + 1)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("bits", [4, 8])
    @pytest.mark.parametrize("groups", [0, 2])
    def test_floating_types_by_quantised_weights(self, groups, bits, dtype):
        x, weight = torch.randn(12, K).to(dtype), integers(3, K, N, bits=bits)
        shape = (3, groups, N) if groups and bits == 4 else (3, N)
        scale, offset = (torch.rand(shape) / 10).to(dtype), torch.randint(-4, 4, shape).to(dtype)
        [result] = torch_npu.npu_grouped_matmul(
            [x.npu()],
            [(packed(weight) if bits == 4 else weight).npu()],
            antiquant_scale=[scale.npu()],
            antiquant_offset=[offset.npu()],
            group_list=torch.tensor([7, 7, 12]).npu(),
            split_item=3,
            group_type=0,
        )
        rows = [t.double().view(3, -1, N) for t in (scale, offset)]
        scale, offset = (t.repeat_interleave(K // t.size(1), 1) for t in rows)
        values = (weight.double() + offset) * scale
        expected = by_group([7, 0, 5], lambda i, r: x[r].double() @ values[i])
        bound = by_group([7, 0, 5], lambda i, r: x[r].double().abs() @ values[i].abs())
        assert_close(result.cpu(), expected, bound)


def v5(
    x,
    weight,
    group_list,
    out,
    bias=None,
    scale=None,
    offset=None,
    antiquant_scale=None,
    antiquant_offset=None,
    per_token_scale=None,
    split_item=3,
    group_type=0,
    group_list_type=0,
    act_type=0,
):
    return [
        x,
        weight,
        bias,
        scale,
        offset,
        antiquant_scale,
        antiquant_offset,
        per_token_scale,
        group_list,
        None,
        None,
        None,
        split_item,
        group_type,
        group_list_type,
        act_type,
        None,
        out,
        None,
        None,
    ]


RIGHT = {
    "x": [torch.randn(9, K)],
    "weight": [torch.randn(3, K, N)],
    "group_list": torch.tensor([2, 5, 9]),
    "out": [Out((9, N))],
}
WRONG = {
    "decreasing ends": ({"group_list": torch.tensor([5, 4, 9])}, r"group_list\[1\] is 4; expected 5 to 9"),
    "ends past the rows": ({"group_list": torch.tensor([5, 6, 10])}, r"group_list\[2\] is 10; expected 6 to 9"),
    "a negative size": (
        {"group_list": torch.tensor([5, -1, 3]), "group_list_type": 1},
        r"group_list\[1\] is -1; expected 0 to 4",
    ),
    "too many rows": (
        {"group_list": torch.tensor([5, 3, 3]), "group_list_type": 1},
        r"group_list\[2\] is 3; expected 0 to 1",
    ),
    "an expert": (
        {"group_list": torch.tensor([[0, 5], [3, 1], [1, 1]]), "group_list_type": 2},
        r"group_list\[1, 0\] is 3; expected 0 to 2",
    ),
    "length of the list": ({"group_list": torch.tensor([2, 9])}, r"group_list has shape \[2\]; expected \[3\]"),
    "type of the list": ({"group_list_type": 3}, "group_list_type is 3; expected 0 to 2"),
    "group type": ({"group_type": 1}, r"group_type is 1; expected -1 \(none\), 0 \(rows\) or 2"),
    "split item": ({"split_item": 4}, "split_item is 4; expected 0 to 3"),
    "activation": ({"act_type": 1}, "act_type is 1; expected 0, but for int8"),
    "no activation": ({"act_type": 3}, "act_type is 3; expected 0, 1, 2, 4 or 5"),
    "dtypes": (
        {"weight": [torch.randn(3, K, N).half()]},
        "weight has dtype float16; expected float32, where x is float32",
    ),
    "scale": ({"scale": [torch.rand(3, N)]}, "scale has dtype float32; expected null, where x is float32"),
    "bias": ({"bias": [torch.rand(2, N)]}, r"bias has shape \[2, 48\]; expected 3 rows"),
    "columns of the bias": ({"bias": [torch.rand(3, 5)]}, r"bias has shape \[5\] for one expert; expected \[48\]"),
    "rows of weight": ({"weight": [torch.randn(3, 60, N)]}, r"weight has shape \[60, 48\]; expected 64 rows"),
    "out": ({"out": [Out((8, N))]}, r"out has shape \[8, 48\]; expected \[9, 48\]"),
    "token scale": ({"per_token_scale": [torch.rand(9)]}, "per_token_scale has dtype float32; expected null"),
}


@pytest.mark.parametrize("change, message", WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises((Rejected, RuntimeError), match="aclnnGroupedMatmulV5: " + message):
        written_by("aclnnGroupedMatmulV5", *v5(**{**RIGHT, **change}))


def v1(x, weight, ends, out, bias=None, scale=None, antiquant_scale=None, split_item=3):
    return [x, weight, bias, scale, None, antiquant_scale, None, ends, split_item, out]


FIRST_VERSION = {
    "float32": ({"x": torch.randn(9, K), "weight": torch.randn(3, K, N), "bias": torch.randn(3, N)}, torch.float32),
    "int8": ({"x": integers(9, K), "weight": integers(3, K, N), "scale": torch.rand(3, N).bfloat16()}, torch.bfloat16),
    "int8 weight": (
        {
            "x": torch.randn(9, K).half(),
            "weight": integers(3, K, N),
            "antiquant_scale": (torch.rand(3, N) / 10).half(),
        },
        torch.float16,
    ),
}


@pytest.mark.parametrize("given, dtype", FIRST_VERSION.values(), ids=FIRST_VERSION)
def test_the_first_version_takes_the_ends_as_numbers(given, dtype):
    lists, ends, out = {name: [tensor] for name, tensor in given.items()}, [4, 4, 9], [Out((9, N), dtype)]
    [expected] = written_by("aclnnGroupedMatmulV5", *v5(**lists, group_list=torch.tensor(ends), out=out))
    [result] = written_by("aclnnGroupedMatmul", *v1(**lists, ends=ends, out=out))
    assert expected.any()
    assert torch.equal(result, expected)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"ends": [5, 4, 9]}, r"group_list\[1\] is 4; expected 5 to 9"),
        ({"ends": [2, 9]}, r"group_list has shape \[2\]; expected \[3\]"),
        ({"split_item": 4}, "split_item is 4; expected 0 to 3"),
    ],
)
def test_wrong_arguments_of_the_first_version_are_named(change, message):
    right = {name: RIGHT[name] for name in ("x", "weight", "out")} | {"ends": [2, 5, 9]}
    with pytest.raises((Rejected, RuntimeError), match="aclnnGroupedMatmul: " + message):
        written_by("aclnnGroupedMatmul", *v1(**{**right, **change}))


def swiglu_quantised(sums):
    left, right = sums.chunk(2, 1)
    result = left * torch.sigmoid(left) * right
    scale = result.abs().amax(1) / 127
    return (result / scale[:, None]).round().clamp(-128, 127), scale


def assert_quantised(values, scales, expected):
    """A value next to the middle of two integers may be rounded to either."""
    wanted, wanted_scales = expected
    torch.testing.assert_close(scales.double(), wanted_scales, rtol=1e-5, atol=1e-8)
    difference = (values.double() - wanted).abs()
    assert difference.max() <= 1
    assert (difference > 0).double().mean() < 1e-3


WRONG_SWIGLU = {
    "weight scale": ({"weight_scale": [torch.rand(3, 5)]}, r"weight_scale has shape \[3, 5\]; expected \[3, 96\]"),
    "assistance": (
        {"assist": [torch.rand(3, 2 * N)]},
        "weight_assist_matrix is not null; expected null, where weight is int8",
    ),
    "mode": ({"dequant_mode": 2}, "dequant_mode is 2; expected 0 to 1"),
    "x_scale": ({"x_scale": torch.rand(4)}, r"x_scale has shape \[4\]; expected \[5\]"),
    "output": ({"output": Out((5, 2 * N), torch.int8)}, r"output has shape \[5, 96\]; expected \[5, 48\]"),
    "list": ({"group_list": torch.tensor([3, 2, 5])}, r"group_list\[1\] is 2; expected 3 to 5"),
}


class TestSwigluQuant:
    @pytest.mark.parametrize("sizes", [[7, 0, 5], [0, 1, 0]])
    @pytest.mark.parametrize("kind", ["v1", "v2", "v2 NZ"])
    def test_int8(self, kind, sizes):
        tokens = sum(sizes)
        x, weight, scale, x_scale = (
            integers(tokens, K),
            integers(3, K, 2 * N),
            torch.rand(3, 2 * N) / 100,
            torch.rand(tokens),
        )
        device_weight = weight.npu() if kind == "v2" else torch_npu.npu_format_cast(weight.npu(), 29)
        ends = torch.tensor(sizes).cumsum(0).npu()
        if kind == "v1":
            values, scales, _ = torch_npu.npu_grouped_matmul_swiglu_quant(
                x.npu(), device_weight, ends, scale.npu(), x_scale.npu()
            )
        else:
            values, scales = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
                x.npu(), [device_weight], [scale.npu()], x_scale.npu(), ends, quant_dtype=torch.int8
            )
        sums = by_group(
            sizes, lambda i, r: x[r].double() @ weight[i].double() * scale[i].double() * x_scale[r, None].double()
        )
        assert values.dtype == torch.int8
        assert_quantised(values.cpu(), scales.cpu(), swiglu_quantised(sums))

    @pytest.mark.parametrize("groups", [0, 2])
    def test_int8_by_int4(self, groups):
        k, sizes = 128, [3, 0, 2]
        x, weight, x_scale = integers(5, k), integers(3, k, 2 * N, bits=4), torch.rand(5)
        parameters, scale = trans_quant_param(torch.rand(3, max(groups, 1), 2 * N) / 100)
        values_of_weight = weight.double() * scale.double().repeat_interleave(k // scale.size(1), 1)
        assist = (8 * values_of_weight.sum(1)).float()
        values, scales = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
            x.npu(),
            [packed(weight).npu()],
            [(parameters if groups else parameters[:, 0]).npu()],
            x_scale.npu(),
            torch.tensor(sizes).npu(),
            weight_assist_matrix=[assist.npu()],
            dequant_mode=1 if groups else 0,
            group_list_type=1,
            quant_dtype=torch.int8,
        )
        sums = by_group(sizes, lambda i, r: x[r].double() @ values_of_weight[i] * x_scale[r, None].double())
        assert_quantised(values.cpu(), scales.cpu(), swiglu_quantised(sums))

    @pytest.mark.parametrize("change, message", WRONG_SWIGLU.values(), ids=WRONG_SWIGLU)
    def test_wrong_arguments_are_named(self, change, message):
        given = {
            "x": integers(5, K),
            "weight": [integers(3, K, 2 * N)],
            "weight_scale": [torch.rand(3, 2 * N)],
            "assist": None,
            "bias": None,
            "x_scale": torch.rand(5),
            "smooth_scale": None,
            "group_list": torch.tensor([3, 3, 5]),
            "dequant_mode": 0,
            "dequant_dtype": 0,
            "quant_mode": 0,
            "group_list_type": 0,
            "tuning": None,
            "output": Out((5, N), torch.int8),
            "output_scale": Out((5,)),
        }
        with pytest.raises((Rejected, RuntimeError), match="aclnnGroupedMatmulSwigluQuantV2: " + message):
            written_by("aclnnGroupedMatmulSwigluQuantV2", *{**given, **change}.values())

    @pytest.mark.parametrize("bits", [4, 8])
    def test_the_first_version_takes_weights_in_either_format(self, bits):
        sizes, x, weight, x_scale = [3, 0, 2], integers(5, K), integers(3, K, 2 * N, bits=bits), torch.rand(5)
        scale, assist, given = torch.rand(3, 2 * N) / 100, None, weight
        kept = scale
        if bits == 4:
            scale, kept = trans_quant_param(scale)
            given, assist = packed(weight), (8 * (weight.double() * kept.double()[:, None]).sum(1)).float()
        last = assist, None, scale, x_scale, torch.tensor(sizes).cumsum(0)
        out = Out((5, N), torch.int8), Out((5,)), None
        values, scales = written_by("aclnnGroupedMatmulSwigluQuant", x, given, *last, *out)
        sums = by_group(
            sizes, lambda i, r: x[r].double() @ weight[i].double() * kept[i].double() * x_scale[r, None].double()
        )
        assert_quantised(values, scales, swiglu_quantised(sums))
        in_blocks = written_by("aclnnGroupedMatmulSwigluQuantWeightNZ", x, nz(given), *last, *out)
        assert torch.equal(in_blocks[0], values)
        assert torch.equal(in_blocks[1], scales)

    def test_wrong_arguments_of_the_first_version_are_named(self):
        scale, ends = torch.rand(3, 5), torch.tensor([3, 3, 5])
        message = r"aclnnGroupedMatmulSwigluQuant: weight_scale has shape \[3, 5\]; expected \[3, 96\]"
        with pytest.raises(Rejected, match=message):
            written_by(
                "aclnnGroupedMatmulSwigluQuant",
                *(integers(5, K), integers(3, K, 2 * N), None, None, scale, torch.rand(5), ends),
                *(Out((5, N), torch.int8), Out((5,)), None),
            )


class TestFinalizeRouting:
    @pytest.mark.parametrize("in_blocks", [False, True], ids=["ND", "NZ"])
    @pytest.mark.parametrize("bits", [4, 8])
    @pytest.mark.parametrize("shared", [False, True])
    def test_the_formula(self, shared, bits, in_blocks):
        batch, sizes, k = 4, [5, 0, 3], 64
        x, weight, token_scale = integers(8, k), integers(3, k, N, bits=bits), torch.rand(8)
        logit, row_index = torch.rand(8), torch.tensor([0, 1, 1, 3, 2, 3, 0, 1])
        shared_input = torch.randn(2, N).bfloat16() if shared else None
        if bits == 4:
            scale, kept = trans_quant_param(torch.rand(3, 1, N) / 100)
            values = weight.double() * kept.double()
            bias = (8 * values.sum(1)).float()
        else:
            scale = torch.rand(3, N) / 100
            values, bias = weight.double() * scale.double()[:, None], None
        stored = (packed(weight) if bits == 4 else weight).npu()
        result = torch_npu.npu_grouped_matmul_finalize_routing(
            x.npu(),
            torch_npu.npu_format_cast(stored, 29) if in_blocks else stored,
            torch.tensor(sizes).npu(),
            scale=scale.npu(),
            bias=None if bias is None else bias.npu(),
            pertoken_scale=token_scale.npu(),
            shared_input=shared_input.npu() if shared else None,
            logit=logit.npu(),
            row_index=row_index.npu(),
            shared_input_weight=0.5,
            shared_input_offset=1,
            output_bs=batch,
            group_list_type=1,
        )
        rows = by_group(sizes, lambda i, r: x[r].double() @ values[i] * token_scale[r, None].double())
        expected = torch.zeros(batch, N, dtype=torch.float64)
        if shared:
            expected[1:3] += 0.5 * shared_input.double()
        expected.index_add_(0, row_index, rows * logit[:, None].double())
        torch.testing.assert_close(result.cpu().double(), expected, rtol=1e-4, atol=1e-3)

    def test_a_row_outside_the_batch_is_named(self):
        arguments = [
            integers(3, K),
            integers(1, K, N),
            torch.rand(1, N),
            None,
            None,
            None,
            None,
            torch.rand(3),
            torch.tensor([3]),
            None,
            torch.rand(3),
            torch.tensor([0, 4, 1]),
            0,
        ]
        with pytest.raises((Rejected, RuntimeError), match=r"row_index\[1\] is 4; expected 0 to 3"):
            written_by("aclnnGroupedMatmulFinalizeRoutingV3", *arguments, Float(1.0), 0, 0, 0, 1, None, Out((4, N)))

    @staticmethod
    def written(name, x, weight, scale, bias, token_scale, *last, offset=None, out):
        """What a version of the function writes: the first ones lack offsets, the last ones have a configuration."""
        first = name in ("aclnnGroupedMatmulFinalizeRouting", "aclnnGroupedMatmulFinalizeRoutingWeightNz")
        offsets, tuning = () if first else (offset, None, None), (None,) if name.endswith("V3") else ()
        return written_by(name, x, weight, scale, bias, *offsets, token_scale, *last, *tuning, out)[0]

    @pytest.mark.parametrize("bits", [4, 8])
    def test_earlier_versions(self, bits):
        x, weight, token_scale = integers(8, K), integers(3, K, N, bits=bits), torch.rand(8)
        scale, bias, offset = torch.rand(3, N) / 100, None, None
        if bits == 4:
            scale, kept = trans_quant_param(scale[:, None])
            bias, offset = (8 * (weight.double() * kept.double()).sum(1)).float(), torch.rand(3, 1, N) / 10
        given = packed(weight) if bits == 4 else weight
        shared, row_index = torch.randn(2, N).bfloat16(), torch.tensor([0, 1, 1, 3, 2, 3, 0, 1])
        last = torch.tensor([5, 0, 3]), shared, torch.rand(8), row_index, 0, Float(0.5), 1, 0, 0, 1
        out = Out((4, N))

        def written(version, weight=given, **more):
            name = "aclnnGroupedMatmulFinalizeRouting" + version
            return self.written(name, x, weight, scale, bias, token_scale, *last, **more, out=out)

        expected = written("V3")
        assert expected.any()
        assert torch.equal(written(""), expected)
        assert torch.equal(written("WeightNz", nz(given)), expected)
        assert torch.equal(written("V2"), expected)
        if bits == 4:
            with_offset = written("V3", offset=offset)
            assert not torch.equal(with_offset, expected)
            assert torch.equal(written("V2", offset=offset), with_offset)

    @pytest.mark.parametrize("version", ["", "WeightNz", "V2", "V3"])
    def test_another_dtype_is_named(self, version):
        weight, name = integers(1, K, N), "aclnnGroupedMatmulFinalizeRouting" + version
        last = torch.tensor([3]), None, torch.rand(3), torch.tensor([0, 3, 1]), 1, Float(1.0), 0, 0, 0, 1
        with pytest.raises(Rejected, match=rf"{name}: dtype is 1; expected 0 \(float32\)"):
            self.written(
                name,
                *(integers(3, K), nz(weight) if version == "WeightNz" else weight, torch.rand(1, N), None),
                *(torch.rand(3), *last),
                out=Out((4, N)),
            )


class TestGroupedMatmulAdd:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_both_versions(self, dtype):
        x, weight, y = torch.randn(13, 8).to(dtype), torch.randn(13, 24).to(dtype), torch.randn(3, 8, 24)
        groups = (slice(0, 4), slice(4, 4), slice(4, 13))
        expected = y + torch.stack([x[r].float().t() @ weight[r].float() for r in groups])
        result = y.npu()
        torch_npu.npu_grouped_matmul_add_(result, x.npu(), weight.npu(), torch.tensor([4, 4, 13]).npu())
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-4)
        [second] = written_by("aclnnGroupedMatmulAddV2", x, weight, torch.tensor([4, 0, 9]), InOut(y), 1, 0, 2, 1)
        torch.testing.assert_close(second, expected, rtol=1e-4, atol=1e-4)
