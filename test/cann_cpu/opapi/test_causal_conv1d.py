# SPDX-License-Identifier: Apache-2.0
"""The causal convolutions, against their formulas in float64."""

import itertools

import pytest
import torch
import torch_npu
from aclnn import Out, written_by

WIDTH = 3


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def near(actual, expected):
    assert actual.shape == expected.shape
    size = expected.square().mean().sqrt()
    assert ((actual.double() - expected).abs() <= 2**-8 * expected.abs() + 1e-6 * size).all()


def integers(*values):
    return torch.tensor(values).int()


def expected_of(
    x,
    weight,
    conv_states,
    loc,
    *,
    lines,
    accepted=None,
    computed=None,
    blocks=None,
    block_size=0,
    residual=False,
    pangu=False,
    pad=-1,
):
    """y in float64 and the caches; `blocks` is (first, last, initial) of each sequence."""
    y, states = torch.zeros(x.shape, dtype=torch.float64), conv_states.clone()
    kept = conv_states.shape[1]
    for i, (begin, end) in enumerate(itertools.pairwise(loc)):
        row = lines[i] if isinstance(lines[i], list) else [lines[i]]
        first, last, initial = blocks[i] if blocks else (0, 0, 0)
        if pad in (row[initial], row[last]) or begin == end:
            continue
        if computed is not None and computed[i] == 0:
            offset, cached = 0, torch.zeros(WIDTH - 1, x.shape[1], dtype=x.dtype)
        else:
            offset = accepted[i] - 1 if accepted and accepted[i] else kept - (WIDTH - 1)
            cached = conv_states[row[initial]][: offset + WIDTH - 1]
        length, mine = end - begin, x[begin:end]
        padded = torch.cat([cached, mine])
        count = min(kept, len(padded))
        states[row[last]][kept - count :] = padded[len(padded) - count :]
        seen = padded[offset:]
        if blocks:
            done = block_size - computed[i] % block_size
            rest = (length - done) % block_size
            boundary = length - (rest or block_size)
            for chunk in reversed(range(last - first)):
                states[row[first + chunk]][kept - (WIDTH - 1) :] = seen[boundary : boundary + WIDTH - 1]
                boundary -= block_size
        out = sum(weight[k].double() * seen[k : k + length].double() for k in range(WIDTH))
        if pangu:
            out[: max(WIDTH - 1 - computed[i], 0)] = 0
        y[begin:end] = out + (mine.double() if residual else 0)
    return y, states


CASES = {
    "prompts": dict(loc=[0, 11, 12, 40], caches=5, lines=[4, 0, 2], computed=[0, 7, 3]),
    "decode": dict(loc=[0, 1, 2, 3], caches=5, lines=[4, 0, 2]),
    "without indices": dict(loc=[0, 1, 3], caches=2, lines=[0, 1], has_lines=False),
    "speculation": dict(loc=[0, 3, 6], caches=3, kept=4, lines=[2, 0], accepted=[3, 1]),
    "a prompt and speculation": dict(loc=[0, 20, 23], caches=3, kept=4, lines=[2, 0], accepted=[0, 2], computed=[0, 9]),
    "padding": dict(loc=[0, 5, 7, 9], caches=3, lines=[1, -1, 2], tokens=12),
    "an empty sequence": dict(loc=[0, 5, 5, 9], caches=3, lines=[1, 0, 2]),
    "residual": dict(loc=[0, 5, 9], caches=3, lines=[1, 2], residual=True),
    "pangu": dict(loc=[0, 5, 9, 12], caches=3, lines=[1, 2, 0], computed=[0, 1, 7], pangu=True, residual=True),
    "blocks": dict(
        loc=[0, 11, 13],
        caches=9,
        lines=[[3, 1, 0, 5], [2, 4, 6, 7]],
        computed=[5, 1],
        block_size=4,
        blocks=[(1, 3, 1), (0, 0, 0)],
    ),
}


def case_of(
    loc, lines, caches, kept=WIDTH - 1, tokens=None, has_lines=True, dtype=torch.bfloat16, channels=64, **attributes
):
    x = torch.randn(tokens or loc[-1], channels).to(dtype)
    weight, states = torch.randn(WIDTH, channels).to(dtype), torch.randn(caches, kept, channels).to(dtype)
    expected = expected_of(x, weight, states, loc, lines=lines, **attributes)
    arguments = dict(query_start_loc=integers(*loc))
    if has_lines:
        arguments["cache_indices"] = torch.tensor(lines).int()
    for name, argument in [("accepted", "num_accepted_tokens"), ("computed", "num_computed_tokens")]:
        if name in attributes:
            arguments[argument] = integers(*attributes[name])
    if "blocks" in attributes:
        names = "block_idx_first_scheduled_token", "block_idx_last_scheduled_token", "initial_state_idx"
        for name, values in zip(names, zip(*attributes["blocks"], strict=True), strict=True):
            arguments[name] = integers(*values)
        arguments["block_size"] = attributes["block_size"]
    arguments["residual_connection"] = int(attributes.get("residual", False))
    arguments["conv_mode"] = "pangu" if attributes.get("pangu") else "default"
    return (x, weight, states), arguments, expected


