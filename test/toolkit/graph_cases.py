# SPDX-License-Identifier: Apache-2.0
"""Operators of the project in graphs, which test_graphs.py runs in a process that finds their package."""

import re

import pytest
import torch
import torch_npu  # noqa: F401
import torchair
from torchair.ge import Const, attr
from torchair.ge import custom_op as ge_custom_op

library = torch.library.Library("tested", "DEF")
library.define("repeat_rows(Tensor x, Tensor counts, Tensor like) -> (Tensor, Tensor)")
library.define("repeat_rows_const(Tensor x, int[] counts, bool all=False, int fault=0) -> (Tensor, Tensor)")
library.define("scaled_sum(Tensor x, Tensor y, Tensor? bias=None, *, float alpha=1.0, int fault=0) -> Tensor")

library.define("add_total(Tensor x, Tensor numbers) -> Tensor")

ATTRIBUTES = {
    "more": attr.Int(2),
    "number": attr.Float(1.0),
    "flag": attr.Bool(True),
    "text": attr.Str("ab"),
    "integers": attr.ListInt([1, 2]),
    "numbers": attr.ListFloat([3.0]),
}
ZEROS = 2 + 1 + 1 + 2 + 3 + 3
"""What they add up to."""


@torch.library.impl(library, "repeat_rows", "Meta")
def repeat_rows_meta(x, counts, like):
    # `like` is no input of the node: torchair cannot make a rule of its shape.
    return x.new_empty(like.shape[0], x.shape[1]), x.new_empty(x.shape[0], dtype=torch.int32)


@torch.library.impl(library, "repeat_rows_const", "Meta")
def repeat_rows_const_meta(x, counts, all=False, fault=0):
    # The second is of int32, which the engine learns of the OpDef: what torchair hands over is of this function.
    return x.new_empty(sum(counts) + ZEROS * all, x.shape[1]), x.new_empty(x.shape[0], dtype=torch.int64)


torch.library.impl(library, "scaled_sum", "Meta")(lambda x, y, bias=None, *, alpha=1.0, fault=0: torch.empty_like(x))


def node(x, counts, attributes):
    return ge_custom_op("RepeatRows", inputs={"x": x, "counts": counts}, attrs=attributes, outputs=["out", "first"])


@torchair.register_fx_node_ge_converter(torch.ops.tested.repeat_rows.default)
def convert_repeat_rows(x, counts, like, meta_outputs=None):
    return node(x, counts, {})


@torchair.register_fx_node_ge_converter(torch.ops.tested.repeat_rows_const.default)
def convert_repeat_rows_const(x, counts, all=False, fault=0, meta_outputs=None):
    return node(x, Const(counts), {"fault": attr.Int(fault)} | (ATTRIBUTES if all else {}))


@torch.library.impl(library, "add_total", "Meta")
def add_total_meta(x, numbers):
    return torch.empty_like(x)


@torchair.register_fx_node_ge_converter(torch.ops.tested.add_total.default)
def convert_add_total(x, numbers, meta_outputs=None):
    return ge_custom_op("AddTotal", inputs={"x": x, "numbers": numbers}, outputs=["y"])


@torchair.register_fx_node_ge_converter(torch.ops.tested.scaled_sum.default)
def convert_scaled_sum(x, y, bias=None, *, alpha=1.0, fault=0, meta_outputs=None):
    attributes = {"alpha": attr.Float(alpha), "fault": attr.Int(fault)}
    return ge_custom_op("ScaledSum", inputs={"x": x, "y": y, "the_bias": bias}, attrs=attributes, outputs=["out"])


def compiled(function, dynamic=False):
    torch._dynamo.reset()
    return torch.compile(function, backend=torchair.get_npu_backend(), dynamic=dynamic, fullgraph=True)


def repeated(x, counts):
    return torch.repeat_interleave(x, torch.tensor(counts), dim=0)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_shapes_and_dtypes_follow_from_the_op_def(biased, dynamic):
    graph = compiled(lambda x, y, bias: torch.ops.tested.scaled_sum(x, y, bias, alpha=0.5) * 2, dynamic)
    for rows in (3, 5) if dynamic else (3,):
        x, y, bias = torch.randn(3, rows, 7)
        out = graph(x.npu(), y.npu(), bias.npu() if biased else None)
        torch.testing.assert_close(out.cpu(), (x + 0.5 * y + (bias if biased else 0)) * 2)


