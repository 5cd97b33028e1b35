# SPDX-License-Identifier: Apache-2.0
"""add_custom and its gradients against torch.add on the CPU."""

import itertools

import pytest
import torch
import torch_npu  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

import custom_pypto

ops = torch.ops.custom_pypto
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
DTYPES = [*FLOATS, *INTEGERS, torch.bool]
SHAPES = [
    ((), ()),
    ((1,), ()),
    ((5,), (5,)),
    ((5,), (1,)),
    ((2, 3), (3,)),
    ((2, 1, 7), (3, 1)),
    ((4, 1), (1, 513)),
    ((1, 1, 1), (2, 3, 4)),
    ((0,), (1,)),
    ((3, 0, 2), (1, 2)),
    ((2, 1, 3, 1, 2), (5, 1, 4, 1)),
    ((127, 129), (129,)),
]


def values(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    high = 2 if dtype == torch.bool else 100
    return torch.randint(0, high, shape, generator=generator).to(dtype)


def assert_identical(actual, expected):
    """Same dtype, shape and bits: one addition, rounded once, leaves no room."""
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
@pytest.mark.parametrize("swapped", [False, True])
def test_broadcasts_as_torch_add(left, right, swapped):
    x, y = values(left, torch.float32), values(right, torch.float32, seed=1)
    if swapped:
        x, y = y, x
    assert_identical(ops.add_custom(x.npu(), y.npu()), torch.add(x, y))


@pytest.mark.parametrize("broadcast", [9, 12, 14])
@pytest.mark.parametrize("single", [0, 11])
def test_broadcasts_in_as_many_dimensions_as_a_tensor_of_cann_has(broadcast, single):
    """In each of `broadcast` dimensions the one or the other is broadcast, so that no two of them are one."""
    left, right = ([1] * single + [2 if i % 2 == odd else 1 for i in range(broadcast)] for odd in (0, 1))
    x, y = values(left, torch.float32), values(right, torch.float32, seed=1)
    assert_identical(ops.add_custom(x.npu(), y.npu()), torch.add(x, y))
    assert ops.add_custom(x.to("meta"), y.to("meta")).shape == torch.Size([1] * single + [2] * broadcast)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(DTYPES, DTYPES)), ids=str)
def test_promotes_as_torch_add(left, right):
    x, y = values((3, 17), left), values((17,), right, seed=1)
    assert_identical(ops.add_custom(x.npu(), y.npu()), torch.add(x, y))


@pytest.mark.parametrize(("left", "right"), list(itertools.product(DTYPES, DTYPES)), ids=str)
def test_a_tensor_without_dimensions_promotes_as_in_torch_add(left, right):
    x, y = values((3, 17), left), values((), right, seed=1)
    for scalar in (y.npu(), y):
        assert_identical(ops.add_custom(x.npu(), scalar), torch.add(x, y))
        assert_identical(ops.add_custom(scalar, x.npu()), torch.add(y, x))


VIEWS = {
    "transposed": lambda x: x.T,
    "every other": lambda x: x[::2, ::2],
    "with an offset": lambda x: x[3:, 5:],
    "expanded": lambda x: x[:1].expand(8, 8),
    "of one element": lambda x: x[4:5, 4:5],
    "permuted": lambda x: x.reshape(2, 4, 8).permute(2, 0, 1)[:, 1],
}


def broadcast(left, right):
    return all(
        m == n or 1 in (m, n) for m, n in zip(*(VIEWS[v](torch.empty(8, 8)).shape for v in (left, right)), strict=True)
    )


PAIRS = [*itertools.product(VIEWS, repeat=2)]


@pytest.mark.parametrize(("left", "right"), [pair for pair in PAIRS if broadcast(*pair)])
def test_views_are_read_where_they_lie(left, right):
    x, y = values((8, 8), torch.float16), values((8, 8), torch.float16, seed=1)
    left, right = VIEWS[left], VIEWS[right]
    result = ops.add_custom(left(x.npu()), right(y.npu()))
    assert result.is_contiguous()
    assert_identical(result, torch.add(left(x), right(y)))


