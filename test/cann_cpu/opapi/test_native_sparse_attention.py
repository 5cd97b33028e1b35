# SPDX-License-Identifier: Apache-2.0
"""Native sparse attention, against its formulas in float64 and what autograd makes of them."""

import itertools

import pytest
import torch
import torch_npu


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def near(actual, expected, share=0.02):
    """Elements are off by the precision of their dtype, relative to themselves and to a share of the usual size."""
    assert actual.shape == expected.shape
    size = expected.square().mean().sqrt()
    precision = torch.finfo(actual.dtype).eps
    assert ((actual.double() - expected).abs() <= precision * (expected.abs() + share * size) + 1e-6).all()


def halves(*shape, dtype=torch.float16):
    return torch.randn(shape).to(dtype)


def spans(ends):
    return list(itertools.pairwise([0, *ends]))


def on_npu(arguments):
    return [x.npu() if isinstance(x, torch.Tensor) else x for x in arguments]


def compressed(x, weight, ends, size, stride):
    rows = [
        (x[first : first + size] * weight[:, :, None]).sum(0)
        for begin, end in spans(ends)
        for first in range(begin, end - size + 1, stride)
    ]
    return torch.stack(rows) if rows else x[:0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "ends, size, stride, heads, depth",
    [([100, 131, 200], 32, 16, 4, 192), ([16], 16, 16, 1, 16), ([64, 64, 2000], 64, 48, 8, 256)],
)
def test_compression_and_its_gradient(ends, size, stride, heads, depth, dtype):
    x, weight = halves(ends[-1], heads, depth, dtype=dtype), halves(size, heads, dtype=dtype)
    leaves = [each.double().requires_grad_() for each in (x, weight)]
    y = compressed(*leaves, ends, size, stride)
    dy = halves(*y.shape, dtype=dtype)
    there = on_npu([x, weight, size, stride])
    near(torch_npu.npu_nsa_compress(*there, actual_seq_len=ends).cpu(), y.detach())
    gradients = torch.ops.npu.npu_nsa_compress_grad(dy.npu(), *there, actual_seq_len=ends)
    for actual, expected in zip(gradients, torch.autograd.grad(y, leaves, dy.double()), strict=True):
        near(actual.cpu(), expected)


