# SPDX-License-Identifier: Apache-2.0
"""The tilings of the Matmul library: they cover the shape, fit the memories, and are as was asked for."""

import ctypes
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_tiling import TYPES, make

KIB = 1024
L1, L0A, L0B, L0C, UB, BIAS_TABLE = 512 * KIB, 64 * KIB, 64 * KIB, 128 * KIB, 192 * KIB, KIB


def up(number, multiple):
    return -(-number // multiple) * multiple


def assert_fits(t, dtype, c_type="float32", c_in_ub=False, bias=None):
    size = TYPES[dtype][1]
    assert min(t["baseM"], t["baseN"], t["baseK"], t["singleCoreM"], t["singleCoreN"], t["singleCoreK"]) > 0
    assert t["baseM"] % 16 == t["baseN"] % 16 == 0
    assert t["baseK"] * size % 32 == 0
    assert t["baseM"] * t["baseK"] * size * t["dbL0A"] <= L0A
    assert t["baseN"] * t["baseK"] * size * t["dbL0B"] <= L0B
    assert t["baseM"] * t["baseN"] * 4 * t["dbL0C"] <= L0C
    if c_in_ub:
        assert t["baseM"] * t["baseN"] * TYPES[c_type][1] <= UB
    bias_bytes = t["baseN"] * TYPES[bias][1] if bias else 0
    assert bias_bytes <= BIAS_TABLE
    blocks = t["depthA1"] * t["baseM"] + t["depthB1"] * t["baseN"]
    assert blocks * t["baseK"] * size + bias_bytes <= L1
    assert t["depthA1"] % (t["stepM"] * t["stepKa"]) == t["depthB1"] % (t["stepN"] * t["stepKb"]) == 0
    assert t["baseM"] <= up(t["singleCoreM"], 16)
    assert t["baseN"] <= up(t["singleCoreN"], 32)


extents = st.integers(1, 5000)
dtypes = st.sampled_from(["float32", "float16", "bfloat16", "int8"])


@settings(max_examples=60, deadline=None)
@given(extents, extents, extents, dtypes, st.integers(1, 48), *[st.booleans()] * 5)
def test_parts_and_blocks_cover_the_shape_and_fit(m, n, k, dtype, dim, trans_a, trans_b, c_in_ub, bias, double_c):
    c_type = "int32" if dtype == "int8" else "float32"
    flags = {"trans_a": trans_a, "trans_b": trans_b, "c_in_ub": c_in_ub, "bias": bias, "double_c": double_c}
    made = make(
        kind=1, shape=(m, n, k), org=(m, n, k, k), type=dtype, c_type=c_type, bias_type=c_type, dim=dim, **flags
    )
    tiling, (cores, along_m, along_n) = made
    t = tiling[0]
    assert_fits(t, dtype, c_type, c_in_ub, c_type if bias else None)
    assert cores == t["usedCoreNum"] == along_m * along_n <= dim
    assert along_m == -(-m // t["singleCoreM"])
    assert along_n == -(-n // t["singleCoreN"])
    assert t["singleCoreK"] == k
    assert (t["M"], t["N"], t["Ka"], t["Kb"]) == (m, n, k, k)
    assert t["isBias"] == bias


@settings(max_examples=30, deadline=None)
@given(extents, extents, extents, st.integers(2, 24))
def test_k_is_divided_if_that_is_asked_for(m, n, k, dim):
    tiling, (cores, *_) = make(kind=1, shape=(m, n, k), dim=dim, split_k=1)
    t = tiling[0]
    parts = [-(-whole // t[f"singleCore{axis}"]) for axis, whole in zip("MNK", (m, n, k), strict=True)]
    assert cores == parts[0] * parts[1] * parts[2] <= dim
    assert make(kind=1, shape=(m, n, k), dim=dim, split_k=1, bias=1) is None


# What is set, and which fields of the tiling then have which value; of 1024 x 640 x 256 in float16.
SETTINGS = {
    "fixed base": ({"fixed": (64, 160, -1)}, {"baseM": 64, "baseN": 160}),
    "fixed baseK": ({"fixed": (128, 128, 32)}, {"baseK": 32}),
    "single shape": ({"kind": 1, "dim": 4, "single": (512, 320, -1)}, {"usedCoreNum": 4, "singleCoreN": 320}),
    "two cores": ({"kind": 1, "dim": 2}, {"singleCoreM": 512, "singleCoreN": 640}),
    "alignment": ({"kind": 1, "dim": 8, "align": (256, 320, -1)}, {"singleCoreM": 256, "singleCoreN": 320}),
    "largest part": ({"kind": 1, "dim": 8, "most": (128, -1, -1)}, {"singleCoreM": 128, "singleCoreN": 640}),
    "smallest part": ({"kind": 1, "dim": 48, "least": (1024, -1, -1)}, {"singleCoreM": 1024}),
    "largest base": ({"most_base": (64, 64, 32)}, {"baseM": 64, "baseN": 64, "baseK": 32}),
    "smallest base": ({"least_base": (256, -1, -1), "most_base": (-1, 64, -1)}, {"baseM": 256, "baseN": 64}),
    "less of L0C": ({"buffers": (-1, 16 * KIB, -1, -1)}, {"shareL0CSize": 12 * KIB}),
    "rows first": ({"traverse": 2}, {"iterateOrder": 1}),
    "columns first": ({"traverse": 1}, {"iterateOrder": 0}),
    "double buffer": ({"double_c": 1}, {"dbL0C": 2}),
    "part of the matrices": ({"org": (2000, 700, 300, 400)}, {"M": 2000, "Kb": 400, "singleCoreM": 1024}),
    "batches": ({"kind": 2, "batch": (2, 6)}, {"BatchNum": 6, "ALayoutInfoB": 2, "BLayoutInfoB": 6, "CLayoutInfoB": 6}),
    "HF32": ({"mad": 1, "type": "float32"}, {"baseK": 32}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_set_is_honoured(name):
    given_, expected = SETTINGS[name]
    tiling, _ = make(**{"shape": (1024, 640, 256), **given_})
    assert {field: tiling[0][field] for field in expected} == expected
    assert_fits(tiling[0], given_.get("type", "float16"))


REFUSALS = {
    "no shape": ({}, "M -1, N -1, K -1: call SetShape and SetOrgShape"),
    "no multiple of 16": ({"fixed": (20, -1, -1)}, "baseM 20, .*: multiples of 16"),
    "more than a core has": ({"shape": (12, 640, 256), "fixed": (32, -1, -1)}, "baseM 32, .*: more than a core's 12"),
    "no room in L0C": ({"fixed": (256, 256, -1)}, "baseM 256 x baseN 256: at most 32768 elements fit L0C"),
    "no room in L0A": ({"fixed": (128, 128, 1024)}, "baseK 1024: its operands do not fit L0A and L0B"),
    "no room in the bias table": ({"fixed": (-1, 320, -1), "bias": 1}, "baseN 320: a bias .* the bias table, 1024"),
    "no room in L1": ({"buffers": (1024, -1, -1, -1)}, "bytes of L1, which has 1024"),
    "too few cores": ({"kind": 1, "dim": 2, "single": (256, -1, -1)}, "cannot be divided among 2 cores"),
    "C of no possible dtype": ({"c_type": "int32"}, "C of dtype 3, which A and B do not give"),
    "bias of no possible dtype": ({"bias": 1, "bias_type": "int32"}, "bias of dtype 3: int32 for int8 matrices"),
    "sparse": ({"sparse": 1}, "SetSparse: sparse matrices are not supported on the CPU"),
    "microscaling": ({"mad": 2}, "MatrixMadType::MXMODE"),
    "outer product": ({"schedule": 1}, "only INNER_PRODUCT"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_does_not_fit_is_rejected_with_its_reason(name, capfd, monkeypatch):
    monkeypatch.setenv("ASCEND_SLOG_PRINT_TO_STDOUT", "1")
    given_, message = REFUSALS[name]
    shape = {} if name == "no shape" else {"shape": (1024, 640, 256)}
    assert make(**{**shape, **given_}) is None
    ctypes.CDLL(None).fflush(None)
    assert re.search("MatmulApi Tiling: .*" + message, capfd.readouterr().out)
