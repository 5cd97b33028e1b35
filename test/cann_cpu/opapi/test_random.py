# SPDX-License-Identifier: Apache-2.0
"""Random numbers on the NPU: reproducible by seed and by generator state, and of the right distribution."""

import pytest
import torch
import torch.nn.functional as F
from aclnn import InOut, Out, Rejected, written_by

SAMPLES = 20000

DRAWS = {
    "randn": lambda: torch.randn(SAMPLES, device="npu"),
    "rand": lambda: torch.rand(SAMPLES, device="npu"),
    "randint": lambda: torch.randint(3, 13, (SAMPLES,), device="npu"),
    "randperm": lambda: torch.randperm(SAMPLES, device="npu"),
    "normal_": lambda: torch.empty(SAMPLES, device="npu").normal_(2, 3),
    "uniform_": lambda: torch.empty(SAMPLES, device="npu").uniform_(-1, 3),
    "bernoulli": lambda: torch.full((SAMPLES,), 0.25, device="npu").bernoulli(),
    "bernoulli_": lambda: torch.empty(SAMPLES, device="npu").bernoulli_(0.25),
    "dropout": lambda: F.dropout(torch.ones(SAMPLES, device="npu"), 0.25),
    "exponential_": lambda: torch.empty(SAMPLES, device="npu").exponential_(2),
    "multinomial": lambda: torch.multinomial(torch.tensor([1.0, 2, 5], device="npu"), SAMPLES, replacement=True),
    "random_": lambda: torch.empty(SAMPLES, dtype=torch.int64, device="npu").random_(0, 10),
    "normal of tensors": lambda: torch.normal(
        torch.full((SAMPLES,), 2.0, device="npu"), torch.full((SAMPLES,), 3.0, device="npu")
    ),
}

# Mean and variance by the definition of the distribution.
MOMENTS = {
    "randn": (0, 1),
    "rand": (1 / 2, 1 / 12),
    "randint": (7.5, 99 / 12),
    "randperm": ((SAMPLES - 1) / 2, (SAMPLES**2 - 1) / 12),
    "normal_": (2, 9),
    "uniform_": (1, 16 / 12),
    "bernoulli": (1 / 4, 3 / 16),
    "bernoulli_": (1 / 4, 3 / 16),
    "dropout": (1, 1 / 3),
    "exponential_": (1 / 2, 1 / 4),
    "multinomial": (12 / 8, 22 / 8 - (12 / 8) ** 2),
    "random_": (4.5, 99 / 12),
    "normal of tensors": (2, 9),
}


@pytest.mark.parametrize("name", DRAWS)
def test_same_seed_draws_the_same(name):
    draw = DRAWS[name]
    torch.manual_seed(7)
    first, second = draw(), draw()
    torch.manual_seed(7)
    assert torch.equal(first, draw())
    assert torch.equal(second, draw())


@pytest.mark.parametrize("name", DRAWS)
def test_other_seed_and_next_draw_differ(name):
    draw = DRAWS[name]
    torch.manual_seed(7)
    first, second = draw(), draw()
    torch.manual_seed(8)
    assert not torch.equal(first, second)
    assert not torch.equal(first, draw())


@pytest.mark.parametrize("name", DRAWS)
def test_state_of_the_generator_repeats_the_draw(name):
    draw = DRAWS[name]
    state = torch.npu.get_rng_state()
    first = draw()
    torch.npu.set_rng_state(state)
    assert torch.equal(first, draw())


@pytest.mark.parametrize("name", DRAWS)
def test_moments_are_those_of_the_distribution(name):
    mean, variance = MOMENTS[name]
    torch.manual_seed(11)
    sample = DRAWS[name]().cpu().double()
    deviation = variance**0.5
    assert abs(sample.mean() - mean) < 5 * deviation / SAMPLES**0.5
    assert abs(sample.var() / variance - 1) < 0.1


