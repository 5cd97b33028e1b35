# SPDX-License-Identifier: Apache-2.0
"""aclnn functions that no operator of torch_npu leads to here, called as C functions."""

import re

import aclnn
import pytest
import torch
import torch.nn.functional as F
from aclnn import ND, Float, InOut, Out, Rejected, Scalar, Stored, written_by


def floats(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, Y = floats(5, 7), floats(5, 7, seed=1)
N = torch.randint(1, 9, (5, 7), generator=torch.Generator().manual_seed(2))
M = torch.randint(-9, 9, (5, 7), generator=torch.Generator().manual_seed(3))
MATRICES = floats(2, 5, 7), floats(2, 5, 3, seed=1), floats(2, 3, 7, seed=2)
IMAGE = floats(2, 3, 5, 6)
DEPTHWISE = floats(3, 1, 3, 3)
POINTS, OTHERS = floats(4, 3), floats(6, 3, seed=1)
INDEX = torch.tensor([[0], [4], [2]])
COUNTS = torch.tensor([2, 0, 1])


def gradient(function, x, dy):
    leaf = x.clone().requires_grad_()
    function(leaf).backward(dy)
    return leaf.grad


CDIST_DY, IMAGE_DY = floats(4, 6, seed=2), floats(2, 3, 4, 3)
CASES = {
    "aclnnInplaceAbs": ([InOut(X)], X.abs()),
    "aclnnInplaceNeg": ([InOut(X)], -X),
    "aclnnInplaceRound": ([InOut(X * 3)], (X * 3).round()),
    "aclnnInplaceSign": ([InOut(X)], X.sign()),
    "aclnnInplaceTrunc": ([InOut(X * 3)], (X * 3).trunc()),
    "aclnnInplaceBitwiseNot": ([InOut(M)], ~M),
    "aclnnInplaceBitwiseOrTensor": ([InOut(M), N], M | N),
    "aclnnInplaceBitwiseOrScalar": ([InOut(M), Scalar(5)], M | 5),
    "aclnnInplaceGcd": ([InOut(M), N], M.gcd(N)),
    "aclnnInplaceLeftShift": ([InOut(N), N], N << N),
    "aclnnInplaceLeftShifts": ([InOut(N), Scalar(2)], N << 2),
    "aclnnInplaceRightShift": ([InOut(M), N], M >> N),
    "aclnnInplaceLogAddExp": ([InOut(X), Y], X.logaddexp(Y)),
    "aclnnInplaceLogAddExp2": ([InOut(X), Y], X.logaddexp2(Y)),
    "aclnnInplaceLogicalXor": ([InOut(X > 0), Y > 0], (X > 0) ^ (Y > 0)),
    "aclnnInplaceMaximum": ([InOut(X), Y], X.maximum(Y)),
    "aclnnInplaceMinimum": ([InOut(X), Y], X.minimum(Y)),
    "aclnnInplaceXLogYTensor": ([InOut(X), Y.abs()], X.xlogy(Y.abs())),
    "aclnnInplaceBaddbmm": (
        [InOut(MATRICES[0]), *MATRICES[1:], Scalar(0.5), Scalar(2.0), 0],
        torch.baddbmm(*MATRICES, beta=0.5, alpha=2),
    ),
    "aclnnInplaceCumprod": ([InOut(X), Scalar(1), 0], X.cumprod(1)),
    "aclnnAminmaxAll": ([X, Out(()), Out(())], X.aminmax()),
    "aclnnAminmaxDim": ([X, 1, True, Out((5, 1)), Out((5, 1))], X.aminmax(dim=1, keepdim=True)),
    "aclnnBucketize": (
        [X, Y[0].sort().values, False, True, Out((5, 7), torch.int64)],
        torch.bucketize(X, Y[0].sort().values, right=True),
    ),
    "aclnnCast": ([X * 9, 9, Out((5, 7), torch.int64)], (X * 9).long()),
    "aclnnCdistBackward": (
        [CDIST_DY, POINTS, OTHERS, torch.cdist(POINTS, OTHERS), Float(2.0), Out((4, 3))],
        gradient(lambda x: torch.cdist(x, OTHERS), POINTS, CDIST_DY),
    ),
    "aclnnConvDepthwise2d": (
        [IMAGE, DEPTHWISE, [3, 3], None, [1, 2], [1, 0], [1, 1], Out((2, 3, 5, 2)), 0],
        F.conv2d(IMAGE, DEPTHWISE, None, (1, 2), (1, 0), groups=3),
    ),
    "aclnnIndexFillTensor": ([X, 1, [0, 3], Scalar(2.5), Out((5, 7))], X.index_fill(1, torch.tensor([0, 3]), 2.5)),
    "aclnnInplaceIndexFillTensor": ([InOut(X), 0, [4], Scalar(2.5)], X.index_fill(0, torch.tensor([4]), 2.5)),
    "aclnnInplaceScatterReduce": (
        [InOut(X), 0, INDEX, Y, 3, True],
        X.scatter_reduce(0, INDEX, Y, "amax"),
    ),
    "aclnnNorm": ([X, Scalar(3.0), [1], False, Out((5,))], X.norm(3, 1)),
    "aclnnRepeatInterleaveGrad": (
        [X[:3], COUNTS, 0, Out((3, 7))],
        gradient(lambda x: x.repeat_interleave(COUNTS, 0), floats(3, 7), X[:3]),
    ),
    "aclnnSplitWithSize": ([X, [2, 5], 1, [Out((5, 2)), Out((5, 5))]], X.split((2, 5), 1)),
    "aclnnUnique": (
        [M.flatten(), True, False, Out((M.unique().numel(),), torch.int64), Out((35,), torch.int64)],
        (M.unique(), torch.zeros(35, dtype=torch.int64)),
    ),
    "aclnnUpsampleBilinear2dBackward": (
        [IMAGE_DY, [4, 3], [2, 3, 5, 6], True, 0.0, 0.0, Out((2, 3, 5, 6))],
        gradient(lambda x: F.interpolate(x, (4, 3), mode="bilinear", align_corners=True), IMAGE, IMAGE_DY),
    ),
    "aclnnUpsampleNearest1d": ([IMAGE[0], [4], Out((3, 5, 4))], F.interpolate(IMAGE[0], 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_result_is_that_of_the_cpu(name):
    arguments, expected = CASES[name]
    expected = (expected,) if isinstance(expected, torch.Tensor) else tuple(expected)
    torch.testing.assert_close(tuple(written_by(name, *arguments)), expected, rtol=1e-5, atol=1e-5)


SEED, OFFSET, IN_GRAPH = 7, 5, 3
SEEDS = [torch.tensor([SEED]), torch.tensor([OFFSET]), IN_GRAPH]  # as a captured graph has them
NUMBERS = [SEED, OFFSET + IN_GRAPH]
WEIGHTS = torch.tensor([0.1, 0.2, 0.7])
MASK = Out((128,), torch.uint8)
DRAWS = {
    "aclnnInplaceUniform": lambda seeds: [Out((99,)), -1.0, 1.0, *seeds],
    "aclnnInplaceNormal": lambda seeds: [Out((99,)), Float(1.0), Float(2.0), *seeds],
    "aclnnInplaceRandom": lambda seeds: [Out((99,), torch.int64), 0, 1000, *seeds],
    "aclnnMultinomial": lambda seeds: [WEIGHTS, 99, True, *seeds, Out((99,), torch.int64)],
    "aclnnDropoutGenMaskV2": lambda seeds: [[1000], 0.25, *seeds, 0, MASK],
}


@pytest.mark.parametrize("name", DRAWS)
def test_seeds_in_device_memory_draw_the_same_numbers(name):
    (numbers,) = written_by(name, *DRAWS[name](NUMBERS))
    assert numbers.unique().numel() > 1
    assert torch.equal(written_by(f"{name}Tensor", *DRAWS[name](SEEDS))[0], numbers)


NORMALS = {
    "aclnnNormalFloatFloat": [Float(3.0), Float(0.5)],
    "aclnnNormalFloatTensor": [Float(3.0), torch.full((4000,), 0.5)],
    "aclnnNormalTensorFloat": [torch.full((4000,), 3.0), Float(0.5)],
}


@pytest.mark.parametrize("name", NORMALS)
def test_normal_numbers_have_their_mean_and_deviation(name):
    (numbers,) = written_by(name, *NORMALS[name], SEED, OFFSET, Out((4000,)))
    assert abs(numbers.mean().item() - 3) < 0.05 and abs(numbers.std().item() - 0.5) < 0.05


def test_dropout_scales_what_its_mask_keeps():
    y, mask = written_by("aclnnDropoutV3", torch.ones(1000), None, 0.25, SEED, OFFSET, Out((1000,)), MASK)
    kept = ((mask[:, None] >> torch.arange(8)) & 1).flatten()[:1000]
    torch.testing.assert_close(y, kept / 0.75)
    (alone,) = written_by("aclnnDropoutGenMask", [1000], 0.25, SEED, OFFSET, MASK)
    assert torch.equal(mask, alone)


def test_rrelu_draws_the_slopes_of_negative_numbers():
    x = floats(1000)
    noise, y = written_by(
        "aclnnRReluWithNoise", x, Out((1000,)), Scalar(0.1), Scalar(0.3), True, SEED, OFFSET, Out((1000,))
    )
    assert (y[x > 0] == x[x > 0]).all()
    slopes = (y / x)[x < 0]
    assert 0.1 <= slopes.min() < 0.12 and 0.28 < slopes.max() <= 0.3
    arguments = [InOut(x), Out((1000,)), Scalar(0.1), Scalar(0.3), True, SEED, OFFSET]
    in_place, same_noise = written_by("aclnnInplaceRReluWithNoise", *arguments)
    assert torch.equal(in_place, y) and torch.equal(same_noise, noise)
    strided = [torch.zeros(1000, 2, device="npu") for _ in range(3)]
    strided[0][:, 0].copy_(x)
    views = [tensor[:, 0] for tensor in strided]
    aclnn.call("libopapi.so", "aclnnRReluWithNoise", *views[:2], Scalar(0.1), Scalar(0.3), True, SEED, OFFSET, views[2])
    assert torch.equal(strided[2].cpu(), torch.stack([y, torch.zeros(1000)], 1))
    assert not strided[1][:, 1].any() and torch.equal(views[1].cpu(), noise)


MEMORY = torch.zeros(24, device="npu")


@pytest.mark.parametrize("name", ["aclnnAbs", "aclnnInplaceAbs", "aclnnCat"])
def test_a_view_outside_its_storage_is_rejected(name):
    class View:
        """Sizes and strides that a torch tensor cannot have."""

        dtype = torch.float32

        def __init__(self, shape, strides, offset=0):
            self.shape, self.stride, self.storage_offset = shape, lambda: strides, lambda: offset

        def dim(self):
            return len(self.shape)

    for view in (
        View([5, 4], [4, 1], 5),
        View([2, 3], [22, 1]),
        View([25], [1]),
        View([-1], [1]),
        View([2], [-1], 3),
        View([2], [1], -1),
        View([1 << 62, 1 << 62], [1 << 62, 1]),
    ):
        tensor = Stored(view, MEMORY, ND)
        arguments = {"aclnnAbs": [tensor, MEMORY], "aclnnInplaceAbs": [tensor], "aclnnCat": [[tensor], 0, MEMORY]}
        sizes = re.escape(str(view.shape))
        message = rf"argument 1 \(\w+\) has sizes {sizes}, .* do not lie within a storage of sizes \[24\]"
        with pytest.raises(Rejected, match=message):
            aclnn.call("libopapi.so", name, *arguments[name])


LISTS = "a list has [02] elements, the list of results has 1"
FAILING = {
    "a longer list": ("aclnnForeachMulList", [[X], [X, X], [Out((5, 7))]], LISTS),
    "another longer list": ("aclnnForeachMulList", [[X, X], [X], [Out((5, 7))]], LISTS),
    "empty lists": ("aclnnForeachMulList", [[], [], [Out((5, 7))]], LISTS),
    "an output of another shape in a list": (
        "aclnnForeachAcos",
        [[X, X], [Out((5, 7)), Out((7, 5))]],
        r"tensor 1 of the result has shape \[5, 7\], the given output \[7, 5\]",
    ),
    "an odd size": ("aclnnSwiGlu", [X, 1, Out((5, 3))], r"dimension 1 of \[5, 7\] cannot be halved"),
    "one number": ("aclnnSwiGluGrad", [X[0, 0], X[:1, 0], 0, Out((1,))], r"dimension 0 of \[1\] cannot be halved"),
    "no padding": (
        "aclnnReflectionPad2dBackward",
        [IMAGE, IMAGE, [], Out((2, 3, 5, 6))],
        "padding has 0 numbers; 4 are expected",
    ),
    "nothing to pad": (
        "aclnnReplicationPad1d",
        [X[0, 0], [1, 1], Out((3,))],
        "the padded tensor has 0 dimensions; 2 or 3 are expected",
    ),
    "other distances": (
        "aclnnCdistBackward",
        [CDIST_DY, POINTS, OTHERS[:5], torch.cdist(POINTS, OTHERS), Float(2.0), Out((4, 3))],
        r"the distances of x1 and x2 have shape \[4, 5\]; the gradient has \[4, 6\]",
    ),
    "another batch": (
        "aclnnAdaptiveAvgPool2dBackward",
        [IMAGE, IMAGE[:1], Out((1, 3, 5, 6))],
        r"the gradient has shape \[2, 3, 5, 6\], the pooled tensor \[1, 3, 5, 6\]; all but the last 2",
    ),
    "nothing pooled": (
        "aclnnAdaptiveAvgPool2dBackward",
        [IMAGE, IMAGE[:, :, :0], Out((2, 3, 0, 6))],
        "the pooled tensor has no elements, the gradient has",
    ),
    "a gradient of another shape": (
        "aclnnFusedSgd",
        [[X], [Y[:2]], [], None, *map(Float, (0.0, 0.0, 0.1, 0.0)), False, False, False],
        r"tensor 0 of a list has shape \[2, 7\], its parameter \[5, 7\]",
    ),
    "an empty gradient": (
        "aclnnLogSoftmaxBackward",
        [X[:, :0], X, 0, Out((5, 7))],
        r"the gradient has shape \[5, 0\], the output \[5, 7\]",
    ),
    "a step that is rounded to 0": (
        "aclnnRange",
        [Scalar(0), Scalar(2), Scalar(1e-6), Out((2,), torch.int32)],
        "step is 0 in Int",
    ),
    "more than memory holds": (
        "aclnnRepeatInterleaveInt",
        [X, 1 << 40, 35 << 40, Out((35,))],
        "outputSize is 38482906972160, the given output has 35",
    ),
    "more bins than outputs": (
        "aclnnHistc",
        [X, 1 << 31, Scalar(0), Scalar(1), Out((4,))],
        "bins is 2147483648, the given output has 4",
    ),
    "noise of another shape": (
        "aclnnRReluWithNoise",
        [X, Out((5, 3)), Scalar(0.1), Scalar(0.3), True, SEED, OFFSET, Out((5, 7))],
        r"self has shape \[5, 7\], noise has \[5, 3\]",
    ),
    "an output of rrelu of another shape": (
        "aclnnRReluWithNoise",
        [X, Out((5, 7)), Scalar(0.1), Scalar(0.3), True, SEED, OFFSET, Out((7,))],
        r"the result has shape \[5, 7\], the given output has shape \[7\]",
    ),
    "integers": (
        "aclnnSmoothL1LossBackward",
        [M, M, M, 2, Float(0.0), Out((5, 7))],
        "self is Long, but must be floating",
    ),
}


@pytest.mark.parametrize("what", FAILING)
def test_what_aten_does_not_look_at_is_rejected(what):
    name, arguments, message = FAILING[what]
    with pytest.raises(Rejected, match=f"{name}: {message}"):
        written_by(name, *arguments)


def test_an_output_whose_elements_share_memory_is_rejected():
    with pytest.raises(
        Rejected, match=r"argument 3 \(out\) is written, but its elements along dimension 0 share their memory"
    ):
        aclnn.call("libopapi.so", "aclnnLogSoftmax", X.npu(), 1, torch.zeros(7, device="npu").expand(5, 7))


def test_an_output_whose_shape_the_function_decides_is_contiguous():
    columns = torch.zeros(7, 5, device="npu").t()
    with pytest.raises(Rejected, match="an output whose shape the function decides must be contiguous"):
        aclnn.call("libopapi.so", "aclnnUnique", X.npu(), True, False, columns, columns)


@pytest.mark.parametrize(("name", "function"), [("aclnnSoftmax", F.softmax), ("aclnnLogSoftmax", F.log_softmax)])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_writes_through_the_strides_of_its_output(name, function, dim):
    memory = torch.zeros(5, 14, device="npu")
    aclnn.call("libopapi.so", name, X.npu(), dim, memory[:, ::2])
    torch.testing.assert_close(memory[:, ::2].cpu(), function(X, dim))
    assert not memory[:, 1::2].any()
