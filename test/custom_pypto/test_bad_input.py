"""Bad input: refused with operator, argument, expectation and finding, by eager and Meta alike; the process goes on."""

import pytest
import torch
import torch_npu
from attention_calls import CALLS as ATTENTION_CALLS
from indexer_calls import CALLS, int32

import custom_pypto  # noqa: F401

ops = torch.ops.custom_pypto


def half(*shape):
    return torch.zeros(shape, dtype=torch.float16)


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


# What is changed in a good call, and the message it earns, after "argument ".
ADDED_DTYPES = "float16 or bfloat16 or float32 or float64 or int8 or uint8 or int16 or int32 or int64 or bool"
ADD_CUSTOM = {
    "sizes": ((ones(3), ones(4)), "'other' must broadcast with 'self' of shape [3], but its shape is [4]"),
    "inner sizes": (
        (ones(2, 3, 4), ones(2, 1)),
        "'other' must broadcast with 'self' of shape [2, 3, 4], but its shape is [2, 1]",
    ),
    "shorter first": (
        (ones(2), ones(5, 3)),
        "'other' must broadcast with 'self' of shape [2], but its shape is [5, 3]",
    ),
    "empty": ((ones(0), ones(2)), "'other' must broadcast with 'self' of shape [0], but its shape is [2]"),
    "complex self": (
        (ones(3, dtype=torch.complex64), ones(3)),
        f"'self' must be of dtype {ADDED_DTYPES}, but is complex64",
    ),
    "complex other": (
        (ones(3), ones(3, dtype=torch.complex128)),
        f"'other' must be of dtype {ADDED_DTYPES}, but is complex128",
    ),
}

PADDED = CALLS["BSND on PA_BSND"]
PACKED = CALLS["TND on TND"]
UNPAGED = CALLS["BSND on BSND"]

