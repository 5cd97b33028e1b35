# SPDX-License-Identifier: Apache-2.0
"""Products of 8-bit floats, against the formulas in float64 on numbers that are decoded from their formats."""

import math

import hifloat8
import pytest
import torch
from aclnn import InOut, Out, Rejected, nz, written_by

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
GROUP = 32


def generator(seed):
    return torch.Generator().manual_seed(seed)


def numbers(*shape, seed, dtype):
    """8-bit floats of several magnitudes, none of them infinite or not a number."""
    if dtype != torch.bits8:
        return torch.randn(shape, generator=generator(seed)).mul(8).to(dtype)
    return hifloat8.random(*shape, seed=seed)


def wide(x):
    return hifloat8.wide(x) if x.dtype == torch.bits8 else x.double()


def exponents(*shape, seed):
    return torch.randint(120, 134, shape, generator=generator(seed)).to(torch.uint8).view(torch.float8_e8m0fnu)


def scaled(x, scale):
    """(rows, k) times the exponent of each 32 numbers, (rows, pairs, 2)."""
    return wide(x) * scale.double().flatten(1).repeat_interleave(GROUP, 1)[:, : x.shape[1]]


def close(actual, expected, magnitude):
    """To float32's rounding of sums of this magnitude."""
    assert ((actual.double() - expected).abs() <= 1e-5 * magnitude + 1e-6).all()


def test_hifloat8_has_the_numbers_of_its_format():
    finite = hifloat8.NUMBERS[hifloat8.NUMBERS.isfinite()]
    assert finite.max() == 32768 and finite[finite > 0].min() == 2**-22 and len(finite.unique()) == 253
    codes = torch.arange(256, dtype=torch.uint8).view(torch.bits8).view(1, 256)
    keep = hifloat8.NUMBERS.isfinite()
    one = torch.tensor([0b0001000], dtype=torch.uint8).view(torch.bits8).view(1, 1)
    unit = torch.ones(1)
    (y,) = written_by(
        "aclnnQuantBatchMatmulInplaceAdd", one, codes, unit, unit, InOut(torch.zeros(1, 256)), True, False, 0
    )
    assert torch.equal(y[0].double()[keep], hifloat8.NUMBERS[keep])
    assert y[0, 0x80].isnan() and y[0, 0x6F] == math.inf and y[0, 0xEF] == -math.inf


@pytest.mark.parametrize("dtypes", [(a, b) for a in FLOAT8 for b in FLOAT8] + [(torch.bits8,) * 2], ids=str)
@pytest.mark.parametrize("sizes", [(1, 32, 1), (16, 96, 40), (130, 257, 67), (0, 64, 5)], ids=str)
@pytest.mark.parametrize("is_view", [False, True])
def test_a_product_is_added(sizes, dtypes, is_view):
    m, k, n = sizes
    x1, x2 = numbers(k, m, seed=1, dtype=dtypes[0]), numbers(k, n, seed=2, dtype=dtypes[1])
    y = torch.randn(m, n, generator=generator(3))
    pairs = math.ceil(k / 64)
    if dtypes[0] == torch.bits8:
        scale1, scale2, group_size = torch.tensor([0.25]), torch.tensor([3.0]), 0
        left, right = wide(x1).t() * 0.25, wide(x2) * 3
        given_scale1 = scale1
    else:
        scale1, scale2, group_size = exponents(pairs, m, 2, seed=4), exponents(pairs, n, 2, seed=5), GROUP
        left, right = scaled(x1.t(), scale1.transpose(0, 1)), scaled(x2.t(), scale2.transpose(0, 1)).t()
        given_scale1 = scale1.transpose(0, 1) if is_view else scale1
    given_x1 = x1.t() if is_view else x1
    (found,) = written_by(
        "aclnnQuantBatchMatmulInplaceAdd", given_x1, x2, given_scale1, scale2, InOut(y), not is_view, False, group_size
    )
    close(found, left @ right + y, left.abs() @ right.abs())


