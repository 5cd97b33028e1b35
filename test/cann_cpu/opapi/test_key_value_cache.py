# SPDX-License-Identifier: Apache-2.0
"""Writes to caches of keys and values, and gathers from them, against loops over tokens."""

import pytest
import torch
import torch_npu
from aclnn import InOut, Rejected, written_by

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.int8]


def numbers(*shape, seed=0, dtype=torch.float16):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 40).to(dtype)


def order(count, slots, seed=0):
    return torch.randperm(slots, generator=torch.Generator().manual_seed(seed))[:count].int()


def in_parts(cache):
    """A cache (pages, tokens, heads, size) as PA_NZ has it."""
    part = 32 // cache.element_size()
    return cache.flatten(2).unflatten(2, (-1, part)).transpose(1, 2).contiguous()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tokens", [1, 7, 40])
@pytest.mark.parametrize("mode", ["Norm", "PA_NZ", "PA_NZ by head"])
def test_tokens_go_to_their_slots(mode, tokens, dtype):
    pages, block, heads, sizes = 5, 16, 2, (64, 32)
    inputs = [numbers(tokens, heads, size, seed=size, dtype=dtype) for size in sizes]
    caches = [numbers(pages, block, heads, size, seed=size + 1, dtype=dtype) for size in sizes]
    slots = order(tokens, pages * block)
    slots[-1] = slots[-1] if tokens == 1 else -1  # a padded token
    given = [cache if mode == "Norm" else in_parts(cache) for cache in caches]
    if mode == "PA_NZ by head":
        given = [x.unflatten(1, (heads, -1)) for x in given]
    on_npu = [x.npu() for x in given]
    torch_npu.npu_scatter_pa_kv_cache(*(x.npu() for x in inputs), *on_npu, slots.npu(), cache_mode=mode[:5].strip())
    for cache, rows, written in zip(caches, inputs, on_npu, strict=True):
        expected = cache.clone()
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                expected[slot // block, slot % block] = rows[token]
        expected = expected if mode == "Norm" else in_parts(expected).view(written.shape)
        assert torch.equal(written.cpu(), expected)
    functional = torch_npu.npu_scatter_pa_kv_cache_functional(
        *(x.npu() for x in inputs), *(x.npu() for x in given), slots.npu(), cache_mode=mode[:5].strip()
    )
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(functional, on_npu, strict=True))


def test_caches_with_heads_first_and_strided_keys():
    cache, keys, slots = numbers(3, 2, 16, 8), numbers(5, 2, 16, seed=1)[..., ::2], order(5, 48)
    written = [cache.clone().npu(), cache.clone().npu()]
    arguments = [keys.npu(), written[0], slots.npu(), keys.npu(), written[1], None, None, None, "Norm", "NHSD", [1, 1]]
    written_by("aclnnScatterPaKvCache", keys.npu(), InOut(cache), slots, keys, InOut(cache), *arguments[5:], [0, 0])
    result = written_by("aclnnScatterPaKvCache", keys, InOut(cache), slots, keys, InOut(cache), *arguments[5:], [0, 0])
    expected = cache.clone()
    for token, slot in enumerate(slots.tolist()):
        expected[slot // 16, :, slot % 16] = keys[token]
    assert all(torch.equal(x, expected) for x in result)


def scattered(**changes):
    arguments = {
        "key": numbers(2, 1, 32),
        "value": numbers(2, 1, 32),
        "key_cache": numbers(2, 16, 1, 32),
        "value_cache": numbers(2, 16, 1, 32),
        "slot_mapping": torch.tensor([3, 31], dtype=torch.int32),
        "cache_mode": "Norm",
    } | changes
    moved = {name: x.npu() if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
    torch_npu.npu_scatter_pa_kv_cache(**moved)
    torch.npu.synchronize()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"slot_mapping": torch.tensor([3, 32]).int()}, r"slot_mapping\[1\] is 32; expected 0 to 31, or -1"),
        ({"slot_mapping": torch.tensor([-2, 3]).int()}, r"slot_mapping\[0\] is -2; expected 0 to 31, or -1"),
        ({"slot_mapping": torch.tensor([3]).int()}, r"key has shape \[2, 1, 32\]; expected \[1\] tokens of 32"),
        ({"key": numbers(2, 1, 16)}, r"key has shape \[2, 1, 16\]; expected \[2\] tokens of 32"),
        ({"key": numbers(2, 1, 32).float()}, "key_cache has dtype float16; expected float32, as key"),
        ({"cache_mode": "Other"}, 'cache_mode is "Other"; expected Norm or PA_NZ'),
        ({"cache_mode": "PA_NZ"}, r"key_cache has shape \[2, 16, 1, 32\]; expected 32 bytes in the last dimension"),
        ({"compress_lens": torch.zeros(2).int()}, "compress_lens"),
    ],
)
def test_writes_that_do_not_fit_are_rejected(changes, message):
    with pytest.raises(RuntimeError, match=message):
        scattered(**changes)


