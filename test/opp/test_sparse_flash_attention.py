# SPDX-License-Identifier: Apache-2.0
"""Sparse flash attention's kernel, through torch.ops on npu tensors, against its reference."""

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
    to_npu,
    with_value,
)

attention = Operator("npu_sparse_flash_attention_pto")


def run(inputs, **options):
    return attention(to_npu(inputs), **options).cpu()


def run_with_lse(inputs, **options):
    out, lse = attention(to_npu(inputs), return_softmax_lse=True, **options)
    return out.cpu(), lse.cpu()


def check(inputs, **options):
    out, lse = run_with_lse(inputs, **options)
    assert torch.equal(run(inputs, **options), out)
    expected, expected_lse = references.sparse_flash_attention(**inputs, **options, return_softmax_lse=True)
    # A score's error is that of a sum in float32 of numbers as large as the products.
    largest = expected_lse[expected_lse.isfinite()].abs().amax().item() if expected_lse.isfinite().any() else 0.0
    references.check_softmax_lse(lse, expected_lse, limit=2e-5 + 2e-6 * largest)
    assert out.dtype == inputs["query"].dtype
    references.check_attention(out, expected, atol=1e-4)
    return out


@pytest.mark.parametrize("count", [1, 64, 2048])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sparse_mode", [0, 3])
@pytest.mark.parametrize(("layout_query", "layout_kv"), LAYOUTS)
def test_attends_to_what_the_indices_name(layout_query, layout_kv, sparse_mode, dtype, count):
    inputs = references.sparse_flash_attention_inputs(
        LENGTHS,
        queries=3,
        heads=5,
        depth=32,
        rope_depth=8,
        count=count,
        layout_query=layout_query,
        layout_key=layout_kv,
        dtype=dtype,
    )
    check(inputs, sparse_mode=sparse_mode)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 16, 128])
def test_at_the_models_size(heads, dtype):
    check(references.sparse_flash_attention_inputs([65536, 3000, 1], queries=2, heads=heads, dtype=dtype))


@pytest.mark.parametrize("scale", [0.0, -0.05, 0.3])
def test_any_scale(scale):
    """With 0 the result is the mean of the values, with 0.3 one token has nearly all of the weight."""
    check(references.sparse_flash_attention_inputs([500], heads=16, count=300) | {"scale_value": scale})


