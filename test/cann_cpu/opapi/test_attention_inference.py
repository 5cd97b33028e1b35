# SPDX-License-Identifier: Apache-2.0
"""Attention of inference, against the formula in float64, sequence by sequence."""

import functools
import math

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, written_by

ALL = 2147483647
TRIANGLE = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1)
BLOCK = 16


def randn(*shape, seed=0, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def hidden_by_mode(mode, queries, keys, before, after):
    distance = torch.arange(keys)[None, :] - torch.arange(queries)[:, None]
    shift = {0: 0, 2: 0, 3: keys - queries, 4: keys - queries}[mode]
    hidden = distance > (after if mode in (0, 4) else 0) + shift
    return hidden | (distance < -before + shift) if mode in (0, 4) else hidden


def attention(query, key, value, scale, hidden=None, shift=None, sink=None):
    """(heads, tokens, size) each; the result, and the logarithm of the sum, infinite where nothing is seen."""
    query, key, value = query.double(), key.double(), value.double()
    shared = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(shared, 0), value.repeat_interleave(shared, 0)
    scores = query @ key.mT * scale
    if shift is not None:
        scores = scores + shift.double()
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    if sink is not None:
        scores = torch.cat([scores, sink.double()[:, None, None].expand(-1, query.shape[1], 1)], 2)
        value = torch.cat([value, torch.zeros_like(value[:, :1])], 1)
    sums = scores.logsumexp(2, keepdim=True)
    sees = torch.isfinite(sums)
    result = torch.where(sees, (scores - torch.where(sees, sums, 0)).exp(), 0) @ value
    return result, torch.where(sees, sums, math.inf)


def close(actual, expected, dtype=None):
    actual, tolerance = actual.cpu().double(), 2.0 * torch.finfo(dtype or actual.dtype).eps
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def close_sums(actual, expected):
    """Where ATen computes the attention, its exponential function has 20 bits."""
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=1e-4, atol=1e-4)


def laid_out(tensor, layout):
    """A tensor (batch, heads, tokens, size) in a layout."""
    order = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "NBSD": (1, 0, 2, 3)}
    if layout in order:
        result = tensor.permute(order[layout])
        return (result.flatten(2) if layout == "BSH" else result).contiguous()
    return (tensor[0] if layout in ("NTD", "NSD") else tensor[0].transpose(0, 1)).contiguous()


def paged(sequences, kind):
    """A cache with the sequences' pages in a random order, and the table of them."""
    heads, _, size = sequences[0].shape
    pages = [math.ceil(s.shape[1] / BLOCK) for s in sequences]
    order = torch.randperm(sum(pages) + 3, generator=torch.Generator().manual_seed(len(sequences)))
    cache = torch.full((len(order), heads, BLOCK, size), 77).to(sequences[0].dtype)
    table = torch.full((len(sequences), max(max(pages), 1)), -1, dtype=torch.int32)
    taken = iter(order.tolist())
    for i, sequence in enumerate(sequences):
        for j in range(pages[i]):
            part = sequence[:, j * BLOCK : (j + 1) * BLOCK]
            table[i, j] = page = next(taken)
            cache[page, :, : part.shape[1]] = part
    if kind == "BnBsH":
        cache = cache.transpose(1, 2).flatten(2)
    if kind == "NZ":
        part = 32 // cache.element_size()
        cache = cache.unflatten(3, (-1, part)).transpose(2, 3)
    return cache.contiguous(), table


def fused(query, key, value, layout, **options):
    tensors = {name: option.npu() if isinstance(option, torch.Tensor) else option for name, option in options.items()}
    return torch_npu.npu_fused_infer_attention_score(
        query.npu(), key.npu(), value.npu(), input_layout=layout, softmax_lse_flag=True, **tensors
    )