def test_generator_of_its_own_leaves_the_default_alone():
    torch.manual_seed(7)
    expected = torch.randn(5, device="npu")
    torch.manual_seed(7)
    generator = torch.Generator("npu").manual_seed(3)
    own = torch.randn(5, device="npu", generator=generator)
    assert torch.equal(torch.randn(5, device="npu"), expected)
    assert torch.equal(own, torch.randn(5, device="npu", generator=generator.manual_seed(3)))


def test_randperm_is_a_permutation():
    assert torch.equal(torch.randperm(257, device="npu").sort().values.cpu(), torch.arange(257))


def test_dropout_scales_what_it_keeps_and_its_gradient_alike():
    x = torch.randn(33, 17, device="npu", requires_grad=True)
    y = F.dropout(x, 0.5)
    y.backward(torch.ones_like(y))
    kept = y != 0
    assert 0.3 < kept.float().mean().item() < 0.7
    assert torch.equal(y, torch.where(kept, x * 2, 0))
    assert torch.equal(x.grad, kept * 2.0)


def test_dropout_at_the_ends_keeps_all_or_nothing():
    x = torch.ones(33, device="npu")
    assert torch.equal(F.dropout(x, 0.0), x)
    assert torch.equal(F.dropout(x, 1.0), torch.zeros_like(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_dtypes_have_the_same_distribution(dtype):
    torch.manual_seed(3)
    sample = torch.randn(SAMPLES, device="npu", dtype=dtype).cpu().double()
    assert abs(sample.mean()) < 0.05 and abs(sample.var() - 1) < 0.05


@pytest.mark.parametrize(
    "dtype, highest", {torch.float32: 2**24, torch.bfloat16: 2**8, torch.int8: 127, torch.int32: 2**31 - 1}.items()
)
def test_whole_numbers_of_all_that_a_dtype_has(dtype, highest):
    drawn = torch.empty(SAMPLES, dtype=dtype, device="npu").random_().cpu().double()
    assert drawn.min() >= 0 and drawn.max() <= highest
    assert abs(drawn.mean() / highest - 0.5) < 0.02 and abs(drawn.var() / highest**2 - 1 / 12) < 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_gradient_of_dropout(dtype):
    dy = torch.randn(13, 11).to(dtype)
    bits = torch.randint(0, 256, (32,), dtype=torch.uint8)
    kept = torch.tensor([bits[i // 8].item() >> i % 8 & 1 for i in range(dy.numel())]).reshape(dy.shape)
    result = written_by("aclnnDropoutV3Grad", dy, bits, 1.25, Out(dy.shape, dtype))[0]
    assert torch.equal(result, (dy.double() * kept * 1.25).to(dtype))


@pytest.mark.parametrize("dtype, highest", {torch.float32: 2**24, torch.int8: 127, torch.int32: 2**31 - 1}.items())
def test_whole_numbers_by_a_seed_in_memory(dtype, highest):
    def drawn(seed, offset, in_graph):
        given = [torch.tensor([seed]), torch.tensor([offset]), in_graph]
        return written_by("aclnnInplaceRandomWithoutFromToTensor", InOut(torch.zeros(SAMPLES, dtype=dtype)), *given)[0]

    sample = drawn(7, 4, 8)
    by_value = written_by("aclnnInplaceRandomWithoutFromTo", InOut(torch.zeros(SAMPLES, dtype=dtype)), 7, 12)[0]
    assert torch.equal(sample, by_value)
    assert not torch.equal(sample, drawn(7, 4, 9)) and not torch.equal(sample, drawn(8, 4, 8))
    wide = sample.double()
    assert wide.min() >= 0 and wide.max() <= highest
    assert abs(wide.mean() / highest - 0.5) < 0.02 and abs(wide.var() / highest**2 - 1 / 12) < 0.01


def test_whole_numbers_need_a_seed():
    with pytest.raises(Rejected):
        written_by("aclnnInplaceRandomWithoutFromToTensor", InOut(torch.zeros(3)), None, torch.tensor([0]), 0)