INDEXER = {
    "query dtype": (
        PADDED,
        {"query": ones(2, 3, 6, 16)},
        "'query' must be of dtype float16 or bfloat16, but is float32",
    ),
    "key dtype": (
        PADDED,
        {"key": half(5, 8, 2, 16)},
        "'key' must be of dtype bfloat16, but is float16; 'query' and 'key' have the same dtype",
    ),
    "weights dtype": (
        PADDED,
        {"weights": half(2, 3, 6)},
        "'weights' must be of dtype bfloat16 or float32, but is float16",
    ),
    "query rank": (
        PADDED,
        {"query": half(6, 6, 16).bfloat16()},
        "'query' must have 4 dimensions, [B, S1, N1, D], but its shape is [6, 6, 16]",
    ),
    "packed query rank": (
        PACKED,
        {"query": half(1, 4, 6, 16).bfloat16()},
        "'query' must have 3 dimensions, [T, N1, D], but its shape is [1, 4, 6, 16]",
    ),
    "paged key rank": (
        PADDED,
        {"key": half(40, 2, 16).bfloat16()},
        "'key' must have 4 dimensions, [blocks, block_size, N2, D], but its shape is [40, 2, 16]",
    ),
    "padded key rank": (
        UNPAGED,
        {"key": half(20, 2, 16).bfloat16()},
        "'key' must have 4 dimensions, [B, S2, N2, D], but its shape is [20, 2, 16]",
    ),
    "packed key rank": (
        PACKED,
        {"key": half(1, 20, 2, 16).bfloat16()},
        "'key' must have 3 dimensions, [T2, N2, D], but its shape is [1, 20, 2, 16]",
    ),
    "weights rank": (
        PADDED,
        {"weights": ones(2, 3, 6, 1)},
        "'weights' must have 3 dimensions, [B, S1, N1], but its shape is [2, 3, 6, 1]",
    ),
    "weights size": (
        PADDED,
        {"weights": ones(2, 3, 5)},
        "'weights' must have size 6 in dimension 2 (the same as of 'query'), but its shape is [2, 3, 5]",
    ),
    "key D": (
        PADDED,
        {"key": half(5, 8, 2, 32).bfloat16()},
        "'key' must have size 16 in dimension 3 (D, the last of 'query'), but its shape is [5, 8, 2, 32]",
    ),
    "no D": (
        PADDED,
        {"query": half(2, 3, 6, 0).bfloat16()},
        "'query' must have a last dimension (D) of 1 or more, but that is 0",
    ),
    "key heads": (
        PADDED,
        {"key": half(5, 8, 4, 16).bfloat16()},
        "'key' must have a number of heads (N2) that divides the 6 heads of 'query' (N1), but has 4",
    ),
    "no key heads": (
        PADDED,
        {"key": half(5, 8, 0, 16).bfloat16()},
        "'key' must have a number of heads (N2) of 1 or more, but that is 0",
    ),
    "no block size": (
        PADDED,
        {"key": half(5, 0, 2, 16).bfloat16()},
        "'key' must have a block size of 1 or more, but that is 0",
    ),
    "key batch": (
        UNPAGED,
        {"key": half(3, 20, 2, 16).bfloat16()},
        "'key' must have size 2 in dimension 0 (B, the first of 'query'), but its shape is [3, 20, 2, 16]",
    ),
    "sparse_count 0": (PADDED, {"sparse_count": 0}, "'sparse_count' must be 1 or more, but is 0"),
    "negative sparse_count": (PADDED, {"sparse_count": -5}, "'sparse_count' must be 1 or more, but is -5"),
    "sparse_mode": (
        PADDED,
        {"sparse_mode": 1},
        "'sparse_mode' must be 0 (no mask) or 3 (causal, aligned to the last key), but is 1",
    ),
    "layout_query": (PADDED, {"layout_query": "BNSD"}, "'layout_query' must be 'BSND' or 'TND', but is 'BNSD'"),
    "layout_key": (
        PADDED,
        {"layout_key": "PA_NZ"},
        "'layout_key' must be 'PA_BSND' or 'BSND' or 'TND', but is 'PA_NZ'",
    ),
    "two layouts": (
        UNPAGED,
        {"layout_key": "TND"},
        "'layout_key' must be 'PA_BSND' or the same as layout_query ('BSND'), but is 'TND'",
    ),
    "no query lengths": (
        PACKED,
        {"actual_seq_lengths_query": None},
        "'actual_seq_lengths_query' must be given with layout_query 'TND', but is None",
    ),
    "no key lengths on pages": (
        PADDED,
        {"actual_seq_lengths_key": None},
        "'actual_seq_lengths_key' must be given with layout_key 'PA_BSND', but is None",
    ),
    "no packed key lengths": (
        PACKED,
        {"actual_seq_lengths_key": None},
        "'actual_seq_lengths_key' must be given with layout_key 'TND', but is None",
    ),
    "lengths' dtype": (
        PADDED,
        {"actual_seq_lengths_key": int32(20, 9).long()},
        "'actual_seq_lengths_key' must be of dtype int32, but is int64; convert it with .int()",
    ),
    "lengths' rank": (
        PADDED,
        {"actual_seq_lengths_key": int32(20, 9).view(2, 1)},
        "'actual_seq_lengths_key' must have 1 dimensions, [B], but its shape is [2, 1]",
    ),
    "lengths' size": (
        PADDED,
        {"actual_seq_lengths_key": int32(20, 9, 1)},
        "'actual_seq_lengths_key' must have size 2 in dimension 0 (B, the first of 'query'), but its shape is [3]",
    ),
    "query lengths' size": (
        UNPAGED,
        {"actual_seq_lengths_query": int32(1)},
        "'actual_seq_lengths_query' must have size 2 in dimension 0 (B, the first of 'query'), but its shape is [1]",
    ),
    "packed lengths differ": (
        PACKED,
        {"actual_seq_lengths_key": int32(20)},
        "'actual_seq_lengths_key' must have size 2 in dimension 0 (B, as 'actual_seq_lengths_query' has), but its "
        "shape is [1]",
    ),
    "no block table": (
        PADDED,
        {"block_table": None},
        "'block_table' must be given with layout_key 'PA_BSND', but is None",
    ),
    "a block table without pages": (
        UNPAGED,
        {"block_table": int32(1, 2).view(2, 1)},
        "'block_table' must be None with layout_key 'BSND', whose keys are not paged, but is a tensor",
    ),
    "block table's dtype": (
        PADDED,
        {"block_table": torch.zeros(2, 3, dtype=torch.int64)},
        "'block_table' must be of dtype int32, but is int64; convert it with .int()",
    ),
    "block table's rank": (
        PADDED,
        {"block_table": int32(1, 2)},
        "'block_table' must have 2 dimensions, [B, blocks a sequence], but its shape is [2]",
    ),
    "block table's size": (
        PADDED,
        {"block_table": int32(1, 2, 3).view(3, 1)},
        "'block_table' must have size 2 in dimension 0 (B, the first of 'query'), but its shape is [3, 1]",
    ),
}


