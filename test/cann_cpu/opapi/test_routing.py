# SPDX-License-Identifier: Apache-2.0
"""Tokens on their way to experts and back, against references that move one row at a time."""

import re

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, written_by
from torch._subclasses.fake_tensor import FakeTensorMode

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def floats(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(high, *shape, seed=0):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


def close(given, expected, dtype):
    torch.testing.assert_close(
        given.cpu().double(), expected.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] / 10
    )


def in_order(experts, first=0, end=1 << 30):
    """The rows whose expert lies in [first, end), by expert; row t * k + j is the copy of token t for its expert j."""
    flat = experts.flatten().tolist()
    return sorted((row for row in range(len(flat)) if first <= flat[row] < end), key=lambda row: (flat[row], row))


def quantized(x):
    """Rows of int8 and the step of each."""
    step = x.float().abs().amax(1) / 127
    values = (x.float() / step.unsqueeze(1)).round()
    return torch.where(step.unsqueeze(1) == 0, torch.zeros(()), values).to(torch.int8), step


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("tokens, k, experts, size, active", [(13, 3, 8, 40, 13), (1, 1, 2, 3, 5), (7, 2, 300, 16, 4)])
def test_init_routing(dtype, tokens, k, experts, size, active):
    x, idx = floats(tokens, size, dtype=dtype), integers(experts, tokens, k)
    row_idx = torch.arange(tokens * k, dtype=torch.int32).view(k, tokens).t()
    expanded, places, sorted_experts = torch_npu.npu_moe_init_routing(
        x.npu(), row_idx=row_idx.npu(), expert_idx=idx.npu(), active_num=active
    )
    order = in_order(idx)
    rows = row_idx.flatten()[order]  # by expert
    assert torch.equal(sorted_experts.cpu(), idx.flatten()[order])
    assert torch.equal(places.cpu()[rows.long()], torch.arange(tokens * k, dtype=torch.int32))
    assert torch.equal(expanded.cpu(), x[rows[: min(active, tokens) * k].long() % tokens])


V2_CASES = [
    # tokens, k, experts, size, active, capacity, drop
    (13, 3, 8, 40, 0, 0, 0),
    (13, 3, 8, 40, 17, 0, 0),
    (13, 3, 8, 40, 0, 4, 1),
    (6, 4, 3, 8, 0, 6, 1),
    (1, 2, 64, 5, 100, 0, 0),
]