LAYOUTS = ["BSH", "BSND", "BNSD", "BNSD_BSND", "BSH_BNSD", "BSND_BNSD", "BSH_NBSD", "BSND_NBSD", "BNSD_NBSD"]
LENGTHS = [  # heads, heads of keys, queries, keys, size
    (8, 2, 5, 37, 64),
    (4, 4, 1, 129, 128),
    (32, 8, 33, 33, 128),
    (3, 1, 17, 530, 16),
    (6, 2, 150, 201, 64),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_in_a_layout(layout, lengths, dtype):
    heads, key_heads, queries, keys, size = lengths
    given, _, produced = layout.partition("_")
    query = randn(2, heads, queries, size, dtype=dtype)
    key, value = (randn(2, key_heads, keys, size, seed=seed, dtype=dtype) for seed in (1, 2))
    out, sums = fused(
        *(laid_out(x, given) for x in (query, key, value)),
        layout,
        num_heads=heads,
        num_key_value_heads=key_heads,
        scale=size**-0.5,
    )
    expected = [attention(*each, size**-0.5) for each in zip(query, key, value, strict=True)]
    close(out, laid_out(torch.stack([result for result, _ in expected]), produced or given))
    close_sums(sums, torch.stack([total for _, total in expected]))


MODES = {  # sparse_mode, pre_tokens, next_tokens
    "causal, from the first": (2, ALL, ALL),
    "causal, to the last": (3, ALL, 0),
    "band": (4, 5, 2),
    "window": (4, 3, 0),
}


@pytest.mark.parametrize("cache", [None, "BnBsH", "BnNBsD", "NZ"])
@pytest.mark.parametrize("layout", ["TND", "NTD", "TND_NTD", "NTD_TND"])
@pytest.mark.parametrize("mode", [None, *MODES])
def test_sequences_after_each_other(mode, layout, cache):
    heads, key_heads, size = 4, 2, 32
    queries, keys = [1, 0, 7, 135, 1], [BLOCK, 5, 8 * BLOCK + 1, 135, 0]
    query = randn(heads, sum(queries), size)
    key, value = (randn(key_heads, sum(keys), size, seed=seed) for seed in (1, 2))
    separate = [(x, x.split(n, 1)) for x, n in ((query, queries), (key, keys), (value, keys))]
    ends = [torch.tensor(n).cumsum(0).tolist() for n in (queries, keys)]
    given, _, produced = layout.partition("_")
    options = {"num_heads": heads, "num_key_value_heads": key_heads, "scale": 0.3, "actual_seq_lengths": ends[0]}
    if mode is not None:
        sparse, before, after = MODES[mode]
        options |= {"atten_mask": TRIANGLE, "sparse_mode": sparse, "pre_tokens": before, "next_tokens": after}
    if cache is None:
        tensors = [laid_out(x[None], given) for x in (key, value)]
        options["actual_seq_lengths_kv"] = ends[1]
    else:
        (key_cache, table), (value_cache, _) = (paged(separate[i][1], cache) for i in (1, 2))
        tensors = [key_cache, value_cache]
        options |= {"block_table": table, "block_size": BLOCK, "actual_seq_lengths_kv": keys}
    out, sums = fused(laid_out(query[None], given), *tensors, layout, **options)
    expected = []
    for q, k, v in zip(*(parts for _, parts in separate), strict=True):
        hidden = hidden_by_mode(sparse, q.shape[1], k.shape[1], before, after) if mode else None
        expected.append(attention(q, k, v, 0.3, hidden))
    close(out, laid_out(torch.cat([result for result, _ in expected], 1)[None], produced or given))
    close_sums(sums, torch.cat([total for _, total in expected], 1).transpose(0, 1))


@pytest.mark.parametrize("cache", ["BnBsH", "BnNBsD", "NZ"])
@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 3, 601])
def test_decode_from_pages(length, cache):
    keys = [length, 3, 2 * BLOCK]
    query = randn(3, 8, 1, 64, dtype=torch.bfloat16)
    sequences = [[randn(2, n, 64, seed=10 * i + n, dtype=torch.bfloat16) for n in keys] for i in (1, 2)]
    (key, table), (value, _) = (paged(s, cache) for s in sequences)
    out, sums = fused(
        laid_out(query, "BSND"),
        key,
        value,
        "BSND",
        num_heads=8,
        num_key_value_heads=2,
        scale=0.125,
        block_table=table,
        block_size=BLOCK,
        actual_seq_lengths_kv=keys,
    )
    expected = [attention(*each, 0.125) for each in zip(query, *sequences, strict=True)]
    close(out, laid_out(torch.stack([result for result, _ in expected]), "BSND"))
    close(sums, torch.stack([total for _, total in expected]))


