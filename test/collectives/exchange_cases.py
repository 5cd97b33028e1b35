# SPDX-License-Identifier: Apache-2.0
"""What the ranks run in the tests of products with an exchange of blocks or of experts' rows, and of quantised ones."""

import torch
import torch_npu
from cases import equal, error_of
from matmul_cases import integers, name_of_group

from custom_pypto.modes import MODES


def of_all(size, *shape, dtype=torch.float16, seed=3):
    torch.manual_seed(seed)
    return [integers(*shape, dtype=dtype) for _ in range(size)]


def blocks(rank, size):
    """Blocks of rows before the product, and of its columns after it; small integers, so that all sums are exact."""
    group = name_of_group()
    for dtype in torch.float16, torch.bfloat16:
        x1s, bias = of_all(size, 3 * size, 5, dtype=dtype), integers(4, dtype=dtype)
        x2 = of_all(1, 5 * size, 4, dtype=dtype, seed=4)[0]
        beside = torch.cat([x1[3 * rank : 3 * rank + 3] for x1 in x1s], 1)
        for given in None, bias:
            for mode in None, "aiv":
                out, moved = torch_npu.npu_all_to_all_matmul(
                    x1s[rank].npu(), x2.npu(), group, size, bias=None if given is None else given.npu(), comm_mode=mode
                )
                equal(moved, beside)
                equal(out, (beside.float() @ x2.float() + (0 if given is None else given)).to(dtype))
        x2s, bias = of_all(size, 5, 2 * size, dtype=dtype, seed=5), integers(2 * size, dtype=dtype)
        out = torch_npu.npu_matmul_all_to_all(x1s[rank].npu(), x2s[rank].npu(), group, size)
        mine = slice(2 * rank, 2 * rank + 2)
        equal(out, torch.cat([(a.float() @ b.float())[:, mine] for a, b in zip(x1s, x2s, strict=True)]).to(dtype))