@pytest.mark.parametrize("value", [0.01, 1, 30])
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_that_attend_to_few_tokens_beside_heads_that_attend_to_many(dtype, value):
    """Weights that are rounded are seen where few tokens have most of the weight, or where values are large."""
    inputs = references.sparse_flash_attention_inputs(
        [6000, 700], heads=37, depth=64, value_depth=48, count=5000, dtype=dtype
    )
    sharpness = torch.linspace(0, 6, 37).to(dtype)
    inputs["query"] *= sharpness[:, None]
    inputs["value"] *= value
    out = run(inputs)
    references.check_attention(out, references.sparse_flash_attention(**inputs), limit=3e-2 * max(value, 1))
    some = [0, 5, 36]
    fewer = inputs | {name: inputs[name][:, :, some] for name in ("query", "query_rope")}
    assert torch.equal(run(fewer), out[:, :, some]), "a head's result depends on the others"


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("scale", [1, 3, 12])
def test_tokens_in_the_order_of_their_scores(scale, descending):
    """Whether weights may be rounded is decided before all of them are known, and the maximum moves with each block."""
    inputs = references.sparse_flash_attention_inputs([1400], heads=2, depth=64, rope_depth=32, count=1301, queries=1)
    inputs["query"], inputs["query_rope"] = (
        (tensor[:, :, :1] * torch.tensor([scale, 0.1])[:, None]).bfloat16()
        for tensor in (inputs["query"], inputs["query_rope"])
    )
    tokens = inputs["block_table"][0, torch.arange(1400) // 128].long() * 128 + torch.arange(1400) % 128
    keys = torch.cat([inputs["key"], inputs["key_rope"]], -1).flatten(0, 2)[tokens].double()
    scores = keys @ torch.cat([inputs["query"], inputs["query_rope"]], -1)[0, 0, 0].double()
    inputs["sparse_indices"][0, 0, 0] = scores.argsort(descending=descending)[:1301].int()
    check(inputs)


@pytest.mark.parametrize("first", [100, 256, 400])
def test_weights_of_which_the_first_tokens_have_all(first):
    """Their rounding matters only once the other tokens have turned out to weigh nothing."""
    inputs = references.sparse_flash_attention_inputs([2048], heads=40, depth=64, value_depth=512, rope_depth=0)
    inputs["sparse_indices"][..., :] = torch.arange(2048, dtype=torch.int32)
    slots = (inputs["block_table"][0].long()[:, None] * 128 + torch.arange(128)).flatten()[:2048]
    inputs["key"].flatten(0, 2)[slots, 0] = torch.cat([torch.rand(first), torch.full((2048 - first,), -60)]).bfloat16()
    some = range(0, 40, 3)
    inputs["query"][:, :, some] = 0
    inputs["query"][:, :, some, 0] = 1 / inputs["scale_value"]
    out = check(inputs)
    check(inputs | {"query": inputs["query"][:, :, some]})
    others = [head for head in range(40) if head not in some]
    assert torch.equal(run(inputs | {"query": inputs["query"][:, :, others]}), out[:, :, others])


def test_the_first_tokens_scores_are_minus_infinity():
    """They weigh nothing, though nothing larger is known when they are weighed."""
    inputs = references.sparse_flash_attention_inputs([600], heads=3, depth=64, value_depth=64, rope_depth=0, count=600)
    inputs["sparse_indices"][..., :] = torch.arange(600, dtype=torch.int32)
    slots = (inputs["block_table"][0].long()[:, None] * 128 + torch.arange(128)).flatten()[:600]
    inputs["key"].flatten(0, 2)[slots[:300]] = -3e38
    inputs["query"].fill_(100)
    check(inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "depth", "rope_depth", "value_depth"),
    [
        (1, 1, 0, 1),
        (3, 7, 0, None),
        (2, 6, 3, 5),
        (17, 31, 1, 33),
        (65, 130, 2, 17),
        (300, 4, 0, 64),
        (129, 16, 16, None),
        (40, 64, 32, 80),
        (20, 128, 0, 100),
    ],
)
def test_any_number_of_heads_and_depth(heads, depth, rope_depth, value_depth, dtype):
    inputs = references.sparse_flash_attention_inputs(
        [1, 150],
        queries=2,
        heads=heads,
        depth=depth,
        rope_depth=rope_depth,
        value_depth=value_depth,
        count=140,
        dtype=dtype,
    )
    check(inputs)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 513])
def test_any_number_of_tokens(count):
    check(
        references.sparse_flash_attention_inputs([count], heads=16, depth=48, rope_depth=0, count=count), sparse_mode=0
    )


@pytest.mark.parametrize("heads", [1, 5, 33])
@pytest.mark.parametrize("count", [1, 31, 257, 1009])
def test_any_number_of_tokens_and_few_heads_at_the_models_depths(count, heads):
    """With sinks, and a page that the table does not have."""
    inputs = references.sparse_flash_attention_inputs([count, 1009], queries=2, heads=heads, count=count)
    inputs["block_table"][1, 3] = -1
    check(inputs | {"attention_sinks": torch.linspace(-2, 6, heads)}, sparse_mode=0)


def test_query_tokens_past_the_last_sequence_give_zeros_and_their_indices_are_not_read():
    inputs = references.sparse_flash_attention_inputs(
        [30, 40], queries=2, heads=2, depth=4, rope_depth=0, count=20, layout_query="TND"
    )
    used = run(inputs)
    inputs["query"] = torch.cat([inputs["query"]] * 10)
    inputs["sparse_indices"] = torch.cat([inputs["sparse_indices"]] * 10)
    inputs["sparse_indices"][4:] = -77
    out = run(inputs)
    assert torch.equal(out[:4], used)
    assert (out[4:] == 0).all()


# ---- what a row of indices means


def row_inputs(*indices, length=20, **options):
    inputs = references.sparse_flash_attention_inputs([length], heads=3, depth=8, count=len(indices), **options)
    inputs["sparse_indices"][:] = torch.tensor(indices, dtype=torch.int32)
    return inputs


def test_the_first_minus_one_ends_a_row():
    short = row_inputs(3, 7, -1, -1)
    expected = check(short)
    assert torch.equal(run(short | {"sparse_indices": row_inputs(3, 7, -1, 5)["sparse_indices"]}), expected)
    assert torch.equal(run(short | {"sparse_indices": row_inputs(3, 7)["sparse_indices"]}), expected)


