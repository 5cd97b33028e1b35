# SPDX-License-Identifier: Apache-2.0
"""The modes: each compiles with what it says, and gives what eager gives."""

import warnings
from functools import partial

import cache_calls
import prolog_calls
import pytest
import torch
import torch_npu  # noqa: F401
from calls import (
    WRITERS,
    arguments_of,
    assert_caches_same,
    assert_same,
    caches_of,
    copied,
    on,
    overload,
    tensors_of,
)

import custom_pypto
from custom_pypto.modes import MODES, late_warnings


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_the_modes_are_the_five():
    assert list(MODES) == ["eager", "GE static", "GE dynamic", "reduce-overhead", "npugraph_ex"]


def test_eager_is_the_function_itself():
    assert MODES["eager"](custom_pypto.add_custom) is custom_pypto.add_custom


@pytest.mark.parametrize("mode", MODES)
def test_add_custom_in_every_mode_equals_eager(mode):
    def function(x, y):
        return custom_pypto.add_custom(x, y) * 2

    in_mode = MODES[mode](function)
    for rows in (3, 5) if MODES[mode].dynamic else (3, 3):
        x, y = torch.randn(rows, 4).half().npu(), torch.randn(4).npu()
        assert torch.equal(in_mode(x, y).cpu(), function(x, y).cpu())


every_mode = pytest.mark.parametrize("mode", MODES)
compiling_mode = pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "eager"])

ONE_WRITE = {
    "npu_lightning_indexer_prolog_pto": "BSND on PA_BSND",
    "npu_sparse_attention_pto": "three tokens",
    "reshape_and_cache": "bfloat16",
    "advance_step_flashattn": "int64",
}


def decode(prolog, layer, keys):
    """What a step of decoding does with caches: each is written, and read behind that in the same graph."""
    query, scale, weights = custom_pypto.npu_lightning_indexer_prolog_pto(**prolog)
    scores = prolog["idx_k_cache"].half().sum(dim=-1) * prolog["idx_k_scale_cache"]
    attended = custom_pypto.npu_sparse_attention_pto(**layer)
    lengths = {"actual_seq_lengths_key": layer["act_seqs"], "block_table": layer["block_table"]}
    selected = custom_pypto.npu_lightning_indexer_pto(
        keys, layer["index_k_cache"], keys[..., 0], sparse_count=5, **lengths
    )
    return query, scale * 2, weights, scores, attended, selected


def decode_arguments():
    layer = on("npu", prolog_calls.layer([20, 3], queries=2))
    keys = torch.randn(2, 2, 4, layer["index_k_cache"].shape[-1]).bfloat16().npu()
    return on("npu", prolog_calls.prolog((2, 3))), layer, keys


@every_mode
def test_a_cache_that_is_written_is_read_by_what_follows_in_the_graph(mode):
    in_mode = MODES[mode](decode)
    for _ in range(2):
        arguments = decode_arguments()
        eagerly = *map(copied, arguments[:2]), arguments[2]
        assert_same(in_mode(*arguments), decode(*eagerly))
        for operator, ours, theirs in zip(WRITERS[:2], arguments[:2], eagerly[:2], strict=True):
            assert_caches_same(operator, ours, theirs)


def advance_and_write(step, write):
    """What a step of decoding does before its attention: the slots that it makes are written to, and read again."""
    custom_pypto.advance_step_flashattn(**step)
    custom_pypto.reshape_and_cache(**write, slot_mapping=step["slot_mapping"])
    return write["key_cache"].flatten(0, 1)[step["slot_mapping"].clamp(min=0)] + step["seq_lens"][:, None, None]


def advance_and_write_arguments():
    step = cache_calls.step([5, 20, 31, 8], padding=2, block_size=8)
    write = cache_calls.write(6, cache=(step["block_tables"].numel(), 8), dtype=torch.float32)
    del write["slot_mapping"], write["value"], write["value_cache"]
    return on("npu", step), on("npu", write)


@every_mode
def test_slots_that_a_step_makes_are_written_in_the_same_graph(mode):
    in_mode = MODES[mode](advance_and_write)
    for _ in range(2):
        step, write = advance_and_write_arguments()
        eagerly = copied(step), copied(write)
        assert_same(in_mode(step, write), advance_and_write(*eagerly))
        assert_caches_same("advance_step_flashattn", step, eagerly[0])
        assert torch.equal(write["key_cache"].cpu(), eagerly[1]["key_cache"].cpu())


