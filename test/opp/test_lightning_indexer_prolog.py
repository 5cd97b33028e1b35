# SPDX-License-Identifier: Apache-2.0
"""The kernel of the indexer's prolog, through torch.ops on npu tensors, against its reference."""

import pytest
import references
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import (
    DTYPES,
    VIEWS,
    Operator,
    in_blocks,
    same,
    to_npu,
    viewed,
    with_value,
)

ROPE_MODES = ["interleave", "half"]
WEIGHTS = ("wq_b", "wk", "weights_proj")
CACHES = ("idx_k_cache", "idx_k_scale_cache")
SMALL = dict(hidden=48, q_lora=32, heads=3, depth=16, rope_depth=8, cache=(4, 16))

prolog = Operator("npu_lightning_indexer_prolog_pto", CACHES)


def small(tokens, **sizes):
    return references.lightning_indexer_prolog_inputs(tokens, **(SMALL | sizes))


def run(inputs):
    """The three results, and both caches after the call."""
    return prolog.with_caches(to_npu(inputs))


def check(inputs):
    out = run(inputs)
    references.check_lightning_indexer_prolog(out, **inputs)
    return out


@pytest.mark.parametrize("slot_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("rope_mode", ROPE_MODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cache", [(4, 16), (64,)])
@pytest.mark.parametrize("tokens", [7, (3, 4)])
def test_computes_queries_keys_and_weights(tokens, cache, dtype, rope_mode, slot_dtype):
    inputs = small(tokens, cache=cache, dtype=dtype, slot_dtype=slot_dtype)
    check(inputs | {"rope_mode": rope_mode})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [8, 2, (4, 4)])
def test_at_the_models_size(tokens, dtype):
    check(references.lightning_indexer_prolog_inputs(tokens, dtype=dtype))


def test_a_prefill_at_the_models_size():
    """More tokens than go through together."""
    check(references.lightning_indexer_prolog_inputs(513) | {"rope_mode": "half"})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("hidden", "q_lora", "heads", "depth", "rope_depth"),
    [
        (1, 1, 1, 2, 2),
        (3, 5, 7, 6, 4),
        (513, 511, 1, 130, 2),
        (515, 1026, 65, 31, 30),
        (64, 2050, 3, 64, 64),
        (32, 65, 61, 24, 6),
        (16, 65, 1, 2048, 34),
        (16, 20, 2112, 3, 2),
    ],
)
def test_any_size(hidden, q_lora, heads, depth, rope_depth, dtype):
    sizes = dict(hidden=hidden, q_lora=q_lora, heads=heads, depth=depth, rope_depth=rope_depth, dtype=dtype)
    for tokens in (1, 17):
        check(small(tokens, **sizes))


@settings(deadline=None, max_examples=60)  # the machine may be busy
@given(data=st.data())
def test_any_shape(data):
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 2**32)))
    depth = draw(st.integers(3, 70))  # a layer norm of two leaves little but the sign of their difference
    cache = draw(st.sampled_from([(40,), (5, 8), (1, 40), (40, 1)]))
    inputs = references.lightning_indexer_prolog_inputs(
        draw(st.integers(0, 40) | st.tuples(st.integers(0, 5), st.integers(0, 8))),
        hidden=draw(st.integers(1, 600)),
        q_lora=draw(st.integers(1, 600)),
        heads=draw(st.integers(1, 20)),
        depth=depth,
        rope_depth=2 * draw(st.integers(1, depth // 2)),
        cache=cache,
        dtype=draw(st.sampled_from(DTYPES)),
        slot_dtype=draw(st.sampled_from([torch.int64, torch.int32])),
    )
    inputs["rope_mode"] = draw(st.sampled_from(ROPE_MODES))
    inputs["layernorm_epsilon_k"] = draw(st.sampled_from([1e-6, 1e-3, 1.0]))
    for weight in WEIGHTS:
        if draw(st.booleans()):
            inputs[weight] = inputs[weight].t().contiguous().t()
    check(inputs)


@pytest.mark.parametrize("tokens", [0, (0, 3), (3, 0)])
def test_no_tokens(tokens):
    inputs = small(tokens)
    query, query_scale, weights, *caches = run(inputs)
    leading = (tokens,) if isinstance(tokens, int) else tokens
    assert query.shape == (*leading, 3, 16)
    assert query_scale.shape == (*leading, 3, 1)
    assert weights.shape == (*leading, 3)
    assert same(caches, (inputs[name] for name in CACHES))


# ---- the formula


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1e-2, 100.0])
def test_the_epsilon_is_the_arguments(epsilon):
    """Keys whose variance is small beside some of them."""
    inputs = small(9)
    inputs["wk"] = inputs["wk"] * 0.02
    check(inputs | {"layernorm_epsilon_k": epsilon})


def test_the_two_rope_modes_differ_and_interleave_is_the_default():
    inputs = small(5)
    default, half = run(inputs), run(inputs | {"rope_mode": "half"})
    assert same(run(inputs | {"rope_mode": "interleave"}), default)
    assert not torch.equal(default[0], half[0])
    assert not torch.equal(default[3], half[3])


def test_a_query_or_key_of_zeros_has_scale_0():
    inputs = small(4)
    inputs["q_norm"][1] = 0
    inputs["ln_beta_k"].zero_()
    inputs["ln_gamma_k"].zero_()
    query, query_scale, _, cache, scales = check(inputs)
    slots = inputs["idx_k_cache_index"]
    assert (query[1] == 0).all() and (query_scale[1] == 0).all()
    assert (cache.flatten(0, 1)[slots] == 0).all() and (scales.flatten(0, 1)[slots] == 0).all()


def test_the_largest_element_of_a_head_becomes_127():
    query = run(small(20))[0]
    assert (query.int().abs().amax(-1) == 127).all()


