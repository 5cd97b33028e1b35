# SPDX-License-Identifier: Apache-2.0
"""The operator package's aclnn functions, called as C functions on the memory of npu tensors."""

import functools
import re
from pathlib import Path

import aclnn
import pytest
import references
import torch
from aclnn import INVALID, NULL_POINTER, TILING
from kernels import VENDOR

VECTOR = [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int16]  # what the vector unit adds

call = functools.partial(aclnn.call, f"{VENDOR}/op_api/lib/libcust_opapi.so")


def values(*shape, dtype):
    return torch.randn(shape).mul_(50).to(dtype)


BROADCASTS = [
    ((), ()),
    ((7,), (7,)),
    ((3, 1, 5), (4, 1)),
    ((0, 3), (3,)),
    ((1,), (129, 3)),
    ((200, 211), (200, 211)),
    ((5, 1, 1, 8193), (1, 3, 2, 1)),
    ((2, 1, 3, 1, 2, 1, 3, 1), (1, 2, 1, 3, 1, 2, 1, 3)),
    ((4, 1, 6), (4, 5, 6)),
    ((1, 1), (1,)),
]


@pytest.mark.parametrize("dtype", VECTOR, ids=str)
@pytest.mark.parametrize(("self_shape", "other_shape"), BROADCASTS)
def test_add_custom_broadcasts(self_shape, other_shape, dtype):
    a, b = values(*self_shape, dtype=dtype), values(*other_shape, dtype=dtype)
    expected = a + b
    out = torch.empty_like(expected).npu()
    call("aclnnAddCustom", a.npu(), b.npu(), out)
    assert torch.equal(out.cpu(), expected)


def test_add_custom_honours_strides_and_offsets():
    a, b = values(6, 8, dtype=torch.float32), values(8, dtype=torch.float32)
    out = torch.full((9, 7), 5.0).npu()
    call("aclnnAddCustom", a.npu().t()[2:], b.npu()[2:, None].expand(6, 6), out[1:7, 1:])
    expected = torch.full((9, 7), 5.0)
    expected[1:7, 1:] = a.t()[2:] + b[2:, None]
    assert torch.equal(out.cpu(), expected)


def test_add_custom_may_write_to_its_input():
    a = values(100, dtype=torch.float16)
    out = a.npu()
    call("aclnnAddCustom", out, out, out)
    assert torch.equal(out.cpu(), a + a)


@pytest.mark.parametrize("dtype", VECTOR, ids=str)
@pytest.mark.parametrize(("self_shape", "other_shape"), BROADCASTS)
def test_broadcasting_breaks_no_rule_of_the_hardware(monkeypatch, self_shape, other_shape, dtype):
    monkeypatch.setenv("ASCENDC_CPU_CHECKS", "1")
    test_add_custom_broadcasts(self_shape, other_shape, dtype)


@pytest.mark.parametrize("dtype", VECTOR, ids=str)
@pytest.mark.parametrize("size", [0, 1, 13, 8193, 100_003])
def test_the_kernel_of_add_custom_breaks_no_rule_of_the_hardware(monkeypatch, size, dtype):
    monkeypatch.setenv("ASCENDC_CPU_CHECKS", "1")
    a, b = values(size, dtype=dtype), values(size, dtype=dtype)
    out = torch.empty_like(a).npu()
    call("aclnnAddCustom", a.npu(), b.npu(), out)
    assert torch.equal(out.cpu(), a + b)
    call("aclnnAddCustom", out, out, out)
    assert torch.equal(out.cpu(), (a + b) + (a + b))