def test_a_rejected_write_leaves_the_cache():
    cache = numbers(2, 16, 1, 32).npu()
    with pytest.raises(RuntimeError, match="slot_mapping"):
        scattered(key_cache=cache, slot_mapping=torch.tensor([3, 99], dtype=torch.int32))
    assert torch.equal(cache.cpu(), numbers(2, 16, 1, 32))


@pytest.mark.parametrize("compressed", [None, "mean", "last"])
def test_a_cache_of_keys(compressed):
    if compressed is None:
        key, cache, slots = numbers(5, 2, 8), numbers(3, 4, 2, 8, seed=1), order(5, 12)
        on_npu = cache.npu()
        torch_npu.npu_scatter_pa_cache(key.npu(), slots.npu(), key_cache=on_npu)
        expected = cache.clone()
        expected.flatten(0, 1)[slots.long()] = key
        assert torch.equal(on_npu.cpu(), expected)
        return
    key, cache = numbers(2, 6, 2, 8), numbers(10, 4, 1, 8, seed=1)
    slots, lens, ends = torch.tensor([[0, 9], [17, 30]]), torch.tensor([[2, 3], [0, 4]]), torch.tensor([6, 5])
    offsets = torch.tensor([1, 0, 3, 1]) if compressed == "mean" else None
    on_npu = cache.npu()
    given = [x.int().npu() if x is not None else None for x in (lens, offsets, ends)]
    torch_npu.npu_scatter_pa_cache(
        key.npu(), slots.int().npu(), compress_lens=given[0], compress_seq_offsets=given[1], seq_lens=given[2],
        key_cache=on_npu,
    )  # fmt: skip
    expected = cache.clone()
    for b in range(2):
        for head in range(2):
            rows, length, end = key[b, :, head], int(lens[b, head]), int(ends[b])
            if compressed == "last":
                rows = rows[end - length : end]
            else:
                start = int(offsets[2 * b + head])
                mean = rows[start : start + length].double().mean(0, keepdim=True).half() if length else rows[:0]
                rows = torch.cat([rows[:start], mean, rows[start + length : end]])
            expected.flatten(0, 2)[int(slots[b, head]) :][: len(rows)] = rows
    torch.testing.assert_close(on_npu.cpu(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("with_offset", [False, True])
def test_pages_are_gathered(dtype, cumulative, with_offset):
    caches = [numbers(6, 16, 2, size, seed=size, dtype=dtype) for size in (24, 16)]
    table = torch.tensor([[5, 0, 3], [1, 1, 2], [4, -1, -1]], dtype=torch.int32)
    lengths, offsets = [17, 0, 16] if with_offset else [33, 5, 16], [16, 40, 0]
    ends = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    out = [torch.zeros(sum(lengths), 2, size, dtype=dtype, device="npu") for size in (24, 16)]
    torch_npu.npu_gather_pa_kv_cache(
        *(x.npu() for x in caches), table.npu(), torch.tensor(ends if cumulative else lengths).int().npu(), *out,
        seq_offset=torch.tensor(offsets).int().npu() if with_offset else None, is_seq_lens_cumsum=cumulative,
    )  # fmt: skip
    for cache, gathered in zip(caches, out, strict=True):
        rows = []
        for b, length in enumerate(lengths):
            first = offsets[b] // 16 if with_offset else 0
            rows += [cache[table[b, first + i // 16], i % 16] for i in range(length)]
        assert torch.equal(gathered.cpu(), torch.stack(rows))
    functional = torch_npu.npu_gather_pa_kv_cache_functional(
        *(x.npu() for x in caches), table.npu(), torch.tensor(ends if cumulative else lengths).int().npu(),
        *map(torch.zeros_like, out),
        seq_offset=torch.tensor(offsets).int().npu() if with_offset else None, is_seq_lens_cumsum=cumulative,
    )  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(functional, out, strict=True))


def test_pages_in_parts_are_gathered():
    cache, table, lengths = numbers(4, 16, 2, 32), torch.tensor([[3, 1]]), torch.tensor([19])
    written = written_by(
        "aclnnGatherPaKvCache", in_parts(cache), in_parts(cache), table, lengths,
        *[InOut(torch.zeros(19, 64).half())] * 2, None, "PA_NZ", False,
    )  # fmt: skip
    expected = torch.cat([cache[3], cache[1, :3]]).flatten(1)
    assert all(torch.equal(x, expected) for x in written)


@pytest.mark.parametrize(
    "table, lengths, message",
    [
        ([[0, 6]], [17], r"block_tables\[0, 1\] is 6; expected 0 to 5"),
        ([[0, 1]], [33], r"seq_lens\[0\] is 33; expected 0 to 32"),
        ([[0, 1], [0, 1]], [10, 31], "seq_lens add up to 41; expected at most 40"),
        ([[0, 1]], [1, 2], r"seq_lens has shape \[2\]; expected \[1\]"),
    ],
)
def test_gathers_that_do_not_fit_are_rejected(table, lengths, message):
    cache, out = numbers(6, 16, 1, 16), InOut(torch.zeros(40, 1, 16).half())
    with pytest.raises((RuntimeError, Rejected), match=message):
        written_by(
            "aclnnGatherPaKvCache",
            cache,
            cache,
            torch.tensor(table),
            torch.tensor(lengths),
            out,
            out,
            None,
            "Norm",
            False,
        )


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_quantised_updates(dtype, pairs, zero_points):
    cache, updates = numbers(4, 9, 3, 32, dtype=torch.int8), numbers(2, 2, 3, 32, seed=1, dtype=dtype)
    scale_type = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
    scales = (numbers(32, seed=2).float().abs() / 40 + 0.5).to(scale_type)
    points = torch.arange(32).to(torch.bfloat16 if dtype == torch.bfloat16 else torch.int32) if zero_points else None
    indices = torch.tensor([[3, 1], [0, 7]] if pairs else [5, 0], dtype=torch.int32)
    given = (indices.npu(), updates.npu(), scales.npu(), points.npu() if zero_points else None)
    result = torch_npu.npu_quant_scatter(cache.npu(), *given, axis=1, quant_axis=-1, reduce="update")
    in_place = cache.npu()
    torch_npu.npu_quant_scatter_(in_place, *given, axis=1, quant_axis=-1, reduce="update")
    expected = cache.clone()
    for i in range(2):
        row, first = indices[i].tolist() if pairs else (i, int(indices[i]))
        values = updates[i].float() / scales.float() + (points.float() if zero_points else 0)
        expected[row, first : first + 2] = values.round().clamp(-128, 127).to(torch.int8)
    assert torch.equal(result.cpu(), expected) and torch.equal(in_place.cpu(), expected)


def test_quantised_updates_outside_are_rejected():
    arguments = [numbers(1, 2, 3, 32), torch.ones(32), None, 1, -1, 1]
    with pytest.raises((RuntimeError, Rejected), match=r"indices\[0\] is 8; expected 0 to 7"):
        written_by(
            "aclnnInplaceQuantScatter", InOut(numbers(4, 9, 3, 32, dtype=torch.int8)), torch.tensor([8]), *arguments
        )
    with pytest.raises(Rejected, match='round_mode is "floor"; expected rint'):
        cache = InOut(numbers(4, 9, 3, 32, dtype=torch.int8))
        written_by("aclnnInplaceQuantScatterV2", cache, torch.tensor([1]), *arguments, "floor")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ranges", [False, True])
def test_updates_of_a_list(ranges, masked):
    tensors, updates = [numbers(4, 9, 16, seed=i) for i in range(3)], numbers(3, 4, 2, 16, seed=9)
    indices = torch.tensor([[7, 2], [0, 1], [4, 0]] if ranges else [7, 0, 3])
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8) if masked else None
    given = (indices.npu(), updates.npu(), mask.npu() if masked else None)
    result = torch_npu.npu_scatter_list([x.npu() for x in tensors], *given, reduce="update", axis=-2)
    in_place = [x.npu() for x in tensors]
    torch_npu.npu_scatter_list_(in_place, *given, reduce="update", axis=-2)
    for i, tensor in enumerate(tensors):
        expected, (first, length) = tensor.clone(), indices[i].tolist() if ranges else (int(indices[i]), 2)
        if not masked or mask[i]:
            expected[:, first : first + length] = updates[i][:, :length]
        assert torch.equal(result[i].cpu(), expected) and torch.equal(in_place[i].cpu(), expected)
    with pytest.raises(RuntimeError, match=r"indice\[1\] is 8; expected 0 to 7"):
        torch_npu.npu_scatter_list_(in_place, torch.tensor([0, 8, 0]).npu(), updates.npu(), None)
        torch.npu.synchronize()


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_attentions_to_parts_are_joined(parts, dtype):
    lse = [numbers(77, seed=i, dtype=torch.float32) / 40 for i in range(parts)]
    local = [numbers(77, 64, seed=10 + i, dtype=dtype) / 40 for i in range(parts)]
    if parts > 1:
        lse[0][:3] = torch.inf  # sees nothing of this part
    out, total = torch_npu.npu_attention_update([x.npu() for x in lse], [x.npu() for x in local], 1)
    sums = torch.stack(lse).double()
    sums = torch.where(sums.isinf(), -torch.inf, sums)
    expected = sums.logsumexp(0)
    weights = (sums - expected).exp()
    values = sum(w[:, None] * x.double() for w, x in zip(weights, local, strict=True))
    tolerance = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.cpu().double(), values, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(total.cpu().double(), expected, rtol=1e-6, atol=1e-6)
    out_only, _ = torch_npu.npu_attention_update([x.npu() for x in lse], [x.npu() for x in local], 0)
    assert torch.equal(out_only, out)


@pytest.mark.parametrize("cache_mode", ["contiguous", "page"])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("kind", ["float16", "int32", "int32, integer bias"])
def test_keys_and_values_are_turned_quantised_and_written(kind, dims, cache_mode):
    batch, tokens, heads, key_heads, size = 3, 4 if dims == 3 else 1, 4, 2, 16
    shape = (batch, tokens, (heads + 2 * key_heads) * size)
    splits = [heads * size, key_heads * size, key_heads * size]
    cos, sin = (numbers(batch, tokens, 1, size, seed=seed) / 40 for seed in (1, 2))
    scale_k, scale_v = (numbers(key_heads, size, seed=seed, dtype=torch.float32) for seed in (3, 4))
    offset_k = numbers(key_heads, size, seed=5, dtype=torch.float32) / 40
    extra = {}
    if kind == "float16":
        x = numbers(*shape, seed=6) / 40
        real = x.double()
    else:
        x = numbers(*shape, seed=6, dtype=torch.int32)
        extra = {
            "weight_scale": numbers(shape[2], seed=7, dtype=torch.float32).abs() / 4000,
            "activation_scale": numbers(batch * tokens, seed=8, dtype=torch.float32).abs() / 40,
        }
        scales = extra["weight_scale"].double() * extra["activation_scale"].double().view(batch, tokens, 1)
        bias = numbers(shape[2], seed=9, dtype=torch.int32 if "bias" in kind else torch.float32)
        extra["bias"] = bias
        real = (x.double() + bias.double()) * scales if "bias" in kind else x.double() * scales + bias.double()
    caches = [numbers(5, 8, key_heads, size, seed=seed, dtype=torch.int8) for seed in (10, 11)]
    indices = torch.tensor([4, 0, 2]) if cache_mode == "contiguous" else order(batch * tokens, 40)
    squeezed = (lambda t: t) if dims == 3 else (lambda t: t.squeeze(1))
    on_npu = [c.npu() for c in caches]
    function = torch_npu.npu_rope_quant_kvcache if kind == "float16" else torch_npu.npu_dequant_rope_quant_kvcache
    angles = [angle if dims == 3 else angle[:, 0, 0] for angle in (cos, sin)]
    q, k, v, *_ = function(
        *(t.npu() for t in (squeezed(x.contiguous()), *angles)),
        *on_npu,
        *(t.npu() for t in (indices.int(), scale_k, scale_v)),
        splits,
        offset_k=offset_k.npu(),
        kv_output=True,
        cache_mode=cache_mode,
        **{n: t.npu() for n, t in extra.items()},
    )
    parts = [p.unflatten(2, (-1, size)) for p in real.split(splits, 2)]

    def turned(part):
        halves = torch.cat([-part[..., size // 2 :], part[..., : size // 2]], -1)
        return part * cos.double() + halves * sin.double()

    queries, keys, values = turned(parts[0]), turned(parts[1]), parts[2]
    for actual, expected in ((q, queries), (k, keys), (v, values)):
        torch.testing.assert_close(actual.cpu().double(), squeezed(expected), rtol=2e-3, atol=2e-3)
    for cache, written, part, scale, offset in (
        (caches[0], on_npu[0], keys, scale_k, offset_k), (caches[1], on_npu[1], values, scale_v, None),
    ):  # fmt: skip
        exact = part * scale.double() + (offset.double() if offset is not None else 0)
        expected, certain = cache.double(), torch.ones_like(cache, dtype=torch.bool)
        rounded, near_a_tie = exact.round().clamp(-128, 127), ((exact - exact.floor()) - 0.5).abs() < 1e-2
        for b in range(batch):
            for t in range(tokens):
                if cache_mode == "page":
                    place = int(indices[b * tokens + t])
                    place = (place // 8, place % 8)
                else:
                    place = (b, int(indices[b]) + t)
                expected[place], certain[place] = rounded[b, t], ~near_a_tie[b, t]
        difference = (written.cpu().double() - expected).abs()
        assert (difference[certain] == 0).all() and difference.max() <= 1
