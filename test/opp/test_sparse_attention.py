# SPDX-License-Identifier: Apache-2.0
"""The fused sparse attention layer's kernel, through torch.ops on npu tensors, against its reference."""

import pytest
import references
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import (
    DTYPES,
    VIEWS,
    Operator,
    in_a_process,
    in_blocks,
    print_memory_beside_the_result,
    same,
    to_npu,
    viewed,
    with_value,
)

CACHES = ("kv_cache", "kr_cache", "index_k_cache")
WEIGHTS = ("w_dq", "w_uq_qr", "w_dkv_kr", "w_idx_qb", "w_idx_k", "w_idx_proj")
PER_SEQUENCE = ("x", "sin", "cos", "cache_index", "block_table", "act_seqs")
SMALL = dict(
    hidden=96, q_lora=48, heads=6, depth=16, rope_depth=8, kv_lora=40, index_heads=8, index_depth=24, count=100
)

layer = Operator("npu_sparse_attention_pto", CACHES)


def run(inputs, **options):
    """The result, and the caches after the call."""
    return layer.with_caches(to_npu(inputs), **options)


def check(inputs, **options):
    out, *caches = run(inputs, **options)
    assert out.dtype == inputs["x"].dtype
    references.check_sparse_attention(out, caches, **inputs, **options)
    return out, *caches


# ---- sizes


def test_at_the_models_widths_with_sequences_of_up_to_128k_keys():
    check(references.sparse_attention_inputs([768, 4097, 8192, 131071]))


@pytest.mark.nightly
def test_at_the_models_widths_with_many_sequences():
    check(references.sparse_attention_inputs([4096] * 48))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("queries", [1, 2, 3, 5])
@pytest.mark.parametrize("lengths", [[700], [0, 1, 2, 3, 127, 128, 129]])
def test_any_batch_and_number_of_queries(lengths, queries, dtype):
    """A query token before the start of its sequence has no slot, sees no key, and gives zeros."""
    inputs = references.sparse_attention_inputs(lengths, queries=queries, dtype=dtype, **SMALL)
    out, *_ = check(inputs)
    for b, length in enumerate(lengths):
        assert (out[b, : max(queries - length, 0)] == 0).all()


def test_a_prefill_in_several_chunks():
    """More tokens than go through at once, because each has many indices; chunks begin and end within sequences, and
    the first tokens of one lie before its start."""
    check(references.sparse_attention_inputs([700, 250, 640], queries=300, **SMALL | {"count": 200_000}))


@pytest.mark.parametrize(("batch", "queries"), [(0, 3), (3, 0)])
def test_no_tokens(batch, queries):
    inputs = references.sparse_attention_inputs([50] * batch, queries=queries, **SMALL)
    out, *caches = run(inputs)
    assert out.shape == (batch, queries, 6, 40)
    assert all(torch.equal(cache, inputs[name]) for name, cache in zip(CACHES, caches, strict=True))


@pytest.mark.parametrize("block_size", [1, 16, 100, 1024])
def test_any_block_size(block_size):
    check(references.sparse_attention_inputs([0, 1, 99, 100, 1025], queries=2, block_size=block_size, **SMALL))


def test_every_width_may_be_one():
    sizes = dict(hidden=1, q_lora=1, heads=1, depth=1, rope_depth=2, kv_lora=1, index_heads=1, index_depth=2)
    torch.manual_seed(0)
    check(references.sparse_attention_inputs([3, 1], count=1, block_size=1, dtype=torch.float16, **sizes))


@settings(deadline=None, max_examples=40)  # the machine may be busy
@given(data=st.data())
def test_any_shape(data):
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 2**32)))
    rope_depth = 2 * draw(st.integers(1, 9))
    inputs = references.sparse_attention_inputs(
        draw(st.lists(st.integers(0, 300), min_size=1, max_size=5)),
        queries=draw(st.integers(1, 5)),
        hidden=draw(st.integers(16, 130)),
        q_lora=draw(st.integers(16, 70)),
        heads=draw(st.integers(1, 20)),
        depth=draw(st.integers(8, 40)),
        rope_depth=rope_depth,
        kv_lora=draw(st.integers(16, 70)),
        index_heads=draw(st.integers(1, 9)),
        index_depth=rope_depth + draw(st.integers(0, 30)),
        count=draw(st.integers(1, 320)),
        block_size=draw(st.sampled_from([1, 16, 128, 144])),
        dtype=draw(st.sampled_from(DTYPES)),
        slot_dtype=draw(st.sampled_from([torch.int32, torch.int64])),
    )
    modes = st.sampled_from(["interleave", "half"])
    check(inputs, rope_mode=draw(modes), indexer_rope_mode=draw(modes))


