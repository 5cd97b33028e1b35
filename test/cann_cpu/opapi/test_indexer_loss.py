# SPDX-License-Identifier: Apache-2.0
"""The loss of lightning indexers and its gradient, against what autograd makes of the formula in float64."""

import pytest
import torch
import torch_npu  # noqa: F401
from aclnn import Out, written_by

SCALE = 0.06
SEQUENCES = [(5, 40), (3, 9)]  # tokens of queries and keys
ENDS = [5, 8], [40, 49]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def inputs_of(layout, heads, key_heads, size):
    """query, key, query_index, key_index, weights, query_rope, key_rope."""

    def halves(kind, *shape):
        packed = [torch.randn(tokens[kind], *shape).bfloat16() for tokens in SEQUENCES]
        if layout == "TND":
            return torch.cat(packed)
        longest = max(tokens[kind] for tokens in SEQUENCES)
        return torch.stack([torch.cat([x, x.new_ones(longest - len(x), *shape)]) for x in packed])

    return [
        *(halves(0, heads, size), halves(1, key_heads, size), halves(0, 8, 128), halves(1, 1, 128), halves(0, 8)),
        *(halves(0, heads, 64), halves(1, key_heads, 64)),
    ]


def places(layout):
    for b, (queries, keys) in enumerate(SEQUENCES):
        first, first_key = (sum(s[i] for s in SEQUENCES[:b]) for i in (0, 1))
        for t in range(queries):
            seen = slice(0, keys - queries + t + 1)
            if layout == "TND":
                yield (first + t,), (slice(first_key, first_key + seen.stop),)
            else:
                yield (b, t), (b, seen)


def expected_of(layout, inputs, indices=None):
    """The loss, the leaves, the statistics of the attention and of the index."""
    query, key, q, k, w, query_rope, key_rope = (x.double() for x in inputs)
    leaves = [x.requires_grad_() for x in (q, k, w)]
    shape = query.shape[:-1]
    maximum, total = torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64)
    of_index = torch.zeros(2, *shape[:-1], dtype=torch.float64)
    loss, group = 0, query.shape[-2] // key.shape[-2]
    for at, keys in places(layout):

        def take(x, keys=keys, at=at):
            x = x[keys]
            return x if indices is None else x[indices[at][0][: (indices[at] >= 0).sum()].long()]

        full = torch.cat([take(key), take(key_rope)], -1).repeat_interleave(group, 1)
        scores = SCALE * torch.einsum("nd,snd->ns", torch.cat([query[at], query_rope[at]], -1), full)
        maximum[at], total[at] = scores.amax(-1), (scores - scores.amax(-1, keepdim=True)).exp().sum(-1)
        p = scores.softmax(-1).mean(0)
        score = w[at] @ (q[at] @ take(k)[:, 0].t()).relu()
        of_index[0][at], of_index[1][at] = score.amax(), (score - score.amax()).exp().sum()
        loss = loss + (p * (p.log() - score.log_softmax(-1))).sum()

    def by_head(x):
        x = x.unflatten(-1, (-1, group)).float()
        return x.transpose(0, 1).contiguous() if layout == "TND" else x.transpose(1, 2).contiguous()

    return loss, leaves, (by_head(maximum), by_head(total)), of_index.detach().float().unsqueeze(-1 - len(at))


def check(actual, loss, leaves):
    for mine, exact in zip(actual[:3], torch.autograd.grad(loss, leaves, retain_graph=True), strict=True):
        assert torch.allclose(mine.cpu().double(), exact, rtol=2**-7, atol=2e-3 * exact.abs().max())
    assert torch.allclose(actual[3].cpu().double(), loss.detach().reshape(1), rtol=1e-4)


def lengths_of(layout):
    return [list(x) for x in (ENDS if layout == "TND" else zip(*SEQUENCES, strict=True))]


@pytest.mark.parametrize("layout", ["TND", "BSND"])
def test_the_loss_over_all_keys(layout):
    inputs = inputs_of(layout, heads=32, key_heads=32, size=128)
    loss, leaves, statistics, of_index = expected_of(layout, inputs)
    of_index = of_index.view(2, 1, -1) if layout == "TND" else of_index.view(2, 2, 1, 5)
    query, key, q, k, w, *rope = [x.npu() for x in inputs]
    lengths = dict(zip(("actual_seq_qlen", "actual_seq_klen"), lengths_of(layout), strict=True))
    found = torch.ops.npu.npu_dense_lightning_indexer_softmax_lse(q, k, w, **lengths, layout=layout)
    for mine, exact in zip(found, of_index, strict=True):
        assert torch.allclose(mine.cpu()[exact > 0], exact[exact > 0], rtol=1e-4)
    actual = torch.ops.npu.npu_dense_lightning_indexer_grad_kl_loss(
        query,
        key,
        q,
        k,
        w,
        *[x.npu() for x in statistics],
        *found,
        SCALE,
        query_rope=rope[0],
        key_rope=rope[1],
        **lengths,
        layout=layout,
    )
    check(actual, loss, leaves)


@pytest.mark.parametrize("layout", ["TND", "BSND"])
def test_the_loss_over_selected_keys(layout):
    inputs = inputs_of(layout, heads=32, key_heads=1, size=512)
    indices = torch.full((*inputs[0].shape[:-2], 1, 16), -1).int()
    for at, keys in places(layout):
        length = keys[-1].stop - keys[-1].start
        chosen = torch.randperm(length)[:16]
        indices[at][0, : len(chosen)] = chosen
    loss, leaves, statistics, _ = expected_of(layout, inputs, indices)
    *tensors, query_rope, key_rope = inputs
    numbers = [SCALE, layout, 3, 2**63 - 1, 2**63 - 1, 1]
    outs = [Out(x.shape, x.dtype) for x in tensors[2:]] + [Out((1,))]
    arguments = [*tensors, indices, *statistics, query_rope, key_rope, *lengths_of(layout)]
    check(written_by("aclnnSparseLightningIndexerGradKLLoss", *arguments, *numbers, *outs), loss, leaves)
    check(written_by("aclnnSparseLightningIndexerGradKLLossV2", *arguments, None, *numbers, *outs), loss, leaves)
    lengths = dict(zip(("actual_seq_qlen", "actual_seq_klen"), lengths_of(layout), strict=True))
    actual = torch.ops.npu.npu_sparse_lightning_indexer_grad_kl_loss(
        *[x.npu() for x in (*tensors, indices, *statistics)],
        SCALE,
        query_rope=query_rope.npu(),
        key_rope=key_rope.npu(),
        **lengths,
        layout=layout,
    )
    check(actual, loss, leaves)


def test_a_mask_that_is_not_served_is_rejected():
    q, k, w = inputs_of("BSND", heads=32, key_heads=1, size=512)[2:5]
    with pytest.raises(RuntimeError, match="sparse_mode is 0; expected 3 to 3"):
        torch.ops.npu.npu_dense_lightning_indexer_softmax_lse(q.npu(), k.npu(), w.npu(), sparse_mode=0)