def on_npu(arguments):
    return {name: x.npu() if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}


@pytest.mark.parametrize("name", CASES)
def test_convolutions_with_caches(name):
    (x, weight, states), arguments, (y, after) = case_of(**CASES[name])
    there = states.npu()
    out = torch_npu.npu_fused_causal_conv1d(x.npu(), weight.npu(), there, **on_npu(arguments)).cpu()
    near(out, y)
    assert torch.equal(there.cpu(), after)


@pytest.mark.parametrize("name", ["prompts", "speculation", "blocks"])
def test_in_place(name):
    (x, weight, states), arguments, (y, after) = case_of(**CASES[name], dtype=torch.float16)
    there, in_place = states.npu(), x.npu()
    torch.ops.npu.npu_fused_causal_conv1d_v2(in_place, weight.npu(), there, **on_npu(arguments))
    near(in_place.cpu(), y)
    assert torch.equal(there.cpu(), after)


def test_a_fixed_number_of_tokens():
    (x, weight, states), arguments, (y, after) = case_of(loc=[0, 3, 6], caches=3, kept=4, lines=[2, 0], accepted=[3, 1])
    del arguments["query_start_loc"]
    there = states.npu()
    out = torch_npu.npu_fused_causal_conv1d(x.view(2, 3, -1).npu(), weight.npu(), there, **on_npu(arguments))
    near(out.cpu().flatten(0, 1), y)
    assert torch.equal(there.cpu(), after)


def test_more_tokens_than_at_a_time():
    (x, weight, states), arguments, (y, after) = case_of(
        loc=[0, 300, 1300], caches=2, lines=[1, 0], channels=4096, residual=True
    )
    there, in_place = states.npu(), x.npu()
    torch.ops.npu.npu_fused_causal_conv1d_v2(in_place, weight.npu(), there, **on_npu(arguments))
    near(in_place.cpu(), y)
    assert torch.equal(there.cpu(), after)


REJECTED = {
    "weight": (lambda a: dict(weight=torch.ones(4, 64).bfloat16()), r"weight has shape \[4, 64\]; expected \[3, 64\]"),
    "dtype": (lambda a: dict(weight=torch.ones(3, 64)), "weight has dtype float32; expected bfloat16, as x"),
    "no starts": (lambda a: dict(query_start_loc=None), "query_start_loc is null; x of 2 dimensions needs it"),
    "starts": (lambda a: dict(query_start_loc=integers(0, 7, 5)), r"query_start_loc\[2\] is 5; expected 7 to 9"),
    "a cache": (lambda a: dict(cache_indices=integers(1, 3)), r"cache_indices\[1\] is 3; expected 0 to 2, or pad_slot"),
    "accepted": (lambda a: dict(num_accepted_tokens=integers(1, 3)), r"num_accepted_tokens\[1\] is 3; expected 0 to 1"),
    "blocks": (lambda a: dict(cache_indices=integers(0, 1, 2, 0).view(2, 2)), "num_computed_tokens is null; cache_ind"),
    "pangu": (lambda a: dict(conv_mode="pangu"), "num_computed_tokens is null; conv_mode pangu needs it"),
}


@pytest.mark.parametrize("changes, message", REJECTED.values(), ids=list(REJECTED))
def test_bad_arguments_are_rejected(changes, message):
    (x, weight, states), arguments, _ = case_of(loc=[0, 5, 9], caches=3, lines=[1, 2])
    there = states.npu()
    arguments |= dict(x=x, weight=weight) | changes(arguments)
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_fused_causal_conv1d(conv_states=there, **on_npu(arguments))
        torch.npu.synchronize()
    assert torch.equal(there.cpu(), states)


def masked_convolution(x, weight, mask):
    padded = torch.nn.functional.pad(x, (0, 0, 0, 0, WIDTH - 1, 0))
    y = sum(weight[k] * padded[k : k + len(x)] for k in range(WIDTH))
    return y if mask is None else y * mask.t()[:, :, None]


@pytest.mark.parametrize("tokens, batch, channels", [(40, 3, 384), (1, 1, 64), (2, 5, 64), (600, 2, 4096)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masked_convolutions(tokens, batch, channels, dtype):
    x, dy = (torch.randn(tokens, batch, channels).to(dtype) for _ in range(2))
    weight = torch.randn(WIDTH, channels).to(dtype)
    for mask in (None, torch.rand(batch, tokens) > 0.3):
        leaves = [each.double().requires_grad_() for each in (x, weight)]
        y = masked_convolution(*leaves, mask)
        near(
            torch_npu.npu_masked_causal_conv1d(x.npu(), weight.npu(), mask=None if mask is None else mask.npu()).cpu(),
            y.detach(),
        )
        outs = Out(x.shape, dtype), Out(weight.shape, dtype)
        for actual, expected in zip(
            written_by("aclnnMaskedCausalConv1dBackward", dy, x, weight, mask, *outs),
            torch.autograd.grad(y, leaves, dy.double()),
            strict=True,
        ):
            near(actual, expected)