@compiling_mode
@pytest.mark.parametrize("operator", WRITERS)
def test_caches_that_are_views_are_written_and_nothing_beside_them(operator, mode):
    """A layer of the caches of all layers, and every other column of a buffer."""
    call = ONE_WRITE[operator]
    in_mode = MODES[mode](partial(overload(operator)))
    for part in (lambda whole: whole[1, ..., : whole.shape[-1] // 2].clone(), lambda whole: whole[1, ..., ::2]):
        arguments = arguments_of(operator, call)
        eagerly, wholes, before = copied(arguments), {}, {}
        for name in caches_of(operator):
            old = arguments[name]
            wholes[name] = torch.full((2, *old.shape[:-1], 2 * old.shape[-1]), 3, device=old.device).to(old.dtype)
            arguments[name] = part(wholes[name])
            arguments[name].copy_(old)
            before[name] = wholes[name][1, ..., 1::2].clone()
        assert_same(in_mode(**arguments), overload(operator)(**eagerly))
        assert_caches_same(operator, arguments, eagerly)
        for name, whole in wholes.items():
            assert (whole[0] == 3).all()
            assert torch.equal(whole[1, ..., 1::2].cpu(), before[name].cpu())


GROWING = {
    "npu_lightning_indexer_prolog_pto": [
        lambda: prolog_calls.prolog((2, 3)),
        lambda: prolog_calls.prolog((3, 2), cache=(4, 12)),
        lambda: prolog_calls.prolog((9, 4), cache=(6, 8)),
    ],
    "npu_sparse_attention_pto": [
        lambda: prolog_calls.layer([20, 3], queries=3),
        lambda: prolog_calls.layer([40, 17, 5], queries=2),
        lambda: prolog_calls.layer([9, 33, 70, 6, 8], queries=4),
    ],
    "reshape_and_cache": [
        lambda: cache_calls.write(5, value_depth=20),
        lambda: cache_calls.write(9, value_depth=28, cache=(4, 12)),
        lambda: cache_calls.write(2, value_depth=12, cache=(11, 5)),
    ],
}


@pytest.mark.parametrize("operator", GROWING)
def test_one_dynamic_graph_takes_changing_batches_queries_and_tables(operator):
    compilations, calls = [], []

    def backend(module, inputs):
        compilations.append(module)
        return MODES["GE dynamic"].backend()(module, inputs)

    in_graph = torch.compile(partial(overload(operator)), backend=backend, dynamic=True, fullgraph=True)
    for make in GROWING[operator]:
        arguments = on("npu", make())
        eagerly = copied(arguments)
        assert_same(in_graph(**arguments), overload(operator)(**eagerly))
        assert_caches_same(operator, arguments, eagerly)
        calls.append(len(compilations))
    assert calls[0] > 0
    assert set(calls) == {calls[0]}  # the first call may trace twice, where a number is an argument


@compiling_mode
def test_a_slot_out_of_range_is_rejected_in_a_graph_and_writes_nothing(mode):
    operator, call = "npu_lightning_indexer_prolog_pto", "BSND on PA_BSND"
    in_mode = MODES[mode](partial(overload(operator)))
    good = arguments_of(operator, call)
    in_mode(**copied(good))
    bad = copied(good)
    bad["idx_k_cache_index"][1, 2] = 56
    with pytest.raises(RuntimeError, match="idx_k_cache_index"):
        in_mode(**bad)
        torch.npu.synchronize()
    assert_caches_same(operator, bad, good)
    assert_same(in_mode(**copied(good)), overload(operator)(**good))


@compiling_mode
@pytest.mark.parametrize("operator", WRITERS)
def test_one_tensor_for_two_caches_is_rejected_in_every_mode(operator, mode):
    arguments = arguments_of(operator, ONE_WRITE[operator])
    name, *_ = caches_of(operator)
    other = next(
        n
        for n in tensors_of(operator)
        if n not in (name, "block_table")
        and arguments[n].dim() > 1
        and arguments[n].dtype == arguments[name].dtype
        and arguments[n].numel() <= arguments[name].numel()
    )
    arguments[other] = arguments[name].flatten()[: arguments[other].numel()].view(arguments[other].shape)
    with pytest.raises(Exception, match=f"argument '{name}' must share no memory with '{other}'"):
        MODES[mode](partial(overload(operator)))(**arguments)


@pytest.mark.parametrize("mode", MODES)
def test_bad_input_is_rejected_by_name_in_every_mode_and_the_next_call_works(mode):
    in_mode = MODES[mode](lambda x, y: custom_pypto.add_custom(x, y))
    x = torch.ones(3).npu()
    with pytest.raises(Exception, match="add_custom: argument 'other' must broadcast with 'self' of shape"):
        in_mode(x, torch.ones(4).npu())
    assert torch.equal(in_mode(x, x).cpu(), torch.full((3,), 2.0))


def test_warnings_that_come_while_a_table_is_printed_are_shown_behind_it_each_once():
    raised = pytest.raises(ValueError, match="a mistake")
    with warnings.catch_warnings(record=True) as shown, raised, late_warnings():
        for text in ("one", "two", "one"):
            warnings.filterwarnings("once")  # as torchair does
            warnings.warn(text, stacklevel=1)
        assert not shown
        raise ValueError("a mistake")
    assert [str(warning.message) for warning in shown] == ["one", "two"]