@functools.cache
def small():
    return randn(2, 4, 6, 32), randn(2, 2, 9, 32, seed=1), randn(2, 2, 9, 32, seed=2)


def fused_small(query=None, key=None, value=None, layout="BNSD", **options):
    tensors = [given if given is not None else own for given, own in zip((query, key, value), small(), strict=True)]
    return fused(*tensors, layout, **({"num_heads": 4, "num_key_value_heads": 2, "scale": 0.2} | options))


MASK = randn(2, 1, 8, 11) > 0


@pytest.mark.parametrize(
    "mask, of_sequence",
    [
        (MASK[0, 0], lambda b: MASK[0, 0]),
        (MASK[:, 0], lambda b: MASK[b, 0]),
        (MASK[:1, 0], lambda b: MASK[0, 0]),
        (MASK, lambda b: MASK[b, 0]),
        (MASK[:1].to(torch.int8), lambda b: MASK[0, 0]),
    ],
    ids=["SS", "BSS", "1SS", "B1SS", "11SS, int8"],
)
@pytest.mark.parametrize("mode, before, after", [(0, ALL, ALL), (0, 3, 2), (1, 0, 0)])
def test_a_mask(mask, of_sequence, mode, before, after):
    out, _ = fused_small(atten_mask=mask, sparse_mode=mode, pre_tokens=before, next_tokens=after)
    expected = []
    for b, each in enumerate(zip(*small(), strict=True)):
        hidden = of_sequence(b)[:6, :9]
        if mode == 0:
            hidden = hidden | hidden_by_mode(0, 6, 9, before, after)
        expected.append(attention(*each, 0.2, hidden)[0])
    close(out, torch.stack(expected))


def test_lengths_padding_a_shift_and_sinks():
    shift, sink = randn(2, 4, 8, 12, seed=5), randn(4, seed=6).float()
    lengths, keys = [4, 6], [9, 7]
    out, sums = fused_small(pse_shift=shift, actual_seq_lengths=lengths, actual_seq_lengths_kv=keys)
    for b in range(2):
        q, k = lengths[b], keys[b]
        query, key, value = (x[b, :, :n] for x, n in zip(small(), (q, k, k), strict=True))
        expected, total = attention(query, key, value, 0.2, shift=shift[b, :, :q, :k])
        close(out[b, :, :q], expected)
        close(sums[b, :, :q], total)
        assert not out[b, :, q:].cpu().any() and torch.isinf(sums[b, :, q:].cpu()).all()
    out, _ = fused_small(
        actual_seq_lengths=lengths,
        actual_seq_lengths_kv=[7, 7],
        query_padding_size=torch.tensor([1, 0]),
        kv_padding_size=torch.tensor([2, 0]),
    )
    for b, (first, last, key_first) in enumerate([(1, 5, 0), (0, 6, 2)]):
        query, key, value = small()[0][b, :, first:last], *(x[b, :, key_first : key_first + 7] for x in small()[1:])
        close(out[b, :, first:last], attention(query, key, value, 0.2)[0])
    out, sums = torch_npu.npu_fused_infer_attention_score_v2(
        *(x.npu() for x in small()),
        learnable_sink=sink.npu(),
        num_query_heads=4,
        num_key_value_heads=2,
        softmax_scale=0.2,
        input_layout="BNSD",
        return_softmax_lse=True,
    )
    expected = [attention(*each, 0.2, sink=sink) for each in zip(*small(), strict=True)]
    close(out, torch.stack([result for result, _ in expected]))
    close(sums, torch.stack([total for _, total in expected]))


