# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pooling that ATen's test cases do not reach."""

import pytest
import torch
import torch_npu  # noqa: F401
from aclnn import Out, Rejected, written_by

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def close(actual, expected):
    tolerance = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}[actual.dtype]
    torch.testing.assert_close(actual, expected.to(actual.dtype), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape, size", [((2, 3, 7, 5, 11), (3, 2, 4)), ((3, 4, 4, 4), (2, 2, 2))])
def test_adaptive_max_pool3d(shape, size, dtype):
    x = torch.randn(shape).to(dtype)
    exact = x.double().requires_grad_()
    expected, _ = torch.nn.functional.adaptive_max_pool3d(exact, size, return_indices=True)
    given = x.npu().requires_grad_()
    actual, indices = torch.nn.functional.adaptive_max_pool3d(given, size, return_indices=True)
    assert indices.dtype == torch.int32
    assert torch.equal(actual.cpu().double(), expected)
    assert torch.equal(exact.flatten(-3).gather(-1, indices.cpu().long().flatten(-3)), expected.flatten(-3))
    grad = torch.randn(expected.shape).to(dtype)
    actual.backward(grad.npu())
    scattered = torch.zeros(shape, dtype=torch.float64).flatten(-3)
    scattered.scatter_add_(-1, indices.cpu().long().flatten(-3), grad.double().flatten(-3))
    close(given.grad.cpu(), scattered.reshape(shape))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("size", [(2, 3, 5, 7), (2, 1, 3, 4, 6), (1, 1, 1, 9)])
def test_affine_grid(size, align_corners, dtype):
    rank = len(size) - 2
    theta = torch.randn(size[0], rank, rank + 1).to(dtype)
    axes = []
    for n in size[2:]:
        steps = torch.arange(n, dtype=torch.float64)
        axes.append((2 * steps / (n - 1) - 1 if n > 1 else steps) if align_corners else (2 * steps + 1) / n - 1)
    points = torch.stack([*reversed(torch.meshgrid(*axes, indexing="ij")), torch.ones(size[2:]).double()], -1)
    expected = torch.einsum("...k,nrk->n...r", points, theta.double())
    actual = torch.nn.functional.affine_grid(theta.npu(), size, align_corners=align_corners).cpu()
    close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("shape, size", [((2, 3, 2, 3), (4, 5)), ((3, 1, 1), (2, 7)), ((2, 3, 1, 2, 2), (2, 3, 4))])
def test_max_unpool(shape, size, dtype):
    leading = len(shape) - len(size)
    x = torch.randint(0, 100, shape).to(dtype)
    plane = torch.Size(size).numel()
    count = torch.Size(shape[leading:]).numel()
    indices = torch.stack([torch.randperm(plane)[:count] for _ in range(torch.Size(shape[:leading]).numel())])
    expected = torch.zeros(len(indices), plane, dtype=dtype)
    for row, values, places in zip(expected, x.reshape(len(indices), -1), indices, strict=True):
        row[places] = values
    indices = indices.reshape(shape)
    if len(size) == 2:
        actual = torch.ops.aten.max_unpool2d(x.npu(), indices.npu(), size)
    else:
        actual = torch.ops.aten.max_unpool3d(x.npu(), indices.npu(), size, [2, 2, 2], [0, 0, 0])
    assert torch.equal(actual.cpu(), expected.reshape(*shape[:leading], *size))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("time, kernel, pad", [(7, 3, 1), (5, 5, 0), (2, 1, 2)])
def test_conv_tbc(time, kernel, pad, dtype):
    x, weight, bias = torch.randn(time, 2, 3), torch.randn(kernel, 3, 5), torch.randn(5)
    given = [tensor.to(dtype) for tensor in (x, weight, bias)]
    exact = [tensor.double().requires_grad_() for tensor in given]
    padded = torch.nn.functional.pad(exact[0], (0, 0, 0, 0, pad, pad))
    count = time + 2 * pad - kernel + 1
    expected = sum(padded[k : k + count] @ exact[1][k] for k in range(kernel)) + exact[2]
    on_npu = [tensor.npu().requires_grad_() for tensor in given]
    actual = torch.conv_tbc(*on_npu, pad)
    close(actual.detach().cpu(), expected)
    grad = torch.randn(expected.shape).to(dtype)
    expected.backward(grad.double())
    actual.backward(grad.npu())
    for tensor, reference in zip(on_npu, exact, strict=True):
        close(tensor.grad.cpu(), reference.grad)


def deformable_points(x, offset, kernel, stride, padding, dilation, groups):
    """What the kernel reads, by hat functions: a pixel at distance d from a point weighs max(0, 1 - d)."""
    n, channels, height, width = x.shape
    out_h, out_w = offset.shape[2:]
    dx, dy, factor = offset.reshape(n, 3, groups, *kernel, out_h, out_w).unbind(1)
    y = dy + (torch.arange(out_h) * stride[2] - padding[0]).reshape(-1, 1)
    y = y + (torch.arange(kernel[0]) * dilation[2]).reshape(-1, 1, 1, 1)
    x_at = dx + torch.arange(out_w) * stride[3] - padding[2] + (torch.arange(kernel[1]) * dilation[3]).reshape(-1, 1, 1)
    rows = (1 - (y[..., None] - torch.arange(height)).abs()).clamp(min=0)
    columns = (1 - (x_at[..., None] - torch.arange(width)).abs()).clamp(min=0)
    image = x.reshape(n, groups, channels // groups, height, width)
    read = torch.einsum("ngchw,ngklpqh,ngklpqw,ngklpq->ngcpkql", image, rows, columns, factor)
    return read.reshape(n, channels, out_h * kernel[0], out_w * kernel[1])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "kernel, stride, padding, dilation, groups, deformable_groups, bias",
    [
        ((3, 3), [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], 1, 1, True),
        ((2, 3), [1, 1, 2, 1], [0, 1, 2, 1], [1, 1, 2, 1], 2, 2, False),
        ((1, 1), [1, 1, 1, 2], [0, 0, 0, 0], [1, 1, 1, 1], 1, 4, True),
    ],
)
def test_deformable_conv2d(kernel, stride, padding, dilation, groups, deformable_groups, bias, dtype):
    x, weight = torch.randn(2, 4, 7, 8).to(dtype), torch.randn(6, 4 // groups, *kernel).to(dtype)
    sizes = [
        (x.shape[2 + i] + padding[2 * i] + padding[2 * i + 1] - (kernel[i] - 1) * dilation[2 + i] - 1) // stride[2 + i]
        + 1
        for i in range(2)
    ]
    # Between the pixels, where the gradient is continuous, and exact in each dtype.
    offset = torch.randn(2, 3 * deformable_groups * kernel[0] * kernel[1], *sizes).clamp(-3, 3)
    offset = ((offset * 16).floor() / 16 + 1 / 32).to(dtype)
    constant = torch.randn(6).to(dtype) if bias else None
    exact = [tensor.double().requires_grad_() for tensor in (x, weight, offset)]
    points = deformable_points(exact[0], exact[2], kernel, stride, padding, dilation, deformable_groups)
    shift = constant.double().requires_grad_() if bias else torch.zeros(6, dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.conv2d(points, exact[1], shift, stride=kernel, groups=groups)
    attributes = (list(kernel), stride, padding, dilation, groups, deformable_groups, True)
    out, read = written_by(
        "aclnnDeformableConv2d",
        x,
        weight,
        offset,
        constant,
        *attributes,
        Out(expected.shape, dtype),
        Out(points.shape, dtype),
    )
    close(read, points)
    scale = expected.abs().max().item()
    close(out / scale, expected / scale)
    grad = torch.randn(expected.shape).to(dtype)
    expected.backward(grad.double())
    outs = [Out(shape, dtype) for shape in (x.shape, weight.shape, offset.shape, (6,))]
    actual = written_by("aclnnDeformableConv2dBackward", x, grad, read, weight, offset, *attributes, *outs)
    for tensor, reference in zip(actual, [*(leaf.grad for leaf in exact), shift.grad], strict=True):
        scale = reference.abs().max().item()
        close(tensor / scale, reference / scale)


def test_a_deformable_convolution_without_moves_is_a_plain_one():
    """Of an image whose points are read in several parts."""
    x, weight, grad = torch.randn(1, 64, 32, 64), torch.randn(8, 64, 3, 3), torch.randn(1, 8, 32, 64)
    offset = torch.cat([torch.zeros(1, 18, 32, 64), torch.ones(1, 9, 32, 64)], 1)
    exact = [tensor.double().requires_grad_() for tensor in (x, weight)]
    expected = torch.nn.functional.conv2d(*exact, padding=1)
    expected.backward(grad.double())
    attributes = ([3, 3], *[[1] * 4] * 3, 1, 1, True)
    outs = Out(expected.shape), Out((1, 64, 96, 192))
    out, read = written_by("aclnnDeformableConv2d", x, weight, offset, None, *attributes, *outs)
    outs = [Out(tensor.shape) for tensor in (x, weight, offset)] + [Out((8,))]
    actual = written_by("aclnnDeformableConv2dBackward", x, grad, read, weight, offset, *attributes, *outs)
    references = [expected, exact[0].grad, exact[1].grad, grad.double().sum((0, 2, 3))]
    for tensor, reference in zip((out, *actual[:2], actual[3]), references, strict=True):
        scale = reference.abs().max().item()
        close(tensor / scale, reference / scale)


X, PLACES = torch.ones(1, 2, 2), torch.zeros(1, 2, 2, dtype=torch.int64)
VOLUME = torch.ones(1, 2, 2, 2)
TBC = torch.ones(4, 1, 2), torch.ones(3, 2, 5), torch.ones(5)
MOVED = torch.ones(1, 2, 5, 5), torch.ones(2, 2, 1, 1), torch.ones(1, 3, 5, 5), None
PLAIN = [1, 1, 1, 1]
REJECTED = {
    "output_size has 3 elements; expected 2": ("aclnnMaxUnpool2d", X, PLACES, [4, 4, 4], Out((1, 4, 4))),
    r"output_size is \[1, 2\]": ("aclnnMaxUnpool2d", X, PLACES, [1, 2], Out((1, 1, 2))),
    r"indices\[0, 0, 0\] is 16": ("aclnnMaxUnpool2d", X, PLACES + 16, [4, 4], Out((1, 4, 4))),
    r"stride is \[0, 1, 1\]": (
        "aclnnMaxUnpool3d", VOLUME, VOLUME.long(), [3, 3, 3], [0, 1, 1], [0, 0, 0], Out((1, 3, 3, 3))
    ),
    r"indices\[0, 0, 0, 0\] is 8": (
        "aclnnAdaptiveMaxPool3dBackward", VOLUME, VOLUME, VOLUME.int() * 8, Out(VOLUME.shape)
    ),
    "pad is 256": ("aclnnConvTbc", *TBC, 256, Out((2, 1, 5)), False),
    r"out has shape \[3, 1, 5\]; expected \[2, 1, 5\]": ("aclnnConvTbc", *TBC, 0, Out((3, 1, 5)), False),
    r"self has shape \[4, 1, 2\]": (
        "aclnnConvTbcBackward", TBC[0], *TBC, 0, False, Out(TBC[0].shape), Out(TBC[1].shape), Out((5,))
    ),
    "modulated is false": (
        "aclnnDeformableConv2d", *MOVED, [1, 1], PLAIN, [0] * 4, PLAIN, 1, 1, False, Out((1, 2, 5, 5)), None
    ),
    "stride is": (
        "aclnnDeformableConv2d", *MOVED, [1, 1], [2, 1, 1, 1], [0] * 4, PLAIN, 1, 1, True, Out((1, 2, 5, 5)), None
    ),
    r"offset has shape \[1, 3, 5, 5\]; expected \[1, 6, 5, 5\]": (
        "aclnnDeformableConv2d", *MOVED, [1, 1], PLAIN, [0] * 4, PLAIN, 1, 2, True, Out((1, 2, 5, 5)), None
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REJECTED)
def test_bad_input_is_named(message):
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(*REJECTED[message])
