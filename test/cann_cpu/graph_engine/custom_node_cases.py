# SPDX-License-Identifier: Apache-2.0
"""Custom nodes of the operator package in package/, which test_custom_nodes.py builds; run in a separate process."""

import re

import pytest
import torch
import torch_npu
import torchair
from torchair.ge import attr
from torchair.ge import custom_op as ge_custom_op

from custom_pypto.modes import MODES

library = torch.library.Library("probe", "DEF")
library.define(
    "mix(Tensor x, Tensor? bias, Tensor[] rest, *, float scale=1.0, int shift=0, bool negate=False, str mode='plain',"
    " float[] weights=[]) -> (Tensor, Tensor)"
)
library.define("increment(Tensor(a!) self, Tensor other) -> ()")
library.define("increment_both(Tensor(a!) self, Tensor other, Tensor(b!) also) -> ()")
library.define("stored(Tensor x) -> (Tensor, Tensor)")
library.define("append(Tensor x, Tensor(a!) cache, Tensor slots) -> (Tensor, Tensor)")
library.define("fail(Tensor x) -> Tensor")
library.define("missing(Tensor x) -> Tensor")
library.define("unknown(Tensor x) -> Tensor")


@torch.library.impl(library, "mix", "Meta")
def mix_meta(x, bias, rest, *, scale=1.0, shift=0, negate=False, mode="plain", weights=()):
    return torch.empty_like(x), x.new_empty(())


torch.library.impl(library, "increment", "Meta")(lambda self, other: None)
torch.library.impl(library, "increment_both", "Meta")(lambda self, other, also: None)
torch.library.impl(library, "stored", "Meta")(lambda x: (torch.empty_like(x), x.new_empty(1, dtype=torch.int32)))
for name in ("fail", "missing", "unknown"):
    torch.library.impl(library, name, "Meta")(torch.empty_like)


@torchair.register_fx_node_ge_converter(torch.ops.probe.mix.default)
def convert_mix(x, bias, rest, *, scale=1.0, shift=0, negate=False, mode="plain", weights=(), meta_outputs=None):
    return ge_custom_op(
        "ProbeMix",
        inputs={"x": x, "bias": bias, "rest": list(rest)},
        attrs={
            "scale": attr.Float(scale),
            "shift": attr.Int(shift),
            "negate": attr.Bool(negate),
            "mode": attr.Str(mode),
            "weights": attr.ListFloat(list(weights)),
        },
        outputs=["y", "total"],
    )


def increment_node(self, other, also):
    inputs = {"self": self, "other": other, "also": also}
    return ge_custom_op("ProbeIncrement", inputs=inputs, outputs=["self", "also"])


@torchair.register_fx_node_ge_converter(torch.ops.probe.increment.default)
def convert_increment(self, other, meta_outputs=None):
    increment_node(self, other, None)


@torchair.register_fx_node_ge_converter(torch.ops.probe.increment_both.default)
def convert_increment_both(self, other, also, meta_outputs=None):
    increment_node(self, other, also)


@torchair.register_fx_node_ge_converter(torch.ops.probe.stored.default)
def convert_stored(x, meta_outputs=None):
    return ge_custom_op("ProbeStored", inputs={"x": x}, outputs=["y", "format"])


@torch.library.impl(library, "append", "Meta")
def append_meta(x, cache, slots):
    return x.new_empty(x.shape), x.new_empty(1, dtype=torch.int64)


@torch.library.impl(library, "append", "PrivateUse1")
def append_eager(x, cache, slots):
    cache.index_copy_(0, slots, x)
    return x * 2, torch.full((1,), cache.data_ptr(), device=x.device)


@torchair.register_fx_node_ge_converter(torch.ops.probe.append.default)
def convert_append(x, cache, slots, meta_outputs=None):
    inputs = {"x": x, "cache": cache, "slots": slots}
    doubled, address, _ = ge_custom_op("ProbeAppend", inputs=inputs, outputs=["doubled", "address", "cache"])
    return doubled, address


def register_plain(name, op_type):
    @torchair.register_fx_node_ge_converter(getattr(torch.ops.probe, name).default)
    def convert(x, meta_outputs=None):
        return ge_custom_op(op_type, inputs={"x": x}, outputs=["y"])


