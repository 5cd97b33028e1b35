# SPDX-License-Identifier: Apache-2.0
"""Attention of training on hifloat8 and its gradient, against their formulas in float64."""

import hifloat8
import pytest
import torch
from aclnn import Out, Rejected, written_by

SCALE = 0.0625


def scales(batch, heads, tokens, block, seed):
    blocks = -(-tokens // block)
    return torch.rand(batch, heads, blocks, 1, generator=torch.Generator().manual_seed(seed)) + 0.5


def scaled(x, scale, block):
    """(batch, heads, tokens, size) of bytes (batch, tokens, heads, size)."""
    return hifloat8.wide(x).transpose(1, 2) * scale.double().repeat_interleave(block, 2)[:, :, : x.shape[1]]


def bounds(x, error):
    """What numbers round to, and how far that is from what any number within the error rounds to."""
    low, nearest, high = (hifloat8.rounded(each) for each in (x - error, x, x + error))
    return nearest, high - low


def close(actual, expected, bound, dtype=torch.bfloat16):
    assert actual.dtype == dtype
    tolerance = torch.finfo(dtype).eps * expected.abs() + bound + 1e-4 * expected.abs().max()
    assert ((actual.double() - expected).abs() <= tolerance).all()


def inputs(batch, queries, keys, heads, key_heads, size):
    shapes = [(batch, queries, heads, size), (batch, keys, key_heads, size), (batch, keys, key_heads, size)]
    return [hifloat8.random(*shape, seed=seed, below=3) for seed, shape in enumerate(shapes)]


def weights(query, key):
    """The probabilities, and the maximum and the sum of each query's scores."""
    scores = SCALE * query @ key.mT
    maximum = scores.amax(-1, keepdim=True)
    powers = (scores - maximum).exp()
    return powers / powers.sum(-1, keepdim=True), maximum, powers.sum(-1, keepdim=True)


SIZES = {
    "one token": (1, 1, 1, 1, 1, 128),
    "one past a block": (1, 129, 513, 2, 2, 128),
    "shared heads": (2, 130, 257, 4, 2, 64),
}


@pytest.mark.parametrize("p_scale", [None, 64.0])
@pytest.mark.parametrize("size", SIZES)
def test_forward(size, p_scale):
    batch, queries, keys, heads, key_heads, _ = SIZES[size]
    q, k, v = inputs(*SIZES[size])
    dq, dk = scales(batch, heads, queries, 128, 1), scales(batch, key_heads, keys, 256, 2)
    dv = scales(batch, key_heads, keys, 512, 3)
    shared = heads // key_heads
    key, value = (each.repeat_interleave(shared, 1) for each in (scaled(k, dk, 256), scaled(v, dv, 512)))
    p, maximum, total = weights(scaled(q, dq, 128), key)
    factor, given = p_scale or 1, None if p_scale is None else torch.tensor([p_scale])
    rounded, error = bounds(p * factor, p * factor * 1e-5)
    statistics = Out((batch, heads, queries, 1))
    found_maximum, found_sum, out = written_by(
        "aclnnQuantFlashAttentionScore", q, k, v, None, dq, dk, dv, given,
        SCALE, 2**31 - 1, 2**31 - 1, heads, "BSND", 0, statistics, statistics, None, Out(q.shape, torch.bfloat16),
    )  # fmt: skip
    torch.testing.assert_close(found_maximum.double(), maximum, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found_sum.double(), total, rtol=1e-5, atol=1e-5)
    close(out.transpose(1, 2), rounded @ value / factor, error @ value.abs() / factor)


@pytest.mark.parametrize("ds_scale", [None, 4096.0])
@pytest.mark.parametrize("out_dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_backward(size, out_dtype, ds_scale):
    batch, queries, keys, heads, key_heads, _ = SIZES[size]
    q, k, v = inputs(*SIZES[size])
    dy = hifloat8.random(*q.shape, seed=7, below=3)
    d = {"q": (heads, queries), "k": (key_heads, keys), "v": (key_heads, keys), "dy": (heads, queries)}
    d = {name: scales(batch, *each, 512, seed) for seed, (name, each) in enumerate(d.items())}
    shared = heads // key_heads
    query, grad = scaled(q, d["q"], 512), scaled(dy, d["dy"], 512)
    key, value = (scaled(x, d[n], 512).repeat_interleave(shared, 1) for x, n in ((k, "k"), (v, "v")))
    p, maximum, total = weights(query, key)
    result = (p @ value).bfloat16()
    p_scale, factor = 64.0, ds_scale or 1
    p_hat, p_error = bounds(p * p_scale, p * p_scale * 1e-5)
    expected = (grad * result.double()).sum(-1, keepdim=True)
    ds = p * (grad @ value.mT - expected)
    ds_hat, ds_error = bounds(ds * factor, factor * p * 1e-5 * (grad.abs() @ value.abs().mT + expected.abs()))

    def by_key(x):
        return x.unflatten(1, (key_heads, shared)).sum(2)

    references = [(SCALE * ds_hat @ key / factor, SCALE * ds_error @ key.abs() / factor)]
    references.append((by_key(SCALE * ds_hat.mT @ query / factor), by_key(SCALE * ds_error.mT @ query.abs() / factor)))
    references.append((by_key(p_hat.mT @ grad / p_scale), by_key(p_error.mT @ grad.abs() / p_scale)))
    outs = [Out(x.shape, out_dtype) for x in (q, k, v)]
    found = written_by(
        "aclnnQuantFlashAttentionScoreGrad", q, k, v, dy, None, maximum.float(), total.float(),
        result.transpose(1, 2), d["q"], d["k"], d["v"], d["dy"], None if ds_scale is None else torch.tensor([ds_scale]),
        torch.tensor([p_scale]), SCALE, 2**31 - 1, 2**31 - 1, heads, "BSND", 0, int(out_dtype == torch.bfloat16), *outs,
    )  # fmt: skip
    for got, (wanted, bound) in zip(found, references, strict=True):
        close(got.transpose(1, 2), wanted, bound, out_dtype)


BAD = {
    "layout": ({12: "BNSD"}, 'input_layout is "BNSD"; expected BSND'),
    "heads": ({11: 3}, r"head_num is 3, query has shape \[1, 3, 2, 16\]"),
    "scale": ({4: torch.ones(1, 2, 2, 1)}, r"d_scale_q has shape \[1, 2, 2, 1\]; expected \[1, 2, 1, 1\]"),
    "mask": ({3: torch.ones(3, 5, dtype=torch.bool)}, "attenMask.* is not implemented"),
    "dtype": ({0: torch.zeros(1, 3, 2, 16, dtype=torch.float8_e5m2)}, "query has dtype float8_e5m2; expected hifloat8"),
    "sparse mode": ({13: 1}, "sparse_mode is 1; expected 0 to 0"),
    "size of the values": ({2: hifloat8.random(1, 5, 2, 32, seed=0)}, "the last dimension of value is 32"),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_input_is_named(label):
    changes, message = BAD[label]
    arguments = [*inputs(1, 3, 5, 2, 2, 16), None, *[torch.ones(1, 2, 1, 1)] * 3, torch.ones(1), SCALE, 0, 0, 2, "BSND"]
    arguments += [0, Out((1, 2, 3, 1)), Out((1, 2, 3, 1)), None, Out((1, 3, 2, 16), torch.bfloat16)]
    for index, value in changes.items():
        arguments[index] = value
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by("aclnnQuantFlashAttentionScore", *arguments)