def test_a_shared_prefix():
    prefix = [randn(1, 2, 5, 32, seed=seed) for seed in (7, 8)]
    out, _ = fused_small(
        key_shared_prefix=prefix[0], value_shared_prefix=prefix[1], actual_shared_prefix_len=[3], sparse_mode=3,
        atten_mask=TRIANGLE,
    )  # fmt: skip
    query, key, value = small()
    key, value = (
        torch.cat([p[:, :, :3].expand(2, -1, -1, -1), x], 2) for p, x in zip(prefix, (key, value), strict=True)
    )
    hidden = hidden_by_mode(3, 6, 12, ALL, 0)
    close(out, torch.stack([attention(*each, 0.2, hidden)[0] for each in zip(query, key, value, strict=True)]))


def latent_attention(query, rope, pages, table, lengths, layout, **options):
    """Of queries in two parts to one head; `pages` are those of keys, values and the rotary parts of keys."""
    key, value, key_rope = pages
    return fused(
        laid_out(query, layout),
        key,
        value,
        layout,
        query_rope=laid_out(rope, layout),
        key_rope=key_rope,
        num_heads=query.shape[1],
        num_key_value_heads=1,
        scale=0.05,
        block_table=table,
        block_size=BLOCK,
        actual_seq_lengths_kv=lengths,
        **options,
    )


@pytest.mark.parametrize("layout, lengths", [("BSND", None), ("BNSD", None), ("TND", [2, 5])])
@pytest.mark.parametrize("cache", ["BnBsH", "NZ"])
def test_latent_attention_has_a_rotary_part(cache, layout, lengths):
    """As DeepSeek's decode: one head of keys, 512 elements that are values as well, and 64 rotary ones."""
    query, rope = randn(2, 16, 1, 512, dtype=torch.bfloat16), randn(2, 16, 1, 64, seed=1, dtype=torch.bfloat16)
    if lengths:
        query, rope = (randn(1, 16, 5, size, seed=size, dtype=torch.bfloat16) for size in (512, 64))
    latent = [randn(1, n, 512, seed=n, dtype=torch.bfloat16) for n in (19, 40)]
    key_rope = [randn(1, n, 64, seed=n + 1, dtype=torch.bfloat16) for n in (19, 40)]
    (cached, table), (cached_rope, _) = paged(latent, cache), paged(key_rope, cache)
    options = {"sparse_mode": 3, "atten_mask": TRIANGLE, "actual_seq_lengths": lengths} if lengths else {}
    out, _ = latent_attention(query, rope, (cached, cached, cached_rope), table, [19, 40], layout, **options)
    joined = torch.cat([query, rope], 3)
    queries = joined[0].split([2, 3], 1) if lengths else joined
    expected = []
    for q, k, r in zip(queries, latent, key_rope, strict=True):
        hidden = hidden_by_mode(3, q.shape[1], k.shape[1], ALL, 0)
        expected.append(attention(q, torch.cat([k, r], 2), k, 0.05, hidden)[0])
    close(out, laid_out(torch.cat(expected, 1)[None] if lengths else torch.stack(expected), layout))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("values_are_keys", [True, False])
def test_one_query_of_many_heads_to_a_key(values_are_keys, dtype):
    """Where there are products of a half type they are computed together, some keys at a time."""
    lengths = [19, 2048, 2049, 4500]
    query, rope = (randn(4, 128, 1, size, seed=size, dtype=dtype) for size in (512, 64))
    latent = [randn(1, n, 512, seed=n, dtype=dtype) for n in lengths]
    key_rope = [randn(1, n, 64, seed=n + 1, dtype=dtype) for n in lengths]
    values = latent if values_are_keys else [randn(1, n, 512, seed=n + 2, dtype=dtype) for n in lengths]
    (key, table), (value, _), (key_rope_pages, _) = (paged(each, "BnBsH") for each in (latent, values, key_rope))
    pages = key, key if values_are_keys else value, key_rope_pages
    out, log_sum = latent_attention(query, rope, pages, table, lengths, "BNSD")
    joined = torch.cat([query, rope], 3)
    for i, (k, r, v) in enumerate(zip(latent, key_rope, values, strict=True)):
        expected, expected_log_sum = attention(joined[i], torch.cat([k, r], 2), v, 0.05)
        close(out[i], expected, dtype)
        close_sums(log_sum[i], expected_log_sum)


