# SPDX-License-Identifier: Apache-2.0
"""The converters: a graph holds the operator's node with all it was given, and computes what eager computes."""

import itertools
import re
from pathlib import Path

import pytest
import references
import torch
import torch_npu  # noqa: F401

import custom_pypto  # noqa: F401

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


def assert_equal(actual, expected):
    actual, expected = ([each] if isinstance(each, torch.Tensor) else each for each in (actual, expected))
    for got, want in zip(actual, expected, strict=True):
        torch.testing.assert_close(got.cpu(), want.cpu(), rtol=0, atol=0, equal_nan=True)


def differ(result, expected):
    if isinstance(expected, tuple) != isinstance(result, tuple):
        return True
    pairs = zip(result, expected, strict=True) if isinstance(expected, tuple) else [(result, expected)]
    return any(got.shape != want.shape or not torch.equal(got.cpu(), want.cpu()) for got, want in pairs)


def noticed(function, arguments, names, expected):
    """Whether the call without these arguments is rejected by its operator, or gives something else."""
    try:
        result = function({name: value for name, value in arguments.items() if name not in names})
    except RuntimeError as error:
        return "custom_pypto::" in str(error)
    return differ(result, expected)


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
    assert_equal(compiled(ops.add_custom)(x, y), ops.add_custom(x, y))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add_custom_in_every_dtype(dtype, compiled, tmp_path):
    x, y = random((3, 5), dtype), random((5,), dtype)
    result = compiled(ops.add_custom)(x, y)
    assert result.dtype == dtype
    assert_equal(result, ops.add_custom(x, y))
    added = nodes(tmp_path, "AddCustom"), nodes(tmp_path, "Add")
    assert [len(found) for found in added] == ([1, 0] if dtype in VECTOR else [0, 1])
    assert not nodes(tmp_path, "Cast")


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("dtypes", MIXED, ids=str)
def test_add_custom_promotes(dtypes, swapped, compiled):
    x, y = (random((3, 5), dtype) for dtype in (reversed(dtypes) if swapped else dtypes))
    result = compiled(ops.add_custom)(x, y)
    assert result.dtype == torch.result_type(x, y)
    assert_equal(result, ops.add_custom(x, y))


@pytest.mark.parametrize("scalar", [torch.tensor(2.5), torch.tensor(2.5).npu()], ids=["cpu", "npu"])
@pytest.mark.parametrize("swapped", [False, True])
def test_add_custom_promotes_with_a_scalar_as_eager_does(scalar, swapped, compiled):
    def add(x):
        return ops.add_custom(scalar, x) if swapped else ops.add_custom(x, scalar)

    x = random((3, 5), torch.float16)
    result = compiled(add)(x)
    assert result.dtype == torch.float16
    assert_equal(result, add(x))


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.float16, torch.float32)], ids=str)
def test_one_dynamic_graph_serves_every_shape(dtypes, compiled, tmp_path):
    add = compiled(ops.add_custom, dynamic=True)
    for rows, columns in [(3, 5), (7, 2), (128, 129), (2, 1000)]:
        x, y = random((rows, columns), dtypes[0]), random((columns,), dtypes[1])
        assert_equal(add(x, y), ops.add_custom(x, y))
    assert len(nodes(tmp_path, "AddCustom")) == 1


@pytest.mark.parametrize("view", ["transposed", "strided", "offset", "expanded"])
def test_add_custom_takes_views(view, compiled):
    base = random((8, 8), torch.float32)
    x = {"transposed": base.T, "strided": base[::2, 1::2], "offset": base[3:], "expanded": base[:1].expand(8, 8)}[view]
    y = random((1,), torch.float32)
    assert_equal(compiled(ops.add_custom)(x, y), ops.add_custom(x, y))


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
            assert_equal(graph, eager)
    assert [node["inputs"] for node in nodes(tmp_path, "AddCustomGrad")] == [["self"]]


