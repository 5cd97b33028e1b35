# SPDX-License-Identifier: Apache-2.0
"""rms_norm, an operator in Python with Triton kernels: all of it is in this file."""

import torch
from torch import Tensor

from custom_pypto.triton import operator, tl, triton

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


# ---- kernels


@triton.jit
def rms_norm_kernel(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    """A program for each row."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(values * values, axis=0) / columns + eps)
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + column, values * scale * weights, mask=inside)


@triton.jit
def grad_x_kernel(grad_out, x, weight, grad_x, scales, columns, eps, BLOCK: tl.constexpr):
    """A program for each row; it keeps the row's scale."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    grads = tl.load(grad_out + row * columns + column, mask=inside, other=0.0).to(tl.float32) * weights
    scale = 1 / tl.sqrt(tl.sum(values * values, axis=0) / columns + eps)
    normal = values * scale
    mean = tl.sum(grads * normal, axis=0) / columns
    tl.store(grad_x + row * columns + column, scale * (grads - normal * mean), mask=inside)
    tl.store(scales + row, scale)


@triton.jit
def grad_weight_kernel(grad_out, x, scales, grad_weight, rows, columns, BLOCK: tl.constexpr):
    """A program for each block of columns, which adds all rows in their order."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(rows):
        values = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        grads = tl.load(grad_out + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        total += grads * values * tl.load(scales + row)
    tl.store(grad_weight + column, total, mask=inside)


# ---- operators


@operator("custom_pypto::rms_norm(Tensor x, Tensor weight, *, float eps=1e-6) -> Tensor")
def rms_norm(x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Divides each row by its root mean square, and multiplies it by the weight.

    Args:
        x: ``[..., columns]``, float16, bfloat16 or float32.
        weight: ``[columns]``, of the dtype of ``x``.
        eps: is added to the mean of the squares.

    Returns:
        A new contiguous tensor of the shape and dtype of ``x``. It is computed in float32 and rounded once.

    Nothing is mutated. Differentiable: ``torch.ops.custom_pypto.rms_norm_backward`` computes the
    gradients.

    Raises:
        RuntimeError: a shape, dtype or device is not one of the above.

    Limits: a row, rounded up to a power of two, fits in the unified buffer.

    Formula: ``out = x / sqrt(mean(x**2) + eps) * weight``, as ``torch.nn.functional.rms_norm``.
    """
    out = rms_norm_meta(x, weight, eps=eps)
    x, weight, columns = x.contiguous(), weight.contiguous(), x.shape[-1]
    if out.numel():
        rms_norm_kernel[x.numel() // columns,](x, weight, out, columns, eps, BLOCK=triton.next_power_of_2(columns))
    return out


@rms_norm.register_fake
def rms_norm_meta(x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> Tensor:
    """Checks the arguments, under eager and on Meta alike, and allocates the result."""
    check("rms_norm", x, weight)
    return x.new_empty(x.shape)


def check(name: str, x: Tensor, weight: Tensor) -> None:
    if x.dtype not in DTYPES:
        raise RuntimeError(f"custom_pypto::{name}: argument 'x' must be of {DTYPES}; it is of {x.dtype}")
    if x.dim() == 0:
        raise RuntimeError(f"custom_pypto::{name}: argument 'x' must have dimensions; it has none")
    if weight.dtype != x.dtype:
        raise RuntimeError(f"custom_pypto::{name}: argument 'weight' must be of {x.dtype}; it is of {weight.dtype}")
    if weight.dim() != 1 or weight.shape[0] != x.shape[-1]:
        raise RuntimeError(
            f"custom_pypto::{name}: argument 'weight' must be of shape [{x.shape[-1]}]; it is of shape "
            f"{[*weight.shape]}"
        )


@operator(
    "custom_pypto::rms_norm_backward(Tensor grad_out, Tensor x, Tensor weight, *, float eps=1e-6)"
    " -> (Tensor grad_x, Tensor grad_weight)"
)
def rms_norm_backward(grad_out: Tensor, x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """The gradients of rms_norm."""
    grad_x, grad_weight = rms_norm_backward_meta(grad_out, x, weight, eps=eps)
    grad_out, x, weight, columns = grad_out.contiguous(), x.contiguous(), weight.contiguous(), x.shape[-1]
    if not x.numel():
        return grad_x, grad_weight.zero_()
    rows = x.numel() // columns
    scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    grad_x_kernel[rows,](grad_out, x, weight, grad_x, scales, columns, eps, BLOCK=block)
    block = min(block, 1024)
    grid = (triton.cdiv(columns, block),)
    grad_weight_kernel[grid](grad_out, x, scales, grad_weight, rows, columns, BLOCK=block)
    return grad_x, grad_weight


@rms_norm_backward.register_fake
def rms_norm_backward_meta(grad_out: Tensor, x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Checks the arguments, under eager and on Meta alike, and allocates the results."""
    check("rms_norm_backward", x, weight)
    if grad_out.shape != x.shape or grad_out.dtype != x.dtype:
        raise RuntimeError(
            f"custom_pypto::rms_norm_backward: argument 'grad_out' must be {x.dtype} of shape {[*x.shape]}; it is "
            f"{grad_out.dtype} of shape {[*grad_out.shape]}"
        )
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


# ---- the gradient


def setup_context(ctx, inputs, keyword_only_inputs, output) -> None:
    ctx.save_for_backward(*inputs)
    ctx.eps = keyword_only_inputs["eps"]


def backward(ctx, grad_out):
    return torch.ops.custom_pypto.rms_norm_backward(grad_out, *ctx.saved_tensors, eps=ctx.eps)


rms_norm.register_autograd(backward, setup_context=setup_context)


# ---- the calls that python -m custom_pypto check makes, and the formula by which it judges them

CALLS = {
    "float32": lambda: {"x": torch.randn(3, 5), "weight": torch.randn(5)},
    "three dimensions": lambda: {"x": torch.randn(2, 3, 8), "weight": torch.randn(8), "eps": 1e-3},
    "float16": lambda: {"x": torch.randn(4, 33).half(), "weight": torch.randn(33).half()},
    "no rows": lambda: {"x": torch.randn(0, 5), "weight": torch.randn(5)},
}


def reference(x, weight, *, eps=1e-6):
    """The formula, in float64."""
    x = x.double()
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()
