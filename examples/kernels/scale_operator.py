# SPDX-License-Identifier: Apache-2.0
"""The kernel of scale.cpp as a torch operator: eagerly, under autograd, in a compiled program.

Run it from the project's root.
"""

import torch
import torch_npu  # noqa: F401
from cann_cpu.kernel import KernelFile

kernel = KernelFile("examples/kernels/scale.cpp")["scale"]


@torch.library.custom_op("tutorial::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel(x, y, x.numel(), factor, blocks=4)
    return y


@scale.register_fake
def _(x, factor):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def keep_factor(ctx, inputs, output):
    ctx.factor = inputs[1]


scale.register_autograd(lambda ctx, gradient: (scale(gradient, ctx.factor), None), setup_context=keep_factor)

x = torch.randn(3, 1000).npu().requires_grad_()
y = torch.ops.tutorial.scale(x, 0.5)
assert torch.equal(y.cpu(), x.cpu() * 0.5)

y.sum().backward()
assert torch.equal(x.grad.cpu(), torch.full((3, 1000), 0.5))

program = torch.compile(lambda x: torch.ops.tutorial.scale(x + 1, 2.0), backend="aot_eager")
assert torch.equal(program(x).cpu(), (x.cpu() + 1) * 2)

checks = ("test_schema", "test_faketensor")
torch.library.opcheck(torch.ops.tutorial.scale, (x.detach(), 0.5), test_utils=checks)
print("tutorial::scale", tuple(y.shape), y.device)