def test_add_custom_backward_gives_two_tensors_that_alias_nothing(compiled):
    grad = random((3, 5), torch.float32)
    first, second = compiled(ops.add_custom_backward)(grad)
    assert_equal(first, grad)
    assert_equal(second, grad)
    assert len({first.data_ptr(), second.data_ptr(), grad.data_ptr()}) == 3


# ---- npu_lightning_indexer_pto

BATCH, QUERIES, HEADS, DIM, BLOCK = 2, 3, 8, 128, 16
LENGTHS = [83, 70]
PAGES = 6


def int32(values):
    return torch.tensor(values, dtype=torch.int32).npu()


def query(tokens=(BATCH, QUERIES)):
    return {"query": random((*tokens, HEADS, DIM), torch.bfloat16), "weights": random((*tokens, HEADS), torch.bfloat16)}


def paged():
    return {
        "key": random((BATCH * PAGES, BLOCK, 1, DIM), torch.bfloat16),
        "block_table": int32(torch.randperm(BATCH * PAGES).view(BATCH, PAGES).tolist()),
        "actual_seq_lengths_key": int32(LENGTHS),
    }


def running_sums(values):
    return int32(list(itertools.accumulate(values)))


def unpaged():
    return {"key": random((BATCH, 83, 1, DIM), torch.bfloat16), "layout_key": "BSND"}


INDEXER_CALLS = {
    "defaults": lambda: query() | paged(),
    "fewer queries": lambda: query() | paged() | {"actual_seq_lengths_query": int32([1, 3])},
    "float32 weights": lambda: (
        query() | paged() | {"weights": random((BATCH, QUERIES, HEADS), torch.float32), "sparse_count": 40}
    ),
    "count": lambda: query() | paged() | {"sparse_count": 64},
    "values": lambda: query() | paged() | {"sparse_count": 64, "return_value": True},
    "no mask": lambda: query() | paged() | {"sparse_mode": 0, "sparse_count": 83},
    "every attribute": lambda: (
        query((4,))
        | {
            "key": random((sum(LENGTHS), 1, DIM), torch.bfloat16),
            "layout_query": "TND",
            "layout_key": "TND",
            "sparse_count": 75,
            "sparse_mode": 0,
            "actual_seq_lengths_query": running_sums([1, 3]),
            "actual_seq_lengths_key": running_sums(LENGTHS),
        }
    ),
    "no optional input": lambda: query() | unpaged() | {"sparse_count": 83},
    "lengths without pages": lambda: query() | unpaged() | {"actual_seq_lengths_key": int32(LENGTHS)},
    "token queries on pages": lambda: (
        query((4,)) | paged() | {"layout_query": "TND", "actual_seq_lengths_query": running_sums([1, 3])}
    ),
}
DEFAULTS = {"layout_query": "BSND", "layout_key": "PA_BSND", "sparse_count": 2048, "sparse_mode": 3}
DEFAULTS |= {"return_value": False}
KINDS = {str: 's: "{}"\\n', int: "i: {}\\n", float: "f: {}\\n", bool: "b: {}\\n"}


def in_text(attributes):
    """Attributes of a node as `nodes` gives them."""
    return {name: KINDS[type(v)].format(str(v).lower() if v is True else v) for name, v in attributes.items()}


def indexer(arguments):
    return ops.npu_lightning_indexer_pto(**arguments)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("call", INDEXER_CALLS)
def test_indexer_graph_equals_eager(call, dynamic, compiled, tmp_path):
    arguments = INDEXER_CALLS[call]()
    assert_equal(compiled(indexer, dynamic)(arguments), indexer(arguments))
    tensors = [name for name, value in arguments.items() if isinstance(value, torch.Tensor)]
    (node,) = nodes(tmp_path, "LightningIndexerPto")
    assert sorted(node.pop("inputs")) == sorted(tensors)
    given = {name: value for name, value in arguments.items() if name in DEFAULTS and value != DEFAULTS[name]}
    assert node == in_text(given)


@pytest.mark.parametrize("call", INDEXER_CALLS)
def test_a_converter_that_dropped_an_argument_would_be_noticed(call):
    """The calls above are worth their while: without any one of the optional arguments eager gives something else."""
    arguments = INDEXER_CALLS[call]()
    expected = indexer(arguments)
    for name in arguments.keys() - {"query", "key", "weights"}:
        assert noticed(indexer, arguments, [name], expected), name


