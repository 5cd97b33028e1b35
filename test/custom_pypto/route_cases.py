# SPDX-License-Identifier: Apache-2.0
"""Calls where only CANN's functions are deployed, those of the package in cann/, which test_routes.py builds."""

import pytest
import references
import torch
import torch_npu  # noqa: F401
from calls import caches_of, copied, on, overload

import custom_pypto  # noqa: F401
from custom_pypto.modes import MODES

ops = torch.ops.custom_pypto
INDEXER, ATTENTION = "npu_lightning_indexer_pto", "npu_sparse_flash_attention_pto"


def call(operator, arguments, mode="eager"):
    torch._dynamo.reset()
    op = overload(operator, arguments)
    return MODES[mode](lambda arguments: op(**arguments))(on("npu", arguments))


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8]
DTYPES += [torch.int16, torch.int32, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_add_custom(dtype):
    left, right = (torch.randint(0, 2, size).to(dtype) for size in ((3, 1, 5), (7, 1)))
    assert torch.equal(ops.add_custom(left.npu(), right.npu()).cpu(), left + right)
    assert torch.equal(ops.add_custom(left.npu(), right.float().npu()).cpu(), left + right.float())


LAYOUTS = [("BSND", "PA_BSND"), ("TND", "PA_BSND"), ("BSND", "BSND"), ("TND", "TND")]


@pytest.mark.parametrize("sparse_mode", [0, 3])
@pytest.mark.parametrize(("layout_query", "layout_key"), LAYOUTS)
def test_indexer(layout_query, layout_key, sparse_mode):
    shapes = {"queries": 3, "query_lengths": [3, 1, 2], "heads": 24, "block_size": 48}
    inputs = references.lightning_indexer_inputs(
        [70, 13, 1], layout_query=layout_query, layout_key=layout_key, **shapes
    )
    inputs |= {"sparse_mode": sparse_mode}
    references.check_lightning_indexer(call(INDEXER, inputs | {"sparse_count": 37}).cpu(), **inputs)
    if layout_key != "PA_BSND":
        indices, values = call(INDEXER, inputs | {"sparse_count": 37, "return_value": True})
        references.check_lightning_indexer(indices.cpu(), **inputs, values=values.cpu())


def test_indexer_with_weights_in_float32_and_counts_past_2048():
    inputs = references.lightning_indexer_inputs([3100], dtype=torch.float16, weights_dtype=torch.float32)
    references.check_lightning_indexer(call(INDEXER, inputs | {"sparse_count": 3072}).cpu(), **inputs)


def attention_inputs(**shapes):
    shapes = {"queries": 3, "heads": 8, "count": 40, "block_size": 48} | shapes
    arguments = references.sparse_flash_attention_inputs([70, 13, 1], **shapes)
    return arguments | {"value": arguments["key"]}


def call_attention(inputs, mode="eager"):
    """The value is the key on the NPU as well."""
    on_npu = on("npu", inputs)
    torch._dynamo.reset()
    return MODES[mode](lambda arguments: overload(ATTENTION)(**arguments))(on_npu | {"value": on_npu["key"]})


@pytest.mark.parametrize("sparse_mode", [0, 3])
@pytest.mark.parametrize(("layout_query", "layout_key"), LAYOUTS)
def test_attention(layout_query, layout_key, sparse_mode):
    shapes = {"layout_query": layout_query, "layout_key": layout_key, "query_lengths": [3, 1, 2]}
    inputs = attention_inputs(**shapes) | {"sparse_mode": sparse_mode}
    references.check_attention(call_attention(inputs).cpu(), references.sparse_flash_attention(**inputs))


@pytest.mark.parametrize("mode", ["reduce-overhead", "npugraph_ex"])
def test_a_captured_graph_takes_the_same_route(mode):
    inputs = attention_inputs()
    references.check_attention(call_attention(inputs, mode).cpu(), references.sparse_flash_attention(**inputs))


def written(operator, arguments, mode="eager"):
    on_npu = on("npu", arguments)
    torch._dynamo.reset()
    MODES[mode](lambda arguments: getattr(ops, operator)(**arguments))(on_npu)
    return [on_npu[name].cpu() for name in caches_of(operator)]


def test_reshape_and_cache():
    for layout in ("ND", "NZ"):
        for tokens in (5, (2, 5)):
            for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.float32):
                shapes = {"heads": 4, "depth": 32, "value_depth": 64, "cache": (7, 16), "dtype": dtype}
                inputs = references.reshape_and_cache_inputs(
                    tokens, **shapes, cache_layout=layout, slot_dtype=torch.int32
                )
                inputs["slot_mapping"][2] = -1
                for got, want in zip(
                    written("reshape_and_cache", inputs), references.reshape_and_cache(**inputs), strict=True
                ):
                    assert torch.equal(got, want)


