# SPDX-License-Identifier: Apache-2.0
"""The Matmul library, compared with the mathematics in double precision."""

import numpy as np
import pytest
import torch
from cann_cpu.kernel import KernelError
from matmul_tiling import make

FORMS = ["all", "all_later", "blocks", "blocks_in_ub", "later", "halves_of_k", "sums"]
# A and B, C, bias.
TYPES = [
    ("float16", "float32", "float32"),
    ("float16", "float16", "float16"),
    ("float16", "int8", "float32"),
    ("bfloat16", "bfloat16", "float32"),
    ("float32", "float32", "float32"),
    ("int8", "int32", "int32"),
    ("int8", "float16", "int32"),
    ("int8", "int8", "int32"),
]
SCALE = 0.03125
SHAPES = [(64, 48, 32), (33, 50, 70), (1, 17, 16), (100, 36, 34)]


def numbers(shape, dtype, seed=0):
    generator = np.random.default_rng((seed, *shape))
    if dtype.startswith("int"):
        return torch.from_numpy(generator.integers(-40, 40, shape)).to(getattr(torch, dtype))
    return torch.from_numpy(generator.normal(size=shape)).to(getattr(torch, dtype))


def packed(scales, offset=0):
    """Scales as SetQuantVector takes them."""
    bits = np.asarray(scales, np.float32).view(np.uint32).astype(np.uint64)
    return bits | np.uint64(1 << 46) | np.uint64((offset & 0x1FF) << 37)


def product(a, b, across_a, across_b, bias):
    a, b = a.double(), b.double()
    c = (a.T if across_a else a) @ (b.T if across_b else b)
    return c if bias is None else c + bias.double()


def assert_close(actual, expected, dtype, k):
    error = (actual.double() - expected).abs()
    if actual.dtype == torch.int8:
        assert error.max() <= 1  # where the sum is between two integers
        assert (error > 0).double().mean() < 0.01
    elif dtype == "int8" and actual.dtype == torch.int32:
        assert error.max() == 0
    else:
        steps = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[actual.dtype]
        assert (error <= steps * (expected.abs() + np.sqrt(k))).all()