def test_a_number_of_a_short_latent_lies_between_two():
    """Float32 rounds one of the token's 16 to the other neighbour, which moves all of its queries."""
    torch.manual_seed(2071)
    sizes = dict(hidden=35, q_lora=16, heads=15, depth=8, rope_depth=12, kv_lora=45, index_heads=1, index_depth=12)
    inputs = references.sparse_attention_inputs([81], count=16, block_size=16, dtype=torch.float16, **sizes)
    assert references._sparse_attention_prologs(
        **{k: v for k, v in inputs.items() if k != "sparse_count"}
    ).open_tokens.all()
    check(inputs, indexer_rope_mode="half")


# ---- attributes


@pytest.mark.parametrize("option", ["softmax_scale", "rms_norm_eps", "layer_norm_eps"])
@pytest.mark.parametrize("value", [0.05, 0.3, 0.7])
def test_scale_and_epsilons_count(option, value):
    inputs = references.sparse_attention_inputs([300, 40], queries=2, **SMALL)
    assert not same(check(inputs, **{option: value}), run(inputs))


def test_the_scale_is_that_of_the_products_by_default():
    inputs = references.sparse_attention_inputs([300, 40], queries=2, **SMALL)
    assert same(run(inputs), run(inputs, softmax_scale=48**-0.5))


@pytest.mark.parametrize("rope_mode", ["interleave", "half"])
@pytest.mark.parametrize("indexer_rope_mode", ["interleave", "half"])
def test_attention_and_indexer_rotate_in_their_own_way(rope_mode, indexer_rope_mode):
    inputs = references.sparse_attention_inputs([300, 40], queries=2, **SMALL)
    check(inputs, rope_mode=rope_mode, indexer_rope_mode=indexer_rope_mode)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 299, 300, 301, 2048])
def test_any_number_of_selected_keys(count):
    check(references.sparse_attention_inputs([300, 64, 3], queries=2, **SMALL | {"count": count}))


@pytest.mark.parametrize("count", [2**31, 2**63 - 1])
def test_no_memory_is_taken_for_more_keys_than_there_are(count):
    inputs = references.sparse_attention_inputs([300, 64], queries=2, **SMALL)
    all_of_them, more = (run(inputs | {"sparse_count": each}) for each in (300, count))
    assert same(all_of_them, more)


# ---- slots, lengths and block table


def test_the_caches_are_written_before_any_token_attends():
    """Sequences that share their pages, where the second writes to what the first sees."""
    inputs = references.sparse_attention_inputs([128, 128], queries=2, **SMALL)
    inputs["block_table"][1] = inputs["block_table"][0]
    inputs["cache_index"] = (inputs["block_table"][0, 0] * 128 + torch.tensor([[5, 6], [7, 8]])).int()
    check(inputs)


def test_of_tokens_with_the_same_slot_the_last_is_written():
    inputs = references.sparse_attention_inputs([300, 40, 20], queries=3, **SMALL)
    inputs["cache_index"][:, 1] = 77
    inputs["cache_index"][0, 2] = 77
    check(inputs)


def test_a_token_without_a_slot_is_not_cached():
    inputs = references.sparse_attention_inputs([300, 40], queries=3, **SMALL)
    inputs["cache_index"][0] = -1
    inputs["cache_index"][1, 1] = -1
    check(inputs)
    inputs["cache_index"][:] = -1
    _, *caches = check(inputs)
    assert all(torch.equal(cache, inputs[name]) for name, cache in zip(CACHES, caches, strict=True))


def test_a_page_numbered_minus_one_has_no_tokens():
    inputs = references.sparse_attention_inputs([400, 256], queries=2, **SMALL)
    inputs["block_table"][0, 1] = -1
    inputs["block_table"][1, :] = -1
    out, *_ = check(inputs)
    assert (out[1] == 0).all()


def test_what_a_length_does_not_need_of_the_block_table_is_not_read():
    inputs = references.sparse_attention_inputs([300, 129], queries=2, **SMALL)
    expected = check(inputs)
    wide = torch.full((2, 50), 10**6, dtype=torch.int32)
    for row, of, pages in zip(wide, inputs["block_table"], (3, 2), strict=True):
        row[:pages] = of[:pages]
    assert same(run(inputs | {"block_table": wide}), expected)


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("cache_index", (1, 2), 896, r"\[1\]\[2\] is 896.* 0 and 895"),
        ("cache_index", (0, 0), -2, r"\[0\]\[0\] is -2"),
        ("cache_index", (1, 0), 2**31 - 1, r"\[1\]\[0\] is 2147483647"),
        ("act_seqs", 1, -1, r"\[1\] is -1.* 0 and 512"),
        ("act_seqs", 0, 513, r"\[0\] is 513.* 0 and 512"),
        ("block_table", (0, 1), 7, r"\[0\]\[1\] is 7.* 0 and 6 \(the blocks of kv_cache\)"),
        ("block_table", (1, 0), -2, r"\[1\]\[0\] is -2"),
    ],
)
def test_values_out_of_range_are_rejected_before_anything_is_written(name, index, value, message):
    inputs = references.sparse_attention_inputs([300, 256], queries=3, **SMALL)
    layer.rejects(with_value(inputs, name, index, value), name + message)
    check(inputs)


