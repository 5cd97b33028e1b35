# SPDX-License-Identifier: Apache-2.0
"""What `define` and `implement` do for every operator, above all for arguments that it writes to."""

import itertools
import math
import random

import cache_calls
import calls
import pytest
import torch
from calls import WRITERS, caches_of, on, overload
from hypothesis import given, settings
from hypothesis import strategies as st

import custom_pypto  # noqa: F401

DEVICES = ["npu", "meta"]


@pytest.fixture(scope="module")
def ops(probe):
    """Operators that an author has made by `define` and `implement` (probe/authored.cpp)."""
    torch.ops.load_library(probe[1])
    return torch.ops.custom_pypto_probe


def rejection(call) -> str:
    """The message with which a call is rejected; empty if it is not."""
    try:
        call()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


# ---- launched


@pytest.mark.parametrize("bias", [None, torch.ones(0), torch.ones(2)], ids=["none", "empty", "given"])
def test_what_is_written_is_written_though_the_first_tensor_has_no_elements(bias, ops):
    x = torch.zeros(3).npu()
    ops.optional(bias if bias is None else bias.npu(), x)
    assert x.tolist() == [1, 1, 1]
    ops.masked(torch.ones(0).npu(), x)
    assert x.tolist() == [2, 2, 2]
    ops.lists([], [torch.ones(0).npu(), x])
    assert x.tolist() == [3, 3, 3]


@pytest.mark.parametrize("operator", ["npu_lightning_indexer_prolog_pto", "npu_sparse_attention_pto"])
def test_no_tokens_leave_the_caches_as_they_are(operator):
    arguments = on("npu", calls.CALLS[operator]["no tokens"]())
    before = {name: arguments[name].clone() for name in caches_of(operator, arguments)}
    overload(operator, arguments)(**arguments)
    for name, cache in before.items():
        assert torch.equal(arguments[name], cache)


# ---- what they get and give beside it


@pytest.mark.parametrize("device", DEVICES)
def test_a_scalar_on_the_cpu_does_not_decide_where_results_lie(device, ops):
    x, scalar = torch.ones(3, device=device), torch.tensor(2.0)
    for factor in (scalar, scalar.to(device)):
        assert ops.scaled(factor, x).device == x.device


def test_a_dtype_that_is_none_is_no_dtype(ops):
    x = torch.ones(1).npu()
    assert ops.scaled(x, x).item() == -1
    assert ops.scaled(x, x, dtype=torch.float32).item() == 6


# ---- shared memory


@pytest.mark.parametrize("device", DEVICES)
def test_caches_that_are_one_slice_of_a_buffer_are_rejected(device):
    """What vLLM and others cut out of one buffer; keys were overwritten with values."""
    buffer = torch.zeros(4, 16, 2, 64, device=device)
    rows, slots = torch.randn(3, 2, 32, device=device), torch.tensor([0, 1, 2], device=device)
    write = torch.ops.custom_pypto.reshape_and_cache
    for values in (buffer[..., :32], buffer[..., 16:48]):
        assert rejection(lambda: write(rows, rows, buffer[..., :32], values, slots)) == (  # noqa: B023
            "custom_pypto::reshape_and_cache: argument 'key_cache' must share no memory with 'value_cache', as it "
            "is written to, but does; pass a separate tensor"
        )
    write(rows, rows, buffer[..., :32], buffer[..., 32:], slots)


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_of_lists_are_compared_one_by_one(device, ops):
    memory = torch.zeros(6, 4, device=device)
    rows = [*memory]
    of_list = "custom_pypto_probe::lists: argument 'caches' must share no memory with "
    assert rejection(lambda: ops.lists(rows[:3], [*rows[3:], rows[2]])) == (
        of_list + "'keys', as it is written to, but 'caches'[3] and 'keys'[2] do; pass a separate tensor"
    )
    assert rejection(lambda: ops.lists(rows[:3], [*rows[3:], memory[4:, :2]])) == (
        of_list + "another tensor of it, as it is written to, but 'caches'[1] and 'caches'[3] do; pass a separate "
        "tensor"
    )
    assert rejection(lambda: ops.lists(rows[:3], rows[3:])) == ""
    assert rejection(lambda: ops.lists([rows[0], rows[0]], rows[3:])) == ""  # what is read may be read twice


def addresses(view) -> set[int]:
    size, stride, offset, width = view
    starts = {offset + sum(map(math.prod, zip(i, stride, strict=True))) for i in itertools.product(*map(range, size))}
    return {start * width + byte for start in starts for byte in range(width)}


def viewed(memory, view):
    size, stride, offset, width = view
    typed = memory.view(torch.float32) if width == 4 else memory
    return typed.as_strided(size, stride, offset)


