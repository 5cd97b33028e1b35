# SPDX-License-Identifier: Apache-2.0
"""Every built-in node type, one by one: a table of nodes beside the same computation in ATen on the CPU."""

import ctypes
import functools
import sys
import textwrap
from collections import defaultdict

import aclnn
import fresh
import pytest
import torch
import torch.nn.functional as F
from cann_cpu.coverage import served_node_types
from single_node import Compiler, Out, run_node

CASES = defaultdict(list)


def case(node_type, inputs, expected, *, exact=True, **attributes):
    """What the node gives for these inputs is what expected gives for those that are not left out."""
    CASES[node_type].append((inputs, expected, exact, attributes))


def tensor(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def integers(*shape, low=-9, high=10, seed=0, dtype=torch.int32):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def longs(*values):
    return torch.tensor(values, dtype=torch.int64)


def number(value, dtype=torch.float32):
    return torch.tensor(value, dtype=dtype)


X, Y, Z = (tensor(5, 7, seed=seed) for seed in range(3))
P, Q = X.abs() + 0.1, Y.abs() + 0.1
FRACTION = torch.sin(X)
U, V = integers(5, 7), integers(5, 7, seed=1)
D = integers(5, 7, low=1, seed=2)
B, C = X > 0, Y > 0.5
HALF = X.bfloat16()

for name in ("Abs", "Neg", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Erf", "Erfc", "Expm1"):
    case(name, [X], getattr(torch, name.lower()))
    case(name, [HALF], getattr(torch, name.lower()))
for name in ("Sqrt", "Rsqrt", "Reciprocal", "Log1p"):
    case(name, [P], getattr(torch, name.lower()))
for name in ("Asin", "Acos", "Atanh", "Erfinv"):
    case(name, [FRACTION], getattr(torch, name.lower()))
for name in ("Floor", "Ceil", "Trunc", "Sign", "Square", "Relu", "Sigmoid"):
    case(name, [X * 3], getattr(torch, name.lower()))
case("Acosh", [P + 1], torch.acosh)
case("Round", [X * 3], torch.round)
case("Round", [X * 3], lambda x: x.round(decimals=2), decimals=2)
case("Exp", [X], torch.exp, base=-1.0, scale=1.0, shift=0.0)
case("Log", [P], torch.log)
case("Log", [P], torch.log2, base=2.0)
case("Log", [P], torch.log10, base=10.0)
case("Invert", [U], torch.bitwise_not)
case("NanToNum", [X / X.round()], lambda x: x.nan_to_num(1, 2, -3), nan=1.0, posinf=2.0, neginf=-3.0)

for name, function in {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Maximum": torch.maximum,
    "Minimum": torch.minimum,
    "Equal": torch.eq,
    "NotEqual": torch.ne,
    "Less": torch.lt,
    "LessEqual": torch.le,
    "Greater": torch.gt,
    "GreaterEqual": torch.ge,
}.items():
    case(name, [X, Y], function)
    case(name, [U, V], function)
    case(name, [X, Y[:, :1]], function)
    case(name, [U, X], function)
for name, function in {
    "RealDiv": torch.div,
    "FloorDiv": torch.floor_divide,
    "FloorMod": torch.remainder,
    "Mod": torch.fmod,
    "TruncateDiv": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}.items():
    case(name, [X * 9, Q], function)
    case(name, [U, D], function)
case("Div", [X, Q], torch.div)
case("Div", [U, D], lambda x, y: torch.div(x, y, rounding_mode="trunc"))
case("Atan2", [X, Y], torch.atan2)
case("Pow", [P, Y], torch.pow)
case("Pow", [X, number(3.0)], lambda x, y: x**3)
case("BiasAdd", [X, X[0] * 3], torch.add)
case("BiasAdd", [tensor(2, 7, 5, 4), X[0] * 3], lambda x, b: x + b.reshape(-1, 1, 1), data_format="NCHW")
case("AddN", [X, Y, Z], lambda *x: sum(x[1:], x[0]), N=3)
case("BiasAddGrad", [X], lambda dy: dy.sum(0))
case("BiasAddGrad", [tensor(2, 7, 5, 4)], lambda dy: dy.sum((0, 2, 3)), data_format="NCHW")
case("AxpyV2", [X, Y, number(0.3)], lambda x, y, a: torch.add(x, y, alpha=0.3))
case("Axpy", [X, Y], lambda x, y: torch.add(x, y, alpha=0.3), alpha=0.3)
case("Sxpy", [X, Y, number(0.3)], lambda x, y, a: torch.sub(x, y, alpha=0.3))
case("Sxpy", [X, Y, None], torch.sub)
case("Muls", [X], lambda x: x * 1.3, value=1.3)
case("Addcmul", [X, Y, Z, number(0.3)], lambda x, y, z, v: torch.addcmul(x, y, z, value=0.3))
case("Addcdiv", [X, Y, Q, number(0.3)], lambda x, y, z, v: torch.addcdiv(x, y, z, value=0.3))
case("Lerp", [X, Y, number(0.3)], lambda x, y, w: torch.lerp(x, y, 0.3))
case("Lerp", [X, Y, Z], torch.lerp)
case("ClipByValueV2", [X, number(-0.5), number(0.25)], torch.clamp)
case("ClipByValueV2", [X, Y[0], Y[0] + 1], torch.clamp)
for name, function in (("And", torch.bitwise_and), ("Or", torch.bitwise_or), ("Xor", torch.bitwise_xor)):
    case(f"Bitwise{name}", [U, V], function)
    case(f"Logical{name}", [B, C], getattr(torch, function.__name__.replace("bitwise", "logical")))
case("LogicalNot", [B], torch.logical_not)
case("LeftShift", [U, D], torch.bitwise_left_shift)
case("RightShift", [U, D], torch.bitwise_right_shift)
case("IsInf", [X / X.round()], torch.isinf)
case("IsFinite", [X / X.round()], torch.isfinite)
case("IsNan", [X.round() / X.round()], torch.isnan)
case("SelectV2", [B, X, Y], torch.where)
case("SelectV2", [B, X, number(2.0)], torch.where)
case("MaskedFill", [X, B, number(2.0)], lambda x, m, v: x.masked_fill(m, v))
case("MaskedFill", [X[0], B, number(2.0)], lambda x, m, v: x.masked_fill(m, v))
case("Cast", [X * 9], lambda x: x.int(), dst_type=torch.int32)
COMPLEX = torch.complex(X, Y)
case("Complex", [X, Y], torch.complex)
case("Real", [COMPLEX], torch.real)
case("Imag", [COMPLEX], torch.imag)

gelu_tanh = functools.partial(F.gelu, approximate="tanh")
for name, function in {
    "Gelu": gelu_tanh,
    "HardSwish": F.hardswish,
    "Mish": F.mish,
    "LogSigmoid": F.logsigmoid,
    "Swish": F.silu,
    "SoftplusV2": F.softplus,
    "HardSigmoid": F.hardsigmoid,
}.items():
    case(name, [X], function)
    case(name, [HALF], function)
case("GeluV2", [X], F.gelu, approximate="none")
case("GeluV2", [X], gelu_tanh, approximate="tanh")
case("LeakyRelu", [X], lambda x: F.leaky_relu(x, 0.1), negative_slope=0.1)
case("Elu", [X], lambda x: F.elu(x, 0.5), alpha=0.5)
case("PRelu", [X, Q[0]], lambda x, w: F.prelu(x, w))
case("GLU", [tensor(5, 8)], lambda x: F.glu(x, 1), dim=1)
case("SwiGlu", [tensor(5, 8)], lambda x: F.silu(x[:, :4]) * x[:, 4:])
case(
    "SwiGlu", [HALF[:, :6]], lambda x: (F.silu(x.float()[:, :3]) * x.float()[:, 3:]).bfloat16()
)  # rounded once, as float is
case("ThresholdV2", [X, number(0.1), number(2.0)], lambda x, t, v: F.threshold(x, 0.1, 2.0))


def gradient(function, wanted=(0,)):
    """The gradient function of a function of tensors, with arguments (dy, inputs...)."""

    def of(dy, *inputs):
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        with torch.enable_grad():
            function(*leaves).backward(dy)
        grads = tuple(leaves[i].grad for i in wanted)
        return grads if len(grads) > 1 else grads[0]

    return of


for name, function in {
    "ReluGrad": torch.relu,
    "GeluGradV2": F.gelu,
    "HardSwishGrad": F.hardswish,
    "HardSigmoidGrad": F.hardsigmoid,
    "SwishGrad": F.silu,
    "LogSigmoidGrad": F.logsigmoid,
    "SoftplusV2Grad": F.softplus,
}.items():
    case(name, [Y, X], gradient(function))
case("GeluGrad", [Y, X, gelu_tanh(X)], lambda dy, x, y: gradient(gelu_tanh)(dy, x))
case("FastGelu", [X], lambda x: x * torch.sigmoid(1.702 * x), exact=False)
case("FastGeluGrad", [Y, X], gradient(lambda x: x * torch.sigmoid(1.702 * x)), exact=False)


def adam_w(x, mean, square, power_1, power_2, lr, decay, beta_1, beta_2, epsilon, grad):
    mean, square = beta_1 * mean + (1 - beta_1) * grad, beta_2 * square + (1 - beta_2) * grad**2
    step = mean / (1 - power_1 * beta_1) / ((square / (1 - power_2 * beta_2)).sqrt() + epsilon)
    return x - lr * (step + decay * x), mean, square


ADAM_W = [number(value) for value in (0.5, 0.6, 0.1, 0.2, 0.8, 0.9, 1e-3)]
case("ApplyAdamW", [X, Y, Q, *ADAM_W, Z], adam_w, exact=False)


def adam(x, mean, square, power_1, power_2, lr, beta_1, beta_2, epsilon, grad):
    mean, square = beta_1 * mean + (1 - beta_1) * grad, beta_2 * square + (1 - beta_2) * grad**2
    return x - lr * (1 - power_2).sqrt() / (1 - power_1) * mean / (square.sqrt() + epsilon), mean, square


case("ApplyAdamD", [X, Y, Q, *ADAM_W[:3], *ADAM_W[4:], Z], adam, use_locking=False, exact=False)


def momentum(nesterov):
    def step(x, accum, lr, grad, momentum):
        accum = accum * momentum + grad
        return x - lr * (grad + momentum * accum if nesterov else accum)

    return step


RATE = number(0.1)
case("ApplyMomentum", [X, Y, RATE, Z, number(0.9)], momentum(False), exact=False)
case("ApplyMomentum", [X, Y, RATE, Z, number(0.9)], momentum(True), use_nesterov=True, exact=False)


def sgd(factor, decay=0.0, dampening=0.0, nesterov=False):
    def step(x, grad, lr, accum, momentum, stat):
        parameter = x.clone().requires_grad_()
        optimizer = torch.optim.SGD([parameter], lr.item(), factor, dampening, decay, nesterov)
        optimizer.state[parameter]["momentum_buffer"] = accum.clone() if not stat.any() else None
        parameter.grad = grad
        with torch.enable_grad():
            optimizer.step()
        return parameter.detach()

    return step


ACCUM, LATER = [torch.zeros(5, 7), torch.ones(5, 7)], [Z, torch.zeros(5, 7)]  # of the first step and of another
for factor in (0.0, 0.9):
    for accum, stat in (ACCUM, LATER):
        given = [X, Y, RATE, accum, number(factor), stat]
        case("SGD", given, sgd(factor), exact=False)
        case("SGD", given, sgd(factor, 0.5), weight_decay=0.5, exact=False)
case("SGD", [X, Y, RATE, LATER[0], number(0.9), LATER[1]], sgd(0.9, 0, 0.3), dampening=0.3, exact=False)
case("SGD", [X, Y, RATE, LATER[0], number(0.9), LATER[1]], sgd(0.9, nesterov=True), nesterov=True, exact=False)
case("SigmoidGrad", [X.sigmoid(), Y], lambda y, dy: dy * y * (1 - y), exact=False)
case("TanhGrad", [X.tanh(), Y], lambda y, dy: dy * (1 - y * y), exact=False)
case("LeakyReluGrad", [Y, X], gradient(lambda x: F.leaky_relu(x, 0.1)), negative_slope=0.1)
case("EluGradV2", [Y, X], gradient(lambda x: F.elu(x, 0.5)), alpha=0.5)
case("HardtanhGrad", [X, Y], lambda x, dy: gradient(F.hardtanh)(dy, x), min_val=-1.0, max_val=1.0)
case("PReluGrad", [Y, X, Q], lambda dy, x, w: (torch.where(x > 0, dy, w * dy), torch.where(x > 0, 0, x * dy)))
case("GLUGrad", [tensor(5, 4), tensor(5, 8, seed=1)], gradient(lambda x: F.glu(x, 1)), dim=1)
case("SwiGluGrad", [tensor(5, 4), tensor(5, 8, seed=1)], gradient(lambda x: F.silu(x[:, :4]) * x[:, 4:]), exact=False)
case("ThresholdGradV2D", [Y, X], gradient(lambda x: F.threshold(x, 0.1, 0)), threshold=0.1)
for reduction in ("none", "mean", "sum"):
    case("MseLoss", [X, Y], lambda x, y, r=reduction: F.mse_loss(x, y, reduction=r), reduction=reduction)
    case(
        "MseLossGrad",
        [X, Y, Z if reduction == "none" else number(0.7)],
        lambda x, y, dy, r=reduction: gradient(lambda a: F.mse_loss(a, y, reduction=r))(dy, x),
        reduction=reduction,
    )
TARGET = integers(5, low=0, high=7)
WEIGHT = Q[0].contiguous()
LOG_PROBABILITIES = X.log_softmax(1)


def nll(x, target, weight):
    return F.nll_loss(x, target.long(), weight), weight[target.long()].sum()


case("NLLLoss", [LOG_PROBABILITIES, TARGET, WEIGHT], nll, exact=False)
case(
    "NLLLossGrad",
    [LOG_PROBABILITIES, number(0.7), TARGET, WEIGHT, WEIGHT[TARGET.long()].sum()],
    lambda x, dy, t, w, total: gradient(lambda a: F.nll_loss(a, t.long(), w))(dy, x),
    exact=False,
)

AXES = longs(1)
for name, function in {
    "ReduceSum": torch.sum,
    "ReduceMean": torch.mean,
    "ReduceMax": torch.amax,
    "ReduceMin": torch.amin,
    "ReduceLogSumExp": torch.logsumexp,
}.items():
    case(name, [X, AXES], lambda x, axes, f=function: f(x, 1))
    case(name, [X, longs(0, 1)], lambda x, axes, f=function: f(x, (0, 1), keepdim=True), keep_dims=True)
case("ReduceMean", [X, longs()], lambda x, axes: x, noop_with_empty_axes=True)
case("ReduceMean", [X, longs()], lambda x, axes: x.mean(), noop_with_empty_axes=False)
case("ReduceMeanWithCast", [HALF, AXES], lambda x, axes: x.float().mean(1), dtype=torch.float32)
case("ReduceMeanWithCast", [HALF, longs()], lambda x, axes: x.float(), dtype=torch.float32)
case("ReduceAll", [B, AXES], lambda x, axes: x.all(1))
case("ReduceAny", [B, AXES], lambda x, axes: x.any(1))
case("ReduceProd", [X, longs(0, 1)], lambda x, axes: x.prod(1).prod(0), exact=False)
case("ReduceProdD", [X], lambda x: x.prod(1), axes=[1])
case("ReduceStdV2", [X], lambda x: torch.std_mean(x, 1), dim=[1], is_mean_out=True)
case("ReduceStdWithMean", [X, X.mean(1, keepdim=True).expand(5, 7)], lambda x, m: x.std(1), dim=[1])
case("ArgMaxV2", [X, number(1, torch.int32)], lambda x, d: x.argmax(1), dtype=torch.int64)
case("ArgMaxV2", [X, number(0, torch.int32)], lambda x, d: x.argmax(0).int(), dtype=torch.int32)
case("ArgMin", [X, number(1, torch.int32)], lambda x, d: x.argmin(1), dtype=torch.int64)
case("ArgMaxWithValue", [X], lambda x: (x.max(1).indices.int(), x.max(1).values), dimension=1)
case("ArgMinWithValue", [X], lambda x: (x.min(0).indices.int(), x.min(0).values), dimension=0)
case("Cumsum", [X, number(1, torch.int32)], lambda x, d: x.cumsum(1))
case("Cumprod", [X, number(1, torch.int32)], lambda x, d: x.cumprod(1))
for p in (1.0, 2.0, 3.0):
    case("LpNormV2", [X], lambda x, p=p: torch.linalg.vector_norm(x, p, 1), p=p, axes=[1], epsilon=0.0)
case("LpNormV2", [X], lambda x: x.abs().amax(), p=2147483647.0)

A, W = tensor(5, 7), tensor(7, 3, seed=1)
BATCH, OTHERS = tensor(2, 5, 7), tensor(2, 7, 3, seed=1)
BIAS = tensor(3, seed=2)
for name in ("MatMul", "MatMulV2", "MatMulV3"):
    case(name, [A, W], torch.matmul, exact=False)
    case(name, [A.T, W.T], lambda a, w: a.T @ w.T, transpose_x1=True, transpose_x2=True, exact=False)
    case(name, [A, W, BIAS], lambda a, w, b: torch.addmm(b, a, w), exact=False)
for name in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
    case(name, [BATCH, OTHERS], torch.matmul, exact=False)
    case(name, [BATCH, OTHERS.mT], lambda a, w: a @ w.mT, adj_x2=True, exact=False)

case("SoftmaxV2", [X], lambda x: x.softmax(1), axes=[1])
case("SoftmaxV2", [HALF], lambda x: x.float().softmax(1), axes=[1], half_to_float=True)
case("LogSoftmaxV2", [X], lambda x: x.log_softmax(0), axes=[0])
case("SoftmaxGrad", [X.softmax(1), Y], lambda y, dy: gradient(lambda x: x.softmax(1))(dy, X), axes=[1], exact=False)
case(
    "LogSoftmaxGrad",
    [Y, X.log_softmax(1)],
    lambda dy, y: gradient(lambda x: x.log_softmax(1))(dy, X),
    axis=[1],
    exact=False,
)
GAMMA, BETA = tensor(7, seed=3), tensor(7, seed=4)
case(
    "LayerNormV4",
    [X, longs(7), GAMMA, BETA],
    lambda x, s, g, b: torch.native_layer_norm(x, (7,), g, b, 1e-3),
    epsilon=1e-3,
)
VOLUME = tensor(3, 5, 7, seed=5)
for axis, dims in ((1, (1, 2)), (-1, (2,))):
    case(
        "LayerNorm",
        [VOLUME, VOLUME[0][(0,) * (2 - len(dims))], VOLUME[1][(0,) * (2 - len(dims))]],
        lambda x, g, b, dims=dims: (
            F.layer_norm(x, g.shape, g, b, 1e-3),
            x.mean(dims, keepdim=True),
            x.var(dims, correction=0, keepdim=True),
        ),
        begin_norm_axis=axis,
        begin_params_axis=axis,
        epsilon=1e-3,
        exact=False,
    )
STATISTICS = torch.native_layer_norm(X, (7,), GAMMA, BETA, 1e-5)[1:]
case(
    "LayerNormGradV3",
    [Y, X, STATISTICS[1], STATISTICS[0], GAMMA],
    lambda dy, x, rstd, mean, g: gradient(lambda x, g, b: F.layer_norm(x, (7,), g, b), (0, 1, 2))(dy, x, g, BETA),
)
case(
    "LayerNormGrad",
    [Y, X, X.var(-1, correction=0, keepdim=True), STATISTICS[0], GAMMA],
    lambda dy, x, v, m, g: gradient(lambda x, g, b: F.layer_norm(x, (7,), g, b, 1e-12), (0, 1, 2))(dy, x, g, BETA),
    exact=False,
)


def rms_norm(x, gamma, epsilon=1e-6):
    rstd = (x.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return x * rstd * gamma, rstd


case("RmsNorm", [X, GAMMA], lambda x, g: rms_norm(x, g, 1e-3), epsilon=1e-3)
case(
    "RmsNormGrad",
    [Y, X, rms_norm(X, GAMMA)[1], GAMMA],
    lambda dy, x, rstd, g: gradient(lambda x, g: rms_norm(x, g)[0], (0, 1))(dy, x, g),
    exact=False,
)
case("AddRmsNorm", [X, Y, GAMMA], lambda x, y, g: (*rms_norm(x + y, g), x + y))

IMAGE = tensor(2, 6, 5, 4)
SCALE, OFFSET = tensor(6, seed=1), tensor(6, seed=2)
MEAN, VARIANCE = tensor(6, seed=3), tensor(6, seed=4).abs() + 0.1


def group_norm(x, g, b, eps):
    groups = x.reshape(2, 3, -1)
    variance, mean = torch.var_mean(groups, -1, unbiased=False)
    return F.group_norm(x, 3, g, b, eps), mean, variance


case(
    "GroupNorm", [IMAGE, SCALE, OFFSET], lambda x, g, b: group_norm(x, g, b, 1e-3), num_groups=3, eps=1e-3, exact=False
)
case(
    "GroupNormV2",
    [IMAGE, SCALE, OFFSET],
    lambda x, g, b: torch.native_group_norm(x, g, b, 2, 6, 20, 3, 1e-3),
    num_groups=3,
    eps=1e-3,
)
case(
    "GroupNormGrad",
    [
        tensor(2, 6, 20, seed=5),
        *torch.native_group_norm(IMAGE, SCALE, OFFSET, 2, 6, 20, 3, 1e-5)[1:],
        IMAGE.flatten(2),
        SCALE,
    ],
    lambda dy, m, r, x, g: gradient(lambda x, g, b: F.group_norm(x, 3, g, b), (0, 1, 2))(dy, x, g, OFFSET),
    num_groups=3,
    exact=False,
)
case(
    "BNInfer",
    [IMAGE, SCALE, OFFSET, MEAN, VARIANCE],
    lambda x, g, b, m, v: F.batch_norm(x, m, v, g, b, eps=1e-3),
    epsilon=1e-3,
    exact=False,
)


def batch_norm(x, g, b, m, v):
    m, v = m.clone(), v.clone()
    y, mean, rstd = torch.native_batch_norm(x, g, b, m, v, True, 0.3, 1e-3)
    return y, m, v, mean, rstd


BATCH_NORM = [IMAGE, SCALE, OFFSET, MEAN, VARIANCE]
case("BatchNormV3", BATCH_NORM, batch_norm, epsilon=1e-3, momentum=0.3, is_training=True)
case(
    "BatchNormV3",
    BATCH_NORM,
    lambda x, g, b, m, v: (F.batch_norm(x, m, v, g, b, eps=1e-3), m, v, m, (v + 1e-3).rsqrt()),
    epsilon=1e-3,
    is_training=False,
    exact=False,
)
SAVED = torch.native_batch_norm(IMAGE, SCALE, OFFSET, None, None, True, 0.1, 1e-5)[1:]
DY = tensor(2, 6, 5, 4, seed=5)


def batch_norm_gradient(dy, x, g, wanted):
    return gradient(lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True), wanted)(dy, x, g, OFFSET)


case(
    "BatchNormGradV3",
    [DY, IMAGE, SCALE, MEAN, VARIANCE, *SAVED],
    lambda dy, x, g, m, v, sm, sr: batch_norm_gradient(dy, x, g, (0, 1, 2)),
)
for name in ("BNTrainingUpdateGrad", "BN3DTrainingUpdateGrad"):
    case(
        name,
        [DY, IMAGE, SAVED[0], SAVED[1] ** -2 - 1e-5],
        lambda dy, x, m, v: batch_norm_gradient(dy, x, SCALE, (1, 2)),
        epsilon=1e-5,
        exact=False,
    )
case(
    "BNTrainingReduceGrad",
    [DY, IMAGE, *batch_norm_gradient(DY, IMAGE, SCALE, (1, 2)), SCALE, SAVED[0], SAVED[1] ** -2 - 1e-5],
    lambda dy, x, ds, do, g, m, v: batch_norm_gradient(dy, x, g, (0,)),
    epsilon=1e-5,
    exact=False,
)
case(
    "BNInferGrad",
    [DY, SCALE, VARIANCE],
    lambda dy, g, v: gradient(lambda x: F.batch_norm(x, MEAN, v, g, OFFSET))(dy, IMAGE),
    epsilon=1e-5,
    exact=False,
)

FILTER = tensor(4, 3, 3, 3, seed=1)
CONV = {"strides": [1, 1, 2, 1], "pads": [1, 1, 0, 0], "dilations": [1, 1, 1, 1], "groups": 2, "data_format": "NCHW"}
torch_conv = {"stride": (2, 1), "padding": (1, 0), "groups": 2}
case("Conv2D", [IMAGE, FILTER, OFFSET[:4]], lambda x, w, b: F.conv2d(x, w, b, **torch_conv), exact=False, **CONV)
CONV_DY = tensor(2, 4, 3, 2, seed=2)
case(
    "Conv2DBackpropInput",
    [longs(2, 6, 5, 4), FILTER, CONV_DY],
    lambda s, w, dy: gradient(lambda x: F.conv2d(x, w, **torch_conv))(dy, IMAGE),
    exact=False,
    **CONV,
)
case(
    "Conv2DBackpropFilter",
    [IMAGE, longs(4, 3, 3, 3), CONV_DY],
    lambda x, s, dy: gradient(lambda w: F.conv2d(x, w, **torch_conv))(dy, FILTER),
    exact=False,
    **CONV,
)
case(
    "Conv2DTranspose",
    [longs(2, 6, 5, 4), CONV_DY, FILTER],
    lambda s, x, w: F.conv_transpose2d(x, w, **torch_conv),
    exact=False,
    **CONV,
)
VOLUME = tensor(2, 4, 3, 5, 4)
FILTER3 = tensor(6, 2, 2, 3, 3, seed=1)
CONV3 = {"strides": [1, 1, 1, 2, 1], "pads": [0, 0, 1, 1, 0, 0], "groups": 2, "data_format": "NCDHW"}
torch_conv3 = {"stride": (1, 2, 1), "padding": (0, 1, 0), "groups": 2}
case("Conv3D", [VOLUME, FILTER3], lambda x, w: F.conv3d(x, w, **torch_conv3), exact=False, **CONV3)
CONV3_DY = tensor(2, 6, 2, 3, 2, seed=2)
case(
    "Conv3DBackpropInput",
    [longs(2, 4, 3, 5, 4), FILTER3, CONV3_DY],
    lambda s, w, dy: gradient(lambda x: F.conv3d(x, w, **torch_conv3))(dy, VOLUME),
    exact=False,
    **CONV3,
)
case(
    "Conv3DBackpropFilter",
    [VOLUME, longs(6, 2, 2, 3, 3), CONV3_DY],
    lambda x, s, dy: gradient(lambda w: F.conv3d(x, w, **torch_conv3))(dy, FILTER3),
    exact=False,
    **CONV3,
)
case(
    "Conv3DTranspose",
    [longs(2, 4, 3, 5, 4), CONV3_DY, FILTER3],
    lambda s, x, w: F.conv_transpose3d(x, w, **torch_conv3),
    exact=False,
    **CONV3,
)
POOL = {"ksize": [1, 1, 3, 2], "strides": [1, 1, 2, 1], "pads": [1, 1, 0, 0], "ceil_mode": True}
torch_pool = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0), "ceil_mode": True}
case("AvgPoolV2", [IMAGE], lambda x: F.avg_pool2d(x, count_include_pad=False, **torch_pool), **POOL)
case(
    "AvgPoolV2",
    [IMAGE],
    lambda x: F.avg_pool2d(x, divisor_override=5, **torch_pool),
    exclusive=False,
    divisor_override=5,
    **POOL,
)
case(
    "AvgPoolV2Grad",
    [longs(2, 6, 5, 4), tensor(2, 6, 3, 3)],
    lambda s, dy: gradient(lambda x: F.avg_pool2d(x, count_include_pad=False, **torch_pool))(dy, IMAGE),
    **POOL,
)
for name, before, after in (("V1", [1], [1]), ("V3", [], [])):
    pool = {
        "ksize": [*before, 3, 2, *after],
        "strides": [*before, 2, 1, *after],
        "pads": [*before, 1, 0, *after],
        "dilation": [*before, 1, 2, *after],
    }
    max_pool = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
    indices = F.max_pool2d(IMAGE, return_indices=True, **max_pool)[1]

    def pooled(x, arguments=max_pool):
        y, index = F.max_pool2d(x, return_indices=True, **arguments)
        return y, index.int()

    case(f"MaxPoolWithArgmax{name}", [IMAGE], pooled, dtype=3, **pool)
    case(
        f"MaxPoolGradWithArgmax{name}",
        [IMAGE, tensor(2, 6, 3, 2), indices.int()],
        lambda x, dy, i, a=max_pool: gradient(lambda x: F.max_pool2d(x, **a))(dy, x),
        **pool,
    )
