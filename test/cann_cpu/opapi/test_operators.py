# SPDX-License-Identifier: Apache-2.0
"""Every built-in operator is bitwise equal to ATen's CPU kernel: one table, over dtypes, shapes, strides.

Most built-in operators call ATen as well, so these tests cover what lies between: types, shapes, strides, storage,
scalars, results. They would not show where ATen computes something else than CANN. VALUES at the end has results that
CANN's documents state, where rounding, ties, signs or integer division matter.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest
import torch
import torch.nn.functional as F
import torch_versions

BOOL = (torch.bool,)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
NUMBERS = FLOATS + INTEGERS
ANY = NUMBERS + BOOL

# A scalar, nothing, one element, primes, one past a vector and one past a block, an empty row.
SHAPES = ((), (0,), (1,), (7,), (17,), (3, 5), (2, 3, 129), (4, 0, 3))
MATRICES = ((1, 1), (3, 5), (17, 1), (7, 33))


def values(shape, dtype, seed=0):
    """Numbers of both signs around 0, with repetitions, and no zero among the floats."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 2 + 0.125).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, generator=generator).to(dtype)


def positive(shape, dtype, seed=0):
    return values(shape, dtype, seed).abs() + 1 if dtype != torch.bool else values(shape, dtype, seed)


def fraction(shape, dtype, seed=0):
    """Numbers inside (-1, 1)."""
    return torch.sin(values(shape, dtype, seed)).mul(0.875).to(dtype)


def contiguous(tensor):
    return tensor


def transposed(tensor):
    return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor


def stepped(tensor):
    """Every second element of a wider tensor, from the second on: a storage offset and no stride of 1."""
    if tensor.dim() == 0:
        return torch.stack([tensor, tensor])[1]
    return torch.stack([tensor, tensor], -1).flatten(-2)[..., 1::2]


def expanded(tensor):
    return tensor[:1].expand(tensor.shape) if tensor.dim() > 0 else tensor


LAYOUTS = (contiguous, transposed, stepped, expanded)


def to_npu(value):
    """The same sizes, strides and offset over a copy of the whole storage."""
    if isinstance(value, (list, tuple)):
        return type(value)(to_npu(item) for item in value)
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    return storage.npu().as_strided(value.size(), value.stride(), value.storage_offset())


