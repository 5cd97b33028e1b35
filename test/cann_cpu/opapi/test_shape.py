# SPDX-License-Identifier: Apache-2.0
"""Parts of tensors, in another order."""

import pytest
import torch
from aclnn import Out, Rejected, written_by

X = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)


@pytest.mark.parametrize("first", [False, True])
def test_confusion_transpose(first):
    expected = X.permute(0, 2, 1, 3).reshape(2, 4, 15) if first else X.reshape(2, 4, 3, 5).permute(0, 2, 1, 3)
    shape = [2, 4, 15] if first else [2, 4, 3, 5]
    given = [X, [0, 2, 1, 3], shape, first, Out(expected.shape)]
    assert torch.equal(written_by("aclnnConfusionTranspose", *given)[0], expected)


def test_permute():
    assert torch.equal(written_by("aclnnPermute", X, [2, 0, 3, 1], Out((4, 2, 5, 3)))[0], X.permute(2, 0, 3, 1))


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_chunk_cat(chunks):
    tensors = [torch.randn(5, 3), torch.randn(4), torch.randn(6, 2, 2)]
    rows = [torch.cat([t, t.new_zeros(-len(t) % chunks, *t.shape[1:])]).reshape(chunks, -1) for t in tensors]
    result = torch._chunk_cat([t.npu() for t in tensors], 0, chunks)
    assert torch.equal(result.cpu(), torch.cat(rows, 1))


MASKS = {
    "plain": (X[0:2, 1:3, ::2, 2:5], ([0, 1, 0, 2], [2, 3, 4, 5], [1, 1, 2, 1]), (0, 0, 0, 0, 0)),
    "without ends": (X[:2, 1:, 1:3], ([1, 1, 1], [2, 1, 3], [1, 1, 1]), (0b001, 0b010, 0, 0, 0)),
    "the rest": (X[1:2, ..., 2:4], ([1, 0, 2], [2, 0, 4], [1, 1, 1]), (0, 0, 0b010, 0, 0)),
    "another dimension": (X[:1, None, 1:2], ([0, 0, 1], [1, 0, 2], [1, 1, 1]), (0, 0, 0, 0b010, 0)),
    "one of a dimension": (X[1, :, -1], ([1, 0, -1], [2, 3, 0], [1, 1, 1]), (0, 0b010, 0, 0, 0b101)),
    "past the end": (X[:, -2:], ([0, -2], [9, 9], [1, 1]), (0, 0, 0, 0, 0)),
}


@pytest.mark.parametrize("label", MASKS)
def test_strided_slice(label):
    expected, lists, masks = MASKS[label]
    assert torch.equal(written_by("aclnnStridedSlice", X, *lists, *masks, Out(expected.shape))[0], expected)


BAD = {
    "permutation": ("aclnnPermute", [X, [0, 1, 1, 2], Out((2, 3, 3, 4))], "duplicate dims"),
    "order": ("aclnnConfusionTranspose", [X, [1, 0], [2, 60], True, Out((2, 60))], "perm has 2 elements; expected 4"),
    "elements": (
        "aclnnConfusionTranspose",
        [X, [0, 1, 2, 3], [2, 3], True, Out((2, 3))],
        r"shape is \[2, 3\]; expected 120 elements",
    ),
    "stride": (
        "aclnnStridedSlice",
        [X, [0], [2], [-1], 0, 0, 0, 0, 0, Out(X.shape)],
        r"strides\[0\] is -1; expected more than 0",
    ),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_input_is_named(label):
    name, arguments, message = BAD[label]
    with pytest.raises(Rejected, match=message):
        written_by(name, *arguments)