case(
    "MaxPool3DWithArgmaxV2",
    [VOLUME],
    lambda x: tuple(t if t.is_floating_point() else t.int() for t in F.max_pool3d(x, 2, 1, return_indices=True)),
    ksize=[2, 2, 2],
    strides=[1, 1, 1],
    pads=[0, 0, 0],
)
case("AdaptiveAvgPool2d", [IMAGE], lambda x: F.adaptive_avg_pool2d(x, (3, 2)), output_size=[3, 2])
case(
    "AdaptiveAvgPool2dGrad",
    [tensor(2, 6, 3, 2)],
    lambda dy: gradient(lambda x: F.adaptive_avg_pool2d(x, (3, 2)))(dy, IMAGE),
    orig_input_shape=[2, 6, 5, 4],
)
case("ResizeNearestNeighborV2", [IMAGE, longs(7, 3)], lambda x, s: F.interpolate(x, (7, 3)))
case(
    "ResizeNearestNeighborV2Grad",
    [tensor(2, 6, 7, 3), longs(5, 4)],
    lambda dy, s: gradient(lambda x: F.interpolate(x, (7, 3)))(dy, IMAGE),
)
GRID = torch.sin(tensor(2, 3, 4, 2, seed=1)) * 1.25
for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")):
    keywords = {"mode": mode, "padding_mode": padding, "align_corners": True}
    attributes = {"interpolation_mode": mode, "padding_mode": padding, "align_corners": True}
    case("GridSampler2D", [IMAGE, GRID], lambda x, g, k=keywords: F.grid_sample(x, g, **k), **attributes)
    case(
        "GridSampler2DGrad",
        [tensor(2, 6, 3, 4), IMAGE, GRID],
        lambda dy, x, g, k=keywords: gradient(lambda x, g: F.grid_sample(x, g, **k), (0, 1))(dy, x, g),
        **attributes,
    )
