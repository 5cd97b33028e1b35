# SPDX-License-Identifier: Apache-2.0
"""The operators on queries and caches: the form of their results, and every way to them gives the same."""

import pytest
import torch
import torch_npu  # noqa: F401
from calls import (
    CALLS,
    EVERY_CALL,
    WRITERS,
    arguments_of,
    assert_caches_same,
    assert_same,
    caches_of,
    copied,
    on,
    overload,
    results,
)
from indexer_calls import BATCH, HEADS, KEY_HEADS, TOKENS

import custom_pypto

every_call = pytest.mark.parametrize(("operator", "call"), EVERY_CALL)
ops = torch.ops.custom_pypto

ONE_CALL = {
    "npu_lightning_indexer_pto": "TND on PA_BSND",
    "npu_lightning_indexer_quant_pto": "TND on PA_BSND",
    "npu_lightning_indexer_prolog_pto": "TND on PA_BSND",
    "npu_sparse_attention_pto": "three tokens",
    "npu_sparse_flash_attention_pto": "TND on PA_BSND",
    "reshape_and_cache": "bfloat16",
    "advance_step_flashattn": "int32",
}
one_call = pytest.mark.parametrize(("operator", "call"), ONE_CALL.items())


@every_call
def test_the_python_function_is_the_operator(operator, call):
    arguments = arguments_of(operator, call)
    others = copied(arguments)
    given = results(getattr(custom_pypto, operator)(**arguments))
    expected = results(overload(operator, others)(**others))
    assert_same(given, expected[: len(given)])
    assert all(result.numel() == 0 for result in expected[len(given) :])  # not asked for
    assert_caches_same(operator, arguments, others)


@every_call
def test_results_are_new_and_contiguous_and_nothing_but_the_caches_is_written(operator, call):
    arguments = arguments_of(operator, call)
    before = copied(arguments)
    inputs = {value.untyped_storage().data_ptr() for value in arguments.values() if isinstance(value, torch.Tensor)}
    for result in results(overload(operator, arguments)(**arguments)):
        assert result.is_contiguous()
        assert result.numel() == 0 or result.untyped_storage().data_ptr() not in inputs
    for name in arguments.keys() - caches_of(operator):
        if isinstance(arguments[name], torch.Tensor):
            assert torch.equal(arguments[name].cpu(), before[name].cpu()), name


def test_the_indexer_s_result_has_no_gradient():
    arguments = arguments_of("npu_lightning_indexer_pto", "BSND on PA_BSND")
    arguments["query"].requires_grad_()
    assert not ops.npu_lightning_indexer_pto(**arguments).requires_grad


@one_call
def test_it_runs_on_the_device_of_its_tensors(operator, call):
    torch.npu.set_device(0)
    arguments = CALLS[operator][call]()
    there, here = on("npu:1", arguments), on("npu:0", arguments)
    expected, actual = overload(operator)(**here), overload(operator)(**there)
    assert {result.device for result in results(actual)} <= {torch.device("npu:1")}
    assert torch.npu.current_device() == 0
    assert_same(actual, expected)
    assert_caches_same(operator, there, here)


DEFAULTS = {
    "npu_lightning_indexer_pto": (
        "BSND on PA_BSND",
        {"layout_query": "BSND", "layout_key": "PA_BSND", "sparse_count": 2048, "sparse_mode": 3},
    ),
    "npu_lightning_indexer_quant_pto": (
        "BSND on PA_BSND",
        {"query_quant_mode": 0, "key_quant_mode": 0}
        | {"layout_query": "BSND", "layout_key": "PA_BSND", "sparse_count": 2048, "sparse_mode": 3},
    ),
    "npu_lightning_indexer_prolog_pto": (
        "TND on PA_BSND",
        {"layout_query": "TND", "layout_key": "PA_BSND", "rope_mode": "interleave"},
    ),
    "npu_sparse_attention_pto": (
        "three tokens",
        {"sparse_count": 2048, "softmax_scale": 34**-0.5, "rms_norm_eps": 1e-5, "layer_norm_eps": 1e-6}
        | {"rope_mode": "interleave", "indexer_rope_mode": "interleave"},
    ),
    "npu_sparse_flash_attention_pto": (
        "BSND on PA_BSND",
        {"layout_query": "BSND", "layout_kv": "PA_BSND", "sparse_mode": 3},
    ),
    "reshape_and_cache": ("bfloat16", {"cache_layout": "ND"}),
}


@pytest.mark.parametrize("operator", DEFAULTS)
def test_the_defaults(operator):
    call, defaults = DEFAULTS[operator]
    explicit = arguments_of(operator, call) | defaults
    short = {name: value for name, value in copied(explicit).items() if name not in defaults}
    assert_same(overload(operator)(**short), overload(operator)(**explicit))
    assert_caches_same(operator, short, explicit)


