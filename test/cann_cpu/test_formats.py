# SPDX-License-Identifier: Apache-2.0
"""FRACTAL_NZ: a matrix [K, N] in blocks [N / c0, K / 16, 16, c0] with c0 = 32 bytes, padded by zeros."""

import copy
import ctypes
import functools

import aclnn
import pytest
import torch
import torch_npu
import torch_versions
import torchair
from aclnn import FRACTAL_NZ, INVALID, ND, Stored, blocks_of, nz

pytestmark = pytest.mark.usefixtures("internal_formats")

SIZES = [(16, 32), (32, 64), (1, 1), (17, 33), (5, 100), (50, 3)]
DTYPES = [torch.int8, torch.float16, torch.bfloat16]


def random(*shape, dtype=torch.bfloat16):
    return torch.randint(-100, 100, shape).to(dtype)


call = functools.partial(aclnn.call, "libopapi.so")


def rejection(name, *arguments):
    with pytest.raises(aclnn.Rejected) as rejected:
        call(name, *arguments)
    return rejected.value.args


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_an_input_in_blocks_is_read_as_its_matrix(size, dtype):
    matrix = random(*size, dtype=dtype)
    out = torch.empty_like(matrix)
    call("aclnnNeg", nz(matrix), out)
    assert out.equal(-matrix)


@pytest.mark.parametrize(
    "view",
    [
        lambda matrix: matrix.t(),
        lambda matrix: matrix[3:17],
        lambda matrix: matrix[:, 5:40],
        lambda matrix: matrix[2:20, 1:2],
        lambda matrix: matrix[7:8, 3:9].t(),
    ],
)
def test_a_view_of_blocks_is_read_as_the_view_of_their_matrix(view):
    viewed = view(random(23, 41))
    out = torch.empty(viewed.shape, dtype=viewed.dtype)
    call("aclnnNeg", nz(viewed), out)
    assert out.equal(-viewed)


@pytest.mark.parametrize("size, blocks", [((5, 0), (0, 1, 16, 16)), ((0, 5), (1, 0, 16, 16))], ids=str)
def test_an_empty_matrix_in_blocks_is_read(size, blocks):
    matrix, out = (torch.full(shape, 7, dtype=torch.bfloat16) for shape in (size, (3, size[1])))
    weight = Stored(matrix, torch.empty(blocks, dtype=torch.bfloat16), FRACTAL_NZ)
    call("aclnnMatmul", torch.ones(3, size[0], dtype=torch.bfloat16), weight, out, 0)
    assert torch.equal(out, torch.zeros(3, size[1], dtype=torch.bfloat16))


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.transpose(1, 2), lambda x: x[1:, 2:20]])
def test_a_stack_of_matrices_is_read(view):
    viewed = view(random(3, 23, 41))
    out = torch.empty(viewed.shape, dtype=viewed.dtype)
    call("aclnnNeg", nz(viewed), out)
    assert out.equal(-viewed)


def test_inputs_in_lists_and_those_that_may_be_null_are_read():
    x, y = random(20, 40), random(5, 40)
    out = torch.empty(25, 40, dtype=x.dtype)
    call("aclnnCat", [nz(x), nz(y)], 0, out)
    assert out.equal(torch.cat([x, y]))

    probability, target, weight = (torch.rand(20, 40) for _ in range(3))
    loss = torch.empty(20, 40)
    arguments = (nz(probability), target, nz(weight), 0, loss)
    call("aclnnBinaryCrossEntropy", *arguments)
    expected = torch.nn.functional.binary_cross_entropy(probability, target, weight, reduction="none")
    torch.testing.assert_close(loss, expected)


def storage_of(tensor, dst_format, additional_dtype):
    """The shape of the storage, and the format, that libopapi computes."""
    library, made = ctypes.CDLL("libopapi.so"), aclnn.Made()
    shape, size, actual = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64(), ctypes.c_int()
    status = library.aclnnNpuFormatCastCalculateSizeAndFormat(
        made.argument(tensor), dst_format, additional_dtype, *map(ctypes.byref, (shape, size, actual))
    )
    made.destroy()
    assert status == 0
    return shape[: size.value], actual.value


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_the_cast_lays_out_blocks_and_rows(size, dtype):
    matrix = random(*size, dtype=dtype)
    blocks = blocks_of(matrix)
    assert storage_of(matrix, FRACTAL_NZ, -1) == (list(blocks.shape), FRACTAL_NZ)
    assert storage_of(matrix, ND, -1) == (list(size), ND)
    written = torch.full_like(blocks, 7)
    call("aclnnNpuFormatCast", matrix, Stored(matrix, written, FRACTAL_NZ))
    assert written.equal(blocks)
    back = torch.empty_like(matrix)
    call("aclnnNpuFormatCast", Stored(matrix, blocks, FRACTAL_NZ), back)
    assert back.equal(matrix)