case(
    "GridSampler3D",
    [VOLUME, torch.sin(tensor(2, 2, 3, 4, 3, seed=1))],
    lambda x, g: F.grid_sample(x, g, align_corners=False),
)
PADS = longs(0, 0, 0, 0, 1, 2, 2, 1)
case("Pad", [X, longs(1, 0, 2, 3)], lambda x, p: F.pad(x, (2, 3, 1, 0)))
case(
    "PadV3",
    [integers(5).to(torch.uint64), longs(1, 0), number(2**63 + 5, torch.uint64)],
    lambda x, p, v: torch.cat((v[None], x)),
)
case("PadV3", [X, longs(1, 0, 2, 3), number(1.5)], lambda x, p, v: F.pad(x, (2, 3, 1, 0), value=1.5))
for mode, torch_mode in (("reflect", "reflect"), ("edge", "replicate")):
    case("PadV3", [IMAGE, PADS], lambda x, p, m=torch_mode: F.pad(x, (2, 1, 1, 2), mode=m), mode=mode)
    case(
        "PadV3Grad",
        [tensor(2, 6, 8, 7), PADS],
        lambda dy, p, m=torch_mode: gradient(lambda x: F.pad(x, (2, 1, 1, 2), mode=m))(dy, IMAGE),
        mode=mode,
    )
