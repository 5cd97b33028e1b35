# SPDX-License-Identifier: Apache-2.0
"""The first steps: one operator eagerly, under autograd and in a compiled graph."""

import torch

import custom_pypto

x = torch.arange(6.0).reshape(2, 3).npu().requires_grad_()
y = torch.ones(3).npu()

print(custom_pypto.add_custom(x, y))

custom_pypto.add_custom(x, y).sum().backward()
print(x.grad)

add = torch.compile(custom_pypto.add_custom, backend="npu")
print(add(x.detach(), y))
