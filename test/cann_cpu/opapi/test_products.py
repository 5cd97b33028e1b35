# SPDX-License-Identifier: Apache-2.0
"""Products with a matrix of more than a million elements, which some processors multiply by ranges of columns."""

import pytest
import torch
import torch.nn.functional as F

ROWS, DEPTH, COLUMNS = 3, 1031, 1033

LAYOUTS = {
    "by rows": lambda matrix: matrix,
    "by columns": lambda matrix: matrix.t().contiguous().t(),
    "every second row": lambda matrix: matrix.repeat_interleave(2, 0)[::2],
}


def into_every_second_column(first, second, _):
    out = torch.zeros(ROWS, 2 * COLUMNS, dtype=first.dtype, device=first.device)
    torch.mm(first, second, out=out[:, ::2])
    assert not out[:, 1::2].any()
    return out[:, ::2]


# name: the call, and how many times the product and the addend are in its result
CALLS = {
    "mm": (lambda a, b, _: torch.mm(a, b), 1, 0),
    "mm into every second column": (into_every_second_column, 1, 0),
    "matmul of a batch": (lambda a, b, _: torch.matmul(a.expand(2, ROWS, DEPTH), b)[1], 1, 0),
    "addmm": (lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2), 2, 0.5),
    "addmm_": (lambda a, b, c: c.clone().addmm_(a, b, beta=0.5, alpha=2), 2, 0.5),
    "addmm of a row": (lambda a, b, c: torch.addmm(c[0], a, b)[:1], 1, 1),
    "linear": (lambda a, b, _: F.linear(a, b.t()), 1, 0),
    "linear with a bias": (lambda a, b, c: F.linear(a, b.t(), c[0])[:1], 1, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_the_product_is_the_formula_s(name, layout, dtype):
    call, products, addends = CALLS[name]
    shapes = (ROWS, DEPTH), (DEPTH, COLUMNS), (ROWS, COLUMNS)
    a, b, c = (torch.randn(shape).to(dtype) for shape in shapes)
    result = call(a.npu(), LAYOUTS[layout](b.npu()), c.npu()).cpu()
    a, b, c = a.double(), b.double(), c.double()
    expected = (products * a @ b + addends * c)[: len(result)]
    sums = (products * a.abs() @ b.abs() + addends * c.abs())[: len(result)]
    error = DEPTH**0.5 * torch.finfo(torch.float32).eps * sums + torch.finfo(dtype).eps * expected.abs()
    assert ((result.double() - expected).abs() <= error).all()