register_plain("fail", "ProbeFail")
register_plain("missing", "ProbeMissing")


@torchair.register_fx_node_ge_converter(torch.ops.probe.unknown.default)
def convert_unknown(x, meta_outputs=None):
    from torchair._ge_concrete_graph.compat_ir import ge_op

    return ge_op(op_type="ProbeUnknown", inputs={"x": x}, outputs=["y"])


def compiled(function, dynamic=False):
    torch._dynamo.reset()
    return torch.compile(function, backend=torchair.get_npu_backend(), dynamic=dynamic, fullgraph=True)


def mixed(x, bias, rest, scale=1.0, shift=0, negate=False, mode="plain", weights=()):
    result = (x if bias is None else x + bias) * scale + shift
    for tensor, weight in zip(rest, weights or [1.0] * len(rest), strict=True):
        result = result + tensor * weight
    result = result * 2 if mode == "double" else result
    return (-result if negate else result), result.sum()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "attributes, with_bias, count",
    [
        *(({}, with_bias, count) for with_bias in (False, True) for count in (0, 1, 3)),
        ({"scale": 0.1, "shift": -3}, False, 1),
        ({"negate": True, "mode": "double", "scale": 2.5}, True, 1),
        ({"weights": True}, True, 3),
        ({"weights": True}, False, 0),
    ],
)
def test_inputs_and_attributes_reach_the_kernel(attributes, with_bias, count, dynamic):
    x = torch.randn(3, 5)
    bias = torch.randn(5) if with_bias else None
    rest = [torch.randn(3, 5) for _ in range(count)]
    if attributes.get("weights"):
        attributes = {"weights": [0.5 + i for i in range(count)]}
    graph = compiled(lambda x, bias, rest: torch.ops.probe.mix(x, bias, rest, **attributes), dynamic)
    y, total = graph(x.npu(), None if bias is None else bias.npu(), [tensor.npu() for tensor in rest])
    expected_y, expected_total = mixed(x, bias, rest, **attributes)
    torch.testing.assert_close(y.cpu(), expected_y)
    torch.testing.assert_close(total.cpu(), expected_total)


def test_one_dynamic_graph_serves_every_shape():
    graph = compiled(lambda x: torch.ops.probe.mix(x.t() * 2, None, [])[0] + 1, dynamic=True)
    for rows, columns in [(3, 5), (4, 7), (2, 2), (11, 3)]:
        x = torch.randn(rows, columns)
        torch.testing.assert_close(graph(x.npu()).cpu(), x.t() * 2 + 1)


def test_output_sizes_are_expressions_of_input_sizes():
    def function(x, y):
        joined = torch.cat([x, y, y], 0).reshape(-1)
        return torch.ops.probe.mix(joined, None, [])[0]

    graph = compiled(function, dynamic=True)
    for rows in (2, 5):
        x, y = torch.randn(rows, 4), torch.randn(rows + 1, 4)
        torch.testing.assert_close(graph(x.npu(), y.npu()).cpu(), torch.cat([x, y, y], 0).reshape(-1))


@pytest.mark.parametrize("dynamic", [False, True])
def test_in_place_writes_the_callers_tensor(dynamic):
    def function(x, y):
        torch.ops.probe.increment(x, y)
        return x * 2

    graph = compiled(function, dynamic)
    for size in (4, 6) if dynamic else (4, 4):
        x, y = torch.randn(size), torch.randn(size)
        on_npu = x.npu()
        doubled = graph(on_npu, y.npu())
        torch.testing.assert_close(on_npu.cpu(), x + y)
        torch.testing.assert_close(doubled.cpu(), (x + y) * 2)


@pytest.mark.parametrize("dynamic", [False, True])
def test_in_place_writes_an_optional_input_where_it_is_given(dynamic):
    """If it is not given, as in the tests above, the output of its name is empty."""
    x, y, z = torch.randn(4), torch.randn(4), torch.randn(4)
    self, also = x.npu(), z.npu()
    compiled(torch.ops.probe.increment_both, dynamic)(self, y.npu(), also)
    torch.testing.assert_close(self.cpu(), x + y)
    torch.testing.assert_close(also.cpu(), z + y)