ATTENTION_PADDED = ATTENTION_CALLS["BSND on PA_BSND"]
ATTENTION_PACKED = ATTENTION_CALLS["TND on TND"]

# What the attention checks beside what it shares with the indexer; of that, where arguments are called otherwise.
ATTENTION = {
    "value dtype": (
        ATTENTION_PADDED,
        {"value": half(5, 8, 2, 12)},
        "'value' must be of dtype bfloat16, but is float16; 'query' and 'value' have the same dtype",
    ),
    "value rank": (
        ATTENTION_PADDED,
        {"value": half(40, 2, 12).bfloat16()},
        "'value' must have 4 dimensions, as 'key' has, the last of them Dv, but its shape is [40, 2, 12]",
    ),
    "value heads": (
        ATTENTION_PADDED,
        {"value": half(5, 8, 1, 12).bfloat16()},
        "'value' must have size 2 in dimension 2 (the same as of 'key'), but its shape is [5, 8, 1, 12]",
    ),
    "value blocks": (
        ATTENTION_PADDED,
        {"value": half(4, 8, 2, 12).bfloat16()},
        "'value' must have size 5 in dimension 0 (the same as of 'key'), but its shape is [4, 8, 2, 12]",
    ),
    "no Dv": (
        ATTENTION_PADDED,
        {"value": half(5, 8, 2, 0).bfloat16()},
        "'value' must have a last dimension (Dv) of 1 or more, but that is 0",
    ),
    "indices' dtype": (
        ATTENTION_PADDED,
        {"sparse_indices": torch.zeros(2, 3, 2, 7, dtype=torch.int64)},
        "'sparse_indices' must be of dtype int32, but is int64; convert it with .int()",
    ),
    "indices' rank": (
        ATTENTION_PADDED,
        {"sparse_indices": int32(0).expand(2, 3, 7)},
        "'sparse_indices' must have 4 dimensions, [B, S1, N2, k], but its shape is [2, 3, 7]",
    ),
    "packed indices' rank": (
        ATTENTION_PACKED,
        {"sparse_indices": int32(0).expand(1, 4, 2, 7)},
        "'sparse_indices' must have 3 dimensions, [T, N2, k], but its shape is [1, 4, 2, 7]",
    ),
    "indices' tokens": (
        ATTENTION_PADDED,
        {"sparse_indices": int32(0).expand(2, 4, 2, 7)},
        "'sparse_indices' must have size 3 in dimension 1 (the same as of 'query'), but its shape is [2, 4, 2, 7]",
    ),
    "indices' heads": (
        ATTENTION_PADDED,
        {"sparse_indices": int32(0).expand(2, 3, 6, 7)},
        "'sparse_indices' must have size 2 in dimension 2 (N2, the heads of 'key'), but its shape is [2, 3, 6, 7]",
    ),
    "no k": (
        ATTENTION_PADDED,
        {"sparse_indices": int32(0).expand(2, 3, 2, 1)[..., :0]},
        "'sparse_indices' must have a last dimension (k) of 1 or more, but that is 0",
    ),
    "no key_rope": (
        ATTENTION_PADDED,
        {"key_rope": None},
        "'key_rope' must be given with 'query_rope', but is None",
    ),
    "no query_rope": (
        ATTENTION_PADDED,
        {"query_rope": None},
        "'query_rope' must be given with 'key_rope', but is None",
    ),
    "query_rope dtype": (
        ATTENTION_PADDED,
        {"query_rope": half(2, 3, 6, 4)},
        "'query_rope' must be of dtype bfloat16, but is float16; 'query' and 'query_rope' have the same dtype",
    ),
    "key_rope dtype": (
        ATTENTION_PADDED,
        {"key_rope": ones(5, 8, 2, 4)},
        "'key_rope' must be of dtype bfloat16, but is float32; 'query' and 'key_rope' have the same dtype",
    ),
    "query_rope size": (
        ATTENTION_PADDED,
        {"query_rope": half(2, 3, 2, 4).bfloat16()},
        "'query_rope' must have size 6 in dimension 2 (the same as of 'query'), but its shape is [2, 3, 2, 4]",
    ),
    "key_rope size": (
        ATTENTION_PADDED,
        {"key_rope": half(5, 7, 2, 4).bfloat16()},
        "'key_rope' must have size 8 in dimension 1 (the same as of 'key'), but its shape is [5, 7, 2, 4]",
    ),
    "two Dr": (
        ATTENTION_PADDED,
        {"key_rope": half(5, 8, 2, 6).bfloat16()},
        "'key_rope' must have size 4 in dimension 3 (Dr, the last of 'query_rope'), but its shape is [5, 8, 2, 6]",
    ),
    "no Dr": (
        ATTENTION_PADDED,
        {"query_rope": half(2, 3, 6, 0).bfloat16(), "key_rope": half(5, 8, 2, 0).bfloat16()},
        "'query_rope' must have a last dimension (Dr) of 1 or more, but that is 0",
    ),
    "key dtype": (
        ATTENTION_PADDED,
        {"key": half(5, 8, 2, 16)},
        "'key' must be of dtype bfloat16, but is float16; 'query' and 'key' have the same dtype",
    ),
    "key size": (
        ATTENTION_PADDED,
        {"key": half(5, 8, 2, 32).bfloat16()},
        "'key' must have size 16 in dimension 3 (D, the last of 'query'), but its shape is [5, 8, 2, 32]",
    ),
    "sparse_mode": (
        ATTENTION_PADDED,
        {"sparse_mode": 2},
        "'sparse_mode' must be 0 (no mask) or 3 (causal, aligned to the last key), but is 2",
    ),
    "layout_kv": (
        ATTENTION_PADDED,
        {"layout_kv": "PA_NZ"},
        "'layout_kv' must be 'PA_BSND' or 'BSND' or 'TND', but is 'PA_NZ'",
    ),
    "two layouts": (
        ATTENTION_PACKED,
        {"layout_kv": "BSND"},
        "'layout_kv' must be 'PA_BSND' or the same as layout_query ('TND'), but is 'BSND'",
    ),
    "no query lengths": (
        ATTENTION_PACKED,
        {"actual_seq_lengths_query": None},
        "'actual_seq_lengths_query' must be given with layout_query 'TND', but is None",
    ),
    "no key lengths on pages": (
        ATTENTION_PADDED,
        {"actual_seq_lengths_kv": None},
        "'actual_seq_lengths_kv' must be given with layout_kv 'PA_BSND', but is None",
    ),
    "no packed key lengths": (
        ATTENTION_PACKED,
        {"actual_seq_lengths_kv": None},
        "'actual_seq_lengths_kv' must be given with layout_kv 'TND', but is None",
    ),
    "lengths' size": (
        ATTENTION_PADDED,
        {"actual_seq_lengths_kv": int32(20, 9, 1)},
        "'actual_seq_lengths_kv' must have size 2 in dimension 0 (B, the first of 'query'), but its shape is [3]",
    ),
    "no block table": (
        ATTENTION_PADDED,
        {"block_table": None},
        "'block_table' must be given with layout_kv 'PA_BSND', but is None",
    ),
    "a block table without pages": (
        ATTENTION_PACKED,
        {"block_table": int32(1, 2).view(2, 1)},
        "'block_table' must be None with layout_kv 'TND', whose keys are not paged, but is a tensor",
    ),
}


