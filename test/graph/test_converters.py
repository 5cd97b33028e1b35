# SPDX-License-Identifier: Apache-2.0
"""The converters: a graph holds the operator's node with all it was given, and computes what eager computes."""

import re
import sys
from pathlib import Path

import pytest
import references
import torch
import torch_npu  # noqa: F401

from custom_pypto.graph import prototypes

sys.path.append(str(Path(__file__).parents[1] / "custom_pypto"))
import calls

ops = torch.ops.custom_pypto


@pytest.fixture
def compiled(tmp_path):
    """compiled(function, dynamic=False): it as a Graph Engine graph, whose nodes are then in `nodes(tmp_path)`."""
    import torchair

    torch._dynamo.reset()
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = "pbtxt"
    config.debug.graph_dump.path = str(tmp_path)
    backend = torchair.get_npu_backend(compiler_config=config)
    yield lambda function, dynamic=False: torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)
    torch._dynamo.reset()


def nodes(directory: Path, ge_type: str) -> list[dict]:
    """The nodes of a type in the dumped graphs: {"inputs": names of its inputs, attribute: its text}."""
    found = []
    for graph in directory.glob("dynamo_original*.pbtxt"):
        for node in re.findall(r"^node \{\n(.*?)^\}", graph.read_text(), re.DOTALL | re.MULTILINE):
            if f'op: "{ge_type}"' in node:
                attributes = re.findall(r"""key: "([^"]*)"\s*value \{\s*s: ['"](.*)['"]$""", node, re.MULTILINE)
                inputs = [key.removeprefix("[i]") for key, _ in attributes if key.startswith("[i]")]
                found.append({"inputs": inputs} | {key: value for key, value in attributes if key[0] not in "[_"})
    return found


def random(shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype).npu()
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype).npu()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


# ---- add_custom

BROADCASTS = [((5,), (5,)), ((), (3,)), ((7, 1), (1, 13)), ((2, 3, 4), (4,)), ((0, 3), (3,)), ((1,), (1,))]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int16]
DTYPES += [torch.int32, torch.int64, torch.bool]
VECTOR = [torch.float32, torch.float16, torch.bfloat16, torch.int16, torch.int32]  # what AddCustom's kernel adds
MIXED = [(torch.float16, torch.float32), (torch.int32, torch.float16), (torch.bool, torch.int8)]
MIXED += [(torch.int64, torch.int32), (torch.bfloat16, torch.float16), (torch.uint8, torch.int8)]


@pytest.mark.parametrize(("left", "right"), BROADCASTS)
def test_add_custom_broadcasts(left, right, compiled, tmp_path):
    x, y = random(left, torch.float32), random(right, torch.float32)
    calls.assert_same(compiled(ops.add_custom)(x, y), ops.add_custom(x, y))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add_custom_in_every_dtype(dtype, compiled, tmp_path):
    x, y = random((3, 5), dtype), random((5,), dtype)
    result = compiled(ops.add_custom)(x, y)
    assert result.dtype == dtype
    calls.assert_same(result, ops.add_custom(x, y))
    added = nodes(tmp_path, "AddCustom"), nodes(tmp_path, "Add")
    assert [len(found) for found in added] == ([1, 0] if dtype in VECTOR else [0, 1])
    assert not nodes(tmp_path, "Cast")


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("dtypes", MIXED, ids=str)
def test_add_custom_promotes(dtypes, swapped, compiled):
    x, y = (random((3, 5), dtype) for dtype in (reversed(dtypes) if swapped else dtypes))
    result = compiled(ops.add_custom)(x, y)
    assert result.dtype == torch.result_type(x, y)
    calls.assert_same(result, ops.add_custom(x, y))


