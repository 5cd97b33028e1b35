# SPDX-License-Identifier: Apache-2.0
"""The modes: each compiles with what it says, and gives what eager gives."""

import re
import warnings
from functools import partial
from pathlib import Path

import cache_calls
import prolog_calls
import pytest
import torch
import torch_npu
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
    """A decode step's use of caches: each is written, and then read in the same graph."""
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


PARTS = {
    "halves": lambda kv: (kv[0], kv[1]),
    "unbound": lambda kv: kv.unbind(0),
    "columns": lambda kv: (kv[0, ..., :20], kv[0, ..., 20:]),
}
LAYERS = {
    "whole": lambda caches: caches[1].clone(),
    "layers apart": lambda caches: caches[1],
    "layers between": lambda caches: caches.transpose(0, 1).contiguous().transpose(0, 1)[1],
    "every other column": lambda caches: caches.repeat_interleave(2, -1)[1][..., ::2],
}


@compiling_mode
@pytest.mark.parametrize("part", PARTS)
def test_keys_and_values_in_one_tensor_are_taken_apart_and_written_in_the_graph(part, mode):
    """As vLLM lays a layer's cache out; the layer is a separate tensor, or a view of the caches of all layers."""

    def function(key, value, kv, slots):
        custom_pypto.reshape_and_cache(key, value, *PARTS[part](kv), slots)
        return kv * 2

    width = 20 if part == "columns" else 40
    key, value = torch.randn(2, 5, 3, width).npu()
    slots = torch.tensor([3, 1, -1, 55, 20]).npu()
    caches = torch.randn(3, 2, 7, 8, 3, 40).npu()
    for layer in LAYERS.values():
        torch._dynamo.reset()
        in_mode, ours, theirs = MODES[mode](function), layer(caches.clone()), layer(caches.clone())
        for _ in range(2):
            assert_same(in_mode(key, value, ours, slots), function(key, value, theirs, slots))
            assert torch.equal(whole_of(ours), whole_of(theirs))


def whole_of(view):
    """All elements of the memory that the view lies in."""
    return (view if view._base is None else view._base).cpu()


def growth(call):
    """By how many bytes the process grows meanwhile at most; an NPU's memory here is a part of it."""

    def kilobytes(name):
        return int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])

    torch.npu.synchronize()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
    before = kilobytes("VmRSS")
    call()
    torch.npu.synchronize()
    return (kilobytes("VmHWM") - before) * 1024


@pytest.mark.parametrize(("mode", "copies"), [("GE static", 0), ("GE dynamic", 1)])
def test_a_graph_copies_a_cache_whose_views_it_writes_to_at_most_once(mode, copies):
    def function(key, value, kv, slots):
        custom_pypto.reshape_and_cache(key, value, *kv.unbind(0), slots)
        return key * 2

    in_graph = MODES[mode](function)
    key, value = torch.randn(2, 6, 64, 80).npu()
    caches = torch.ones(2, 400, 16, 64, 80).npu()
    slots = torch.tensor([3, 1, -1, 55, 20, 0]).npu()
    call = partial(in_graph, key, value, caches, slots)
    call()  # compiles
    assert growth(call) < (copies + 0.1) * caches.nbytes
    assert torch.equal(caches[1].flatten(0, 1)[55].cpu(), value[3].cpu())


@compiling_mode
@pytest.mark.parametrize("operator", WRITERS)
def test_caches_in_one_buffer_are_taken_apart_and_written_in_the_graph(operator, mode):
    """Tensors of one dtype follow each other in memory, with gaps."""
    arguments = arguments_of(operator, ONE_WRITE[operator])
    buffers, places = {}, {}
    for name in caches_of(operator):
        cache = arguments.pop(name)
        buffer = buffers.get(cache.dtype, cache.new_zeros(0))
        places[name] = cache.dtype, len(buffer), cache.shape
        buffers[cache.dtype] = torch.cat((buffer, cache.flatten(), cache.new_full((32,), 3)))

    def function(arguments, buffers):
        caches = {
            name: buffers[dtype][start : start + shape.numel()].view(shape)
            for name, (dtype, start, shape) in places.items()
        }
        return overload(operator)(**arguments, **caches)

    theirs = {dtype: buffer.clone() for dtype, buffer in buffers.items()}
    assert_same(MODES[mode](function)(arguments, buffers), function(arguments, theirs))
    for dtype, buffer in buffers.items():
        assert torch.equal(buffer.cpu(), theirs[dtype].cpu())


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


@compiling_mode
def test_lists_of_tensors_that_operators_made_are_taken_in_every_mode(mode):
    def function(parts, weights):
        doubled = [custom_pypto.add_custom(part, part) for part in parts]
        left, right = torch_npu.npu_grouped_matmul(doubled, weights, split_item=0, group_type=-1)
        return left + right

    parts = [torch.randn(5, depth).half().npu() for depth in (8, 16)]
    weights = [torch.randn(depth, 12).half().npu() for depth in (8, 16)]
    assert torch.equal(MODES[mode](function)(parts, weights).cpu(), function(parts, weights).cpu())


@pytest.mark.parametrize("bundled", [False, True])
def test_npugraph_ex_compiles_twice_with_a_fresh_cache(bundled, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        torch._dynamo.reset()
        write = on("npu", cache_calls.write(5))
        eagerly = copied(write)
        with torch._functorch.config.patch(enable_autograd_cache=True, bundled_autograd_cache=bundled):
            MODES["npugraph_ex"](partial(overload("reshape_and_cache")))(**write)
        overload("reshape_and_cache")(**eagerly)
        assert_caches_same("reshape_and_cache", write, eagerly)


@pytest.mark.parametrize("mode", MODES)
def test_bad_input_is_rejected_by_name_in_every_mode_and_the_next_call_works(mode):
    in_mode = MODES[mode](lambda x, y: custom_pypto.add_custom(x, y))
    x = torch.ones(3).npu()
    with pytest.raises(Exception, match="add_custom: argument 'other' must broadcast with 'self' of shape"):
        in_mode(x, torch.ones(4).npu())
    assert torch.equal(in_mode(x, x).cpu(), torch.full((3,), 2.0))


def test_warnings_that_come_while_a_table_is_printed_are_shown_after_it_each_once():
    raised = pytest.raises(ValueError, match="an error")
    with warnings.catch_warnings(record=True) as shown, raised, late_warnings():
        for text in ("one", "two", "one"):
            warnings.filterwarnings("once")  # as torchair does
            warnings.warn(text, stacklevel=1)
        assert not shown
        raise ValueError("an error")
    assert [str(warning.message) for warning in shown] == ["one", "two"]
