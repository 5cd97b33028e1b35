# SPDX-License-Identifier: Apache-2.0
"""The steps of a batch normalization across ranks, beside the normalization of all ranks' samples in float64."""

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, written_by
from graphs import MODES, assert_same_bits

EPS, MOMENTUM = 1e-5, 0.1
SHAPES = [(4, 3, 5, 7), (1, 1), (7, 13), (2, 257, 9), (2, 3, 2, 1, 4), (3, 2, 1_100_000)]  # the last: more than a block


def of(*shape):
    return Out(shape, torch.float32)


def samples(shape, dtype=torch.float32):
    return (torch.randn(shape) * 2 + 1).to(dtype)


def dims_of(x):
    return [0, *range(2, x.dim())]


def by_channel(numbers, x):
    return numbers.reshape(1, -1, *[1] * (x.dim() - 2))


def statistics(x):
    wide = x.double()
    return wide.mean(dims_of(x)), (wide.var(dims_of(x), unbiased=False) + EPS).rsqrt()


def assert_close(got, expected, dtype=torch.float32):
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 4e-3, "atol": 4e-3}
    torch.testing.assert_close(got.cpu().double(), expected.double(), **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_statistics_and_elements(shape, dtype):
    x = samples(shape, dtype)
    mean, invstd = torch.batch_norm_stats(x.npu(), EPS)
    for got, expected in zip((mean, invstd), statistics(x), strict=True):
        torch.testing.assert_close(got.cpu().double(), expected, rtol=2e-3, atol=2e-3)
    weight, bias = torch.randn(shape[1]), torch.randn(shape[1])
    y = torch.batch_norm_elemt(x.npu(), weight.npu(), bias.npu(), mean, invstd, EPS)
    standard = (x.double() - by_channel(mean.cpu().double(), x)) * by_channel(invstd.cpu().double(), x)
    assert y.dtype == dtype
    assert_close(y, standard * by_channel(weight, x) + by_channel(bias, x), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_sums(dtype):
    x = samples((3, 5, 11), dtype)
    total, squares = written_by("aclnnBatchNormReduce", x, of(5), of(5))
    assert_close(total, x.double().sum([0, 2]))
    assert_close(squares, x.double().square().sum([0, 2]))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("has_weight", [True, False])
def test_gradients_are_those_of_all_ranks_samples(shape, has_weight):
    """Two ranks with batches of other sizes; each has the sums of both."""
    ranks = [samples(shape), samples((shape[0] + 2, *shape[1:]))]
    whole = torch.cat(ranks).double().requires_grad_()
    weight = torch.randn(shape[1]).double().requires_grad_() if has_weight else None
    bias = torch.randn(shape[1]).double().requires_grad_()
    grads = [torch.randn(x.shape) for x in ranks]
    y = torch.nn.functional.batch_norm(whole, None, None, weight, bias, training=True, eps=EPS)
    y.backward(torch.cat(grads).double())
    mean, invstd = (numbers.float().npu() for numbers in statistics(whole.detach()))
    on_npu = weight.detach().float().npu() if has_weight else None
    parts = [
        torch.batch_norm_backward_reduce(dy.npu(), x.npu(), mean, invstd, on_npu, True, True, True)
        for dy, x in zip(grads, ranks, strict=True)
    ]
    sum_dy, sum_dy_xmu, grad_weight, grad_bias = (sum(numbers) for numbers in zip(*parts, strict=True))
    if has_weight:
        assert_close(grad_weight / whole.numel() * shape[1], weight.grad / whole.numel() * shape[1])
    assert_close(grad_bias / whole.numel() * shape[1], bias.grad / whole.numel() * shape[1])
    counts = torch.tensor([x.numel() // shape[1] for x in ranks], dtype=torch.int32).npu()
    got = [
        torch.batch_norm_backward_elemt(dy.npu(), x.npu(), mean, invstd, on_npu, sum_dy, sum_dy_xmu, counts)
        for dy, x in zip(grads, ranks, strict=True)
    ]
    assert_close(torch.cat(got), whole.grad)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_the_wanted_gradients_are_made(wanted):
    x, dy = samples((2, 3, 4)).npu(), samples((2, 3, 4)).npu()
    mean, invstd = torch.batch_norm_stats(x, EPS)
    results = torch.batch_norm_backward_reduce(dy, x, mean, invstd, None, *wanted)
    made = [result is not None and result.numel() == 3 for result in results]
    assert made == [wanted[0], wanted[0], wanted[1], wanted[2]]


def gathered(ranks):
    whole = torch.cat(ranks).double()
    unbiased = whole.var(dims_of(whole), unbiased=True)
    return *statistics(whole), 0.9 * 2 + 0.1 * whole.mean(dims_of(whole)), 0.9 * 3 + 0.1 * unbiased


def running(channels):
    return torch.full((channels,), 2.0).npu(), torch.full((channels,), 3.0).npu()


@pytest.mark.parametrize("batches", [(2, 2), (1, 4, 3)], ids=str)
def test_statistics_of_ranks_become_one(batches):
    ranks = [samples((batch, 3, 5)) for batch in batches]
    counts = torch.tensor([batch * 5.0 for batch in batches])
    each = [torch.batch_norm_stats(x.npu(), EPS) for x in ranks]
    mean, invstd = (torch.stack(numbers) for numbers in zip(*each, strict=True))
    averages, variances = running(3)
    of_all = torch.batch_norm_gather_stats_with_counts(
        ranks[0].npu(), mean, invstd, averages, variances, MOMENTUM, EPS, counts.npu()
    )
    for got, expected in zip((*of_all, averages, variances), gathered(ranks), strict=True):
        assert_close(got, expected)


def test_sums_of_ranks_become_statistics():
    ranks = [samples((batch, 3, 5)) for batch in (2, 4)]
    sums = torch.stack([x.sum([0, 2]) for x in ranks]).npu()
    squares = torch.stack([x.square().sum([0, 2]) for x in ranks]).npu()
    counts = torch.tensor([10, 20], dtype=torch.int32).npu()
    averages, variances = running(3)
    of_all = torch_npu.batch_norm_gather_stats_update(
        ranks[0].npu(), sums, squares, averages, variances, MOMENTUM, EPS, counts
    )
    for got, expected in zip((*of_all, averages, variances), gathered(ranks), strict=True):
        assert_close(got, expected)


@pytest.mark.parametrize("mode", MODES)
def test_in_graphs(mode):
    """Gradients in their nodes divide the work otherwise than in eager's functions, so that sums are rounded
    otherwise."""
    x, dy, weight = samples((3, 5, 4, 2)).npu(), samples((3, 5, 4, 2)).npu(), samples((5,)).npu()
    counts = torch.tensor([24]).int().npu()

    def statistics_of_all(x, running_mean, running_var):
        sums = [values.sum([0, 2, 3]).unsqueeze(0) for values in (x, x * x)]
        return torch_npu.batch_norm_gather_stats_update(x, *sums, running_mean, running_var, MOMENTUM, EPS, counts)

    def gradients(dy, x, mean, invstd, weight):
        sums = torch.batch_norm_backward_reduce(dy, x, mean, invstd, weight, True, True, True)
        return *sums, torch.batch_norm_backward_elemt(dy, x, mean, invstd, weight, *sums[:2], counts)

    mean, invstd = expected = statistics_of_all(x, *(eager := running(5)))
    in_graph = running(5)
    results = MODES[mode](statistics_of_all)(x, *in_graph)
    assert_same_bits((results, in_graph), (expected, eager))
    if mode == "dynamic":
        return  # ATen's batch_norm_backward_reduce has no shapes for torch.compile but by a call
    expected = gradients(dy, x, mean, invstd, weight)
    for got, want in zip(MODES[mode](gradients)(dy, x, mean, invstd, weight), expected, strict=True):
        assert_close(got, want.cpu())


X = samples((2, 3, 4))
CHANNELS = X[0, :, 0]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("BatchNormStats", (X[0, 0], EPS, of(3), of(3)), "input has 1 dimensions; expected 2 to 8"),
        ("BatchNormStats", (X, EPS, of(4), of(3)), r"mean has shape \[4\]; expected \[3\]"),
        ("BatchNormReduce", (X, of(3), of(3, 1)), r"square_sum has shape \[3, 1\]; expected \[3\]"),
        (
            "BatchNormElemt",
            (X, torch.ones(2), None, CHANNELS, CHANNELS, EPS, of(2, 3, 4)),
            r"weight has shape \[2\]; expected \[3\]",
        ),
        (
            "BatchNormReduceBackward",
            (X, X, CHANNELS, CHANNELS, None, True, False, False, of(3), None, None, None),
            "sum_dy_xmu is null; input_g is true",
        ),
        (
            "BatchNormElemtBackward",
            (X, X, CHANNELS, CHANNELS, None, CHANNELS, CHANNELS, torch.tensor(8).int(), of(2, 3, 4)),
            "counter has 0 dimensions, shape .*; expected 1",
        ),
        (
            "BatchNormGatherStatsWithCounts",
            (X, CHANNELS, CHANNELS, None, None, MOMENTUM, EPS, torch.ones(1), of(3), of(3)),
            r"mean has shape \[3\]; expected \[1, 3\]",
        ),
        ("BatchNormStats", (X.double().int(), EPS, of(3), of(3)), "input has dtype int32; expected float32 or float16"),
    ],
)
def test_bad_arguments_are_named(name, arguments, message):
    with pytest.raises(Rejected, match=f"aclnn{name}: {message}"):
        written_by(f"aclnn{name}", *arguments)