case("MirrorPad", [IMAGE, PADS.view(4, 2)], lambda x, p: F.pad(x, (2, 1, 1, 2), mode="reflect"), mode="REFLECT")

INDEX = longs(4, 0, 2)
case("Gather", [X, INDEX], lambda x, i: x[i])
case("GatherV2", [X, INDEX.view(3, 1), number(1, torch.int32)], lambda x, i, a: x[:, i])
case("GatherElements", [X, integers(5, 3, low=0, high=7)], lambda x, i: x.gather(1, i.long()), dim=1)
case("IndexByTensor", [X, INDEX], lambda x, i: x[:, i], indices_mask=[0, 1])
case("IndexByTensor", [BATCH, longs(1, 0, 1), longs(6, 0, 2)], lambda x, i, j: x[i, :, j], indices_mask=[1, 0, 1])
case(
    "EmbeddingDenseGrad",
    [X, longs(1, 0, 1, 3, 2)],
    lambda dy, i: gradient(lambda w: F.embedding(i, w, padding_idx=2))(dy, tensor(4, 7)),
    num_weights=4,
    padding_idx=2,
)
case("InplaceIndexAdd", [X, INDEX, Y[:3], number(0.5)], lambda x, i, u, a: x.index_add(0, i, u, alpha=0.5), axis=0)
SLOTS = longs(6, 0, 2).expand(5, 3)
for name in ("ScatterElements", "ScatterElementsV2"):
    case(name, [X, SLOTS, Y[:, :3]], lambda x, i, u: x.scatter(1, i, u), axis=1)
    case(name, [X, SLOTS, Y[:, :3]], lambda x, i, u: x.scatter_add(1, i, u), axis=1, reduction="add")
    case(name, [X, SLOTS, Y[:, :3]], lambda x, i, u: x.scatter(1, i, u, reduce="multiply"), axis=1, reduction="mul")
