# SPDX-License-Identifier: Apache-2.0
"""npu_block_sparse_attention and its gradient, against the formula in float64 and autograd."""

import math

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, written_by

UNLIMITED = 2147483647


def randn(*shape, seed, dtype):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def sequences(query_lengths, key_lengths, mask, block):
    """For each sequence its rows of queries and keys in TND, and which keys each query of a head sees."""
    first_query = first_key = 0
    for each, queries, keys in zip(mask, query_lengths, key_lengths, strict=True):
        seen = each.bool().repeat_interleave(block[0], 1).repeat_interleave(block[1], 2)[:, :queries, :keys]
        yield slice(first_query, first_query + queries), slice(first_key, first_key + keys), seen
        first_query, first_key = first_query + queries, first_key + keys


def attention(query, key, value, query_lengths, key_lengths, mask, block, scale):
    """In TND; the logarithm of the sum is infinite where a query sees nothing."""
    outs, lses = [], []
    shared = query.shape[1] // key.shape[1]
    for rows, columns, seen in sequences(query_lengths, key_lengths, mask, block):
        q = query[rows].transpose(0, 1)
        k, v = (x[columns].transpose(0, 1).repeat_interleave(shared, 0) for x in (key, value))
        scores = (q @ k.mT * scale).masked_fill(~seen, -math.inf)
        nothing = ~seen.any(-1, keepdim=True)
        p = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
        outs.append((p @ v).transpose(0, 1))
        lse = scores.logsumexp(-1, keepdim=True).masked_fill(nothing, math.inf)
        lses.append(lse.transpose(0, 1))
    return torch.cat(outs), torch.cat(lses)


def close(actual, expected, factor=1):
    tolerance = factor * 2 * torch.finfo(actual.dtype).eps
    torch.testing.assert_close(actual.cpu().double(), expected.double(), rtol=tolerance, atol=tolerance)


def in_layout(x, layout, batch):
    """From TND, of sequences that are equally long."""
    if layout == "TND":
        return x
    by_batch = x.unflatten(0, (batch, -1))
    return by_batch if layout == "BSND" else by_batch.transpose(1, 2)


SIZES = {
    "one token": ([1], [300], 8, 2, (16, 128)),
    "a prompt": ([300, 300], [260, 260], 8, 8, (64, 128)),
    "past a block": ([129, 129], [129, 129], 4, 2, (128, 256)),
    "several lengths": ([65, 0, 127, 3], [129, 5, 11, 600], 4, 1, (64, 128)),
}
CASES = [
    (layout, sizes)
    for sizes in SIZES
    for layout in ("TND", "BNSD", "BSND")
    if layout == "TND" or len(set(SIZES[sizes][0])) == 1
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("layout", "sizes"), CASES, ids=" ".join)
def test_attention_and_its_gradient(layout, sizes, dtype):
    query_lengths, key_lengths, heads, key_heads, block = SIZES[sizes]
    batch, size, scale = len(query_lengths), 128, 0.09
    query, dout = (randn(sum(query_lengths), heads, size, seed=i, dtype=dtype) for i in range(2))
    key, value = (randn(sum(key_lengths), key_heads, size, seed=i, dtype=dtype) for i in (2, 3))
    blocks = (math.ceil(max(query_lengths) / block[0]), math.ceil(max(key_lengths) / block[1]))
    mask = (torch.rand(batch, heads, *blocks, generator=torch.Generator().manual_seed(5)) < 0.7).to(torch.int8)
    mask[0, 0, 0] = 0  # some queries see nothing
    leaves = [x.double().requires_grad_() for x in (query, key, value)]
    expected, lse = attention(*leaves, query_lengths, key_lengths, mask, block, scale)
    gradients = torch.autograd.grad(expected, leaves, dout.double())

    lengths = {"actual_seq_lengths": query_lengths, "actual_seq_lengths_kv": key_lengths} if layout == "TND" else {}
    layouts = {"q_input_layout": layout, "kv_input_layout": layout}
    given = [in_layout(x, layout, batch).contiguous().npu() for x in (query, key, value)]
    options = lengths | layouts | {"num_key_value_heads": key_heads, "scale_value": scale}
    out, found = torch_npu.npu_block_sparse_attention(
        *given, mask.npu(), block, **options, inner_precise=0, softmax_lse_flag=1
    )
    close(out, in_layout(expected.detach(), layout, batch))
    torch.testing.assert_close(found.cpu().double(), in_layout(lse.detach(), layout, batch), rtol=1e-5, atol=1e-5)
    if layout == "BSND":
        found = found.transpose(1, 2).contiguous()
    back = written_by(
        "aclnnBlockSparseAttentionGrad",
        in_layout(dout, layout, batch).npu(),
        *given,
        out,
        found,
        mask.npu(),
        None,
        list(block),
        query_lengths if lengths else None,
        key_lengths if lengths else None,
        layout,
        layout,
        key_heads,
        0,
        scale,
        UNLIMITED,
        UNLIMITED,
        *[Out(x.shape, dtype) for x in given],
    )
    for actual, wanted in zip(back, gradients, strict=True):
        close(actual, in_layout(wanted, layout, batch), 8)


