# SPDX-License-Identifier: Apache-2.0
"""npu_recurrent_gated_delta_rule and npu_chunk_gated_delta_rule, against the recurrence in float64."""

import pytest
import torch
import torch_npu


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def unit(*shape):
    return torch.nn.functional.normalize(torch.randn(shape), dim=-1).bfloat16()


def inputs_of(tokens, key_heads, heads, key_size, size, gated=True):
    inputs = dict(
        query=unit(tokens, key_heads, key_size),
        key=unit(tokens, key_heads, key_size),
        value=torch.randn(tokens, heads, size).bfloat16(),
        beta=torch.rand(tokens, heads).bfloat16(),
        scale=key_size**-0.5,
    )
    return inputs | ({"g": -torch.rand(tokens, heads)} if gated else {})


def steps(inputs, state, tokens):
    """The results and the states after consecutive tokens, in float64."""
    each = inputs["value"].shape[1] // inputs["key"].shape[1]
    q, k = (inputs[name].double().repeat_interleave(each, 1) for name in ("query", "key"))
    state = state.double()
    for t in tokens:
        if "g" in inputs:
            state = state * inputs["g"][t].double().exp()[:, None, None]
        if "gk" in inputs:
            state = state * inputs["gk"][t].double().exp()[:, None, :]
        learnt = inputs["value"][t].double() - torch.einsum("nvk,nk->nv", state, k[t])
        state = state + torch.einsum("nv,nk->nvk", learnt * inputs["beta"][t].double()[:, None], k[t])
        yield torch.einsum("nvk,nk->nv", state, q[t]) * inputs["scale"], state


def near(actual, expected):
    assert actual.dtype == torch.bfloat16 and actual.shape == expected.shape
    size = expected.square().mean().sqrt()
    assert ((actual.double() - expected).abs() <= 2**-8 * expected.abs() + 1e-5 * size).all()


def on_npu(inputs):
    return {name: x.npu() if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


SIZES = {
    "Qwen3-Next": dict(lengths=[1, 1, 1], key_heads=16, heads=32, key_size=128, size=128),
    "speculation": dict(lengths=[3, 1, 8], key_heads=2, heads=4, key_size=64, size=32, accepted=[2, 1, 8]),
    "odd": dict(lengths=[2, 0, 1], key_heads=1, heads=3, key_size=37, size=5),
    "without gates": dict(lengths=[1, 2], key_heads=2, heads=2, key_size=16, size=16, gated=False),
    "gates of keys": dict(lengths=[1, 2], key_heads=2, heads=2, key_size=16, size=16, of_keys=True),
}


def recurrent_inputs(lengths, accepted=None, of_keys=False, **sizes):
    inputs = inputs_of(sum(lengths), **sizes)
    blocks = sum(lengths) + 2
    state = torch.randn(blocks, sizes["heads"], sizes["size"], sizes["key_size"]).bfloat16()
    inputs |= dict(
        actual_seq_lengths=torch.tensor(lengths).int(), ssm_state_indices=torch.randperm(blocks)[: sum(lengths)].int()
    )
    if accepted:
        inputs["num_accepted_tokens"] = torch.tensor(accepted).int()
    if of_keys:
        inputs["gk"] = -torch.rand(sum(lengths), sizes["heads"], sizes["key_size"])
    return inputs, state


@pytest.mark.parametrize("sizes", SIZES.values(), ids=list(SIZES))
def test_the_recurrent_rule(sizes):
    inputs, state = recurrent_inputs(**sizes)
    expected, after = torch.zeros(inputs["value"].shape, dtype=torch.float64), state.double()
    first, places = 0, inputs["ssm_state_indices"].tolist()
    for i, length in enumerate(sizes["lengths"]):
        tokens = range(first, first + length)
        if length:
            start = state[places[first + sizes.get("accepted", [1] * 9)[i] - 1]]
            for t, (out, now) in zip(tokens, steps(inputs, start, tokens), strict=True):
                expected[t], after[places[t]] = out, now
        first += length
    there, states = on_npu(inputs), state.npu()
    out, functional = torch_npu.npu_recurrent_gated_delta_rule_functional(state=states, **there)
    assert torch.equal(states.cpu(), state)
    near(out.cpu(), expected)
    near(functional.cpu(), after)
    assert torch.equal(torch_npu.npu_recurrent_gated_delta_rule(state=states, **there).cpu(), out.cpu())
    assert torch.equal(states.cpu(), functional.cpu())


CHUNKS = {
    "Qwen3-Next": dict(lengths=[130, 1], key_heads=4, heads=8, key_size=128, size=128),
    "odd": dict(lengths=[67, 0, 5], key_heads=1, heads=3, key_size=37, size=5),
    "without gates": dict(lengths=[9], key_heads=2, heads=2, key_size=16, size=16, gated=False),
}


@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=list(CHUNKS))
def test_the_rule_for_whole_sequences(sizes):
    lengths = sizes["lengths"]
    inputs = inputs_of(sum(lengths), **{name: x for name, x in sizes.items() if name != "lengths"})
    state = torch.randn(len(lengths), sizes["heads"], sizes["size"], sizes["key_size"]).bfloat16()
    expected, after, first = torch.zeros(inputs["value"].shape, dtype=torch.float64), state.double(), 0
    for i, length in enumerate(lengths):
        tokens = range(first, first + length)
        for t, (out, now) in zip(tokens, steps(inputs, state[i], tokens), strict=True):
            expected[t], after[i] = out, now
        first += length
    more = dict(initial_state=state, actual_seq_lengths=torch.tensor(lengths).int())
    out, final = torch_npu.npu_chunk_gated_delta_rule(**on_npu(inputs | more))
    near(out.cpu(), expected)
    near(final.cpu(), after)


