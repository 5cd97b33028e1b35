# SPDX-License-Identifier: Apache-2.0
"""The kernel that writes keys and values to paged caches, through torch.ops on npu tensors, against its reference."""

import pytest
import references
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import (
    VIEWS,
    Operator,
    in_a_process,
    same,
    to_npu,
    viewed,
    with_value,
)

import custom_pypto

DTYPES = [torch.float16, torch.bfloat16, torch.int8, torch.float32]
CACHE_LAYOUTS = ["ND", "NZ"]
CACHES = ("key_cache", "value_cache")
SMALL = dict(heads=2, depth=16, cache=(6, 16))

write = Operator("reshape_and_cache", CACHES)


def small(tokens, **options):
    return references.reshape_and_cache_inputs(tokens, **(SMALL | options))


def written(npu):
    """The caches after a call on arguments that lie on the device."""
    assert write(npu) is None
    return [npu[name].cpu() for name in CACHES if npu[name] is not None]


def check(inputs, npu=None):
    expected = [cache for cache in references.reshape_and_cache(**inputs) if cache is not None]
    assert same(written(to_npu(inputs) if npu is None else npu), expected)


every_layout = pytest.mark.parametrize("cache_layout", CACHE_LAYOUTS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.mark.parametrize("slot_dtype", [torch.int64, torch.int32])
@every_dtype
@every_layout
@pytest.mark.parametrize("keys_only", [False, True])
@pytest.mark.parametrize("tokens", [0, 1, 17, (13, 3)])
def test_writes_rows_to_their_slots(tokens, keys_only, cache_layout, dtype, slot_dtype):
    options = dict(keys_only=keys_only, cache_layout=cache_layout, dtype=dtype, slot_dtype=slot_dtype)
    check(small(tokens, heads=4, **options))


@every_dtype
@every_layout
def test_a_prefill_of_4096_tokens(cache_layout, dtype):
    check(references.reshape_and_cache_inputs(4096, heads=2, depth=64, cache_layout=cache_layout, dtype=dtype))


@every_layout
@pytest.mark.parametrize("value_dtype", DTYPES, ids=str)
@every_dtype
def test_values_have_a_width_and_a_dtype_of_their_own(dtype, value_dtype, cache_layout):
    check(small(21, depth=48, value_depth=80, dtype=dtype, value_dtype=value_dtype, cache_layout=cache_layout))


@pytest.mark.parametrize("depth", [1, 3, 15, 16, 17, 127, 576, 40000])
@every_dtype
def test_any_width(depth, dtype):
    """Down to one byte, and more than the unified buffer holds."""
    check(small(7, heads=1, depth=depth, dtype=dtype))
    check(small(7, heads=3, depth=depth, dtype=dtype))


def as_token_rows(inputs):
    return {name: inputs[name].flatten(1) for name in ("key", "value")}


def as_flat_caches(inputs):
    return {name: inputs[name].flatten(2) for name in CACHES}


def as_sequences_with_heads(inputs):
    return {name: inputs[name][None] for name in ("key", "value")}


def as_sequences_with_slots(inputs):
    shaped = {name: inputs[name].flatten(1)[:12].view(3, 4, -1) for name in ("key", "value")}
    return shaped | {"slot_mapping": inputs["slot_mapping"][:12].view(3, 4)}


SHAPES = [as_token_rows, as_flat_caches, as_sequences_with_heads, as_sequences_with_slots]


@pytest.mark.parametrize("shaped", SHAPES)
def test_the_shapes_that_keys_values_and_caches_may_have(shaped):
    inputs = small(12, heads=3, depth=20, value_depth=12)
    expected = references.reshape_and_cache(**inputs)
    actual = written(to_npu(inputs | shaped(inputs)))
    assert same([a.view_as(e) for a, e in zip(actual, expected, strict=True)], expected)


@pytest.mark.parametrize(("cache_layout", "flat_caches"), [("ND", False), ("ND", True), ("NZ", False)])
@pytest.mark.parametrize(("key", "value"), [((2, 64), (1, 128)), ((1, 128), (2, 64)), ((1, 64), (1, 32))], ids=str)
def test_keys_and_values_may_have_other_heads(key, value, flat_caches, cache_layout):
    inputs = small(5, cache_layout=cache_layout, heads=1, depth=128, value_depth=128)
    for name, (heads, depth) in {"key": key, "value": value}.items():
        of_it = small(5, cache_layout=cache_layout, heads=heads, depth=depth)
        inputs |= {name: of_it["key"], f"{name}_cache": of_it["key_cache"]}
    given = to_npu(inputs | as_flat_caches(inputs)) if flat_caches else to_npu(inputs)
    expected = references.reshape_and_cache(**inputs)
    actual = written(given)
    assert same([a.view_as(e) for a, e in zip(actual, expected, strict=True)], expected)


@settings(deadline=None, max_examples=80)  # the machine may be busy
@given(data=st.data())
def test_any_call(data):
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 2**32)))
    layout = draw(st.sampled_from(CACHE_LAYOUTS))
    unit = 32 if layout == "NZ" else 1
    blocks, block_size = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    inputs = references.reshape_and_cache_inputs(
        draw(st.integers(0, blocks * block_size)),
        heads=draw(st.integers(1, 5)),
        depth=unit * draw(st.integers(1, 6 if layout == "NZ" else 70)),
        value_depth=unit * draw(st.integers(1, 6 if layout == "NZ" else 70)),
        cache=(blocks, block_size),
        dtype=draw(st.sampled_from(DTYPES)),
        value_dtype=draw(st.sampled_from(DTYPES)),
        slot_dtype=draw(st.sampled_from([torch.int64, torch.int32])),
        cache_layout=layout,
        keys_only=draw(st.booleans()),
    )
    slots = inputs["slot_mapping"]
    how = draw(st.sampled_from(["unique", "ascending", "repeated", "negative"]))
    if how == "ascending":
        slots[:] = torch.arange(len(slots)) + draw(st.integers(0, blocks * block_size - len(slots)))
    elif how == "repeated":
        slots[:] = torch.randint(-1, draw(st.integers(1, blocks * block_size)), (len(slots),))
    elif how == "negative":
        slots[torch.rand(len(slots)) < 0.5] = -1
    check(inputs, viewed(to_npu(inputs), draw(st.sampled_from([*VIEWS, lambda tensor: tensor]))))


