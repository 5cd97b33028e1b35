# SPDX-License-Identifier: Apache-2.0
"""The lightning indexer on int8, through torch.ops on npu tensors: against its reference, and after the prolog."""

import pytest
import references
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import (
    LAYOUTS,
    LENGTHS,
    Operator,
    any_sequences,
    to_npu,
)

indexer = Operator("npu_lightning_indexer_quant_pto")


def run(inputs, **options):
    return indexer(to_npu(inputs), **options).cpu()


def check(inputs, *, sparse_count=2048, **options):
    out, values = indexer(to_npu(inputs), sparse_count=sparse_count, return_value=True, **options)
    assert torch.equal(run(inputs, sparse_count=sparse_count, **options), out.cpu())
    assert values.dtype == torch.float32
    references.check_lightning_indexer_quant(out.cpu(), **inputs, **options, values=values.cpu())
    return out.cpu()


@pytest.mark.parametrize("sparse_count", [64, 2048])
@pytest.mark.parametrize("sparse_mode", [0, 3])
@pytest.mark.parametrize(("layout_query", "layout_key"), LAYOUTS)
def test_selects_the_best_keys(layout_query, layout_key, sparse_mode, sparse_count):
    inputs = references.lightning_indexer_quant_inputs(
        LENGTHS, queries=3, heads=8, depth=16, layout_query=layout_query, layout_key=layout_key
    )
    check(inputs, sparse_mode=sparse_mode, sparse_count=sparse_count)


def test_selects_the_best_keys_at_the_models_size():
    lengths = torch.randint(1, 8193, (16,)).tolist()
    check(references.lightning_indexer_quant_inputs(lengths, queries=3))


@pytest.mark.parametrize("as_prolog", [False, True])
@pytest.mark.parametrize("weights", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scales", [(torch.float16, torch.float32), (torch.float32, torch.float16)])
def test_weights_and_scales_of_every_dtype(weights, scales, as_prolog):
    dtypes = {"weights_dtype": weights, "query_scale_dtype": scales[0], "key_scale_dtype": scales[1]}
    check(references.lightning_indexer_quant_inputs([500, 3], heads=8, depth=8, as_prolog=as_prolog, **dtypes))


@pytest.mark.parametrize(("heads", "depth"), [(1, 1), (3, 7), (17, 31), (64, 128), (65, 130), (300, 4), (2, 2000)])
def test_any_number_of_heads_and_depth(heads, depth):
    check(references.lightning_indexer_quant_inputs([1, 150], queries=2, heads=heads, depth=depth), sparse_count=20)


@pytest.mark.parametrize("low", [-128, 127])
def test_the_largest_products_do_not_saturate(low):
    inputs = references.lightning_indexer_quant_inputs([300], heads=4, depth=128, layout_key="BSND")
    inputs["query"].fill_(low)
    inputs["key"] = torch.where(torch.rand(inputs["key"].shape) < 0.9, low, -low - 1).to(torch.int8)
    check(inputs, sparse_count=100)


@settings(deadline=None, max_examples=40)  # the machine may be busy
@given(data=st.data())
def test_equal_scores_go_to_the_lower_position(data):
    """With scales and weights of small integers every score is exact."""
    draw = data.draw
    inputs = references.lightning_indexer_quant_inputs(
        **any_sequences(draw) | {"dtype": torch.int8}, depth=draw(st.integers(1, 9))
    )
    for name in ("query", "key"):
        inputs[name] = inputs[name] % 5 - 2
    for name in ("weights", "query_dequant_scale", "key_dequant_scale"):
        inputs[name] = torch.randint(1, 3, inputs[name].shape).half()
    options = {"sparse_mode": draw(st.sampled_from([0, 3])), "sparse_count": draw(st.integers(1, 320))}
    assert torch.equal(run(inputs, **options), references.lightning_indexer_quant(**inputs, **options))


# ---- with the prolog


def quantised(inputs):
    """A call of the indexer on bfloat16 as one on int8, as the prolog quantises."""
    query, query_scale = references.quantise(inputs["query"])
    key, key_scale = references.quantise(inputs["key"])
    scales = {"query_dequant_scale": query_scale.half(), "key_dequant_scale": key_scale[..., 0].half()}
    return inputs | scales | {"query": query, "key": key}


def test_it_takes_what_the_prolog_gives_and_writes():
    prolog = Operator("npu_lightning_indexer_prolog_pto", ("idx_k_cache", "idx_k_scale_cache"))
    inputs = references.lightning_indexer_prolog_inputs(4, hidden=56, q_lora=40, heads=8, depth=16, rope_depth=6)
    inputs["idx_k_scale_cache"].abs_()  # as the prolog would have written it
    query, query_scale, weights, key, key_scale = prolog.with_caches(to_npu(inputs))
    lengths = torch.tensor([700, 300], dtype=torch.int32)
    table = torch.randperm(64)[:12].view(2, 6).int()
    call = {"query": query, "key": key, "weights": weights, "block_table": table, "layout_query": "TND"}
    call |= {"query_dequant_scale": query_scale, "key_dequant_scale": key_scale, "actual_seq_lengths_key": lengths}
    check(call | {"actual_seq_lengths_query": torch.tensor([1, 4], dtype=torch.int32)}, sparse_count=100)


def test_it_selects_nearly_what_the_indexer_on_bfloat16_selects():
    """Rounding to int8 moves a score by a thousandth, and so only tokens about as good as the last ones change."""
    inputs = references.lightning_indexer_inputs([20000, 5000], queries=2)
    exact = to_npu(inputs)
    selected = Operator("npu_lightning_indexer_pto")(exact).cpu()
    found = run(quantised(inputs))
    for row, want in zip(found.flatten(0, -2), selected.flatten(0, -2), strict=True):
        assert len({*row.tolist()} & {*want.tolist()}) >= 0.97 * 2048


def check_small_cases():
    check(references.lightning_indexer_quant_inputs([300, 7, 1], queries=2, heads=8, depth=16), sparse_count=64)
    check(references.lightning_indexer_quant_inputs([9], heads=3, depth=5), sparse_count=4)


def some_results():
    return [run(references.lightning_indexer_quant_inputs([5000, 1, 0, 300, 12345], queries=3, heads=8, depth=16))]