@pytest.mark.parametrize(("left", "right"), [pair for pair in PAIRS if not broadcast(*pair)])
def test_views_that_do_not_broadcast_are_rejected(left, right):
    x = values((8, 8), torch.float16).npu()
    with pytest.raises(RuntimeError, match="argument 'other' must broadcast with 'self'"):
        ops.add_custom(VIEWS[left](x), VIEWS[right](x))


def test_special_values_and_rounding():
    for dtype in FLOATS:
        info = torch.finfo(dtype)
        x = torch.tensor([torch.inf, -torch.inf, torch.inf, torch.nan, info.max, info.tiny, 1.0, -0.0], dtype=dtype)
        y = torch.tensor([1.0, torch.inf, torch.inf, 0.0, info.max, -info.tiny, info.eps / 2, 0.0], dtype=dtype)
        assert_identical(ops.add_custom(x.npu(), y.npu()), torch.add(x, y))


def broadcastable():
    """Pairs of shapes that broadcast: some dimensions of a common shape are 1 or left out."""

    def pair(shape):
        def narrowed(keep, start):
            return tuple(size if kept else 1 for size, kept in zip(shape, keep, strict=True))[start:]

        keeps = st.lists(st.booleans(), min_size=len(shape), max_size=len(shape))
        side = st.builds(narrowed, keeps, st.integers(0, len(shape)))
        return st.tuples(side, side)

    return st.lists(st.sampled_from([0, 1, 2, 3, 7, 64, 65]), max_size=4).flatmap(pair)


@settings(max_examples=60, deadline=None)
@given(shapes=broadcastable(), left=st.sampled_from(DTYPES), right=st.sampled_from(DTYPES), seed=st.integers(0, 9))
def test_any_pair_of_shapes_and_dtypes(shapes, left, right, seed):
    x, y = values(shapes[0], left, seed), values(shapes[1], right, seed + 1)
    expected = torch.add(x, y)
    assert_identical(ops.add_custom(x.npu(), y.npu()), expected)
    meta = ops.add_custom(x.to("meta"), y.to("meta"))
    assert (meta.shape, meta.dtype) == (expected.shape, expected.dtype)


# ---- gradients


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_gradients_are_those_of_torch_add(left, right):
    def gradients(function, device):
        x, y = (values(shape, torch.float64).to(device).requires_grad_() for shape in (left, right))
        out = function(x, y)
        grads = torch.autograd.grad(out, (x, y), values(out.shape, torch.float64, seed=2).to(device))
        return [grad.cpu() for grad in grads]

    for actual, expected in zip(gradients(ops.add_custom, "npu"), gradients(torch.add, "cpu"), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(FLOATS, FLOATS)), ids=str)
def test_gradients_have_the_dtypes_of_their_inputs(left, right):
    x, y = values((3, 4), left).npu().requires_grad_(), values((4,), right).npu().requires_grad_()
    ops.add_custom(x, y).sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == (left, right)
    assert_identical(x.grad, torch.ones(3, 4, dtype=left))
    assert_identical(y.grad, torch.full((4,), 3, dtype=right))


def test_an_integer_input_gets_no_gradient():
    x = torch.ones(3).npu().requires_grad_()
    ops.add_custom(x, torch.arange(3).npu()).sum().backward()
    assert_identical(x.grad, torch.ones(3))


def test_a_scalar_on_the_cpu_gets_its_gradient_there():
    x, scalar = torch.ones(3).npu(), torch.tensor(2.0, requires_grad=True)
    ops.add_custom(x, scalar).sum().backward()
    assert_identical(scalar.grad, torch.tensor(3.0))
    assert scalar.grad.device.type == "cpu"


def test_transforms_of_torch_func_are_rejected_by_name():
    x, y = torch.ones(3).npu(), torch.ones(3).npu()
    transforms = {
        "add_custom": [
            lambda: torch.func.grad(lambda x: ops.add_custom(x, y).sum())(x),
            lambda: torch.func.vjp(ops.add_custom, x, y),
            lambda: torch.func.jvp(ops.add_custom, (x, y), (x, y)),
        ],
        "add_custom_backward": [lambda: torch.func.grad(lambda x: ops.add_custom_backward(x)[0].sum())(x)],
    }
    for operator, calls in transforms.items():
        for call in calls:
            with pytest.raises(
                NotImplementedError, match=f"custom_pypto::{operator}: transforms of torch.func cannot differentiate it"
            ):
                call()
    assert_identical(ops.add_custom(torch.ones(3).npu(), torch.ones(3).npu()), torch.full((3,), 2.0))


