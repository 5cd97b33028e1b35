# SPDX-License-Identifier: Apache-2.0
"""Graphs where cann-recipes-infer's prototypes are registered: test_upstream.py builds the package in upstream/."""

import dataclasses
import sys
from pathlib import Path

import goldens
import pytest
import torch
import torch_npu

import custom_pypto  # noqa: F401
from custom_pypto.modes import MODES

sys.path.insert(0, str(Path(__file__).parents[1] / "custom_pypto"))
import calls
from indexer_calls import int32, padded_keys

ops = torch.ops.custom_pypto
GE = ["GE static", "GE dynamic"]


def run(operator, arguments, mode, reader=None):
    """What a graph gives for arguments on the CPU, and the caches that it wrote, on the CPU too.

    `reader` is run in the graph, too: before and after the operator, with the arguments.
    """
    torch._dynamo.reset()

    def function(arguments):
        before = reader(arguments) if reader else ()
        result = getattr(ops, operator)(**arguments)
        return result, before, reader(arguments) if reader else ()

    on_npu = calls.on("npu", arguments)
    result, before, after = MODES[mode](function)(on_npu)
    caches = [on_npu[name].cpu() for name in calls.caches_of(operator)]
    results = [tensor.cpu() for tensor in calls.results(result)]
    return results, caches, [tensor.cpu() for tensor in before], [tensor.cpu() for tensor in after]


def indexer_inputs(**options):
    return goldens.lightning_indexer_inputs([2500, 70, 1], queries=2, **options)


@pytest.mark.parametrize("mode", GE)
def test_indexer(mode):
    inputs = indexer_inputs()
    with pytest.warns(UserWarning, match="another operator package registers as LightningIndexerPto, with inputs x"):
        (indices,), *_ = run("npu_lightning_indexer_pto", inputs, mode)
    goldens.check_lightning_indexer(indices, **inputs)


def caches_read(arguments):
    """Copies of the caches, sums of them, and parts of them."""
    names = [name for name in arguments if name.endswith("cache")]
    caches = [arguments[name] for name in names]
    return [cache.clone() for cache in caches] + [cache[1:2].float().sum(-1) for cache in caches]


def prolog_inputs():
    return goldens.lightning_indexer_prolog_inputs(5, cache=(7, 128))


def in_blocks(arguments, *names):
    """Casts matrices on the NPU to FRACTAL_NZ."""
    return arguments | {name: torch_npu.npu_format_cast(arguments[name].npu(), 29) for name in names}


@pytest.mark.parametrize("mode", GE)
def test_prolog_and_the_caches_that_it_writes(mode, internal_formats):
    inputs = prolog_inputs()
    arguments = in_blocks(calls.copied(inputs), "wq_b", "wk", "weights_proj")
    results, caches, before, after = run("npu_lightning_indexer_prolog_pto", arguments, mode, caches_read)
    goldens.check_lightning_indexer_prolog((*results, *caches), **inputs)
    for got, want in zip(before, caches_read(inputs), strict=True):
        assert torch.equal(got, want)
    written = dict(zip(calls.caches_of("npu_lightning_indexer_prolog_pto"), caches, strict=True))
    for got, want in zip(after, caches_read(written), strict=True):
        assert torch.equal(got, want)


def test_caches_in_parts_of_other_tensors_are_written_and_nothing_beside_them():
    inputs = prolog_inputs()
    buffer = torch.zeros(3, *inputs["idx_k_cache"].shape, dtype=torch.int8)
    buffer[1] = inputs["idx_k_cache"]
    on_npu, buffer_npu = calls.on("npu", inputs), buffer.npu()
    torch._dynamo.reset()

    def function(arguments, buffer):
        return ops.npu_lightning_indexer_prolog_pto(**arguments | {"idx_k_cache": buffer[1]}), buffer.clone()

    results, copy = MODES["GE static"](function)(on_npu, buffer_npu)
    results = [tensor.cpu() for tensor in results]
    goldens.check_lightning_indexer_prolog((*results, buffer_npu[1].cpu(), on_npu["idx_k_scale_cache"].cpu()), **inputs)
    assert torch.equal(copy.cpu(), buffer_npu.cpu())
    assert not buffer_npu[::2].cpu().any()


@pytest.mark.parametrize(("mode", "blocked"), [("GE static", ["w_dq", "w_idx_k"]), ("GE dynamic", [])])
def test_attention_and_the_caches_that_it_writes(mode, blocked, internal_formats):
    """Matrices may lie in FRACTAL_NZ or in ND."""
    inputs = goldens.sparse_attention_inputs([2100, 130, 64, 1])
    arguments = in_blocks(calls.copied(inputs), *blocked)
    (out,), caches, before, _ = run("npu_sparse_attention_pto", arguments, mode, caches_read)
    goldens.check_sparse_attention(out, caches, **inputs)
    for got, want in zip(before, caches_read(inputs), strict=True):
        assert torch.equal(got, want)


def test_operators_whose_prototypes_are_ours_are_as_ever():
    arguments = calls.CALLS["reshape_and_cache"]["bfloat16"]()
    _, caches, *_ = run("reshape_and_cache", calls.copied(arguments), "GE static")
    for got, want in zip(caches, goldens.reshape_and_cache(**arguments), strict=True):
        assert torch.equal(got, want)