def test_the_largest_products_do_not_overflow():
    inputs = small(3, q_lora=131071, heads=1, depth=2, rope_depth=2)
    inputs["q_norm"][:] = torch.tensor([-128, 127, -128], dtype=torch.int8)[:, None]
    inputs["wq_b"].fill_(-128)
    check(inputs)


def test_a_token_that_is_not_finite_leaves_the_others_alone():
    inputs = small(6)
    expected = run(inputs)
    inputs["token_x"][2, 5] = float("nan")
    inputs["q_norm_scale"][2] = float("inf")
    actual = run(inputs)
    others = [0, 1, 3, 4, 5]
    assert same((tensor[others] for tensor in actual[:3]), (tensor[others] for tensor in expected[:3]))
    slots = inputs["idx_k_cache_index"]
    kept = [slot for slot in range(64) if slot != slots[2]]
    assert same((c.flatten(0, 1)[kept] for c in actual[3:]), (c.flatten(0, 1)[kept] for c in expected[3:]))
    assert not actual[1][2].isfinite().any() and not actual[4].flatten()[slots[2]].isfinite()


def test_what_a_token_gives_does_not_depend_on_the_others():
    inputs = small(600, hidden=700, q_lora=600, cache=(40, 16))
    together = run(inputs)
    for rows in (slice(0, 1), slice(3, 8), slice(290, 600)):
        part = {n: v[rows] if isinstance(v, torch.Tensor) and v.shape[:1] == (600,) else v for n, v in inputs.items()}
        part["wq_b"] = inputs["wq_b"]
        alone = run(part)
        assert same(alone[:3], (tensor[rows] for tensor in together[:3]))
        slots = part["idx_k_cache_index"]
        assert same((c.flatten(0, 1)[slots] for c in alone[3:]), (c.flatten(0, 1)[slots] for c in together[3:]))


# ---- weights in FRACTAL_NZ


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "sizes", [dict(), dict(hidden=45, q_lora=35, heads=5, depth=18, rope_depth=6), dict(q_lora=65, heads=61, depth=24)]
)
@pytest.mark.parametrize("names", [("wq_b",), ("wk", "weights_proj"), WEIGHTS])
def test_weights_in_blocks_give_the_same_to_the_bit(names, sizes, dtype, internal_formats):
    inputs = small(20, **sizes, dtype=dtype)
    assert same(prolog.with_caches(in_blocks(to_npu(inputs), names)), run(inputs))


def test_weights_in_blocks_at_the_models_size(internal_formats):
    inputs = references.lightning_indexer_prolog_inputs(8)
    assert same(prolog.with_caches(in_blocks(to_npu(inputs), WEIGHTS)), run(inputs))


# ---- slots


def test_a_token_with_slot_minus_one_is_not_cached():
    inputs = small((2, 5))
    inputs["idx_k_cache_index"][0, 1:4] = -1
    inputs["idx_k_cache_index"][1, 4] = -1
    check(inputs)


def test_of_tokens_with_the_same_slot_the_last_is_cached():
    inputs = small(300, cache=(20, 16))
    inputs["idx_k_cache_index"][:] = torch.randint(-1, 20, (300,))
    check(inputs)


@pytest.mark.parametrize("slot_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(
    ("tokens", "token", "slot", "message"),
    [
        (5, 4, 64, r"\[4\] is 64, but must lie between 0 and 63 \(the slots of the cache\), or be -1"),
        (5, 0, -2, r"\[0\] is -2"),
        ((2, 3), (1, 2), 2**31 - 1, r"\[1\]\[2\] is 2147483647"),
    ],
)
def test_slots_out_of_range_are_rejected_and_nothing_is_written(tokens, token, slot, message, slot_dtype):
    inputs = small(tokens, slot_dtype=slot_dtype)
    prolog.rejects(with_value(inputs, "idx_k_cache_index", token, slot), "idx_k_cache_index" + message)
    check(inputs)


def test_an_empty_cache_takes_no_token():
    inputs = small(2) | {"idx_k_cache_index": torch.tensor([-1, -1])}
    check(inputs | {name: inputs[name][:0] for name in CACHES})


# ---- memory


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("tokens", [21, (3, 7)])
def test_strides_are_honoured(tokens, view, dtype):
    inputs = small(tokens, dtype=dtype)
    assert same(prolog.with_caches(viewed(to_npu(inputs), view)), run(inputs))


def test_caches_may_be_views_and_what_lies_beside_them_stays():
    inputs = small(9)
    npu = to_npu(inputs)
    memory = {name: torch.stack([npu[name], npu[name], npu[name]], 2) for name in CACHES}
    out = prolog.with_caches(npu | {name: memory[name][:, :, 1] for name in CACHES})
    assert same(out, run(inputs))
    for name in CACHES:
        assert torch.equal(memory[name][:, :, 0].cpu(), inputs[name])
        assert torch.equal(memory[name][:, :, 2].cpu(), inputs[name])


# ---- other machines


def some_results():
    many = small(530, hidden=300, heads=9, depth=40, cache=(40, 16))
    few = small(3, hidden=2000, q_lora=1000, heads=20, depth=128)
    counts = [small(tokens, q_lora=65, heads=7, depth=40, cache=(40, 16)) for tokens in (0, 1, 13, 257)]
    return [result for inputs in (many, few, *counts) for result in run(inputs)]


def check_small_cases():
    for dtype in DTYPES:
        check(small(20, q_lora=1100, hidden=600, depth=66, dtype=dtype))
        inputs = small(3, q_lora=1200, dtype=dtype)
        inputs["q_norm"].fill_(-128)
        inputs["wq_b"].fill_(-128)
        check(inputs)