def test_no_graph_is_made_when_no_gradient_is_wanted():
    x = torch.ones(3).npu()
    assert not ops.add_custom(x, x).requires_grad
    with torch.no_grad():
        assert not ops.add_custom(x.requires_grad_(), x).requires_grad
    with torch.inference_mode():
        assert_identical(ops.add_custom(torch.ones(3).npu(), torch.ones(3).npu()), torch.full((3,), 2.0))


@pytest.mark.parametrize(("left", "right"), [((3, 2), (3, 2)), ((3, 1), (1, 2)), ((2,), ()), ((1,), (2, 3))], ids=str)
def test_gradcheck_and_gradgradcheck(left, right):
    x, y = (values(shape, torch.float64).npu().requires_grad_() for shape in (left, right))
    assert torch.autograd.gradcheck(ops.add_custom, (x, y))
    assert torch.autograd.gradgradcheck(lambda x, y: ops.add_custom(x, y) ** 3, (x, y))


def test_gradcheck_of_the_backward_operator():
    grad = values((3, 2), torch.float64).npu().requires_grad_()
    assert torch.autograd.gradcheck(ops.add_custom_backward, (grad,))
    assert torch.autograd.gradgradcheck(ops.add_custom_backward, (grad,))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (1025,)], ids=str)
def test_backward_gives_two_tensors_that_alias_nothing(shape, dtype):
    grad = values(shape, dtype).npu()
    results = ops.add_custom_backward(grad)
    for result in results:
        assert_identical(result, grad.cpu())
    if grad.numel():
        assert len({tensor.untyped_storage().data_ptr() for tensor in (grad, *results)}) == 3


def test_backward_reads_views_where_they_lie():
    grad = values((6, 8), torch.float32).npu()
    for view in (grad.T, grad[::2, 1::3], grad[:1].expand(5, 8)):
        for result in ops.add_custom_backward(view):
            assert_identical(result, view.cpu())


# ---- the ways to it


def test_the_python_and_the_pybind_function_are_the_operator():
    x, y = values((3,), torch.float32).npu().requires_grad_(), values((3,), torch.float32, seed=1).npu()
    expected = torch.add(x.detach().cpu(), y.cpu())
    for function in (custom_pypto.add_custom, custom_pypto.custom_pypto_lib.add_custom):
        result = function(x, y)
        assert_identical(result.detach(), expected)
        assert result.requires_grad
        assert_identical(function(self=x, other=y).detach(), expected)


OPCHECKS = {
    "plain": lambda: (torch.randn(3, 4).npu(), torch.randn(3, 4).npu()),
    "broadcast": lambda: (torch.randn(3, 1).npu(), torch.randn(4).npu()),
    "promoted": lambda: (torch.randn(3).npu(), torch.randn(3).half().npu()),
    "integers": lambda: (torch.arange(3).npu(), torch.arange(3).npu()),
    "empty": lambda: (torch.randn(0, 3).npu(), torch.randn(3).npu()),
    "with gradients": lambda: (torch.randn(3, 1).npu().requires_grad_(), torch.randn(4).npu().requires_grad_()),
    "view": lambda: (torch.randn(4, 3).npu().T, torch.randn(4).npu()[::2].repeat(2)),
}


# Without test_autograd_registration, which torch has for CPU, CUDA and XPU only; gradcheck above tests more.
OPCHECK_UTILS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic", "test_aot_dispatch_static")


@pytest.mark.parametrize("call", OPCHECKS)
def test_opcheck(call):
    torch.library.opcheck(ops.add_custom.default, OPCHECKS[call](), test_utils=OPCHECK_UTILS)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck_of_the_backward_operator(requires_grad):
    grad = torch.randn(3, 4).npu().requires_grad_(requires_grad)
    torch.library.opcheck(ops.add_custom_backward.default, (grad,), test_utils=OPCHECK_UTILS)