def test_one_dynamic_indexer_graph_serves_every_batch(compiled, tmp_path):
    in_graph = compiled(indexer, dynamic=True)
    for batch, queries, pages in [(2, 3, 6), (3, 2, 5), (5, 4, 9)]:
        arguments = {
            "query": random((batch, queries, HEADS, DIM), torch.bfloat16),
            "key": random((batch * pages, BLOCK, 1, DIM), torch.bfloat16),
            "weights": random((batch, queries, HEADS), torch.bfloat16),
            "actual_seq_lengths_key": int32(torch.randint(1, pages * BLOCK + 1, (batch,)).tolist()),
            "block_table": int32(torch.randperm(batch * pages).view(batch, pages).tolist()),
            "sparse_count": 33,
        }
        assert_equal(in_graph(arguments), indexer(arguments))
    assert len(nodes(tmp_path, "LightningIndexerPto")) == 1


# ---- npu_sparse_flash_attention_pto

ATTENTION_DEFAULTS = {"scale_value": None, "layout_query": "BSND", "layout_kv": "PA_BSND", "sparse_mode": 3}
ATTENTION_DEFAULTS |= {"return_softmax_lse": False}
RENAMED = {"layout_key": "layout_kv", "actual_seq_lengths_key": "actual_seq_lengths_kv"}


def attention_call(indexer_call, rope):
    """A call on the same queries, keys and sequences; every row names all positions, some past its end."""
    arguments = {RENAMED.get(name, name): value for name, value in INDEXER_CALLS[indexer_call]().items()}
    arguments.pop("sparse_count", None)
    tokens = arguments.pop("weights").shape[:-1]
    indices = torch.stack([torch.randperm(90) for _ in range(tokens.numel())]).view(*tokens, 1, 90)
    arguments |= {"value": arguments["key"][..., :24], "sparse_indices": int32(indices.tolist()), "scale_value": 0.0625}
    if rope:
        for name in ("query", "key"):
            arguments[f"{name}_rope"] = random((*arguments[name].shape[:-1], 16), torch.bfloat16)
    return arguments


ATTENTION_CALLS = {
    "defaults": lambda: attention_call("defaults", rope=False),
    "rope": lambda: attention_call("defaults", rope=True),
    "fewer queries": lambda: attention_call("fewer queries", rope=False),
    "every attribute": lambda: attention_call("every attribute", rope=True),
    "no optional input": lambda: attention_call("no optional input", rope=False),
    "lengths without pages": lambda: attention_call("lengths without pages", rope=True),
    "token queries on pages": lambda: attention_call("token queries on pages", rope=True) | {"sparse_mode": 0},
    "sinks": lambda: attention_call("defaults", rope=True) | {"attention_sinks": random((HEADS,), torch.float32)},
    "logarithms": lambda: attention_call("defaults", rope=True) | {"return_softmax_lse": True},
    "sinks and logarithms": lambda: (
        attention_call("every attribute", rope=False)
        | {"attention_sinks": random((HEADS,), torch.float32), "return_softmax_lse": True}
    ),
}


def attention(arguments):
    return ops.npu_sparse_flash_attention_pto(**arguments)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("call", ATTENTION_CALLS)
def test_attention_graph_equals_eager(call, dynamic, compiled, tmp_path):
    arguments = ATTENTION_CALLS[call]()
    assert_equal(compiled(attention, dynamic)(arguments), attention(arguments))
    tensors = [name for name, value in arguments.items() if isinstance(value, torch.Tensor)]
    (node,) = nodes(tmp_path, "SparseFlashAttentionPto")
    assert sorted(node.pop("inputs")) == sorted(tensors)
    given = {
        name: value
        for name, value in arguments.items()
        if name in ATTENTION_DEFAULTS and value != ATTENTION_DEFAULTS[name]
    }
    assert node == in_text(given)