@pytest.mark.parametrize("list_type", [0, 1])
@pytest.mark.parametrize("is_view", [False, True])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bits8], ids=str)
@pytest.mark.parametrize("groups", [[64], [100, 0, 28, 129], [0, 64, 40]], ids=str)
def test_products_of_groups_are_added(groups, dtype, is_view, list_type):
    m, n, k, count = 17, 33, sum(groups) + 6, len(groups)  # the last 6 are in no group
    x1, x2 = numbers(k, m, seed=1, dtype=dtype), numbers(k, n, seed=2, dtype=dtype)
    y = torch.randn(count, m, n, generator=generator(3))
    if dtype == torch.bits8:
        scale1, scale2 = torch.rand(count, 1, generator=generator(4)), torch.rand(count, n, generator=generator(5))
    else:
        scale1, scale2 = exponents(k // 64 + count, m, 2, seed=4), exponents(k // 64 + count, n, 2, seed=5)
    expected, magnitude, begin = y.double(), torch.zeros(y.shape, dtype=torch.float64), 0
    for i, size in enumerate(groups):
        left, right = x1[begin : begin + size].t(), x2[begin : begin + size].t()
        if dtype == torch.bits8:
            left, right = wide(left) * scale1[i].double(), wide(right) * scale2[i].double().unsqueeze(1)
        else:
            of_group = slice(begin // 64 + i, begin // 64 + i + math.ceil(size / 64))
            left = scaled(left, scale1[of_group].transpose(0, 1))
            right = scaled(right, scale2[of_group].transpose(0, 1))
        expected[i] += left @ right.t()
        magnitude[i] = left.abs() @ right.abs().t()
        begin += size
    sizes = torch.tensor(groups)
    given = sizes.cumsum(0) if list_type == 0 else sizes
    given_scale1 = scale1.transpose(0, 1) if is_view and dtype != torch.bits8 else scale1
    (found,) = written_by(
        "aclnnQuantGroupedMatmulInplaceAdd", x1.t() if is_view else x1, x2, given_scale1, scale2, given, InOut(y),
        list_type, 0,
    )  # fmt: skip
    close(found, expected, magnitude)


BATCHES = [(1, 1), (7, 3)]


def transposed(name, x1, x2, scale1, scale2, perm_x2, out, group_size=0):
    acl = {torch.float16: 1, torch.bfloat16: 27, torch.bits8: 34}[out.dtype]
    arguments = [x1, x2, None, scale1, scale2, acl, group_size, [1, 0, 2], perm_x2, [1, 0, 2], 1, out]
    return written_by(name, *arguments)[0]


def rounded_close(actual, expected):
    tolerance = 2 * torch.finfo(actual.dtype).eps
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("out", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize(("m", "batch"), BATCHES)
def test_transposed_products_with_scales_of_rows_and_columns(m, batch, dtype, out):
    k, n = 512, 128
    x1, x2 = numbers(m, batch, k, seed=1, dtype=dtype), numbers(batch, k, n, seed=2, dtype=dtype)
    scale1, scale2 = torch.rand(m, generator=generator(3)), torch.rand(n, generator=generator(4))
    found = transposed("aclnnTransposeQuantBatchMatMul", x1, x2, scale1, scale2, [0, 1, 2], Out((m, batch, n), out))
    expected = torch.einsum("mbk,bkn->mbn", x1.double(), x2.double()) * scale1.view(-1, 1, 1) * scale2
    rounded_close(found, expected)


@pytest.mark.parametrize("name", ["aclnnTransposeQuantBatchMatMul", "aclnnTransposeQuantBatchMatMulWeightNz"])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(("m", "batch"), BATCHES)
def test_transposed_products_with_exponents(m, batch, by_column, name):
    k, n = 192, 40
    x1, x2 = (numbers(*shape, seed=i, dtype=FLOAT8[0]) for i, shape in enumerate([(m, batch, k), (batch, k, n)]))
    scale1, scale2 = exponents(m, batch, k // 64, 2, seed=3), exponents(batch, k // 64, n, 2, seed=4)
    expected = torch.stack(
        [
            scaled(x1[:, i], scale1[:, i]) @ scaled(x2[i].t(), scale2[i].transpose(0, 1)).t() for i in range(batch)
        ],
        1,
    )  # fmt: skip
    if by_column:
        x2, scale2 = x2.transpose(1, 2).contiguous(), scale2.transpose(1, 2).contiguous()
    given = nz_on_npu(x2) if name.endswith("Nz") else x2
    perm = [0, 2, 1] if by_column else [0, 1, 2]
    out = Out((m, batch, n), torch.bfloat16)
    rounded_close(transposed(name, x1, given, scale1, scale2, perm, out, GROUP), expected)


def nz_on_npu(matrix):
    stored = nz(matrix.view(torch.int8))
    return stored._replace(
        view=matrix.npu(), memory=stored.memory.npu().view(matrix.dtype)
    )  # fmt: skip


@pytest.mark.parametrize("out", [torch.float16, torch.bits8], ids=str)
@pytest.mark.parametrize("has_scale1", [False, True])
def test_transposed_products_of_hifloat8(has_scale1, out):
    m, batch, k, n = 5, 2, 48, 19
    x1, x2 = (numbers(*shape, seed=i, dtype=torch.bits8) for i, shape in enumerate([(m, batch, k), (batch, k, n)]))
    scale2 = torch.rand(n, generator=generator(4)) * 1e-2
    packed = scale2.view(torch.int32).long() & 0xFFFFFFFF
    scale1 = torch.tensor([0.5]) if has_scale1 else None
    found = transposed("aclnnTransposeQuantBatchMatMul", x1, x2, scale1, packed, [0, 1, 2], Out((m, batch, n), out))
    expected = torch.einsum("mbk,bkn->mbn", wide(x1), wide(x2)) * scale2 * (0.5 if has_scale1 else 1)
    if out == torch.float16:
        return rounded_close(found, expected)
    values = wide(found.view(torch.bits8))
    nearest = hifloat8.NUMBERS[hifloat8.NUMBERS.isfinite()]
    distance = (expected.clamp(-32768, 32768).unsqueeze(-1) - nearest).abs().amin(-1)
    assert ((values - expected.clamp(-32768, 32768)).abs() <= distance + 1e-5 * expected.abs()).all()


X1, X2, UNIT = (torch.zeros(64, 3).to(FLOAT8[0]), torch.zeros(64, 5).to(FLOAT8[0]), exponents(1, 3, 2, seed=0))
OTHER = exponents(1, 5, 2, seed=0)
HIF = torch.zeros(64, 5, dtype=torch.uint8).view(torch.bits8)
BAD = {
    "other k": (
        "aclnnQuantBatchMatmulInplaceAdd",
        [X1[:32], X2, UNIT, OTHER, Out((3, 5)), True, False, 32],
        "the same k",
    ),
    "group of 64": (
        "aclnnQuantBatchMatmulInplaceAdd",
        [X1, X2, UNIT, OTHER, Out((3, 5)), True, False, 64],
        "group_size is of 0, 0, 64 numbers",
    ),
    "two formats": (
        "aclnnQuantBatchMatmulInplaceAdd",
        [X1, HIF, UNIT, OTHER, Out((3, 5)), True, False, 32],
        "expected both or none to be hifloat8",
    ),
    "float scales of float8": (
        "aclnnQuantBatchMatmulInplaceAdd",
        [X1, X2, torch.ones(1), torch.ones(1), Out((3, 5)), True, False, 0],
        "x1_scale has dtype float32; expected float8_e8m0fnu, since x1 is not hifloat8",
    ),
    "a dtype": (
        "aclnnQuantBatchMatmulInplaceAdd",
        [X1.char(), X2, UNIT, OTHER, Out((3, 5)), True, False, 32],
        "x1 has dtype int8",
    ),
    "exponents of the whole": (
        "aclnnQuantGroupedMatmulInplaceAdd",
        [X1, X2, UNIT, OTHER, torch.tensor([64]), Out((1, 3, 5)), 0, 0],
        r"scale2 has shape \[1, 5, 2\]; expected \[2, 5, 2\]",
    ),
    "a group past the end": (
        "aclnnQuantGroupedMatmulInplaceAdd",
        [X1, X2, exponents(2, 3, 2, seed=0), exponents(2, 5, 2, seed=0), torch.tensor([65]), Out((1, 3, 5)), 1, 0],
        r"group_list\[0\] is 65; expected 0 to 64",
    ),
    "k that is not 512": (
        "aclnnTransposeQuantBatchMatMul",
        [X1[None], torch.zeros(64, 3, 7).to(FLOAT8[0]), None, torch.ones(1), torch.ones(7), 1, 0, [1, 0, 2], [0, 1, 2],
         [1, 0, 2], 1, Out((1, 64, 7), torch.float16)],
        "x1 has k 3, x2 n 7; expected 512 and 128",
    ),
    "bias": (
        "aclnnTransposeQuantBatchMatMul",
        [X1[None], X2.t()[None], torch.ones(5), torch.ones(1), torch.ones(64), 1, 0, [1, 0, 2], [0, 1, 2], [1, 0, 2],
         1, Out((1, 64, 64), torch.float16)],
        "bias",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "message"), BAD.values(), ids=list(BAD))
def test_what_does_not_fit_is_rejected(name, arguments, message):
    with pytest.raises((Rejected, RuntimeError), match=message):
        written_by(name, *arguments)