def run(
    kernels, types, form, shape, across_a=False, across_b=False, with_bias=False, dim=2, vector=False, base=(32, 16)
):
    dtype, c_type, bias_type = TYPES[types]
    m, n, k = shape
    a = numbers((k, m) if across_a else (m, k), dtype)
    b = numbers((n, k) if across_b else (k, n), dtype, 1)
    bias = numbers((n,), bias_type, 2) if with_bias else None
    whole = [-(-extent // 16) * 16 for extent in (m, n)]
    base_m, base_n = whole if form == "sums" else (min(32, whole[0]), 16)
    types_of = {"type": dtype, "c_type": c_type, "bias_type": bias_type}
    flags = {"bias": with_bias, "trans_a": across_a, "trans_b": across_b}
    fixed = (base_m, base_n, -1)
    tiling, _ = make(kind=1, dim=dim, shape=shape, org=(m, n, k, k), fixed=fixed, **types_of, **flags)
    expected = product(a, b, across_a, across_b, bias)
    c = torch.zeros((m, n), dtype=getattr(torch, c_type))
    workspace = torch.zeros(4 * m * n + 4096, dtype=c.dtype)
    scale = 0
    if (dtype, c_type) in (("float16", "int8"), ("int8", "float16"), ("int8", "int8")):
        factor = {"float16": 8.0, "int8": SCALE}[dtype] if c_type == "int8" else SCALE
        scales = factor * 2.0 ** (np.arange(n) % 3) if vector else np.full(n, factor)
        offset = 3 if c_type == "int8" else 0
        workspace = packed(scales, offset) if vector else None
        scale = int(packed([factor], offset)[0])
        expected = expected * torch.from_numpy(scales)
        if c_type == "int8":
            expected = (expected.round() + offset).clamp(-128, 127)
    kernels("matmul")["multiply"](
        a, b, bias, c, workspace, tiling, across_a, across_b, types, FORMS.index(form), scale, blocks=(dim + 1) // 2
    )
    assert_close(c, expected, dtype, k)


@pytest.mark.parametrize("types", range(len(TYPES)), ids=["_".join(types) for types in TYPES])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("across_a, across_b", [(False, False), (True, False), (False, True), (True, True)])
def test_products(kernels, types, shape, across_a, across_b):
    run(kernels, types, "all", shape, across_a, across_b, with_bias=across_a == across_b)


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_bias", [False, True])
def test_forms_of_results(kernels, form, shape, with_bias):
    run(kernels, 0, form, shape, across_b=True, with_bias=with_bias, dim=1 if form == "sums" else 4)


@pytest.mark.parametrize("types", [2, 6, 7])
def test_a_scale_for_each_column(kernels, types):
    run(kernels, types, "all", (33, 50, 70), vector=True)


def test_more_cores_than_parts_are_idle(kernels):
    run(kernels, 4, "blocks", (40, 40, 40), dim=9)


def test_the_bits_depend_neither_on_blocks_nor_on_cores(kernels):
    m, n, k = 96, 80, 333
    a, b = numbers((m, k), "float32"), numbers((k, n), "float32", 1)
    results = []
    for base, dim in [((96, 80), 1), ((16, 16), 1), ((32, 48), 3)]:
        tiling, _ = make(kind=1, dim=dim, shape=(m, n, k), org=(m, n, k, k), fixed=(*base, -1), type="float32")
        c = torch.zeros((m, n))
        kernels("matmul")["multiply"](a, b, None, c, None, tiling, False, False, 4, 0, 0, blocks=2)
        results.append(c)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_cores_add_to_the_same_sums(kernels):
    m, n, k = 32, 48, 96
    a, b = numbers((m, k), "float16"), numbers((k, n), "float16", 1)
    tiling, _ = make(shape=(m, n, k), org=(m, n, k, k), fixed=(16, 16, -1))
    c = torch.zeros((m, n))
    kernel = kernels("matmul")["parts_of_k"]
    kernel(a, b, c, tiling, False, blocks=2)
    assert_close(c, a.double() @ b.double(), "float16", k)
    with pytest.raises(KernelError, match="block 0, AIV 0 reads bytes 0 to 3 of c, which the other one writes in line"):
        kernel(a, b, c, tiling, True, blocks=2)


def to_nz(matrix):
    """Fractals of 16 rows and columns of 32 bytes, by columns of them."""
    channel = 32 // matrix.element_size() if matrix.dtype != torch.float32 else 16
    rows, columns = matrix.shape
    return matrix.reshape(rows, columns // channel, channel).transpose(0, 1).contiguous()


@pytest.mark.parametrize("form", ["ub", "fractals_in_ub", "fractals"])
@pytest.mark.parametrize("across_a, across_b", [(False, False), (True, True)])
def test_factors_in_the_unified_buffer_and_as_fractals(kernels, form, across_a, across_b):
    m, n, k = 48, 64, 80
    a = numbers((k, m) if across_a else (m, k), "float16")
    b = numbers((n, k) if across_b else (k, n), "float16", 1)
    tiling, _ = make(shape=(m, n, k), org=(m, n, k, k), fixed=(32, 32, -1), trans_a=across_a, trans_b=across_b)
    expected = product(a, b, across_a, across_b, None)
    is_nz = form != "ub"
    c = torch.zeros((m, n))
    arguments = (to_nz(a), to_nz(b)) if is_nz else (a, b)
    which = ["ub", "fractals_in_ub", "fractals"].index(form)
    kernels("matmul")["multiply_in_place"](*arguments, c, tiling, across_a, across_b, which)
    if is_nz:
        c = c.reshape(n // 16, m, 16).transpose(0, 1).reshape(m, n)
    assert_close(c, expected, "float16", k)


def test_two_objects(kernels):
    a, b, e = numbers((48, 33), "float32"), numbers((33, 64), "float32", 1), numbers((64, 20), "float32", 2)
    first, _ = make(shape=(48, 64, 33), org=(48, 64, 33, 33), type="float32")
    second, _ = make(shape=(48, 20, 64), org=(48, 20, 64, 64), type="float32", fixed=(16, 16, -1))
    workspace, d = torch.zeros((48, 64)), torch.zeros((48, 20))
    kernels("matmul")["chain"](a, b, e, workspace, d, first, second)
    assert_close(d, a.double() @ b.double() @ e.double(), "float32", 400)


def test_a_tiling_that_the_compiler_knows_and_one_number_for_a(kernels):
    a, b = numbers((64, 32), "float16"), numbers((32, 48), "float16", 1)
    c, sums = torch.zeros((64, 48)), torch.zeros(48)
    kernels("matmul")["constant"](a, b, c, sums)
    assert_close(c, a.double() @ b.double(), "float16", 32)
    assert_close(sums, 2 * b.double().sum(0), "float16", 32)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("batch_a, batch_b", [(6, 6), (2, 6), (6, 3)])
def test_batches(kernels, batch_a, batch_b, with_bias):
    m, n, k = 20, 24, 16
    a, b = numbers((batch_a, m, k), "float16"), numbers((batch_b, n, k), "float16", 1)
    most = max(batch_a, batch_b)
    bias = numbers((most, n), "float32", 2) if with_bias else None
    tiling, _ = make(kind=2, shape=(m, n, k), org=(m, n, k, k), batch=(batch_a, batch_b), bias=with_bias, trans_b=1)
    c = torch.zeros((most, m, n))
    kernels("matmul")["batches"](a, b, bias, c, tiling, batch_a, batch_b, 0)
    wide = [x.double().repeat_interleave(most // len(x), 0) for x in (a, b)]
    expected = wide[0] @ wide[1].transpose(1, 2)
    assert_close(c, expected if bias is None else expected + bias.double()[:, None], "float16", k)


@pytest.mark.parametrize("layout", ["bsngd", "sbngd"])
def test_batches_of_heads(kernels, layout):
    sa, sb, heads, d = 20, 24, 3, 16
    a, b = numbers((sa, heads, d), "float16"), numbers((sb, heads, d), "float16", 1)
    tiling, _ = make(kind=2, shape=(sa, sb, d), org=(sa, sb, d, d), batch=(1, 1), trans_b=1)
    for axis, (s, last) in {"A": (sa, d), "B": (sb, d), "C": (sa, sb)}.items():
        s1, d1 = ("S1", "S2") if axis == "C" else ("S", "D")
        values = {"B": 1, s1: s, "N": heads, "G": 1, d1: last}
        for name, value in values.items():
            tiling[f"{axis}LayoutInfo{name}"] = value
    expected = torch.einsum("ihd,jhd->hij", a.double(), b.double())
    c = torch.zeros(expected.shape if layout == "bsngd" else (sa, heads, sb))
    kernels("matmul")["batches"](a, b, None, c, tiling, heads, heads, ["bsngd", "sbngd"].index(layout) + 1)
    assert_close(c if layout == "bsngd" else c.transpose(0, 1), expected, "float16", d)


@pytest.mark.parametrize("through_ub", [False, True])
@pytest.mark.parametrize("batch_a, batch_b", [(3, 3), (1, 3), (4, 2)])
def test_many_batches(kernels, batch_a, batch_b, through_ub):
    m, n, k, loops = 20, 24, 16, 3
    a, b = numbers((loops * batch_a, m, k), "float16"), numbers((loops * batch_b, n, k), "float16", 1)
    tiling, _ = make(kind=2, shape=(m, n, k), org=(m, n, k, k), batch=(batch_a, batch_b), trans_b=1)
    most = max(batch_a, batch_b)
    c, workspace = (torch.zeros((loops * most, m, n)) for _ in range(2))
    kernels("matmul")["many_batches"](a, b, workspace, c, tiling, loops, loops, batch_a, batch_b, False, through_ub)
    wide = [x.double().repeat_interleave(loops * most // len(x), 0) for x in (a, b)]
    assert_close(c, wide[0] @ wide[1].transpose(1, 2), "float16", k)
    assert torch.equal(c, workspace)


def test_many_batches_of_heads(kernels):
    """Each loop has half of the heads of one of two sequences."""
    batches, sa, sb, heads, d = 2, 20, 24, 4, 16
    a, b = numbers((batches, sa, heads, d), "float16"), numbers((batches, sb, heads, d), "float16", 1)
    tiling, _ = make(kind=2, shape=(sa, sb, d), org=(sa, sb, d, d), batch=(2, 2), trans_b=1)
    for axis, (s, last) in {"A": (sa, d), "B": (sb, d), "C": (sa, sb)}.items():
        s1, d1 = ("S1", "S2") if axis == "C" else ("S", "D")
        for name, value in {"B": batches, s1: s, "N": heads, "G": 1, d1: last}.items():
            tiling[f"{axis}LayoutInfo{name}"] = value
    c, workspace = (torch.zeros((batches, heads, sa, sb)) for _ in range(2))
    kernels("matmul")["many_batches"](a, b, workspace, c, tiling, 4, 4, 2, 2, True, True)
    assert_close(c, torch.einsum("bihd,bjhd->bhij", a.double(), b.double()), "float16", d)


def test_batches_that_nobody_can_fetch_are_named(kernels):
    a, b, c = numbers((2, 20, 16), "float16"), numbers((2, 24, 16), "float16", 1), torch.zeros((2, 20, 24))
    tiling, _ = make(kind=2, shape=(20, 24, 16), org=(20, 24, 16, 16), batch=(1, 1), trans_b=1)
    kernel = kernels("matmul")["many_batches"]
    with pytest.raises(KernelError, match="GetBatchTensorC: the results of all 1 loops of IterateNBatch were fetched"):
        kernel(a, b, torch.zeros(2000), c, tiling, 1, 2, 1, 1, False, True)
    with pytest.raises(KernelError, match="IterateNBatch: the object has no workspace; call SetWorkspace"):
        kernel(a, b, None, c, tiling, 1, 1, 1, 1, False, True)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("shape, base", [((64, 48, 96), (32, 16, 32)), ((64, 33, 50), (64, 48, 32))])
def test_the_author_copies(kernels, shape, base, both):
    """The factors are parts of wider matrices; with both functions A's blocks are taken backwards."""
    m, n, k = shape
    a, b = numbers((m, k + 8), "float16"), numbers((k, n + 5), "float16", 1)
    tiling, _ = make(shape=shape, org=(m, n, k if both else k + 8, k), fixed=base)
    rows = np.array([(*base, k + 8, n + 5)], np.dtype([(name, np.int32) for name in ("m", "n", "k", "a", "b")]))
    c = torch.zeros((m, n))
    kernel = kernels("matmul")["copied_by_author"]
    kernel(a, b, c, tiling, rows, both, m // base[0] if both else 0, False)
    blocks = a[:, :k].double().reshape(-1, base[0], k)
    expected = (blocks.flip(0) if both else blocks).reshape(m, k) @ b[:, :n].double()
    assert_close(c, expected, "float16", k)
    with pytest.raises(KernelError, match="CopyB1 of a transposed matrix; it copies a GlobalTensor that is not transp"):
        kernel(a, b, c, tiling, rows, both, 0, True)
    rows["k"] += 1
    with pytest.raises(KernelError, match=r"matmul\.cpp.*DataCopy\(Nd2NzParams\) reads"):
        kernel(a, b, c, tiling, rows, both, 0, False)


def hf32(x, mode):
    """Rounds to 11 bits after the binary point, ties to even or to the larger number."""
    mantissa, exponent = np.frexp(x.double().numpy())
    scaled = mantissa * 2.0**12
    rounded = np.rint(scaled) if mode == 0 else np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
    return torch.from_numpy(np.ldexp(rounded, exponent - 12))


@pytest.mark.parametrize("mode", [0, 1])
def test_hf32(kernels, mode):
    m, n, k = 40, 36, 50
    a, b = numbers((m, k), "float32"), numbers((k, n), "float32", 1)
    mantissa, exponent = np.frexp(a[:, ::2].double().numpy())
    a[:, ::2] = torch.from_numpy(np.ldexp(np.rint(mantissa * 2.0**12) + 0.5, exponent - 12))  # between two numbers
    tiling, _ = make(shape=(m, n, k), org=(m, n, k, k), type="float32")
    c, plain = torch.zeros((m, n)), torch.zeros((m, n))
    kernels("matmul_cube_only")["hf32"](a, b, c, tiling, True, mode)
    kernels("matmul_cube_only")["hf32"](a, b, plain, tiling, False, mode)
    assert_close(c, hf32(a, mode) @ hf32(b, mode), "float32", k)
    assert_close(plain, a.double() @ b.double(), "float32", k)
    assert (c - plain).abs().max() > 1e-4
    with pytest.raises(KernelError, match=r"SetHF32: transMode is 2; it is 0 \(to even\) or 1 \(away from 0\)"):
        kernels("matmul_cube_only")["hf32"](a, b, c, tiling, True, 2)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("shape, base", [((40, 50, 32), (16, 32)), ((33, 17, 70), (48, 32))])
def test_blocks_in_co1(kernels, dtype, shape, base):
    m, n, k = shape
    a, b = numbers((m, k), dtype), numbers((k, n), dtype, 1)
    is_int8 = dtype == "int8"
    c = torch.zeros((m, n), dtype=torch.int32 if is_int8 else torch.float32)
    c_type = "int32" if is_int8 else "float32"
    tiling, _ = make(shape=shape, org=(m, n, k, k), fixed=(*base, -1), type=dtype, c_type=c_type, bias_type=c_type)
    sums = base[0] >= m and base[1] >= n
    kernels("matmul_cube_only")["in_co1"](a, b, c, tiling, is_int8, sums, True)
    assert_close(c, a.double() @ b.double(), dtype, k)
    with pytest.raises(KernelError, match=r"hazard: Fixpipe on pipe FIX reads .*, which Iterate on pipe M wrote"):
        kernels("matmul_cube_only")["in_co1"](a, b, c, tiling, is_int8, sums, False)


def test_batches_of_cube_cores(kernels):
    m, n, k = 20, 24, 16
    a, b = numbers((3, m, k), "float16"), numbers((3, k, n), "float16", 1)
    tiling, _ = make(kind=2, shape=(m, n, k), org=(m, n, k, k), batch=(3, 3))
    c = torch.zeros((3, m, n))
    kernels("matmul_cube_only")["cube_batches"](a, b, c, tiling, 3)
    assert_close(c, a.double() @ b.double(), "float16", k)


WRONG = {
    0: "IterateAll: the object has no tiling; call REGIST_MATMUL_OBJ with it, or Init",
    1: "IterateAll: the object has no A; call SetTensorA first",
    2: "SetTensorA: A is transposed, and its MatmulType has ISTRANS false",
    3: "Iterate: the object has no B; call SetTensorB first",
    4: r"SetBias: isBias is 0 in the tiling; call EnableBias\(true\) where it is made",
    5: "IterateAll reads .* of a, which has 2048",
    6: "GetTensorC: there is no block; call Iterate first",
    7: "IterateAll reads .* of a, which has 2048",
    8: "IterateAll: enAtomic is 7; 0: none, 1: add, 2: largest, 3: smallest",
    9: "hazard: IterateAll on pipe FIX writes elements .* of c, which IterateAll on pipe FIX wrote",
    10: "GetTensorC: rows of 3 elements are not a multiple of 32 bytes in the unified buffer; .* CubeFormat::ND_ALIGN",
    11: "GetTensorC: enAtomic is 1, and C is in the unified buffer; it is 0",
    12: "hazard: Adds on pipe V reads .*, which GetTensorC on pipe MTE2 wrote",
    13: "hazard: IterateAll on pipe MTE2 reads .* of a, which DataCopy on pipe MTE3 wrote",
    14: "hazard: DataCopy on pipe MTE2 reads .* of c, which IterateAll on pipe FIX wrote",
    15: "GetTensorC: all of the 6 blocks were fetched",
    16: "SetHF32: an object of a vector core; define ASCENDC_CUBE_ONLY before lib/matmul_intf.h",
}


@pytest.mark.parametrize("which", WRONG)
def test_what_an_author_does_wrong_is_named(kernels, which):
    a, b, c = numbers((64, 32), "float16"), numbers((32, 48), "float16", 1), torch.zeros((64, 48))
    tiling, _ = make(shape=(64, 48, 32), org=(64, 48, 32, 32), fixed=(32, 16, -1))
    wrong = kernels("matmul")["wrong"]
    with pytest.raises(KernelError, match=r"matmul\.cpp:\d+.*" + WRONG[which]):
        wrong(a, b, c, tiling, which)