def test_in_place_reads_all_before_it_writes():
    def function(x):
        before = x.reshape(3, 2).t() * 1
        torch.ops.probe.increment(x, x * 10)
        return before, x.reshape(2, 3).t() * 1

    x = torch.arange(6.0)
    on_npu = x.npu()
    before, after = compiled(function)(on_npu)
    torch.testing.assert_close(on_npu.cpu(), x * 11)
    torch.testing.assert_close(after.cpu(), (x * 11).reshape(2, 3).t())
    torch.testing.assert_close(before.cpu(), x.reshape(3, 2).t())


def test_a_value_that_the_node_reads_itself_is_kept():
    """The row that is added is that of before, though it lies in the tensor that is written."""

    def function(x):
        torch.ops.probe.increment(x, x[1:2])
        return x + 0

    x = torch.randn(3, 4)
    on_npu = x.npu()
    result = compiled(function)(on_npu)
    torch.testing.assert_close(on_npu.cpu(), x + x[1])
    torch.testing.assert_close(result.cpu(), x + x[1])


def test_in_place_on_a_slice_leaves_the_rest_alone():
    def function(x, y):
        torch.ops.probe.increment(x[1:3, 1:], y)
        return x + 0

    x, y = torch.randn(4, 5), torch.randn(2, 4)
    on_npu = x.npu()
    result = compiled(function)(on_npu, y.npu())
    expected = x.clone()
    expected[1:3, 1:] += y
    torch.testing.assert_close(on_npu.cpu(), expected)
    torch.testing.assert_close(result.cpu(), expected)


def test_in_place_on_a_temporary():
    def function(x, y):
        temporary = x * 2
        copy = temporary.clone()
        torch.ops.probe.increment(temporary, y)
        return temporary, x + 1, copy

    x, y = torch.randn(4, 5), torch.randn(4, 5)
    temporary, other, copy = compiled(function)(x.npu(), y.npu())
    torch.testing.assert_close(temporary.cpu(), x * 2 + y)
    torch.testing.assert_close(other.cpu(), x + 1)
    torch.testing.assert_close(copy.cpu(), x * 2)


@pytest.fixture
def in_blocks(internal_formats):
    """Casts to FRACTAL_NZ."""
    return lambda matrix: torch_npu.npu_format_cast(matrix.npu(), 29)


@pytest.mark.parametrize(
    "dtype, dynamic",
    [(torch.int8, False), (torch.float16, False), (torch.float16, True), (torch.bfloat16, False)],
)
@pytest.mark.parametrize("shape", [(32, 64), (17, 33)])
def test_a_matrix_in_blocks_reaches_the_kernel_as_it_lies(in_blocks, shape, dtype, dynamic):
    matrix = torch.randint(-100, 100, shape).to(dtype)
    for value, format in [(matrix.npu(), 2), (in_blocks(matrix), 29)]:
        y, found = compiled(torch.ops.probe.stored, dynamic)(value)
        assert y.cpu().equal(matrix) and found.cpu().item() == format


def test_a_frozen_parameter_in_blocks_reaches_the_kernel_as_it_lies(in_blocks):
    matrix = torch.randn(17, 33).half()
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(in_blocks(matrix), requires_grad=False)
    module.forward = lambda x: (x + 1, *torch.ops.probe.stored(module.weight))
    config = torchair.CompilerConfig()
    config.experimental_config.frozen_parameter = True
    torch._dynamo.reset()
    graph = torch.compile(module, backend=torchair.get_npu_backend(compiler_config=config), fullgraph=True)
    for _ in range(2):
        _, y, found = graph(torch.zeros(2).npu())
        assert y.cpu().equal(matrix) and found.cpu().item() == 29


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_kernel_that_reads_rows_gets_a_copy_of_blocks(in_blocks, dynamic):
    x, bias, other = torch.randn(3, 17, 33)
    graph = compiled(torch.ops.probe.mix, dynamic)
    y, _ = graph(in_blocks(x), in_blocks(bias), [in_blocks(other), other.npu()])
    torch.testing.assert_close(y.cpu(), x + bias + other + other)


def test_blocks_are_not_written_in_place(in_blocks):
    def function(x, y):
        torch.ops.probe.increment(x, y)
        return x * 2

    with pytest.raises(RuntimeError, match="FRACTAL_NZ"):
        compiled(function)(in_blocks(torch.ones(17, 33)), torch.ones(17, 33).npu())
        torch.npu.synchronize()