def quantized_keys(*shape, seed):
    return torch.randint(-128, 128, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8)


SCALES = {  # mode: the shape of a scale, as it broadcasts to (batch, heads, tokens, size), and as it is given
    "tensor": (0, (1, 1, 1, 1), (1,)),
    "channel": (0, (1, 2, 1, 32), (1, 2, 1, 32)),
    "channel, flat": (0, (1, 2, 1, 32), (1, 64)),
    "token": (1, (2, 1, 9, 1), (1, 2, 9)),
    "head": (2, (1, 2, 1, 1), (2,)),
    "token and head": (3, (2, 2, 9, 1), (1, 2, 2, 9)),
}


@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("kind", SCALES)
def test_quantised_keys(kind, with_offset):
    mode, broadcast, given = SCALES[kind]
    key, value = (quantized_keys(2, 2, 9, 32, seed=seed) for seed in (1, 2))
    dtype = torch.float32 if mode in (1, 3) else torch.float16
    scales = [(randn(*broadcast, seed=seed).abs().float() / 64 + 0.001).to(dtype) for seed in (3, 4)]
    offsets = [(randn(*broadcast, seed=seed) * 9).to(dtype) for seed in (5, 6)]
    options = {
        "key_antiquant_scale": scales[0].reshape(given),
        "value_antiquant_scale": scales[1].reshape(given),
        "key_antiquant_mode": mode,
        "value_antiquant_mode": mode,
    }
    if with_offset:
        options |= {
            "key_antiquant_offset": offsets[0].reshape(given),
            "value_antiquant_offset": offsets[1].reshape(given),
        }
    out, _ = fused_small(key=key, value=value, **options)
    key, value = (
        (x.double() + (o.double() if with_offset else 0)) * s.double()
        for x, s, o in zip((key, value), scales, offsets, strict=True)
    )
    close(out, torch.stack([attention(*each, 0.2)[0] for each in zip(small()[0], key, value, strict=True)]))