def test_outputs_in_blocks_are_rejected():
    x = random(20, 40)
    message = "is written, so it must be in format ND, but is in FRACTAL_NZ"
    assert rejection("aclnnNeg", x, nz(x.clone())) == (INVALID, f"aclnnNeg: argument 2 (out) {message}")
    assert rejection("aclnnInplaceCopy", nz(x), x) == (INVALID, f"aclnnInplaceCopy: argument 1 (self) {message}")
    rejected = rejection("aclnnForeachNeg", [x], [nz(x.clone())])
    assert rejected == (INVALID, f"aclnnForeachNeg: argument 2 (out) {message}")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            lambda x: Stored(x, blocks_of(x[:16]), FRACTAL_NZ),
            "is in FRACTAL_NZ, but its storage does not consist of blocks of 16 rows for its shape",
        ),
        (
            lambda x: Stored(x.flatten(), blocks_of(x), FRACTAL_NZ),
            "is a view of FRACTAL_NZ that has another rank; cast the viewed tensor to ND first",
        ),
        (lambda x: Stored(x, x, 3), "is in format 3, which the CPU does not have"),
    ],
)
def test_what_is_in_no_known_layout_is_rejected(argument, message):
    x = random(20, 40)
    given = argument(x)
    out = torch.empty(given.memory.shape)
    assert rejection("aclnnNeg", given, out) == (INVALID, f"aclnnNeg: argument 1 (self) {message}")


def cast(tensor):
    result = torch_npu.npu_format_cast(tensor, FRACTAL_NZ)
    assert torch_npu.get_npu_format(result) == FRACTAL_NZ
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_a_weight_is_cast_to_blocks_and_back(size, dtype):
    matrix = random(*size, dtype=dtype)
    weight = cast(matrix.npu())
    assert weight.shape == matrix.shape and weight.stride() == matrix.stride()
    assert weight.untyped_storage().nbytes() == blocks_of(matrix).nbytes
    assert weight.cpu().equal(matrix)
    back = torch_npu.npu_format_cast(weight, ND)
    assert torch_npu.get_npu_format(back) == ND and back.cpu().equal(matrix)


def test_blocks_lie_as_upstream_describes_them():
    matrix = random(20, 40, dtype=torch.int8)
    weight = cast(matrix.npu())
    stored = torch.empty_like(blocks_of(matrix))
    torch.npu.synchronize()
    to, size, source = ctypes.c_void_p(stored.data_ptr()), ctypes.c_size_t(stored.nbytes), weight.data_ptr()
    assert ctypes.CDLL("libascendcl.so").aclrtMemcpy(to, size, ctypes.c_void_p(source), size, 2) == 0
    assert stored.equal(blocks_of(matrix))


@pytest.mark.parametrize(
    "view", [lambda x: x.t(), lambda x: x[3:17], lambda x: x[:, 5:30], lambda x: x[::2], lambda x: x[2]]
)
def test_a_view_is_cast(view):
    matrix = random(23, 41)
    weight = torch_npu.npu_format_cast(view(matrix.npu()), FRACTAL_NZ)
    assert weight.cpu().equal(view(matrix))
    assert view(cast(matrix.npu())).cpu().equal(view(matrix))


@pytest.mark.parametrize("shape", [(3, 20, 33), (2, 3, 5, 17)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int32])
def test_stacks_of_matrices_and_wider_elements_are_cast(shape, dtype):
    stack = random(*shape, dtype=dtype)
    assert cast(stack.npu()).cpu().equal(stack)


@pytest.mark.parametrize("shape", [(0, 33), (20, 0)])
def test_an_empty_matrix_is_cast(shape):
    empty = torch.empty(shape, dtype=torch.int8, device="npu")
    assert torch_npu.npu_format_cast(empty, FRACTAL_NZ).cpu().shape == shape