# ---- a cache that is written in place, in every mode


def step(x, cache, slots):
    """Writes to the cache, then reads it."""
    doubled, address = torch.ops.probe.append(x, cache, slots)
    return doubled, cache.sum(dim=0), address


def two_steps(x, cache, slots):
    doubled, after_one, _ = step(x, cache, slots)
    more, after_two, address = step(doubled, cache, slots + 1)
    return more, after_one, after_two, address


def in_a_layer(x, caches, slots):
    """A contiguous part of the tensor that the graph is given."""
    doubled, address = torch.ops.probe.append(x, caches[1], slots)
    return doubled, caches.sum(dim=1), address


def interleaved(x, cache, slots):
    """The columns of one buffer."""
    first, _ = torch.ops.probe.append(x[:, :2], cache[:, :2], slots)
    second, address = torch.ops.probe.append(x[:, 2:] * 3, cache[:, 2:], slots)
    return first, second, cache * 1, address


def before_and_after(x, cache, slots):
    before = cache.view(-1)
    doubled, address = torch.ops.probe.append(x, cache, slots)
    return before * 1, doubled, cache * 1, address


def read_before(x, cache, slots):
    """What is written comes from the cache, which is read while it is written."""
    rows = cache[:2]
    doubled, address = torch.ops.probe.append(rows * 1 + x, cache, slots)
    return doubled, cache[:2] + rows, address


def kept(x, cache, slots):
    """A copy of before is read after the cache was written."""
    before = cache.clone()
    doubled, address = torch.ops.probe.append(x, cache, slots)
    return before, before.sum(dim=0), doubled, cache * 1, address


def copy_written(x, cache, slots):
    """Not the cache, but a copy of it."""
    copy = cache.clone()
    doubled, _ = torch.ops.probe.append(x, copy, slots)
    more, address = torch.ops.probe.append(x * 3, cache, slots + 1)
    return doubled, more, copy, cache * 1, address


def returned(x, cache, slots):
    doubled, address = torch.ops.probe.append(x, cache, slots)
    return doubled, cache, address


STEPS = [step, two_steps, in_a_layer, interleaved, before_and_after, read_before, kept, copy_written, returned]
COPIED_IN_GE = [kept]
"""Steps whose graph still needs the cache's old content."""


def right_calls(function, mode, times):
    """Calls a graph of the function with a new cache each time; for each call, where the kernel found which cache."""
    torch._dynamo.reset()
    graph = MODES[mode](function)
    for seed in range(times):
        torch.manual_seed(seed)
        shape = (3, 9, 4) if function is in_a_layer else (9, 4)
        x, cache, slots = torch.randn(2, 4).npu(), torch.randn(shape).npu(), torch.randperm(8)[:2].npu()
        reference = cache.clone()
        *expected, _ = function(x, reference, slots)
        *results, address = graph(x, cache, slots)
        for got, want in zip(results, expected, strict=True):
            assert torch.equal(got.cpu(), want.cpu())
        assert torch.equal(cache.cpu(), reference.cpu())
        yield address.item(), cache


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "eager"])
@pytest.mark.parametrize("function", STEPS)
def test_a_cache_is_written_in_the_memory_of_the_caller(function, mode):
    for address, cache in right_calls(function, mode, times=3):
        lies_in_cache = 0 <= address - cache.data_ptr() < cache.nbytes
        assert lies_in_cache == (not mode.startswith("GE") or function not in COPIED_IN_GE)


@pytest.fixture
def of_lists():
    """Lets append become a node whose prototype takes lists and does not say that the cache is written."""
    op = torch.ops.probe.append.default
    converter = op._ge_converter

    @torchair.register_fx_node_ge_converter(op)
    def convert(x, cache, slots, meta_outputs=None):
        return tuple(ge_custom_op("ProbeAppendList", inputs={"x": [x, cache, slots]}, outputs=[("y", 2)]))

    yield
    op._ge_converter = converter


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.startswith("GE")])
@pytest.mark.parametrize("function", STEPS)
def test_a_cache_is_written_where_the_prototype_does_not_say_so(function, mode, of_lists):
    assert len([*right_calls(function, mode, times=2)]) == 2


