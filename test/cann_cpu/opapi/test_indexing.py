# SPDX-License-Identifier: Apache-2.0
"""Rows by their numbers."""

from itertools import pairwise

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, Scalar, written_by

X = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
@pytest.mark.parametrize("shape", [(4,), (2, 3), (0,)], ids=str)
def test_gather(shape, dtype):
    x, index = (X * 9).to(dtype), torch.randint(7, shape, generator=torch.Generator().manual_seed(1))
    result = torch_npu.npu_gather_sparse_index(x.npu(), index.npu())
    assert torch.equal(result.cpu(), x[index])


@pytest.mark.parametrize("mode, dim", [(0, 0), (1, 1)])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_add(alpha, mode, dim):
    index = torch.tensor([3, 0, 3])
    source = torch.randn(3, 5) if dim == 0 else torch.randn(7, 3)
    expected = X.double()
    for i, k in enumerate(index.tolist()):
        expected.select(dim, k).add_(source.double().select(dim, i), alpha=alpha)
    result = written_by("aclnnIndexAddV2", X, dim, index, source, Scalar(alpha), mode, Out(X.shape))[0]
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-6)


BAD = {
    "index to gather": (
        "aclnnGatherV3",
        [X, 0, torch.tensor([0, 7]), 0, 1, Out((2, 5))],
        r"index\[1\] is 7; expected 0",
    ),
    "dim to gather": ("aclnnGatherV3", [X, 1, torch.tensor([0]), 0, 1, Out((7, 1))], "dim is 1; expected 0"),
    "index to add": (
        "aclnnIndexAddV2",
        [X, 0, torch.tensor([-1]), X[:1], Scalar(1.0), 1, Out(X.shape)],
        r"index\[0\] is -1; expected 0 to 6",
    ),
    "fast mode": (
        "aclnnIndexAddV2",
        [X, 1, torch.tensor([1]), X[:, :1], Scalar(1.0), 0, Out(X.shape)],
        "mode is 0; expected another",
    ),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_input_is_named(label):
    name, arguments, message = BAD[label]
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(name, *arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("include_last", [True, False])
@pytest.mark.parametrize(
    "mode, weighted, padding", [(0, False, -1), (0, True, 2), (1, False, 2), (2, False, -1), (2, False, 2)]
)
def test_embedding_bag(mode, weighted, padding, include_last, index_dtype, dtype):
    weight = torch.randn(7, 5).to(dtype)
    indices = torch.tensor([1, 2, 4, 5, 4, 2, 6, 0, 3], dtype=index_dtype)
    offsets = torch.tensor([0, 3, 3, 5, 6, 9] if include_last else [0, 3, 3, 5, 6], dtype=index_dtype)
    factors = torch.randn(9).to(dtype) if weighted else None
    ends = [0, 3, 3, 5, 6, 9]
    expected, sizes = torch.zeros(5, 5, dtype=torch.float64), torch.zeros(5, dtype=torch.int64)
    largest = torch.zeros(5, 5, dtype=torch.int64)
    for bag, (first, last) in enumerate(pairwise(ends)):
        kept = [i for i in range(first, last) if indices[i] != padding]
        sizes[bag] = len(kept)
        if not kept:
            continue
        rows = weight[indices[kept].long()].double()
        if weighted:
            rows = rows * factors[kept].double()[:, None]
        expected[bag] = [rows.sum(0), rows.mean(0), rows.amax(0)][mode]
        largest[bag] = indices[kept].long()[rows.argmax(0)]
    bags = torch.repeat_interleave(torch.arange(5), torch.tensor([3, 0, 2, 1, 3]))
    on_npu = [tensor if tensor is None else tensor.npu() for tensor in (weight, indices, offsets, factors)]
    results = torch._embedding_bag(*on_npu[:3], False, mode, False, on_npu[3], include_last, padding)
    output, bag_of, size, where = (result.cpu() for result in results)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(output, expected.to(dtype), rtol=tolerance, atol=tolerance)
    assert torch.equal(size, sizes.to(index_dtype))
    assert bag_of.numel() == 0 or torch.equal(bag_of, bags.to(index_dtype))
    assert torch.equal(where, largest.to(index_dtype) if mode == 2 else torch.zeros(5, dtype=index_dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32], ids=str)
def test_coalesce_sparse(index_dtype, dtype):
    coordinates = torch.tensor([[2, 1], [0, 3], [2, 1], [2, 0], [0, 3], [2, 1]])
    values = torch.randint(-9, 9, (6, 4)).to(dtype)
    unique, inverse = torch.unique(coordinates, dim=0, return_inverse=True)
    expected = torch.zeros(3, 4, dtype=torch.float64).index_add_(0, inverse, values.double())
    actual = written_by(
        "aclnnCoalesceSparse", torch.arange(3), inverse, coordinates.to(index_dtype), values,
        Out(unique.shape, index_dtype), Out((3, 4), dtype)
    )  # fmt: skip
    assert torch.equal(actual[0], unique.to(index_dtype)) and torch.equal(actual[1], expected.to(dtype))


def test_coalesce():
    sparse = torch.sparse_coo_tensor([[2, 0, 2, 2], [1, 3, 1, 0]], [1.0, 2.0, 3.0, 4.0], (3, 4))
    coalesced = sparse.npu().coalesce()
    assert torch.equal(coalesced.indices().cpu(), sparse.coalesce().indices())
    assert torch.equal(coalesced.values().cpu(), sparse.coalesce().values())


WEIGHT, INDICES, OFFSETS = torch.ones(4, 3), torch.tensor([1, 2, 3]), torch.tensor([0, 2])
LONGS = [Out(shape, torch.int64) for shape in ((3,), (2,), (2,))]
BAGS = [Out((2, 3)), *LONGS]
COALESCED = Out((2, 2), torch.int64), Out((2,))
REJECTED = {
    "scale_grad_by_freq is true": (WEIGHT, INDICES, OFFSETS, True, 0, False, None, False, -1, *BAGS),
    "sparse is true": (WEIGHT, INDICES, OFFSETS, False, 0, True, None, False, -1, *BAGS),
    "per_sample_weights is given and mode is 1": (
        WEIGHT, INDICES, OFFSETS, False, 1, False, torch.ones(3), False, -1, *BAGS
    ),
    r"output has shape \[2, 3\]; expected \[1, 3\]": (WEIGHT, INDICES, OFFSETS, False, 0, False, None, True, -1, *BAGS),
    r"indices\[1\] is 4; expected 0 to 3": (WEIGHT, INDICES + 2, OFFSETS, False, 0, False, None, False, -1, *BAGS),
    r"offsets\[0\] is 1; expected 0": (WEIGHT, INDICES, OFFSETS + 1, False, 0, False, None, False, -1, *BAGS),
    r"offsets\[1\] is 4": (WEIGHT, INDICES, OFFSETS * 2, False, 0, False, None, False, -1, *BAGS),
}  # fmt: skip


@pytest.mark.parametrize("message", REJECTED)
def test_bad_bag_is_named(message):
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by("aclnnEmbeddingBag", *REJECTED[message])


def test_bad_coordinates_are_named():
    coordinates = torch.ones(3, 2, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=r"unique_indices\[2\] is 2; expected 0 to 1"):
        written_by("aclnnCoalesceSparse", OFFSETS, torch.arange(3), coordinates, torch.ones(3), *COALESCED)
    with pytest.raises(Rejected, match=r"new_values has shape \[2\]; expected \[2, 5\]"):
        written_by("aclnnCoalesceSparse", OFFSETS, torch.arange(3), coordinates, torch.ones(3, 5), *COALESCED)