@pytest.mark.parametrize("call", ATTENTION_CALLS)
def test_an_attention_converter_that_dropped_an_argument_would_be_noticed(call):
    arguments = ATTENTION_CALLS[call]()
    expected = attention(arguments)
    ropes = [("query_rope", "key_rope")] if "query_rope" in arguments else []
    needed = {"query", "key", "value", "sparse_indices", "scale_value", "query_rope", "key_rope"}
    for names in [*ropes, *((name,) for name in arguments.keys() - needed)]:
        assert noticed(attention, arguments, names, expected), names


def test_one_dynamic_attention_graph_serves_every_batch(compiled, tmp_path):
    in_graph = compiled(attention, dynamic=True)
    for batch, queries, pages in [(2, 3, 6), (3, 2, 5), (5, 4, 9)]:
        key = random((batch * pages, BLOCK, 1, DIM), torch.bfloat16)
        lengths = torch.randint(queries, pages * BLOCK + 1, (batch,)).tolist()
        arguments = {
            "query": random((batch, queries, HEADS, DIM), torch.bfloat16),
            "key": key,
            "value": key,
            "sparse_indices": int32(torch.randint(0, pages * BLOCK, (batch, queries, 1, 20 + pages)).tolist()),
            "scale_value": 0.09,
            "actual_seq_lengths_kv": int32(lengths),
            "block_table": int32(torch.randperm(batch * pages).view(batch, pages).tolist()),
        }
        assert_equal(in_graph(arguments), attention(arguments))
    assert len(nodes(tmp_path, "SparseFlashAttentionPto")) == 1


# ---- operators that write caches


def prolog_call(tokens, cache=(7, 8)):
    small = {"hidden": 56, "q_lora": 40, "heads": 5, "depth": 16, "rope_depth": 6}
    return references.lightning_indexer_prolog_inputs(tokens, cache=cache, **small) | {"layernorm_epsilon_k": 0.25}


def layer_call():
    small = {"hidden": 56, "q_lora": 40, "heads": 5, "depth": 12, "rope_depth": 10, "kv_lora": 24, "index_heads": 7}
    return references.sparse_attention_inputs([20, 13], queries=3, index_depth=16, block_size=8, **small)


WRITERS = {
    "npu_lightning_indexer_prolog_pto": {
        "layernorm_epsilon_k": None,
        "layout_query": "TND",
        "layout_key": "PA_BSND",
        "rope_mode": "interleave",
    },
    "npu_sparse_attention_pto": {
        "sparse_count": 2048,
        "softmax_scale": None,
        "rms_norm_eps": 1e-5,
        "layer_norm_eps": 1e-6,
        "rope_mode": "interleave",
        "indexer_rope_mode": "interleave",
    },
    "reshape_and_cache": {"cache_layout": "ND"},
    "advance_step_flashattn": {"num_seqs": None, "num_queries": None, "block_size": None},
}
"""Operators, and the defaults of their attributes."""
WRITER_CALLS = {
    "prolog": ("npu_lightning_indexer_prolog_pto", lambda: prolog_call(4)),
    "prolog of sequences": ("npu_lightning_indexer_prolog_pto", lambda: prolog_call((2, 3))),
    "prolog with every attribute": (
        "npu_lightning_indexer_prolog_pto",
        lambda: prolog_call((2, 3), cache=(20,)) | {"rope_mode": "half"},
    ),
    "prolog with layouts of None": (
        "npu_lightning_indexer_prolog_pto",
        lambda: prolog_call(4) | {"layout_query": None, "layout_key": None},
    ),
    "layer": ("npu_sparse_attention_pto", layer_call),
    "layer with every attribute": (
        "npu_sparse_attention_pto",
        lambda: (
            layer_call()
            | {"sparse_count": 3, "softmax_scale": 0.5, "rms_norm_eps": 0.25, "layer_norm_eps": 0.125}
            | {"rope_mode": "half", "indexer_rope_mode": "half"}
        ),
    ),
}


def padded_call():
    arguments = references.reshape_and_cache_inputs(5, heads=3, cache=(7, 8))
    return arguments | {"slot_mapping": arguments["slot_mapping"][:3]}


