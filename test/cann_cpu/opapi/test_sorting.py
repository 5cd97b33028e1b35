# SPDX-License-Identifier: Apache-2.0
"""Selection by rank, against sorting in Python."""

import re

import pytest
import torch
from aclnn import Out, Rejected, written_by

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
DTYPES += [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


def distinct(shape, dim, dtype):
    """Values that differ along a dimension, in all orders."""
    keys = torch.rand(shape, generator=torch.Generator().manual_seed(1)).argsort(dim)
    return keys.to(dtype) if dtype == torch.uint8 else (keys - shape[dim] // 2).to(dtype)


def selected(x, k, dim, largest):
    """Values and places, row by row."""
    rows = x.movedim(dim, -1)
    order = [
        sorted(range(x.shape[dim]), key=row.__getitem__, reverse=largest)[:k] for row in rows.flatten(0, -2).tolist()
    ]
    places = torch.tensor(order, dtype=torch.int64).view(*rows.shape[:-1], k)
    return rows.gather(-1, places).movedim(-1, dim), places.movedim(-1, dim)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape, dim, k", [((4, 100), -1, 8), ((101, 3), 0, 101), ((2, 7, 3), 1, 1), ((3, 5), 1, 0)])
def test_top_k(shape, dim, k, largest, dtype):
    x = distinct(shape, dim, dtype)
    expected = selected(x, k, dim, largest)
    out_shape = tuple(expected[0].shape)
    for policy in (0, 1):
        outputs = Out(out_shape, dtype), Out(out_shape, torch.int64)
        actual = written_by("aclnnTopkV2", x, k, dim, largest, True, policy, *outputs)
        assert all(map(torch.equal, actual, expected)), policy
    results = torch.topk(x.npu(), k, dim, largest)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(results, expected, strict=True))


def test_top_k_of_a_view_without_order():
    x = distinct((9, 40), 1, torch.float32)
    values, places = torch.topk(x.npu()[::2, 3:33], 4, sorted=False)
    expected, _ = selected(x[::2, 3:33], 4, 1, True)
    assert torch.equal(values.cpu().sort(1, descending=True).values, expected)
    assert torch.equal(x[::2, 3:33].gather(1, places.cpu()), values.cpu())


def test_top_k_of_equal_values_and_nan():
    x = torch.tensor([[1.0, 3, 3, torch.nan, 3, -torch.inf]])
    values, places = torch.topk(x.npu(), 3)
    assert values[0, 0].isnan().item() and values[0, 1:].tolist() == [3, 3]
    assert places[0, 0].item() == 3 and set(places[0, 1:].tolist()) < {1, 2, 4}


X = torch.zeros(2, 5)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([X, 6, 1, True, True, 1, Out((2, 6)), Out((2, 6), torch.int64)], "k is 6; expected 0 to 5"),
        ([X, 3, 2, True, True, 1, Out((2, 3)), Out((2, 3), torch.int64)], "dim is 2; expected -2 to 1"),
        ([X, 3, 1, True, True, 2, Out((2, 3)), Out((2, 3), torch.int64)], "sort_policy is 2; expected 0 to 1"),
        ([X, 3, 1, True, True, 1, Out((2, 4)), Out((2, 3), torch.int64)], "values has shape [2, 4]; expected [2, 3]"),
        ([X, 3, 1, True, True, 1, Out((2, 3)), Out((2, 3), torch.int32)], "indices has dtype int32; expected int64"),
        ([X, 3, 1, True, True, 1, Out((2, 3), torch.half), Out((2, 3), torch.int64)], "values has dtype float16"),
    ],
)
def test_top_k_rejects(arguments, message):
    with pytest.raises(Rejected, match=re.escape(message)):
        written_by("aclnnTopkV2", *arguments)