def slots_of(idx, experts, active, capacity, drop):
    """The slot of each row that has one, and how many slots there are."""
    order = in_order(idx)
    if not drop:
        count = min(active, len(order)) if active > 0 else len(order)
        return {row: i for i, row in enumerate(order[:count])}, count
    slots, used = {}, [0] * experts
    flat = idx.flatten().tolist()
    for row in order:
        if used[flat[row]] < capacity:
            slots[row] = flat[row] * capacity + used[flat[row]]
            used[flat[row]] += 1
    return slots, experts * capacity


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", V2_CASES)
@pytest.mark.parametrize("flag", [0, 1, 2])
def test_init_routing_v2(dtype, case, flag):
    tokens, k, experts, size, active, capacity, drop = case
    x, idx = floats(tokens, size, dtype=dtype), integers(experts, tokens, k)
    slots, count = slots_of(idx, experts, active, capacity, drop)
    shape = (experts, capacity, size) if drop else (count, size)
    given = [x, idx, active, capacity, experts, drop, flag, bool(drop)]
    counted = torch.bincount(idx.flatten(), minlength=experts)
    new = [Out(shape, dtype), Out((tokens * k,), torch.int32)]
    new += [Out((experts,), torch.int32) if flag and not drop else None, Out((experts,), torch.int32) if drop else None]
    expanded, places, *counts = written_by("aclnnMoeInitRoutingV2", *given, *new)
    expected = torch.zeros(count, size, dtype=dtype)
    for row, slot in slots.items():
        expected[slot] = x[row // k]
    assert torch.equal(expanded.flatten(0, -2), expected)
    order = in_order(idx)
    where = slots if drop else {row: i for i, row in enumerate(order)}
    assert places.tolist() == [where.get(row, -1) for row in range(tokens * k)]
    if drop:
        assert torch.equal(counts[0].long(), counted)
    elif flag:
        assert torch.equal(counts[0].long(), counted.cumsum(0) if flag == 1 else counted)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", V2_CASES)
@pytest.mark.parametrize("mode", ["static", "dynamic", "by expert", "for all"])
def test_init_routing_quant(dtype, case, mode):
    tokens, k, experts, size, active, capacity, drop = case
    x, idx = floats(tokens, size, dtype=dtype), integers(experts, tokens, k)
    x[0] = 0
    slots, count = slots_of(idx, experts, active, capacity, drop)
    scale = offset = None
    if mode == "static":
        scale, offset = torch.tensor([37.5]), torch.tensor([3.25])
    elif mode != "dynamic":
        scale = floats(experts if mode == "by expert" else 1, size, seed=1)
    flat, values = idx.flatten().tolist(), torch.zeros(count, size)
    for row, slot in slots.items():
        values[slot] = x[row // k].float()
        if scale is not None and mode != "static":
            values[slot] *= scale[flat[row] if mode == "by expert" else 0]
    on_npu = {"scale": None if scale is None else scale.npu(), "offset": None if offset is None else offset.npu()}
    results = torch_npu.npu_moe_init_routing_quant(
        x.npu(),
        idx.npu(),
        **on_npu,
        active_num=active,
        expert_capacity=capacity,
        expert_num=experts,
        drop_pad_mode=drop,
        expert_tokens_num_mode=2,
        expert_tokens_before_capacity_flag=bool(drop),
        quant_mode=0 if mode == "static" else 1,
    )
    expanded = results[0].cpu().flatten(0, -2)
    taken = sorted(slots.values())
    free = [slot for slot in range(count) if slot not in taken]
    if mode == "static":
        expected = (values * 37.5 + 3.25).round().clamp(-128, 127).to(torch.int8)
    else:
        expected, step = quantized(values)
        close(results[4], step, torch.float32)
    assert torch.equal(expanded[taken], expected[taken])
    assert not expanded[free].any()
    counted = torch.bincount(idx.flatten(), minlength=experts)
    assert torch.equal((results[3] if drop else results[2]).cpu().long(), counted)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8])