case("ScatterNdUpdate", [X, INDEX.view(3, 1), Y[:3]], lambda x, i, u: x.index_put((i.squeeze(1),), u))


def updated(x, starts, updates):
    x = x.clone()
    for batch, start in enumerate(starts.tolist()):
        x[batch, start : start + updates.shape[1]] = updates[batch]
    return x


case("Scatter", [BATCH, longs(3, 1), tensor(2, 2, 7, seed=1)], updated, reduce="update", axis=1)
case("Scatter", [BATCH, longs(3, 1), tensor(2, 2, 7, seed=1)], updated, reduce="update", axis=-2)


def with_int_index(result):
    return result.values, result.indices.int()


case("TopK", [X, number(3, torch.int32)], lambda x, k: with_int_index(x.topk(3)))
case("TopKV2", [X, number(3, torch.int32)], lambda x, k: with_int_index(x.topk(3)), sorted=True, dim=-1, largest=True)
case(
    "TopKV2",
    [X, number(2, torch.int32)],
    lambda x, k: with_int_index(x.topk(2, 0, largest=False)),
    dim=0,
    largest=False,
)
case("Sort", [X], lambda x: with_int_index(x.sort(0, descending=True)), axis=0, descending=True)
case("SearchSorted", [Y.sort(1).values, X], torch.searchsorted, dtype=torch.int64)
case("SearchSorted", [Y.sort(1).values, X], lambda s, x: torch.searchsorted(s, x, out_int32=True), dtype=torch.int32)
case("NonZero", [U], lambda x: x.nonzero())
case("MaskedSelect", [X, B], torch.masked_select)
ROWS = torch.tensor([[1.0, 0], [1, 0], [0, 2], [1, 0]])


def unique(x, **options):
    return x.unique(return_inverse=True, return_counts=True, **options)


def with_inverse_behind(values, inverse, counts):
    return values, inverse, counts, inverse


case("UniqueWithCountsAndSorting", [ROWS], unique, return_inverse=True, return_counts=True, sorted=True)
case(
    "UniqueWithCountsExt2",
    [ROWS, number(0, torch.int64)],
    lambda x, axis: with_inverse_behind(*unique(x, dim=0)),
    sorted=True,
    return_inverse=True,
)
case(
    "UniqueConsecutive",
    [ROWS],
    lambda x: x.unique_consecutive(return_inverse=True, return_counts=True),
    return_idx=True,
    return_counts=True,
)
case(
    "UniqueConsecutive",
    [ROWS],
    lambda x: x.unique_consecutive(return_inverse=True, return_counts=True, dim=0),
    return_idx=True,
    return_counts=True,
    axis=0,
)
PICKED = longs(3, 0, 3)
case("Index", [X, longs(0, 1), longs(5, 3), PICKED], lambda x, *_: x[:, PICKED], _exclude_engines="AiCore")
case(
    "IndexPutV2",
    [X, Y[:3], longs(1), longs(1), longs(3, 0, 1)],
    lambda x, y, *_: x.index_put((longs(3, 0, 1),), y),
    accumulate=False,
)
case("Bincount", [D.int()[0], number(20, torch.int32), X[0]], lambda x, size, w: x.bincount(w, 20))

case("Reshape", [X, longs(7, 5)], lambda x, s: x.reshape(7, 5))
case("Transpose", [BATCH, longs(2, 0, 1)], lambda x, p: x.permute(2, 0, 1))
case("Permute", [BATCH], lambda x: x.permute(2, 0, 1), order=[2, 0, 1])
case("Squeeze", [X[:, None]], lambda x: x.squeeze(1), axis=[1])
case("Unsqueeze", [X], lambda x: x[:, None, :, None], axes=[1, 3])
case("ExpandDims", [X, number(1, torch.int32)], lambda x, a: x[:, None])
case("Flatten", [BATCH], lambda x: x.flatten(1), axis=1)
case("FlattenV2", [BATCH], lambda x: x.flatten(0, 1), axis=0, end_axis=1)
case("BroadcastTo", [X[:1], longs(5, 7)], lambda x, s: x.expand(5, 7))
case("Expand", [X[:1], longs(5, 1)], lambda x, s: x.expand(5, 7))
case("Tile", [X, longs(2, 3)], lambda x, s: x.repeat(2, 3))
case("StridedSliceV2", [X, longs(1), longs(6), longs(1), longs(2)], lambda x, b, e, a, s: x[:, 1:6:2])
case("StridedSlice", [X, longs(1, 0), longs(4, 7), longs(2, 1)], lambda x, b, e, s: x[1:4:2])
case("StridedSlice", [X, longs(1, 2), longs(4, 3)], lambda x, b, e: x[:4, 2:], begin_mask=1, end_mask=2)
case("StridedSlice", [X, longs(0, -1), longs(0, 0)], lambda x, b, e: x[..., -1], ellipsis_mask=1, shrink_axis_mask=2)
case("StridedSliceV2", [X, longs(0, 1), longs(0, 3)], lambda x, b, e: x[None, 1:3], new_axis_mask=1)
case(
    "StridedSliceGrad",
    [longs(5, 7), longs(1, 2), longs(0, 3), longs(2, 1), tensor(2)],
    lambda shape, b, e, s, dy: torch.zeros(5, 7).index_put((torch.tensor([1, 3]), torch.tensor(2)), dy),
    end_mask=1,
    shrink_axis_mask=2,
)
case("Slice", [X, longs(1, 2), longs(3, -1)], lambda x, o, s: x[1:4, 2:])
case("SplitV", [X, longs(2, -1), number(1, torch.int32)], lambda x, s, a: x.split((2, 5), 1), num_split=2)
case("Split", [number(1, torch.int32), tensor(5, 6)], lambda a, x: x.split(3, 1), num_split=2)
case("Unpack", [X], lambda x: x.unbind(0), axis=0, num=5)
case("ConcatV2", [X, Y, number(1, torch.int32)], lambda x, y, a: torch.cat((x, y), 1), N=2)
case("ConcatV2", [X, U, number(0, torch.int32)], lambda x, y, a: torch.cat((x, y)), N=2)
case("ConcatD", [X, Y], lambda x, y: torch.cat((x, y), 0), concat_dim=0, N=2)
case("Pack", [X, Y], lambda x, y: torch.stack((x, y), -1), axis=-1, N=2)
case("ReverseV2", [X, longs(0, 1)], lambda x, a: x.flip(0, 1))
case("Roll", [X], lambda x: x.roll((1, 2), (0, 1)), shifts=[1, 2], dims=[0, 1])
case("Tril", [X], lambda x: x.tril(1), diagonal=1)
case("Triu", [X], lambda x: x.triu(-1), diagonal=-1)
case("Bitcast", [X], lambda x: x.view(torch.int32), type=torch.int32)
case("Bitcast", [X], lambda x: x.view(torch.int16), type=torch.int16, keep_dim=True)
case("Bitcast", [X], lambda x: x.view(torch.int16).view(5, 7, 2), type=torch.int16)
case("Bitcast", [tensor(5, 2, dtype=torch.float16)], lambda x: x.view(torch.int32).squeeze(-1), type=torch.int32)
case("Identity", [X], lambda x: x)
case("IdentityN", [X, INDEX], lambda x, index: (x, index))
case("TensorMove", [X], lambda x: x)
case("AsStrided", [X, longs(3, 2), longs(7, 2), number(1, torch.int64)], lambda x, *_: x.as_strided((3, 2), (7, 2), 1))
case(
    "ViewCopy",
    [X, longs(2, 3), longs(7, 1), longs(1), Y, longs(2, 3), longs(7, 2), longs(0)],
    lambda x, *rest: x.clone().as_strided_scatter(Y.as_strided((2, 3), (7, 2)), (2, 3), (7, 1), 1),
)
case("Assign", [X, Y], lambda x, y: y)
case("AssignAdd", [X, Y], torch.add)
case("AssignSub", [X, Y], torch.sub)
case("Fill", [longs(2, 3), number(1.5)], lambda s, v: torch.full((2, 3), 1.5))
case("Empty", [longs(2, 3)], lambda s: torch.zeros(2, 3), dtype=0)
case("ZerosLike", [X], torch.zeros_like)
case("OnesLike", [X], torch.ones_like)
case("Range", [number(0.0), number(1.0), number(0.3)], lambda *_: torch.arange(0, 1, 0.3))
case("Range", [longs(9).squeeze(), longs(-1).squeeze(), longs(-2).squeeze()], lambda *_: torch.arange(9, -1, -2))
case("LinSpace", [number(0.0), number(1.0), number(5, torch.int32)], lambda *_: torch.linspace(0, 1, 5))
case("Eye", [], lambda: torch.eye(3, 4), num_rows=3, num_columns=4, dtype=0)
case("Shape", [X], lambda x: torch.tensor([5, 7], dtype=torch.int32), dtype=3)
case("Size", [X], lambda x: torch.tensor(35, dtype=torch.int32), dtype=3)
case("Rank", [X], lambda x: torch.tensor(2, dtype=torch.int32))

