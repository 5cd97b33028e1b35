# SPDX-License-Identifier: Apache-2.0
"""Nodes of 8-bit floats are bitwise equal to eager, static, dynamic and captured. torchair makes some of them for
Ascend 950 alone, as whose chip this one passes here."""

import importlib

import pytest
import torch
import torch_npu
from graphs import MODES, assert_same_bits

CONVERTERS = "torchair._ge_concrete_graph.ge_converter.custom"
E4M3, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exponents(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(124, 130, shape, generator=generator).to(torch.uint8).view(E8M0)


def added(operator):
    return lambda y, x1, x2, scale2, scale1: operator(y, x1, x2, scale2, x1_scale=scale1, group_sizes=[1, 1, 32])


def added_groups(operator):
    return lambda y, x1, x2, scale2, groups, scale1: operator(
        y, x1, x2, scale2, groups, x1_scale=scale1, group_list_type=1
    )


def transposed(dtype):
    return lambda x1, x2, scale1, scale2: torch_npu.npu_transpose_quant_batchmatmul(
        x1, x2, dtype, x1_scale=scale1, x2_scale=scale2, perm_x1=[1, 0, 2], perm_x2=[0, 1, 2], perm_y=[1, 0, 2]
    )


X = randn(3, 128, seed=1, dtype=torch.bfloat16)
X1, X2, Y = randn(5, 64, seed=2, dtype=E4M3), randn(64, 7, seed=3, dtype=E4M3), randn(5, 7, seed=4)
SUM = [Y, X1, X2, exponents(1, 7, 2, seed=6), exponents(5, 1, 2, seed=5)]
SUMS = [Y[None], X1, X2, exponents(2, 7, 2, seed=8), torch.tensor([64]), exponents(2, 5, 2, seed=7)]
BATCH = [randn(5, 2, 512, seed=9, dtype=E4M3), randn(2, 512, 128, seed=10, dtype=E4M3)]
BATCH += [randn(5, seed=11), randn(128, seed=12)]

CASES = {
    "DynamicBlockQuant": (lambda x: torch_npu.npu_dynamic_block_quant(x, dst_type=E4M3), [X]),
    "DynamicMxQuant": (lambda x: torch_npu.npu_dynamic_mx_quant(x, dst_type=E4M3), [X]),
    "AntiMxQuant": (
        lambda x, scale: torch_npu.npu_anti_mx_quant(x, scale, src_type=E4M3),
        [X1, exponents(5, 1, 2, seed=13)],
    ),
    "QuantBatchMatmulInplaceAdd": (added(torch_npu.npu_add_quant_matmul), SUM),
    "QuantBatchMatmulInplaceAdd in place": (added(torch_npu.npu_add_quant_matmul_), SUM),
    "QuantGroupedMatmulInplaceAdd": (added_groups(torch_npu.npu_add_quant_gmm), SUMS),
    "QuantGroupedMatmulInplaceAdd in place": (added_groups(torch_npu.npu_add_quant_gmm_), SUMS),
    **{f"TransposeQuantBatchMatMul {each}": (transposed(each), BATCH) for each in (torch.float16, torch.bfloat16)},
}


@pytest.fixture
def next_chip(monkeypatch):
    """Converters emit the nodes of Ascend 950."""
    for name in ("quant_matmul_inplace_add", "quant_grouped_matmul_inplace_add"):
        monkeypatch.setattr(importlib.import_module(f"{CONVERTERS}.{name}"), "is_arch35", lambda: True)


@pytest.mark.usefixtures("next_chip")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_a_node_has_the_bits_of_eager(name, mode):
    function, inputs = CASES[name]
    expected = function(*[x.npu() for x in inputs])
    assert_same_bits(MODES[mode](function)(*[x.npu() for x in inputs]), expected)