def test_strided_tokens():
    inputs, state = recurrent_inputs(**SIZES["speculation"])
    expected = torch_npu.npu_recurrent_gated_delta_rule(state=state.npu(), **on_npu(inputs)).cpu()
    there = on_npu(inputs)
    for name in ("query", "key", "value", "beta", "g"):
        there[name] = torch.stack([there[name], there[name]], -1)[..., 0]
    assert torch.equal(torch_npu.npu_recurrent_gated_delta_rule(state=state.npu(), **there).cpu(), expected)


REJECTED = {
    "query": (dict(query=unit(4, 2, 8)), r"query has shape \[4, 2, 8\]; expected \[4, 2, 16\]"),
    "heads": (dict(value=torch.ones(4, 3, 16).bfloat16()), "value has 3 heads, which do not divide among the 2 of key"),
    "dtype": (dict(beta=torch.ones(4, 4)), "beta has dtype float32; expected bfloat16"),
    "lengths": (dict(actual_seq_lengths=torch.tensor([3, 2]).int()), "actual_seq_lengths add up to 5; value has 4"),
    "a length": (dict(actual_seq_lengths=torch.tensor([9, 1]).int()), r"actual_seq_lengths\[0\] is 9; expected 0 to 8"),
    "a place": (
        dict(ssm_state_indices=torch.tensor([0, 1, 6, 3]).int()),
        r"ssm_state_indices\[2\] is 6; expected 0 to",
    ),
    "accepted": (dict(num_accepted_tokens=torch.tensor([4, 1]).int()), r"num_accepted_tokens\[0\] is 4; expected 1 to"),
}


@pytest.mark.parametrize("changes, message", REJECTED.values(), ids=list(REJECTED))
def test_bad_arguments_are_rejected(changes, message):
    inputs, state = recurrent_inputs(lengths=[3, 1], key_heads=2, heads=4, key_size=16, size=16)
    there = state.npu()
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_recurrent_gated_delta_rule(state=there, **on_npu(inputs | changes))
        torch.npu.synchronize()
    assert torch.equal(there.cpu(), state)