@pytest.mark.parametrize("value", [-2, 896, 2**40])
def test_wide_slots_out_of_range_are_rejected(value):
    inputs = references.sparse_attention_inputs([300, 256], queries=3, slot_dtype=torch.int64, **SMALL)
    check(inputs)
    inputs["cache_index"][1, 2] = value
    layer.rejects(inputs, rf"cache_index\[1\]\[2\] is {value}")


# ---- the same bits


def test_a_batch_gives_what_its_sequences_give_one_by_one():
    inputs = references.sparse_attention_inputs([700, 2, 0, 300, 129], queries=3, **SMALL)
    out, *caches = check(inputs)
    for b in range(5):
        entry = inputs | {name: inputs[name][b : b + 1] for name in PER_SEQUENCE}
        entry_out, *entry_caches = run(entry)
        assert torch.equal(entry_out, out[b : b + 1])
        slots = inputs["cache_index"][b][inputs["cache_index"][b] >= 0].long()
        for mine, whole in zip(entry_caches, caches, strict=True):
            assert torch.equal(mine.flatten(0, 1)[slots], whole.flatten(0, 1)[slots])


def test_a_prefill_gives_what_its_tokens_give_one_by_one():
    """Twice as many tokens as the linear layers take at once."""
    widths = SMALL | dict(hidden=520)
    inputs = references.sparse_attention_inputs([520], queries=520, **widths)
    out, *caches = run(inputs)
    inputs |= dict(zip(CACHES, caches, strict=True))
    for s in (0, 1, 255, 256, 511, 519):
        one = inputs | {name: inputs[name][:, s : s + 1] for name in ("x", "sin", "cos", "cache_index")}
        assert torch.equal(run(one | {"act_seqs": torch.tensor([s + 1]).int()})[0][0, 0], out[0, s])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("names", [("w_dq", "w_idx_qb"), ("w_uq_qr", "w_dkv_kr"), ("w_idx_k", "w_idx_proj"), WEIGHTS])
def test_weights_in_fractal_nz_give_the_same(names, dtype, internal_formats):
    inputs = references.sparse_attention_inputs([300, 40], queries=2, dtype=dtype, **SMALL | dict(hidden=93, q_lora=47))
    assert same(layer.with_caches(in_blocks(to_npu(inputs), names)), check(inputs))


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides_are_honoured(dtype):
    inputs = references.sparse_attention_inputs([128, 300, 5], queries=2, dtype=dtype, **SMALL)
    expected = check(inputs)

    for view in VIEWS:
        assert same(layer.with_caches(viewed(to_npu(inputs), view)), expected), view.__name__


def test_the_caches_may_be_views_of_one():
    """Each token a row of 40 + 8 + 24 numbers."""
    inputs = references.sparse_attention_inputs([300, 40], queries=2, **SMALL)
    expected = check(inputs)
    whole = torch.cat([inputs[name] for name in CACHES], -1).npu()
    views = dict(zip(CACHES, whole.split([40, 8, 24], -1), strict=True))
    assert same(layer.with_caches(to_npu(inputs) | views), expected)


# ---- other machines, and memory


def some_results():
    calls = [
        references.sparse_attention_inputs([2000, 1, 0, 300], queries=3, **SMALL),
        references.sparse_attention_inputs([3000], hidden=1000, q_lora=600, heads=20, index_heads=10),
        references.sparse_attention_inputs([300], queries=300, hidden=70, q_lora=40, heads=64, index_heads=3),
    ]
    return [tensor for inputs in calls for tensor in run(inputs)]


def check_small_cases():
    for dtype in DTYPES:
        check(references.sparse_attention_inputs([300, 7, 1], queries=2, dtype=dtype, **SMALL))


def print_scratch_memory():
    """How far a call with 900 tokens at the model's widths takes memory above its arguments and its result: the
    workspace, in which 118 MB are the absorbed queries of all tokens."""
    inputs = to_npu(references.sparse_attention_inputs([900], queries=900, count=128))
    layer({**inputs, "x": inputs["x"][:, :1], **first_token(inputs)})
    print_memory_beside_the_result(lambda: layer(inputs))


def first_token(inputs):
    return {name: inputs[name][:, :1] for name in ("sin", "cos", "cache_index")}


@pytest.mark.nightly
def test_memory_beside_arguments_and_result_is_bounded():
    assert int(in_a_process(print_scratch_memory, OMP_NUM_THREADS="2")) < 384 << 20
