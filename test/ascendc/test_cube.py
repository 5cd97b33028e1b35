# SPDX-License-Identifier: Apache-2.0
"""The matrix unit, compared with products in double precision, and the cores of mixed kernels."""

import itertools

import numpy as np
import pytest
import torch
from cann_cpu.kernel import KernelError, KernelFile

SHAPES = [(16, 16, 16), (1, 16, 16), (2, 1, 3), (17, 33, 50), (30, 40, 70), (64, 48, 128)]
"""m, n, k."""
LOADS = {"fractals": 0, "squares": 1, "image": 2}
MODES = ["NoQuant", "F322F16", "F322BF16", "DEQF16", "VDEQF16", "QF322B8_PRE", "VQF322B8_PRE", "REQ8", "VREQ8"]
MODES_OF_950 = ["QF322F16_PRE", "VQF322F16_PRE", "QF322BF16_PRE", "VQF322BF16_PRE"]
# The reports on the kernels in broken_cube.cpp, after file, line, kernel and core.
MESSAGES = {
    "loads_before_the_copy_has_ended": r"hazard: LoadData on pipe MTE1 reads elements 0 to 255 of l1 .*, which "
    r"DataCopy\(Nd2NzParams\) on pipe MTE2 wrote in line .* HardEvent::MTE2_MTE1",
    "loads_what_nobody_copied": "LoadData reads element 0 of l1 .*, which nothing has written",
    "multiplies_before_the_load_has_ended": "hazard: Mmad on pipe M reads .* of l0a .* LoadData on pipe MTE1 wrote",
    "goes_out_before_the_sums_are_there": "hazard: Fixpipe on pipe FIX reads .* of l0c .* Mmad on pipe M wrote",
    "loads_over_what_is_being_multiplied": "hazard: LoadData on pipe MTE1 writes .* of l0a .* Mmad on pipe M read",
    "sums_again_without_a_barrier": "hazard: Mmad on pipe M reads .* of l0c .*; use PipeBarrier<PIPE_M>",
    "left_matrix_outside_its_buffer": "LoadData writes elements 256 to 511 of a tensor of l0a .*, which has 256",
    "sums_that_nobody_made": "Fixpipe reads element 128 of l0c .*, which nothing has written",
    "fractal_at_an_unaligned_address": "LoadData: the tensor begins 32 bytes into l0a .*; it must be a multiple of 512",
    "factors_in_the_wrong_memories": "Mmad: fm lies in L0B; it must be in L0A",
    "copy_from_l1_to_l1": "DataCopy: dst lies in L1; it must be in the bias table or the fixpipe buffer",
    "too_much_for_l0a": "InitBuffer: 2 buffers of 33792 bytes, with 0 bytes in use already, exceed L0A of 65536 bytes",
    "scalar_in_l1": "SetValue: the scalar unit does not reach L1; copy to",
    "dumps_a_factor": "DumpTensor: a tensor in L0A, which only Mmad reads",
    "rounds_by_no_mode": "Fixpipe: quantPre NoQuant does not make half of float; F322F16, F322BF16 round float",
    "eight_bits_transposed_by_fractals": "LoadData: ifTranspose with elements of 1 bytes from L1; .* LoadDataWithTran",
    "rows_of_more_than_there_may_be": r"DataCopy\(Nd2NzParams\): srcDValue is 70000; the device takes 1 to 65535",
    "matrix_unit_of_a_vector_kernel": "Mmad: the kernel is for vector cores alone, by KERNEL_TASK_TYPE",
    "flag_between_cores_that_nobody_waits_for": "CrossCoreSetFlag: flag 5 is set when the kernel ends, and "
    "block 0, AIV 0 has not waited for it; call CrossCoreWaitFlag there",
    "flag_that_one_vector_core_does_not_set": "CrossCoreSetFlag: flag 5 is complete when all have set it, and block 0, "
    "AIV 1 has not",
    "waits_in_the_wrong_core": r"CrossCoreWaitFlag: the block waits indefinitely: .*\n  CrossCoreWaitFlag in line \d+: "
    "block 0, AIC",
    "cores_that_all_wait": r"CrossCoreWaitFlag: the block waits indefinitely: all others also wait\n  "
    r"CrossCoreWaitFlag in "
    r"line \d+: block 0, AIC\n  CrossCoreWaitFlag in line \d+: block 0, AIV [01]; block 0, AIV [01]",
    "flag_set_too_often": "CrossCoreSetFlag: flag 5 was set 16 times for block 0, AIV 0, which has not waited for it",
    "waits_in_the_first_round": r"CrossCoreWaitFlag: the block waits indefinitely: all others also wait\n  "
    r"CrossCoreWaitFlag in line \d+: block 0, AIC\n  CrossCoreWaitFlag in line \d+: block 0, AIV [01]",
    "flag_for_two_purposes": r"CrossCoreSetFlag: flag 3 is set by mode 1 for block 0, AIV [01], which has not "
    r"waited for mode 2, set in line \d+; both count in one counter, so take another flag",
    "flag_between_cores_that_have_none": "CrossCoreSetFlag: cores of a kernel of this type do not wait for each other",
    "two_types": "KERNEL_TASK_TYPE: the kernel declared another type before",
}


