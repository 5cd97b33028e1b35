# SPDX-License-Identifier: Apache-2.0
"""Quantisation with a scale for each block of a matrix or an exponent for each block of a row, against the formulas."""

import math

import pytest
import torch
from aclnn import Out, Rejected, written_by

GREATEST = {torch.int8: 127, torch.float8_e4m3fn: 448, torch.float8_e5m2: 57344, torch.bits8: 32768}
ACL = {torch.int8: 2, torch.bits8: 34, torch.float8_e5m2: 35, torch.float8_e4m3fn: 36}


def randn(*shape, dtype=torch.float32, seed=0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 30
    return x.to(dtype)


def blocks(shape, rows, columns):
    for i in range(0, shape[0], rows):
        for j in range(0, shape[1], columns):
            yield (i // rows, j // columns), (slice(i, i + rows), slice(j, j + columns))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("out", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(1, 128), (128, 128), (64, 192)])
@pytest.mark.parametrize("shape", [(1, 128), (3, 300), (2, 130, 257)], ids=str)
@pytest.mark.parametrize("min_scale", [0.0, 20.0])
def test_blocks_have_scales(shape, rows, columns, out, dtype, min_scale):
    x = randn(*shape, dtype=dtype)
    x.view(-1, *shape[-2:])[0, :1, :128] = 0  # with one row, a block of zeros
    scales = (*shape[:-2], math.ceil(shape[-2] / rows), math.ceil(shape[-1] / columns))
    y, scale = written_by(
        "aclnnDynamicBlockQuantV2" if min_scale else "aclnnDynamicBlockQuant",
        x, min_scale, "rint", ACL[out], rows, columns, *[0.0] * bool(min_scale), Out(shape, out), Out(scales),
    )  # fmt: skip
    for each, values, factors in zip(*(t.view(-1, *t.shape[-2:]) for t in (x, y.float(), scale)), strict=True):
        for place, part in blocks(shape[-2:], rows, columns):
            expected = each[part].float().abs().max() / GREATEST[out]
            expected = expected.clamp_max(1 / min_scale) if min_scale else expected
            assert factors[place] == expected
            least = -128 if out == torch.int8 else -GREATEST[out]
            quotients = (each[part].float() / expected).nan_to_num(0).clamp(least, GREATEST[out])
            wanted = quotients.round() if out == torch.int8 else quotients.to(out).float()
            assert torch.equal(values[part], wanted)


@pytest.mark.parametrize("greatest", [0.0, 15.0, 224.0])
def test_hifloat8_rounds_to_the_nearest(greatest):
    x = torch.tensor([[15.0, 1.0, 1.0625, -1.1875, 2**-8, 0.0, 0.4, -15.0]] * 2)
    x = torch.nn.functional.pad(x, (0, 56))
    y, scale = written_by(
        "aclnnDynamicBlockQuantV2", x, 0.0, "round", 34, 1, 64, greatest, Out((2, 64), torch.bits8), Out((2, 1))
    )
    assert torch.equal(scale, torch.full((2, 1), 15) / (greatest or 32768))
    if greatest == 15:  # 1.0625 lies between 1 and 1.125, -1.1875 between -1.125 and -1.25: away from zero
        assert y[0, 1:6].tolist() == [0b0001000, 0b0001001, 0b10001010, 0b1110000, 0]
        assert y[0, 0] == 0b0101111 and y[0, 7] == 0b10101111  # 2^3 * 1.875
    else:
        assert y[0, 0] == y[1, 0] and y[0, 7] == y[0, 0] | 0x80


def exponent(maximum, dtype, algorithm, low_bound):
    if algorithm == 0:
        return math.floor(math.log2(maximum)) - (8 if dtype == torch.float8_e4m3fn else 15) if maximum else -127
    ratio = max(maximum, low_bound) / GREATEST[dtype]
    return math.ceil(math.log2(ratio)) if ratio else -127


@pytest.mark.parametrize("out", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize(("algorithm", "low_bound"), [(0, 0.0), (1, 0.0), (1, 50.0)])
@pytest.mark.parametrize(
    ("shape", "axis", "block"),
    [((32,), 0, 32), ((3, 100), -1, 32), ((100, 3), 0, 64), ((2, 70, 5), 1, 32), ((2, 3, 96), -1, 96)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_blocks_have_exponents_and_come_back(shape, axis, block, algorithm, low_bound, out, dtype):
    x = randn(*shape, dtype=dtype)
    x.movedim(axis, -1)[..., :32] = 0
    dim = axis % len(shape)
    count = math.ceil(shape[dim] / block)
    scales = [*shape, 2]
    scales[dim] = (count + 1) // 2
    name = "aclnnDynamicMxQuantV3" if low_bound else "aclnnDynamicMxQuantV2" if algorithm else "aclnnDynamicMxQuant"
    rest = {"aclnnDynamicMxQuant": [], "aclnnDynamicMxQuantV2": [0.0], "aclnnDynamicMxQuantV3": [0.0, low_bound]}
    y, scale = written_by(
        name, x, axis, "rint", ACL[out], block, algorithm, *rest[name], Out(shape, out),
        Out(scales, torch.float8_e8m0fnu),
    )  # fmt: skip
    rows, values = (t.movedim(dim, -1).reshape(-1, shape[dim]) for t in (x.float(), y.float()))
    bytes_of_rows = scale.view(torch.uint8).movedim(dim, -2).reshape(len(rows), -1)
    assert not bytes_of_rows[:, count:].any()
    for row, got, exponents in zip(rows, values, bytes_of_rows.int() - 127, strict=True):
        for i in range(count):
            part = slice(i * block, (i + 1) * block)
            expected = exponent(row[part].abs().max().item(), out, algorithm, low_bound)
            assert exponents[i] == expected
            quotients = (row[part].double() / 2.0**expected).clamp(-GREATEST[out], GREATEST[out])
            assert torch.equal(got[part], quotients.float().to(out).float())
    if block == 32:
        (back,) = written_by("aclnnAntiMxQuant", y, scale, axis, 0, Out(shape))
        spread = (2.0 ** (bytes_of_rows.double() - 127)).repeat_interleave(32, 1)[:, : shape[dim]]
        assert torch.equal(back.movedim(dim, -1).reshape(values.shape).double(), values.double() * spread)


M = randn(4, 64)
BAD = {
    "block of rows": (
        "aclnnDynamicBlockQuant",
        [M, 0.0, "rint", 2, 3, 128, Out((4, 64), torch.int8), Out((2, 1))],
        "row_block_size is 3",
    ),
    "rounding": (
        "aclnnDynamicBlockQuant",
        [M, 0.0, "round", 2, 1, 128, Out((4, 64), torch.int8), Out((4, 1))],
        "round_mode is 'round'; expected rint",
    ),
    "another dtype": (
        "aclnnDynamicBlockQuant",
        [M, 0.0, "rint", 36, 1, 128, Out((4, 64), torch.int8), Out((4, 1))],
        "dst_type is 36; expected 2",
    ),
    "a greatest number of int8": (
        "aclnnDynamicBlockQuantV2",
        [M, 0.0, "rint", 2, 1, 128, 15.0, Out((4, 64), torch.int8), Out((4, 1))],
        "dst_type_max is 15",
    ),
    "algorithm": (
        "aclnnDynamicMxQuant",
        [M, -1, "rint", 36, 32, 2, Out((4, 64), torch.float8_e4m3fn), Out((4, 1, 2), torch.float8_e8m0fnu)],
        "scale_alg is 2; expected 0 or 1",
    ),
    "a block of 33": (
        "aclnnDynamicMxQuant",
        [M, -1, "rint", 36, 33, 0, Out((4, 64), torch.float8_e4m3fn), Out((4, 1, 2), torch.float8_e8m0fnu)],
        "blocksize is 33",
    ),
    "exponents": (
        "aclnnAntiMxQuant",
        [M.to(torch.float8_e5m2), torch.ones(4, 2, 2).to(torch.float8_e8m0fnu), -1, 0, Out((4, 64))],
        r"mxscale has shape \[4, 2, 2\]; expected \[4, 1, 2\]",
    ),
}


@pytest.mark.parametrize(("name", "arguments", "message"), BAD.values(), ids=list(BAD))
def test_what_does_not_fit_is_rejected(name, arguments, message):
    with pytest.raises(Rejected, match=message):
        written_by(name, *arguments)