WRITER_CALLS |= {
    "keys and values": ("reshape_and_cache", lambda: references.reshape_and_cache_inputs(5, heads=3, cache=(7, 8))),
    "sequences in NZ": (
        "reshape_and_cache",
        lambda: references.reshape_and_cache_inputs((2, 5), heads=3, value_depth=48, cache=(7, 8), cache_layout="NZ"),
    ),
    "padding": ("reshape_and_cache", padded_call),
    "keys alone": ("reshape_and_cache", lambda: references.reshape_and_cache_inputs(5, cache=(7, 9), keys_only=True)),
    "step": ("advance_step_flashattn", lambda: references.advance_step_flashattn_inputs([5, 20, 31], padding=2)),
    "step of int32": (
        "advance_step_flashattn",
        lambda: references.advance_step_flashattn_inputs([15], dtype=torch.int32),
    ),
}


def on_npu(arguments):
    return {name: value.npu() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}


def results_and_caches(function, operator, arguments):
    """What the operator gives and what it leaves in its caches, which are copies of those in `arguments`."""
    mutated = [a.name for a in getattr(ops, operator).default._schema.arguments if a.alias_info]
    caches = {name: arguments[name].clone() for name in mutated if arguments[name] is not None}
    results = function(**arguments | caches)
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    return (*results, *caches.values())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("call", WRITER_CALLS)
def test_graph_of_an_operator_that_writes_caches_equals_eager(call, dynamic, compiled, tmp_path):
    operator, make = WRITER_CALLS[call]
    arguments, eager = on_npu(make()), getattr(ops, operator)
    in_graph = compiled(lambda **arguments: eager(**arguments), dynamic)
    expected = results_and_caches(eager, operator, arguments)
    for actual, value in zip(results_and_caches(in_graph, operator, arguments), expected, strict=True):
        assert_equal(actual, value)
    (node,) = nodes(tmp_path, operator.removeprefix("npu_").title().replace("_", ""))
    assert sorted(node.pop("inputs")) == sorted(k for k, value in arguments.items() if isinstance(value, torch.Tensor))
    kinds = {str: 's: "{}"\\n', int: "i: {}\\n", float: "f: {}\\n"}
    assert node == {
        name: kinds[type(arguments[name])].format(arguments[name])
        for name, default in WRITERS[operator].items()
        if arguments.get(name) is not None and arguments[name] != default
    }


@pytest.mark.parametrize("call", ["prolog with every attribute", "layer with every attribute"])
def test_a_converter_of_an_operator_that_writes_caches_that_dropped_an_argument_would_be_noticed(call):
    operator, make = WRITER_CALLS[call]
    arguments, eager = on_npu(make()), getattr(ops, operator)
    expected = results_and_caches(eager, operator, arguments)
    for name in arguments.keys() & WRITERS[operator].keys() - {"layernorm_epsilon_k"}:
        assert noticed(lambda given: results_and_caches(eager, operator, given), arguments, [name], expected), name


# ---- all of them


def test_operators_among_others(compiled):
    """The operators between matrix products, slices, views and reductions, in one graph."""
    arguments = query() | paged() | {"sparse_count": 16}
    sequences = {"actual_seq_lengths_kv": arguments["actual_seq_lengths_key"], "block_table": arguments["block_table"]}
    projection = random((DIM, DIM), torch.bfloat16)

    def layer(x, weights):
        projected = ops.add_custom(x @ projection, x.mean(dim=-1, keepdim=True))
        picked = indexer(arguments | {"query": projected, "weights": weights})
        key = arguments["key"]
        attended = ops.npu_sparse_flash_attention_pto(projected, key, key, picked, 0.01, **sequences)
        total = attended.transpose(1, 2).sum(dim=-1)
        return picked[:, -1].view(BATCH, -1).sum(dim=-1), ops.add_custom(picked, 1 - picked[:1]), total

    x, weights = arguments["query"], arguments["weights"]
    for actual, expected in zip(compiled(layer)(x, weights), layer(x, weights), strict=True):
        assert_equal(actual, expected)
