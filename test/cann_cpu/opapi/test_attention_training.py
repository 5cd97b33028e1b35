# SPDX-License-Identifier: Apache-2.0
"""Attention of training and its gradient, against the formula in float64 and autograd."""

import math

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, written_by

ALL = 2147483647
TRIANGLE = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1)


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def hidden_by_mode(mode, queries, keys, before, after, prefix):
    distance = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
    if mode in (0, 1):
        return (distance > after) | (distance < -before)
    if mode == 2:
        return distance > 0
    causal = distance > keys - queries
    if mode == 3:
        return causal
    if mode == 4:
        return (distance > keys - queries + after) | (distance < keys - queries - before)
    return causal & (torch.arange(keys)[None, :] >= prefix)


def attention(query, key, value, scale, hidden=None, shift=None, shift_first=True, sink=None):
    """(heads, tokens, size) each, all float64; the result, the maximum and the sum of each query's scores."""
    shared = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(shared, 0), value.repeat_interleave(shared, 0)
    scores = query @ key.mT
    if shift is not None:
        scores = (scores + shift) * scale if shift_first else scores * scale + shift
    else:
        scores = scores * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    if sink is not None:
        scores = torch.cat([scores, sink[:, None, None].expand(-1, query.shape[1], 1)], 2)
        value = torch.cat([value, torch.zeros_like(value[:, :1])], 1)
    maximum = scores.amax(2, keepdim=True).detach()
    maximum = torch.where(maximum.isinf(), 0, maximum)
    weights = (scores - maximum).exp()
    total = weights.sum(2, keepdim=True)
    return torch.where(total > 0, weights / total.clamp(min=1e-300), 0) @ value, maximum, total.detach()


def close(actual, expected, name, factor=1):
    actual, tolerance = actual.cpu().double(), factor * max(2 * torch.finfo(actual.dtype).eps, 2e-6)
    expected = expected.detach()
    torch.testing.assert_close(
        actual,
        expected,
        rtol=tolerance,
        atol=tolerance * (1 + expected.abs().amax().item()),
        msg=lambda m: f"{name}: {m}",
    )


def rounding_of(dtype):
    """The factor for a float32 gradient that is computed from a result in a half type."""
    return 8 if dtype == torch.float32 else torch.finfo(dtype).eps / 1e-6


LAYOUTS = {
    "BNSD": (lambda x: x, lambda x: x),
    "BSND": (lambda x: x.transpose(1, 2), lambda x: x.transpose(1, 2)),
    "BSH": (lambda x: x.transpose(1, 2).flatten(2), lambda x: x.transpose(1, 2).flatten(2)),
    "SBH": (lambda x: x.permute(2, 0, 1, 3).flatten(2), None),
}
SHAPE = {"heads": 4, "key_heads": 2, "queries": 7, "keys": 9, "size": 16}
CASES = {
    "plain": {},
    "one token": {"queries": 1, "keys": 1},
    "past a block": {"queries": 65, "keys": 515, "heads": 2},
    "mask": {"atten_mask": randn(7, 9, seed=20) > 0.3},
    "mask of each": {"atten_mask": randn(2, 1, 7, 9, seed=20) > 0.3, "sparse_mode": 1},
    "mask of each head, band": {
        "atten_mask": randn(2, 4, 7, 9, seed=20) > 0.9, "pre_tokens": 3, "next_tokens": 2,
    },
    "causal, from the first": {"atten_mask": TRIANGLE, "sparse_mode": 2},
    "causal, to the last": {"atten_mask": TRIANGLE, "sparse_mode": 3},
    "band": {"atten_mask": TRIANGLE, "sparse_mode": 4, "pre_tokens": 3, "next_tokens": 1},
    "prefix": {"sparse_mode": 6, "prefix": [5, 3]},
    "shift, added first": {"pse": randn(2, 4, 7, 9, seed=21), "pse_type": 1},
    "shift, scaled first": {"pse": randn(2, 4, 7, 9, seed=21), "pse_type": 0},
    "shift of all, one row": {"pse": randn(1, 4, 1, 9, seed=21), "pse_type": 1},
    "slopes": {"pse": randn(4, seed=22), "pse_type": 2, "q_start_idx": [3], "kv_start_idx": [1]},
    "slopes of the root": {"pse": randn(2, 4, seed=22), "pse_type": 3},
    "sinks": {"sink": randn(4, seed=23)},
}  # fmt: skip