@pytest.mark.parametrize("indices", [(-1, 3), (20, 1000, 2**31 - 1), (20, -1, 4)])
def test_a_row_without_tokens_gives_zeros(indices):
    assert (run(row_inputs(*indices)) == 0).all()


def test_tokens_that_a_query_does_not_see_are_left_out():
    """Of 3 queries and 20 tokens the first sees 18; without the mask it sees all 20, and nothing past them."""
    inputs = row_inputs(17, 18, 19, 20, 0, queries=3)
    causal, full = check(inputs), check(inputs, sparse_mode=0)
    assert not torch.equal(causal[:, :2], full[:, :2])
    assert torch.equal(causal[:, 2], full[:, 2])


def test_a_token_that_is_named_twice_counts_twice():
    check(row_inputs(4, 4, 9))
    assert not torch.equal(
        run(row := row_inputs(4, 4, 9)), run(row | {"sparse_indices": row["sparse_indices"][..., 1:]})
    )


def test_one_token_gives_its_value():
    inputs = row_inputs(5, queries=1, layout_key="BSND")
    assert torch.equal(run(inputs)[0, 0], inputs["value"][0, 5].expand(3, 8))


def test_a_query_that_is_not_finite_leaves_the_others_alone():
    inputs = references.sparse_flash_attention_inputs([40], queries=3, heads=5, depth=4, count=30)
    expected = run(inputs)
    inputs["query"][0, 1, 2] = float("inf")
    out = run(inputs)
    assert out[0, 1, 2].isnan().all()
    out[0, 1, 2] = expected[0, 1, 2]
    assert torch.equal(out, expected)


def test_large_scores_do_not_overflow():
    """Scores up to thousands, in several blocks: the maximum moves along."""
    inputs = references.sparse_flash_attention_inputs([600], heads=20, depth=64, rope_depth=0, count=600)
    inputs["query"] *= 100
    check(inputs | {"scale_value": 1.0})


# ---- sinks, and logarithms of sums


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("layout_query", "layout_kv"), LAYOUTS)
def test_sinks_count_in_the_softmax_and_have_no_value(layout_query, layout_kv, dtype):
    inputs = references.sparse_flash_attention_inputs(
        LENGTHS, queries=3, heads=6, key_heads=2, depth=32, layout_query=layout_query, layout_key=layout_kv, dtype=dtype
    )
    sinks = torch.tensor([-torch.inf, -80.0, 0.0, 3.0, 8.0, 200.0])
    out = check(inputs | {"attention_sinks": sinks})
    assert torch.equal(out[..., 0, :], run(inputs)[..., 0, :])
    assert (out[..., 5, :] == 0).all()
    strided = torch.stack([sinks, sinks + 1], -1)[:, 0]
    assert torch.equal(run(inputs | {"attention_sinks": strided}), out)


def test_sinks_of_rows_that_take_several_spans_and_blocks():
    inputs = references.sparse_flash_attention_inputs([6000, 2049], heads=37, depth=64, rope_depth=0, count=5000)
    check(inputs | {"attention_sinks": torch.linspace(-5, 12, 37)})


@pytest.mark.parametrize("sinks", [None, torch.tensor([-1.0, 0.0, 2.5])])
def test_without_a_token_the_logarithm_is_the_sink(sinks):
    out, lse = run_with_lse(row_inputs(-1, 3, queries=2) | {"attention_sinks": sinks})
    assert (out == 0).all()
    assert torch.equal(lse, torch.full((1, 2, 3), -torch.inf) if sinks is None else sinks.expand(1, 2, 3))


def test_results_over_parts_of_the_tokens_merge_by_their_logarithms():
    """As in context parallelism, where each rank has some of a sequence's keys; the sinks are one rank's."""
    inputs = references.sparse_flash_attention_inputs([900, 700], queries=2, heads=16, depth=64, count=600)
    sinks = torch.linspace(-3, 3, 16)
    expected, expected_lse = references.sparse_flash_attention(
        **inputs, attention_sinks=sinks, return_softmax_lse=True, sparse_mode=0
    )
    parts = []
    for rank, indices in enumerate(inputs["sparse_indices"].split([100, 450, 50], -1)):
        of_rank = inputs | {"sparse_indices": indices.contiguous(), "attention_sinks": None if rank else sinks}
        parts.append(run_with_lse(of_rank, sparse_mode=0))
    outs, logarithms = (torch.stack(each) for each in zip(*parts, strict=True))
    merged = (logarithms.softmax(0)[..., None] * outs.float()).sum(0)
    references.check_attention(merged.bfloat16(), expected, atol=2e-4)
    references.check_softmax_lse(logarithms.logsumexp(0), expected_lse)


