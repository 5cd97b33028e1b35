# SPDX-License-Identifier: Apache-2.0
"""What the ranks run in the tests of matrix products with a collective before or after them."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch_npu
from cases import equal, error_of

TEST = Path(__file__).parents[1]
sys.path[:0] = [str(TEST / "support"), str(TEST / "cann_cpu/graph_engine")]

from single_node import run_node  # noqa: E402

from custom_pypto.modes import MODES  # noqa: E402

ROWS, DEPTH, COLUMNS = 6, 5, 3


def name_of_group():
    return dist.group.WORLD._get_backend(torch.device("npu")).get_hccl_comm_name(dist.get_rank())


def integers(*sizes, dtype=torch.float32):
    """Small ones, so that all sums are exact."""
    return torch.randint(-4, 5, sizes).to(dtype)


def factors(rank, size, dtype):
    """All ranks' x1, x2 and bias; the rank's own on its device."""
    torch.manual_seed(11)
    all_of_them = [
        [integers(*sizes, dtype=dtype) for _ in range(size)] for sizes in ((ROWS, DEPTH), (DEPTH, COLUMNS), (COLUMNS,))
    ]
    return all_of_them, [each[rank].npu() for each in all_of_them]


def products(rank, size):
    """Every function and type against the product and the sum of exact numbers."""
    group, part = name_of_group(), ROWS // size
    mine = slice(rank * part, (rank + 1) * part)
    for dtype in torch.float16, torch.bfloat16:
        (x1s, x2s, biases), (x1, x2, bias) = factors(rank, size, dtype)
        gathered = torch.cat(x1s)
        for given, added in ((None, 0), (bias, biases[rank])):
            out, all_x1 = torch_npu.npu_all_gather_base_mm(x1, x2, group, size, bias=given)
            equal(out, (gathered.float() @ x2s[rank].float() + added).to(dtype))
            equal(all_x1, gathered)
        out, nothing = torch_npu.npu_all_gather_base_mm(x1, x2, group, size, gather_output=False, comm_mode="aiv")
        equal(out, (gathered.float() @ x2s[rank].float()).to(dtype))
        assert nothing.numel() == 0
        transposed = x2.t().contiguous().t()
        equal(torch_npu.npu_all_gather_base_mm(x1, transposed, group, size)[0], out.cpu())

        whole = sum(a.float() @ b.float() + c for a, b, c in zip(x1s, x2s, biases, strict=True))
        for mode in "ai_cpu", "aiv":
            out = torch_npu.npu_mm_reduce_scatter_base(x1, x2, group, size, bias=bias, comm_mode=mode)
            equal(out, whole[mine].to(dtype))

        more = integers(ROWS, COLUMNS, dtype=dtype)
        out = torch_npu.npu_mm_all_reduce_base(x1, x2, group, bias=bias)
        equal(out, whole.to(dtype))
        out = torch_npu.npu_mm_all_reduce_base(x1[None], x2, group, bias=bias, x3=more[None].npu())
        equal(out, (whole + size * more.float()).to(dtype)[None])
        largest = torch_npu.npu_mm_all_reduce_base(x1, x2, group, reduce_op="max")
        equal(largest, torch.stack([a.float() @ b.float() for a, b in zip(x1s, x2s, strict=True)]).amax(0).to(dtype))


def quantised(rank, size):
    """Sums of int8, scaled by row and by column, and added in float32."""
    group, part = name_of_group(), ROWS // size
    (x1s, x2s, _), (x1, x2, _) = factors(rank, size, torch.int8)
    rows = [torch.rand(ROWS, 1) for _ in range(size)]
    columns = [torch.rand(1, COLUMNS) for _ in range(size)]
    scales = {"x2_scale": columns[rank].npu(), "comm_mode": "aiv"}
    sums = torch.cat(x1s).double() @ x2s[rank].double() * columns[rank]
    for dtype in torch.bfloat16, torch.float16:
        bias = integers(COLUMNS, dtype=dtype)
        out = torch_npu.npu_all_gather_base_mm(
            x1, x2, group, size, bias=bias.npu(), x1_scale=rows[rank].npu(), output_dtype=dtype, **scales
        )[0]
        expected = (sums + bias.double() * columns[rank]) * torch.cat(rows)
        torch.testing.assert_close(out.cpu().double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-6)
        out = torch_npu.npu_mm_reduce_scatter_base(
            x1, x2, group, size, bias=bias.npu(), x1_scale=rows[rank].npu(), output_dtype=dtype, **scales
        )
        expected = sum(
            a.double() @ b.double() * c * r + bias.double() for a, b, c, r in zip(x1s, x2s, columns, rows, strict=True)
        )[rank * part : (rank + 1) * part]
        torch.testing.assert_close(out.cpu().double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-5)
        rtol = 2 * torch.finfo(dtype).eps
        for with_rows in False, True:
            x1_scale = rows[rank].npu() if with_rows else None
            out, all_x1 = torch_npu.npu_all_gather_base_mm(
                x1, x2, group, size, x1_scale=x1_scale, output_dtype=dtype, **scales
            )
            expected = sums * torch.cat(rows) if with_rows else sums
            torch.testing.assert_close(out.cpu().double(), expected, rtol=rtol, atol=1e-6)
            equal(all_x1, torch.cat(x1s))
            assert out.dtype == dtype

            parts = [
                a.double() @ b.double() * c * (r if with_rows else 1)
                for a, b, c, r in zip(x1s, x2s, columns, rows, strict=True)
            ]
            out = torch_npu.npu_mm_reduce_scatter_base(
                x1, x2, group, size, x1_scale=x1_scale, output_dtype=dtype, **scales
            )
            expected = sum(parts)[rank * part : (rank + 1) * part]
            torch.testing.assert_close(out.cpu().double(), expected, rtol=rtol, atol=1e-5)


def bits_of_the_two_calls(rank, size):
    torch.manual_seed(rank)
    x1, x2 = torch.randn(8 * size, 300).bfloat16().npu(), torch.randn(300, 7).bfloat16().npu()
    group = name_of_group()
    gathered = x1.new_empty(x1.shape[0] * size, 300)
    dist.all_gather_into_tensor(gathered, x1)
    out, all_x1 = torch_npu.npu_all_gather_base_mm(x1, x2, group, size)
    equal(all_x1, gathered.cpu())
    equal(out, (gathered @ x2).cpu())
    product = x1 @ x2
    part = product.new_empty(8, 7)
    dist.reduce_scatter_tensor(part, product)
    equal(torch_npu.npu_mm_reduce_scatter_base(x1, x2, group, size), part.cpu())
    dist.all_reduce(product)
    equal(torch_npu.npu_mm_all_reduce_base(x1, x2, group), product.cpu())


def order(rank, size):
    """Calls of a group run in the order in which they are made, on whatever streams, also where these are not ready."""
    _, (x1, x2, _) = factors(rank, size, torch.float16)
    expected = torch_npu.npu_mm_all_reduce_base(x1, x2, name_of_group()).cpu()
    streams = [torch.npu.Stream(), torch.npu.Stream()]
    torch.npu.synchronize()
    with torch.npu.stream(streams[rank % 2]):
        busy = torch.ones(1200, 1200).npu()
        for _ in range(4):
            busy = busy @ busy
    with torch.npu.stream(streams[0]):
        ones = torch.ones(3).npu()
        dist.all_reduce(ones, async_op=True)
    with torch.npu.stream(streams[1]):
        out = torch_npu.npu_mm_all_reduce_base(x1, x2, name_of_group())
    with torch.npu.stream(streams[0]):
        pair = torch.ones(2).npu()
        dist.all_reduce(pair, async_op=True)
    torch.npu.synchronize()
    equal(out, expected)
    equal(ones, torch.full((3,), float(size)))
    equal(pair, torch.full((2,), float(size)))


def captured(rank, size):
    _, (x1, x2, _) = factors(rank, size, torch.float16)
    group = name_of_group()
    expected = torch_npu.npu_all_gather_base_mm(x1, x2, group, size)[0].cpu()
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = torch_npu.npu_all_gather_base_mm(x1, x2, group, size)[0]
    for times in (1, 2):
        x1.mul_(times)
        graph.replay()
        torch.npu.synchronize()
        equal(out, expected * times)


def in_graphs(rank, size):
    """Every mode is bitwise equal to eager."""
    torch.manual_seed(rank)
    x1, x2 = torch.randn(4 * size, 16).bfloat16().npu(), torch.randn(16, 3).bfloat16().npu()
    bias, group = torch.zeros(3).bfloat16().npu(), name_of_group()

    def all_of_them(x1, x2):
        out, gathered = torch_npu.npu_all_gather_base_mm(x1 + 1, x2, group, size, bias=bias)
        return (
            out * 2,
            gathered,
            torch_npu.npu_all_gather_base_mm(x1, x2, group, size, gather_output=False)[0],
            torch_npu.npu_mm_reduce_scatter_base(x1 * 2, x2, group, size),
            torch_npu.npu_mm_all_reduce_base(x1, x2, group, bias=bias),
        )

    expected = all_of_them(x1, x2)
    for mode in MODES:
        torch._dynamo.reset()
        for found, eager in zip(MODES[mode](all_of_them)(x1, x2), expected, strict=True):
            assert torch.equal(found.cpu(), eager.cpu()), mode


def types_of_a_node(rank, size):
    """Attribute y_dtype is the product's dtype; DT_UNDEFINED, as torchair writes it, leaves it the inputs', which it
    must be for all but int8."""
    (x1s, x2s, _), (x1, x2, _) = factors(rank, size, torch.float16)
    whole = sum(a.float() @ b.float() for a, b in zip(x1s, x2s, strict=True))
    undefined = 28

    def product(dtype, **given):
        return run_node("MatmulAllReduce", [x1, x2], [whole.to(dtype)], group=name_of_group(), **given)[0]

    for given in {}, {"y_dtype": undefined}, {"y_dtype": torch.float16}:
        equal(product(torch.float16, **given), whole.half())
    text = error_of(lambda: product(torch.float32, y_dtype=torch.float32))
    assert "aclnnMatmulAllReduceV2: output must be Half, as x1 is, got Float" in text, text


def rejected(rank, size):
    group = name_of_group()
    _, (x1, x2, _) = factors(rank, size, torch.float16)
    other = x1[: 2 * size] if rank == 0 else x1
    calls = (
        lambda: torch_npu.npu_mm_all_reduce_base(x1, x2, "nobody"),
        lambda: torch_npu.npu_mm_reduce_scatter_base(x1[:4], x2, group, 2 * size),
        lambda: torch_npu.npu_all_gather_base_mm(other, x2, group, size),
    )
    return [error_of(call) for call in calls]
