# SPDX-License-Identifier: Apache-2.0
"""The operators of torch_npu that call libatb, against their definitions in float64."""

import sys

import fresh
import pytest
import task_queue
import torch
import torch_npu

HALVES = [torch.float16, torch.bfloat16]


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# ---- paged caches


def caches(dtype, blocks=7, block_size=16, heads=2, sizes=(24, 40)):
    return [numbers(blocks, block_size, heads, size, seed=i, dtype=dtype) for i, size in enumerate(sizes)]


@pytest.mark.parametrize("dtype", [*HALVES, torch.int8])
@pytest.mark.parametrize("slots", [[3, 0, 111, 17], [-1, 5, -1], [], [96]], ids=str)
def test_rows_go_to_their_slots_and_padded_tokens_nowhere(dtype, slots):
    cache = [x * 10 if dtype is torch.int8 else x for x in caches(torch.float32)]
    key_cache, value_cache = (x.to(dtype) for x in cache)
    key, value = (numbers(len(slots), 2, c.size(3), seed=9).to(dtype) for c in cache)
    expected = [key_cache.clone(), value_cache.clone()]
    for rows, into in zip((key, value), expected, strict=True):
        for row, slot in zip(rows, slots, strict=True):
            if slot >= 0:
                into[slot // 16, slot % 16] = row
    key_cache, value_cache = key_cache.npu(), value_cache.npu()
    slots = torch.tensor(slots, dtype=torch.int32).npu()
    torch_npu._npu_reshape_and_cache(key.npu(), value.npu(), key_cache, value_cache, slots)
    assert torch.equal(key_cache.cpu(), expected[0]) and torch.equal(value_cache.cpu(), expected[1])
    alone = caches(torch.float32)[0].mul(10 if dtype is torch.int8 else 1).to(dtype).npu()
    torch_npu._npu_reshape_and_cache_siso(key.npu(), alone, slots)
    assert torch.equal(alone.cpu(), expected[0])


def test_a_slot_past_the_cache_is_named_and_nothing_is_written():
    key_cache, value_cache = (x.npu() for x in caches(torch.float16))
    before = key_cache.clone()
    slots = torch.tensor([3, 112], dtype=torch.int32).npu()
    with pytest.raises(RuntimeError, match=r"slots\[1\] is 112; expected -2147483648 to 111"):
        torch_npu._npu_reshape_and_cache(
            numbers(2, 2, 24).half().npu(), numbers(2, 2, 40).half().npu(), key_cache, value_cache, slots
        )
        torch.npu.synchronize()
    assert torch.equal(key_cache, before)


@pytest.mark.parametrize("is_cumulative", [False, True])
@pytest.mark.parametrize("starts", [None, [0, 16, 5]], ids=str)
def test_a_cache_is_loaded_by_its_block_table(is_cumulative, starts):
    key_cache, value_cache = caches(torch.bfloat16)
    table = torch.tensor([[6, 0, 2], [1, 3, 5], [4, 4, 4]], dtype=torch.int32)
    lengths = [33, 0, 17]
    places = []
    for i, length in enumerate(lengths):
        first = starts[i] // 16 if starts else 0
        places += [int(table[i, first + j // 16]) * 16 + j % 16 for j in range(length)]
    given = torch.tensor([0, 33, 33, 50] if is_cumulative else lengths, dtype=torch.int32)
    optional = {} if starts is None else {"seq_starts": torch.tensor(starts, dtype=torch.int32).npu()}
    arguments = [key_cache.npu(), value_cache.npu(), table.npu(), given.npu()]
    loaded = torch_npu.atb.npu_paged_cache_load(*arguments, cumsum=is_cumulative, **optional)
    for rows, cache in zip(loaded, (key_cache, value_cache), strict=True):
        assert torch.equal(rows.cpu(), cache.flatten(0, 1)[places])
    outputs = {"key": torch.empty_like(loaded[0]), "value": torch.empty_like(loaded[1])}
    torch_npu.atb.npu_paged_cache_load(*arguments, cumsum=is_cumulative, **optional, **outputs)
    assert torch.equal(outputs["key"], loaded[0]) and torch.equal(outputs["value"], loaded[1])


# ---- rotary embeddings


@pytest.mark.parametrize("is_neox", [False, True])
@pytest.mark.parametrize("tokens", [1, 13])
def test_rotary_embedding_turns_query_and_key_in_place(is_neox, tokens):
    size, longest = 64, 40
    angles = torch.arange(longest).double().outer(10000.0 ** -(torch.arange(0, size, 2).double() / size))
    cache = torch.cat([angles.cos(), angles.sin()], -1).half()
    positions = torch.randint(longest, (tokens,), generator=torch.Generator().manual_seed(2))
    query, key = numbers(tokens, 3 * size, dtype=torch.half), numbers(tokens, size, seed=1, dtype=torch.half)

    def turned(x):
        pairs = x.double().view(tokens, -1, size)
        first, second = pairs.chunk(2, -1) if is_neox else (pairs[..., ::2], pairs[..., 1::2])
        cosine, sine = (part.double()[positions].unsqueeze(1) for part in cache.chunk(2, -1))
        parts = [first * cosine - second * sine, second * cosine + first * sine]
        return (torch.cat(parts, -1) if is_neox else torch.stack(parts, -1)).reshape(x.shape)

    expected = turned(query), turned(key)
    query, key = query.npu(), key.npu()
    # The operator keeps the table of its first call: every call here gives the same.
    torch_npu._npu_rotary_embedding(positions.npu(), query, key, size, cache.npu(), is_neox)
    torch.testing.assert_close(query.cpu().double(), expected[0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(key.cpu().double(), expected[1], rtol=1e-3, atol=1e-3)


# ---- experts


def best_groups(scores, groups, kept, n):
    """The scores with 0 for the experts outside of the best groups."""
    result = torch.zeros_like(scores)
    for token, row in enumerate(scores.tolist()):
        size = len(row) // groups
        sums = [sum(sorted(row[g * size : (g + 1) * size])[-n:]) for g in range(groups)]
        for group in sorted(range(groups), key=lambda g: -sums[g])[:kept]:
            result[token, group * size : (group + 1) * size] = scores[token, group * size : (group + 1) * size]
    return result


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("tokens", "experts", "groups", "kept", "n"), [(1, 4, 4, 2, 1), (33, 256, 8, 4, 2), (3, 15, 3, 3, 5)]
)
def test_group_topk_clears_the_other_groups(dtype, tokens, experts, groups, kept, n):
    x = (torch.randint(-64, 64, (tokens, experts), generator=torch.Generator().manual_seed(3)) / 16).to(dtype)
    given = x.npu()
    torch_npu._npu_group_topk(given, k=kept, group_num=groups, n=n)
    assert torch.equal(given.cpu(), best_groups(x.double(), groups, kept, n).to(dtype))


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
@pytest.mark.parametrize("is_norm", [True, False])
@pytest.mark.parametrize("copies", [0, 3])
def test_fused_add_topk_div(dtype, is_norm, copies):
    tokens, experts, groups, kept, n, k = 11, 32, 4, 2, 2, 5
    x, bias = numbers(tokens, experts, dtype=dtype), numbers(experts, seed=1, dtype=dtype)
    share = x.double().sigmoid()
    best = best_groups(share + bias.double(), groups, kept, n)
    order = best.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    expected = share.gather(1, order)
    if is_norm:
        expected = expected / expected.sum(1, keepdim=True) * 2.5
    mapping = {}
    if copies:
        generator = torch.Generator().manual_seed(4)
        count = torch.randint(1, copies + 1, (experts,), generator=generator, dtype=torch.int32)
        table = torch.randint(experts, (experts, copies), generator=generator, dtype=torch.int32)
        mapping = {"mapping_num": count.npu(), "mapping_table": table.npu(), "enable_expert_mapping": True}
        order = torch.tensor([[int(table[e, t % int(count[e])]) for e in row] for t, row in enumerate(order.tolist())])
    shares, chosen = torch_npu.atb.npu_fused_add_topk_div(
        x.npu(), bias.npu(), group_num=groups, group_topk=kept, n=n, k=k, is_norm=is_norm, scale=2.5, **mapping
    )
    assert torch.equal(chosen.cpu(), order.int())
    torch.testing.assert_close(shares.cpu().double(), expected, rtol=1e-6, atol=1e-7)


# ---- products, quantisation


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(17, 5, 9), (1, 1, 1), (300, 64, 33)])
def test_matmul_add_adds_the_product_in_float(dtype, shape):
    depth, rows, columns = shape
    x, weight, sums = numbers(depth, rows, dtype=dtype), numbers(depth, columns, dtype=dtype), numbers(rows, columns)
    expected = sums.double() + x.double().t() @ weight.double()
    sums = sums.npu()
    torch_npu._npu_matmul_add_fp32(x.npu(), weight.npu(), sums)
    torch.testing.assert_close(sums.cpu().double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", HALVES)
def test_quantize_per_tensor_rounds_half_to_even_and_saturates(dtype):
    x = torch.tensor([[0.5, 1.5, -2.5, 300.0], [-300.0, 0.0, 7.25, 63.0]], dtype=dtype)
    scale = torch.tensor([1.0, 1.0, 1.0, 0.5], dtype=dtype)
    offset = torch.tensor([0, 10, -10, 1], dtype=torch.int8)
    expected = ((x.double() / scale.double()).round() + offset).clamp(-128, 127).to(torch.int8)
    y = torch.empty(2, 4, dtype=torch.int8, device="npu")
    torch_npu._npu_quantize_per_tensor(x.npu(), scale.npu(), offset.npu(), y)
    assert torch.equal(y.cpu(), expected)


@pytest.mark.parametrize("dtype", HALVES)
def test_quant_rms_norm(dtype):
    x, gamma, beta = numbers(5, 96, dtype=dtype), numbers(96, seed=1, dtype=dtype), numbers(96, seed=2, dtype=dtype)
    scale, offset = torch.tensor([0.03125], dtype=dtype), torch.tensor([3], dtype=torch.int8)
    wide = x.double()
    value = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gamma.double() + beta.double()
    expected = (value / scale.double() + offset).round().clamp(-128, 127)
    y = torch.empty(5, 96, dtype=torch.int8, device="npu")
    torch_npu._npu_quant_rms_norm(x.npu(), gamma.npu(), beta.npu(), scale.npu(), offset.npu(), y, 1e-6)
    assert torch.equal(y.cpu().double(), expected)


# ---- errors: torch_npu sets operations up in the thread of its queue, which drops all later work after an error

PROGRAM = """
import torch, torch_npu
half = torch.ones(2, 15, dtype=torch.half).npu()
offset = torch.zeros(15, dtype=torch.int8).npu()
int8 = torch.empty(2, 15, dtype=torch.int8).npu()
{call}
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "torch_npu._npu_quantize_per_tensor(half.float(), half[0], offset, int8)",
            "ElewiseOperation: x has dtype float32; expected float16 or bfloat16",
        ),
        (
            "torch_npu._npu_quantize_per_tensor(half, half[0], offset, int8[:, :3].contiguous())",
            "ElewiseOperation: y has shape [2, 3]; expected [2, 15]",
        ),
        (
            "torch_npu._npu_group_topk(half, k=1, group_num=4, n=1)",
            "GroupTopkOperation: 15 experts do not divide among 4 groups",
        ),
    ],
)
def test_bad_input_is_rejected_with_the_operation_and_the_argument(call, message):
    done = fresh.run([sys.executable, "-c", PROGRAM.format(call=call) + task_queue.RAISES])
    assert done.returncode != 0 and message in done.stderr, done.stderr