LISTS = {1: [P, Q[0]], 2: [P, Q[0], X, Y[0]], 3: [P, Q[0], X, Y[0], Q, P[0]]}


def each(function, lists, last=lambda value, i: value):
    """Applies a function to the i-th tensors of `lists` lists of two and to the inputs after them, for each i."""

    def of(*inputs):
        rest = inputs[2 * lists :]
        return tuple(function(*inputs[i : 2 * lists : 2], *(last(value, i) for value in rest)) for i in range(2))

    return of


def item(values, i):
    return round(values.item() if values.dim() == 0 else values[i].item(), 6)


for name in ("Abs", "Cos", "Cosh", "Erf", "Erfc", "Exp", "Expm1", "Log", "Log10", "Log1p", "Log2", "Sigmoid"):
    case(f"Foreach{name}", LISTS[1], each(getattr(torch, name.lower()), 1))
for name in ("Sin", "Sinh", "Tan", "Tanh"):
    case(f"Foreach{name}", LISTS[1], each(getattr(torch, name.lower()), 1))
for name in ("ACos", "ASin", "ATan"):
    case(f"Foreach{name}", [FRACTION, FRACTION[0]], each(getattr(torch, name.lower()), 1))
NUMBER, NUMBERS = number(0.3), torch.tensor([0.3, 2.0])
for name in ("Add", "Sub", "Mul", "Div", "Pow", "Maximum", "Minimum"):
    function = {"Maximum": lambda x, v: x.clamp(min=v), "Minimum": lambda x, v: x.clamp(max=v)}.get(
        name, getattr(torch, name.lower())
    )
    case(f"Foreach{name}Scalar", [*LISTS[1], NUMBER], each(function, 1, item))
    case(f"Foreach{name}ScalarList", [*LISTS[1], NUMBERS], each(function, 1, item))
for name in ("Mul", "Div", "Pow", "Maximum", "Minimum"):
    case(f"Foreach{name}List", LISTS[2], each(getattr(torch, name.lower()), 2))
for name in ("Add", "Sub"):
    function = getattr(torch, name.lower())
    case(f"Foreach{name}List", [*LISTS[2], NUMBER], each(lambda x, y, a, f=function: f(x, y, alpha=a), 2, item))
for name in ("Addcmul", "Addcdiv"):
    function = getattr(torch, name.lower())
    scaled = each(lambda x, y, z, v, f=function: f(x, y, z, value=v), 3, item)
    case(f"Foreach{name}Scalar", [*LISTS[3], NUMBER], scaled)
    case(f"Foreach{name}ScalarList", [*LISTS[3], NUMBERS], scaled)
    case(f"Foreach{name}List", [*LISTS[3], NUMBERS], scaled)
case("ForeachPowScalarAndTensor", [NUMBER, *LISTS[1]], lambda v, *x: tuple(torch.pow(0.3, e) for e in x))
case("ForeachLerpScalar", [*LISTS[2], NUMBER], each(torch.lerp, 2, item))
case("ForeachLerpList", LISTS[3], each(torch.lerp, 3))
case("ForeachNorm", [*LISTS[1], number(2.0)], each(lambda x, p: torch.linalg.vector_norm(x, p), 1, item))


def half_away_from_zero(x):
    return x.sign() * (x.abs() + 0.5).floor()


ROUNDINGS = {1: torch.round, 2: torch.floor, 3: torch.ceil, 4: half_away_from_zero, 5: torch.trunc, 7: torch.frac}
for mode, function in ROUNDINGS.items():
    case(
        "ForeachRoundOffNumber",
        [X * 3, torch.tensor([2.5, -0.5, 1.5, 0.25]), torch.tensor([mode], dtype=torch.int8)],
        each(lambda x, m, f=function: f(x), 1),
    )


def attention(q, k, v, scale=0.5):
    scores = q @ k.mT * scale
    maximum = scores.amax(-1, keepdim=True)
    total = (scores - maximum).exp().sum(-1, keepdim=True)
    return maximum.expand(*scores.shape[:-1], 8), total.expand(*scores.shape[:-1], 8), scores.softmax(-1) @ v


QUERY, KEY, VALUE, DOUT = (tensor(2, 3, 5, 8, seed=seed) for seed in range(4))
MAXIMUM, SUM, RESULT = attention(QUERY, KEY, VALUE)
ATTENTION = {"head_num": 3, "input_layout": "BNSD", "scale_value": 0.5}


def attention_outputs(q, k, v, *rest):
    maximum, total, result = attention(q, k, v)
    return maximum, total, q.new_empty(0), result


case("FlashAttentionScore", [QUERY, KEY, VALUE], attention_outputs, exact=False, **ATTENTION)


COSINE, SINE = tensor(1, 1, 5, 8, seed=4), tensor(1, 1, 5, 8, seed=5)


def rotary(x, cosine, sine, *rest):
    """The first half and the second as complex numbers."""
    (a, b), (c1, c2), (s1, s2) = x.chunk(2, -1), cosine.chunk(2, -1), sine.chunk(2, -1)
    return torch.cat([a * c1 - b * s1, b * c2 + a * s2], -1)


case("RotaryMul", [QUERY, COSINE, SINE], rotary, exact=False)
case("RotaryPositionEmbedding", [QUERY, COSINE, SINE], rotary, exact=False)
case(
    "RotaryMulGrad",
    [QUERY, COSINE, SINE, DOUT],
    lambda x, c, s, dy: gradient(rotary, (0, 1, 2))(dy, x, c, s),
    exact=False,
    need_backward=True,
)
case(
    "RotaryPositionEmbeddingGrad",
    [DOUT, COSINE, SINE, QUERY],
    lambda dy, c, s, x: gradient(rotary, (0, 1, 2))(dy, x, c, s),
    exact=False,
    mode=0,
)


def attention_gradient(q, k, v, dy, *rest):
    return *gradient(lambda *x: attention(*x)[2], (0, 1, 2))(dy, q, k, v), q.new_empty(0)


NONE = [None] * 4
case(
    "FlashAttentionScoreGrad",
    [QUERY, KEY, VALUE, DOUT, *NONE, MAXIMUM, SUM, None, RESULT],
    attention_gradient,
    exact=False,
    **ATTENTION,
)

# Random numbers: the same for the same seed and offset; that they are eager's is test_random's.
SHAPE, SEED, OFFSET_IN_SEED = longs(300, 4), longs(7), longs(0, 5)
RANDOM = {
    "StatelessRandomUniformV2": ([SHAPE, SEED, OFFSET_IN_SEED, number(1, torch.int32)], (300, 4), 0.5),
    "StatelessRandomNormalV2": ([SHAPE, SEED, OFFSET_IN_SEED, number(1, torch.int32)], (300, 4), 0),
    "StatelessBernoulli": ([SHAPE, number(0.25), SEED, longs(5)], (300, 4), 0.25),
}


@pytest.mark.parametrize("node_type", RANDOM)
def test_random_numbers_depend_on_seed_and_offset_alone(node_type):
    inputs, shape, mean = RANDOM[node_type]
    draws = [run_node(node_type, inputs, [Out(shape, torch.float32)])[0] for _ in range(2)]
    assert torch.equal(*draws)
    assert abs(draws[0].mean().item() - mean) < 0.05
    others = [tensor + 1 if tensor is SEED else tensor for tensor in inputs]
    assert not torch.equal(draws[0], run_node(node_type, others, [Out(shape, torch.float32)])[0])


def test_a_permutation_has_every_number_once():
    (order,) = run_node("StatelessRandperm", [longs(9), SEED, longs(5)], [Out((9,), torch.int64)], layout=0)
    assert order.sort().values.tolist() == list(range(9)) and order.tolist() != list(range(9))


def test_dropout_keeps_what_its_mask_says():
    x, keep = torch.ones(1000), number(0.75)
    (mask,) = run_node(
        "StatelessDropOutGenMask", [longs(1000), keep, SEED, SEED, longs(0, 5)], [Out((128,), torch.uint8)]
    )
    (y,) = run_node("DropOutDoMask", [x, mask, keep], [Out((1000,), torch.float32)])
    bits = (mask[:, None] >> torch.arange(8)) & 1
    torch.testing.assert_close(y, bits.flatten()[:1000] / 0.75)
    assert abs(bits.float().mean().item() * 128 * 8 / 1000 - 0.75) < 0.05