# All dtypes of its OpDef but float64, which npu() converts to float32.
COPIED = [*VECTOR, torch.int8, torch.uint8, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", COPIED, ids=str)
@pytest.mark.parametrize("shape", [(5, 7), (0, 7), (65_537, 5)])
def test_add_custom_grad_gives_two_copies(shape, dtype, monkeypatch):
    monkeypatch.setenv("ASCENDC_CPU_CHECKS", "1")
    grad = values(*shape, dtype=dtype)
    grad_self, grad_other = torch.zeros(shape, dtype=dtype).npu(), torch.zeros(shape[::-1], dtype=dtype).npu().t()
    call("aclnnAddCustomGrad", grad.npu().clone(), grad_self, grad_other)
    assert torch.equal(grad_self.cpu(), grad)
    assert torch.equal(grad_other.cpu(), grad)


def expect_rejection(name, arguments, status, message):
    with pytest.raises(aclnn.Rejected) as rejected:
        call(name, *arguments)
    rejected_with, text = rejected.value.args
    assert rejected_with == status
    assert re.search(f"^{name}: .*{message}", text), text


def npu(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype).npu()


@pytest.mark.parametrize(
    ("name", "arguments", "status", "message"),
    [
        ("aclnnAddCustom", lambda: (None, npu(2), npu(2)), NULL_POINTER, "self is null; it is required"),
        ("aclnnAddCustom", lambda: (npu(2), npu(2), None), NULL_POINTER, "out is null; it is required"),
        ("aclnnAddCustom", lambda: (npu(2), npu(3), npu(3)), TILING, r"other must broadcast with self.*\[2\].*\[3\]"),
        ("aclnnAddCustom", lambda: (npu(2), npu(2), npu(3)), TILING, r"out must have shape \[2\], but has shape \[3\]"),
        ("aclnnAddCustom", lambda: (npu(3), npu(3), npu(2)), TILING, r"out must have shape \[3\], but has shape \[2\]"),
        (
            "aclnnAddCustom",
            lambda: (npu(2), npu(2, dtype=torch.int8), npu(2)),
            INVALID,
            "other is int8; expected float16, bfloat16, float32, int16, int32",
        ),
        (
            "aclnnAddCustom",
            lambda: (npu(2), npu(2), npu(2, dtype=torch.int32)),
            INVALID,
            "the dtypes do not go together: self float32, other float32, out int32",
        ),
        (
            "aclnnAddCustomGrad",
            lambda: (npu(2), npu(2), npu(3)),
            TILING,
            r"gradOtherOut must have shape \[2\], but has shape \[3\]",
        ),
        (
            "aclnnAddCustomGrad",
            lambda: (npu(2), npu(2, dtype=torch.bool), npu(2)),
            INVALID,
            "the dtypes do not go together: self float32, grad_self bool, grad_other float32",
        ),
        (
            "aclnnAddCustomGrad",
            lambda: (npu(2, dtype=torch.float8_e5m2), npu(2), npu(2)),
            INVALID,
            "self is float8_e5m2; expected float16, bfloat16, float32, float64, int8, uint8, int16, int32, int64, bool",
        ),
    ],
)
def test_add_custom_rejects_what_does_not_fit(name, arguments, status, message):
    expect_rejection(name, arguments(), status, message)


def indexer_arguments(**changes):
    """Arguments that fit together, in the order of the C function, but for the changes."""
    arguments = {
        "query": npu(2, 3, 4, 8, dtype=torch.bfloat16),
        "key": npu(5, 16, 2, 8, dtype=torch.bfloat16),
        "weights": npu(2, 3, 4, dtype=torch.bfloat16),
        "actual_seq_lengths_query": npu(2, dtype=torch.int32),
        "actual_seq_lengths_key": npu(2, dtype=torch.int32),
        "block_table": npu(2, 3, dtype=torch.int32),
        "layout_query": "BSND",
        "layout_key": "PA_BSND",
        "sparse_count": 6,
        "sparse_mode": 3,
        "return_value": False,
        "sparse_indices": npu(2, 3, 2, 6, dtype=torch.int32),
        "sparse_values": npu(0, dtype=torch.bfloat16),
    }
    return list({**arguments, **changes}.values())


BF16 = {"dtype": torch.bfloat16}
INT32 = {"dtype": torch.int32}


@pytest.mark.parametrize("name", ["query", "key", "weights", "sparse_indices", "sparse_values"])
def test_the_indexer_rejects_a_null_pointer(name):
    message = f"{name} is null; it is required"
    expect_rejection("aclnnLightningIndexerPto", indexer_arguments(**{name: None}), NULL_POINTER, message)


def on_npu(inputs, out):
    moved = {name: value.npu() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    changes = {"actual_seq_lengths_query": None, **moved, "sparse_count": out.shape[-1], "sparse_indices": out}
    return indexer_arguments(**changes)


def test_the_indexer_writes_through_strides():
    inputs = references.lightning_indexer_inputs([100, 5], queries=2, heads=4, depth=8)
    out = torch.full((2, 2, 1, 40), 7, dtype=torch.int32).npu()
    call("aclnnLightningIndexerPto", *on_npu(inputs, out[..., ::2]))
    references.check_lightning_indexer(out[..., ::2].cpu(), **inputs)
    assert (out[..., 1::2].cpu() == 7).all()


def test_the_indexer_writes_values_through_strides():
    inputs = references.lightning_indexer_inputs([100, 5], queries=2, heads=4, depth=8)
    out = torch.full((2, 2, 1, 20), 7, dtype=torch.int32).npu()
    values = torch.full((2, 2, 1, 60), 7.0).bfloat16().npu()
    arguments = {**inputs, "return_value": True, "sparse_values": values[..., ::3]}
    call("aclnnLightningIndexerPto", *on_npu(arguments, out))
    references.check_lightning_indexer(out.cpu(), **inputs, values=values[..., ::3].cpu())
    assert (values[..., 1::3].cpu() == 7).all()


def test_the_indexer_writes_nothing_when_it_rejects_a_value():
    inputs = references.lightning_indexer_inputs([300] * 8, heads=4, depth=8)
    inputs["block_table"][7, 2] = 99
    out = torch.full((8, 1, 1, 20), 7, dtype=torch.int32).npu()
    with pytest.raises(RuntimeError, match=r"aclnnLightningIndexerPto: .*block_table\[7\]\[2\] is 99"):
        call("aclnnLightningIndexerPto", *on_npu(inputs, out))
    assert (out.cpu() == 7).all()


def attention_arguments(**changes):
    """Arguments that fit together, in the order of the C function, but for the changes."""
    arguments = {
        "query": npu(2, 3, 4, 8, dtype=torch.bfloat16),
        "key": npu(5, 16, 2, 8, dtype=torch.bfloat16),
        "value": npu(5, 16, 2, 6, dtype=torch.bfloat16),
        "sparse_indices": npu(2, 3, 2, 7, dtype=torch.int32),
        "block_table": npu(2, 3, dtype=torch.int32),
        "actual_seq_lengths_query": npu(2, dtype=torch.int32),
        "actual_seq_lengths_kv": npu(2, dtype=torch.int32),
        "query_rope": npu(2, 3, 4, 2, dtype=torch.bfloat16),
        "key_rope": npu(5, 16, 2, 2, dtype=torch.bfloat16),
        "attention_sinks": None,
        "scale_value": 0.5,
        "layout_query": "BSND",
        "layout_kv": "PA_BSND",
        "sparse_mode": 3,
        "return_softmax_lse": False,
        "attention_out": npu(2, 3, 4, 6, dtype=torch.bfloat16),
        "softmax_lse": npu(0),
    }
    return list({**arguments, **changes}.values())


@pytest.mark.parametrize("name", ["query", "key", "value", "sparse_indices", "attention_out", "softmax_lse"])
def test_the_attention_rejects_a_null_pointer(name):
    message = f"{name} is null; it is required"
    expect_rejection("aclnnSparseFlashAttentionPto", attention_arguments(**{name: None}), NULL_POINTER, message)


def attention_on_npu(inputs, out):
    moved = {name: value.npu() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    return attention_arguments(**{"actual_seq_lengths_query": None, **moved, "attention_out": out})


def test_the_attention_writes_through_strides():
    inputs = references.sparse_flash_attention_inputs([100, 5], queries=2, heads=4, depth=8, rope_depth=2, count=50)
    out = torch.full((2, 2, 4, 16), 7.0).bfloat16().npu()
    call("aclnnSparseFlashAttentionPto", *attention_on_npu(inputs, out[..., ::2]))
    references.check_attention(out[..., ::2].cpu(), references.sparse_flash_attention(**inputs))
    assert (out[..., 1::2].cpu() == 7).all()


def test_the_attention_writes_logarithms_through_strides():
    inputs = references.sparse_flash_attention_inputs([100, 5], queries=2, heads=4, depth=8, rope_depth=2, count=50)
    inputs["attention_sinks"] = torch.randn(4, 2)[:, 0]
    out, lse = torch.zeros(2, 2, 4, 8).bfloat16().npu(), torch.full((2, 2, 4, 3), 7.0).npu()
    arguments = {**inputs, "return_softmax_lse": True, "softmax_lse": lse[..., 1]}
    call("aclnnSparseFlashAttentionPto", *attention_on_npu(arguments, out))
    expected = references.sparse_flash_attention(**inputs, return_softmax_lse=True)
    references.check_attention(out.cpu(), expected[0])
    references.check_softmax_lse(lse[..., 1].cpu(), expected[1])
    assert (lse[..., ::2].cpu() == 7).all()


def test_the_attention_writes_nothing_when_it_rejects_a_value():
    inputs = references.sparse_flash_attention_inputs([300] * 8, heads=4, depth=8, rope_depth=2, count=50)
    inputs["sparse_indices"][7, 0, 0, 49] = -3
    out = torch.full((8, 1, 4, 8), 7.0).bfloat16().npu()
    with pytest.raises(
        RuntimeError, match=r"aclnnSparseFlashAttentionPto: .*sparse_indices\[7\]\[0\]\[0\]\[49\] is -3"
    ):
        call("aclnnSparseFlashAttentionPto", *attention_on_npu(inputs, out))
    assert (out.cpu() == 7).all()


def prolog_arguments(**changes):
    """Arguments that fit together, in the order of the C function, but for the changes."""
    inputs = references.lightning_indexer_prolog_inputs(
        4, hidden=10, q_lora=6, heads=3, depth=8, rope_depth=4, cache=(2, 16)
    )
    arguments = {name: x.npu() if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}
    outputs = {
        "query": npu(4, 3, 8, dtype=torch.int8),
        "query_scale": npu(4, 3, 1, dtype=torch.half),
        "weights": npu(4, 3, dtype=torch.half),
    }
    return {**arguments, "rope_mode": "half", **outputs, **changes}


INT8 = {"dtype": torch.int8}
HALF = {"dtype": torch.half}


def test_the_prolog_rejects_null_pointers():
    for name, argument in prolog_arguments().items():
        if isinstance(argument, torch.Tensor):
            arguments = prolog_arguments(**{name: None}).values()
            message = f"{name} is null; it is required"
            expect_rejection("aclnnLightningIndexerPrologPto", arguments, NULL_POINTER, message)


def test_the_prolog_writes_through_strides():
    arguments = prolog_arguments()
    call("aclnnLightningIndexerPrologPto", *arguments.values())
    outputs = ("query", "query_scale", "weights")
    wide = {name: torch.full((*arguments[name].shape, 2), 7, dtype=arguments[name].dtype).npu() for name in outputs}
    call("aclnnLightningIndexerPrologPto", *(arguments | {name: wide[name][..., 0] for name in outputs}).values())
    for name in outputs:
        assert torch.equal(wide[name][..., 0].cpu(), arguments[name].cpu())
        assert (wide[name][..., 1].cpu() == 7).all()


def test_the_prolog_writes_nothing_when_it_rejects_a_slot():
    arguments = prolog_arguments()
    arguments["idx_k_cache_index"][3] = 32
    before = {name: x.cpu() for name, x in arguments.items() if isinstance(x, torch.Tensor)}
    with pytest.raises(RuntimeError, match=r"aclnnLightningIndexerPrologPto: .*idx_k_cache_index\[3\] is 32"):
        call("aclnnLightningIndexerPrologPto", *arguments.values())
    assert all(torch.equal(arguments[name].cpu(), x) for name, x in before.items())


def layer_arguments(**changes):
    """Arguments that fit together, in the order of the C function, but for the changes."""
    inputs = references.sparse_attention_inputs(
        [20, 40],
        queries=3,
        hidden=10,
        q_lora=6,
        heads=2,
        depth=4,
        rope_depth=2,
        kv_lora=8,
        index_heads=3,
        index_depth=5,
        count=7,
        block_size=16,
    )
    attributes = {
        "sparse_count": inputs.pop("sparse_count"),
        "softmax_scale": 0.0,
        "rms_norm_eps": 1e-5,
        "layer_norm_eps": 1e-6,
        "rope_mode": "interleave",
        "indexer_rope_mode": "half",
    }
    arguments = {name: value.npu() for name, value in inputs.items()} | attributes
    return {**arguments, "attn_out": npu(2, 3, 2, 8, dtype=torch.bfloat16), **changes}


def test_the_layer_rejects_null_pointers():
    for name, argument in layer_arguments().items():
        if isinstance(argument, torch.Tensor):
            arguments = layer_arguments(**{name: None}).values()
            expect_rejection("aclnnSparseAttentionPto", arguments, NULL_POINTER, f"{name} is null; it is required")


def test_the_layer_writes_through_strides():
    arguments = layer_arguments()
    call("aclnnSparseAttentionPto", *arguments.values())
    for view in (lambda wide: wide[..., ::2], lambda wide: wide[:, :3, :, :8]):
        wide = torch.full((2, 4, 2, 16), 7.0).bfloat16().npu()
        out = view(wide)[:, :3]
        call("aclnnSparseAttentionPto", *(arguments | {"attn_out": out}).values())
        assert torch.equal(out.cpu(), arguments["attn_out"].cpu())
        out.fill_(7)
        assert (wide.cpu() == 7).all()


def test_the_layer_writes_nothing_when_it_rejects_a_value():
    for name, index, value in (("cache_index", (1, 2), 112), ("act_seqs", 1, 65), ("block_table", (1, 2), 7)):
        arguments = layer_arguments()
        arguments[name][index] = value
        before = {name: x.cpu() for name, x in arguments.items() if isinstance(x, torch.Tensor)}
        with pytest.raises(RuntimeError, match=rf"aclnnSparseAttentionPto: .*{name}\[1\].* is {value}"):
            call("aclnnSparseAttentionPto", *arguments.values())
        assert all(torch.equal(arguments[name].cpu(), x) for name, x in before.items())


def write_arguments(**changes):
    """Arguments of 4 tokens that fit together, in the order of the C function, but for the changes."""
    inputs = references.reshape_and_cache_inputs(4, heads=2, depth=16, value_depth=32, cache=(3, 8))
    return {name: x.npu() if isinstance(x, torch.Tensor) else x for name, x in inputs.items()} | changes


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        (lambda: {"cache_layout": ""}, TILING, "cache_layout must be ND or NZ, but is ''"),
        (lambda: {"value": None}, TILING, "value and value_cache must be given together, but only value_cache is"),
        (lambda: {"value_cache": None}, TILING, "value and value_cache must be given together, but only value is"),
        (lambda: {"key": npu(4, 32, **INT32)}, INVALID, "key is int32; expected float16, bfloat16, int8, float32"),
        (lambda: {"key": npu(4, 32)}, INVALID, "the dtypes do not go together: key float32"),
        (lambda: {"value": npu(4, 64)}, INVALID, "the dtypes do not go together: .* value float32"),
        (lambda: {"key": npu(32, **BF16)}, TILING, r"key must have shape .*, but has shape \[32\]"),
        (
            lambda: {"key": npu(4, 31, **BF16)},
            TILING,
            r"key must have 32 elements a token, as key_cache has, .* \[4, 31\]",
        ),
        (lambda: {"key": npu(4, 4, 16, **BF16)}, TILING, r"key must have 32 elements a token, as key_cache has"),
        (
            lambda: {"key": npu(3, 2, 16, **BF16)},
            TILING,
            r"key must have the tokens of slot_mapping, whose shape is \[4\], or more, .* \[3, 2, 16\]",
        ),
        (lambda: {"key_cache": npu(24, 32, **BF16)}, TILING, r"key_cache must have shape .* \[24, 32\]"),
        (lambda: {"key_cache": npu(3, 8, 0, **BF16)}, TILING, "key_cache must have 1 element or more of a token"),
        (lambda: {"slot_mapping": npu(2, 2, **INT32)}, TILING, r"key must have the tokens of .* \[2, 2\], but"),
        (lambda: {"key_cache": npu(3, 0, 32, **BF16)}, TILING, "key_cache must have a block_size of 1 or more"),
        (
            lambda: {"cache_layout": "NZ"},
            TILING,
            r"key_cache must .* \[3, 8, 2, 16\]|key must have 128 elements a token",
        ),
        (
            lambda: {"cache_layout": "NZ", "key_cache": npu(3, 1, 8, 32, **BF16)},
            TILING,
            r"key_cache must have shape .* with c0 = 16, but has shape \[3, 1, 8, 32\]",
        ),
        (lambda: {"value_cache": npu(3, 9, 64, **BF16)}, TILING, "value_cache must have the blocks of key_cache"),
        (lambda: {"slot_mapping": npu(4)}, INVALID, "slot_mapping is float32; expected int64, int32"),
        (lambda: {"slot_mapping": npu(1, 1, 4, **INT32)}, TILING, r"slot_mapping must have shape \[T\] or \[B, S\]"),
    ],
)
def test_writing_to_caches_rejects_what_does_not_fit(changes, status, message):
    expect_rejection("aclnnReshapeAndCache", write_arguments(**changes()).values(), status, message)


def test_writing_to_caches_takes_keys_alone():
    arguments = write_arguments(value=None, value_cache=None)
    before = arguments["key_cache"].cpu()
    call("aclnnReshapeAndCache", *arguments.values())
    on_host = {name: x.cpu() if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
    expected, _ = references.reshape_and_cache(**on_host | {"key_cache": before})
    assert torch.equal(arguments["key_cache"].cpu(), expected)


@pytest.mark.parametrize("name", ["key", "key_cache", "slot_mapping"])
def test_writing_to_caches_rejects_null_pointers(name):
    arguments = write_arguments(**{name: None}).values()
    expect_rejection("aclnnReshapeAndCache", arguments, NULL_POINTER, f"{name} is null; it is required")


def step_arguments(**changes):
    """Arguments of 3 sequences and a row of padding, in the order of the C function, but for the changes."""
    inputs = references.advance_step_flashattn_inputs([5, 20, 31], padding=1, dtype=torch.int32)
    numbers = {name: inputs.pop(name) for name in ("num_seqs", "num_queries", "block_size")}
    return {name: x.npu() for name, x in inputs.items()} | numbers | changes


INT64 = {"dtype": torch.int64}


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        (lambda: {"num_queries": 5}, TILING, r"num_queries must be between 0 and num_seqs \(4\), but is 5"),
        (lambda: {"num_queries": -1}, TILING, r"num_queries must be between 0 and num_seqs \(4\), but is -1"),
        (lambda: {"block_size": 0}, TILING, "block_size must be 1 or more, but is 0"),
        (lambda: {"num_seqs": 5}, TILING, r"input_tokens must have size 5 in dimension 0 .* \[4\]"),
        (lambda: {"input_tokens": npu(4, **INT32)}, INVALID, "input_tokens is int32; expected int64"),
        (lambda: {"num_queries": 2}, TILING, r"sampled_token_ids must have size 2 .* \[3, 1\]"),
        (lambda: {"sampled_token_ids": npu(4, **INT64)}, TILING, r"sampled_token_ids must have size 3 in dimension 0"),
        (lambda: {"input_positions": npu(4)}, INVALID, "input_positions is float32; expected int64"),
        (lambda: {"seq_lens": npu(4)}, INVALID, "seq_lens is float32; expected int32, int64"),
        (lambda: {"slot_mapping": npu(3, **INT64)}, TILING, r"slot_mapping must have size 4 .* has shape \[3\]"),
        (
            lambda: {"block_tables": npu(4, **INT32)},
            TILING,
            r"block_tables must have 2 dimensions, .*, but has shape \[4\]",
        ),
        (lambda: {"block_tables": npu(4, 2)}, INVALID, "block_tables is float32; expected int32, int64"),
    ],
)
def test_the_step_rejects_what_does_not_fit(changes, status, message):
    expect_rejection("aclnnAdvanceStepFlashattn", step_arguments(**changes()).values(), status, message)


@pytest.mark.parametrize(
    "name",
    ["input_tokens", "sampled_token_ids", "input_positions", "seq_lens", "slot_mapping", "block_tables"],
)
def test_the_step_rejects_null_pointers(name):
    arguments = step_arguments(**{name: None}).values()
    expect_rejection("aclnnAdvanceStepFlashattn", arguments, NULL_POINTER, f"{name} is null; it is required")


@pytest.mark.parametrize(
    "name",
    [
        "add_custom",
        "add_custom_grad",
        "lightning_indexer_pto",
        "lightning_indexer_prolog_pto",
        "sparse_attention_pto",
        "sparse_flash_attention_pto",
        "reshape_and_cache",
        "advance_step_flashattn",
    ],
)
def test_the_package_has_a_header_for_each_function(name):
    function = "aclnn" + "".join(word.capitalize() for word in name.split("_"))
    assert f"{function}GetWorkspaceSize(" in Path(VENDOR, f"op_api/include/aclnn_{name}.h").read_text()