@pytest.mark.parametrize("scalar", [torch.tensor(2.5), torch.tensor(2.5).npu()], ids=["cpu", "npu"])
@pytest.mark.parametrize("swapped", [False, True])
def test_add_custom_promotes_with_a_scalar_as_eager_does(scalar, swapped, compiled):
    def add(x):
        return ops.add_custom(scalar, x) if swapped else ops.add_custom(x, scalar)

    x = random((3, 5), torch.float16)
    result = compiled(add)(x)
    assert result.dtype == torch.float16
    calls.assert_same(result, add(x))


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.float16, torch.float32)], ids=str)
def test_one_dynamic_graph_serves_every_shape(dtypes, compiled, tmp_path):
    add = compiled(ops.add_custom, dynamic=True)
    for rows, columns in [(3, 5), (7, 2), (128, 129), (2, 1000)]:
        x, y = random((rows, columns), dtypes[0]), random((columns,), dtypes[1])
        calls.assert_same(add(x, y), ops.add_custom(x, y))
    assert len(nodes(tmp_path, "AddCustom")) == 1


@pytest.mark.parametrize("view", ["transposed", "strided", "offset", "expanded"])
def test_add_custom_takes_views(view, compiled):
    base = random((8, 8), torch.float32)
    x = {"transposed": base.T, "strided": base[::2, 1::2], "offset": base[3:], "expanded": base[:1].expand(8, 8)}[view]
    y = random((1,), torch.float32)
    calls.assert_same(compiled(ops.add_custom)(x, y), ops.add_custom(x, y))


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_in_a_graph_are_the_gradients_of_eager(dynamic, compiled, tmp_path):
    def loss(x, y):
        return (ops.add_custom(x, y) * x).sum()

    in_graph = compiled(loss, dynamic=dynamic)
    for rows in (4, 6) if dynamic else (4,):
        values = [random((rows, 3), torch.float32), random((3,), torch.float32)]
        gradients = []
        for function in (loss, in_graph):
            inputs = [value.clone().requires_grad_() for value in values]
            function(*inputs).backward()
            gradients.append([tensor.grad for tensor in inputs])
        for eager, graph in zip(*gradients, strict=True):
            calls.assert_same(graph, eager)
    assert [node["inputs"] for node in nodes(tmp_path, "AddCustomGrad")] == [["self"]]


def test_add_custom_backward_gives_two_tensors_that_alias_nothing(compiled):
    grad = random((3, 5), torch.float32)
    first, second = compiled(ops.add_custom_backward)(grad)
    calls.assert_same(first, grad)
    calls.assert_same(second, grad)
    assert len({first.data_ptr(), second.data_ptr(), grad.data_ptr()}) == 3


# ---- the operators on queries and caches

CALLS = [(operator, call) for operator, call in calls.EVERY_CALL if not call.startswith("no ")]
FIRST = {operator: (operator, call) for operator, call in reversed(CALLS)}.values()


def call_and_caches(function, operator, arguments):
    """The results of the operator, and its caches after the call; those of `arguments` are not written."""
    arguments = calls.copied(arguments)
    results = calls.results(function(**arguments))
    return *results, *(arguments[name] for name in calls.caches_of(operator, arguments))


TEXTS = {str: 's: "{}"\\n', int: "i: {}\\n", float: "f: {}\\n", bool: "b: {}\\n"}


def attributes_in_text(operator, arguments):
    """The attributes of a node as `nodes` gives them: all that are not the default."""
    from custom_pypto.converter import auto_generated_ge_raw_custom_ops as ge_api

    prototype = prototypes.Prototype.of(ge_api.IR[prototypes.ge_type(operator)])
    given = {name: arguments.get(name) for name in prototype.attributes}
    return {
        name: TEXTS[type(value)].format(str(value).lower() if value is True else value)
        for name, value in given.items()
        if value is not None and value != prototype.attributes[name][1]
    }


@pytest.mark.parametrize(
    ("operator", "call", "dynamic"), [*((*each, False) for each in CALLS), *((*each, True) for each in FIRST)]
)
def test_a_graph_equals_eager_and_its_node_has_every_argument(operator, call, dynamic, compiled, tmp_path):
    arguments = calls.arguments_of(operator, call)
    op = calls.overload(operator, arguments)
    in_graph = call_and_caches(compiled(lambda **arguments: op(**arguments), dynamic), operator, arguments)
    calls.assert_same(in_graph, call_and_caches(op, operator, arguments))
    (node,) = nodes(tmp_path, prototypes.ge_type(operator))
    tensors = [name for name, value in arguments.items() if isinstance(value, torch.Tensor)]
    assert sorted(node.pop("inputs")) == sorted(tensors)
    assert node == attributes_in_text(operator, arguments)