def test_samples_follow_their_probabilities():
    weights = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 0.0]])
    (drawn,) = run_node(
        "MultinomialWithReplacement",
        [weights, SEED, longs(5)],
        [Out((2, 400), torch.int64)],
        numsamples=400,
        replacement=True,
    )
    assert set(drawn[0].tolist()) == {1, 2} and drawn[1].unique().tolist() == [0]
    assert abs((drawn[0] == 2).float().mean().item() - 0.75) < 0.1


@pytest.mark.parametrize("wanted", [(0,), (1, 2)])
def test_a_group_norm_gives_the_gradients_that_are_asked_for(wanted):
    inputs, function, _, attributes = CASES["GroupNormGrad"][0]
    required = {f"d{name}_is_require": i in wanted for i, name in enumerate(("x", "gamma", "beta"))}
    expected = function(*inputs)
    got = run_node("GroupNormGrad", inputs, expected, **attributes, **required)
    for i in wanted:
        torch.testing.assert_close(got[i], expected[i], rtol=1e-5, atol=1e-5)


def test_a_node_that_asks_for_too_much_writes_nothing():
    x, index, updates = (tensor.npu() for tensor in (BATCH, longs(3, 1), tensor(2, 2, 7, seed=1)))
    attributes = {"reduce": "update", "axis": 1}
    with pytest.raises(RuntimeError, match="attribute 'made_up', here 1, is not implemented"):
        Compiler().run("Scatter", [x, index, updates], [x], attributes | {"made_up": 1})
    assert torch.equal(x.cpu(), BATCH)
    Compiler().run("Scatter", [x, index, updates], [x], attributes)
    assert not torch.equal(x.cpu(), BATCH)


PLANE = torch.complex(tensor(3, 5, 7), tensor(3, 5, 7, seed=1))
case("FFT", [PLANE], torch.fft.fft)
case("FFT2D", [PLANE], torch.fft.fft2)

shape = dict(perm=[1, 2, 0], shape=[7, 5, 3])
case("ConfusionTransposeD", [tensor(3, 7, 5)], lambda x: x.permute(1, 2, 0), transpose_first=True, **shape)
case("ConfusionTransposeD", [tensor(3, 35)], lambda x: x.reshape(7, 5, 3).permute(1, 2, 0), **shape)


def corners(count, seed):
    low, high = tensor(count, 2, seed=seed).abs(), tensor(count, 2, seed=seed + 1).abs()
    return torch.cat([low, low + high], 1)


def overlaps(mode):
    """A row for each of the other boxes, where aclnnIou (opapi/test_boxes.py) has a column."""
    return lambda *boxes: aclnn.written_by("aclnnIou", *boxes, mode, aclnn.Float(0.01), False, aclnn.Out((7, 5)))[0].T


BOXES = [corners(7, 0), corners(5, 2)]
case("Iou", BOXES, overlaps("iou"), eps=0.01)
case("Iou", BOXES, overlaps("iof"), mode="iof", eps=0.01)


def complete_overlaps(*boxes):
    out = aclnn.Out((1, 1024))
    return aclnn.written_by("aclnnCIoU", *boxes, True, False, "iou", out, out)


PLACES = [tensor(4, 1024, seed=seed).abs() for seed in range(2)]
case("CIoU", PLACES, complete_overlaps, trans=True, is_cross=False, atan_sub_flag=True)

TESTED_ALONE = {*RANDOM, "StatelessRandperm", "StatelessDropOutGenMask", "DropOutDoMask", "MultinomialWithReplacement"}
TESTED_ALONE |= {"DynamicRNN", "DynamicRNNGrad"}  # test_fused_operators.py
TESTED_ALONE |= {"GroupedMatmul"}  # its lists have names, in graphs: test_node_parity.py
TESTED_ALONE |= {"TorchOperator"}  # test/custom_pypto/test_triton.py
# Nodes that need several ranks: test/collectives.
TESTED_ALONE |= {"HcomAllReduce", "HcomAllGather", "HcomAllGatherV", "HcomReduceScatter", "HcomReduceScatterV"}
TESTED_ALONE |= {"HcomBroadcast", "HcomAllToAll", "HcomAllToAllV", "HcomSend", "HcomReceive"}
TESTED_ALONE |= {"AllGatherMatmul", "AllGatherMatmulV2", "MatmulReduceScatter", "MatmulReduceScatterV2"}
TESTED_ALONE |= {"MatmulAllReduce", "AlltoAllMatmul", "MatmulAlltoAll", "AlltoAllvGroupedMatMul"}
TESTED_ALONE |= {"AlltoAllvQuantGroupedMatMul", "QuantGroupedMatMulAlltoAllv"}
TESTED_ALONE |= {"GroupedMatMulAlltoAllv", "DistributeBarrier", "MoeDistributeDispatch", "MoeDistributeDispatchV2"}
TESTED_ALONE |= {"MoeDistributeCombine", "MoeDistributeCombineV2", "MoeDistributeCombineAddRmsNorm"}
# test_worker_schedule.py
TESTED_ALONE |= {"AttentionWorkerCombine", "AttentionWorkerScheduler", "FfnWorkerBatching", "FfnWorkerScheduler"}
# Nodes of graphs that are compared with eager: test_node_parity.py and test_expert_nodes.py.
TESTED_ALONE |= {"AddRmsNormCast", "ApplyRotaryPosEmb", "AscendAntiQuantV2", "AscendQuantV2", "AttentionUpdate"}
TESTED_ALONE |= {"ClippedSwiglu", "DynamicQuant", "DynamicQuantV2", "FFN", "FusedInferAttentionScore", "GeGluV2"}
TESTED_ALONE |= {"GeluQuant", "GroupNormSilu", "GroupQuant", "GroupedMatmulFinalizeRouting", "IncreFlashAttention"}
TESTED_ALONE |= {"GroupedMatmulSwigluQuantV2", "InterleaveRope", "KvRmsNormRopeCache", "MaskedSoftmaxWithRelPosBias"}
TESTED_ALONE |= {
    "MoeComputeExpertTokens",
    "MoeFinalizeRouting",
    "MoeFinalizeRoutingV2",
    "MoeGatingTopK",
    "MoeReRouting",
}
TESTED_ALONE |= {
    "MoeGatingTopKSoftmax",
    "MoeInitRouting",
    "MoeInitRoutingV3",
    "MoeUpdateExpert",
    "PromptFlashAttention",
}
TESTED_ALONE |= {"QkvRmsNormRopeCache", "QuantBatchMatmulV3", "QuantGroupedMatmulDequant", "QuantMatmulDequant"}
TESTED_ALONE |= {"QuantUpdateScatter", "Quantize", "ScaledMaskedSoftmax", "ScaledMaskedSoftmaxGrad", "ScatterPaKvCache"}
TESTED_ALONE |= {"TransQuantParamV2", "TransposeBatchMatMul", "WeightQuantBatchMatmulV2"}
# The same: test_fused_nodes.py.
TESTED_ALONE |= {
    "AddLora",
    "AddRmsNormDynamicQuant",
    "Cmo",
    "DequantRopeQuantKvcache",
    "DequantSwigluQuant",
    "EmbeddingBag",
    "FlatQuant",
}
TESTED_ALONE |= {"FusedCausalConv1d", "FusedMatMul", "FusedQuantMatMul", "GroupedQuantMax", "InplaceFusedCausalConv1d"}
TESTED_ALONE |= {"MaskedCausalConv1d", "QuantBatchMatmulV4", "QuantConv2D", "QuantMatmulReduceSum", "QuantMax"}
TESTED_ALONE |= {"RecurrentGatedDeltaRule", "RmsNormGradQuant", "RotateQuant", "ScatterList"}
# Beside eager's tests: test/cann_cpu/opapi.
TESTED_ALONE |= {"MlaProlog", "MlaPrologV2", "MlaPrologV3", "LightningIndexer", "QuantLightningIndexer"}
TESTED_ALONE |= {"SparseFlashAttention", "KvQuantSparseFlashAttention", "SyncBatchNormBackwardElemt"}
TESTED_ALONE |= {"SyncBatchNormBackwardReduce", "SyncBatchNormGatherStats"}
TESTED_ALONE |= {"NoOp"}  # test_graphs_of_operators.py
TESTED_ALONE |= {"AttentionToFFN", "FFNToAttention"}  # collectives/test_workers.py
# test_float8_nodes.py
TESTED_ALONE |= {"AntiMxQuant", "DynamicBlockQuant", "DynamicMxQuant", "TransposeQuantBatchMatMul"}
TESTED_ALONE |= {"QuantBatchMatmulInplaceAdd", "QuantGroupedMatmulInplaceAdd"}


