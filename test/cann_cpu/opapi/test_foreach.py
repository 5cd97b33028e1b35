# SPDX-License-Identifier: Apache-2.0
"""Operations on lists that take their number as a tensor, and Adam, against the formulas."""

import pytest
import torch
from aclnn import InOut, Out, Rejected, written_by

SHAPES = [(5, 7), (1,), (0, 3), ()]


def floats(dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]


def npu(tensors):
    return [x.npu() for x in tensors]


SCALARS = {
    "Add": lambda x, s: x + s,
    "Sub": lambda x, s: x - s,
    "Mul": lambda x, s: x * s,
    "Div": lambda x, s: x / s,
    "Maximum": lambda x, s: x.clamp(min=s),
    "Minimum": lambda x, s: x.clamp(max=s),
    "Pow": lambda x, s: x**s,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SCALARS)
def test_a_number(name, dtype):
    number = 2.0 if name == "Pow" else 0.75
    x = floats(dtype, 0)
    given = [npu(x), torch.tensor(number, dtype=dtype), [Out(shape, dtype) for shape in SHAPES]]
    for actual, one in zip(written_by(f"aclnnForeach{name}Scalar", *given), x, strict=True):
        torch.testing.assert_close(actual, SCALARS[name](one.double(), number).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
@pytest.mark.parametrize("name, sign", [("Add", 1), ("Sub", -1)])
def test_two_lists(name, sign, dtype):
    x1, x2 = ([(x * 8).to(dtype) for x in floats(torch.float32, seed)] for seed in range(2))
    given = [npu(x1), npu(x2), torch.tensor(3, dtype=dtype), [Out(shape, dtype) for shape in SHAPES]]
    for actual, a, b in zip(written_by(f"aclnnForeach{name}List", *given), x1, x2, strict=True):
        torch.testing.assert_close(actual, (a.double() + sign * 3 * b.double()).to(dtype))


@pytest.mark.parametrize("name", ["Addcmul", "Addcdiv"])
def test_three_lists(name):
    x1, x2, x3 = (floats(torch.float32, seed) for seed in range(3))
    given = [npu(x1), npu(x2), npu(x3), torch.tensor([0.5]), [Out(shape) for shape in SHAPES]]
    for actual, a, b, c in zip(written_by(f"aclnnForeach{name}Scalar", *given), x1, x2, x3, strict=True):
        expected = a.double() + 0.5 * (b.double() * c.double() if name == "Addcmul" else b.double() / c.double())
        torch.testing.assert_close(actual, expected.float())


@pytest.mark.parametrize(
    "mode, function", {1: torch.round, 2: torch.floor, 3: torch.ceil, 5: torch.trunc, 7: torch.frac}.items()
)
def test_rounding(mode, function):
    x = [torch.tensor([0.5, 1.5, -2.5, 3.25]), torch.tensor([[-0.75]])]
    given = [npu(x), torch.tensor([mode], dtype=torch.int8), [Out(t.shape) for t in x]]
    for actual, one in zip(written_by("aclnnForeachRoundOffNumber", *given), x, strict=True):
        assert torch.equal(actual, function(one))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_adam(dtype, nesterov):
    var, m, g = (torch.randn(5, 7, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in range(3))
    v = torch.rand(5, 7, generator=torch.Generator().manual_seed(3)).to(dtype)
    lr, b1, b2, epsilon, power1, power2 = 0.1, 0.8, 0.9, 1e-3, 0.8**3, 0.9**3
    mean = b1 * m.double() + (1 - b1) * g.double()
    square = b2 * v.double() + (1 - b2) * g.double() ** 2
    direction = b1 * mean + (1 - b1) * g.double() if nesterov else mean
    rate = lr * (1 - power2) ** 0.5 / (1 - power1)
    expected = var.double() - rate * direction / (square.sqrt() + epsilon), mean, square
    numbers = [torch.tensor([number]) for number in (power1, power2, lr, b1, b2, epsilon)]
    results = written_by("aclnnApplyAdam", InOut(var), InOut(m), InOut(v), *numbers, g, False, nesterov)
    for actual, exact in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, exact.to(dtype))


def test_bad_input_is_named():
    x, out = [torch.ones(3).npu()], [Out((3,))]
    with pytest.raises((Rejected, RuntimeError), match=r"scalar has shape \[2\]; expected 1 element"):
        written_by("aclnnForeachAddScalar", x, torch.ones(2), out)
    with pytest.raises((Rejected, RuntimeError), match="round mode 6 is unknown"):
        written_by("aclnnForeachRoundOffNumber", x, torch.tensor([6], dtype=torch.int8), out)
    with pytest.raises(Rejected, match="a list has 2 elements, the list of results has 1"):
        written_by("aclnnForeachAddScalar", x * 2, torch.ones(1), out)