def differs_without(name, operator, arguments):
    """Whether the operator rejects the call without this argument, or gives something else."""
    less = {each: value for each, value in arguments.items() if each != name}
    try:
        result = call_and_caches(calls.overload(operator, less), operator, less)
    except RuntimeError as error:
        assert str(error).startswith(f"custom_pypto::{operator}: argument '"), error
        return True
    expected = call_and_caches(calls.overload(operator, arguments), operator, arguments)
    return len(result) != len(expected) or any(
        got.shape != want.shape or not torch.equal(got, want) for got, want in zip(result, expected, strict=True)
    )


ONE_VALUE = {"npu_lightning_indexer_quant_pto": {"query_quant_mode", "key_quant_mode"}}
"""Arguments that take no value but their default."""


@pytest.mark.parametrize("operator", calls.CALLS)
def test_a_node_without_an_optional_argument_would_show_in_one_of_these_calls(operator):
    required = {a.name for a in calls.overload(operator)._schema.arguments if not a.has_default_value()}
    unseen = {a.name for op in prototypes.operators("custom_pypto")[operator] for a in op._schema.arguments} - required
    for each, call in CALLS:
        if each == operator:
            arguments = calls.arguments_of(operator, call)
            unseen -= {name for name in unseen & {*arguments} if differs_without(name, operator, arguments)}
    assert unseen == ONE_VALUE.get(operator, set())


ANY_BATCH = {
    "npu_lightning_indexer_pto": lambda lengths, queries: (
        references.lightning_indexer_inputs(lengths, queries=queries, heads=8, block_size=16) | {"sparse_count": 33}
    ),
    "npu_sparse_flash_attention_pto": lambda lengths, queries: references.sparse_flash_attention_inputs(
        lengths, queries=queries, heads=8, depth=128, rope_depth=0, block_size=16, count=20 + max(lengths)
    ),
}


@pytest.mark.parametrize("operator", ANY_BATCH)
def test_one_dynamic_graph_serves_every_batch(operator, compiled, tmp_path):
    op = calls.overload(operator)
    in_graph = compiled(lambda **arguments: op(**arguments), dynamic=True)
    for lengths, queries in [([83, 70], 3), ([2, 80, 17], 2), ([144, 3, 30, 99, 16], 4)]:
        arguments = calls.on("npu", ANY_BATCH[operator](lengths, queries))
        calls.assert_same(in_graph(**arguments), op(**arguments))
    assert len(nodes(tmp_path, prototypes.ge_type(operator))) == 1


# ---- all of them


def test_operators_among_others(compiled):
    """The operators between matrix products, slices, views and reductions, in one graph."""
    inputs = references.lightning_indexer_inputs([83, 70], queries=3, heads=8, block_size=16)
    arguments = calls.on("npu", inputs) | {"sparse_count": 16}
    sequences = {"actual_seq_lengths_kv": arguments["actual_seq_lengths_key"], "block_table": arguments["block_table"]}
    projection = random((128, 128), torch.bfloat16)

    def layer(x, weights):
        projected = ops.add_custom(x @ projection, x.mean(dim=-1, keepdim=True))
        picked = ops.npu_lightning_indexer_pto(**arguments | {"query": projected, "weights": weights})
        key = arguments["key"]
        attended = ops.npu_sparse_flash_attention_pto(projected, key, key, picked, 0.01, **sequences)
        total = attended.transpose(1, 2).sum(dim=-1)
        return picked[:, -1].view(2, -1).sum(dim=-1), ops.add_custom(picked, 1 - picked[:1]), total

    x, weights = arguments["query"], arguments["weights"]
    for actual, expected in zip(compiled(layer)(x, weights), layer(x, weights), strict=True):
        calls.assert_same(actual, expected)