def shift_of(options, b, queries, keys):
    pse, kind = options.get("pse"), options.get("pse_type", 1)
    if pse is None:
        return None
    if kind in (0, 1):
        return pse[b if len(pse) > 1 else 0][:, :queries, :keys]
    slopes = (pse if pse.dim() == 1 else pse[b]).double()[:, None, None]
    offset = options.get("kv_start_idx", [0])[0] - options.get("q_start_idx", [0])[0]
    distance = (torch.arange(keys)[None] - torch.arange(queries)[:, None] + offset).abs().double()
    return -slopes * (distance.sqrt() if kind == 3 else distance)


def expected_of(query, key, value, dy, options, scale, masks=None):
    """The results and gradients of one batch entry after the other, all lists of (heads, tokens, size)."""
    leaves = {"query": query, "key": key, "value": value}
    leaves = {name: [x.double().requires_grad_() for x in list_] for name, list_ in leaves.items()}
    sink = options["sink"].double().requires_grad_() if "sink" in options else None
    pse = options.get("pse")
    pse = pse.double().requires_grad_() if pse is not None and options.get("pse_type", 1) < 2 else pse
    results, total = [], 0
    for b, (q, k, v) in enumerate(zip(*leaves.values(), strict=True)):
        mode, mask = options.get("sparse_mode", 0), options.get("atten_mask")
        hidden = None
        if mode >= 2 or (mask is not None and mode == 0):
            before, after = options.get("pre_tokens", ALL), options.get("next_tokens", ALL)
            prefix = options.get("prefix", [0] * len(dy))[b]
            hidden = hidden_by_mode(mode, q.shape[1], k.shape[1], before, after, prefix)
        if mask is not None and mode < 2:
            own = mask if mask.dim() == 2 else mask[b]
            hidden = own if hidden is None else own | hidden
        shift = shift_of(options | {"pse": pse}, b, q.shape[1], k.shape[1])
        result = attention(q, k, v, scale, hidden, shift, options.get("pse_type", 1) == 1, sink)
        results.append(result)
        total = total + (result[0] * dy[b].double()).sum()
    total.backward()
    gradients = [[x.grad for x in list_] for list_ in leaves.values()]
    return results, gradients, pse.grad if pse is not None else None, sink.grad if sink is not None else None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_a_batch(name, layout, dtype):
    options = dict(CASES[name])
    shape = SHAPE | {key: options.pop(key) for key in list(options) if key in SHAPE}
    heads, key_heads, queries, keys, size = shape.values()
    if "pse" in options and options.get("pse_type", 1) < 2:
        options["pse"] = options["pse"].to(dtype)
    scale = 0.3
    query, dy = randn(2, heads, queries, size, dtype=dtype), randn(2, heads, queries, size, seed=4, dtype=dtype)
    key, value = (
        randn(2, key_heads, keys, size, seed=1, dtype=dtype),
        randn(2, key_heads, keys, size, seed=2, dtype=dtype),
    )
    results, gradients, pse_gradient, sink_gradient = expected_of(query, key, value, dy, options, scale)
    laid_out = LAYOUTS[layout][0]
    given = [laid_out(x).contiguous().npu() for x in (query, key, value)]
    moved = {k: v.npu() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    out, maximum, total, *_ = torch_npu.npu_fusion_attention_v2(*given, heads, layout, scale=scale, **moved)
    close(out, laid_out(torch.stack([r[0] for r in results])), "out")
    close(maximum, torch.stack([r[1] for r in results]).expand(-1, -1, -1, 8), "maximum")
    close(total, torch.stack([r[2] for r in results]).expand(-1, -1, -1, 8), "sum", 10)
    found = torch_npu.npu_fusion_attention_grad_v2(
        *given, laid_out(dy).contiguous().npu(), heads, layout, scale_value=scale, softmax_max=maximum,
        softmax_sum=total, attention_in=out, **moved,
    )  # fmt: skip
    for label, actual, expected in zip(["dq", "dk", "dv"], found, gradients, strict=False):
        close(actual, laid_out(torch.stack(expected)), label, 8)
    if pse_gradient is not None:
        close(found[3], pse_gradient, "dpse", 8)
    if sink_gradient is not None:
        close(found[6], sink_gradient, "dsink", rounding_of(dtype))


SEQUENCES = {
    "plain": {},
    "causal": {"atten_mask": TRIANGLE, "sparse_mode": 3},
    "mask": {"atten_mask": randn(40, 40, seed=20) > 0.5},
    "rope": {"rope": 8},
    "sinks": {"sink": randn(4, seed=23)},
    "rope, sinks, by token": {"rope": 8, "sink": randn(4, seed=23), "softmax_layout": "TND"},
    "slopes": {"pse": randn(4, seed=22), "pse_type": 2},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_after_each_other(name, dtype):
    options = dict(SEQUENCES[name])
    rope, scale = options.pop("rope", 0), 0.3
    queries, keys, size = [3, 0, 37, 1], [3, 2, 40, 13], 16
    tensors = [
        [randn(heads, n, size + extra, seed=10 * seed + i, dtype=dtype) for i, n in enumerate(lengths)]
        for seed, (heads, lengths, extra) in enumerate(
            [(4, queries, rope), (2, keys, rope), (2, keys, 0), (4, queries, 0)]
        )
    ]
    sliced = options.copy()
    if name == "mask":
        sliced.pop("atten_mask")
    expected_options = dict(options)
    query, key, value, dy = tensors
    if name == "mask":
        leaves = [[x.double().requires_grad_() for x in list_] for list_ in (query, key, value)]
        results = [
            attention(q, k, v, scale, options["atten_mask"][: q.shape[1], : k.shape[1]])
            for q, k, v in zip(*leaves, strict=True)
        ]
        sum((r[0] * g.double()).sum() for r, g in zip(results, dy, strict=True)).backward()
        gradients, sink_gradient = [[x.grad for x in list_] for list_ in leaves], None
    else:
        results, gradients, _, sink_gradient = expected_of(query, key, value, dy, expected_options, scale)
    joined = lambda list_: torch.cat(list_, 1).transpose(0, 1)  # noqa: E731
    given = [joined(x) for x in (query, key, value)]
    extra = {}
    if rope:
        extra = {"query_rope": given[0][..., size:], "key_rope": given[1][..., size:]}
        given[0], given[1] = given[0][..., :size], given[1][..., :size]
    moved = {k: v.contiguous().npu() if isinstance(v, torch.Tensor) else v for k, v in (options | extra).items()}
    ends = {
        "actual_seq_qlen": torch.tensor(queries).cumsum(0).tolist(),
        "actual_seq_kvlen": torch.tensor(keys).cumsum(0).tolist(),
    }
    given = [x.contiguous().npu() for x in given]
    out, maximum, total, *_ = torch_npu.npu_fusion_attention_v2(*given, 4, "TND", scale=scale, **moved, **ends)
    close(out, joined([r[0] for r in results]), "out")
    found = torch_npu.npu_fusion_attention_grad_v2(
        *given, joined(dy).contiguous().npu(), 4, "TND", scale_value=scale, softmax_max=maximum, softmax_sum=total,
        attention_in=out, **moved, **ends,
    )  # fmt: skip
    expected = [joined(x) for x in gradients]
    for label, actual, wanted in zip(["dq", "dk", "dv"], found, expected, strict=False):
        close(actual, wanted[..., :size], label, 8)
    if rope:
        close(found[4], expected[0][..., size:], "dq_rope", 8)
        close(found[5], expected[1][..., size:], "dk_rope", 8)
    if sink_gradient is not None:
        close(found[6], sink_gradient, "dsink", rounding_of(dtype))


@pytest.mark.parametrize("offset", [0, 3])
def test_dropout_keeps_the_scores_whose_bit_is_set(offset):
    heads, queries, keys = 2, 5, 7
    query, dy = randn(2, heads, queries, 16), randn(2, heads, queries, 16, seed=4)
    key, value = randn(2, heads, keys, 16, seed=1), randn(2, heads, keys, 16, seed=2)
    bits = torch.randint(0, 2, (2 * heads * queries * keys + 4,), generator=torch.Generator().manual_seed(offset))
    mask = (bits.view(-1, 8) << torch.arange(8)).sum(1).to(torch.uint8)
    kept = bits[: 2 * heads * queries * keys].view(2, heads, queries, keys).double() / 0.5
    leaves = [x.double().requires_grad_() for x in (query, key, value)]
    expected = (leaves[0] @ leaves[1].mT * 0.3).softmax(-1).mul(kept) @ leaves[2]
    expected.backward(dy.double())
    attributes = [0.3, 0.5, ALL, ALL, heads, "BNSD", 0, 0]
    statistics = Out((2, heads, queries, 8))
    maximum, total, out = written_by(
        "aclnnFlashAttentionScore", query, key, value, None, mask, None, None, None, *attributes, statistics,
        statistics, None, Out(tuple(query.shape)),
    )  # fmt: skip
    close(out, expected, "out")
    found = written_by(
        "aclnnFlashAttentionScoreGrad", query, key, value, dy, None, mask, None, None, maximum, total, None, out, None,
        *attributes, *(Out(tuple(x.shape)) for x in (query, key, value)), None,
    )  # fmt: skip
    for actual, leaf in zip(found, leaves, strict=True):
        close(actual, leaf.grad, "gradient", 4)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sparse_mode": 5, "prefix": [1]}, "prefix has 1 elements; expected 2 with sparse_mode 5"),
        ({"sparse_mode": 6}, "prefix has 0 elements; expected 2 with sparse_mode 6"),
        ({"pse": randn(2, 4, 7, 8)}, r"real_shift has shape \[2, 4, 7, 8\]; expected \[2 or 1, 4, 7 or 1, 9\]"),
        ({"pse": randn(5), "pse_type": 2}, r"real_shift has shape \[5\]; expected \[4\]"),
        ({"pse_type": 4}, "pse_type is 4; expected 0 to 3"),
        ({"atten_mask": randn(7, 8) > 0}, r"atten_mask has shape \[7, 8\]; expected 7 queries and 9 keys"),
    ],
)
def test_what_does_not_fit_is_rejected(changes, message):
    query, key = randn(2, 4, 7, 16).npu(), randn(2, 2, 9, 16).npu()
    moved = {k: v.npu() if isinstance(v, torch.Tensor) else v for k, v in changes.items()}
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_fusion_attention_v2(query, key, key, 4, "BNSD", **moved)
        torch.npu.synchronize()


