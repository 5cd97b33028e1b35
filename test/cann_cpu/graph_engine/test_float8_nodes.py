# SPDX-License-Identifier: Apache-2.0
"""Nodes of 8-bit floats give the bytes that their aclnn functions write. torchair makes most of them for Ascend 950
alone, so that they are run without it."""

import pytest
import torch
import torch_npu
import torchair
from aclnn import InOut, Out, written_by
from single_node import run_node

E4M3, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def exponents(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(124, 130, shape, generator=generator).to(torch.uint8).view(E8M0)


X = randn(3, 130, seed=1)
X1, X2, Y = randn(5, 64, seed=2, dtype=E4M3), randn(64, 7, seed=3, dtype=E4M3), randn(5, 7, seed=4)
SCALE1, SCALE2 = exponents(5, 1, 2, seed=5), exponents(1, 7, 2, seed=6)
GROUPS, SCALES1, SCALES2 = torch.tensor([64]), exponents(2, 5, 2, seed=7), exponents(2, 7, 2, seed=8)
MX = exponents(5, 1, 2, seed=13)

# A node's inputs and attributes, then what its function is given.
CASES = {
    "DynamicBlockQuant": (
        [X],
        {"dst_type": 2, "row_block_size": 1, "col_block_size": 128},
        [X, 0.0, "rint", 2, 1, 128, 0.0, Out((3, 130), torch.int8), Out((3, 2))],
        "V2",
    ),
    "DynamicMxQuant": (
        [X],
        {"axis": 1, "dst_type": 36, "blocksize": 32, "scale_alg": 1},
        [X, 1, "rint", 36, 32, 1, 0.0, 0.0, Out((3, 130), E4M3), Out((3, 3, 2), E8M0)],
        "V3",
    ),
    "AntiMxQuant": ([X1, MX], {"axis": -1, "dst_type": 27}, [X1, MX, -1, 27, Out((5, 64), torch.bfloat16)], ""),
    "QuantBatchMatmulInplaceAdd": (
        [X1, X2, SCALE2, Y, SCALE1],
        {"transpose_x1": False, "transpose_x2": False, "group_size": 32},
        [X1, X2, SCALE1, SCALE2, InOut(Y), False, False, 32],
        "",
    ),
    "QuantGroupedMatmulInplaceAdd": (
        [X1, X2, SCALES2, GROUPS, Y[None], SCALES1],
        {"group_list_type": 1, "group_size": 0},
        [X1, X2, SCALES1, SCALES2, GROUPS, InOut(Y[None]), 1, 0],
        "",
    ),
}


@pytest.mark.parametrize("node_type", CASES)
def test_a_node_gives_what_its_function_gives(node_type):
    inputs, attributes, arguments, version = CASES[node_type]
    expected = written_by(f"aclnn{node_type}{version}", *arguments)
    results = run_node(node_type, inputs, expected, **attributes)
    for got, wanted in zip(results, expected, strict=True):
        assert got.dtype == wanted.dtype and torch.equal(got.view(torch.uint8), wanted.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_transposed_products_in_a_graph(dtype):
    x1, x2 = randn(5, 2, 512, seed=9, dtype=E4M3).npu(), randn(2, 512, 128, seed=10, dtype=E4M3).npu()
    scale1, scale2 = randn(5, seed=11).npu(), randn(128, seed=12).npu()

    def function(x1, x2, scale1, scale2):
        return torch_npu.npu_transpose_quant_batchmatmul(
            x1, x2, dtype, x1_scale=scale1, x2_scale=scale2, perm_x1=[1, 0, 2], perm_x2=[0, 1, 2], perm_y=[1, 0, 2]
        )

    expected = function(x1, x2, scale1, scale2)
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=torchair.get_npu_backend(), dynamic=False, fullgraph=True)
    got = compiled(x1, x2, scale1, scale2)
    assert got.dtype == expected.dtype == dtype and torch.equal(got.cpu(), expected.cpu())