VIEWS = {
    "a layer": lambda caches: caches[1],
    "columns": lambda caches: caches[0, :, 2:6],
    "every other row": lambda caches: caches[2, ::2],
    "transposed": lambda caches: caches[0, :4].t(),
}


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "eager"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_cache_that_is_a_view_of_the_callers_tensor_is_written_and_nothing_beside_it(view, mode):
    torch._dynamo.reset()
    graph = MODES[mode](step)
    for _ in range(2):
        caches, slots = torch.randn(3, 8, 8).npu(), torch.tensor([2, 0]).npu()
        reference = caches.clone()
        x = torch.randn(2, VIEWS[view](caches).shape[1]).npu()
        *expected, _ = step(x, VIEWS[view](reference), slots)
        *results, _ = graph(x, VIEWS[view](caches), slots)
        for got, want in zip(results, expected, strict=True):
            assert torch.equal(got.cpu(), want.cpu())
        assert torch.equal(caches.cpu(), reference.cpu())


def test_an_unknown_node_type_is_rejected_when_the_graph_is_compiled():
    graph = compiled(lambda x: torch.ops.probe.unknown(x * 2) + 1)
    with pytest.raises(RuntimeError, match="ProbeUnknown") as raised:
        graph(torch.randn(3).npu())
    assert re.search(r"node '\S*ProbeUnknown\S*' of type ProbeUnknown", str(raised.value))
    assert "not a built-in node type" in str(raised.value)
    assert compiled(lambda x: x + 1)(torch.zeros(2).npu()).cpu().tolist() == [1, 1]


def test_a_missing_aclnn_function_is_named():
    with pytest.raises(RuntimeError, match="aclnnProbeMissingGetWorkspaceSize is in no operator package"):
        compiled(lambda x: torch.ops.probe.missing(x))(torch.randn(3).npu())


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_failing_kernel_is_an_error_and_the_next_call_works(dynamic):
    graph = compiled(lambda x: torch.ops.probe.fail(x) + 1, dynamic)
    good = torch.ones(3)
    assert graph(good.npu()).cpu().tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError) as raised:
        graph(-good.npu())
        torch.npu.synchronize()
    assert "of type ProbeFail" in str(raised.value)
    assert "x has a negative element" in str(raised.value)
    assert graph(good.npu()).cpu().tolist() == [2, 2, 2]


def test_registered_prototypes_are_read_back_in_declaration_order():
    from torchair.core import _torchair

    compiled(lambda x: x + 1)(torch.zeros(1).npu())  # initialises torchair
    status, inputs, outputs, attributes = _torchair.get_registered_ir_def("ProbeKinds")
    assert status == "SUCCESS"
    assert inputs == [("x", "required"), ("bias", "optional"), ("rest", "dynamic")]
    assert outputs == [("y", "required"), ("ys", "dynamic")]
    assert attributes == [
        ("an_int", "VT_INT"),
        ("a_float", "VT_FLOAT"),
        ("a_bool", "VT_BOOL"),
        ("a_string", "VT_STRING"),
        ("a_type", "VT_DATA_TYPE"),
        ("ints", "VT_LIST_INT"),
        ("floats", "VT_LIST_FLOAT"),
        ("bools", "VT_LIST_BOOL"),
        ("strings", "VT_LIST_STRING"),
        ("types", "VT_LIST_DATA_TYPE"),
        ("nested", "VT_LIST_LIST_INT"),
        ("needed_int", "VT_INT"),
        ("needed_floats", "VT_LIST_FLOAT"),
    ]
    assert _torchair.get_registered_ir_def("NoSuchOperator")[0] == "ERROR"


def test_the_ir_check_knows_prototypes_and_built_in_types():
    from torchair.core import _torchair

    assert _torchair.check_cann_compat("ProbeKinds", ("bias",), ("an_int",)) == ""
    assert "nothing" in _torchair.check_cann_compat("ProbeKinds", ("nothing",), ())
    assert _torchair.check_cann_compat("Bitcast", (), ("keep_dim",)) == ""
    assert "NoSuchOperator" in _torchair.check_cann_compat("NoSuchOperator", (), ())