def test_keys_quantised_together_and_in_four_bits():
    key, value = (quantized_keys(2, 2, 9, 32, seed=seed) for seed in (1, 2))
    scale, offset = randn(2, 2, 1, 32).abs() / 64, randn(2, 2, 1, 32, seed=1) * 9
    out, _ = fused_small(key=key, value=value, antiquant_scale=scale, antiquant_offset=offset)
    real = [(x.double() + o.double()) * s.double() for x, s, o in zip((key, value), scale, offset, strict=True)]
    close(out, torch.stack([attention(*each, 0.2)[0] for each in zip(small()[0], *real, strict=True)]))
    small_key, small_value = (x // 16 for x in (key, value))  # -8 to 7
    packed = [
        ((x.int() & 15).unflatten(-1, (4, 8)) << (4 * torch.arange(8, dtype=torch.int32))).sum(-1).to(torch.int32)
        for x in (small_key, small_value)
    ]
    options = {"antiquant_scale": scale, "antiquant_offset": offset}
    out, _ = fused_small(key=packed[0], value=packed[1], **options)
    real = [
        (x.double() + o.double()) * s.double() for x, s, o in zip((small_key, small_value), scale, offset, strict=True)
    ]
    close(out, torch.stack([attention(*each, 0.2)[0] for each in zip(small()[0], *real, strict=True)]))


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("offset", [None, 3.0])
def test_a_quantised_result(channels, offset):
    scale = randn(4, 32, seed=9).abs().float() * 50 + 1 if channels else torch.tensor([40.0])
    shift = None if offset is None else torch.full_like(scale, offset)
    out, _ = fused_small(quant_scale2=scale, quant_offset2=shift)
    expected = torch.stack([attention(*each, 0.2)[0] for each in zip(*small(), strict=True)])
    exact = expected * (scale.double()[:, None, :] if channels else 40) + (offset or 0)
    assert out.dtype == torch.int8
    difference = (out.cpu().double() - exact.round().clamp(-128, 127)).abs()
    near_a_tie = ((exact - exact.floor()) - 0.5).abs() < 1e-4
    assert (difference[~near_a_tie] == 0).all() and difference.max() <= 1


def test_all_in_eight_bits():
    query, key, value = (quantized_keys(1, 2, 6, 32, seed=seed) for seed in (1, 2, 3))
    scales = {name: torch.tensor([number]) for name, number in
              (("dequant_scale1", 2e-4), ("quant_scale1", 127.0), ("dequant_scale2", 1e-3))}  # fmt: skip
    out, _ = fused(query, key, value, "BNSD", num_heads=2, scale=0.5, **scales)
    scores = (query[0].double() @ key[0].double().mT) * 2e-4 * 0.5
    weights = (scores - scores.amax(2, keepdim=True)).exp()
    rounded = (weights * 127).round()
    assert out.dtype == torch.float16
    close(out[0], rounded @ value[0].double() * 1e-3 / weights.sum(2, keepdim=True))


def test_latent_attention_in_eight_bits():
    query, latent = quantized_keys(2, 16, 1, 64, seed=1), [quantized_keys(1, n, 64, seed=n) for n in (19, 40)]
    rope, key_rope = (
        randn(2, 16, 1, 64, dtype=torch.bfloat16),
        [randn(1, n, 64, dtype=torch.bfloat16) for n in (19, 40)],
    )
    (cached, table), (cached_rope, _) = paged(latent, "NZ"), paged(key_rope, "NZ")
    query_scale, scale = randn(2, 1, 16, seed=3).abs().float() / 64, torch.tensor([0.01])
    out, _ = torch_npu.npu_fused_infer_attention_score_v2(
        laid_out(query, "BSND").npu(),
        cached.npu(),
        cached.npu(),
        query_rope=laid_out(rope, "BSND").npu(),
        key_rope=cached_rope.npu(),
        block_table=table.npu(),
        block_size=BLOCK,
        dequant_scale_query=query_scale.npu(),
        dequant_scale_key=scale.npu(),
        dequant_scale_value=scale.npu(),
        query_quant_mode=3,
        num_query_heads=16,
        num_key_value_heads=1,
        softmax_scale=0.1,
        input_layout="BSND",
        actual_seq_kvlen=[19, 40],
    )
    real = query.double() * query_scale.transpose(1, 2)[..., None].double()
    expected = [
        attention(
            torch.cat([q, r.double()], 2), torch.cat([k.double() * 0.01, kr.double()], 2), k.double() * 0.01, 0.1
        )[0]
        for q, r, k, kr in zip(real, rope, latent, key_rope, strict=True)
    ]
    close(out, laid_out(torch.stack(expected), "BSND"))


def test_outputs_given_and_their_workspace():
    query, key, value = (x.npu() for x in small())
    options = {"num_heads": 4, "num_key_value_heads": 2, "scale": 0.2, "input_layout": "BNSD"}
    expected = torch_npu.npu_fused_infer_attention_score(query, key, value, softmax_lse_flag=True, **options)
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(query, key, value, **options)
    out = torch.empty_like(query), torch.empty(2, 4, 6, 1, device="npu")
    torch_npu.npu_fused_infer_attention_score.out(
        query, key, value, softmax_lse_flag=True, workspace=workspace, out=list(out), **options
    )
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(out, expected, strict=True))
    meta = torch_npu.npu_fused_infer_attention_score(*(x.to("meta") for x in small()), softmax_lse_flag=True, **options)
    assert [(x.shape, x.dtype) for x in meta] == [(x.shape, x.dtype) for x in expected]