def to(device, value):
    return value.to(device) if isinstance(value, torch.Tensor) else value


def message_of(call) -> str:
    with pytest.raises(RuntimeError) as caught:
        call()
    return str(caught.value).splitlines()[0]


def assert_process_goes_on():
    x = torch.arange(4.0)
    assert torch.equal((ops.add_custom(x.npu(), x.npu()) * 2).cpu(), x * 4)


@pytest.mark.parametrize("device", ["npu", "meta"])
@pytest.mark.parametrize("case", ADD_CUSTOM)
def test_add_custom_refuses(case, device):
    arguments, expected = ADD_CUSTOM[case]
    message = message_of(lambda: ops.add_custom(*(to(device, value) for value in arguments)))
    assert message == f"custom_pypto::add_custom: argument {expected}"
    assert_process_goes_on()


@pytest.mark.parametrize("device", ["npu", "meta"])
@pytest.mark.parametrize("case", INDEXER)
def test_the_indexer_refuses(case, device):
    good, changes, expected = INDEXER[case]
    arguments = {name: to(device, value) for name, value in (good() | changes).items()}
    message = message_of(lambda: ops.npu_lightning_indexer_pto(**arguments))
    assert message == f"custom_pypto::npu_lightning_indexer_pto: argument {expected}"
    assert_process_goes_on()