def ends_of(lengths):
    return torch.tensor(lengths).cumsum(0).tolist()


def like(*tensors):
    return [Out(tuple(x.shape), x.dtype) for x in tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_fourth_version_of_a_batch(dtype):
    options = {"sink": randn(4, seed=23), "pse": randn(2, 4, 7, 9, seed=21, dtype=dtype), "pse_type": 0}
    query, dy = randn(2, 4, 7, 24, dtype=dtype), randn(2, 4, 7, 16, seed=4, dtype=dtype)
    key, value = randn(2, 2, 9, 24, seed=1, dtype=dtype), randn(2, 2, 9, 16, seed=2, dtype=dtype)
    options |= {"sparse_mode": 3, "atten_mask": TRIANGLE}
    results, gradients, pse_gradient, sink_gradient = expected_of(query, key, value, dy, options, 0.3)
    (query, query_rope), (key, key_rope) = query.split([16, 8], 3), key.split([16, 8], 3)
    masks = [options["pse"], None, None, TRIANGLE]
    lists, scales = [None] * 5, [None] * 3  # prefix, two ends and two starts; those of 8-bit floats
    numbers = [0.3, 1.0, ALL, ALL, 4, "BNSD"]
    statistics = Out((2, 4, 7, 8))
    maximum, total, out = written_by(
        "aclnnFlashAttentionScoreV4", query, key, value, *masks, query_rope, key_rope, *scales, options["sink"], *lists,
        *numbers, 0, 3, 0, 0, "", 0, 0, statistics, statistics, None, *like(dy),
    )  # fmt: skip
    close(out, torch.stack([r[0] for r in results]), "out")
    close(maximum, torch.stack([r[1] for r in results]).expand(-1, -1, -1, 8), "maximum")
    close(total, torch.stack([r[2] for r in results]).expand(-1, -1, -1, 8), "sum", 10)
    found = written_by(
        "aclnnFlashAttentionScoreGradV4", query, key, value, dy, *masks, maximum, total, None, out, options["sink"],
        query_rope, key_rope, *scales, None, None, *lists, *numbers, "", 0, 3, 0, 0, 0, 0,
        *like(query, key, value, query_rope, key_rope, options["pse"], options["sink"]),
    )  # fmt: skip
    (dq, dq_rope), (dk, dk_rope) = (torch.stack(x).split([16, 8], 3) for x in gradients[:2])
    expected = {"dq": dq, "dk": dk, "dv": torch.stack(gradients[2]), "dq_rope": dq_rope, "dk_rope": dk_rope}
    expected["dpse"] = pse_gradient
    for actual, (label, wanted) in zip(found, expected.items(), strict=False):
        close(actual, wanted, label, 8)
    close(found[6], sink_gradient, "dsink", rounding_of(dtype))


@pytest.mark.parametrize("layout", ["", "same_as_input"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_fourth_version_of_sequences(dtype, layout):
    lengths, key_lengths = [3, 0, 37, 1], [3, 2, 40, 13]
    query, dy = ([randn(4, n, 16, seed=s + i, dtype=dtype) for i, n in enumerate(lengths)] for s in (0, 30))
    key, value = ([randn(2, n, 16, seed=s + i, dtype=dtype) for i, n in enumerate(key_lengths)] for s in (10, 20))
    results, gradients, *_ = expected_of(query, key, value, dy, {"sparse_mode": 3}, 0.3)

    def joined(parts):
        return torch.cat([x.transpose(0, 1) for x in parts])

    def statistics_of(parts):
        parts = [x.expand(-1, -1, 8) for x in parts]
        return torch.cat([x.flatten(0, 1) for x in parts]).view(-1, 4, 8) if layout == "" else joined(parts)

    query, key, value, dy = (joined(x).contiguous() for x in (query, key, value, dy))
    attributes = [None, ends_of(lengths), ends_of(key_lengths), 0.3, 1.0, ALL, ALL, 4, "TND", 0, 3]
    masks, statistics = [None, None, None, TRIANGLE], Out((sum(lengths), 4, 8))
    forward = written_by(
        "aclnnFlashAttentionVarLenScoreV4", query, key, value, *masks, *attributes, layout, statistics, statistics,
        None, *like(dy),
    )  # fmt: skip
    maximum, total, out = forward
    close(out, joined([r[0] for r in results]), "out")
    close(maximum, statistics_of([r[1] for r in results]), "maximum")
    close(total, statistics_of([r[2] for r in results]), "sum", 10)
    backward = written_by(
        "aclnnFlashAttentionUnpaddingScoreGradV4", query, key, value, dy, *masks, maximum, total, None, out,
        *attributes, *like(query, key, value), None, layout,
    )  # fmt: skip
    for label, actual, expected in zip(["dq", "dk", "dv"], backward, gradients, strict=True):
        close(actual, joined(expected), label, 8)

    # The versions for both kinds of batch, with the same ends.
    prefix, *ends = attributes[:3]
    numbers = attributes[3:9]
    again = written_by(
        "aclnnFlashAttentionScoreV4", query, key, value, *masks, *[None] * 6, prefix, *ends, None, None, *numbers, 0, 3,
        0, 1, layout, 0, 0, statistics, statistics, None, *like(dy),
    )  # fmt: skip
    assert all(map(torch.equal, again, forward))
    again = written_by(
        "aclnnFlashAttentionScoreGradV4", query, key, value, dy, *masks, maximum, total, None, out, *[None] * 8, prefix,
        *ends, None, None, *numbers, layout, 0, 3, 1, 0, 0, 0, *like(query, key, value), *[None] * 4,
    )  # fmt: skip
    assert all(map(torch.equal, again, backward))


def fourth_of_a_batch(scale=None, layout=""):
    x, statistics = randn(1, 2, 3, 16), Out((1, 2, 3, 8))
    return [
        "aclnnFlashAttentionScoreV4", x, x, x, *[None] * 6, scale, *[None] * 8, 0.3, 1.0, ALL, ALL, 2, "BNSD", 0, 0, 0,
        1, layout, 0, 0, statistics, statistics, None, *like(x),
    ]  # fmt: skip


def fourth_gradient_of_a_batch(scale=None, layout=""):
    x, statistics = randn(1, 2, 3, 16), randn(1, 2, 3, 8)
    return [
        "aclnnFlashAttentionScoreGradV4", x, x, x, x, *[None] * 4, statistics, statistics, None, x, *[None] * 6, scale,
        None, *[None] * 5, 0.3, 1.0, ALL, ALL, 2, "BNSD", layout, 0, 0, 1, 0, 0, 0, *like(x, x, x), *[None] * 4,
    ]  # fmt: skip


def fourth_of_sequences(ends, layout=""):
    x, statistics = randn(3, 2, 16), Out((3, 2, 8))
    attributes = [None, ends, [3], 0.3, 1.0, ALL, ALL, 2, "TND", 0, 0]
    return [
        "aclnnFlashAttentionVarLenScoreV4", x, x, x, *[None] * 4, *attributes, layout, statistics, statistics, None,
        *like(x),
    ]  # fmt: skip


def fourth_gradient_of_sequences(ends, layout=""):
    x, statistics = randn(3, 2, 16), randn(3, 2, 8)
    attributes = [None, ends, [3], 0.3, 1.0, ALL, ALL, 2, "TND", 0, 0]
    return [
        "aclnnFlashAttentionUnpaddingScoreGradV4", x, x, x, x, *[None] * 4, statistics, statistics, None, x,
        *attributes, *like(x, x, x), None, layout,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments, message",
    [
        (fourth_of_a_batch(scale=randn(1)), "dScaleQ"),
        (fourth_of_a_batch(layout="NTD"), 'the layout of the statistics is "NTD"; expected same_as_input'),
        (fourth_gradient_of_a_batch(scale=randn(1)), "dScaleDy"),
        (fourth_gradient_of_a_batch(layout="NTD"), 'the layout of the statistics is "NTD"; expected same_as_input'),
        (fourth_of_sequences([4]), r"actual_seq_q_len\[0\] is 4; expected 0 to 3"),
        (fourth_of_sequences([3], "NTD"), 'the layout of the statistics is "NTD"; expected same_as_input'),
        (fourth_gradient_of_sequences([4]), r"actual_seq_q_len\[0\] is 4; expected 0 to 3"),
        (fourth_gradient_of_sequences([3], "NTD"), 'the layout of the statistics is "NTD"; expected same_as_input'),
    ],
)
def test_what_the_fourth_versions_do_not_take_is_rejected(arguments, message):
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(*arguments)