@st.composite
def views(draw, memory=4096):
    """Size, stride, offset and the bytes of an element; most of them do not overlap themselves."""
    width = draw(st.sampled_from([1, 4]))
    size, stride, reach = [], [], 1
    for _ in range(draw(st.integers(0, 4))):
        size.append(draw(st.integers(1, 4)))
        stride.append(reach + draw(st.integers(0, 3)))
        reach = (size[-1] - 1) * stride[-1] + reach
    order = draw(st.permutations(range(len(size))))
    offset = draw(st.integers(0, 40))
    assert (offset + reach) * width <= memory
    return tuple(size[i] for i in order), tuple(stride[i] for i in order), offset, width


@settings(deadline=None, max_examples=400)
@given(read=views(), written=views())
def test_any_two_views_of_a_buffer_are_told_apart(ops, read, written):
    if read[3] == 1:  # of dtype float32
        read = (*read[:3], 4)
    memory = torch.zeros(4096, dtype=torch.uint8, device="meta")
    shared = bool(addresses(read) & addresses(written))
    message = rejection(lambda: ops.masked(viewed(memory, read), viewed(memory, written)))
    assert message == (
        "custom_pypto_probe::masked: argument 'cache' must share no memory with 'mask', as it is written to, but does; "
        "pass a separate tensor"
        if shared
        else ""
    )


def test_views_that_interleave_in_too_many_ways_to_tell_are_rejected(ops):
    numbers = random.Random(0)
    strides = [numbers.randrange(2**34, 2**35) for _ in range(24)]
    memory = torch.zeros(sum(strides) + 1, device="meta")
    read, written = memory.as_strided([2] * 24, strides, 0), memory[sum(strides) // 2 :][:1]
    assert rejection(lambda: ops.masked(read, written)).startswith(
        "custom_pypto_probe::masked: argument 'cache' must share no memory with 'mask', as it is written to, but may: "
        "views with strides ["
    )


# ---- gradients


def leaf(*shape, device="npu"):
    return torch.randn(shape, device=device).requires_grad_()


NO_GRADIENT = "derivative for {} is not implemented"


@pytest.mark.parametrize("device", DEVICES)
def test_a_backward_through_what_was_written_raises(device, ops):
    for name in ("optional", "masked", "lists", "stateful"):
        full_name = f"custom_pypto_probe::{name}"
        lists = name == "lists"
        call = (lambda x, y: ops.lists([x], [y])) if lists else getattr(ops, name)
        # what it reads requires a gradient
        cache = torch.zeros(3, device=device)
        call(leaf(3, device=device), cache)
        assert cache.requires_grad
        with pytest.raises(RuntimeError, match=NO_GRADIENT.format(full_name)):
            cache.sum().backward()
        # what it writes to does
        x = leaf(3, device=device)
        state = x * 2
        call(torch.ones(3, device=device), state)
        with pytest.raises(RuntimeError, match=NO_GRADIENT.format(full_name)):
            torch.autograd.grad(state.sum(), x)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
            call(torch.ones(3, device=device), x)
        with torch.no_grad():
            call(torch.ones(3, device=device), x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("operator", [name for name in WRITERS if name != "advance_step_flashattn"])
def test_our_operators_drop_no_gradient_of_what_they_write(operator, device):
    arguments = on(device, next(iter(calls.CALLS[operator].values()))())
    caches = caches_of(operator, arguments)
    read = next(n for n, t in arguments.items() if n not in caches and torch.is_tensor(t) and t.is_floating_point())
    arguments[read].requires_grad_()
    overload(operator)(**arguments)
    floating = [arguments[name] for name in caches if arguments[name].is_floating_point()]
    assert floating
    for cache in floating:
        with pytest.raises(RuntimeError, match=NO_GRADIENT.format(f"custom_pypto::{operator}")):
            cache.sum().backward()


def test_views_of_a_cache_lead_to_the_error_as_well():
    buffer = torch.zeros(2, 7, 8, 3, 16).npu()
    arguments = on("npu", cache_calls.write(5, dtype=torch.float32))
    arguments["key"].requires_grad_()
    arguments |= {"key_cache": buffer[0], "value_cache": buffer[1]}
    overload("reshape_and_cache")(**arguments)
    with pytest.raises(RuntimeError, match=NO_GRADIENT.format("custom_pypto::reshape_and_cache")):
        buffer.sum().backward()


def test_integers_have_no_gradient_to_lose():
    arguments = on("npu", cache_calls.write(5, dtype=torch.float32, value_dtype=torch.int8))
    arguments["key"].requires_grad_()
    overload("reshape_and_cache")(**arguments)
    assert arguments["key_cache"].requires_grad and not arguments["value_cache"].requires_grad