@pytest.mark.parametrize("device", ["npu", "meta"])
@pytest.mark.parametrize("case", ATTENTION)
def test_the_attention_refuses(case, device):
    good, changes, expected = ATTENTION[case]
    arguments = {name: to(device, value) for name, value in (good() | changes).items()}
    message = message_of(lambda: ops.npu_sparse_flash_attention_pto(**arguments))
    assert message == f"custom_pypto::npu_sparse_flash_attention_pto: argument {expected}"
    assert_process_goes_on()


def test_backward_refuses_complex_gradients():
    for device in ("npu", "meta"):
        message = message_of(lambda: ops.add_custom_backward(torch.ones(3, dtype=torch.complex64, device=device)))  # noqa: B023
        assert "custom_pypto::add_custom_backward: argument 'self' must be of dtype" in message


# ---- devices


def test_tensors_on_the_cpu_are_refused():
    expected = "custom_pypto::add_custom: argument 'self' must be on an NPU, but is on cpu; move it there with .npu()"
    assert message_of(lambda: ops.add_custom(torch.ones(3), torch.ones(3))) == expected
    message = message_of(lambda: ops.add_custom_backward(torch.ones(3)))
    assert message == expected.replace("add_custom:", "add_custom_backward:")
    message = message_of(lambda: ops.npu_lightning_indexer_pto(**PADDED()))
    assert message == expected.replace("add_custom", "npu_lightning_indexer_pto").replace("self", "query")
    message = message_of(lambda: ops.npu_sparse_flash_attention_pto(**ATTENTION_PADDED()))
    assert message == expected.replace("add_custom", "npu_sparse_flash_attention_pto").replace("self", "query")


@pytest.mark.parametrize("left", ["cpu", "npu:0", "npu:1", "meta"])
@pytest.mark.parametrize("right", ["cpu", "npu:0", "npu:1", "meta"])
def test_add_custom_refuses_tensors_on_different_devices(left, right):
    if left == right:
        return
    message = message_of(lambda: ops.add_custom(torch.ones(3, device=left), torch.ones(3, device=right)))
    assert message.startswith("custom_pypto::add_custom: argument '")
    assert " must be on " in message
    assert_process_goes_on()


