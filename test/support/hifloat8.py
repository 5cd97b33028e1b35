# SPDX-License-Identifier: Apache-2.0
"""HiFloat8, by the fields of its format: a sign, a prefix that says how wide the exponent is, exponent, mantissa."""

import math

import torch

PREFIXES = [("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)]


def number(code):
    bits = f"{code:08b}"
    if code == 0x80:
        return math.nan
    sign, rest = (-1.0 if bits[0] == "1" else 1.0), bits[1:]
    if rest == "1101111":
        return sign * math.inf
    if rest.startswith("0000"):
        return sign * 2.0 ** (int(rest, 2) - 23) if int(rest, 2) else 0.0
    prefix, width = next(each for each in PREFIXES if rest.startswith(each[0]))
    field, mantissa = rest[len(prefix) : len(prefix) + width], rest[len(prefix) + width :]
    exponent = int("1" + field[1:], 2) * (-1 if field[0] == "1" else 1) if width else 0
    return sign * 2.0**exponent * (1 + int(mantissa, 2) / 2 ** len(mantissa))


NUMBERS = torch.tensor([number(code) for code in range(256)], dtype=torch.float64)
"""By code."""

MAGNITUDES = NUMBERS[NUMBERS.isfinite() & (NUMBERS >= 0)].unique()


def random(*shape, seed, below=300):
    """Of several magnitudes, none of them infinite or not a number, as bits8."""
    codes = torch.nonzero(NUMBERS.abs() < below).flatten()
    picked = torch.randint(0, len(codes), shape, generator=torch.Generator().manual_seed(seed))
    return codes[picked].to(torch.uint8).view(torch.bits8)


def wide(x):
    """The numbers of bytes in float64."""
    return NUMBERS[x.contiguous().view(torch.uint8).long()]


def rounded(x):
    """The nearest numbers in float64, of two the one further from zero, and none above the greatest."""
    boundaries = (MAGNITUDES[1:] + MAGNITUDES[:-1]) / 2
    return MAGNITUDES[torch.bucketize(x.abs(), boundaries, right=True)] * x.sign()