# ---- memory


def test_keys_values_and_rope_parts_may_be_views_of_one_cache():
    """The cache of MLA: each token is a row of 64 + 16 numbers, and the first 64 are key and value."""
    inputs = references.sparse_flash_attention_inputs([300, 77], heads=8, depth=64, rope_depth=16, count=200)
    expected = check(inputs)
    cache = torch.cat([inputs["key"], inputs["key_rope"]], -1).npu()
    query = torch.cat([inputs["query"], inputs["query_rope"]], -1).npu()
    views = {
        "key": cache[..., :64],
        "value": cache[..., :64],
        "key_rope": cache[..., 64:],
        "query": query[..., :64],
        "query_rope": query[..., 64:],
    }
    out = attention(to_npu(inputs) | views)
    assert torch.equal(out.cpu(), expected)
    whole = to_npu(inputs) | {
        "query": query,
        "key": cache,
        "value": cache[..., :64],
        "query_rope": None,
        "key_rope": None,
    }
    assert torch.equal(attention(whole).cpu(), expected)


def test_a_value_equal_to_the_key_in_other_memory_changes_nothing():
    inputs = references.sparse_flash_attention_inputs([300], heads=20, depth=48, count=200)
    assert torch.equal(run(inputs | {"value": inputs["key"].clone()}), run(inputs))


@settings(deadline=None, max_examples=60)  # the machine may be busy
@given(data=st.data())
def test_any_shape(data):
    draw = data.draw
    inputs = references.sparse_flash_attention_inputs(
        **any_sequences(draw),
        depth=draw(st.integers(1, 40)),
        rope_depth=draw(st.integers(0, 9)),
        value_depth=draw(st.none() | st.integers(1, 40)),
        count=draw(st.integers(1, 320)),
    )
    check(inputs, sparse_mode=draw(st.sampled_from([0, 3])))


# ---- values that only the kernel sees


@pytest.mark.parametrize(
    ("layouts", "index", "value", "message"),
    [
        (("BSND", "PA_BSND"), (1, 2, 0, 3), -2, r"\[1\]\[2\]\[0\]\[3\] is -2, but must be the position"),
        (("TND", "TND"), (4, 0, 0), -(2**31), r"\[4\]\[0\]\[0\] is -2147483648"),
    ],
)
def test_a_negative_position_is_rejected(layouts, index, value, message):
    layout_query, layout_key = layouts
    inputs = references.sparse_flash_attention_inputs(
        [200, 130], queries=3, heads=2, depth=4, count=16, layout_query=layout_query, layout_key=layout_key
    )
    attention.rejects(with_value(inputs, "sparse_indices", index, value), "sparse_indices" + message)
    check(inputs)


def test_what_follows_the_first_minus_one_is_not_read():
    inputs = row_inputs(3, 7, -1, -99)
    assert torch.equal(run(inputs), run(inputs | {"sparse_indices": row_inputs(3, 7)["sparse_indices"]}))


# ---- other machines


def some_results():
    """Calls that few threads compute by rows and many by parts of their heads, or one thread with another's help."""
    many = references.sparse_flash_attention_inputs([5000, 1, 0, 300], queries=3, heads=48, depth=40, count=600)
    one = references.sparse_flash_attention_inputs([3000], heads=128, depth=96, count=1000)
    three = references.sparse_flash_attention_inputs([3000], queries=3, heads=128, depth=96, count=2048)
    steep = three | {"query": three["query"] * 6}  # most weights of few tokens: some heads' are doubted
    return [run(inputs) for inputs in (many, one, three, steep)]


def check_small_cases():
    for dtype in DTYPES:
        check(references.sparse_flash_attention_inputs([300, 7], queries=2, heads=20, depth=40, count=200, dtype=dtype))
        check(references.sparse_flash_attention_inputs([9], heads=3, depth=5, rope_depth=0, count=9, dtype=dtype))