@pytest.mark.parametrize("page", [None, 64])
def test_compression_into_a_cache(page):
    lengths, size, stride, heads, depth = [32, 40, 48, 31, 100], 32, 16, 2, 64
    sequences = [halves(length, heads, depth) for length in lengths]
    weight, cache = halves(size, heads), halves(20, heads, depth)
    slots = torch.tensor([3, 7, 19, 1, 0]).int()
    expected = cache.double()
    for i in (0, 2):
        last = sequences[i][-size:].double()
        expected[slots[i]] = (last * weight.double()[:, :, None]).sum(0)
    table, x = None, torch.cat(sequences)
    if page:
        x, table = halves(9, page, heads, depth), torch.randperm(9)[:8].int().repeat(5)[:10].view(5, 2)
        table = torch.tensor([[4, 0], [1, 0], [8, 0], [2, 0], [5, 7]]).int()
        for sequence, row in zip(sequences, table, strict=True):
            for place, token in enumerate(sequence):
                x[row[place // page], place % page] = token
        table = table.npu()
    there = cache.npu()
    torch_npu.npu_nsa_compress_infer(
        x.npu(),
        weight.npu(),
        slots.npu(),
        size,
        stride,
        page or 64,
        block_table=table,
        actual_seq_len=lengths,
        cache=there,
    )
    near(there.cpu(), expected)


def importance(p, blocks, size, stride, select):
    """Of blocks, from probabilities (..., keys), by the formula."""
    sums = torch.zeros(*p.shape[:-1], blocks, dtype=p.dtype)
    for j in range(blocks):
        for m in range(select // stride):
            for n in range(size // stride):
                at = select // stride * j - m - n
                if 0 <= at < p.shape[-1]:
                    sums[..., j] += p[..., at]
    return sums


def attended(q, k, v, scale, hidden=None):
    scores = scale * q @ k.t()
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1).nan_to_num(), (scores.softmax(-1) @ v).nan_to_num(), scores


def same_choice(indices, scores):
    """Indices of the best scores, best first, up to rounding."""
    best = scores.topk(len(indices)).values
    assert len(set(indices.tolist())) == len(indices)
    assert torch.allclose(scores[indices.long()], best, atol=1e-4)


MASKS = [(False, False), (True, True)]


@pytest.mark.parametrize("masked, forced", MASKS)
@pytest.mark.parametrize("heads, group, depth, value_depth", [(2, 4, 192, 128), (1, 1, 64, 64)])
def test_compressed_attention(heads, group, depth, value_depth, masked, forced):
    q_ends, k_ends, blocks = [5, 18], [37, 100], [10, 16]
    size, stride, select, count, scale = 32, 16, 64, 6, depth**-0.5
    q, k = halves(18, heads * group, depth), halves(100, heads, depth)
    v = halves(100, heads, value_depth)
    mask = torch.rand(13, 63) > 0.6 if masked else None
    always = torch.zeros(13, 16, dtype=torch.bool)
    always[:, [0, 3]] = True
    out, indices, maximum, total = torch_npu.npu_nsa_compress_attention(
        *on_npu([q, k, v, scale, heads * group, size, stride, select, count]),
        topk_mask=always.npu() if forced else None,
        atten_mask=mask.npu() if masked else None,
        actual_seq_qlen=q_ends,
        actual_cmp_seq_kvlen=k_ends,
        actual_sel_seq_kvlen=[10, 26],
    )
    out, indices, maximum, total = (x.cpu() for x in (out, indices, maximum, total))
    for i, ((first, last), (k_first, k_last)) in enumerate(zip(spans(q_ends), spans(k_ends), strict=True)):
        for t, h in itertools.product(range(last - first), range(heads)):
            ours = slice(h * group, (h + 1) * group)
            keys, values = k[k_first:k_last, h].double(), v[k_first:k_last, h].double()
            hidden = mask[t, : k_last - k_first] if masked else None
            p, expected, scores = attended(q[first + t, ours].double(), keys, values, scale, hidden)
            near(out[first + t, ours], expected)
            statistics = (maximum[first + t, ours] + total[first + t, ours].log()).double()
            assert torch.allclose(statistics, scores.logsumexp(-1, keepdim=True).expand(-1, 8), atol=1e-4)
            shares = importance(p, blocks[i], size, stride, select).sum(0)
            if forced:
                shares[always[t, : blocks[i]]] = 1e9
            same_choice(indices[first + t, h], shares)


def select_inputs(heads=2, group=3, depth=192, value_depth=128, count=4, block=16):
    q_ends, k_ends = [7, 12], [96, 192]
    q, k = halves(12, heads * group, depth), halves(192, heads, depth)
    v = halves(192, heads, value_depth)
    indices = torch.stack([torch.randperm(6)[:count] for _ in range(12 * heads)]).int().view(12, heads, count)
    indices[3, 0, 2:] = -1
    return q, k, v, indices, q_ends, k_ends, block


@pytest.mark.parametrize("mode", ["whole", "causal"])
def test_attention_to_selected_blocks_and_its_gradient(mode):
    q, k, v, indices, q_ends, k_ends, block = select_inputs()
    indices[:, :, 0] = 0  # what a causal query sees
    heads, count, scale = k.shape[1], indices.shape[2], 0.07
    group = q.shape[1] // heads
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1) if mode == "causal" else None
    leaves = [each.double().requires_grad_() for each in (q, k, v)]
    expected = torch.zeros(12, q.shape[1], v.shape[2], dtype=torch.float64)
    for (first, last), (k_first, _) in zip(spans(q_ends), spans(k_ends), strict=True):
        for t, h in itertools.product(range(last - first), range(heads)):
            chosen = [i for i in indices[first + t, h].tolist() if i >= 0]
            keys = [i * block + j for i in chosen for j in range(block) if mask is None or i * block + j <= t]
            ours, at = slice(h * group, (h + 1) * group), torch.tensor(keys) + k_first
            out = attended(leaves[0][first + t, ours], leaves[1][at, h], leaves[2][at, h], scale)[1]
            expected = expected.index_put((torch.tensor(first + t), torch.arange(ours.start, ours.stop)), out)
    attributes = dict(atten_mask=None if mask is None else mask.npu(), actual_seq_qlen=q_ends, actual_seq_kvlen=k_ends)
    numbers = scale, heads * group, block, count
    results = torch_npu.npu_nsa_select_attention(*on_npu([q, k, v, indices]), *numbers, **attributes)
    out = results[0].cpu()
    near(out, expected.detach())
    dy = halves(*out.shape)
    gradients = torch.ops.npu.npu_nsa_select_attention_grad(
        dy.npu(), *on_npu([q, k, v]), *results, indices.npu(), *numbers, **attributes
    )
    for actual, exact in zip(gradients, torch.autograd.grad(expected, leaves, dy.double()), strict=True):
        near(actual.cpu(), exact, share=8)  # from a result that was rounded


def paged(tensor, lengths, page):
    """Sequences of (tokens, heads, size) in pages of one row a token, and the block table."""
    each = max(-(-length // page) for length in lengths)
    pages = halves(len(lengths) * each + 2, page, *tensor[0].shape[1:])
    table = torch.randperm(len(pages))[: len(lengths) * each].int().view(len(lengths), each)
    for sequence, row in zip(tensor, table, strict=True):
        for place, token in enumerate(sequence):
            pages[row[place // page], place % page] = token
    return pages, table


@pytest.mark.parametrize("layout", ["TND", "BSND"])
def test_decode(layout):
    lengths, heads, group, depth, value_depth, page = [100, 61, 129], 2, 4, 192, 128, 64
    size, stride, select, count, scale = 32, 16, 64, 5, 0.07
    keys = [halves(length, heads, depth) for length in lengths]
    values = [halves(length, heads, value_depth) for length in lengths]
    both, table = paged([torch.cat(pair, -1) for pair in zip(keys, values, strict=True)], lengths, page)
    k, v = (each.contiguous().flatten(2) for each in both.split([depth, value_depth], -1))
    q = halves(3, *[1] * (layout == "BSND"), heads * group, depth)
    there = on_npu([q, k, v, scale, heads * group, heads, select, count, page, size, stride])
    out, indices = torch_npu.npu_nsa_compress_attention_infer(
        *there, layout=layout, block_table=table.npu(), actual_cmp_seq_kvlen=lengths
    )
    chosen = torch.full((3, *[1] * (layout == "BSND"), heads, count), -1).int()
    for i, h in itertools.product(range(3), range(heads)):
        blocks = torch.randperm(-(-lengths[i] // 16))[:count]
        chosen.view(3, heads, count)[i, h, : len(blocks)] = blocks
    if layout == "BSND":
        there[1:3] = [x.unflatten(2, (heads, -1)) for x in there[1:3]]
    selected = torch_npu.npu_nsa_select_attention_infer(
        *there[:3],
        chosen.npu(),
        *(scale, heads * group, heads, 16, count, page),
        layout=layout,
        block_table=table.npu(),
        actual_seq_kvlen=lengths,
    )
    out, indices, selected, chosen = (x.cpu().reshape(3, -1, x.shape[-1]) for x in (out, indices, selected, chosen))
    for i, h in itertools.product(range(3), range(heads)):
        ours, mine = slice(h * group, (h + 1) * group), q.view(3, -1, depth)[i].double()
        p, expected, _ = attended(mine[ours], keys[i][:, h].double(), values[i][:, h].double(), scale)
        near(out[i, ours], expected)
        same_choice(indices[i, h], importance(p, -(-lengths[i] // 4), size, stride, select).sum(0))
        at = [j * 16 + n for j in chosen[i, h].tolist() if j >= 0 for n in range(16) if j * 16 + n < lengths[i]]
        near(selected[i, ours], attended(mine[ours], keys[i][at, h].double(), values[i][at, h].double(), scale)[1])


REJECTED = {
    "size": (dict(compress_block_size=24), "compress_block_size is 24; expected a multiple of 16 up to 128"),
    "stride": (dict(compress_stride=64), "compress_stride is 64; expected a multiple of 16 up to 32"),
    "weight": (dict(weight=halves(32, 5)), r"weight has shape \[32, 5\]; expected \[32, 4\]"),
    "ends": (dict(actual_seq_len=[40, 60]), "act_seq_len ends with 60; expected 64, the tokens"),
}


@pytest.mark.parametrize("changes, message", REJECTED.values(), ids=list(REJECTED))
def test_bad_compression_is_rejected(changes, message):
    arguments = dict(
        input=halves(64, 4, 16), weight=halves(32, 4), compress_block_size=32, compress_stride=16, actual_seq_len=[64]
    )
    arguments |= changes
    with pytest.raises(RuntimeError, match=message):
        torch_npu.npu_nsa_compress(**dict(zip(arguments, on_npu(arguments.values()), strict=True)))


def test_a_block_out_of_range_is_named():
    q, k, v, indices, q_ends, k_ends, block = select_inputs()
    indices[5, 1, 2] = 6
    with pytest.raises(RuntimeError, match=r"topk_indices\[5, 1, 2\] is 6; expected 0 to 5, or -1"):
        torch_npu.npu_nsa_select_attention(
            *on_npu([q, k, v, indices, 0.07, 6, block, 4]), actual_seq_qlen=q_ends, actual_seq_kvlen=k_ends
        )
        torch.npu.synchronize()