@pytest.mark.parametrize("device", ["cpu", "npu:1", "meta"])
@pytest.mark.parametrize("call", ["BSND on PA_BSND", "TND on TND"])
@pytest.mark.parametrize(
    ("operator", "calls"), [("npu_lightning_indexer_pto", CALLS), ("npu_sparse_flash_attention_pto", ATTENTION_CALLS)]
)
def test_the_argument_on_another_device_is_named(operator, calls, call, device):
    good = {name: to("npu:0", value) for name, value in calls[call]().items()}
    for name, value in good.items():
        if isinstance(value, torch.Tensor) and name != "query":
            message = message_of(lambda: getattr(ops, operator)(**good | {name: value.to(device)}))  # noqa: B023
            assert message == (
                f"custom_pypto::{operator}: argument '{name}' must be on npu:0 as 'query' is, "
                f"but is on {device}; move it there with .to()"
            )
    assert_process_goes_on()


# ---- formats


@pytest.fixture
def internal_formats():
    torch.npu.config.allow_internal_format = True
    yield
    torch.npu.config.allow_internal_format = False


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("add_custom", {"self": ones(20, 40), "other": ones(20, 40)}),
        ("add_custom_backward", {"self": ones(20, 40)}),
        ("npu_lightning_indexer_pto", CALLS["BSND on PA_BSND"]()),
        ("npu_sparse_flash_attention_pto", ATTENTION_CALLS["BSND on PA_BSND"]()),
    ],
)
def test_blocks_are_refused_where_the_kernel_reads_rows(operator, arguments, internal_formats):
    good = {name: to("npu", value) for name, value in arguments.items()}
    for name, value in good.items():
        if isinstance(value, torch.Tensor) and value.dim() > 1:
            blocks = torch_npu.npu_format_cast(value, 29)
            message = message_of(lambda: getattr(ops, operator)(**good | {name: blocks}))  # noqa: B023
            assert message == (
                f"custom_pypto::{operator}: argument '{name}' must be in format ND, but is in FRACTAL_NZ; "
                f"cast it with torch_npu.npu_format_cast({name}, 2)"
            )
    assert_process_goes_on()


# ---- no data


def test_a_tensor_whose_memory_was_given_back_is_refused():
    x = torch.ones(4).npu()
    x.untyped_storage().resize_(0)
    message = message_of(lambda: ops.add_custom(x, torch.ones(4).npu()))
    assert message == (
        "aclnnAddCustom: a tensor of shape [4] reaches 16 bytes into its storage, which has 0 "
        "(its data is null or was freed)"
    )
    assert_process_goes_on()


@pytest.mark.parametrize("device", ["npu", "meta"])
def test_none_is_refused_where_a_tensor_is_needed(device):
    x = torch.ones(3, device=device)
    undefined = "must be a tensor, but is undefined (null)"
    assert message_of(lambda: ops.add_custom(x, None)) == f"custom_pypto::add_custom: argument 'other' {undefined}"
    assert message_of(lambda: ops.add_custom(None, x)) == f"custom_pypto::add_custom: argument 'self' {undefined}"
    good = {name: to(device, value) for name, value in PADDED().items()}
    for name in ("key", "weights"):
        message = message_of(lambda: ops.npu_lightning_indexer_pto(**good | {name: None}))  # noqa: B023
        assert message == f"custom_pypto::npu_lightning_indexer_pto: argument '{name}' {undefined}"
    good = {name: to(device, value) for name, value in ATTENTION_PADDED().items()}
    for name in ("key", "value", "sparse_indices"):
        message = message_of(lambda: ops.npu_sparse_flash_attention_pto(**good | {name: None}))  # noqa: B023
        assert message == f"custom_pypto::npu_sparse_flash_attention_pto: argument '{name}' {undefined}"
    assert_process_goes_on()


def test_sparse_tensors_are_refused():
    sparse = torch.eye(3).to_sparse()
    with pytest.raises((RuntimeError, NotImplementedError)):
        ops.add_custom(sparse.to("meta"), torch.ones(3, device="meta"))