def flatten(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def assert_same(actual, expected, what, units=0):
    """Bitwise equal, or within some units in the last place of numbers around 1 and of larger ones."""
    for got, wanted in zip(flatten(actual), flatten(expected), strict=True):
        if not isinstance(wanted, torch.Tensor):
            assert got == wanted, what
            continue
        assert got.device.type == "npu", what
        tolerance = units * torch.finfo(wanted.dtype).eps if wanted.is_floating_point() else 0
        torch.testing.assert_close(
            got.cpu(), wanted, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda message: f"{what}: {message}"
        )


def changed(change, arguments):
    return [change(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]


def assert_rounded(actual, evaluate, arguments, what):
    """As far from the exact sums of products as rounding may bring them, and no further.

    Such a sum's error is at most that of its terms' absolute values times their number, and less than 64 are summed.
    """
    exact = flatten(evaluate(changed(torch.Tensor.double, arguments)))
    sizes = flatten(evaluate(changed(lambda a: a.double().abs(), arguments)))
    for got, wanted, size in zip(flatten(actual), exact, sizes, strict=True):
        assert got.device.type == "npu", what
        assert got.shape == wanted.shape, what
        summed = torch.float64 if got.dtype == torch.float64 else torch.float32
        bound = (2 * torch.finfo(got.dtype).eps + 64 * torch.finfo(summed).eps) * size
        excess = (got.cpu().double() - wanted).abs() - bound
        assert (excess <= 0).all(), f"{what}: {excess.max()} beyond the bound"


@dataclass(frozen=True)
class Operator:
    name: str
    function: Callable
    arguments: Callable  # (shape, dtype) -> the list of arguments, tensors or not
    dtypes: tuple = NUMBERS
    shapes: tuple = SHAPES
    inplace: str | None = None  # the method that writes into its first argument
    out: bool = False
    gradient: bool = False
    gradient_units: int = 0  # by which the gradient may differ: torch_npu has its own formula for it
    sums_products: bool = False  # in an order that depends on the strides of the factors, which are not the CPU's

    def __str__(self):
        return self.name


def one(make=values):
    return lambda shape, dtype: [make(shape, dtype)]


def two(make=values, other=values):
    return lambda shape, dtype: [make(shape, dtype), other(shape, dtype, 1)]


def with_number(number, make=values):
    return lambda shape, dtype: [make(shape, dtype), number]


def broadcast(shape, dtype):
    return [values(shape, dtype), values(shape[1:], dtype, 1)]


def unary(name, dtypes=ANY, make=values, gradient=True, inplace=True):
    return Operator(
        name,
        getattr(torch, name),
        one(make),
        dtypes,
        inplace=f"{name}_" if inplace else None,
        out=True,
        gradient=gradient,
    )


def comparison(name):
    function = getattr(torch, name)
    return (
        Operator(name, function, two(), ANY, inplace=f"{name}_", out=True),
        Operator(f"{name} number", function, with_number(2), ANY, inplace=f"{name}_", out=True),
    )


def binary(name, dtypes=NUMBERS, make=values, other=positive, gradient=True, number=2, inplace=True):
    function = getattr(torch, name)
    method = f"{name}_" if inplace else None
    return (
        Operator(name, function, two(make, other), dtypes, inplace=method, out=True, gradient=gradient),
        Operator(f"{name} number", function, with_number(number, make), dtypes, inplace=method, gradient=gradient),
        Operator(
            f"{name} broadcast",
            function,
            broadcast if other is values else lambda s, d: [make(s, d), other(s[1:], d, 1)],
            dtypes,
        ),
    )


def activation(name, dtypes=FLOATS, **keywords):
    return Operator(name, lambda x: getattr(F, name)(x, **keywords), one(), dtypes, gradient=True)


def reduction(name, dtypes=NUMBERS, make=values, gradient=True, shapes=SHAPES):
    function = getattr(torch, name)
    ranked = tuple(s for s in shapes if s)
    return (
        Operator(f"{name} of all", function, one(make), dtypes, shapes, gradient=gradient),
        Operator(f"{name} of a dim", lambda x: function(x, -1), one(make), dtypes, ranked, gradient=gradient),
        Operator(f"{name} kept", lambda x: function(x, 0, keepdim=True), one(make), dtypes, ranked, gradient=gradient),
    )


NONEMPTY = ((1,), (7,), (3, 5), (2, 3, 129))
POINTWISE = (
    *(unary(n) for n in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "atanh")),
    *(unary(n) for n in ("exp2", "expm1", "sigmoid", "sqrt", "rsqrt", "reciprocal", "sinc")),
    # torch_npu gives the small integers an integer output here.
    *(unary(n, (*FLOATS, torch.int64, torch.bool)) for n in ("exp", "erf", "erfc")),
    *(unary(n, make=positive) for n in ("log", "log2", "log10", "log1p", "acosh")),
    unary("erfinv", FLOATS, fraction),
    *(unary(n, NUMBERS) for n in ("abs", "neg", "sign", "ceil", "floor", "round", "trunc")),
    unary("frac", FLOATS),
    unary("logical_not", gradient=False),
    unary("bitwise_not", INTEGERS + BOOL, gradient=False),
    Operator("square", torch.square, one(), NUMBERS, gradient=True),
    Operator("round to decimals", lambda x: torch.round(x, decimals=1), one(), (torch.float32, torch.float64)),
    # torch_npu passes the numbers as floats, so float64 has another largest number.
    Operator("nan_to_num", torch.nan_to_num, lambda s, d: [values(s, d) / values(s, d, 1).round()], FLOATS[:3]),
    Operator("isfinite", torch.isfinite, lambda s, d: [values(s, d) / values(s, d, 1).round()], FLOATS),
    Operator("isnan", torch.isnan, lambda s, d: [values(s, d).round() / values(s, d).round()], FLOATS),
    Operator("isinf", torch.isinf, lambda s, d: [values(s, d) / values(s, d, 1).round()], FLOATS),
    *binary("add", ANY, other=values),
    *binary("sub", other=values),
    *binary("mul", ANY, other=values),
    *binary("div", FLOATS),
    *binary("floor_divide", gradient=False),
    *binary("remainder"),
    *binary("fmod"),
    *binary("pow", FLOATS, positive, lambda s, d, seed=0: fraction(s, d, seed)),
    Operator("div of integers", torch.div, two(values, positive), INTEGERS),
    Operator("div rounded down", lambda a, b: torch.div(a, b, rounding_mode="floor"), two(values, positive)),
    Operator("div rounded to 0", lambda a, b: torch.div(a, b, rounding_mode="trunc"), two(values, positive)),
    Operator("pow of integers", torch.pow, with_number(3), INTEGERS),
    Operator("number to the power", lambda x: torch.pow(2, x), one(fraction), FLOATS, gradient=True),
    Operator("add with alpha", lambda a, b: torch.add(a, b, alpha=3), two(), NUMBERS, gradient=True),
    Operator("rsub", lambda x: 1 - x, one(), NUMBERS, gradient=True),
    Operator("mixed dtypes", torch.add, lambda s, d: [values(s, d), values(s, torch.float32, 1)], ANY),
    Operator("atan2", torch.atan2, two(), FLOATS, inplace="atan2_", gradient=True),
    Operator("maximum", torch.maximum, two(), ANY, out=True, gradient=True),
    Operator("minimum", torch.minimum, two(), ANY, out=True, gradient=True),
    Operator("logaddexp", torch.logaddexp, two(), (torch.float32, torch.float64), gradient=True),
    Operator("xlogy", torch.xlogy, two(values, positive), FLOATS, gradient=True),
    Operator(
        "addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=2), lambda s, d: [values(s, d, i) for i in range(3)]
    ),
    Operator(
        "addcdiv",
        lambda a, b, c: torch.addcdiv(a, b, c, value=2),
        lambda s, d: [*two()(s, d), positive(s, d, 2)],
        FLOATS,
    ),
    Operator(
        "lerp", torch.lerp, lambda s, d: [*two()(s, d), fraction(s, d, 2)], FLOATS, inplace="lerp_", gradient=True
    ),
    Operator("lerp by a number", torch.lerp, lambda s, d: [*two()(s, d), 0.25], FLOATS, inplace="lerp_", gradient=True),
    Operator(
        "clamp", torch.clamp, lambda s, d: [values(s, d), 0, 3], NUMBERS, inplace="clamp_", out=True, gradient=True
    ),
    Operator("clamp_min", torch.clamp_min, with_number(1), NUMBERS, inplace="clamp_min_", gradient=True),
    Operator("clamp_max", torch.clamp_max, with_number(1), NUMBERS, inplace="clamp_max_", gradient=True),
    Operator("clamp by tensors", torch.clamp, lambda s, d: [*two()(s, d), positive(s, d, 2)], NUMBERS),
    *(
        Operator(n, getattr(torch, n), two(), INTEGERS + BOOL, inplace=f"{n}_", out=True)
        for n in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *(
        Operator(f"{n} number", getattr(torch, n), with_number(3), INTEGERS, inplace=f"{n}_")
        for n in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *(
        Operator(n, getattr(torch, n), two(), ANY, inplace=f"{n}_", out=True)
        for n in ("logical_and", "logical_or", "logical_xor")
    ),
    Operator("shift left", lambda a, b: a << b, two(values, positive), (torch.int32, torch.int64)),
    Operator("shift right", lambda a, b: a >> b, two(values, positive), (torch.int32, torch.int64)),
    *(o for n in ("eq", "ne", "lt", "le", "gt", "ge") for o in comparison(n)),
    Operator("isclose", torch.isclose, two(), NUMBERS),
    Operator("where", torch.where, lambda s, d: [values(s, torch.bool), *two()(s, d)], ANY),
    Operator(
        "where number", lambda c, x: torch.where(c, x, 0), lambda s, d: [values(s, torch.bool), values(s, d)], NUMBERS
    ),
    Operator("complex", torch.complex, two(), (torch.float32, torch.float64)),
)


def gelu(x):
    """torch_npu's F.gelu calls aclnnGelu, which has the formula with tanh, whatever approximation it is asked for."""
    return F.gelu(x, approximate="none" if x.device.type == "npu" else "tanh")


def gelu_by(approximate):
    """By torch_npu's own operator, which computes the one that it is asked for."""
    return lambda x: (torch.ops.npu.npu_gelu if x.device.type == "npu" else F.gelu)(x, approximate=approximate)


def swiglu(x):
    """In float, rounded once."""
    if x.device.type == "npu":
        return torch.ops.npu.npu_swiglu(x)
    gate, value = x.float().chunk(2, -1)
    return (F.silu(gate) * value).to(x.dtype)


def in_float(function):
    """For what ATen's CPU kernels do not have in half types: computed in float, rounded once."""

    @functools.wraps(function)
    def call(*tensors):
        if tensors[0].device.type == "npu" or tensors[0].dtype not in (torch.bfloat16, torch.float16):
            return function(*tensors)
        return function(*(tensor.float() for tensor in tensors)).to(tensors[0].dtype)

    return call


ACTIVATIONS = (
    Operator("swiglu", swiglu, one(), FLOATS[:3], ((6,), (3, 10), (2, 3, 130)), gradient=True),
    Operator(
        "prelu by channel",
        F.prelu,
        lambda s, d: [values(s, d), values(s[1:2], d, 1)],
        FLOATS,
        ((3, 5), (2, 3, 17), (2, 3, 4, 5)),
        gradient=True,
    ),
    *(activation(n) for n in ("relu", "sigmoid", "tanh", "silu", "mish", "hardswish", "hardsigmoid", "softplus")),
    *(
        activation(n)
        for n in ("leaky_relu", "elu", "celu", "selu", "hardtanh", "relu6", "softshrink", "hardshrink", "logsigmoid")
    ),
    activation("threshold", threshold=0.5, value=2.0),
    Operator("gelu", gelu, one(), FLOATS, gradient=True),
    Operator("npu_gelu none", gelu_by("none"), one(), FLOATS, gradient=True),
    Operator("npu_gelu tanh", gelu_by("tanh"), one(), FLOATS, gradient=True),
    *(
        Operator(
            f"{n} of dim {d}",
            lambda x, n=n, d=d: getattr(F, n)(x, dim=d),
            one(),
            FLOATS,
            tuple(s for s in SHAPES if s),
            gradient=True,
        )
        for n, d in product(("softmax", "log_softmax"), (0, -1))
    ),
    Operator("glu", F.glu, one(), FLOATS, ((2,), (3, 6), (2, 3, 130)), gradient=True),
    Operator("prelu", F.prelu, lambda s, d: [values(s, d), values((1,), d, 1)], FLOATS, ((7,), (3, 5)), gradient=True),
)

REDUCTIONS = (
    *reduction("sum", ANY),
    *reduction("mean", FLOATS),
    *reduction("prod", make=fraction, dtypes=(torch.float32, torch.float64, torch.int64)),
    *reduction("all", ANY, gradient=False),
    *reduction("any", ANY, gradient=False),
    *reduction("amax", shapes=NONEMPTY),
    *reduction("amin", shapes=NONEMPTY),
    *reduction("argmax", gradient=False, shapes=NONEMPTY),
    *reduction("argmin", gradient=False, shapes=NONEMPTY),
    *reduction("std", FLOATS, shapes=((7,), (3, 5), (2, 3, 129))),
    *reduction("var", FLOATS, shapes=((7,), (3, 5), (2, 3, 129))),
    Operator("max of all", torch.max, one(), ANY, NONEMPTY, gradient=True),
    Operator("min of all", torch.min, one(), ANY, NONEMPTY, gradient=True),
    Operator("max of a dim", lambda x: tuple(torch.max(x, -1)), one(), NUMBERS, NONEMPTY),
    Operator("min of a dim", lambda x: tuple(torch.min(x, 0)), one(), NUMBERS, NONEMPTY),
    Operator("median of a dim", lambda x: tuple(torch.median(x, -1)), one(), NUMBERS, NONEMPTY),
    Operator("sum over two dims", lambda x: x.sum((0, 2)), one(), NUMBERS, ((2, 3, 129),), gradient=True),
    Operator("sum into float", lambda x: x.sum(-1, dtype=torch.float32), one(), ANY, NONEMPTY),
    Operator("norm", torch.norm, one(), FLOATS, gradient=True),
    *(
        Operator(f"vector norm {p}", lambda x, p=p: torch.linalg.vector_norm(x, p, -1), one(), FLOATS, NONEMPTY)
        for p in (0, 1, 2, 3, float("inf"))
    ),
    Operator("logsumexp", lambda x: torch.logsumexp(x, -1), one(), FLOATS, NONEMPTY, gradient=True),
    Operator("cumsum", lambda x: torch.cumsum(x, -1), one(), NUMBERS, gradient=True),
    Operator("cumprod", lambda x: torch.cumprod(x, 0), one(fraction), (torch.float32, torch.float64), NONEMPTY),
    Operator("cummax", lambda x: tuple(torch.cummax(x, -1)), one(), NUMBERS, NONEMPTY),
    Operator("cummin", lambda x: tuple(torch.cummin(x, -1)), one(), NUMBERS, NONEMPTY),
    Operator("var_mean", lambda x: tuple(torch.var_mean(x, -1)), one(), FLOATS, ((7,), (3, 5))),
    Operator("std_mean", lambda x: tuple(torch.std_mean(x, -1)), one(), FLOATS, ((7,), (3, 5))),
    Operator("aminmax", lambda x: tuple(torch.aminmax(x, dim=-1)), one(), FLOATS, NONEMPTY),
    Operator("nansum", lambda x: torch.nansum(x, -1), one(), FLOATS, NONEMPTY),
    Operator("count_nonzero", torch.count_nonzero, one(), NUMBERS, NONEMPTY),
    Operator("trace", torch.trace, one(), tuple(d for d in NUMBERS if d not in torch_versions.UNTRACED), MATRICES),
    Operator("bincount", torch.bincount, lambda s, d: [positive(s, d)], (torch.int32, torch.int64), ((7,), (129,))),
    Operator("histc", lambda x: torch.histc(x, 5, -3, 3), one(), (torch.float32,), NONEMPTY),
    Operator(
        "cdist",
        in_float(torch.cdist),
        lambda s, d: [values((4, s[-1]), d), values((6, s[-1]), d, 1)],
        FLOATS,
        MATRICES,
    ),
    Operator("pdist", in_float(F.pdist), one(), FLOATS, ((2, 3), (7, 33))),
    Operator("equal", torch.equal, two(), ANY),
    Operator("equal to itself", torch.equal, lambda s, d: [values(s, d), values(s, d)], ANY),
    Operator("allclose", torch.allclose, lambda s, d: [values(s, d), values(s, d)], FLOATS),
)


def batched(shape, dtype):
    return [values((3, *shape), dtype), values((3, shape[1], 4), dtype, 1)]


def row_and_matrices(shape, dtype):
    return [values((4,), dtype, 2), values(shape, dtype), values((shape[1], 4), dtype, 1)]


PRODUCTS = (
    Operator(
        "mm",
        torch.mm,
        lambda s, d: [values(s, d), values((s[1], 4), d, 1)],
        FLOATS,
        MATRICES,
        out=True,
        gradient=True,
        sums_products=True,
    ),
    Operator("mm of integers", torch.mm, lambda s, d: [values(s, d), values((s[1], 4), d, 1)], INTEGERS, MATRICES),
    Operator("bmm", torch.bmm, batched, FLOATS, MATRICES, out=True, gradient=True, sums_products=True),
    Operator(
        "matmul of batches",
        torch.matmul,
        lambda s, d: [values((2, 3, *s), d), values((3, s[1], 4), d, 1)],
        FLOATS,
        MATRICES,
        gradient=True,
        sums_products=True,
    ),
    Operator(
        "matmul by a vector",
        torch.matmul,
        lambda s, d: [values(s, d), values((s[1],), d, 1)],
        FLOATS,
        MATRICES,
        gradient=True,
        sums_products=True,
    ),
    Operator(
        "mm over no columns", torch.mm, lambda s, d: [values((s[0], 0), d), values((0, 4), d, 1)], FLOATS, MATRICES
    ),
    Operator("mv", torch.mv, lambda s, d: [values(s, d), values((s[1],), d, 1)], FLOATS, MATRICES, sums_products=True),
    Operator(
        "dot", torch.dot, lambda s, d: [values((s[1],), d), values((s[1],), d, 1)], FLOATS, MATRICES, gradient=True
    ),
    Operator(
        "addmm",
        lambda *a: torch.addmm(*a, beta=0.5, alpha=2),
        row_and_matrices,
        FLOATS,
        MATRICES,
        gradient=True,
        sums_products=True,
    ),
    Operator(
        "addmv",
        torch.addmv,
        lambda s, d: [values((s[0],), d, 2), values(s, d), values((s[1],), d, 1)],
        FLOATS,
        MATRICES,
        sums_products=True,
    ),
    Operator(
        "addr", torch.addr, lambda s, d: [values(s, d), values((s[0],), d, 1), values((s[1],), d, 2)], FLOATS, MATRICES
    ),
    Operator("outer", torch.outer, lambda s, d: [values((s[0],), d, 1), values((s[1],), d, 2)], FLOATS, MATRICES),
    Operator(
        "baddbmm",
        lambda *a: torch.baddbmm(*a, beta=0.5, alpha=2),
        lambda s, d: [values((3, s[0], 4), d, 2), *batched(s, d)],
        FLOATS,
        MATRICES,
        gradient=True,
        sums_products=True,
    ),
    Operator(
        "linear",
        F.linear,
        lambda s, d: [values(s, d), values((4, s[1]), d, 1), values((4,), d, 2)],
        FLOATS,
        MATRICES,
        gradient=True,
        sums_products=True,
    ),
    Operator(
        "linear without bias",
        F.linear,
        lambda s, d: [values((2, *s), d), values((4, s[1]), d, 1)],
        FLOATS,
        MATRICES,
        gradient=True,
        sums_products=True,
    ),
    Operator(
        "einsum",
        lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        batched,
        FLOATS,
        MATRICES,
        gradient=True,
        sums_products=True,
    ),
)

NORMALIZATIONS = (
    Operator(
        "layer_norm",
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        lambda s, d: [values(s, d), values(s[-1:], d, 1), values(s[-1:], d, 2)],
        FLOATS,
        ((7,), (3, 5), (2, 3, 129)),
        gradient=True,
    ),
    Operator(
        "layer_norm without weight", lambda x: F.layer_norm(x, x.shape[-1:]), one(), FLOATS, ((3, 5), (2, 3, 129))
    ),
    Operator(
        "group_norm",
        lambda x, w, b: F.group_norm(x, 2, w, b),
        lambda s, d: [values(s, d), values(s[1:2], d, 1), values(s[1:2], d, 2)],
        (torch.float32, torch.float64),
        ((2, 4, 5), (3, 6, 17)),
        gradient=True,
    ),
    Operator(
        "batch_norm",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        lambda s, d: [values(s, d), values(s[1:2], d, 1), values(s[1:2], d, 2)],
        (torch.float32,),
        ((5, 4), (3, 6, 17)),
        gradient=True,
    ),
    Operator("normalize", F.normalize, one(), (torch.float32, torch.float64), ((3, 5), (2, 3, 129))),
)


def index(shape, bound, seed=5):
    return torch.randint(-bound, bound, shape, generator=torch.Generator().manual_seed(seed))


def rows(count, bound, seed=5):
    return torch.randperm(bound, generator=torch.Generator().manual_seed(seed))[:count]


def into(method, *arguments):
    """The in-place method on a copy of the first argument."""
    return lambda x, *rest: getattr(x.clone(), method)(*arguments, *rest)


def scatter_nd_update(x, i, v):
    """torch_npu's own operator: the last dimension of the indices addresses the first dimensions of x."""
    if x.device.type == "npu":
        return torch.ops.npu.npu_scatter_nd_update(x, i, v), torch.ops.npu.npu_scatter_nd_update_(x.clone(), i, v)
    return (x.index_put(i.unbind(-1), v),) * 2


INDEXING = (
    Operator("element", lambda x: x[1, 2], one(), ANY, ((3, 5),)),
    Operator("slice", lambda x: x[..., 1::2] + 1, one(), NUMBERS, NONEMPTY, gradient=True),
    Operator(
        "index by rows", lambda x, i: x[i], lambda s, d: [values(s, d), index((4,), s[0])], ANY, NONEMPTY, gradient=True
    ),
    Operator(
        "index by pairs",
        lambda x, i, j: x[i, j],
        lambda s, d: [values(s, d), index((4,), s[0]), index((4,), s[1])],
        ANY,
        ((3, 5), (2, 3, 129)),
        gradient=True,
    ),
    Operator(
        "index by the last dim",
        lambda x, i: x[..., i],
        lambda s, d: [values(s, d), index((2, 3), s[-1])],
        ANY,
        NONEMPTY,
        gradient=True,
    ),
    Operator("index by nothing", lambda x, i: x[i], lambda s, d: [values(s, d), index((0,), 1)], ANY, NONEMPTY),
    Operator(
        "index by mask", lambda x, m: x[m], lambda s, d: [values(s, d), values(s, torch.bool, 3)], ANY, gradient=True
    ),
    Operator(
        "assign by rows",
        lambda x, i, v: torch.index_put(x, (i,), v),
        lambda s, d: [values(s, d), rows(1, s[0]), values((1, *s[1:]), d, 2)],
        NUMBERS,
        NONEMPTY,
    ),
    Operator(
        "accumulate by rows",
        lambda x, i, v: torch.index_put(x, (i,), v, accumulate=True),
        lambda s, d: [values(s, d), index((4,), s[0]), values((4, *s[1:]), d, 2)],
        NUMBERS,
        NONEMPTY,
    ),
    Operator(
        "index_select",
        lambda x, i: torch.index_select(x, -1, i),
        lambda s, d: [values(s, d), index((4,), s[-1]).abs() % s[-1]],
        ANY,
        NONEMPTY,
        gradient=True,
    ),
    Operator(
        "index_add",
        lambda x, i, v: torch.index_add(x, 0, i, v, alpha=2),
        lambda s, d: [values(s, d), index((4,), s[0]).abs() % s[0], values((4, *s[1:]), d, 2)],
        NUMBERS,
        NONEMPTY,
    ),
    Operator(
        "index_copy",
        lambda x, i, v: torch.index_copy(x, 0, i, v),
        lambda s, d: [values(s, d), rows(1, s[0]), values((1, *s[1:]), d, 2)],
        NUMBERS,
        NONEMPTY,
    ),
    Operator(
        "index_fill",
        lambda x, i: torch.index_fill(x, 0, i, 3),
        lambda s, d: [values(s, d), rows(1, s[0])],
        NUMBERS,
        NONEMPTY,
    ),
    Operator(
        "gather",
        lambda x, i: torch.gather(x, -1, i),
        lambda s, d: [values(s, d), index(s, s[-1]).abs() % s[-1]],
        ANY,
        NONEMPTY,
        gradient=True,
    ),
    Operator(
        "take_along_dim",
        lambda x, i: torch.take_along_dim(x, i, -1),
        lambda s, d: [values(s, d), index(s, s[-1]).abs() % s[-1]],
        ANY,
        NONEMPTY,
    ),
    Operator("take", torch.take, lambda s, d: [values(s, d), index((5,), values(s, d).numel())], NUMBERS, NONEMPTY),
    Operator(
        "scatter",
        lambda x, i, v: torch.scatter(x, 0, i, v),
        lambda s, d: [
            values(s, d),
            rows(s[0], s[0]).reshape(-1, *[1] * (len(s) - 1)).expand(s).clone(),
            values(s, d, 2),
        ],
        NUMBERS,
        NONEMPTY,
        gradient=True,
    ),
    Operator(
        "scatter a number",
        lambda x, i: torch.scatter(x, -1, i, 3),
        lambda s, d: [values(s, d), index(s, s[-1]).abs() % s[-1]],
        NUMBERS,
        NONEMPTY,
    ),
    Operator(
        "scatter and add",
        lambda x, i, v: torch.scatter(x, -1, i, v, reduce="add"),
        lambda s, d: [values(s, d), index(s, s[-1]).abs() % s[-1], values(s, d, 2)],
        NUMBERS,
        NONEMPTY,
    ),
    Operator(
        "scatter_add",
        lambda x, i, v: torch.scatter_add(x, -1, i, v),
        lambda s, d: [values(s, d), index(s, s[-1]).abs() % s[-1], values(s, d, 2)],
        NUMBERS,
        NONEMPTY,
        gradient=True,
    ),
    Operator(
        "scatter_reduce",
        lambda x, i, v: torch.scatter_reduce(x, -1, i, v, "sum"),
        lambda s, d: [values(s, d), index(s, s[-1]).abs() % s[-1], values(s, d, 2)],
        (torch.float32,),
        NONEMPTY,
    ),
    Operator(
        "scatter_nd_update",
        scatter_nd_update,
        lambda s, d: [values(s, d), rows(1, s[0])[:, None], values((1, *s[1:]), d, 2)],
        NUMBERS,
        NONEMPTY,
    ),
    Operator(
        "masked_fill",
        lambda x, m: x.masked_fill(m, 3),
        lambda s, d: [values(s, d), values(s, torch.bool, 3)],
        ANY,
        gradient=True,
    ),
    Operator("masked_fill_", into("masked_fill_"), lambda s, d: [values(s, d), values(s, torch.bool, 3), 3], NUMBERS),
    Operator(
        "masked_select", torch.masked_select, lambda s, d: [values(s, d), values(s, torch.bool, 3)], ANY, gradient=True
    ),
    Operator(
        "masked_scatter",
        torch.masked_scatter,
        lambda s, d: [values(s, d), values(s, torch.bool, 3), values(s, d, 2)],
        NUMBERS,
    ),
    Operator("nonzero", torch.nonzero, one(), ANY),
    Operator("argwhere", torch.argwhere, one(), NUMBERS),
    Operator(
        "embedding",
        lambda w, i: F.embedding(i, w),
        lambda s, d: [values((7, 5), d), index(s, 7).abs() % 7],
        FLOATS,
        NONEMPTY,
        gradient=True,
    ),
    Operator("one_hot", lambda i: F.one_hot(i, 7), lambda s, d: [index(s, 7).abs() % 7], (torch.int64,), NONEMPTY),
    Operator(
        "isin", torch.isin, lambda s, d: [values(s, d), values((5,), d, 3)], (torch.float32, torch.int64), NONEMPTY
    ),
)

# torch_npu does not sort float64.
SORTABLE = tuple(d for d in NUMBERS if d != torch.float64)
SORTING = (
    Operator("sort", lambda x: tuple(torch.sort(x, stable=True)), one(), SORTABLE, NONEMPTY, gradient=True),
    Operator(
        "sort descending",
        lambda x: tuple(torch.sort(x, dim=0, descending=True, stable=True)),
        one(),
        SORTABLE,
        NONEMPTY,
    ),
    Operator("argsort", lambda x: torch.argsort(x, stable=True), one(), SORTABLE, NONEMPTY),
    Operator("topk", lambda x: tuple(torch.topk(x, 1)), one(), NUMBERS, NONEMPTY, gradient=True),
    Operator(
        "topk smallest", lambda x: torch.topk(x, 3, largest=False).values, one(), NUMBERS, ((7,), (3, 5), (2, 3, 129))
    ),
    Operator("kthvalue", lambda x: torch.kthvalue(x, 1, -1).values, one(), FLOATS, NONEMPTY),
    Operator(
        "searchsorted",
        lambda x, v: torch.searchsorted(x.sort().values, v),
        lambda s, d: [values((9,), d), values(s, d, 1)],
        (torch.float32, torch.int64),
        NONEMPTY,
    ),
    Operator("unique", torch.unique, one(), NUMBERS, NONEMPTY),
    Operator(
        "unique with counts",
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        one(),
        (torch.float32, torch.int64),
        NONEMPTY,
    ),
    Operator("unique rows", lambda x: torch.unique(x, dim=0), one(), (torch.float32, torch.int64), NONEMPTY),
    Operator("unique_consecutive", torch.unique_consecutive, one(), (torch.float32, torch.int64), NONEMPTY),
)


# A cast to float64 stops at float32: torch_npu says that the device has no double.
CASTS = tuple(d for d in ANY if d != torch.float64)


def three_tensors(shape, dtype):
    return [values(shape, dtype, i) for i in range(3)]


RANKED = tuple(s for s in SHAPES if s)
SHAPING = (
    Operator("clone", torch.clone, one(), ANY, gradient=True),
    Operator("contiguous", lambda x: x.contiguous(), one(), ANY),
    Operator("permuted copy", lambda x: x.permute(tuple(range(x.dim())[::-1])).contiguous(), one(), ANY),
    Operator("reshape", lambda x: x.reshape(-1), one(), ANY, gradient=True),
    Operator("cat", lambda *x: torch.cat(x, -1), three_tensors, ANY, RANKED, gradient=True),
    Operator(
        "cat of dtypes",
        lambda *x: torch.cat(x, 0),
        lambda s, d: [values(s, d), values(s, torch.float32, 1)],
        NUMBERS,
        NONEMPTY,
    ),
    Operator("stack", lambda *x: torch.stack(x, 0), three_tensors, ANY, gradient=True),
    Operator(
        "split", lambda x: [part + 1 for part in torch.split(x, x.shape[-1] // 4 + 1, -1)], one(), NUMBERS, RANKED
    ),
    Operator("chunk", lambda x: [part + 1 for part in torch.chunk(x, 3)], one(), NUMBERS, NONEMPTY),
    Operator("repeat", lambda x: x.repeat(2, *[1] * x.dim()), one(), ANY, gradient=True),
    Operator("repeat_interleave", lambda x: torch.repeat_interleave(x, 3, -1), one(), NUMBERS, NONEMPTY, gradient=True),
    Operator(
        "repeat_interleave by counts",
        lambda x: torch.repeat_interleave(x, torch.arange(x.shape[0], device=x.device) % 3, 0),
        one(),
        NUMBERS,
        NONEMPTY,
    ),
    Operator("flip", lambda x: torch.flip(x, (0,)), one(), ANY, RANKED, gradient=True),
    Operator("roll", lambda x: torch.roll(x, 2, -1), one(), ANY, RANKED, gradient=True),
    Operator("tril", lambda x: torch.tril(x, 1), one(), ANY, MATRICES, gradient=True),
    Operator("triu", lambda x: torch.triu(x, -1), one(), ANY, MATRICES, gradient=True),
    Operator("pad", lambda x: F.pad(x, (1, 2), value=3), one(), NUMBERS, NONEMPTY, gradient=True),
    Operator(
        "pad by reflection",
        lambda x: F.pad(x, (1, 2), mode="reflect"),
        one(),
        FLOATS,
        ((3, 5), (2, 3, 129)),
        gradient=True,
    ),
    Operator(
        "pad by replication",
        lambda x: F.pad(x, (1, 2), mode="replicate"),
        one(),
        FLOATS,
        ((3, 5), (2, 3, 129)),
        gradient=True,
    ),
    Operator("diagonal", lambda x: torch.diagonal(x) + 1, one(), NUMBERS, MATRICES, gradient=True),
    Operator("expand", lambda x: x.expand(3, *x.shape) + 1, one(), NUMBERS, gradient=True),
    Operator("unfold", lambda x: x.unfold(-1, 3, 2) + 1, one(), FLOATS, ((7,), (3, 5)), gradient=True),
    Operator("meshgrid", lambda x: torch.meshgrid(x, x, indexing="ij"), one(), NUMBERS, ((7,),)),
    Operator("zeros_like", torch.zeros_like, one(), ANY),
    Operator("ones_like", torch.ones_like, one(), ANY),
    Operator("full_like", lambda x: torch.full_like(x, 3), one(), ANY),
    Operator("fill_", into("fill_", 1), one(), ANY),
    Operator("zero_", into("zero_"), one(), ANY),
    Operator("fill by a tensor", lambda x, v: x.clone().fill_(v), lambda s, d: [values(s, d), values((), d)], ANY),
    Operator("fill_diagonal_", into("fill_diagonal_", 3), one(), NUMBERS, MATRICES),
    *(
        Operator(f"to {dtype}".replace("torch.", ""), lambda x, dtype=dtype: x.to(dtype), one(positive), ANY)
        for dtype in CASTS
    ),
    Operator("copy_ into a slice", lambda x, y: torch.cat([x, x], -1)[..., ::2].copy_(y), two(), ANY, NONEMPTY),
)


def reduced(function, *arguments, **keywords):
    return tuple(
        (f"{function.__name__} {r}", lambda *a, r=r: function(*a, *arguments, reduction=r, **keywords))
        for r in ("none", "mean", "sum")
    )


def without_gradient_of_target(function):
    """torch_npu does not differentiate by the target."""

    @functools.wraps(function)
    def call(x, target, **keywords):
        return function(x, target.detach(), **keywords)

    return call


PAIRS = ((7,), (3, 5))
LOSSES = (
    *(Operator(n, f, two(), FLOATS, PAIRS, gradient=True) for n, f in reduced(F.mse_loss)),
    *(Operator(n, f, two(), (torch.float32, torch.float64), PAIRS, gradient=True) for n, f in reduced(F.l1_loss)),
    *(
        Operator(n, f, two(), (torch.float32, torch.float64), PAIRS, gradient=True)
        for n, f in reduced(F.smooth_l1_loss)
    ),
    *(Operator(n, f, two(), (torch.float32, torch.float64), PAIRS, gradient=True) for n, f in reduced(F.huber_loss)),
    *(
        Operator(
            n,
            f,
            lambda s, d: [values(s, d), index(s[:1], s[1]).abs() % s[1]],
            FLOATS,
            ((3, 5), (17, 33)),
            gradient=True,
        )
        for function in (F.cross_entropy, F.nll_loss)
        for n, f in reduced(function)
    ),
    Operator(
        "cross_entropy with weights",
        lambda x, t: F.cross_entropy(x, t, torch.arange(x.shape[1], dtype=x.dtype).to(x.device), ignore_index=1),
        lambda s, d: [values(s, d), index(s[:1], s[1]).abs() % s[1]],
        (torch.float32,),
        ((3, 5), (17, 33)),
        gradient=True,
    ),
    Operator(
        "cross_entropy smoothed",
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        lambda s, d: [values(s, d), index(s[:1], s[1]).abs() % s[1]],
        (torch.float32,),
        ((3, 5),),
        gradient=True,
    ),
    *(
        Operator(
            n,
            f,
            lambda s, d: [values(s, d).sigmoid(), values(s, d, 1).sigmoid()],
            (torch.float32, torch.float64),
            PAIRS,
            gradient=True,
        )
        for n, f in reduced(F.binary_cross_entropy)
    ),
    *(
        Operator(
            n,
            f,
            lambda s, d: [values(s, d), values(s, d, 1).sigmoid()],
            (torch.float32, torch.float64),
            PAIRS,
            gradient=True,
        )
        for n, f in reduced(without_gradient_of_target(F.binary_cross_entropy_with_logits))
    ),
    *(
        Operator(
            n,
            f,
            lambda s, d: [values(s, d), values(s, d, 1).sigmoid()],
            (torch.float32, torch.float64),
            PAIRS,
            gradient=True,
            gradient_units=2,
        )
        for n, f in reduced(F.kl_div)
    ),
)

IMAGE = ((2, 3, 7, 9),)


def image_operator(name, function, *, shapes=IMAGE, arguments=None):
    return Operator(name, function, arguments or one(), (torch.float32,), shapes, gradient=True)


def with_kernel(*sizes):
    return lambda s, d: [values(s, d), values((4, s[1], *sizes), d, 1), values((4,), d, 2)]


VISION = (
    image_operator("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=2), arguments=with_kernel(3, 3)),
    image_operator("conv1d", F.conv1d, shapes=((2, 3, 17),), arguments=with_kernel(3)),
    image_operator("avg_pool2d", lambda x: F.avg_pool2d(x, 2)),
    Operator(
        "avg_pool3d",
        in_float(lambda x: F.avg_pool3d(x, 2, stride=1, padding=1, count_include_pad=False)),
        one(),
        FLOATS,
        ((2, 3, 4, 5, 6),),
        gradient=True,
    ),
    image_operator("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1)),
    image_operator("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 2)),
    *(
        image_operator(f"interpolate {mode}", lambda x, mode=mode: F.interpolate(x, scale_factor=1.5, mode=mode))
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
    ),
    image_operator("interpolate to a size", lambda x: F.interpolate(x, (5, 20), mode="bilinear", align_corners=True)),
    image_operator(
        "grid_sample",
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        arguments=lambda s, d: [values(s, d), fraction((2, 4, 5, 2), d, 1)],
    ),
)

TABLE = (
    POINTWISE + ACTIVATIONS + REDUCTIONS + PRODUCTS + NORMALIZATIONS + INDEXING + SORTING + SHAPING + LOSSES + VISION
)


def cases(operator, layout):
    """The operator's arguments on the CPU, for every dtype and shape."""
    for dtype, shape in product(operator.dtypes, operator.shapes):
        arguments = operator.arguments(shape, dtype)
        yield f"{operator} {dtype} {shape}", [layout(a) if isinstance(a, torch.Tensor) else a for a in arguments]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("operator", TABLE, ids=str)
def test_result_is_that_of_the_cpu(operator, layout):
    for what, arguments in cases(operator, layout):
        # The CPU's result keeps transposed strides, the NPU's does not: ATen's vector and scalar code round apart.
        units = 8 if layout is transposed else 0
        result = operator.function(*to_npu(arguments))
        if operator.sums_products:
            assert_rounded(result, lambda a: operator.function(*a), arguments, what)
        else:
            assert_same(result, operator.function(*arguments), what, units)


# From 32768 elements on ATen divides the work among threads.
LARGE = ((32771,), (3, 11003))


@pytest.mark.parametrize("operator", [o for o in TABLE if o.shapes in (SHAPES, RANKED, NONEMPTY)], ids=str)
def test_result_of_several_threads_is_that_of_the_cpu(operator):
    for dtype, shape in product({operator.dtypes[0], operator.dtypes[-1]}, LARGE):
        arguments = operator.arguments(shape, dtype)
        result, expected = operator.function(*to_npu(arguments)), operator.function(*arguments)
        assert_same(result, expected, f"{operator} {dtype} {shape}")


@pytest.mark.parametrize("operator", [o for o in TABLE if o.inplace], ids=str)
def test_inplace_form_writes_into_its_argument(operator):
    for layout in (contiguous, transposed, stepped):
        for what, arguments in cases(operator, layout):
            self, *rest = to_npu(arguments)
            if not torch.can_cast(operator.function(*arguments).dtype, self.dtype):  # a float result into integers
                with pytest.raises(RuntimeError, match="can't be cast"):
                    getattr(self, operator.inplace)(*rest)
                continue
            getattr(arguments[0], operator.inplace)(*arguments[1:])
            assert getattr(self, operator.inplace)(*rest) is self
            assert_same(self, arguments[0], what)


@pytest.mark.parametrize("operator", [o for o in TABLE if o.out], ids=str)
def test_out_argument_is_written_through_its_strides(operator):
    for what, arguments in cases(operator, contiguous):
        expected = stepped(torch.zeros_like(operator.function(*arguments)))
        out = to_npu(expected)
        strides = out.stride()
        operator.function(*to_npu(arguments), out=out)
        assert out.stride() == strides
        if operator.sums_products:
            assert_rounded(out, lambda a: operator.function(*a), arguments, what)
        else:
            assert_same(out, operator.function(*arguments, out=expected), what)


def gradients(operator, arguments, weights):
    """The gradients of the operator's first result, weighted, for its floating-point arguments."""
    leaves = [a.requires_grad_() for a in arguments if isinstance(a, torch.Tensor) and a.is_floating_point()]
    flatten(operator.function(*arguments))[0].backward(weights)
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


@pytest.mark.parametrize("operator", [o for o in TABLE if o.gradient], ids=str)
def test_gradient_is_that_of_the_cpu(operator):
    dtypes = [dtype for dtype in (torch.float32, torch.bfloat16) if dtype in operator.dtypes]
    assert dtypes
    for dtype, shape in product(dtypes, operator.shapes):
        what = f"{operator} {dtype} {shape}"
        arguments = operator.arguments(shape, dtype)
        result = flatten(operator.function(*arguments))[0]
        weights = values(result.shape, result.dtype, 9)
        found = gradients(operator, to_npu(arguments), weights.npu())
        if operator.sums_products:
            assert_rounded(found, lambda a: gradients(operator, a[1:], a[0]), [weights, *arguments], what)
        else:
            assert_same(found, gradients(operator, arguments, weights), what, operator.gradient_units)


CREATIONS = {
    "zeros": lambda dtype, device: torch.zeros(3, 5, dtype=dtype, device=device),
    "ones": lambda dtype, device: torch.ones(3, 5, dtype=dtype, device=device),
    "full": lambda dtype, device: torch.full((3, 5), 7, dtype=dtype, device=device),
    "tensor": lambda dtype, device: torch.tensor([[1, 0], [2, 3]], dtype=dtype, device=device),
    "arange": lambda dtype, device: torch.arange(1, 30, 3, dtype=dtype, device=device),
    "arange backwards": lambda dtype, device: torch.arange(9, -1, -2, dtype=dtype, device=device),
    "eye": lambda dtype, device: torch.eye(3, 5, dtype=dtype, device=device),
    "linspace": lambda dtype, device: torch.linspace(1, 9, 17, dtype=dtype, device=device),
    "new_zeros": lambda dtype, device: torch.empty(1, dtype=dtype, device=device).new_zeros(2, 3),
    "zeros of nothing": lambda dtype, device: torch.zeros(0, 5, dtype=dtype, device=device),
    "logspace": lambda dtype, device: torch.logspace(0, 2, 5, dtype=dtype, device=device),
    "scalar_tensor": lambda dtype, device: torch.scalar_tensor(3, dtype=dtype, device=device),
}
NOT_OF_BOOL = ("arange", "arange backwards", "linspace", "logspace")


@pytest.mark.parametrize("name", CREATIONS)
def test_creation_is_that_of_the_cpu(name):
    for dtype in NUMBERS if name in NOT_OF_BOOL else ANY:
        assert_same(CREATIONS[name](dtype, "npu"), CREATIONS[name](dtype, "cpu"), f"{name} {dtype}")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_copies_between_host_and_device_keep_the_values(layout):
    for dtype, shape in product(ANY, SHAPES):
        host = layout(values(shape, dtype))
        device = host.npu()
        assert_same(device, host, "to the device")
        back = torch.empty_like(host.contiguous())
        back.copy_(layout(device))
        torch.testing.assert_close(back, layout(host), rtol=0, atol=0)
        assert_same(torch.zeros(shape, device="npu").copy_(host), torch.zeros(shape).copy_(host), "into float32")


def test_copies_between_devices_keep_the_values():
    host = values((3, 5), torch.float32)
    there = host.to("npu:0").to("npu:1")
    assert there.device.index == 1
    assert_same(there.mT + 1, host.mT + 1, "on the second device")


HALF, NAN = torch.float16, float("nan")
MATRIX = [[-1, -2], [-3, -4]]
WITH_NAN = [[1.0, NAN, 3.0, 2.0], [-1.0, NAN, 3.0, 2.0]]

# What CANN's documents of these functions say, in examples or in words: a call, its arguments, and the result.
VALUES = {
    "aclnnRound: to the even number": (torch.round, [[0.5, 1.5, 2.5, -0.5, -1.5]], [0.0, 2.0, 2.0, -0.0, -2.0]),
    "aclnnRemainderTensorTensor: the divisor's sign": (
        lambda x: torch.remainder(x, torch.tensor([-3, -3]).to(HALF).npu()),
        [MATRIX],
        torch.tensor([[-1.0, -2.0], [-0.0, -1.0]]).to(HALF),
    ),
    "aclnnRemainderTensorScalar: of integers by a float": (
        lambda x: torch.remainder(x.int(), 3.5),
        [MATRIX],
        [[2.5, 1.5], [0.5, 3.0]],
    ),
    "aclnnFloorDivide: to minus infinity": (torch.floor_divide, [[-7, 7, -7], [2, -2, -2]], [-4, -4, 3]),
    "aclnnDivMod, mode 1: to zero": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        [[-7, 7, -7], [2, -2, -2]],
        [-3, -3, 3],
    ),
    "aclnnDivMod, mode 2: to minus infinity": (
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        [[-7.0, 7.0, -7.0], [2.0, -2.0, -2.0]],
        [-4.0, -4.0, 3.0],
    ),
    "aclnnMedian: the lower of two": (torch.median, [[4.0, 1.0, 3.0, 2.0]], 2.0),
    "aclnnMedianDim: its place": (lambda x: torch.median(x, 0), [[4.0, 1.0, 3.0, 2.0]], [2.0, 3]),
    "aclnnNanMedianDim, dim 0": (
        lambda x: torch.nanmedian(x, 0),
        [WITH_NAN],
        [[-1.0, NAN, 3.0, 2.0], [1, 0, 0, 0]],
    ),
    "aclnnNanMedianDim, dim 1": (lambda x: torch.nanmedian(x, 1), [WITH_NAN], [[2.0, 2.0], [3, 3]]),
    "aclnnRightShift: of the sign, and past all bits": (
        lambda x, bits: x >> bits,
        [[-8, 8, -8, 8, -8], [1, 1, 64, 64, -1]],
        [-4, 4, -1, 0, -1],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_value_is_that_of_canns_documents(name):
    function, arguments, expected = VALUES[name]
    found = function(*(torch.tensor(argument).npu() for argument in arguments))
    for got, want in zip(flatten(found), expected if isinstance(found, tuple) else [expected], strict=True):
        want = torch.as_tensor(want)
        torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(got.cpu().signbit(), want.signbit())