USES = {
    "clone": lambda weight, _: weight.clone(),
    "deepcopy": lambda weight, _: copy.deepcopy(weight),
    "contiguous": lambda weight, _: weight.contiguous(),
    "detach": lambda weight, _: torch.nn.Parameter(weight, requires_grad=False).detach(),
    "cast to a tensor's format": lambda weight, matrix: torch_npu.npu_format_cast(matrix.npu(), weight),
    "cast in place": lambda _, matrix: torch_npu.npu_format_cast_(matrix.npu(), FRACTAL_NZ),
    "blocks to blocks": lambda weight, _: torch.empty_like(weight).copy_(weight),
    "rows to blocks": lambda weight, matrix: torch.empty_like(weight).copy_(matrix.npu()),
    "host to blocks": lambda weight, matrix: torch.empty_like(weight).copy_(matrix),
    "blocks to rows": lambda weight, matrix: torch.empty_like(matrix, device="npu").copy_(weight),
    "blocks to host": lambda weight, matrix: torch.empty_like(matrix).copy_(weight),
    "empty_with_format": lambda _, matrix: torch_npu.empty_with_format(
        matrix.shape, dtype=matrix.dtype, device="npu", acl_format=FRACTAL_NZ
    ).copy_(matrix.npu()),
}


CASTS_THE_DESTINATION = pytest.mark.xfail(
    torch_versions.CASTS_THE_DESTINATION,
    reason="with CANN 9.1 torch_npu casts the destination of the copy",
    strict=True,
)
COPIES_TO_BLOCKS = "rows to blocks", "host to blocks", "empty_with_format"


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(use, marks=[CASTS_THE_DESTINATION] * (name in COPIES_TO_BLOCKS), id=name)
        for name, use in USES.items()
    ],
)
def test_torch_npus_own_functions_keep_the_values(use):
    matrix = random(23, 41)
    assert use(cast(matrix.npu()), matrix).cpu().equal(matrix)


@pytest.mark.skipif(not torch_versions.PRINTS_WEIGHTS_IN_BLOCKS, reason="this torch_npu prints none")
def test_a_weight_in_blocks_is_printed_and_saved(tmp_path):
    matrix = random(23, 41)
    weight = cast(matrix.npu())
    assert repr(weight).startswith("tensor(") and f"{matrix[0, 0].item():.0f}." in repr(weight)
    torch.save(weight, tmp_path / "weight.pt")
    assert torch.load(tmp_path / "weight.pt").cpu().equal(matrix)


def test_without_permission_torch_npu_leaves_a_tensor_in_nd():
    torch.npu.config.allow_internal_format = False
    matrix = random(23, 41)
    weight = torch_npu.npu_format_cast(matrix.npu(), FRACTAL_NZ)
    assert torch_npu.get_npu_format(weight) == ND and weight.cpu().equal(matrix)


def test_other_formats_are_rejected_by_name_and_the_next_call_works():
    with pytest.raises(RuntimeError, match="operator Identity is asked for by the aclop path"):
        torch_npu.npu_format_cast(torch.ones(1, 4, 4, 4, device="npu"), 3)
        torch.npu.synchronize()
    assert cast(torch.ones(5, 7).npu()).cpu().equal(torch.ones(5, 7))


def ones(*shape):
    return torch.ones(shape, dtype=torch.bfloat16, device="npu")


# On tensors in blocks torch_npu leaves aclnn's way for that of aclop, where the graph engine's nodes compute.
OPERATORS = {
    "mm": lambda x: ones(5, 23) @ x,
    "linear": lambda x: torch.nn.functional.linear(ones(5, 41), x),
    "addmm": lambda x: torch.addmm(ones(41), ones(5, 23), x),
    "bmm": lambda x: torch.bmm(ones(2, 5, 23), torch.stack([x, x])),
    "add": lambda x: x + 1,
    "broadcast": lambda x: x * x[:, :1] + x[0],
    "sum": lambda x: x.sum(0),
    "largest": lambda x: x.amax(-1),
    "cast": lambda x: x.float(),
    "cat": lambda x: torch.cat([x, x * 2], 1),
    "transposed": lambda x: x.t().contiguous(),
    "slice": lambda x: x[3:17, 5:30] + 1,
    "stepped": lambda x: x[::2] + 1,
    "row": lambda x: x[7] * 2,
    "flat": lambda x: x.view(-1)[3:100] * 2,
    "reshaped": lambda x: x.reshape(41, 23) * 2,
    "zeros_like": lambda x: torch.zeros_like(x),
    "in place": lambda x: x.clone().add_(1),
    "fmod": lambda x: torch.fmod(x, -7),
    "fmod of tensors": lambda x: torch.fmod(x, x.abs() + 3),
    "remainder": lambda x: torch.remainder(x, -7),
    "round": lambda x: torch.round(x / 8),
    "round to decimals": lambda x: torch.round(x / 8, decimals=2),
    "filled": lambda x: x.clone().fill_(3),
    "zeroed": lambda x: x.clone().zero_(),
}


