# SPDX-License-Identifier: Apache-2.0
"""Captured graphs as serving programs use them: padded, beside eager calls, and captured in a dummy run."""

import cache_calls
import prolog_calls
import pytest
import references
import torch
import torch_npu  # noqa: F401
from calls import assert_caches_same, assert_same, copied, on, overload, results


def captured(function):
    """The graph of a call, which is warmed up before, and what each replay gives."""
    function()
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        given = function()
    return graph, given


def set_to(arguments, others):
    """What programs do before a replay: the tensors stay, their elements are new."""
    for name, value in others.items():
        if isinstance(value, torch.Tensor):
            arguments[name].copy_(value)


SHAPES = {"heads": 8, "depth": 16, "block_size": 8}
QUANTIZED = {"heads": 8, "depth": 32, "block_size": 8}
FULL = {
    "npu_lightning_indexer_pto": lambda: (
        references.lightning_indexer_inputs([20, 9, 33, 5], **SHAPES) | {"sparse_count": 11}
    ),
    "npu_lightning_indexer_quant_pto": lambda: (
        references.lightning_indexer_quant_inputs([20, 9, 33, 5], **QUANTIZED) | {"sparse_count": 11}
    ),
    "npu_sparse_flash_attention_pto": lambda: references.sparse_flash_attention_inputs(
        [20, 9, 33, 5], count=12, rope_depth=8, **SHAPES
    ),
    "npu_lightning_indexer_prolog_pto": lambda: prolog_calls.prolog((4, 1)),
    "npu_sparse_attention_pto": lambda: prolog_calls.layer([20, 9, 33, 5]),
    "reshape_and_cache": lambda: cache_calls.write(4),
}
"""Calls for four sequences of a token each."""

LENGTHS = ("actual_seq_lengths_key", "actual_seq_lengths_kv", "act_seqs")
MINUS_ONE = ("block_table", "sparse_indices", "idx_k_cache_index", "cache_index", "slot_mapping")
OF_PADDING = {
    "npu_lightning_indexer_pto": -1,
    "npu_lightning_indexer_quant_pto": -1,
    "npu_sparse_flash_attention_pto": 0,
    "npu_sparse_attention_pto": 0,
}
"""The result of a row of padding, where the operator defines it."""


def padded(arguments, rows):
    """Only the first rows are of sequences; the others have no tokens and no slots, and random numbers elsewhere."""
    arguments = copied(arguments)
    for name in LENGTHS:
        if name in arguments:
            arguments[name][rows:] = 0
    for name in MINUS_ONE:
        if name in arguments:
            arguments[name][rows:] = -1
    return arguments


@pytest.mark.parametrize("operator", FULL)
def test_rows_of_padding_in_a_replay_change_no_cache_and_no_other_row(operator):
    full = FULL[operator]()
    static = on("npu", full)
    graph, given = captured(lambda: overload(operator)(**static))
    for rows in (2, 4, 0, 3):
        arguments = padded(full, rows)
        set_to(static, arguments)
        graph.replay()
        eagerly = on("npu", arguments)
        assert_same(given, overload(operator)(**eagerly))
        for got in map(torch.Tensor.cpu, results(given)):
            assert got.isfinite().all()
            if operator in OF_PADDING:
                assert (got[rows:] == OF_PADDING[operator]).all()
        whole = on("npu", full)
        of_all = overload(operator)(**whole)
        for got, want in zip(results(given), results(of_all), strict=True):
            assert torch.equal(got[:rows].cpu(), want[:rows].cpu())
        assert_caches_same(operator, static, eagerly)
        if rows == 0:
            assert_caches_same(operator, static, full)


LARGER = {
    "npu_lightning_indexer_pto": lambda: (
        references.lightning_indexer_inputs([70, 300, 5, 44, 90], queries=3, **SHAPES) | {"sparse_count": 37}
    ),
    "npu_sparse_flash_attention_pto": lambda: references.sparse_flash_attention_inputs(
        [70, 300, 5, 44, 90], count=64, rope_depth=8, queries=3, **SHAPES
    ),
    "npu_lightning_indexer_prolog_pto": lambda: prolog_calls.prolog((9, 4), cache=(6, 8)),
    "npu_sparse_attention_pto": lambda: prolog_calls.layer([70, 300, 44], queries=3),
}


@pytest.mark.parametrize("beside", [False, True], ids=["between replays", "beside replays"])
@pytest.mark.parametrize("operator", LARGER)
def test_eager_calls_and_replays_share_no_workspace(operator, beside):
    """Calls with the graph's own shapes take the executor that the capture used."""
    full, other = on("npu", FULL[operator]()), on("npu", LARGER[operator]())
    static = copied(full)
    graph, given = captured(lambda: overload(operator)(**static))
    expected = [overload(operator)(**copied(arguments)) for arguments in (full, other)]
    torch.npu.synchronize()
    side = torch.npu.Stream() if beside else torch.npu.current_stream()
    for _ in range(8):
        set_to(static, full)
        side.wait_stream(torch.npu.current_stream())
        graph.replay()
        with torch.npu.stream(side):
            eagerly = [overload(operator)(**copied(arguments)) for arguments in (full, other)]
        torch.npu.synchronize()
        torch.npu.empty_cache()
        assert_same(given, expected[0])
        for got, want in zip(eagerly, expected, strict=True):
            assert_same(got, want)


@pytest.mark.parametrize(
    "operator", ["npu_lightning_indexer_prolog_pto", "npu_sparse_attention_pto", "reshape_and_cache"]
)
def test_capturing_writes_no_cache_and_a_dummy_run_without_slots_neither(operator):
    """The slots of the last step may still lie in the buffer that is captured: only replays write to them."""
    full = FULL[operator]()
    static = on("npu", padded(full, 0))
    graph, _ = captured(lambda: overload(operator)(**static))
    graph.replay()
    assert_caches_same(operator, static, full)
    overload(operator)(**(eagerly := on("npu", full)))
    graph = torch.npu.NPUGraph()
    set_to(static, full)
    with torch.npu.graph(graph):
        overload(operator)(**static)
    assert_caches_same(operator, static, full)
    graph.replay()
    assert_caches_same(operator, static, eagerly)