def as_tuple(result):
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


@pytest.mark.parametrize("node_type", CASES)
def test_node_gives_what_aten_gives(node_type):
    for inputs, function, exact, attributes in CASES[node_type]:
        expected = as_tuple(function(*(x for x in inputs if x is not None)))
        results = run_node(node_type, inputs, expected, **attributes)
        for got, wanted in zip(results, expected, strict=True):
            tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-5}
            torch.testing.assert_close(got, wanted.contiguous(), equal_nan=True, **tolerance)


def test_no_node_type_is_without_a_test():
    assert len(served_node_types()) > 200
    assert served_node_types() - TESTED_ALONE == set(CASES)


REJECTED = [
    ("Exp", [X], {"base": 2.0}, "attribute 'base' = 2 is not implemented, only -1"),
    ("Swish", [X], {"scale": 2.0}, "attribute 'scale' = 2 is not implemented, only 1"),
    (
        "HardSigmoid",
        [X],
        {"alpha": 0.1666667},
        "attribute 'alpha' = 0.1666667 is not implemented, only 0.16666666 or 0.16666667",
    ),
    ("LpNormV2", [X], {"epsilon": 0.5, "axes": [1]}, "attribute 'epsilon' = 0.5 is not implemented"),
    ("PadV3", [X, longs(1, 0, 2, 3)], {"paddings_contiguous": False}, "attribute 'paddings_contiguous' = false"),
    ("PadV3", [IMAGE, PADS], {"mode": "circular"}, "this padding mode is not implemented"),
    (
        "ArgMaxV2",
        [X, number(1, torch.int32)],
        {"keep_dims": True},
        "attribute 'keep_dims', here true, is not implemented",
    ),
    ("ReduceMean", [X, AXES], {"epsilon": 0.5}, "attribute 'epsilon', here 0.5, is not implemented"),
    ("Cumsum", [X, number(1, torch.int32)], {"reverse": True}, "attribute 'reverse' = true is not implemented"),
    ("MseLoss", [X, Y], {"reduction": "batchmean"}, "attribute 'reduction' = \"batchmean\" is not implemented"),
    ("Elu", [X], {"alpha": 1}, "attribute 'alpha', here 1, has another type"),
    ("Abs", [X, Y], {}, "input 1 is not implemented; leave it out"),
    ("BiasAdd", [X, X[0, :6]], {}, "one element for each channel"),
    ("BiasAddGrad", [X[0]], {}, "fewer than two dimensions"),
    ("BiasAdd", [X, X[0]], {"data_format": "ND"}, "attribute 'data_format' = \"ND\" is not implemented"),
    ("Mul", [X, Y], {"alpha": 2}, "attribute 'alpha', here 2, is not implemented"),
    ("Conv2D", [IMAGE, FILTER], CONV | {"data_format": "NHWC"}, "attribute 'data_format' = \"NHWC\""),
    ("Conv2D", [IMAGE, FILTER], CONV | {"pads": [1, 0, 0, 0]}, "a padding that differs between the two sides"),
    ("FlashAttentionScore", [QUERY, KEY, VALUE, None, None, MAXIMUM], ATTENTION, "(paddingMask) is not implemented"),
    ("FlashAttentionScore", [QUERY, KEY, VALUE], ATTENTION | {"input_layout": "NNSD"}, "this input_layout"),
    (
        "FlashAttentionScoreGrad",
        [QUERY, KEY, VALUE, DOUT, *NONE, MAXIMUM, SUM, None, RESULT],
        {"input_layout": "BNSD"},
        "attribute 'head_num' is missing",
    ),
    ("InplaceIndexAdd", [X, INDEX, Y[:3]], {}, "attribute 'axis' is missing"),
    ("Muls", [X], {}, "attribute 'value' is missing"),
    ("Pack", [X, Y], {"axis": 3}, "Dimension out of range"),
    ("ConcatD", [X, Y], {"concat_dim": -3}, "Dimension out of range"),
    ("GatherV2", [X, INDEX, number(4, torch.int32)], {}, "Dimension out of range"),
    ("GatherV2", [number(1.0), INDEX, number(0, torch.int32)], {}, "tensor has no dimensions"),
    ("TopKV2", [X, number(3, torch.int32)], {"dim": 2}, "Dimension out of range"),
    ("GLU", [X], {"dim": -3}, "Dimension out of range"),
    ("Unsqueeze", [X], {"axes": [3]}, "Dimension out of range"),
    ("ReduceMax", [X, longs(2)], {}, "Dimension out of range"),
    ("ReduceProd", [X, longs(2)], {}, "Dimension out of range"),
    ("Split", [number(1, torch.int32), X], {"num_split": 0}, "a split into parts of different sizes"),
    ("LayerNorm", [X, X[0], X[1]], {"begin_norm_axis": -1}, "a begin_params_axis other than begin_norm_axis"),
    ("LayerNorm", [X, X[0], X[1]], {"begin_norm_axis": 2}, "Dimension out of range"),
    ("LayerNormV4", [X, longs(1, 5, 7)], {}, "a normalization over more dimensions than there are"),
    ("GridSampler2D", [IMAGE, number(1.0)], {}, "a grid of fewer than two dimensions"),
    ("ResizeNearestNeighborV2Grad", [X[0], longs(5, 4)], {}, "fewer dimensions than are resized"),
    ("Conv2D", [IMAGE, FILTER], CONV | {"strides": [1, 1, 0, 1]}, "a stride below 1"),
]


@pytest.mark.parametrize(
    "node_type, inputs, attributes, message", REJECTED, ids=[f"{r[0]} {i}" for i, r in enumerate(REJECTED)]
)
def test_what_is_not_implemented_is_rejected_by_name(node_type, inputs, attributes, message):
    outputs = [Out((5, 7), torch.float32)] * (4 if "Attention" in node_type else 1)
    with pytest.raises(RuntimeError) as error:
        run_node(node_type, inputs, outputs, **attributes)
    assert f"of type {node_type}" in str(error.value) and message in str(error.value)


def test_the_gradient_of_attention_is_of_what_the_forward_pass_has_kept():
    """Twice the sum halves the gradient of the values; another result gives another gradient of the query."""

    def run(total, result):
        inputs = [QUERY, KEY, VALUE, DOUT, *NONE, MAXIMUM, total, None, result]
        return run_node("FlashAttentionScoreGrad", inputs, attention_gradient(QUERY, KEY, VALUE, DOUT), **ATTENTION)

    exact = run(SUM, RESULT)
    torch.testing.assert_close(run(SUM * 2, RESULT)[2], exact[2] / 2)
    moved = run(SUM, RESULT + 1)
    p = (QUERY @ KEY.mT * 0.5).softmax(-1)
    shift = p * DOUT.sum(-1, keepdim=True) * 0.5
    torch.testing.assert_close(moved[0], exact[0] - shift @ KEY, rtol=1e-4, atol=1e-5)


class OfConstants(Compiler):
    """Int64 inputs are constants of the host (aclSetTensorConst), without memory of their own."""

    def operand(self, tensor):
        desc, buffer = super().operand(tensor)
        if tensor.dtype != torch.int64:
            return desc, buffer
        elements = aclnn.integers(tensor.tolist())
        size = ctypes.sizeof(elements)
        status = [
            self.acl.aclSetTensorConst(ctypes.c_void_p(desc), elements, ctypes.c_size_t(length))
            for length in (size, size - 1)
        ]
        assert status[0] == 0 and status[1] != 0
        return desc, self.acl.aclCreateDataBuffer(None, ctypes.c_size_t(0))


def test_constant_inputs():
    x, result = X.npu(), torch.empty(3, 2, device="npu")
    OfConstants().run("StridedSlice", [x, longs(1, 2), longs(4, 4), longs(1, 1)], [result], {})
    assert torch.equal(result.cpu(), X[1:4, 2:4])


def test_a_built_in_node_goes_before_a_prototype_of_the_program(prototypes_of_a_program):
    program = f"""
        import ctypes, sys
        sys.path[:0] = {sys.path!r}
        import torch, torchair
        from single_node import run_node
        ctypes.CDLL({str(prototypes_of_a_program)!r})
        x = torch.randn(3)
        result, = run_node("Relu", [x], [x])
        graph = torch.compile(torch.relu, backend=torchair.get_npu_backend(), dynamic=False)
        print(torch.equal(result, x.relu()), torch.equal(graph(x.npu()).cpu(), x.relu()))
    """
    done = fresh.run([sys.executable, "-c", textwrap.dedent(program)])
    assert done.stdout == "True True\n", done.stderr