# ---- slots


@every_layout
@pytest.mark.parametrize("keys_only", [False, True])
@pytest.mark.parametrize("slots", [0, 1, 5, 21])
@pytest.mark.parametrize("tokens", [21, (3, 7)])
def test_what_is_behind_the_tokens_that_have_slots_is_padding(tokens, slots, keys_only, cache_layout):
    """vLLM pads keys and values for its graphs, and not the slots."""
    inputs = small(tokens, cache_layout=cache_layout, keys_only=keys_only)
    inputs["slot_mapping"] = inputs["slot_mapping"][:slots]
    check(inputs)
    check(inputs, viewed(to_npu(inputs), VIEWS[0]))


@every_layout
@pytest.mark.parametrize("slot_dtype", [torch.int64, torch.int32])
def test_negative_slots_are_skipped(slot_dtype, cache_layout):
    inputs = small(40, cache_layout=cache_layout, slot_dtype=slot_dtype)
    inputs["slot_mapping"][::3] = -1
    inputs["slot_mapping"][1] = torch.iinfo(slot_dtype).min
    check(inputs)


def test_a_batch_of_padding_only_writes_nothing():
    inputs = small(40)
    inputs["slot_mapping"][:] = -1
    check(inputs)


@every_layout
def test_of_tokens_with_the_same_slot_the_last_is_written(cache_layout):
    inputs = references.reshape_and_cache_inputs(3000, heads=4, depth=64, cache=(4, 16), cache_layout=cache_layout)
    inputs["slot_mapping"] = torch.randint(-1, 64, (3000,))
    check(inputs)