def test_log_sums_are_float32_and_what_is_given_without_them_stays():
    query, key, value = (x.npu() for x in small())
    options = {"num_heads": 4, "num_key_value_heads": 2, "scale": 0.2, "input_layout": "BNSD"}
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(query, key, value, **options)
    unused = torch.full((1,), 7, dtype=torch.float16, device="npu")  # as vllm-ascend's graphs give it
    call = functools.partial(
        torch_npu.npu_fused_infer_attention_score.out, query, key, value, workspace=workspace, **options
    )
    out = torch.empty_like(query)
    call(out=[out, unused])
    assert torch.equal(out.cpu(), torch_npu.npu_fused_infer_attention_score(query, key, value, **options)[0].cpu())
    assert unused.item() == 7
    with pytest.raises(RuntimeError, match="softmax_lse has dtype Half; expected float32 with softmax_lse_flag"):
        call(softmax_lse_flag=True, out=[out, torch.empty(2, 4, 6, 1, dtype=torch.float16, device="npu")])


def test_the_same_bits_whole_and_in_pages():
    keys = [40, 601]
    query = randn(2, 8, 1, 64, dtype=torch.bfloat16)
    sequences = [[randn(2, n, 64, seed=10 * i + n, dtype=torch.bfloat16) for n in keys] for i in (1, 2)]
    (key, table), (value, _) = (paged(s, "BnNBsD") for s in sequences)
    options = {"num_heads": 8, "num_key_value_heads": 2, "scale": 0.125, "actual_seq_lengths_kv": keys}
    first, _ = fused(query, key, value, "BNSD", block_table=table, block_size=BLOCK, **options)
    whole = [torch.stack([torch.nn.functional.pad(x, (0, 0, 0, 601 - x.shape[1])) for x in s]) for s in sequences]
    assert torch.equal(first.cpu(), fused(query, *whole, "BNSD", **options)[0].cpu())


def test_the_functions_for_prompts_and_for_single_queries():
    query, key, value = (x.npu() for x in small())
    options = {"num_heads": 4, "num_key_value_heads": 2, "scale_value": 0.2, "input_layout": "BNSD"}
    prompt = torch_npu.npu_prompt_flash_attention(
        query, key, value, atten_mask=TRIANGLE.npu(), sparse_mode=3, actual_seq_lengths=[6, 2], **options
    )
    expected, _ = fused_small(atten_mask=TRIANGLE, sparse_mode=3, actual_seq_lengths=[6, 2])
    assert torch.equal(prompt.cpu(), expected.cpu())
    single = torch_npu.npu_incre_flash_attention(
        query[:, :, :1].contiguous(), key, value, actual_seq_lengths=[9, 4], **options
    )
    expected, _ = fused_small(query=small()[0][:, :, :1].contiguous(), actual_seq_lengths_kv=[9, 4])
    assert torch.equal(single.cpu(), expected.cpu())


