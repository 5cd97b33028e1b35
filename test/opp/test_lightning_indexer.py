# SPDX-License-Identifier: Apache-2.0
"""The lightning indexer's kernel, through torch.ops on npu tensors, against its reference."""

import pytest
import references
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import (
    DTYPES,
    LAYOUTS,
    LENGTHS,
    Operator,
    any_sequences,
    in_a_process,
    print_memory_beside_the_result,
    to_npu,
)

indexer = Operator("npu_lightning_indexer_pto")


def run(inputs, **options):
    return indexer(to_npu(inputs), **options).cpu()


def run_with_values(inputs, **options):
    out, values = indexer(to_npu(inputs), return_value=True, **options)
    return out.cpu(), values.cpu()


def check(inputs, *, sparse_count=2048, **options):
    out, values = run_with_values(inputs, sparse_count=sparse_count, **options)
    assert torch.equal(run(inputs, sparse_count=sparse_count, **options), out)
    assert values.dtype == inputs["weights"].dtype
    references.check_lightning_indexer(out, **inputs, **options, values=values)
    return out


def integers(*shape):
    """Small enough for every score to be exact, so that equal scores are equal."""
    return torch.randint(-3, 4, shape).float()


@pytest.mark.parametrize("sparse_count", [1, 64, 2048])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sparse_mode", [0, 3])
@pytest.mark.parametrize(("layout_query", "layout_key"), LAYOUTS)
def test_selects_the_best_keys(layout_query, layout_key, sparse_mode, dtype, sparse_count):
    inputs = references.lightning_indexer_inputs(
        LENGTHS, queries=3, heads=8, depth=16, layout_query=layout_query, layout_key=layout_key, dtype=dtype
    )
    check(inputs, sparse_mode=sparse_mode, sparse_count=sparse_count)


@pytest.mark.parametrize("dtype", DTYPES)
def test_selects_the_best_keys_at_the_models_size(dtype):
    lengths = torch.randint(1, 8193, (32,)).tolist()
    check(references.lightning_indexer_inputs(lengths, queries=3, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "depth"), [(1, 1), (3, 7), (17, 31), (64, 128), (65, 130), (300, 4)])