@pytest.mark.parametrize("first", [0, 1, 15, 16, 30])
def test_slots_that_follow_one_another_cross_blocks(first):
    inputs = small(50)
    inputs["slot_mapping"] = torch.arange(first, first + 50)
    check(inputs)
    npu = to_npu(inputs)
    apart = {name: torch.stack([npu[name], npu[name]], 1) for name in CACHES}  # blocks apart
    check(inputs, npu | {name: cache[:, 0] for name, cache in apart.items()})


@every_layout
@pytest.mark.parametrize("slot_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(("token", "slot"), [(0, 96), (4999, 96), (5, 2**31 - 1)])
def test_a_slot_past_the_cache_is_rejected_and_nothing_is_written(token, slot, slot_dtype, cache_layout):
    inputs = small(5000, cache_layout=cache_layout) | {"slot_mapping": torch.randint(0, 96, (5000,)).to(slot_dtype)}
    message = rf".*slot_mapping\[{token}\] is {slot}, but must lie between 0 and 95 \(the slots of the cache\), or be"
    write.rejects(with_value(inputs, "slot_mapping", token, slot), message)
    check(inputs)


def test_an_empty_cache_takes_no_token():
    inputs = small(2) | {"slot_mapping": torch.tensor([-1, -1])}
    check(inputs | {name: inputs[name][:0] for name in CACHES})


# ---- memory


@every_layout
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("tokens", [21, (3, 7)])
def test_strides_are_honoured(tokens, view, cache_layout):
    inputs = small(tokens, value_depth=48, cache_layout=cache_layout)
    check(inputs, viewed(to_npu(inputs), view))


@every_dtype
@every_layout
def test_keys_and_values_may_be_views_of_a_fused_projection(cache_layout, dtype):
    inputs = small(39, heads=4, dtype=dtype, cache_layout=cache_layout)
    key, value = inputs["key"].flatten(1), inputs["value"].flatten(1)
    fused = torch.cat([key + 1, key, value], 1).npu()  # of queries, keys and values
    _, key, value = (part.view(39, 4, 16) for part in fused.split(64, dim=1))
    check(inputs, to_npu(inputs) | {"key": key, "value": value})
    interleaved = torch.stack([inputs["key"], inputs["value"]], 2).npu()  # head by head
    check(inputs, to_npu(inputs) | {"key": interleaved[:, :, 0], "value": interleaved[:, :, 1]})


def test_one_row_may_be_given_to_all_tokens():
    inputs = small(30)
    inputs |= {name: inputs[name][:1].expand(30, -1, -1) for name in ("key", "value")}
    npu = to_npu(inputs)
    check(inputs, npu | {name: npu[name][:1].expand(30, -1, -1) for name in ("key", "value")})


@every_layout
def test_caches_may_be_views_and_what_lies_beside_them_stays(cache_layout):
    inputs = small(20, cache_layout=cache_layout)
    npu = to_npu(inputs)
    for dim in range(5):
        memory = {name: torch.stack([npu[name], npu[name], npu[name]], dim) for name in CACHES}
        check(inputs, npu | {name: memory[name].select(dim, 1) for name in CACHES})
        for name in CACHES:
            assert torch.equal(memory[name].select(dim, 0).cpu(), inputs[name])
            assert torch.equal(memory[name].select(dim, 2).cpu(), inputs[name])


@every_layout
def test_caches_with_more_than_2_to_the_32_elements(cache_layout):
    """Memory of the device that nobody has touched takes no memory of the machine."""
    blocks, block_size, hidden = 65537, 1024, 64
    shape = (blocks, block_size, 1, hidden) if cache_layout == "ND" else (blocks, hidden // 32, block_size, 32)
    cache = torch.empty(shape, dtype=torch.int8, device="npu")
    assert cache.numel() > 2**32
    slots = torch.tensor([0, 2**26 - 1, 2**26, 2**26 + 1, blocks * block_size - 1, -1])
    key = torch.randint(-128, 128, (6, 1, hidden), dtype=torch.int8)
    torch.ops.custom_pypto.reshape_and_cache(key.npu(), None, cache, None, slots.npu(), cache_layout=cache_layout)
    for token, slot in enumerate(slots[:5].tolist()):
        block, offset = divmod(slot, block_size)
        row = cache[block, offset] if cache_layout == "ND" else cache[block, :, offset]
        assert torch.equal(row.flatten().cpu(), key[token, 0])


# ---- the calls of ms_custom_ops


def test_the_calls_of_ms_custom_ops():
    for mode, layout in enumerate(CACHE_LAYOUTS):
        inputs = small((13, 3), heads=16, depth=32, slot_dtype=torch.int32, cache_layout=layout)
        expected = references.reshape_and_cache(**inputs)
        npu = to_npu(inputs)
        caches = [npu[name] for name in CACHES]
        custom_pypto.reshape_and_cache(npu["key"], npu["value"], *caches, npu["slot_mapping"], 16, cache_mode=mode)
        assert same((cache.cpu() for cache in caches), expected)
        key_cache = inputs["key_cache"].npu()
        custom_pypto.reshape_and_cache(
            key=npu["key"], key_cache=key_cache, slot_mapping=npu["slot_mapping"], cache_mode=mode, head_num=16
        )
        assert torch.equal(key_cache.cpu(), expected[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_mode": 2}, r"cache_mode must be 0 \(ND\) or 1 \(NZ\), but is 2"),
        ({"cache_mode": 1, "cache_layout": "ND"}, "cache_layout must be 'NZ' with cache_mode 1, but is 'ND'"),
        ({"head_num": 3}, r"head_num must be the heads of key \(4, 2, 16\), but is 3"),
        ({"head_num": 4, "key": torch.zeros(4, 30)}, r"head_num must be the heads of key \(4, 30\), but is 4"),
    ],
)
def test_modes_and_numbers_of_heads_that_do_not_fit_are_rejected(options, message):
    with pytest.raises(ValueError, match=f"reshape_and_cache: {message}"):
        custom_pypto.reshape_and_cache(**to_npu(small(4)) | {"cache_layout": None} | options)


def test_the_sixth_argument_is_the_number_of_heads():
    inputs = small(5, heads=16)
    npu = to_npu(inputs)
    caches = [npu[name] for name in CACHES]
    custom_pypto.reshape_and_cache(npu["key"], npu["value"], *caches, npu["slot_mapping"], 16)
    assert same((cache.cpu() for cache in caches), references.reshape_and_cache(**inputs))


# ---- the checker, and other machines


def check_some_calls():
    for layout in CACHE_LAYOUTS:
        for dtype in DTYPES:
            check(small(60, heads=3, depth=32, value_depth=64, dtype=dtype, cache_layout=layout))
        inputs = small(60, heads=3, depth=32, cache_layout=layout)
        check(inputs, viewed(to_npu(inputs), VIEWS[0]))
        check(inputs | {"slot_mapping": torch.arange(20, 80)})
        check(inputs | {"slot_mapping": torch.randint(-1, 9, (60,))})
    check(small(7, heads=3, depth=15000))
    check(small(5000, heads=1) | {"slot_mapping": torch.randint(-1, 90, (5000,))})
    print("fine")


def test_the_kernel_breaks_no_rule_of_the_hardware():
    assert in_a_process(check_some_calls, ASCENDC_CPU_CHECKS="1") == "fine"


def some_results():
    inputs = references.reshape_and_cache_inputs(3000, heads=4, depth=64, cache=(40, 16))
    return written(to_npu(inputs | {"slot_mapping": torch.randint(-1, 640, (3000,))}))