def rows_of_experts(rank, size):
    """Each rank sends a different number of rows, or none, to the experts of every rank, and gets their products."""
    group, experts, depth, columns = name_of_group(), 2, 6, 5
    generator = torch.Generator().manual_seed(9)
    counts = torch.randint(0, 4, (size, size, experts), generator=generator)  # by source, rank and expert
    counts[:, -1, 1] = 0
    torch.manual_seed(2)
    xs = [integers(int(counts[r].sum()), depth, dtype=torch.bfloat16) for r in range(size)]
    weights = of_all(size, experts, depth, columns, dtype=torch.bfloat16)
    sent, got = counts[rank].flatten().tolist(), counts[:, rank].flatten().tolist()
    parts = [list(xs[r].split(counts[r].flatten().tolist())) for r in range(size)]  # by source, then rank and expert
    by_expert = [torch.cat([parts[r][rank * experts + e] for r in range(size)]) for e in range(experts)]
    expected = [(x.float() @ weights[rank][e].float()).bfloat16() for e, x in enumerate(by_expert)]
    shared_x, shared_weight = integers(3, 4, dtype=torch.bfloat16), integers(4, 7, dtype=torch.bfloat16)
    for transposed in False, True:
        weight = weights[rank].mT.contiguous() if transposed else weights[rank]
        shared = {
            "mm_x": shared_x.npu(),
            "mm_weight": (shared_weight.t().contiguous() if transposed else shared_weight).npu(),
            "trans_mm_weight": transposed,
            "trans_gmm_weight": transposed,
        }
        y, other, permuted = torch_npu.npu_alltoallv_gmm(
            xs[rank].npu(), weight.npu(), group, size, sent, got, permute_out_flag=True, **shared
        )
        equal(y, torch.cat(expected))
        equal(permuted, torch.cat(by_expert))
        equal(other, (shared_x.float() @ shared_weight.float()).bfloat16())

        # And back: the rows by expert are multiplied, and go to where they came from.
        back, other = torch_npu.npu_gmm_alltoallv(
            torch.cat(by_expert).npu(), weight.npu(), group, size, got, sent, **shared
        )
        products = [
            (part.float() @ weights[i // experts][i % experts].float()).bfloat16() for i, part in enumerate(parts[rank])
        ]
        equal(back, torch.cat(products))
        equal(other, (shared_x.float() @ shared_weight.float()).bfloat16())


def reduced_int8(rank, size):
    """Scaled sums of int8, added over the ranks; some are also sent as int8."""
    group, m, k, n = name_of_group(), 6, 7, 5
    x1s, x2s = of_all(size, m, k, dtype=torch.int8), of_all(size, k, n, dtype=torch.int8, seed=4)
    generator = torch.Generator().manual_seed(1)
    rows, columns = torch.rand(size, m, generator=generator), torch.rand(size, n, generator=generator)
    bias = torch.randint(-9, 9, (n,), generator=generator, dtype=torch.int32)
    x3 = torch.randn(m, n, generator=generator).half()
    given = [x1s[rank].npu(), x2s[rank].npu(), group]
    for by_row in False, True:
        parts = [
            ((a.double() @ b.double() + bias) * c * (r.unsqueeze(1) if by_row else 1) + x3.double()).float()
            for a, b, c, r in zip(x1s, x2s, columns.double(), rows.double(), strict=True)
        ]
        options = {"bias": bias.npu(), "x3": x3.npu(), "dequant_scale": columns[rank].npu()}
        if by_row:
            options["pertoken_scale"] = rows[rank].npu()
        out = torch_npu.npu_mm_all_reduce_base(*given, **options)
        torch.testing.assert_close(out.cpu().double(), sum(parts).double(), rtol=2e-3, atol=1e-3)
        assert out.dtype == torch.float16

        steps = [torch.full((n,), value, dtype=torch.float16) for value in (1.5, 2.5)]
        out = torch_npu.npu_mm_all_reduce_base(
            *given, comm_quant_scale_1=steps[0].npu(), comm_quant_scale_2=steps[1].npu(), **options
        )
        sent = [(part / 1.5).round().clamp(-128, 127) for part in parts]
        whole = (sum(sent) * (1.5 / 2.5)).round().clamp(-128, 127)
        equal(out, (whole * 2.5).half())


def reduced_weights_of_int8(rank, size):
    """Weights that are scaled first: by column, and by column and group."""
    group, m, k, n = name_of_group(), 3, 64, 8
    x1s, x2s = of_all(size, m, k, dtype=torch.bfloat16), of_all(size, k, n, dtype=torch.int8, seed=4)
    generator = torch.Generator().manual_seed(1)
    for groups in 1, 2:
        shape = (n,) if groups == 1 else (groups, n)
        scales = torch.rand(size, *shape, generator=generator).bfloat16()
        offsets = torch.randint(-3, 4, (size, *shape), generator=generator).bfloat16()
        exact = 0
        for x1, x2, scale, offset in zip(x1s, x2s, scales, offsets, strict=True):
            each = [t.double().view(groups, n).repeat_interleave(k // groups, 0) for t in (scale, offset)]
            exact = exact + x1.double() @ ((x2.double() + each[1]) * each[0])
        out = torch_npu.npu_mm_all_reduce_base(
            x1s[rank].npu(),
            x2s[rank].npu(),
            group,
            antiquant_scale=scales[rank].npu(),
            antiquant_offset=offsets[rank].npu(),
            antiquant_group_size=0 if groups == 1 else k // groups,
        )
        torch.testing.assert_close(out.cpu().double(), exact, rtol=2e-2, atol=2e-2 * exact.abs().max().item())


def blocks_of_int8(rank, size):
    """Rows that are quantised once they have been exchanged, and products of int8 that are exchanged."""
    group, m, k, n = name_of_group(), 3 * size, 8, 2 * size
    generator = torch.Generator().manual_seed(2)
    x1s = [torch.randn(m, k, generator=generator).bfloat16() for _ in range(size)]
    x2 = torch.randint(-99, 100, (k * size, n), generator=generator, dtype=torch.int8)
    columns, bias = torch.rand(n, generator=generator), torch.randn(n, generator=generator)
    smooth = (torch.rand(k * size, generator=generator) + 0.5).bfloat16()
    beside = torch.cat([x1[3 * rank : 3 * rank + 3] for x1 in x1s], 1)
    for scale in None, smooth:
        x = beside.float() * (1 if scale is None else scale.float())
        step = x.abs().amax(1, keepdim=True) / 127
        exact = ((x / step).round().double() @ x2.double()) * step.double() * columns + bias
        out, moved = torch_npu.npu_all_to_all_quant_matmul(
            x1s[rank].npu(),
            x2.npu(),
            group,
            size,
            bias=bias.npu(),
            x1_scale=None if scale is None else scale.npu(),
            x2_scale=columns.npu(),
            x1_quant_mode=7,
            x2_quant_mode=2,
            y_dtype=torch.bfloat16,
        )
        equal(moved, beside)
        torch.testing.assert_close(out.cpu().double(), exact, rtol=8e-3, atol=1e-3)
    int8 = [torch.randint(-99, 100, (m, k), generator=generator, dtype=torch.int8) for _ in range(size)]
    weights = [torch.randint(-99, 100, (k, n), generator=generator, dtype=torch.int8) for _ in range(size)]
    rows = torch.rand(size, m, generator=generator)
    out = torch_npu.npu_quant_matmul_all_to_all(
        int8[rank].npu(),
        weights[rank].npu(),
        group,
        size,
        bias=bias.npu(),
        x1_scale=rows[rank].npu(),
        x2_scale=columns.npu(),
        y_dtype=torch.float16,
    )
    mine = slice(2 * rank, 2 * rank + 2)
    exact = [
        (a.double() @ b.double() * r.unsqueeze(1) * columns + bias)[:, mine]
        for a, b, r in zip(int8, weights, rows.double(), strict=True)
    ]
    torch.testing.assert_close(out.cpu().double(), torch.cat(exact), rtol=1e-3, atol=1e-3)


def microscaled(generator, *shape, dtype=torch.float8_e4m3fn, along=-1):
    """8-bit floats with an exponent for each 32 numbers of a dimension, and what they stand for."""
    values = torch.randn(*shape, generator=generator).to(dtype)
    blocks = list(shape)
    blocks[along] = -(-shape[along] // 64) * 2
    exponents = torch.randint(120, 132, blocks, generator=generator, dtype=torch.uint8)
    factors = exponents.double().sub(127).exp2().repeat_interleave(32, along).narrow(along, 0, shape[along])
    pairs = exponents.unflatten(along, (-1, 2)).movedim(len(shape) + along + 1 if along < 0 else along + 1, -1)
    return values, pairs.contiguous().view(torch.float8_e8m0fnu), values.double() * factors


def rows_of_experts_in_float8(rank, size):
    """The rows of each expert, with their exponents, go to its rank and are multiplied; and products come back."""
    group, experts, depth, columns = name_of_group(), 2, 70, 5
    counts = torch.tensor([[[1, 3], [0, 2]], [[4, 0], [2, 1]]])  # by source, rank and expert
    generator = torch.Generator().manual_seed(6)
    kinds = torch.float8_e4m3fn, torch.float8_e5m2
    sent, got = counts[rank].flatten().tolist(), counts[:, rank].flatten().tolist()
    for kind, y_dtype in zip(kinds, (torch.float16, torch.bfloat16), strict=True):
        xs = [microscaled(generator, int(counts[r].sum()), depth, dtype=kind) for r in range(size)]
        weights = [microscaled(generator, experts, depth, columns, along=-2) for _ in range(size)]
        shared_x, shared_weight = microscaled(generator, 3, 64, dtype=kind), microscaled(generator, 64, 7, along=-2)
        parts = [list(zip(*(t.split(counts[r].flatten().tolist()) for t in xs[r]), strict=True)) for r in range(size)]
        modes = {name: 6 for name in ("gmm_x_quant_mode", "gmm_weight_quant_mode")}
        shared = {"mm_x": shared_x[0], "mm_weight": shared_weight[0], "mm_x_quant_mode": 6, "mm_weight_quant_mode": 6}
        shared |= {"mm_x_scale": shared_x[1], "mm_weight_scale": shared_weight[1], "mm_y_dtype": y_dtype}
        e8m0 = torch_npu.float8_e8m0fnu
        scales = {"gmm_x_scale_dtype": e8m0, "gmm_weight_scale_dtype": e8m0}
        shared |= {"mm_x_scale_dtype": e8m0, "mm_weight_scale_dtype": e8m0}
        shared = {k: v.npu() if isinstance(v, torch.Tensor) else v for k, v in shared.items()}
        near = {"rtol": torch.finfo(y_dtype).eps, "atol": 1e-4}

        # Without and with the shared expert, without and with a name for the engine.
        for more in {}, shared, shared | {"comm_mode": "ai_cpu"}:
            y, other, permuted = torch_npu.npu_alltoallv_quant_gmm(
                xs[rank][0].npu(), weights[rank][0].npu(), xs[rank][1].npu(), weights[rank][1].npu(), group, size,
                sent, got, y_dtype, permute_out_flag=True, group_size=[0, 0, 0], **modes, **scales, **more,
            )  # fmt: skip
            mine = [[parts[r][rank * experts + e] for r in range(size)] for e in range(experts)]
            rows = torch.cat([part[0].view(torch.int8) for of_expert in mine for part in of_expert])
            assert permuted.dtype == kind
            equal(permuted.view(torch.int8), rows)
            exact = [
                torch.cat([part[2] for part in of_expert]) @ weights[rank][2][e] for e, of_expert in enumerate(mine)
            ]
            torch.testing.assert_close(y.cpu().double(), torch.cat(exact), **near)
            if more:
                torch.testing.assert_close(other.cpu().double(), shared_x[2] @ shared_weight[2], **near)

            # Rows by expert are multiplied, and their products go to where the rows came from.
            by_expert = [torch.cat([part[i].view(torch.int8) for g in mine for part in g]) for i in (0, 1)]
            back, other = torch_npu.npu_quant_gmm_alltoallv(
                by_expert[0].view(kind).npu(), weights[rank][0].npu(), by_expert[1].view(torch.float8_e8m0fnu).npu(),
                weights[rank][1].npu(), group, size, got, sent, y_dtype, **modes, **scales, **more,
            )  # fmt: skip
            exact = [part[2] @ weights[i // experts][2][i % experts] for i, part in enumerate(parts[rank])]
            torch.testing.assert_close(back.cpu().double(), torch.cat(exact), **near)
            if more:
                torch.testing.assert_close(other.cpu().double(), shared_x[2] @ shared_weight[2], **near)


def float8_in_graphs(rank, size):
    group, experts, depth, columns = name_of_group(), 2, 64, 5
    generator = torch.Generator().manual_seed(rank)
    rows, weights = microscaled(generator, 4, depth), microscaled(generator, experts, depth, columns, along=-2)
    shared_x, shared_weight = microscaled(generator, 3, 64), microscaled(generator, 64, 7, along=-2)
    given = [t.view(torch.uint8).npu() if t.dtype == torch.float8_e8m0fnu else t.npu()
             for t in (*rows[:2], *weights[:2], *shared_x[:2], *shared_weight[:2])]  # fmt: skip
    e8m0, counts = torch_npu.float8_e8m0fnu, [1] * (size * experts)
    modes = {"gmm_x_quant_mode": 6, "gmm_weight_quant_mode": 6, "mm_x_quant_mode": 6, "mm_weight_quant_mode": 6}
    modes |= {name + "_scale_dtype": e8m0 for name in ("gmm_x", "gmm_weight", "mm_x", "mm_weight")}

    def both(x, x_scale, weight, weight_scale, mm_x, mm_x_scale, mm_weight, mm_weight_scale):
        shared = {"mm_x": mm_x, "mm_weight": mm_weight, "mm_x_scale": mm_x_scale, "mm_weight_scale": mm_weight_scale}
        given = (x, weight, x_scale, weight_scale, group, size, counts, counts, torch.bfloat16)
        first = torch_npu.npu_alltoallv_quant_gmm(*given, **modes, **shared, mm_y_dtype=torch.bfloat16)
        back = torch_npu.npu_quant_gmm_alltoallv(
            *given, comm_quant_mode=0, **modes, **shared, mm_y_dtype=torch.bfloat16
        )
        return *first[:2], *back

    expected = both(*given)
    for mode in MODES:
        torch._dynamo.reset()
        for i, (found, eager) in enumerate(zip(MODES[mode](both)(*given), expected, strict=True)):
            assert torch.equal(found.cpu(), eager.cpu()), (mode, i)


def in_graphs(rank, size):
    """Every mode is bitwise equal to eager."""
    group, experts = name_of_group(), 2
    torch.manual_seed(rank)
    x, weight, bias = torch.randn(2 * size, 6).bfloat16(), torch.randn(6 * size, 4).bfloat16(), torch.randn(4)
    counts = [1 + (rank + i) % 2 for i in range(size * experts)]
    got = [1 + (i // experts + rank * experts + i % experts) % 2 for i in range(size * experts)]
    rows, back = torch.randn(sum(counts), 6).bfloat16(), torch.randn(sum(got), 6).bfloat16()
    weights, shared = torch.randn(experts, 6, 5).bfloat16(), torch.randn(3, 6).bfloat16()
    given = [t.npu() for t in (x, weight, bias, rows, back, weights, shared)]

    def all_of_them(x, weight, bias, rows, back, weights, shared):
        columns = weight[:6]
        with_shared = {"mm_x": shared, "mm_weight": weights[0]}
        by_expert, product, permuted = torch_npu.npu_alltoallv_gmm(
            rows + 1, weights, group, size, counts, got, permute_out_flag=True, **with_shared
        )
        transposed = {"trans_gmm_weight": True, "trans_mm_weight": True, "mm_x": shared}
        transposed["mm_weight"] = weights[0].t().contiguous()
        return (
            *torch_npu.npu_all_to_all_matmul(x + 1, weight, group, size, bias=bias),
            torch_npu.npu_all_to_all_matmul(x, weight, group, size, all2all_out_flag=False)[0],
            torch_npu.npu_matmul_all_to_all(x, columns, group, size, bias=bias, comm_mode="ai_cpu"),
            by_expert * 2,
            product,
            permuted,
            torch_npu.npu_alltoallv_gmm(rows, weights, group, size, counts, got)[0],
            *torch_npu.npu_gmm_alltoallv(back, weights.mT.contiguous(), group, size, got, counts, **transposed),
            torch_npu.npu_gmm_alltoallv(back, weights, group, size, got, counts)[0],
        )

    expected = all_of_them(*given)
    for mode in MODES:
        torch._dynamo.reset()
        for i, (found, eager) in enumerate(zip(MODES[mode](all_of_them)(*given), expected, strict=True)):
            assert torch.equal(found.cpu(), eager.cpu()), (mode, i)


def rejected(rank, size):
    group = name_of_group()
    x, weight = torch.ones(4, 6).half().npu(), torch.ones(2, 6, 5).half().npu()
    generator = torch.Generator().manual_seed(1)
    rows, weights = microscaled(generator, 4, 70), microscaled(generator, 2, 70, 5, along=-2)

    def in_float8(scale=rows[1], **options):
        return torch_npu.npu_alltoallv_quant_gmm(
            rows[0].npu(), weights[0].npu(), scale.npu(), weights[1].npu(), group, size, [1] * 4, [1] * 4,
            torch.float16, gmm_x_quant_mode=6, gmm_weight_quant_mode=6, gmm_x_scale_dtype=torch_npu.float8_e8m0fnu,
            gmm_weight_scale_dtype=torch_npu.float8_e8m0fnu, **options,
        )  # fmt: skip

    return [
        error_of(lambda: in_float8(rows[1].view(torch.uint8)[:, :1].contiguous())),
        error_of(lambda: in_float8(group_size=[0, 0, 16])),
        error_of(lambda: torch_npu.npu_alltoallv_gmm(x, weight, group, size, [1, 1, 1, 2], [1, 1, 1, 2])),
        error_of(lambda: torch_npu.npu_gmm_alltoallv(x, weight, group, size, [2, 2], [2, 2])),
        error_of(lambda: torch_npu.npu_all_to_all_matmul(x, weight[0], group, size)),
    ]
