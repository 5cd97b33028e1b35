# SPDX-License-Identifier: Apache-2.0
"""Attention of torch_npu's operators that call libatb, against softmax(query key^T) value in float64."""

import itertools
import sys

import fresh
import pytest
import task_queue
import torch
import torch_npu

HALVES = [torch.float16, torch.bfloat16]


def numbers(*shape, seed=0, dtype=torch.float16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def attention(query, key, value, scale, added=None):
    """The values and log(sum(exp)) of (queries, heads, size) and (keys, key heads, size), with an added mask."""
    query, key, value = (x.double().transpose(0, 1) for x in (query, key, value))
    key, value = (x.repeat_interleave(len(query) // len(x), 0) for x in (key, value))
    scores = query @ key.mT * scale
    if added is not None:
        scores = scores + added.double()
    values = torch.nan_to_num(scores.softmax(-1)) @ value
    return values.transpose(0, 1), scores.logsumexp(-1)


def bottom_right(queries, keys):
    """Minus infinity where a key comes after its query, whose last is that of the last key."""
    return torch.full((1, queries, keys), -torch.inf).triu(keys - queries + 1)


def pages(blocks, block_size, heads, size, dtype, seed=5):
    return numbers(blocks, block_size, heads, size, seed=seed, dtype=dtype)


def of_table(cache, row, length):
    return cache[row.long()].flatten(0, 1)[:length]


def close(actual, expected, dtype):
    tolerance = 2e-3 if dtype is torch.float16 else 1.6e-2
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance)


TABLE = torch.tensor([[6, 0, 2], [1, 3, 5], [4, 4, 4], [7, 1, 0]], dtype=torch.int32)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("heads", "key_heads", "size", "value_size"), [(8, 2, 64, 64), (3, 1, 40, 24), (4, 4, 128, 128)]
)
@pytest.mark.parametrize("lengths", [[33, 0, 17, 48], [1, 16, 32, 2]], ids=str)
def test_paged_attention(dtype, heads, key_heads, size, value_size, lengths):
    query = numbers(4, heads, size, dtype=dtype)
    key, value = pages(8, 16, key_heads, size, dtype), pages(8, 16, key_heads, value_size, dtype, seed=6)
    scale = size**-0.5
    expected = torch.zeros(4, heads, value_size, dtype=torch.float64)
    for i, length in enumerate(lengths):
        if length:
            rows = (of_table(cache, TABLE[i], length) for cache in (key, value))
            expected[i] = attention(query[i : i + 1], *rows, scale)[0][0]
    out = torch.empty(4, heads, value_size, dtype=dtype, device="npu")
    arguments = [query.npu(), key.npu(), value.npu(), key_heads, heads, scale, TABLE.npu()]
    torch_npu._npu_paged_attention(*arguments, torch.tensor(lengths, dtype=torch.int32), out)
    close(out, expected, dtype)
    again = torch.empty_like(out)
    query, key, value = arguments[:3]
    torch_npu.atb._npu_paged_attention_v2(
        query, key, TABLE.npu(), lengths, value_cache=value, num_kv_heads=key_heads, num_heads=heads,
        scale_value=scale, out=again,
    )  # fmt: skip
    assert torch.equal(again, out)


def test_paged_attention_adds_alibi():
    lengths, slopes = [33, 5, 17, 48], torch.tensor([0.5, 0.25])
    query, key, value = numbers(4, 2, 32), pages(8, 16, 2, 32, torch.half), pages(8, 16, 2, 32, torch.half, seed=6)
    mask = (slopes[:, None, None] * -torch.arange(48)).half()
    expected = [
        attention(query[i : i + 1], of_table(key, TABLE[i], n), of_table(value, TABLE[i], n), 0.2, mask[:, :, :n])[0][0]
        for i, n in enumerate(lengths)
    ]
    out = torch.empty(4, 2, 32, dtype=torch.half, device="npu")
    torch_npu.atb._npu_paged_attention_v2(
        query.npu(), key.npu(), TABLE.npu(), lengths, value_cache=value.npu(), mask=mask.npu(), num_kv_heads=2,
        num_heads=2, scale_value=0.2, mask_type=2, out=out,
    )  # fmt: skip
    close(out, torch.stack(expected), torch.half)


def test_paged_attention_of_int8_caches():
    lengths = torch.tensor([33, 5, 17, 48], dtype=torch.int32)
    query = numbers(4, 4, 32)
    key, value = (torch.randint(-128, 128, (8, 16, 2, 32), dtype=torch.int8) for _ in range(2))
    scales = [numbers(2 * 32, seed=i, dtype=torch.float32).abs() / 64 for i in (1, 2)]
    wide = [cache.double() * s.double().view(2, 32) for cache, s in zip((key, value), scales, strict=True)]
    expected = [
        attention(query[i : i + 1], *(of_table(cache, TABLE[i], int(n)) for cache in wide), 0.1)[0][0]
        for i, n in enumerate(lengths)
    ]
    out = torch.empty(4, 4, 32, dtype=torch.half, device="npu")
    caches = [key.npu(), value.npu()]
    rest = [1, 1, *(s.npu() for s in scales), out]
    torch_npu._npu_paged_attention_quant(query.npu(), *caches, 2, 4, 0.1, TABLE.npu(), lengths, *rest)
    close(out, torch.stack(expected), torch.half)


@pytest.mark.parametrize("dtype", HALVES)
def test_paged_attention_mla_takes_the_first_part_of_a_key_as_its_value(dtype):
    lengths = torch.tensor([33, 5, 17, 48], dtype=torch.int32)
    query, key = numbers(4, 16, 96, dtype=dtype), pages(8, 16, 1, 96, dtype)
    expected = []
    for i, n in enumerate(lengths):
        rows = of_table(key, TABLE[i], int(n))
        expected.append(attention(query[i : i + 1], rows, rows[..., :64], 0.1)[0][0])
    out = torch.empty(4, 16, 64, dtype=dtype, device="npu")
    torch_npu._npu_paged_attention_mla(query.npu(), key.npu(), 1, 16, 0.1, TABLE.npu(), lengths, 64, out)
    close(out, torch.stack(expected), dtype)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_several_queries_of_a_sequence_see_the_keys_up_to_their_own(is_compressed):
    queries, keys = [3, 0, 17, 1], [33, 5, 17, 48]
    query, key, value = numbers(21, 4, 32), pages(8, 16, 2, 32, torch.half), pages(8, 16, 2, 32, torch.half, seed=6)
    expected, mask = [], torch.zeros(21, 48)
    for i, (begin, q, n) in enumerate(zip(itertools.accumulate([0, *queries]), queries, keys, strict=False)):
        rows = of_table(key, TABLE[i], n), of_table(value, TABLE[i], n)
        expected.append(attention(query[begin : begin + q], *rows, 0.2, bottom_right(q, n))[0])
        mask[begin : begin + q, :n] = bottom_right(q, n)[0].clamp_min(-10000)
    arguments = [query.npu(), key.npu(), value.npu(), TABLE.npu(), torch.tensor(keys, dtype=torch.int32)]
    out = torch.empty(21, 4, 32, dtype=torch.half, device="npu")
    lengths = torch.tensor(queries, dtype=torch.int32)
    if is_compressed:
        triangle = torch.ones(128, 128).triu(1).half().npu()
        torch_npu._npu_paged_attention_splitfuse_v2(*arguments, triangle, lengths, 2, 4, 0.2, out=out)
    else:
        torch_npu._npu_paged_attention_splitfuse(*arguments, mask.half().npu(), lengths, 2, 4, 0.2, out)
    close(out, torch.cat(expected), torch.half)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("kind", ["none", "mask", "triangle"])
def test_flash_attention_of_sequences_that_follow_each_other(dtype, is_flat, kind):
    lengths = [7, 1, 130, 0, 12]
    query, key, value = (numbers(150, heads, 32, seed=heads, dtype=dtype) for heads in (6, 3, 3))
    expected = []
    for begin, n in zip(itertools.accumulate([0, *lengths]), lengths, strict=False):
        rows = (x[begin : begin + n] for x in (query, key, value))
        expected.append(attention(*rows, 0.2, None if kind == "none" else bottom_right(n, n))[0])
    given = [x.flatten(1).npu() if is_flat else x.npu() for x in (query, key, value)]
    out, seq_len = torch.empty_like(given[0]), torch.tensor(lengths, dtype=torch.int32)
    if kind == "none":
        torch_npu._npu_flash_attention_unpad(*given, seq_len, 0.2, 6, 3, out)
        again = torch.empty_like(out)
        torch_npu._npu_flash_attention_unpad_v2(*given, seq_len, 0.2, 6, 3, out=again)
        assert torch.equal(again, out)
    elif kind == "mask":
        mask = torch.full((130, 130), -10000.0).triu(1).to(dtype).npu()
        torch_npu._npu_flash_attention(*given, mask, seq_len, 0.2, 6, 3, out)
        again = torch.empty_like(out)
        options = {"mask": mask, "mask_type": 1, "scale_value": 0.2, "num_heads": 6, "num_kv_heads": 3}
        torch_npu.atb._npu_flash_attention_v2(*given, lengths, **options, out=again)
        assert torch.equal(again, out)
    else:
        triangle = torch.ones(128, 128).triu(1).to(dtype).npu()
        torch_npu._npu_flash_attention_v3(*given, triangle, seq_len, 0.2, 6, 3, out=out)
    close(out.view(150, 6, 32), torch.cat(expected), dtype)


def test_queries_after_a_prefix_in_the_cache():
    queries, keys = [3, 1, 17, 2], [33, 5, 17, 48]
    query, key, value = numbers(23, 4, 32), pages(8, 16, 2, 32, torch.half), pages(8, 16, 2, 32, torch.half, seed=6)
    expected = []
    for i, (begin, q, n) in enumerate(zip(itertools.accumulate([0, *queries]), queries, keys, strict=False)):
        rows = of_table(key, TABLE[i], n), of_table(value, TABLE[i], n)
        expected.append(attention(query[begin : begin + q], *rows, 0.2, bottom_right(q, n))[0])
    triangle = torch.ones(128, 128).triu(1).half().npu()
    caches, table = [query.npu(), key.npu(), value.npu()], TABLE.npu()
    lengths = [torch.tensor(each, dtype=torch.int32) for each in (queries, keys)]
    out = torch.empty(23, 4, 32, dtype=torch.half, device="npu")
    torch_npu._npu_flash_attention_qlens(*caches, table, triangle, *lengths, 2, 4, 0.2, out)
    close(out, torch.cat(expected), torch.half)
    again = torch.empty_like(out)
    options = {"num_kv_heads": 2, "num_heads": 4, "scale_value": 0.2, "out": again}
    torch_npu.atb._npu_flash_attention_prefix_v2(*caches, table, triangle, queries, keys, **options)
    assert torch.equal(again, out)
    encoded = torch_npu.atb.npu_self_attention_prefix_encoder(*caches, table, queries, keys, 4, 0.2, 2)
    assert torch.equal(encoded, out)


@pytest.mark.parametrize("dtype", HALVES)
def test_multi_head_latent_attention(dtype):
    lengths = [33, 5, 17, 48]
    nope, rope = numbers(4, 8, 64, dtype=dtype), numbers(4, 8, 16, seed=1, dtype=dtype)
    ctkv, k_rope = pages(8, 16, 1, 64, dtype), pages(8, 16, 1, 16, dtype, seed=6)
    expected, log_sums = [], []
    for i, n in enumerate(lengths):
        value = of_table(ctkv, TABLE[i], n)
        key = torch.cat([value, of_table(k_rope, TABLE[i], n)], -1)
        values, log_sum = attention(torch.cat([nope, rope], -1)[i : i + 1], key, value, 0.1)
        expected.append(values[0])
        log_sums.append(log_sum)
    arguments = [nope.npu(), rope.npu(), ctkv.npu(), k_rope.npu(), TABLE.npu(), lengths, 8, 0.1, 1]
    close(torch_npu.atb.npu_multi_head_latent_attention(*arguments), torch.stack(expected), dtype)
    values, log_sum = torch_npu.atb.npu_multi_head_latent_attention(*arguments, True, calc_type="calc_type_ring")
    close(values, torch.stack(expected), dtype)
    close(log_sum, torch.stack(log_sums), dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("is_masked", [False, True])
def test_ring_mla_adds_the_parts_of_the_keys(dtype, is_masked):
    lengths = torch.tensor([7, 12], dtype=torch.int32)
    sizes = {"q_nope": (4, 128), "q_rope": (4, 64), "k_nope": (2, 128), "k_rope": (2, 64), "value": (2, 128)}
    first, second = (
        {name: numbers(19, *shape, seed=seed + i, dtype=dtype) for i, (name, shape) in enumerate(sizes.items())}
        for seed in (0, 10)
    )
    query = torch.cat([first["q_nope"], first["q_rope"]], -1)
    expected, log_sums = [], []
    for begin, n in ((0, 7), (7, 12)):
        rows = slice(begin, begin + n)
        key = torch.cat([torch.cat([part["k_nope"], part["k_rope"]], -1)[rows] for part in (first, second)])
        value = torch.cat([part["value"][rows] for part in (first, second)])
        hidden = bottom_right(n, n) if is_masked else torch.zeros(1, n, n)
        values, log_sum = attention(query[rows], key, value, 0.07, torch.cat([torch.zeros(1, n, n), hidden], -1))
        expected.append(values)
        log_sums.append(log_sum)
    mask = torch.ones(512, 512).triu(1).to(dtype).npu()

    def call(part, **options):
        keys = [part[name].npu() for name in ("k_nope", "k_rope", "value")]
        queries = [first[name].npu() for name in ("q_nope", "q_rope")]
        return torch_npu.atb.npu_ring_mla(*queries, *keys, mask, lengths, 4, 2, qk_scale=0.07, **options)

    out, log_sum = call(first, calc_type="calc_type_first_ring")
    options = {"mask_type": "mask_type_triu"} if is_masked else {}
    out, log_sum = call(second, pre_out=out, prev_lse=log_sum, calc_type="calc_type_default", **options)
    close(out, torch.cat(expected), dtype)
    close(log_sum, torch.cat(log_sums, -1), dtype)


PROGRAM = """
import torch, torch_npu
query = torch.ones(2, 4, 32, dtype=torch.half).npu()
cache = torch.ones(8, 16, 2, 32, dtype=torch.half).npu()
out = torch.ones_like(query)
table = torch.tensor([[0, 9], [1, 2]], dtype=torch.int32).npu()
lengths = torch.tensor([20, 3], dtype=torch.int32)
{call}
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "torch_npu._npu_paged_attention(query, cache, cache, 2, 4, 0.1, table, lengths, out)",
            "PagedAttentionOperation: block_table[0][1] is 9; expected 0 to 7",
        ),
        (
            "torch_npu._npu_paged_attention(query, cache, cache, 2, 4, 0.1, table, lengths * 2, out)",
            "PagedAttentionOperation: context_lens[0] is 40; expected 0 to 32",
        ),
        (
            "torch_npu._npu_paged_attention(query, cache, cache, 2, 4, 0.1, table, lengths.npu(), out)",
            "lies in the memory of the device; expected a tensor on the CPU",
        ),
        (
            "torch_npu._npu_paged_attention(query, cache, cache, 3, 4, 0.1, table, lengths, out)",
            "PagedAttentionOperation: key_cache has shape [8, 16, 2, 32]; expected 3 heads",
        ),
        (
            "torch_npu._npu_flash_attention_unpad(query, query, query, lengths, 0.1, 4, 4, out)",
            "SelfAttentionOperation: seq_len[0] is 20; expected 0 to 2",
        ),
    ],
)
def test_bad_input_is_rejected_with_the_operation_and_the_argument(call, message):
    done = fresh.run([sys.executable, "-c", PROGRAM.format(call=call) + task_queue.RAISES])
    assert done.returncode != 0 and message in done.stderr, done.stderr
