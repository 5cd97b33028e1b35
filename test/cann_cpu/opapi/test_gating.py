# SPDX-License-Identifier: Apache-2.0
"""Gates of mixtures of experts, against their definitions row by row."""

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


def close(given, expected, dtype):
    torch.testing.assert_close(
        given.cpu().double(), expected.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] / 100
    )


def places_of_largest(values, k):
    """Of equal values, those that come first."""
    return sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]


def chosen(scores, bias, k, k_group, groups, by_two):
    """The experts of each row of scores, by lists."""
    result = []
    for row in (scores if bias is None else scores + bias).tolist():
        size = len(row) // groups
        parts = [row[i * size : (i + 1) * size] for i in range(groups)]
        totals = [sum(sorted(part)[-2:]) if by_two else max(part) for part in parts]
        kept = set(places_of_largest(totals, k_group))
        result.append(places_of_largest([x if i // size in kept else float("-inf") for i, x in enumerate(row)], k))
    return torch.tensor(result, dtype=torch.int64).view(len(scores), k)


def weights(scores, experts, renorm, factor, eps):
    result = scores.gather(1, experts)
    return factor * (result / (result.sum(1, keepdim=True) + eps) if renorm else result)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("norm", ["softmax", "sigmoid"])
@pytest.mark.parametrize(
    "tokens, experts, k, k_group, groups, mode, biased",
    [
        (37, 256, 8, 4, 8, 1, True),  # of DeepSeek V3
        (5, 256, 8, 4, 8, 0, True),
        (3, 128, 8, 1, 1, 0, False),  # of Qwen3
        (1, 64, 6, 1, 1, 1, False),
        (0, 64, 6, 2, 4, 1, True),
        (2, 12, 12, 3, 3, 0, False),
        (3, 7, 2, 1, 1, 0, True),
    ],
)
def test_gating_top_k(dtype, norm, tokens, experts, k, k_group, groups, mode, biased):
    x = floats(tokens, experts, dtype=dtype)
    bias = floats(experts, dtype=dtype, seed=1) / 4 if biased else None
    y, expert, out = torch_npu.npu_moe_gating_top_k(
        x.npu(),
        k,
        bias=None if bias is None else bias.npu(),
        k_group=k_group,
        group_count=groups,
        group_select_mode=mode,
        norm_type=["softmax", "sigmoid"].index(norm),
        out_flag=True,
        routed_scaling_factor=2.5,
        eps=1e-20,
    )
    exact = x.double().softmax(1) if norm == "softmax" else x.double().sigmoid()
    close(out, exact, torch.float32)
    # The choice is that among the float32 scores, where two of them may be equal.
    scores = out.cpu()
    assert torch.equal(
        expert.cpu().long(), chosen(scores, None if bias is None else bias.float(), k, k_group, groups, mode)
    )
    close(y, weights(exact, expert.cpu().long(), norm == "sigmoid", 2.5, 1e-20), dtype)


def test_gating_top_k_takes_the_first_of_equal_experts_and_views():
    x = torch.zeros(3, 16, dtype=torch.bfloat16)
    x[:, ::5] = 1
    whole = torch.full((3, 40), 9.0).bfloat16().npu()
    whole[:, 8:24] = x.npu()
    _, expert, _ = torch_npu.npu_moe_gating_top_k(whole[:, 8:24], 6, norm_type=1)
    assert expert.cpu().tolist() == [[0, 5, 10, 15, 1, 2]] * 3


@pytest.mark.parametrize("norm", ["softmax", "sigmoid"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_gating_by_a_table(norm, dtype):
    x, table = floats(5, 32), torch.stack([torch.randperm(32)[:4] for _ in range(9)]).to(dtype)
    ids = torch.tensor([8, 0, 3, 3, 1], dtype=dtype)
    y, expert, _ = torch_npu.npu_moe_gating_top_k(
        x.npu(), 4, input_ids=ids.npu(), tid2eid=table.npu(), norm_type=["softmax", "sigmoid"].index(norm), renorm=0
    )
    experts = table[ids.long()].long()
    assert torch.equal(expert.cpu().long(), experts)
    scores = x.double().softmax(1) if norm == "softmax" else x.double().sigmoid()
    close(y, weights(scores, experts, norm == "sigmoid", 1, 1e-20), torch.float32)


def test_gating_by_a_table_may_divide_softmax_by_the_sum():
    x, table, ids = floats(3, 16), torch.randperm(16)[:6].view(3, 2), torch.tensor([2, 0, 1])
    new = [Out((3, 2)), Out((3, 2), torch.int32), Out((3, 16))]
    y, *_ = written_by("aclnnMoeGatingTopKV2", x, None, ids, table, 2, 1, 1, 0, 1, 0, 0, 1.5, 1e-6, *new)
    close(y, weights(x.double().softmax(1), table[ids], True, 1.5, 1e-6), torch.float32)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gating_top_k_backward(dtype):
    x = floats(7, 32).double().requires_grad_()
    experts = torch.stack([torch.randperm(32, generator=torch.Generator().manual_seed(i))[:5] for i in range(7)])
    dy = floats(7, 5, dtype=dtype, seed=1)
    weights(x.sigmoid(), experts, True, 2.5, 1e-3).backward(dy.double())
    grad = torch_npu.npu_moe_gating_top_k_backward(
        x.detach().sigmoid().float().npu(),
        dy.npu(),
        experts.int().npu(),
        norm_type=1,
        routed_scaling_factor=2.5,
        eps=1e-3,
    )
    assert grad.dtype == dtype
    torch.testing.assert_close(grad.cpu().double(), x.grad, rtol=TOLERANCE[dtype] * 10, atol=TOLERANCE[dtype] / 10)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape, k", [((33, 128), 8), ((2, 3, 64), 4), ((1, 5), 5), ((0, 8), 2), ((8193, 128), 2)])
@pytest.mark.parametrize("finished", [False, True])
def test_gating_top_k_softmax(dtype, shape, k, finished):
    x = floats(*shape, dtype=dtype)
    done = torch.arange(x[..., 0].numel()).view(shape[:-1]) % 3 == 1 if finished else None
    on_npu = None if done is None else done.npu()
    y, expert, row = torch_npu.npu_moe_gating_top_k_softmax(x.npu(), on_npu, k)
    later, expert_later, softmax = torch_npu.npu_moe_gating_top_k_softmax_v2(
        x.npu(), k=k, finished=on_npu, renorm=0, output_softmax=True
    )
    assert torch.equal(y, later) and torch.equal(expert, expert_later)
    exact = x.double().softmax(-1)
    close(softmax, exact, torch.float32)
    places = chosen(softmax.cpu().flatten(0, -2), None, k, 1, 1, False).view(*shape[:-1], k)
    close(y, exact.gather(-1, places), dtype)
    expected = places if done is None else places.masked_fill(done.unsqueeze(-1), shape[-1])
    assert torch.equal(expert.cpu().long(), expected)
    rows = x[..., 0].numel()
    assert torch.equal(
        row.cpu().long(), (torch.arange(rows).unsqueeze(1) + rows * torch.arange(k)).view(expected.shape)
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_gating_top_k_before_softmax(dtype):
    x = floats(9, 64, dtype=dtype)
    y, expert, _ = torch_npu.npu_moe_gating_top_k_softmax_v2(x.npu(), k=4, renorm=1)
    places = chosen(x.float(), None, 4, 1, 1, False)
    assert torch.equal(expert.cpu().long(), places)
    close(y, x.double().gather(1, places).softmax(1), dtype)


@pytest.mark.parametrize("experts, of_rows", [(4, [0, 0, 2, 3, 3, 3]), (1, [0]), (3, []), (2048, [7] * 100)])
def test_compute_expert_tokens(experts, of_rows):
    result = torch_npu.npu_moe_compute_expert_tokens(torch.tensor(of_rows, dtype=torch.int32).npu(), experts)
    assert result.cpu().tolist() == [sum(row <= i for row in of_rows) for i in range(experts)]
    assert result.dtype == torch.int32


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("mode, rank", [(0, 0), (0, 5), (0, 7), (1, -1)])
@pytest.mark.parametrize("pruned", ["", "scales", "mask"])
def test_update_expert(dtype, mode, rank, pruned):
    generator = torch.Generator().manual_seed(1)
    world, tokens, k = 8, 19, 3
    counts = torch.randint(1, 5, (16,), generator=generator)
    table = torch.cat((counts.unsqueeze(1), torch.randint(0, 32, (16, 4), generator=generator)), 1).int()
    ids = torch.randint(0, 16, (tokens, k), generator=generator).to(dtype)
    scales = torch.rand(tokens, k, generator=generator)
    threshold, active = torch.tensor([[0.2, 0.3, 0.4]]), torch.arange(tokens) < 11
    options = {}
    if pruned:
        options = {"expert_scales": scales.npu(), "pruning_threshold": threshold.npu()}
    if pruned == "mask":
        options["active_mask"] = active.npu()
    new, mask = torch_npu.npu_moe_update_expert(
        ids.npu(), table.npu(), local_rank_id=rank, world_size=world if mode == 0 else -1, balance_mode=mode, **options
    )
    expected = [
        [int(table[e, 1 + (rank // -(-world // int(counts[e])) if mode == 0 else i % int(counts[e]))]) for e in row]
        for i, row in enumerate(ids.tolist())
    ]
    assert new.cpu().tolist() == expected
    assert new.dtype == dtype
    if pruned:
        kept = scales >= scales.sum(1, keepdim=True) * threshold
        assert torch.equal(mask.cpu(), kept & active.unsqueeze(1) if pruned == "mask" else kept)


X, IDS, TABLE = floats(3, 16), torch.tensor([0, 1, 5]), torch.zeros(5, 2, dtype=torch.int64)
NEW = [Out((3, 2)), Out((3, 2), torch.int32), Out((3, 16))]
EXPERTS = torch.tensor([[0, 1], [2, 16], [0, 0]], dtype=torch.int32)
EPLB = torch.tensor([[1, 4, 0], [3, 1, 2]], dtype=torch.int32)
UPDATED = [Out((3, 2), torch.int32), Out((3, 2), torch.bool)]


def gate(bias=None, k=2, k_group=1, groups=1, mode=0, renorm=0, norm=0, new=NEW, x=X):
    return "MoeGatingTopK", [x, bias, k, k_group, groups, mode, renorm, norm, 0, 1.0, 1e-20, *new]


BAD = {
    "k is 17; expected 1 to 16": gate(k=17),
    "k is 5; expected 1 to 4": gate(k=5, groups=4),
    "k_group is 3; expected 1 to 2": gate(groups=2, k_group=3),
    "group_count is 3; expected a divisor of the 16 experts": gate(groups=3),
    "group_count is 16; expected a divisor of the 16 experts, with more than 1 in a group": gate(groups=16, mode=1),
    "renorm is 1; expected 0 to 0": gate(renorm=1),
    "norm_type is 2; expected 0 to 1": gate(norm=2),
    "bias has shape [8]; expected [16]": gate(bias=floats(8)),
    "bias has dtype float16; expected float32": gate(bias=floats(16).half()),
    "y has shape [3, 3]; expected [3, 2]": gate(new=[Out((3, 3)), *NEW[1:]]),
    "x has 96 experts in 96 groups; expected at most 2048": gate(x=floats(3, 96), groups=96),
    "input_ids[2] is 5; expected 0 to 4": (
        "MoeGatingTopKV2",
        [X, None, IDS, TABLE, 2, 1, 1, 0, 0, 1, 0, 1.0, 1e-20, *NEW],
    ),
    "input_ids and tid2eid must be given together": (
        "MoeGatingTopKV2",
        [X, None, IDS, None, 2, 1, 1, 0, 0, 1, 0, 1.0, 1e-20, *NEW],
    ),
    "expert_idx[1, 1] is 16; expected 0 to 15": (
        "MoeGatingTopKBackward",
        [X.sigmoid(), floats(3, 2), EXPERTS, 0, 1, 1.0, 1e-20, Out((3, 16))],
    ),
    "k is 17; expected 1 to 16 ": (
        "MoeGatingTopKSoftmax",
        [X, None, 17, Out((3, 17)), Out((3, 17), torch.int32), Out((3, 17), torch.int32)],
    ),
    "finished has shape [2]; expected [3]": (
        "MoeGatingTopKSoftmax",
        [X, torch.zeros(2, dtype=torch.bool), 2, *NEW[:2], Out((3, 2), torch.int32)],
    ),
    "sorted_experts[1] is 4; expected 0 to 3": (
        "MoeComputeExpertTokens",
        [torch.tensor([0, 4], dtype=torch.int32), 4, Out((4,), torch.int32)],
    ),
    "the counts of eplb_table[1] is 3; expected 1 to 2": (
        "MoeUpdateExpert",
        [EXPERTS % 2, EPLB, None, None, None, 0, 4, 0, *UPDATED],
    ),
    "local_rank_id is 4; expected 0 to 3": (
        "MoeUpdateExpert",
        [EXPERTS % 2, EPLB, None, None, None, 4, 4, 0, *UPDATED],
    ),
    "active_mask is given without expert_scales": (
        "MoeUpdateExpert",
        [EXPERTS % 2, EPLB, None, None, torch.ones(3, dtype=torch.bool), 0, 4, 0, *UPDATED],
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_calls(message):
    name, arguments = BAD[message]
    with pytest.raises((Rejected, RuntimeError), match=re.escape(message.strip())):
        written_by(f"aclnn{name}", *arguments)


@pytest.mark.parametrize(
    "name, arguments",
    {
        "npu_moe_gating_top_k": (X, 2),
        "npu_moe_gating_top_k_softmax": (X, None, 2),
        "npu_moe_compute_expert_tokens": (EXPERTS.flatten().sort()[0], 17),
        "npu_moe_update_expert": (EXPERTS % 2, EPLB.clamp(max=2)),
    }.items(),
)
def test_meta_has_the_same_shapes(name, arguments):
    function = getattr(torch.ops.npu, name)
    keywords = {}
    if name == "npu_moe_update_expert":
        keywords = {"local_rank_id": 0, "world_size": 4}
    with FakeTensorMode() as mode:
        fake = function(
            *[mode.from_tensor(x).npu() if isinstance(x, torch.Tensor) else x for x in arguments], **keywords
        )
    real = function(*[x.npu() if isinstance(x, torch.Tensor) else x for x in arguments], **keywords)
    for first, second in zip(*[x if isinstance(x, tuple | list) else (x,) for x in (fake, real)], strict=True):
        assert (first.shape, first.dtype) == (second.shape, second.dtype)
