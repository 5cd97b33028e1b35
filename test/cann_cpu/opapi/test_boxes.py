# SPDX-License-Identifier: Apache-2.0
"""Overlaps of boxes, and regions of interest."""

import math

import pytest
import torch
import torch_npu
from aclnn import Float, Out, Rejected, written_by

HALF = [torch.float32, torch.float16]


def corners(count):
    first = torch.rand(count, 2) * 20
    return torch.cat([first, first + torch.rand(count, 2) * 10 + 0.1], 1)


def shared_and_areas(a, b, margin=0.0):
    """Of each pair along broadcast leading dimensions."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    return shared, *((box[..., 2:] - box[..., :2] + margin).prod(-1) for box in (a, b))


@pytest.mark.parametrize("dtype", [*HALF, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["iou", "iof"])
@pytest.mark.parametrize("rows, columns", [(13, 7), (1, 1), (0, 3), (1100, 1000)])
def test_iou(rows, columns, mode, dtype):
    a, b = corners(rows).to(dtype), corners(columns).to(dtype)
    shared, first, second = shared_and_areas(a.double()[:, None], b.double()[None], 0.01)
    expected = shared / (second if mode == "iof" else first + second - shared)
    (actual,) = written_by("aclnnIou", a, b, mode, Float(0.01), False, Out((rows, columns), dtype))
    torch.testing.assert_close(actual, expected.to(dtype), rtol=1e-2 if dtype != torch.float32 else 1e-4, atol=1e-5)


def test_iou_of_pairs():
    a, b = corners(9), corners(9)
    shared, first, second = shared_and_areas(a.double(), b.double())
    (actual,) = written_by("aclnnIou", a, b, "iou", Float(0.0), True, Out((9, 1)))
    torch.testing.assert_close(actual[:, 0], (shared / (first + second - shared)).float())


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("mode", ["iou", "iof"])
@pytest.mark.parametrize("trans", [True, False])
def test_ciou(trans, mode, dtype):
    a, b = (corners(1024).T.contiguous().to(dtype) for _ in range(2))
    first, second = (box.double().T for box in (a, b))
    if trans:
        first, second = (
            torch.cat([box[:, :2] - box[:, 2:] / 2, box[:, :2] + box[:, 2:] / 2], 1) for box in (first, second)
        )
    shared, area, other = shared_and_areas(first, second)
    ratio = shared / (other if mode == "iof" else area + other - shared)
    hull = torch.maximum(first[:, 2:], second[:, 2:]) - torch.minimum(first[:, :2], second[:, :2])
    centres = (first[:, :2] + first[:, 2:] - second[:, :2] - second[:, 2:]) / 2
    angles = [torch.atan((box[:, 2] - box[:, 0]) / (box[:, 3] - box[:, 1])) for box in (first, second)]
    v = 4 / math.pi**2 * (angles[1] - angles[0]) ** 2
    expected = ratio - centres.square().sum(1) / hull.square().sum(1) - v * v / (1 - ratio + v)
    out = Out((1, 1024), dtype)
    overlap, difference = written_by("aclnnCIoU", a, b, trans, False, mode, out, out)
    torch.testing.assert_close(overlap[0], expected.to(dtype), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(difference[0], (angles[1] - angles[0]).to(dtype), rtol=1e-3, atol=1e-3)


def axis_weights(first, last, scale, bins, samples, mode, size):
    """[bins, size]: how much each pixel along a dimension counts in a bin; the mean over the samples is a product."""
    shift = 0.5 if mode >= 2 else 0
    begin, end = first * scale - shift, (last + (mode == 1)) * scale - shift
    extent = end - begin if mode == 2 else max(end - begin, 1.0)
    count = samples or math.ceil(extent / bins)
    weights = torch.zeros(bins, size, dtype=torch.float64)
    for i in range(bins * count):
        at = begin + extent / bins * (i // count + (i % count + 0.5) / count)
        if -1 <= at <= size:
            at = min(max(at, 0.0), size - 1.0)
            low = int(at)
            weights[i // count, low] += (1 - at + low) / count
            weights[i // count, min(low + 1, size - 1)] += (at - low) / count
    return weights


def roi_align(x, rois, scale, height, width, samples, mode):
    results = []
    for image, x0, y0, x1, y1 in rois.double().tolist():
        rows = axis_weights(y0, y1, scale, height, samples, mode, x.shape[2])
        columns = axis_weights(x0, x1, scale, width, samples, mode, x.shape[3])
        results.append(torch.einsum("chw,ph,qw->cpq", x[int(image)], rows, columns))
    return torch.stack(results)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("samples", [2, 0, 3])
def test_roi_align(samples, mode, dtype):
    x = torch.randn(2, 5, 11, 13).to(dtype)
    rois = torch.tensor([[0, 2, 3, 30, 41], [1, -9, -9, 70, 60], [1, 20, 20, 21, 21]]).to(dtype)
    exact = x.double().requires_grad_()
    expected = roi_align(exact, rois, 0.25, 3, 4, samples, mode)
    actual = torch_npu.npu_roi_align(x.npu(), rois.npu(), 0.25, 3, 4, samples, mode).cpu()
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.float16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(actual, expected.to(dtype), **tolerance)
    grad = torch.randn(expected.shape).to(dtype)
    expected.backward(grad.double())
    actual = torch_npu.npu_roi_alignbk(grad.npu(), rois.npu(), list(x.shape), 4, 3, 0.25, samples, mode).cpu()
    torch.testing.assert_close(actual, exact.grad.to(dtype), **tolerance)


def test_roi_align_equals_the_documented_example():
    x, rois = torch.arange(1.0, 37).reshape(1, 1, 6, 6), torch.tensor([[0, -2.0, -2.0, 22.0, 22.0]])
    actual = torch_npu.npu_roi_align(x.npu(), rois.npu(), 0.25, 3, 3, 2, 0).cpu()
    assert actual.tolist() == [[[[4.5, 6.5, 8.5], [16.5, 18.5, 20.5], [28.5, 30.5, 32.5]]]]


BOXES, IMAGE, ROIS = torch.ones(1024, 4), torch.ones(1, 1, 4, 4), torch.tensor([[0.0, 0, 0, 2, 2]])
REJECTED = {
    "mode is 'giou'": ("aclnnIou", BOXES, BOXES, "giou", Float(0.0), True, Out((1024, 1))),
    "eps is -1": ("aclnnIou", BOXES, BOXES, "iou", Float(-1.0), True, Out((1024, 1))),
    r"gt_boxes has shape \[2, 4\]; expected \[1024, 4\]": (
        "aclnnIou", BOXES, BOXES[:2], "iou", Float(0.0), True, Out((1024, 1))
    ),
    "is_cross is true": ("aclnnCIoU", BOXES.T, BOXES.T, True, True, "iou", Out((1, 1024)), Out((1, 1024))),
    "expected a multiple of 1024 boxes": (
        "aclnnCIoU", BOXES[:5].T, BOXES[:5].T, True, False, "iou", Out((1, 5)), Out((1, 5))
    ),
    "roi_end_mode is 4": ("aclnnROIAlign", IMAGE, ROIS, Float(1.0), 1, 1, 2, 4, Out((1, 1, 1, 1))),
    r"rois has shape \[1, 4\]": ("aclnnROIAlign", IMAGE, ROIS[:, 1:], Float(1.0), 1, 1, 2, 0, Out((1, 1, 1, 1))),
    r"rois\[:, 0\]\[0\] is 3": ("aclnnROIAlign", IMAGE, ROIS + 3, Float(1.0), 1, 1, 2, 0, Out((1, 1, 1, 1))),
    r"self has shape \[1, 1, 4, 4\]": (
        "aclnnROIAlignBackward", IMAGE, ROIS, [1, 1, 4, 4], 1, 1, Float(1.0), 2, 0, Out((1, 1, 4, 4))
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REJECTED)
def test_bad_input_is_named(message):
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(*REJECTED[message])