@pytest.mark.parametrize("function", OPERATORS.values(), ids=OPERATORS)
def test_built_in_operators_read_blocks(function):
    matrix = random(23, 41)
    torch.testing.assert_close(function(cast(matrix.npu())).cpu(), function(matrix.npu()).cpu(), rtol=0, atol=0)


DECIDED = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero of nothing": lambda x: (x > 99).nonzero(),
    "nonzero, a row a dimension": lambda x: x.nonzero(as_tuple=True),
    "masked_select": lambda x: x.masked_select(x > 1),
    "index": lambda x: x[x > 1],
    "index_put": lambda x: x.clone().index_put((x > 1,), torch.tensor(5, dtype=x.dtype, device=x.device)),
    "bincount": lambda x: x.int().flatten().bincount(),
    "unique": lambda x: x.unique(),
    "unique with counts": lambda x: x.unique(return_inverse=True, return_counts=True),
    "unique rows": lambda x: x.unique(dim=0, return_inverse=True, return_counts=True),
    "unique columns": lambda x: x.unique(dim=1),
    "unique_consecutive": lambda x: x.unique_consecutive(return_inverse=True, return_counts=True),
    "unique_consecutive rows": lambda x: x.unique_consecutive(dim=0, return_inverse=True, return_counts=True),
}


@pytest.fixture
def by_aclop():
    torch.npu.set_compile_mode(jit_compile=True)
    yield
    torch.npu.set_compile_mode(jit_compile=False)


@pytest.mark.parametrize("function", DECIDED.values(), ids=DECIDED)
def test_operators_of_the_aclop_path_tell_the_shapes_that_they_decide(function, by_aclop):
    matrix = torch.tensor([[2.0, 0, 2], [1, 1, 0], [1, 1, 0], [2, 0, 2]])
    expected = function(matrix)
    torch.testing.assert_close(function(matrix.npu()), expected, rtol=0, atol=0, check_device=False)


@pytest.mark.parametrize("function", DECIDED.values(), ids=DECIDED)
def test_operators_that_decide_shapes_read_blocks(function):
    matrix = torch.tensor([[2.0, 0, 2], [1, 1, 0], [1, 1, 0], [2, 0, 2]]).bfloat16()
    results = function(cast(matrix.npu()))
    torch.testing.assert_close(results, function(matrix), rtol=0, atol=0, check_device=False)


def test_a_product_of_stacked_matrices_reads_blocks():
    x, stack = random(3, 5, 20), random(3, 20, 33)
    assert torch.bmm(x.npu(), cast(stack.npu())).cpu().equal(torch.bmm(x.npu(), stack.npu()).cpu())


def test_writing_to_a_part_of_blocks_is_an_error_that_leaves_them_alone():
    matrix = random(23, 41)
    weight = cast(matrix.npu())
    with pytest.raises(RuntimeError, match=r"on stream \d+ of device 0 failed"):
        weight[2:5].zero_()
        torch.npu.synchronize()
    assert weight.cpu().equal(matrix)


NODES = {
    "mm": lambda x, weight: x @ weight,
    "linear": lambda x, weight: torch.nn.functional.linear(x, weight.t()),
    "add": lambda x, weight: weight + 1,
    "slice": lambda x, weight: weight[3:7, 2:9] * 2,
    "shape": lambda x, weight: weight.reshape(-1)[5:] + 1,
    "read twice": lambda x, weight: (x @ weight, weight.t() * 2),
    "returned": lambda x, weight: weight + 0,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", NODES.values(), ids=NODES)
def test_nodes_of_a_graph_read_blocks(function, dynamic):
    x, matrix = random(5, 23), random(23, 41)

    def results(weight):
        torch._dynamo.reset()  # torchair keeps the formats of a graph's first call
        graph = torch.compile(function, backend=torchair.get_npu_backend(), dynamic=dynamic, fullgraph=True)
        return [graph(x.npu(), weight) for _ in range(2)]

    torch.testing.assert_close(results(cast(matrix.npu())), results(matrix.npu()), rtol=0, atol=0)