@pytest.mark.parametrize("operator", WRITERS)
def test_the_caches_are_written_through_views_and_nothing_beside_them(operator):
    arguments = arguments_of(operator, ONE_CALL[operator])
    expected, views, whole = copied(arguments), copied(arguments), {}
    for name in caches_of(operator):
        whole[name] = torch.full((2, *arguments[name].shape[:-1], 2 * arguments[name].shape[-1]), 3).to(arguments[name])
        views[name] = whole[name][1, ..., ::2].copy_(arguments[name])
    assert_same(overload(operator)(**views), overload(operator)(**expected))
    assert_caches_same(operator, views, expected)
    for tensor in whole.values():
        assert (tensor[0] == 3).all() and (tensor[1, ..., 1::2] == 3).all()


@pytest.mark.parametrize("operator", WRITERS)
def test_a_backward_that_saved_a_cache_finds_out_that_it_was_written(operator):
    arguments = arguments_of(operator, ONE_CALL[operator])
    (name, *_) = caches_of(operator)
    weight = torch.ones((), device="npu", requires_grad=True)
    product = weight * arguments[name]
    overload(operator)(**arguments)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_the_attention_takes_what_the_indexer_gives():
    arguments = arguments_of("npu_sparse_flash_attention_pto", "BSND on PA_BSND")
    selected = ops.npu_lightning_indexer_pto(
        arguments["query"],
        arguments["key"],
        torch.randn(BATCH, TOKENS, HEADS).npu(),
        actual_seq_lengths_key=arguments["actual_seq_lengths_kv"],
        block_table=arguments["block_table"],
        sparse_count=5,
    )
    assert selected.shape == (BATCH, TOKENS, KEY_HEADS, 5)
    result = ops.npu_sparse_flash_attention_pto(**arguments | {"sparse_indices": selected})
    assert (result.cpu() != 0).any(dim=-1).all()


# ---- values that only the device sees

SEQUENCES = {"negative": [-1, 9], "beyond the block table": [25, 9]}
BLOCK_TABLE = [[3, 5, 4], [1, 2, -1]]
INDEXER, QUANT, PROLOG, LAYER, ATTENTION, RESHAPE, ADVANCE = CALLS
BAD_VALUES = [
    *((INDEXER, "BSND on PA_BSND", "actual_seq_lengths_key", values) for values in SEQUENCES.values()),
    *((INDEXER, "BSND on PA_BSND", "actual_seq_lengths_query", values) for values in ([3, -2], [3, 4])),
    (INDEXER, "BSND on PA_BSND", "block_table", BLOCK_TABLE),
    (QUANT, "BSND on PA_BSND", "actual_seq_lengths_key", [-1, 9]),
    (QUANT, "BSND on PA_BSND", "block_table", BLOCK_TABLE),
    *((PROLOG, "TND on PA_BSND", "idx_k_cache_index", [3, 9, slot, 0]) for slot in (-2, 56, 2**40)),
    *((LAYER, "three tokens", "cache_index", [[3, 9, slot], [0, 1, 2]]) for slot in (-2, 48, 2**40)),
    *((LAYER, "three tokens", "act_seqs", values) for values in ([-1, 3], [33, 3])),
    (LAYER, "three tokens", "block_table", [[1, 9, 0, -1], [2, -1, -1, -1]]),
    *((ATTENTION, "BSND on PA_BSND", "actual_seq_lengths_kv", values) for values in SEQUENCES.values()),
    (ATTENTION, "BSND on PA_BSND", "actual_seq_lengths_query", [3, 4]),
    (ATTENTION, "BSND on PA_BSND", "block_table", BLOCK_TABLE),
    (ATTENTION, "BSND on PA_BSND", "sparse_indices", [[[[0, 1, -2], [3, -1, -1]]] * 3] * 2),
    *((RESHAPE, call, "slot_mapping", [3, 9, -1, slot, 0]) for call in ("bfloat16", "NZ") for slot in (56, 2**31)),
    (ADVANCE, "int64", "seq_lens", [5, 20, -1, 3, 4]),
    (ADVANCE, "int32", "seq_lens", [5, -(2**31), 31, 3, 4]),
]


@pytest.mark.parametrize(("operator", "call", "name", "value"), BAD_VALUES)
def test_bad_values_are_errors_of_the_stream_write_nothing_and_the_process_goes_on(operator, call, name, value):
    good = arguments_of(operator, call)
    dtype = good[name].dtype if name in good else torch.int32
    bad = copied(good) | {name: torch.tensor(value, dtype=dtype).npu()}
    before = copied(bad)
    overload(operator)(**bad)
    with pytest.raises(RuntimeError, match=f"{operator.removeprefix('npu_').title().replace('_', '')}.*{name}"):
        torch.npu.synchronize()
    assert_caches_same(operator, bad, before)
    assert_same(overload(operator)(**copied(good)), overload(operator)(**good))