@pytest.mark.parametrize("first, end", [(0, 16), (3, 9), (5, 6)])
@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("row_idx_type", [0, 1])
@pytest.mark.parametrize("active", [-1, 11])
def test_init_routing_v3(dtype, first, end, kind, row_idx_type, active):
    tokens, k, experts, size = 17, 4, 16, 24
    x = floats(tokens, size, dtype=dtype) if dtype != torch.int8 else integers(100, tokens, size).to(dtype)
    idx, scale = integers(experts, tokens, k), floats(tokens, seed=2)
    expanded, places, counts, scales = torch_npu.npu_moe_init_routing_v2(
        x.npu(),
        idx.npu(),
        scale=scale.npu(),
        active_num=active,
        expert_num=experts,
        expert_tokens_num_type=kind,
        expert_tokens_num_flag=True,
        active_expert_range=[first, end],
        quant_mode=-1,
        row_idx_type=row_idx_type,
    )
    order = in_order(idx, first, end)
    kept = [row // k for row in (order[:active] if active > 0 else order)]
    assert expanded.shape == (active if active > 0 else tokens * k, size)
    assert torch.equal(expanded.cpu()[: len(kept)], x[kept])
    assert torch.equal(scales.cpu()[: len(kept)], scale[kept])
    if row_idx_type == 1:
        assert places.cpu().tolist()[: len(order)] == order
    else:
        where = {row: i for i, row in enumerate(order)}
        assert places.cpu().tolist() == [where.get(row, -1) for row in range(tokens * k)]
    counted = torch.bincount(idx.flatten(), minlength=experts)[first:end]
    if kind == 2:
        pairs = [[first + i, n] for i, n in enumerate(counted.tolist()) if n > 0]
        assert counts.cpu().tolist()[: len(pairs)] == pairs
        assert not counts.cpu()[len(pairs) :].any()
    else:
        assert torch.equal(counts.cpu(), counted.cumsum(0) if kind == 0 else counted)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scaled", ["", "by expert", "for all"])
@pytest.mark.parametrize("capacity", [0, 3])
def test_init_routing_v3_quantizes(dtype, scaled, capacity):
    tokens, k, experts, size = 300, 2, 12, 4096  # more rows than are moved at a time
    first, end = (0, experts) if capacity else (2, 7)
    x, idx = floats(tokens, size, dtype=dtype), integers(experts, tokens, k)
    scale = {"": None, "by expert": floats(end - first, size, seed=1), "for all": floats(1, size, seed=1)}[scaled]
    expanded, places, counts, steps = torch_npu.npu_moe_init_routing_v2(
        x.npu(),
        idx.npu(),
        scale=None if scale is None else scale.npu(),
        active_num=tokens * k,
        expert_capacity=capacity if capacity else -1,
        expert_num=experts,
        drop_pad_mode=1 if capacity else 0,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        quant_mode=1,
        active_expert_range=[first, end],
    )
    flat = idx.flatten().tolist()
    if capacity:
        slots, count = slots_of(idx, experts, 0, capacity, 1)
    else:
        slots, count = {row: i for i, row in enumerate(in_order(idx, first, end))}, tokens * k
    values = torch.zeros(count, size)
    for row, slot in slots.items():
        values[slot] = x[row // k].float()
        if scale is not None:
            values[slot] *= scale[flat[row] - first if scaled == "by expert" else 0]
    expected, step = quantized(values)
    assert torch.equal(expanded.cpu().view(count, size), expected)
    close(steps, step, torch.float32)
    assert places.cpu().tolist() == [slots.get(row, -1) for row in range(tokens * k)]
    assert torch.equal(counts.cpu(), torch.bincount(idx.flatten(), minlength=experts)[first:end])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("given", [(), ("scales",), ("scales", "first", "bias"), ("scales", "first", "second", "bias")])
@pytest.mark.parametrize("tokens, k, size", [(13, 3, 40), (1, 1, 7), (35, 4, 8192)])
def test_finalize_routing(dtype, mode, given, tokens, k, size):
    experts, capacity = 6, 9
    generator = torch.Generator().manual_seed(0)
    if mode in (1, 3):
        places = torch.randint(-1, experts * capacity, (tokens * k,), generator=generator, dtype=torch.int32)
        rows = floats(experts, capacity, size, dtype=dtype)
    else:
        places = torch.randperm(tokens * k, generator=generator).int()
        rows = floats(tokens * k, size, dtype=dtype)
    first, second = (floats(tokens, size, dtype=dtype, seed=seed) for seed in (1, 2))
    bias, scales = floats(experts, size, dtype=dtype, seed=3), floats(tokens, k, dtype=dtype, seed=4)
    idx = integers(experts, tokens, k)
    flat = rows.reshape(-1, size).double()
    expected = torch.zeros(tokens, size, dtype=torch.float64)
    for i in range(tokens):
        for j in range(k):
            place = places[j * tokens + i] if mode < 2 else places[i * k + j]
            row = flat[place] if place >= 0 else torch.zeros(size, dtype=torch.float64)
            if "bias" in given:
                row = row + bias[idx[i, j]].double()
            expected[i] += row * (scales[i, j].double() if "scales" in given else 1)
    expected += first.double() if "first" in given else 0
    expected += second.double() if "second" in given else 0
    names = {"first": first, "second": second, "bias": bias, "scales": scales}
    options = [names[name].npu() if name in given else None for name in names]
    result = torch_npu.npu_moe_finalize_routing(rows.npu(), *options, places.npu(), idx.npu(), mode, k)
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(result.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def test_versions_of_finalize_routing_agree():
    rows, places, idx = floats(6, 8), torch.randperm(6).int(), integers(4, 3, 2)
    first, bias, scales = floats(3, 8, seed=1), floats(4, 8, seed=2), floats(3, 2, seed=3)
    out = Out((3, 8))
    (one,) = written_by("aclnnMoeFinalizeRouting", rows, first, None, bias, scales, places, idx, out)
    (two,) = written_by("aclnnMoeFinalizeRoutingV2", rows, places, first, None, bias, scales, idx, 0, out)
    last = [rows, places, first, None, bias, scales, idx, None, None, None, None, 0, None, None, None, 2, out]
    (four,) = written_by("aclnnMoeFinalizeRoutingV4", *last)
    assert torch.equal(one, two) and torch.equal(one, four)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("count", [torch.int32, torch.int64])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("counts", [[[2, 0, 3], [1, 4, 0]], [[5]], [[0, 0], [0, 0]], [[0, 1], [0, 0], [3, 0]]])
def test_re_routing(dtype, count, scaled, counts):
    rows = sum(map(sum, counts))
    tokens = integers(100, rows, 16).to(dtype)
    scales = floats(rows)
    moved, steps, idx, total = torch_npu.npu_moe_re_routing(
        tokens.npu(), torch.tensor(counts, dtype=count).npu(), per_token_scales=scales.npu() if scaled else None
    )
    labels = [(expert, rank) for rank, each in enumerate(counts) for expert, n in enumerate(each) for _ in range(n)]
    order = sorted(range(rows), key=lambda row: (labels[row][0], row))
    assert idx.cpu().tolist() == order
    assert torch.equal(moved.cpu(), tokens[order])
    if scaled:
        assert torch.equal(steps.cpu(), scales[order])
    assert total.cpu().tolist() == [sum(each) for each in zip(*counts, strict=True)]
    assert total.dtype == count


def routing_map(tokens, experts, k, dtype):
    generator = torch.Generator().manual_seed(3)
    result = torch.zeros(tokens, experts, dtype=dtype)
    for token in range(tokens):
        result[token, torch.randperm(experts, generator=generator)[:k]] = 1
    return result


def rows_of(mapped, capacity):
    """The token and expert of every row: an expert's own tokens and then, up to the capacity, those that are not."""
    rows = []
    for expert, column in enumerate(mapped.t().tolist()):
        own = [token for token, flag in enumerate(column) if flag]
        if capacity is not None:
            own = (own + [token for token, flag in enumerate(column) if not flag])[:capacity]
        rows += [(token, expert) for token in own]
    return rows


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("map_dtype", [torch.int8, torch.bool])
@pytest.mark.parametrize("capacity", [None, 2, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_routing_map_there_and_back(dtype, map_dtype, capacity, weighted):
    tokens, experts, k, size = 11, 6, 2, 24
    mapped = routing_map(tokens, experts, k, map_dtype)
    x = floats(tokens, size, dtype=dtype)
    probs = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(1)).to(dtype) * mapped.to(dtype)
    rows = rows_of(mapped, capacity)
    ids = [token for token, _ in rows]
    padded = capacity is not None
    on_npu = probs.npu() if weighted else None
    permuted, shares, indices = torch_npu.npu_moe_token_permute_with_routing_map(
        x.npu(), mapped.npu(), probs=on_npu, num_out_tokens=len(rows), drop_and_pad=padded
    )
    assert torch.equal(permuted.cpu(), x[ids])
    if weighted:
        assert torch.equal(shares.cpu(), torch.stack([probs[row] for row in rows]))
    order = sorted(range(len(rows)), key=lambda row: (ids[row], row))
    assert indices.cpu().tolist() == (ids if padded else order)

    # Its gradient.
    dy, dp = floats(len(rows), size, dtype=dtype, seed=2), floats(len(rows), dtype=dtype, seed=3)
    dx, dprobs = torch_npu.npu_moe_token_permute_with_routing_map_grad(
        dy.npu(), dp.npu() if weighted else None, indices, mapped.npu(), experts, tokens, padded
    )
    expected = torch.zeros(tokens, size, dtype=torch.float64).index_add(0, torch.tensor(ids), dy.double())
    tolerance = TOLERANCE[dtype] * 4
    torch.testing.assert_close(dx.cpu().double(), expected, rtol=tolerance, atol=tolerance)
    if weighted:
        expected = torch.zeros(tokens, experts, dtype=dtype)
        for row, value in zip(rows, dp, strict=True):
            expected[row] = value
        assert torch.equal(dprobs.cpu(), expected)

    # Back, and the gradient of that.
    y = floats(len(rows), size, dtype=dtype, seed=4)
    leaf, leaf_probs = y.double().requires_grad_(), probs.double().requires_grad_()
    share = torch.stack([leaf_probs[row] for row in rows]) if weighted else torch.ones(len(rows)).double()
    back = torch.zeros(tokens, size, dtype=torch.float64).index_add(0, torch.tensor(ids), leaf * share.unsqueeze(1))
    result, places, owners, _ = torch.ops.npu._npu_moe_token_unpermute_with_routing_map(
        y.npu(), indices, [tokens, size], probs=on_npu, routing_map=mapped.npu(), drop_and_pad=padded
    )
    torch.testing.assert_close(result.cpu().double(), back.detach(), rtol=tolerance, atol=tolerance)
    public = torch_npu.npu_moe_token_unpermute_with_routing_map(
        y.npu(), indices, [tokens, size], probs=on_npu, routing_map=mapped.npu(), drop_and_pad=padded
    )
    assert torch.equal(public, result)
    assert [ids[place] for place in places.cpu().tolist()] == owners.cpu().tolist() == sorted(ids)
    back.backward(x.double())
    dy, dprobs = torch_npu.npu_moe_token_unpermute_with_routing_map_grad(
        x.npu(), places, owners, mapped.npu(), y.npu(), on_npu, padded, [tokens, size]
    )
    torch.testing.assert_close(dy.cpu().double(), leaf.grad, rtol=tolerance, atol=tolerance)
    if weighted:
        torch.testing.assert_close(dprobs.cpu().double(), leaf_probs.grad, rtol=tolerance, atol=tolerance * 4)


X, IDX = floats(5, 8), integers(4, 5, 2)
ROWS = [Out((10, 8)), Out((10,), torch.int32)]
COUNTS = Out((4,), torch.int64)
MAP = routing_map(5, 4, 2, torch.bool)


def third(x=X, idx=IDX, scale=None, offset=None, active=10, capacity=0, drop=0, kind=1, quant=-1, span=None, new=None):
    given = [x, idx, scale, offset, active, capacity, 4, drop, kind, True, quant, span or [0, 4], 0]
    return "MoeInitRoutingV3", [*given, *(new or [*ROWS, COUNTS]), Out((10,))]


def final(rows=X, places=None, bias=None, idx=None, mode=0, out=None):
    places = torch.arange(5, dtype=torch.int32) if places is None else places
    return "MoeFinalizeRoutingV2", [rows, places, None, None, bias, None, idx, mode, out or Out((5, 8))]


PERMUTED = [Out((10, 8)), None, Out((10,), torch.int32)]
BAD = {
    "expert_idx[1, 0] is 9; expected 0 to 3": third(idx=IDX.index_fill(0, torch.tensor([1]), 9)),
    "active_expert_range is [2, 5]; expected [first, end) within the 4 experts": third(span=[2, 5]),
    "quant_mode is 2; expected -1 to 1": third(quant=2),
    "drop_pad_mode is 2; expected 0 to 1": third(drop=2),
    "expert_capacity is 0; expected 1 to 5": third(drop=1),
    "scale and offset must be given for quant_mode 0": third(quant=0, new=[Out((10, 8), torch.int8), ROWS[1], COUNTS]),
    "offset is only for quant_mode 0": third(offset=torch.ones(1)),
    "scale has shape [3]; expected [5]": third(scale=torch.ones(3)),
    "expanded_x has shape [9, 8]; expected [10, 8]": third(new=[Out((9, 8)), ROWS[1], COUNTS]),
    "expanded_x has dtype Float; expected Char": third(quant=1),
    "expert_idx has dtype int64; expected int32": third(idx=IDX.long()),
    "expert_tokens_count_or_cumsum has shape [3]; expected [4]": third(new=[*ROWS, Out((3,), torch.int64)]),
    "row_idx[0, 0] is 10; expected 0 to 9": (
        "MoeInitRouting",
        [X, torch.full((5, 2), 10, dtype=torch.int32), IDX, 5, *ROWS, Out((10,), torch.int32)],
    ),
    "expanded_row_idx[2] is 5; expected 0 to 4": final(places=torch.tensor([0, 1, 5, 3, 4], dtype=torch.int32)),
    "expanded_row_idx[0] is -1; expected 0 to 4": final(places=torch.tensor([-1, 1, 2, 3, 4], dtype=torch.int32)),
    "drop_pad_mode is 4; expected 0 to 3": final(mode=4),
    "expanded_x has 2 dimensions": final(mode=1),
    "expert_idx must be given with bias": final(bias=floats(4, 8)),
    "expert_idx[0, 0] is 7; expected 0 to 3": final(bias=floats(4, 8), idx=torch.full((5, 1), 7, dtype=torch.int32)),
    "expert_token_num_per_rank has the sum 4; expected 5": (
        "MoeReRouting",
        [
            X.half(),
            torch.tensor([[1, 3]]),
            None,
            1,
            0,
            Out((5, 8), torch.float16),
            None,
            Out((5,), torch.int32),
            Out((2,), torch.int64),
        ],
    ),
    "the experts of a token in routing_map[0] is 4; expected 2 to 2": (
        "MoeTokenPermuteWithRoutingMap",
        [X, torch.ones(5, 4, dtype=torch.bool), None, 10, False, *PERMUTED],
    ),
    "routing_map has shape [4, 4]; expected [5, 4]": (
        "MoeTokenPermuteWithRoutingMap",
        [X, MAP[:4], None, 10, False, *PERMUTED],
    ),
    "sorted_indices[0] is 10; expected 0 to 9": (
        "MoeTokenUnpermuteWithRoutingMap",
        [
            floats(10, 8),
            torch.full((10,), 10, dtype=torch.int32),
            None,
            None,
            False,
            [5, 8],
            Out((5, 8)),
            Out((10,), torch.int32),
            Out((10,), torch.int32),
            None,
        ],
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_calls(message):
    name, arguments = BAD[message]
    with pytest.raises((Rejected, RuntimeError), match=re.escape(message)):
        written_by(f"aclnn{name}", *arguments)


@pytest.mark.parametrize(
    "name, arguments, keywords",
    [
        ("npu_moe_init_routing", (X, torch.arange(10).int().view(2, 5).t(), IDX, 3), {}),
        ("npu_moe_init_routing_v2", (X, IDX), {"expert_num": 4, "expert_tokens_num_flag": True, "active_num": 10}),
        ("npu_moe_finalize_routing", (X, None, None, None, None, torch.arange(5).int(), None), {}),
        ("npu_moe_re_routing", (X.half(), torch.tensor([[2, 3]])), {}),
        ("npu_moe_token_permute_with_routing_map", (X, MAP), {"num_out_tokens": 10}),
    ],
)
def test_meta_has_the_same_shapes(name, arguments, keywords):
    function = getattr(torch.ops.npu, name)
    with FakeTensorMode() as mode:
        fake = function(
            *[mode.from_tensor(x).npu() if isinstance(x, torch.Tensor) else x for x in arguments], **keywords
        )
    real = function(*[x.npu() if isinstance(x, torch.Tensor) else x for x in arguments], **keywords)
    for first, second in zip(*[x if isinstance(x, tuple | list) else (x,) for x in (fake, real)], strict=True):
        if second is not None and first is not None:
            assert (first.shape, first.dtype) == (second.shape, second.dtype)


def test_routing_by_the_name_that_vllm_ascend_calls():
    name, arguments = third()
    expected, found = (written_by(f"aclnn{each}", *arguments) for each in (name, "MoeInitRoutingCustom"))
    assert expected[0].any() and all(map(torch.equal, expected, found))