DTYPES = {
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "float": torch.float32,
    "int8": torch.int8,
    "int32": torch.int32,
}


def array(tensor):
    """The tensor's memory, as a kernel takes it: NumPy has no bfloat16."""
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def factors(m, n, k, dtype):
    generator = np.random.default_rng((m, n, k))
    if dtype == torch.int8:
        return [torch.from_numpy(generator.integers(-128, 128, size, np.int8)) for size in ((m, k), (k, n))]
    return [torch.from_numpy(generator.normal(size=size)).to(dtype) for size in ((m, k), (k, n))]


def product(kernels, name, shape, load="fractals", left=0, right=0, twice=0, mode="NoQuant", scale=0.0, relu=0, nz=0):
    """The factors, and what the kernel makes of them."""
    m, n, k = shape
    source, result = name.split("_to_")
    a, b = factors(m, n, k, DTYPES[source])
    size = (m, n)
    if nz:
        columns = 32 if result == "int8" else 16
        size = (-(-n // columns), -(-m // 16) * 16, columns)
    c = torch.zeros(size, dtype=DTYPES[result])
    given = [array((x.T if turned else x).contiguous()) for x, turned in ((a, left), (b, right))]
    bits, number = int(np.float32(scale).view(np.uint32)) | 1 << 46, [*MODES, *MODES_OF_950].index(mode)
    kernels("cube")[name](*given, array(c), m, n, k, LOADS[load], left, right, twice, number, bits, relu, nz)
    return a, b, c


def exact(a, b):
    return a.double() @ b.double()


def assert_summed(c, a, b, factor=1):
    """Within what a sum of k products in float may lose."""
    bound = exact(a.abs(), b.abs()) * factor * a.shape[1] * 2.0**-24
    assert ((c.double() - factor * exact(a, b)).abs() <= bound).all()


# The device turns 8 bits by squares alone, and not for the left matrix's image; a row lies in L0A without fractals.
WAYS = [
    (name, shape, load, left, right)
    for name in ("half_to_float", "bfloat16_to_float", "int8_to_int32")
    for shape, load, left, right in itertools.product(SHAPES, LOADS, (0, 1), (0, 1))
    if not (name.startswith("int8") and (load == "image" or left)) and not (shape[0] == 1 and (left or shape[2] > 16))
]


@pytest.mark.parametrize(("name", "shape", "load", "left", "right"), WAYS, ids=str)
def test_every_way_of_loading_gives_the_product(kernels, name, shape, load, left, right):
    a, b, c = product(kernels, name, shape, load, left, right)
    if c.dtype == torch.int32:
        assert (c == exact(a, b)).all()
    else:
        assert_summed(c, a, b)


@pytest.mark.parametrize("shape", [(16, 16, 16), (17, 16, 50), (33, 40, 8)], ids=str)
def test_floats(kernels, shape):
    a, b, c = product(kernels, "float_to_float", shape, "image")
    assert_summed(c, a, b)


def test_sums_go_on(kernels):
    a, b, c = product(kernels, "half_to_float", (30, 40, 70), twice=1)
    assert_summed(c, a, b, 2)


def test_the_sums_do_not_depend_on_the_tile(kernels):
    """Sums go up with k, each step rounded: the first rows and columns of a product are those of a smaller one."""
    a, b, c = product(kernels, "half_to_float", (64, 48, 128))
    expected = torch.zeros_like(c)
    for p in range(a.shape[1]):
        expected += a[:, p : p + 1].float() * b[p : p + 1].float()
    assert (c == expected).all()


ODD_SHAPES = [(1, 33, 7), (15, 17, 1), (17, 1, 257), (9, 33, 129), (2, 20, 511), (33, 31, 3), (7, 47, 2)]


@pytest.mark.parametrize("shape", ODD_SHAPES, ids=str)
@pytest.mark.parametrize("name", ["half_to_float", "bfloat16_to_float", "float_to_float", "int8_to_int32"])
def test_products_whose_sizes_fill_no_fractal(kernels, name, shape):
    """Twice, onto the sums of the first time."""
    a, b, c = product(kernels, name, shape, "squares" if name.startswith("int8") else "image", twice=1)
    if c.dtype == torch.int32:
        assert (c == 2 * exact(a, b)).all()
    else:
        assert_summed(c, a, b, 2)


@pytest.mark.parametrize("name", ["half_to_float", "bfloat16_to_float", "float_to_float"])
def test_numbers_that_are_not_finite_stay_in_their_rows_and_columns(kernels, name):
    m, n, k = shape = 21, 35, 45
    dtype = DTYPES[name.split("_")[0]]
    a, b = factors(m, n, k, dtype)
    a[3, 44], a[20, 0], a[7, 10], b[44, 34], b[11, 16] = np.nan, np.inf, -np.inf, np.inf, np.nan
    c = torch.zeros(m, n)
    kernels("cube")[name](array(a), array(b), c.numpy(), *shape, LOADS["image"], 0, 0, 0, 0, 0, 0, 0)
    expected = exact(a, b)
    assert (c.isnan() == expected.isnan()).all()
    assert (c.isposinf() == expected.isposinf()).all()
    assert (c.isneginf() == expected.isneginf()).all()


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("k", [1, 45, 50])
def test_what_lies_behind_the_last_row_is_not_multiplied(kernels, k, load):
    a, b = factors(20, 24, k, torch.bfloat16)
    c = torch.zeros(20, 24)
    kernels("cube")["before_infinity"](array(a), array(b), c.numpy(), 20, 24, k, LOADS[load])
    assert_summed(c, a, b)


def test_the_smallest_halves(kernels):
    """Each number of half below 2^-13, whose products with 1 are exact."""
    a, b = torch.arange(1024 * 2, dtype=torch.int16).view(torch.float16).view(64, 32), torch.eye(32).half()
    c = torch.zeros(64, 32)
    kernels("cube")["half_to_float"](a.numpy(), b.numpy(), c.numpy(), 64, 32, 32, 0, 0, 0, 0, 0, 0, 0, 0)
    assert (c == a.float()).all()
    d = torch.zeros(32, 64)
    kernels("cube")["half_to_float"](b.numpy(), a.T.contiguous().numpy(), d.numpy(), 32, 64, 32, 0, 0, 0, 0, 0, 0, 0, 0)
    assert (d == a.T.float()).all()


@pytest.mark.parametrize("nz", [0, 1])
@pytest.mark.parametrize("relu", [0, 1])
@pytest.mark.parametrize(
    ("name", "mode", "scale"),
    [
        ("half_to_half", "F322F16", 0),
        ("bfloat16_to_bfloat16", "F322BF16", 0),
        ("half_to_int8", "QF322B8_PRE", 4.0),
        ("int8_to_half", "DEQF16", 2.0**-6),
        ("int8_to_int8", "REQ8", 2.0**-10),
        ("int8_to_int32", "NoQuant", 0),
    ],
)
def test_what_goes_out_is_rounded_scaled_and_cut(kernels, name, mode, scale, relu, nz):
    shape = (30, 40, 70)
    a, b, c = product(kernels, name, shape, right=1, mode=mode, scale=scale, relu=relu, nz=nz)
    expected = exact(a, b)
    if relu:
        expected = expected.clamp(min=0)
    if scale:
        expected = expected * scale
    if c.dtype == torch.int8:
        expected = expected.round().clamp(-128, 127)
        assert expected.unique().numel() > 20
    if nz:  # fractals from top to bottom, then the next columns
        c = c.permute(1, 0, 2).reshape(c.shape[1], -1)[: shape[0], : shape[1]]
    if c.dtype in (torch.float16, torch.bfloat16):
        assert ((c.double() - expected).abs() <= expected.abs() * torch.finfo(c.dtype).eps + 1e-4).all()
    else:
        assert ((c.double() - expected).abs() <= (1 if name.startswith("half") else 0)).all()


@pytest.mark.parametrize("name", ["mixed", "mixed_unsaid"])
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_cores_of_a_block_wait_for_each_other(kernels, name, blocks):
    generator = np.random.default_rng(blocks)
    a, b = (generator.normal(size=(blocks, 16, 16)).astype(np.float16) for _ in range(2))
    c, y = (np.zeros((blocks, 16, 16), np.float32) for _ in range(2))
    kernels("cube")[name](a, b, c, y, 3, blocks=blocks)
    for i in range(blocks):
        assert_summed(*map(torch.from_numpy, (c[i], a[i], b[i])))
    assert (y == c + 1).all()


def test_a_core_that_does_not_wait_is_named(kernels):
    a = np.ones((1, 16, 16), np.float16)
    c, y = (np.zeros((1, 16, 16), np.float32) for _ in range(2))
    with pytest.raises(
        KernelError, match=r"block 0, AIC, and block 0, AIV [01]: block 0, AIV [01] reads bytes .* of c"
    ):
        kernels("cube")["reads_before_it_waits"](a, a, c, y, 1)
    with pytest.raises(
        KernelError, match=r"block 0, AIC, and block 0, AIV [01]: block 0, AIV [01] reads bytes .* of c"
    ):
        kernels("cube")["writes_again_before_it_waits"](a, a, c, y, 2)
    with pytest.raises(
        KernelError, match=r"block 0, AIC, and block 0, AIV [01]: block 0, AIV [01] reads bytes .* of c"
    ):
        kernels("cube")["sets_the_flag_of_another_pipe"](a, a, c, y, 1)


@pytest.mark.parametrize(
    ("name", "cubes", "vectors"),
    [("places_1_2", 1, 2), ("places_1_1", 1, 1), ("places_aic", 1, 0), ("places_unsaid", 0, 1)],
)
def test_where_a_kernel_runs(kernels, name, cubes, vectors):
    blocks = 3
    y = np.full((blocks * 2, 3, 16), -1, np.int32)
    kernels("cube")[name](y, blocks=blocks)
    of_cubes = [[i, blocks, 0, 1, 1] for i in range(blocks * cubes)]
    of_vectors = [[i, blocks, i % vectors, vectors, vectors] for i in range(blocks * vectors)]
    assert y[: blocks * cubes, 1, :5].tolist() == of_cubes
    assert y[: blocks * vectors, 2, :5].tolist() == of_vectors
    assert (y[blocks * cubes :, 1] == -1).all() and (y[blocks * vectors :, 2] == -1).all()


def test_sums_go_out_by_the_older_parameters(kernels):
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(20, 16)).astype(np.float16), generator.normal(size=(16, 24)).astype(np.float16)
    rows, stripes = np.zeros((20, 24), np.float16), np.full((2, 32, 16), 7, np.float16)
    kernels("cube")["in_bursts"](a, b, rows, stripes)
    assert np.allclose(rows, a.astype(float) @ b.astype(float), rtol=2**-10, atol=1e-4)
    assert (stripes[:, :20].transpose(1, 0, 2).reshape(20, 32)[:, :24] == rows).all()
    assert (stripes[:, 20:] == 7).all()


def test_each_core_leaves_out_the_other_s_instructions(kernels):
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=(16, 16)).astype(np.float16) for _ in range(2))
    x = generator.normal(size=(2, 128)).astype(np.float32)
    c, y = np.zeros((16, 16), np.float32), np.zeros_like(x)
    kernels("cube")["unguarded"](a, b, c, x, y)
    assert_summed(*map(torch.from_numpy, (c, a, b)))
    assert (y == x + 1).all()