INDEXER, PROLOG = "npu_lightning_indexer_pto", "npu_lightning_indexer_prolog_pto"
ATTENTION = "npu_sparse_attention_pto"
SMALL = {
    INDEXER: lambda: calls.CALLS[INDEXER]["BSND on PA_BSND"]() | {"sparse_count": 2048},
    PROLOG: lambda: calls.CALLS[PROLOG]["TND on PA_BSND"](),
    ATTENTION: lambda: calls.CALLS[ATTENTION]["one token"]() | {"sparse_count": 2048},
}


REJECTED = {
    (INDEXER, "sparse_count"): (lambda: {"sparse_count": 64}, "2048, but is 64"),
    (INDEXER, "sparse_mode"): (lambda: {"sparse_mode": 0}, "3, but is 0"),
    (INDEXER, "actual_seq_lengths_query"): (lambda: {"actual_seq_lengths_query": int32(3, 2)}, "None, but is"),
    (INDEXER, "layout_key"): (lambda: padded_keys() | {"block_table": None}, "'PA_BSND', but is 'BSND'"),
    (INDEXER, "layout_query"): (lambda: calls.CALLS[INDEXER]["TND on PA_BSND"](), "'BSND', but is 'TND'"),
    (INDEXER, "query"): (dict, "of shape [1 to 128, 1 to 4, 64, 128], but is torch.bfloat16 of [2, 3, 6, 16]"),
    (PROLOG, "layernorm_epsilon_k"): (lambda: {"layernorm_epsilon_k": 1e-5}, "1e-06, but is 1e-05"),
    (PROLOG, "layout_query"): (lambda: calls.CALLS[PROLOG]["BSND on PA_BSND"](), "'TND' or None, but is 'BSND'"),
    (PROLOG, "rope_mode"): (lambda: {"rope_mode": "half"}, "'interleave', but is 'half'"),
    (PROLOG, "token_x"): (dict, "of shape [1 or more, 7168], but is torch.bfloat16 of [4, 56]"),
    (ATTENTION, "sparse_count"): (lambda: {"sparse_count": 9}, "2048, but is 9"),
    (ATTENTION, "softmax_scale"): (lambda: {"softmax_scale": 0.3}, "None or 0.041666666666666664, but is 0.3"),
    (ATTENTION, "rms_norm_eps"): (lambda: {"rms_norm_eps": 0.5}, "1e-05, but is 0.5"),
    (ATTENTION, "layer_norm_eps"): (lambda: {"layer_norm_eps": 0.5}, "1e-06, but is 0.5"),
    (ATTENTION, "rope_mode"): (lambda: {"rope_mode": "half"}, "'interleave', but is 'half'"),
    (ATTENTION, "indexer_rope_mode"): (lambda: {"indexer_rope_mode": "half"}, "'interleave', but is 'half'"),
    (ATTENTION, "x"): (dict, "of shape [4, 1 to 2, 7168], but is torch.bfloat16 of [3, 1, 56]"),
}


@pytest.mark.parametrize(("operator", "argument"), REJECTED, ids=lambda value: value)
def test_what_its_kernels_do_otherwise_is_rejected_by_the_arguments_name(operator, argument):
    change, message = REJECTED[operator, argument]
    with pytest.raises(Exception, match=f"custom_pypto::{operator}: argument '{argument}' must be") as raised:
        run(operator, SMALL[operator]() | change(), "GE static")
    assert message in str(raised.value)
    assert "name that of custom_pypto before it in ASCEND_CUSTOM_OPP_PATH" in str(raised.value)


def test_a_rejected_size_of_a_dynamic_graph_is_rejected_and_the_next_is_not():
    torch._dynamo.reset()
    indexer = MODES["GE dynamic"](lambda arguments: ops.npu_lightning_indexer_pto(**arguments))
    inputs = indexer_inputs()
    too_many = goldens.lightning_indexer_inputs([70], queries=5)
    goldens.check_lightning_indexer(indexer(calls.on("npu", inputs)).cpu(), **inputs)
    with pytest.raises(Exception, match=r"\[1 to 128, 1 to 4, 64, 128\]"):
        indexer(calls.on("npu", too_many))
    inputs = goldens.lightning_indexer_inputs([70, 2300], queries=3)
    goldens.check_lightning_indexer(indexer(calls.on("npu", inputs)).cpu(), **inputs)


def test_a_prototype_that_is_neither_is_rejected():
    from custom_pypto.converter import _upstream, ge_api
    from custom_pypto.definition import Prototype

    run("reshape_and_cache", calls.CALLS["reshape_and_cache"]["bfloat16"](), "GE static")  # initialises the engine
    ours = Prototype.of(ge_api("custom_pypto").IR["ReshapeAndCache"])
    assert _upstream.registered_instead(ours) is None
    for change in ({"inputs": {"x": "dynamic"}}, {"outputs": {}}, {"attributes": {}}):
        with pytest.raises(RuntimeError, match="the prototype of ReshapeAndCache that is registered takes"):
            _upstream.registered_instead(dataclasses.replace(ours, **change))
    assert _upstream.registered_instead(dataclasses.replace(ours, type="NoSuchOperator")) is None
