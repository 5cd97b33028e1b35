# SPDX-License-Identifier: Apache-2.0
"""The verification of a matrix product by its row sums, against its formula in float64."""

import re

import pytest
import torch
import torch_npu
from aclnn import Out, Rejected, written_by

SEGMENT = 256
RECOMMENDED = {torch.float32: 2e-5, torch.bfloat16: 1e-3, torch.float16: 1e-3}


def floats(*shape, seed, dtype=torch.float32):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + 0.3).to(dtype)


def deviation(values):
    """At most that of values between the same ends with the same mean."""
    mean = values.mean()
    return ((values.max() - mean) * (mean - values.min())).sqrt()


def bound(row, b):
    """Of the difference of the sums over a segment's columns, for an e_max of 1."""
    n, mean, sigma = b.shape[1], row.mean(), deviation(row)
    means, sigmas = b.mean(1), torch.stack([deviation(line) for line in b])
    linear = n * mean**2 * (sigmas**2).sum() + n**2 * sigma**2 * (means**2).sum()
    interaction = n**0.5 * sigma * (sigmas**2).sum().sqrt()
    return n * mean.abs() * means.abs().sum() + 4 * linear.sqrt() + 4 * interaction


def bits(packed, rows, columns):
    """Whether each row is right in each segment of columns: (segments, rows)."""
    segments = -(-columns // SEGMENT)
    whole = packed.view(segments, -1, 1) >> torch.arange(8, dtype=torch.uint8) & 1
    return whole.flatten(1)[:, :rows].bool()


@pytest.mark.parametrize("dtype", RECOMMENDED)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("m, k, n", [(24, 300, 512), (1, 1, 1), (13, 64, 257), (9, 37, 255)])
def test_errors_are_found_by_row_and_segment(m, k, n, weighted, dtype):
    """Errors of half the bound pass, those of twice the bound do not."""
    a, b, e_max = floats(m, k, seed=1, dtype=dtype), floats(k, n, seed=2, dtype=dtype), RECOMMENDED[dtype]
    weight = (torch.rand(n, generator=torch.Generator().manual_seed(3)) + 0.5 if weighted else torch.ones(n)).to(dtype)
    exact_a, exact_b = a.double(), b.double()
    c = exact_a @ exact_b
    factors = torch.tensor([0, 0.5, 2, -0.5, -3, 100])
    expected = torch.zeros(-(-n // SEGMENT), m, dtype=torch.bool)
    for segment in range(len(expected)):
        columns = slice(segment * SEGMENT, min((segment + 1) * SEGMENT, n))
        for row in range(m):
            factor = factors[(row + segment) % len(factors)]
            place = columns.start + row % (columns.stop - columns.start)
            error = e_max * bound(exact_a[row], exact_b[:, columns]) * factor
            c[row, place] += error / weight[place].double()
            expected[segment, row] = factor.abs() < 1
    out = Out((-(-m // 8) * len(expected),), torch.uint8)
    packed = written_by("aclnnMatmulAbftVerify", a, b, c.float(), weight, e_max, out)[0]
    assert torch.equal(bits(packed, m, n), expected)
    by_torch = torch.ops.npu._npu_matmul_abft_verify(a.npu(), b.npu(), c.float().npu(), weight.npu(), e_max=e_max)
    assert torch.equal(by_torch.cpu(), packed)


def test_rows_in_several_blocks():
    """The rows of a large a are converted to float in blocks."""
    m, k, n = 70, 1 << 17, 2
    a, b = floats(m, k, seed=1, dtype=torch.bfloat16), floats(k, n, seed=2, dtype=torch.bfloat16)
    c = (a.double() @ b.double()).float()
    wrong = [0, 31, 32, 33, 63, 64, 69]
    c[wrong, 1] += c.abs().max()
    packed = written_by("aclnnMatmulAbftVerify", a, b, c, torch.ones(n).bfloat16(), 1e-3, Out((9,), torch.uint8))[0]
    assert (~bits(packed, m, n)[0]).nonzero().flatten().tolist() == wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("m, k, n", [(64, 512, 700), (5, 33, 20)])
def test_checksum_of_torch_npu(m, k, n, dtype):
    a, b = (floats(*shape, seed=sum(shape), dtype=dtype).npu() for shape in ((m, k), (k, n)))
    c = a @ b
    assert not torch_npu.matmul_checksum(a, b, c).item()
    for wrong in (torch.nan, torch.inf, 1e6):
        broken = c.clone()
        broken[m - 1, n - 1] = wrong
        assert torch_npu.matmul_checksum(a, b, broken).item(), wrong


A, B, C, W, BITS = torch.ones(3, 4), torch.ones(4, 5), torch.full((3, 5), 4.0), torch.ones(5), Out((1,), torch.uint8)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([A[:, :3], B, C, W, 0.1, BITS], "b has shape [4, 5]; expected [3, 5]"),
        ([A, B, C[:2], W, 0.1, BITS], "c has shape [2, 5]; expected [3, 5]"),
        ([A, B, C, W[:4], 0.1, BITS], "checksum_weight has shape [4]; expected [5]"),
        ([A, B, C, W, -0.1, BITS], "e_max is -0.1; expected at least 0"),
        ([A, B, C, W, 0.1, Out((2,), torch.uint8)], "comp_row has shape [2]; expected [1]"),
        ([A[:0], B, C[:0], W, 0.1, Out((0,), torch.uint8)], "expected no empty matrix"),
        ([A, B, C.half(), W, 0.1, BITS], "c has dtype float16; expected float32"),
        ([A, B.half(), C, W, 0.1, BITS], "b has dtype float16; expected float32"),
    ],
)
def test_rejected(arguments, message):
    with pytest.raises(Rejected, match=re.escape(message)):
        written_by("aclnnMatmulAbftVerify", *arguments)
