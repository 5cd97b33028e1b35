# SPDX-License-Identifier: Apache-2.0
"""What the operators on queries and keys of several sequences have in common: layouts, lengths, pages and strides."""

import pytest
import references
import torch
from kernels import LAYOUTS, VIEWS, to_npu, viewed, with_value

from opp import test_lightning_indexer, test_lightning_indexer_quant, test_sparse_flash_attention


def indexer_call(inputs):
    return lambda *lengths, count=64, **shapes: (inputs(lengths, **shapes), {"sparse_count": count})


def attention_call(*lengths, count=64, **shapes):
    return references.sparse_flash_attention_inputs(lengths, count=count, **{"value_depth": 20} | shapes), {}


# The operator, its check against the reference, and what makes a call: arguments and options.
OPERATORS = {
    "indexer": (
        test_lightning_indexer.indexer,
        test_lightning_indexer.check,
        indexer_call(references.lightning_indexer_inputs),
    ),
    "indexer on int8": (
        test_lightning_indexer_quant.indexer,
        test_lightning_indexer_quant.check,
        indexer_call(references.lightning_indexer_quant_inputs),
    ),
    "attention": (test_sparse_flash_attention.attention, test_sparse_flash_attention.check, attention_call),
}
every_operator = pytest.mark.parametrize(("operator", "check", "call"), OPERATORS.values(), ids=OPERATORS)
every_layout = pytest.mark.parametrize(("layout_query", "layout_key"), LAYOUTS)


@every_operator
@pytest.mark.parametrize("batch", [1, 7, 48])
def test_any_batch_size(operator, check, call, batch):
    inputs, options = call(*torch.randint(0, 700, (batch,)).tolist(), queries=4, heads=4, depth=8, count=100)
    check(inputs, **options)


@every_operator
@every_layout
def test_an_empty_batch(operator, check, call, layout_query, layout_key):
    inputs, options = call(5, heads=2, depth=4, layout_query=layout_query, layout_key=layout_key)
    of_keys = {"key", "value", "key_rope", "key_dequant_scale"}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and (name not in of_keys or layout_key == "BSND"):
            inputs[name] = value[:0]
    leading = inputs["query"].shape[:-2]
    out = operator(to_npu(inputs), **options)
    assert out.numel() == 0 and out.shape[: len(leading)] == leading


@every_operator
@pytest.mark.parametrize("key_heads", [2, 24])
@every_layout
def test_several_key_heads(operator, check, call, layout_query, layout_key, key_heads):
    layouts = {"layout_query": layout_query, "layout_key": layout_key}
    inputs, options = call(0, 130, 1000, queries=2, heads=24, key_heads=key_heads, depth=24, count=200, **layouts)
    check(inputs, **options)


@every_operator
@pytest.mark.parametrize("block_size", [1, 16, 100, 1024])
def test_any_block_size(operator, check, call, block_size):
    inputs, options = call(0, 1, 99, 100, 1025, heads=4, depth=8, block_size=block_size)
    check(inputs, **options)


@every_operator
@pytest.mark.parametrize("sparse_mode", [0, 3])
@every_layout
def test_entries_with_queries_of_unequal_number(operator, check, call, layout_query, layout_key, sparse_mode):
    shapes = {"queries": 40, "query_lengths": [40, 0, 3, 7, 1], "heads": 4, "depth": 8}
    inputs, options = call(300, 5, 40, 0, 200, layout_query=layout_query, layout_key=layout_key, count=32, **shapes)
    check(inputs, sparse_mode=sparse_mode, **options)


@every_operator
def test_a_page_numbered_minus_one_has_no_tokens(operator, check, call):
    inputs, options = call(300, 256, heads=4, depth=8, count=512)
    inputs["block_table"][0, 1] = -1
    inputs["block_table"][1, :] = -1
    check(inputs, **options)


@every_operator
@pytest.mark.parametrize("layout_key", ["PA_BSND", "BSND"])
def test_strides_are_honoured(operator, check, call, layout_key):
    shapes = {"queries": 2, "heads": 16, "key_heads": 2, "depth": 32}
    inputs, options = call(128, 300, 50, layout_key=layout_key, **shapes)
    expected = check(inputs, **options)
    npu = to_npu(inputs)
    for view in VIEWS:
        assert torch.equal(operator(viewed(npu, view), **options).cpu(), expected), view.__name__


# Lengths and block tables out of range, of sequences of 200 and 130: layouts, argument, index, value, message.
BAD_SEQUENCES = [
    ("BSND", "PA_BSND", "actual_seq_lengths_key", 1, -1, r"\[1\] is -1.* 0 and 384"),
    ("BSND", "PA_BSND", "actual_seq_lengths_key", 0, 385, r"\[0\] is 385.* 0 and 384"),
    ("BSND", "BSND", "actual_seq_lengths_key", 0, 203, r"\[0\] is 203.* 0 and 202"),
    ("TND", "TND", "actual_seq_lengths_key", 1, 333, r"\[1\] is 333.* 200 .* 332"),
    ("TND", "TND", "actual_seq_lengths_key", 1, 199, r"\[1\] is 199.* 200 .* 332"),
    ("TND", "PA_BSND", "actual_seq_lengths_query", 1, 7, r"\[1\] is 7.* 3 .* 6"),
    ("TND", "PA_BSND", "actual_seq_lengths_query", 0, -3, r"\[0\] is -3.* 6"),
    ("BSND", "PA_BSND", "actual_seq_lengths_query", 1, 4, r"\[1\] is 4.* 0 and 3"),
    ("BSND", "PA_BSND", "block_table", (0, 1), 6, r"\[0\]\[1\] is 6.* 0 and 5"),
    ("BSND", "PA_BSND", "block_table", (1, 0), -2, r"\[1\]\[0\] is -2.* 0 and 5"),
]


@every_operator
@pytest.mark.parametrize(("layout_query", "layout_key", "name", "index", "value", "message"), BAD_SEQUENCES)
def test_values_out_of_range_are_rejected_and_the_next_call_works(
    operator, check, call, layout_query, layout_key, name, index, value, message
):
    shapes = {"queries": 3, "query_lengths": [3, 3], "heads": 2, "depth": 4, "count": 16}
    inputs, options = call(200, 130, layout_query=layout_query, layout_key=layout_key, **shapes)
    name = name if name in inputs else name.replace("lengths_key", "lengths_kv")
    operator.rejects(with_value(inputs, name, index, value), name + message, **options)
    check(inputs, **options)
