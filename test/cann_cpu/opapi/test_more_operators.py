# SPDX-License-Identifier: Apache-2.0
"""Operators that need special inputs, in float32, are compared with ATen on the CPU, and so are their gradients."""

import pytest
import torch
import torch.nn.functional as F


def floats(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def integers(*shape, low=-9, high=10, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


X, Y, Z = (floats(5, 7, seed=seed) for seed in range(3))
P = X.abs() + 0.5
LINE, IMAGE, VOLUME = floats(2, 3, 9), floats(2, 3, 7, 9), floats(2, 3, 4, 5, 6)
A, B = floats(5, 4, seed=3), floats(4, 7, seed=4)
SQUARE = floats(4, 4, seed=5)
POSITIVE = SQUARE @ SQUARE.T + torch.eye(4)
M, K = integers(5, 7), integers(5, 7, low=1, seed=1)
INDEX = torch.tensor([4, 0, 2])
GRID = torch.sin(floats(2, 2, 3, 4, 3, seed=1))


def into(name, *arguments, **keywords):
    """The method that writes into its first argument, here into a copy."""

    def call(x, *others):
        result = getattr(x.clone(), name)(*others, *arguments, **keywords)
        return result

    return call


def each(name, *arguments):
    return lambda *x: getattr(torch, name)(list(x), *arguments)


def each_into(name):
    def call(*x):
        copies = [tensor.clone() for tensor in x]
        getattr(torch, name)(copies)
        return copies

    return call


def activation(name, *arguments):
    return lambda x: getattr(F, name)(x.clone(), *arguments, inplace=True)


def resized(mode, *size, **keywords):
    return lambda x: F.interpolate(x, size, mode=mode, **keywords)


def unscaled(x, y):
    grads, found = [x.clone(), y.clone()], torch.zeros(1, device=x.device)
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.full((1,), 0.5, device=x.device))
    return *grads, found


def scale_after(found):
    def call(x):
        scale, tracker = x[:1].clone().abs(), torch.zeros(1, dtype=torch.int32, device=x.device)
        torch._amp_update_scale_(scale, tracker, torch.full((1,), found, device=x.device), 2.0, 0.5, 1)
        return scale, tracker

    return call


def ctc_loss(x):
    targets = torch.tensor([[1, 2, 2], [3, 1, 1]], device=x.device)
    return F.ctc_loss(x.log_softmax(-1), targets, torch.tensor([7, 6]), torch.tensor([3, 2]), reduction="sum")


def fused(optimizer, **keywords):
    def call(x, grad):
        parameter = x.clone().requires_grad_()
        parameter.grad = grad.clone()
        optimizer([parameter], lr=0.1, fused=True, **keywords).step()
        return parameter.detach()

    return call


CASES = {
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), [VOLUME]),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), [IMAGE]),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 1), [VOLUME]),
    "add_relu": (torch._add_relu, [X, Y]),
    "add_relu_": (lambda x, y: torch._add_relu_(x.clone(), y), [X, Y]),
    "addbmm": (torch.addbmm, [floats(5, 7), floats(3, 5, 4), floats(3, 4, 7)]),
    "aminmax": (torch.aminmax, [X]),
    "aminmax of a dim": (lambda x: torch.aminmax(x, dim=1, keepdim=True), [X]),
    "amp: unscale": (unscaled, [X, Y]),
    "amp: grow": (scale_after(0.0), [X[0]]),
    "amp: back off": (scale_after(1.0), [X[0]]),
    "angle": (torch.angle, [X]),
    "adamw": (fused(torch.optim.AdamW, weight_decay=0.1), [X, Y]),
    "sgd": (fused(torch.optim.SGD, momentum=0.9), [X, Y]),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([-1.0, 0, 1]).to(x.device)), [X]),
    "searchsorted by a number": (lambda x: torch.searchsorted(x.sort(-1).values[0], 0.5), [X]),
    "channel_shuffle": (lambda x: torch.channel_shuffle(x, 3), [IMAGE]),
    "clamp_max": (torch.clamp_max, [X, Y]),
    "clamp_min": (torch.clamp_min, [X, Y]),
    "clamp_max_": (into("clamp_max_"), [X, Y]),
    "clamp_min_": (into("clamp_min_"), [X, Y]),
    "conv_depthwise2d": (lambda x, w: F.conv2d(x, w, groups=3), [IMAGE, floats(3, 1, 3, 3)]),
    "ctc_loss": (ctc_loss, [floats(7, 2, 5)]),
    "div by a number": (lambda x: torch.div(x, 0.3, rounding_mode="floor"), [X]),
    "div_": (into("div_", rounding_mode="trunc"), [X, P]),
    "div_ by a number": (into("div_", 0.3, rounding_mode="floor"), [X]),
    "embedding renorm": (lambda w, i: F.embedding(i, w.clone(), max_norm=1.0), [X, INDEX]),
    "gcd": (torch.gcd, [M, K]),
    "grid_sample of volumes": (lambda x, g: F.grid_sample(x, g, align_corners=False), [VOLUME, GRID]),
    "unfold": (lambda x: F.unfold(x, 3, padding=1), [IMAGE]),
    "fold": (lambda x: F.fold(x, (4, 5), 2), [floats(2, 12, 12)]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 3.0), [X, INDEX]),
    "index_fill_": (lambda x, i: x.clone().index_fill_(0, i, 3.0), [X, INDEX]),
    "index_copy_": (lambda x, i, y: x.clone().index_copy_(0, i, y[:3]), [X, INDEX, Y]),
    "put_": (lambda x, i, y: x.clone().put_(i, y[0, :3], accumulate=True), [X, INDEX, Y]),
    "scatter_ of a number": (lambda x, i: x.clone().scatter_(0, i[:, None], 2.0), [X, INDEX]),
    "scatter_reduce_": (lambda x, i, y: x.clone().scatter_reduce_(0, i[:, None], y, "amax"), [X, INDEX, Y]),
    "addcdiv_": (lambda x, y, z: x.clone().addcdiv_(y, z, value=0.3), [X, Y, P]),
    "addcmul_": (lambda x, y, z: x.clone().addcmul_(y, z, value=0.3), [X, Y, Z]),
    "addmm_": (into("addmm_"), [X, A, B]),
    "addr_": (into("addr_"), [X, X[:, 0], X[0]]),
    "cumprod_": (into("cumprod_", 1), [X]),
    "nan_to_num_": (into("nan_to_num_"), [X / X.round()]),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.0), [X]),
    "renorm_": (into("renorm_", 2, 0, 1.0), [X]),
    "round_ to decimals": (into("round_", decimals=1), [X]),
    "tril_": (into("tril_", 1), [X]),
    "triu_": (into("triu_", -1), [X]),
    "xlogy_ by a number": (into("xlogy_", 0.3), [P]),
    "xlogy by a number": (lambda x: torch.xlogy(x, 0.3), [P]),
    "xlogy of a number": (lambda x: torch.xlogy(0.3, x), [P]),
    "shift left": (lambda x: x << 2, [K]),
    "celu_": (activation("celu"), [X]),
    "elu_": (activation("elu"), [X]),
    "hardsigmoid_": (activation("hardsigmoid"), [X]),
    "hardswish_": (activation("hardswish"), [X]),
    "hardtanh_": (activation("hardtanh"), [X]),
    "leaky_relu_": (activation("leaky_relu"), [X]),
    "mish_": (activation("mish"), [X]),
    "relu_": (activation("relu"), [X]),
    "threshold_": (activation("threshold", 0.1, 2.0), [X]),
    "inverse": (torch.inverse, [POSITIVE]),
    "isin": (lambda x: torch.isin(x, 3), [M]),
    "isin of a number": (lambda x: torch.isin(3, x), [M]),
    "isneginf": (torch.isneginf, [X / X.round()]),
    "isposinf": (torch.isposinf, [X / X.round()]),
    "signbit": (torch.signbit, [X]),
    "cholesky": (torch.linalg.cholesky, [POSITIVE]),
    "cross": (lambda x, y: torch.linalg.cross(x, y), [floats(5, 3), floats(5, 3, seed=1)]),
    "qr": (torch.linalg.qr, [A]),
    "svd values": (lambda x: torch.svd(x).S, [A]),
    "slogdet": (torch.slogdet, [POSITIVE]),
    "triangular_solve": (lambda b, a: torch.triangular_solve(b, a).solution, [B, POSITIVE]),
    "logaddexp2": (torch.logaddexp2, [X, Y]),
    "logit": (lambda x: torch.logit(x, 1e-6), [X.sigmoid()]),
    "median": (torch.median, [X]),
    "nanmedian": (torch.nanmedian, [X]),
    "nanmedian of a dim": (lambda x: torch.nanmedian(x, 1).values, [X]),
    "multilabel_margin_loss": (lambda x, t: F.multilabel_margin_loss(x, t % 7), [X, K.abs()]),
    "nll_loss2d": (
        lambda x, t: F.nll_loss(x.log_softmax(1), t),
        [IMAGE, integers(2, 7, 9, low=0, high=3)],
    ),
    "soft_margin_loss": (lambda x, t: F.soft_margin_loss(x, t.sign()), [X, Y]),
    "norm": (lambda x: torch.norm(x, 3, 1), [X]),
    "polar": (torch.polar, [P, Y]),
    "range": (lambda x: torch.range(0, 2, 0.5, device=x.device), [X]),
    "reflect a volume": (lambda x: F.pad(x, (1, 2, 1, 0, 1, 1), mode="reflect"), [VOLUME]),
    "replicate a volume": (lambda x: F.pad(x, (1, 2, 1, 0, 1, 1), mode="replicate"), [VOLUME]),
    "remainder of a number": (lambda x: torch.remainder(5, x), [P]),
    "repeat_interleave": (lambda x: torch.repeat_interleave(x, 3), [X]),
    "repeat_interleave by counts": (lambda x, c: torch.repeat_interleave(x.flatten(), c.flatten()), [X, K]),
    "repeat_interleave of counts": (torch.repeat_interleave, [K[0]]),
    "rsub": (lambda x, y: torch.rsub(x, y, alpha=2), [X, Y]),
    "split": (lambda x: torch.split_with_sizes(x, (2, 5), 1), [X]),
    "bicubic with antialias": (resized("bicubic", 5, 4, antialias=True), [IMAGE]),
    "bilinear with antialias": (resized("bilinear", 5, 4, antialias=True), [IMAGE]),
    "linear": (resized("linear", 5), [LINE]),
    "nearest of lines": (resized("nearest", 5), [LINE]),
    "nearest of scaled lines": (lambda x: F.interpolate(x, scale_factor=1.5), [LINE]),
    "nearest of volumes": (resized("nearest", 3, 7, 4), [VOLUME]),
    "exact of lines": (resized("nearest-exact", 5), [LINE]),
    "exact of volumes": (resized("nearest-exact", 3, 7, 4), [VOLUME]),
    "trilinear": (resized("trilinear", 3, 7, 4), [VOLUME]),
    "foreach neg": (each("_foreach_neg"), [X, Y]),
    "foreach reciprocal": (each("_foreach_reciprocal"), [X, Y]),
    "foreach sign": (each("_foreach_sign"), [X, Y]),
    "foreach sqrt": (each("_foreach_sqrt"), [P, P[0]]),
    "foreach zero": (each_into("_foreach_zero_"), [X, Y]),
    "foreach copy": (
        lambda x, y: [torch._foreach_copy_(copies := [torch.zeros_like(x)], [y]), copies][1],
        [X, Y],
    ),
    "neg_": (into("neg_"), [X]),
    "number plus": (lambda x: torch.add(torch.tensor(2.0), x, alpha=0.5), [X]),
}
DIFFERENTIABLE = {
    *("adaptive_avg_pool3d", "adaptive_max_pool2d", "max_pool3d", "ctc_loss", "fold", "unfold", "logit", "linear"),
    *("grid_sample of volumes", "nll_loss2d", "soft_margin_loss", "reflect a volume", "replicate a volume"),
    *("bicubic with antialias", "bilinear with antialias", "nearest of lines", "nearest of volumes", "trilinear"),
    *("exact of lines", "exact of volumes", "nearest of scaled lines"),
}


def leaves(result):
    return [result] if isinstance(result, torch.Tensor) else [leaf for part in result for leaf in leaves(part)]


def assert_close(results, expected):
    for got, wanted in zip(leaves(results), leaves(expected), strict=True):
        assert got.device.type == "npu"
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_result_is_that_of_the_cpu(name):
    function, inputs = CASES[name]
    assert_close(function(*(x.npu() for x in inputs)), function(*(x.clone() for x in inputs)))


@pytest.mark.parametrize("name", sorted(DIFFERENTIABLE))
def test_gradient_is_that_of_the_cpu(name):
    function, (x, *others) = CASES[name]

    def gradient(device):
        leaf = x.detach().clone().to(device).requires_grad_()
        function(leaf, *(other.to(device) for other in others)).square().sum().backward()
        return leaf.grad

    assert_close(gradient("npu"), gradient("cpu"))