def test_reshape_and_cache_with_other_ranks():
    inputs = references.reshape_and_cache_inputs((2, 5), heads=4, depth=32, cache=(7, 16))
    heads = {name: inputs[name].unflatten(-1, (4, 32)) for name in ("key", "value")}
    flat = {name: inputs[name].flatten(-2) for name in ("key_cache", "value_cache")}
    slots = inputs["slot_mapping"].flatten()
    for change in (heads, flat, heads | flat, {"slot_mapping": slots}, {"slot_mapping": slots[:7]}):
        expected = references.reshape_and_cache(**inputs | {"slot_mapping": change.get("slot_mapping", slots)})
        for got, want in zip(written("reshape_and_cache", copied(inputs | change)), expected, strict=True):
            assert torch.equal(got.flatten(2), want.flatten(2))


def indexer(**shapes):
    return references.lightning_indexer_inputs([9], layout_key="BSND", **shapes)


def small_attention(**shapes):
    arguments = references.sparse_flash_attention_inputs([20], **{"heads": 8, "count": 3, "block_size": 16} | shapes)
    return arguments | {"value": arguments["key"]}


def cached(**shapes):
    return references.reshape_and_cache_inputs(3, **{"heads": 2, "depth": 16, "cache": (3, 4)} | shapes)


def strided(tensor):
    """The same elements with gaps between them."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def without_rope():
    arguments = small_attention()
    return {name: value for name, value in arguments.items() if not name.endswith("rope")}


REJECTED = {
    "heads of the indexer": (INDEXER, lambda: indexer(heads=72), "query", "have at most 64 heads (N1)"),
    "depth of the indexer": (INDEXER, lambda: indexer(depth=64), "query", "have a last dimension (D) of 128"),
    "key heads of the indexer": (INDEXER, lambda: indexer(key_heads=2), "key", "have one head (N2)"),
    "blocks of the indexer": (
        INDEXER,
        lambda: references.lightning_indexer_inputs([9], block_size=24),
        "key",
        "have blocks of a multiple of 16 tokens, at most 1024,",
    ),
    "count": (INDEXER, lambda: indexer() | {"sparse_count": 2049}, "sparse_count", "be at most 2048, or a multiple of"),
    "strides of the indexer": (
        INDEXER,
        lambda: indexer() | {"query": strided(indexer()["query"])},
        "query",
        "be contiguous",
    ),
    "values in float32": (
        INDEXER,
        lambda: (
            references.lightning_indexer_inputs([9], layout_key="BSND", weights_dtype=torch.float32)
            | {"return_value": True}
        ),
        "weights",
        "have the dtype of query with return_value",
    ),
    "values on pages": (
        INDEXER,
        lambda: references.lightning_indexer_inputs([9]) | {"return_value": True},
        "return_value",
        "be False with layout_key 'PA_BSND'",
    ),
    "logarithms": (
        ATTENTION,
        lambda: small_attention() | {"return_softmax_lse": True},
        "return_softmax_lse",
        "be False",
    ),
    "sinks": (ATTENTION, lambda: small_attention() | {"attention_sinks": torch.ones(8)}, "attention_sinks", "be None"),
    "heads of the attention": (ATTENTION, lambda: small_attention(heads=6), "query", "have 1, 2, 4, ... or 128 heads"),
    "depth of the attention": (
        ATTENTION,
        lambda: small_attention(depth=256),
        "query",
        "have a last dimension (D) of",
    ),
    "no rope": (ATTENTION, without_rope, "query_rope", "be given"),
    "rope": (ATTENTION, lambda: small_attention(rope_depth=32), "query_rope", "have a last dimension (Dr) of 64"),
    "another value": (ATTENTION, lambda: small_attention(), "value", "be the same tensor as 'key'"),
    "keys only": ("reshape_and_cache", lambda: cached(keys_only=True), "value", "be given"),
    "two dtypes": (
        "reshape_and_cache",
        lambda: cached(value_dtype=torch.int8),
        "value",
        "have the dtype of 'key'",
    ),
    "strides of the cache": (
        "reshape_and_cache",
        lambda: cached() | {"key_cache": strided(cached()["key_cache"])},
        "key_cache",
        "be contiguous",
    ),
}


@pytest.mark.parametrize("case", REJECTED)
def test_what_canns_function_does_not_do_is_rejected_before_anything_is_written(case):
    operator, make, argument, expected = REJECTED[case]
    arguments = make()
    on_npu = on("npu", arguments)
    if operator == ATTENTION and case != "another value":
        on_npu["value"] = on_npu["key"]
    if case.startswith("strides"):
        on_npu[argument] = strided(arguments[argument].npu())
    with pytest.raises(RuntimeError) as raised:
        getattr(ops, operator)(**on_npu)
    assert str(raised.value).startswith(f"custom_pypto::{operator}: argument '{argument}' must {expected}")
    assert " for CANN's aclnn" in str(raised.value)
    assert "is in no operator library. Looked in: " in str(raised.value)
    for name in caches_of(operator, arguments):
        assert torch.equal(on_npu[name].cpu(), arguments[name])


@pytest.mark.parametrize("operator", ["npu_sparse_attention_pto", "npu_lightning_indexer_prolog_pto"])
def test_an_operator_that_cann_has_no_function_for_names_ours(operator):
    from calls import CALLS

    arguments = next(iter(CALLS[operator].values()))()
    with pytest.raises(RuntimeError, match=r"the function aclnn\w*PtoGetWorkspaceSize is in no operator library"):
        call(operator, arguments)