SAME_NAME = """
#include "kernel_operator.h"
extern "C" __global__ __aicore__ void same(GM_ADDR y) {
  if ASCEND_IS_AIC { %s }
  if ASCEND_IS_AIV {
    AscendC::GlobalTensor<int32_t> seen;
    seen.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(y));
    seen.SetValue(AscendC::GetBlockIdx() * 16, static_cast<int32_t>(AscendC::GetSubBlockNum()));
    AscendC::DataCacheCleanAndInvalid<int32_t, AscendC::CacheLine::ENTIRE_DATA_CACHE>(seen);
  }
}
"""


def test_kernels_of_one_name_have_their_own_cores(tmp_path):
    for name, of_cube, expected in (
        (
            "mixed",
            "AscendC::TPipe pipe; AscendC::TBuf<AscendC::TPosition::A1> buffer; pipe.InitBuffer(buffer, 32);",
            [2, 2],
        ),
        ("vector", "return;", [1, 0]),
        ("mixed", "", [2, 2]),
    ):
        path = tmp_path / f"{name}.cpp"
        if of_cube:
            path.write_text(SAME_NAME % of_cube)
        y = np.zeros((2, 16), np.int32)
        KernelFile(path)["same"](y)
        assert y[:, 0].tolist() == expected


def test_each_kind_of_cores_has_code_of_its_own(kernels):
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=(16, 16)).astype(np.float16) for _ in range(2))
    c, y, seen = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32), np.zeros((3, 16), np.int32)
    file = kernels("by_core")
    file["both"](a, b, c, y, seen)
    assert_summed(*map(torch.from_numpy, (c, a, b)))
    assert (y == c + 1).all()
    assert seen[:, 0].tolist() == [202, 202, 101]
    once = np.zeros_like(c)
    file["cube_alone"](a, b, once)
    assert (once == c).all()
    file["vectors_alone"](c.reshape(2, 128)[:1], alone := np.zeros((1, 128), np.float32))
    assert (alone == c.reshape(2, 128)[:1] + 1).all()


@pytest.mark.parametrize("mode", MODES_OF_950)
def test_modes_of_other_chips_are_rejected_by_name(kernels, mode):
    name = "half_to_half" if "F16" in mode and "BF16" not in mode else "bfloat16_to_bfloat16"
    with pytest.raises(KernelError, match=rf"Fixpipe: quantPre {mode} does not make"):
        product(kernels, name, (16, 16, 16), mode=mode, scale=1.0)


@pytest.mark.parametrize("name", MESSAGES)
def test_what_a_kernel_does_wrong_is_named(kernels, name):
    x, y = np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)
    with pytest.raises(KernelError, match=rf"broken_cube\.cpp:\d+: {name}, block 0(, AI[CV][ 01]*)?: {MESSAGES[name]}"):
        kernels("broken_cube")[name](x, y)


def test_what_is_right_is_silent(kernels):
    file = kernels("broken_cube")
    x, y = np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)
    file["right"](x, y)
    assert (y == 16).all()
    assert set(file.names) == {"right", *MESSAGES}