def test_padding_is_as_where_nothing_is_seen():
    query, key = (randn(2, 2, tokens, 64, seed=tokens, dtype=torch.float16) for tokens in (20, 140))
    mask = torch.ones(2, 2, 1, 2, dtype=torch.int8)
    lengths = {"actual_seq_lengths": [20, 7], "actual_seq_lengths_kv": [140, 9]}
    layouts = {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "num_key_value_heads": 2, "scale_value": 0.1}
    given = [x.npu() for x in (query, key, key, mask)]
    out, lse = torch_npu.npu_block_sparse_attention(*given, [128, 128], **lengths, **layouts, softmax_lse_flag=1)
    scores = query[1, :, :7].double() @ key[1, :, :9].double().mT * 0.1
    close(out[1, :, :7], scores.softmax(-1) @ key[1, :, :9].double())
    assert not out[1, :, 7:].any() and lse[1, :, 7:].isinf().all() and not lse[0].isinf().any()


def test_the_public_gradient_is_that_of_the_function():
    inputs = [randn(1, 2, 130, 128, seed=i, dtype=torch.float16).npu() for i in range(3)]
    mask = torch.tensor([[[[1, 0], [1, 1]]] * 2], dtype=torch.int8).npu()
    layouts = {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "num_key_value_heads": 2, "scale_value": 0.1}
    out, lse = torch_npu.npu_block_sparse_attention(*inputs, mask, [128, 128], **layouts, softmax_lse_flag=1)
    found = torch_npu.npu_block_sparse_attention_backward(
        out, *inputs, out, lse, mask, block_shape=[128, 128], actual_seq_lengths=None, actual_seq_lengths_kv=None,
        **layouts,
    )  # fmt: skip
    leaves = [x.cpu()[0].transpose(0, 1).double().requires_grad_() for x in inputs]
    expected, _ = attention(*leaves, [130], [130], mask.cpu(), (128, 128), 0.1)
    dout = out.cpu()[0].transpose(0, 1).double()
    for actual, wanted in zip(found, torch.autograd.grad(expected, leaves, dout), strict=True):
        close(actual[0].transpose(0, 1), wanted, 8)


def arguments(**changed):
    x = torch.zeros(2, 4, 30, 64, dtype=torch.float16)
    given = {
        "query": x, "key": x, "value": x, "mask": torch.ones(2, 4, 1, 1, dtype=torch.int8), "atten_mask": None,
        "block": [128, 128], "lengths": None, "key_lengths": None, "block_table": None, "layout": "BNSD",
        "key_layout": "BNSD", "key_heads": 4, "mask_type": 0, "scale": 1.0, "inner_precise": 0, "block_size": 0,
        "pre_tokens": UNLIMITED, "next_tokens": UNLIMITED, "lse_flag": 0, "out": Out(x.shape, x.dtype), "lse": None,
    }  # fmt: skip
    assert changed.keys() <= given.keys()
    return (given | changed).values()


BAD = {
    "layout is unknown": ({"layout": "SBH"}, 'q_input_layout is "SBH"; expected TND, BNSD or BSND'),
    "layouts differ": ({"key_layout": "TND"}, 'kv_input_layout is "TND"; expected BNSD'),
    "no mask": ({"mask": None}, "block_sparse_mask is null"),
    "mask of other blocks": (
        {"block": [16, 128]},
        r"block_sparse_mask has shape \[2, 4, 1, 1\]; expected \[2, 4, 2, 1\]",
    ),
    "odd block": ({"block": [128, 64]}, r"block_shape\[1\] is 64; expected a multiple of 128"),
    "only the queries' lengths": ({"lengths": [1, 2]}, "actual_seq_lengths is given, actual_seq_lengths_kv is null"),
    "a long sequence": (
        {"lengths": [30, 31], "key_lengths": [1, 1]},
        r"actual_seq_lengths\[1\] is 31; expected 0 to 30",
    ),
    "heads": ({"key_heads": 3}, "num_key_value_heads is 3; expected a divisor of 4"),
    "mask type": ({"mask_type": 1}, "mask_type is 1; expected 0"),
    "half precision": ({"inner_precise": 4}, "inner_precise is 4; expected 0 to 1"),
    "pages": ({"block_size": 16}, "block_size is 16; expected 0"),
    "window": ({"pre_tokens": 5}, "pre_tokens is 5; expected 2147483647"),
    "a mask of queries and keys": ({"atten_mask": torch.zeros(30, 30, dtype=torch.int8)}, "atten_mask"),
    "no place for the logarithm": ({"lse_flag": 1}, "softmax_lse is null; softmax_lse_flag is 1"),
    "size": (dict.fromkeys(("query", "key", "value"), torch.zeros(2, 4, 30, 32, dtype=torch.float16)), "heads of 32"),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), BAD.values(), ids=list(BAD))
def test_what_does_not_fit_is_rejected(changed, message):
    with pytest.raises(Rejected, match=message):
        written_by("aclnnBlockSparseAttention", *arguments(**changed))