@pytest.mark.parametrize("counts", [[2, 0, 3], [1, 1, 1]])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_values_of_a_constant_are_known(counts, dynamic):
    x = torch.randn(3, 9)
    graph = compiled(lambda x: torch.ops.tested.repeat_rows_const(x, counts)[0] + 1, dynamic)
    assert torch.equal(graph(x.npu()).cpu(), repeated(x, counts) + 1)


def test_attributes_of_every_type_reach_inference_and_tiling():
    x, counts = torch.randn(3, 9), [2, 0, 3]
    out = compiled(lambda x: torch.ops.tested.repeat_rows_const(x, counts, all=True)[0] + 0)(x.npu()).cpu()
    assert torch.equal(out, torch.cat([repeated(x, counts), torch.zeros(ZEROS, 9)]))


def test_the_op_def_goes_before_torchair_s_rule():
    """By the rule the second output would be of int64, which the aclnn function rejects."""
    graph = compiled(lambda x: torch.ops.tested.repeat_rows_const(x, [2, 0, 3])[1].float())
    assert graph(torch.randn(3, 9).npu()).cpu().tolist() == [0, 2, 2]


def test_values_that_the_graph_computes_are_read_when_the_node_runs():
    """The shape follows from them: torchair can make no rule of it."""
    graph = compiled(lambda x, counts, like: torch.ops.tested.repeat_rows(x, counts * 2, like)[0] + 1, dynamic=True)
    for counts in ([1, 0, 2], [0, 3, 1], [2, 2, 3]):
        x = torch.randn(3, 4)
        expected = repeated(x, [2 * count for count in counts]) + 1
        assert torch.equal(graph(x.npu(), torch.tensor(counts).npu(), expected.npu()).cpu(), expected)


# What fails, and what the error says of it.
def test_tiling_for_the_device_reads_what_the_graph_computes():
    graph = compiled(lambda x, numbers: torch.ops.tested.add_total(x, numbers * 2) + 1)
    x = torch.randn(5, 9)
    for numbers in ([3, 4, 5], [0, 0, 7]):
        out = graph(x.npu(), torch.tensor(numbers).npu())
        torch.testing.assert_close(out.cpu(), x + 2 * sum(numbers) + 1)


FAILURES = {
    "shape inference rejects": (
        lambda x: torch.ops.tested.repeat_rows_const(x, [1, 2], fault=1),
        r"of type RepeatRows.*: shape inference failed: the function of SetInferShape rejects"
        r" x float32\[2, 4\], counts int64\[2\]",
    ),
    "shape inference leaves a dimension open": (
        lambda x: torch.ops.tested.repeat_rows_const(x, [1, 2], fault=2),
        r"of type RepeatRows.*: shape inference failed: the function of SetInferShape gives output 0"
        r" the shape \[-1, 4\]",
    ),
    "tiling": (
        lambda x: torch.ops.tested.repeat_rows_const(x, [1, 2], fault=3),
        r"of type RepeatRows.*: aclnnRepeatRowsGetWorkspaceSize .*tiling failed",
    ),
    "tiling of an operator without values": (
        lambda x: torch.ops.tested.scaled_sum(x, x, fault=1),
        r"of type ScaledSum.*: aclnnScaledSumGetWorkspaceSize .*tiling failed",
    ),
    "the kernel": (
        lambda x: torch.ops.tested.scaled_sum(x, x, fault=6),
        r"ScaledSum: the kernel failed: .*it was asked to",
    ),
    "values of another dtype": (
        lambda x: torch.ops.tested.repeat_rows(x, torch.ones_like(x[:, 0]).int(), x),
        r"of type RepeatRows.*: its input 'counts' is DT_INT32\[2\]; with ValueDepend it is passed as a list of"
        r" DT_INT64",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_errors_name_the_node_the_operator_and_the_stage(failure):
    function, message = FAILURES[failure]
    with pytest.raises(RuntimeError) as raised:
        compiled(lambda x: function(x)[0] + 1)(torch.ones(2, 4).npu())
        torch.npu.synchronize()
    assert re.search(message, str(raised.value), flags=re.DOTALL), str(raised.value)