def test_any_number_of_heads_and_depth(heads, depth, dtype):
    check(
        references.lightning_indexer_inputs([1, 150], queries=2, heads=heads, depth=depth, dtype=dtype), sparse_count=20
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_may_be_float32(dtype):
    check(references.lightning_indexer_inputs([500], heads=8, depth=8, dtype=dtype, weights_dtype=torch.float32))


def test_weights_may_be_one_number_expanded():
    inputs = references.lightning_indexer_inputs([128, 300, 50], queries=2, heads=16, depth=32)
    weights = inputs["weights"][:, :, :1].npu().expand(inputs["weights"].shape)
    whole = inputs | {"weights": weights.cpu().contiguous()}
    assert torch.equal(
        indexer(to_npu(inputs) | {"weights": weights}, sparse_count=64).cpu(), run(whole, sparse_count=64)
    )


def test_query_tokens_past_the_last_sequence_get_no_keys():
    inputs = references.lightning_indexer_inputs([30, 40], queries=2, heads=2, depth=4, layout_query="TND")
    used = run(inputs, sparse_count=8)
    inputs["query"] = torch.cat([inputs["query"]] * 10)
    inputs["weights"] = torch.cat([inputs["weights"]] * 10)
    out = run(inputs, sparse_count=8)
    assert torch.equal(out[:4], used)
    assert (out[4:] == -1).all()


def test_without_lengths_all_keys_of_a_dense_layout_count():
    inputs = references.lightning_indexer_inputs([130, 130], heads=4, depth=8, layout_key="BSND")
    inputs["actual_seq_lengths_key"] = torch.tensor([132, 132], dtype=torch.int32)
    expected = run(inputs, sparse_count=64)
    del inputs["actual_seq_lengths_key"]
    assert torch.equal(run(inputs, sparse_count=64), expected)


@settings(deadline=None)  # the machine may be busy
@given(data=st.data())
def test_equal_scores_go_to_the_lower_position(data):
    draw = data.draw
    inputs = references.lightning_indexer_inputs(**any_sequences(draw), depth=draw(st.integers(1, 9)), values=integers)
    options = {"sparse_mode": draw(st.sampled_from([0, 3])), "sparse_count": draw(st.integers(1, 320))}
    assert torch.equal(run(inputs, **options), references.lightning_indexer(**inputs, **options))


def test_equal_scores_go_to_the_lower_position_among_many():
    """More keys than fit a row's candidates, cut among threads, with ties at the boundary of the selection."""
    inputs = references.lightning_indexer_inputs([40000], queries=2, heads=2, depth=2, values=integers)
    assert torch.equal(run(inputs, sparse_count=500), references.lightning_indexer(**inputs, sparse_count=500))


@pytest.mark.parametrize("sparse_count", [4064, 4065, 9000])
def test_more_keys_than_a_sorted_run_holds(sparse_count):
    inputs = references.lightning_indexer_inputs([10000, 5, 8100], queries=2, heads=2, depth=4, values=integers)
    inputs["block_table"][0, 3] = -1
    assert torch.equal(
        check(inputs, sparse_count=sparse_count), references.lightning_indexer(**inputs, sparse_count=sparse_count)
    )


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_scores_in_order(order):
    """Ascending scores replace each other as candidates, and descending ones never do."""
    count = 20000
    inputs = references.lightning_indexer_inputs([count], heads=1, depth=2, layout_key="BSND")
    place = torch.arange(count + 2) if order == "ascending" else torch.arange(count + 2).flip(0)
    inputs["key"][0, :, 0] = torch.stack([place // 128 * 128, place % 128], -1).to(torch.bfloat16)  # both exact
    inputs["query"].fill_(1)
    inputs["weights"].fill_(1)
    best = range(count - 1, count - 301, -1) if order == "ascending" else range(300)
    assert run(inputs, sparse_count=300).flatten().tolist() == list(best)


@pytest.mark.parametrize("heads", [1, 5])
def test_infinities_and_nan_rank_as_in_torch(heads):
    inputs = references.lightning_indexer_inputs([200], heads=heads, depth=2, layout_key="BSND", values=integers)
    inputs["query"].fill_(1)
    inputs["weights"].fill_(1)
    for position, value in {7: float("inf"), 40: float("nan"), 3: -float("inf"), 150: float("nan")}.items():
        inputs["key"][0, position, 0, 0] = value
    out, values = run_with_values(inputs, sparse_count=200)
    assert out.flatten()[:3].tolist() == [40, 150, 7]
    assert values.flatten()[:2].isnan().all()
    assert torch.equal(
        values.flatten()[2:],
        references.lightning_indexer(**inputs, sparse_count=200, return_value=True)[1].flatten()[2:].bfloat16(),
    )
    assert torch.equal(out, references.lightning_indexer(**inputs, sparse_count=200))


def test_a_query_that_is_not_finite_leaves_the_others_alone():
    inputs = references.lightning_indexer_inputs([40], queries=3, heads=5, depth=4, layout_key="BSND")
    expected = run(inputs, sparse_mode=0, sparse_count=40)
    inputs["query"][0, 1] = float("inf")
    out = run(inputs, sparse_mode=0, sparse_count=40)
    assert torch.equal(out[0, ::2], expected[0, ::2])


def test_a_block_number_past_the_keys_is_not_read():
    inputs = references.lightning_indexer_inputs([200, 130], heads=2, depth=4)
    expected = run(inputs, sparse_count=16)
    inputs["block_table"][:, 2] = 12345
    assert torch.equal(run(inputs, sparse_count=16), expected)


def check_small_cases():
    for dtype in DTYPES:
        check(
            references.lightning_indexer_inputs([300, 7, 1], queries=2, heads=8, depth=16, dtype=dtype), sparse_count=64
        )
        check(references.lightning_indexer_inputs([9], heads=3, depth=5, dtype=dtype), sparse_count=4)


def some_results():
    return [run(references.lightning_indexer_inputs([5000, 1, 0, 300, 12345], queries=3, heads=8, depth=16))]


def print_scratch_memory():
    """Prints the scratch memory of a prefill, which is above 300 MiB if it holds all rows' candidates at a time."""
    inputs = to_npu(references.lightning_indexer_inputs([8192], queries=4096, heads=4, depth=8))
    indexer({name: value[:, :1] if name in ("query", "weights") else value for name, value in inputs.items()})
    print_memory_beside_the_result(lambda: indexer(inputs))


@pytest.mark.nightly
def test_memory_beside_arguments_and_result_is_bounded():
    assert int(in_a_process(print_scratch_memory, OMP_NUM_THREADS="2")) < 2 * 64 << 20