PAGED = {
    "block_table": torch.zeros(2, 1, dtype=torch.int32),
    "block_size": BLOCK,
    "actual_seq_lengths_kv": [9, 9],
    "key": randn(3, 2, BLOCK, 32),
    "value": randn(3, 2, BLOCK, 32),
}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"layout": "SBH"}, "layout only support"),
        ({"num_key_value_heads": 3}, "num_heads is 4, which num_key_value_heads, 3, does not divide"),
        ({"num_heads": 3, "num_key_value_heads": 1}, r"query has shape \[2, 4, 6, 32\].*expected num_heads, 3"),
        ({"num_key_value_heads": 1}, r"key has shape \[2, 2, 9, 32\]; expected num_key_value_heads, 1"),
        ({"sparse_mode": 5}, "sparse_mode is 5; expected 0 to 4"),
        ({"sparse_mode": 3}, r"atten_mask is null; expected \[2048, 2048\] with sparse_mode 3"),
        ({"sparse_mode": 2, "atten_mask": MASK}, r"atten_mask has shape \[2, 1, 8, 11\]; expected \[2048, 2048\]"),
        ({"sparse_mode": 1}, "atten_mask is null; expected a tensor with sparse_mode 1"),
        ({"atten_mask": MASK[..., :8]}, r"atten_mask has shape \[2, 1, 8, 8\]; expected 6 queries and 9 keys"),
        ({"atten_mask": MASK.float()}, "atten_mask has dtype float32; expected bool, int8 or uint8"),
        ({"actual_seq_lengths": [7, 1]}, r"actual_seq_lengths\[0\] is 7; expected 0 to 6"),
        ({"actual_seq_lengths_kv": [9, 10]}, r"actual_seq_lengths_kv\[1\] is 10; expected 0 to 9"),
        ({"actual_seq_lengths_kv": [1, -1]}, r"actual_seq_lengths_kv\[1\] is -1; expected 0 to 9"),
        (PAGED | {"actual_seq_lengths_kv": None}, "actual_seq_lengths_kv is null; expected a list with block_table"),
        (PAGED | {"block_size": 32}, "block_size is 32; key has shape .*, which is of blocks of 16"),
        (PAGED | {"block_table": torch.tensor([[0], [3]]).int()}, r"block_table\[1, 0\] is 3; expected 0 to 2"),
        (PAGED | {"block_table": torch.tensor([[-1], [0]]).int()}, r"block_table\[0, 0\] is -1; expected 0 to 2"),
        (PAGED | {"kv_padding_size": torch.tensor([0])}, "kv_padding_size is not served with block_table"),
        ({"pse_shift": randn(2, 4, 6, 8)}, r"pse_shift has shape \[2, 4, 6, 8\]; expected \[2 or 1, 4, 6, 9\]"),
        ({"key": quantized_keys(2, 2, 9, 32, seed=1), "value": quantized_keys(2, 2, 9, 32, seed=1)},
         "key_antiquant_scale is null; expected a tensor; key has dtype"),
        ({"key": randn(2, 2, 9, 32, dtype=torch.bfloat16)}, "dtype"),
        ({"dequant_scale1": torch.ones(1)}, "deq_scale1, quant_scale1 and deq_scale2 are for an int8 query"),
        ({"quant_scale2": torch.ones(5)}, r"quant_scale2 has shape \[5\]; expected 1 or 128 elements"),
        ({"query_rope": randn(2, 4, 6, 64)}, "key_rope is null"),
        ({"key_shared_prefix": randn(1, 2, 5, 32)}, "key_shared_prefix and value_shared_prefix must be given together"),
        ({"query_padding_size": torch.tensor([9]), "actual_seq_lengths": [6, 6]},
         r"query_padding_size\[0\] is 9; expected at most 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_rejected(options, message):
    with pytest.raises(RuntimeError, match=message):
        fused_small(**options)
        torch.npu.synchronize()


FUSED_V1 = [None] * 15


@pytest.mark.parametrize("version", ["", "V2", "V5"])
def test_versions_are_argument_lists(version):
    query, key, value = small()
    out = Out((2, 4, 6, 32), torch.float16)
    optional = {"": 14, "V2": 21, "V5": 28}[version]
    modes = {"": [], "V2": [0, 0], "V5": [0, 0, 0, 0]}[version]
    attributes = [4, 0.2, ALL, ALL, "BNSD", 2, 0, 0, 0, 0, 0]
    arguments = [query, [key.npu()], [value.npu()], *[None] * optional, *attributes, *modes, out, None]
    (result,) = written_by(f"aclnnFusedInferAttentionScore{version}", *arguments)
    assert torch.equal(result, fused_small()[0].cpu())


def test_a_key_for_each_sequence():
    query, key, value = small()
    lists = [
        [x[:1, :, :n].contiguous().npu() for x, n in zip(t, (9, 9), strict=False)]
        for t in ((key, key[1:]), (value, value[1:]))
    ]
    arguments = [query, *lists, *[None] * 14, 4, 0.2, ALL, ALL, "BNSD", 2, 0, 0, 0, 0, 0]
    (result,) = written_by("aclnnFusedInferAttentionScore", *arguments, Out((2, 4, 6, 32), torch.float16), None)
    assert torch.equal(result, fused_small()[0].cpu())
    with pytest.raises(Rejected, match="key has 1 sequences; expected 2, as query"):
        short = [[x[:1].npu()] for x in (key, value)]
        written_by(
            "aclnnFusedInferAttentionScore", query, *short, *arguments[3:], Out((2, 4, 6, 32), torch.float16), None
        )
