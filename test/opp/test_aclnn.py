# SPDX-License-Identifier: Apache-2.0
"""The operator package's aclnn functions, called as C functions on the memory of npu tensors."""

import functools
import re
from pathlib import Path

import aclnn
import goldens
import pytest
import torch
from aclnn import DTYPES, INFER, INVALID, NULL_POINTER, TILING
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


@pytest.mark.parametrize(
    "dtype", [dtype for dtype in DTYPES if dtype != torch.float64], ids=str
)  # npu() makes it float
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
        ("aclnnAddCustom", lambda: (npu(2), npu(3), npu(3)), INFER, r"other must broadcast with self.*\[2\].*\[3\]"),
        ("aclnnAddCustom", lambda: (npu(2), npu(2), npu(3)), TILING, r"out must have shape \[2\], but has shape \[3\]"),
        ("aclnnAddCustom", lambda: (npu(3), npu(3), npu(2)), INVALID, r"out has shape \[2\]; expected \[3\]"),
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
        "out": npu(2, 3, 2, 6, dtype=torch.int32),
    }
    return list({**arguments, **changes}.values())


BF16 = {"dtype": torch.bfloat16}
INT32 = {"dtype": torch.int32}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda: {"layout_query": "SBH"}, "layout_query must be BSND or TND, but is 'SBH'"),
        (lambda: {"layout_key": ""}, "layout_key must be PA_BSND, BSND or TND, but is ''"),
        (lambda: {"layout_key": "TND"}, "layout_key must be PA_BSND or that of the query, BSND, but is TND"),
        (lambda: {"sparse_count": 0}, "sparse_count must be at least 1, but is 0"),
        (lambda: {"sparse_mode": 1}, "sparse_mode must be 0 .* or 3 .*, but is 1"),
        (lambda: {"query": npu(2, 3, 4, 8)}, "query must be bfloat16 or float16, but is Float"),
        (lambda: {"key": npu(5, 16, 2, 8, dtype=torch.half)}, "key must have query's dtype, BFloat16, but is Half"),
        (lambda: {"weights": npu(2, 3, 4, dtype=torch.half)}, "weights must be float32 or have query's dtype"),
        (lambda: {"query": npu(6, 4, 8, **BF16)}, r"query must be 4-dimensional, \(B, S1, N1, D\), .* \[6, 4, 8\]"),
        (lambda: {"key": npu(5, 16, 8, **BF16)}, r"key must be 4-dimensional, \(block_num, block_size, N2, D\)"),
        (lambda: {"key": npu(5, 16, 2, 7, **BF16)}, r"key must have query's head size D = 8, .* \[5, 16, 2, 7\]"),
        (lambda: {"key": npu(5, 16, 3, 8, **BF16)}, "N1 must be a multiple of the number of key heads N2"),
        (lambda: {"key": npu(5, 0, 2, 8, **BF16)}, "key must have pages of at least one token"),
        (lambda: {"weights": npu(2, 3, 1, **BF16)}, r"weights must have shape \(B, S1, N1\) = \[2, 3, 4\], but"),
        (lambda: {"out": npu(2, 3, 2, 7, **INT32)}, r"sparse_indices must have shape .* \[2, 3, 2, 6\], but has"),
        (lambda: {"out": npu(2, 3, 2, 6)}, "sparse_indices must be int32, but is Float"),
        (lambda: {"actual_seq_lengths_key": None}, "actual_seq_lengths_key is required with layout PA_BSND of the key"),
        (lambda: {"actual_seq_lengths_key": npu(2)}, "actual_seq_lengths_key must be int32, but is Float"),
        (lambda: {"actual_seq_lengths_query": npu(3, **INT32)}, "an entry for each of the 2 batch entries"),
        (lambda: {"actual_seq_lengths_query": npu(2, 1, **INT32)}, "actual_seq_lengths_query must be 1-dimensional"),
        (lambda: {"block_table": None}, "block_table is required with layout_key PA_BSND"),
        (lambda: {"block_table": npu(6, **INT32)}, r"block_table must be 2-dimensional, \(B, max_blocks\)"),
        (lambda: {"block_table": npu(3, 2, **INT32)}, r"block_table must have an entry for each .* \[3, 2\]"),
        (lambda: {"layout_key": "BSND"}, r"key must have query's batch size 2, but has shape \[5, 16, 2, 8\]"),
        (
            lambda: {"layout_key": "BSND", "key": npu(2, 9, 2, 8, **BF16)},
            "block_table is taken only with layout_key",
        ),
    ],
)
def test_the_indexer_rejects_what_does_not_fit(changes, message):
    expect_rejection("aclnnLightningIndexerPto", indexer_arguments(**changes()), INVALID, message)


@pytest.mark.parametrize(("name", "position"), [("query", 1), ("key", 2), ("weights", 3), ("out", 11)])
def test_the_indexer_rejects_a_null_pointer(name, position):
    message = f"argument {position} is a null pointer"
    expect_rejection("aclnnLightningIndexerPto", indexer_arguments(**{name: None}), NULL_POINTER, message)


def on_npu(inputs, out):
    moved = {name: value.npu() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    return indexer_arguments(**{"actual_seq_lengths_query": None, **moved, "sparse_count": out.shape[-1], "out": out})


def test_the_indexer_writes_through_strides():
    inputs = goldens.lightning_indexer_inputs([100, 5], queries=2, heads=4, depth=8)
    out = torch.full((2, 2, 1, 40), 7, dtype=torch.int32).npu()
    call("aclnnLightningIndexerPto", *on_npu(inputs, out[..., ::2]))
    goldens.check_lightning_indexer(out[..., ::2].cpu(), **inputs)
    assert (out[..., 1::2].cpu() == 7).all()


def test_the_indexer_writes_nothing_when_it_rejects_a_value():
    inputs = goldens.lightning_indexer_inputs([300] * 8, heads=4, depth=8)
    inputs["block_table"][7, 2] = 99
    out = torch.full((8, 1, 1, 20), 7, dtype=torch.int32).npu()
    with pytest.raises(RuntimeError, match=r"aclnnLightningIndexerPto: block_table\[7\]\[2\] is 99"):
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
        "scale_value": 0.5,
        "layout_query": "BSND",
        "layout_kv": "PA_BSND",
        "sparse_mode": 3,
        "out": npu(2, 3, 4, 6, dtype=torch.bfloat16),
    }
    return list({**arguments, **changes}.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda: {"layout_kv": "NZ"}, "layout_kv must be PA_BSND, BSND or TND, but is 'NZ'"),
        (lambda: {"layout_kv": "TND"}, "layout_kv must be PA_BSND or that of the query, BSND, but is TND"),
        (lambda: {"sparse_mode": 4}, "sparse_mode must be 0 .* or 3 .*, but is 4"),
        (lambda: {"query": npu(2, 3, 4, 8)}, "query must be bfloat16 or float16, but is Float"),
        (lambda: {"key": npu(5, 16, 2, 7, **BF16)}, r"key must have query's head size D = 8, .* \[5, 16, 2, 7\]"),
        (lambda: {"value": npu(5, 16, 2, 6)}, "value must have query's dtype, BFloat16, but is Float"),
        (lambda: {"value": npu(5, 16, 6, **BF16)}, r"value must be 4-dimensional, .* \[5, 16, 6\]"),
        (
            lambda: {"value": npu(5, 8, 2, 6, **BF16)},
            r"value must have shape .* \[5, 16, 2, 6\], but has \[5, 8, 2, 6\]",
        ),
        (lambda: {"value": npu(5, 16, 2, 0, **BF16)}, "value must have a last dimension of at least 1"),
        (lambda: {"sparse_indices": npu(2, 3, 2, 7)}, "sparse_indices must be int32, but is Float"),
        (lambda: {"sparse_indices": npu(2, 3, 1, 7, **INT32)}, r"sparse_indices must have shape \(B, S1, N2, k\)"),
        (lambda: {"query_rope": None}, "must be given together, but only key_rope is"),
        (lambda: {"key_rope": None}, "must be given together, but only query_rope is"),
        (lambda: {"query_rope": npu(2, 3, 4, 2)}, "query_rope must have query's dtype"),
        (lambda: {"query_rope": npu(2, 3, 5, 2, **BF16)}, r"query_rope must have shape .* \[2, 3, 4, 2\]"),
        (lambda: {"key_rope": npu(5, 16, 2, 3, **BF16)}, "key_rope must have query_rope's last size Dr = 2"),
        (lambda: {"key_rope": npu(5, 16, 1, 2, **BF16)}, "key_rope must have shape"),
        (lambda: {"out": npu(2, 3, 4, 8, **BF16)}, r"attention_out must have shape .* \[2, 3, 4, 6\], but has"),
        (lambda: {"out": npu(2, 3, 4, 6)}, "attention_out must have query's dtype"),
        (lambda: {"actual_seq_lengths_kv": None}, "actual_seq_lengths_kv is required with layout PA_BSND of the key"),
        (
            lambda: {"actual_seq_lengths_kv": npu(3, **INT32)},
            "actual_seq_lengths_kv must have an entry for each of the 2",
        ),
        (lambda: {"block_table": None}, "block_table is required with layout_kv PA_BSND"),
    ],
)
def test_the_attention_rejects_what_does_not_fit(changes, message):
    expect_rejection("aclnnSparseFlashAttentionPto", attention_arguments(**changes()), INVALID, message)


@pytest.mark.parametrize(
    ("name", "position"), [("query", 1), ("key", 2), ("value", 3), ("sparse_indices", 4), ("out", 14)]
)
def test_the_attention_rejects_a_null_pointer(name, position):
    message = f"argument {position} is a null pointer"
    expect_rejection("aclnnSparseFlashAttentionPto", attention_arguments(**{name: None}), NULL_POINTER, message)


def attention_on_npu(inputs, out):
    moved = {name: value.npu() if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    return attention_arguments(**{"actual_seq_lengths_query": None, **moved, "out": out})


def test_the_attention_writes_through_strides():
    inputs = goldens.sparse_flash_attention_inputs([100, 5], queries=2, heads=4, depth=8, rope_depth=2, count=50)
    out = torch.full((2, 2, 4, 16), 7.0).bfloat16().npu()
    call("aclnnSparseFlashAttentionPto", *attention_on_npu(inputs, out[..., ::2]))
    goldens.check_attention(out[..., ::2].cpu(), goldens.sparse_flash_attention(**inputs))
    assert (out[..., 1::2].cpu() == 7).all()


def test_the_attention_writes_nothing_when_it_rejects_a_value():
    inputs = goldens.sparse_flash_attention_inputs([300] * 8, heads=4, depth=8, rope_depth=2, count=50)
    inputs["sparse_indices"][7, 0, 0, 49] = -3
    out = torch.full((8, 1, 4, 8), 7.0).bfloat16().npu()
    with pytest.raises(RuntimeError, match=r"aclnnSparseFlashAttentionPto: sparse_indices\[7\]\[0\]\[0\]\[49\] is -3"):
        call("aclnnSparseFlashAttentionPto", *attention_on_npu(inputs, out))
    assert (out.cpu() == 7).all()


def prolog_arguments(**changes):
    """Arguments that fit together, in the order of the C function, but for the changes."""
    inputs = goldens.lightning_indexer_prolog_inputs(
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda: {"layout_query": "PA_BSND"}, "layout_query must be TND or BSND, but is 'PA_BSND'"),
        (lambda: {"layout_key": ""}, "layout_key must be PA_BSND, BSND or TND, but is ''"),
        (lambda: {"rope_mode": "neox"}, "rope_mode must be interleave or half, but is 'neox'"),
        (lambda: {"layernorm_epsilon_k": -1e-9}, "layernorm_epsilon_k must be a finite number of at least 0"),
        (lambda: {"layernorm_epsilon_k": float("nan")}, "layernorm_epsilon_k must be a finite number .* is nan"),
        (lambda: {"token_x": npu(4, 10)}, "token_x must be bfloat16 or float16, but is Float"),
        (lambda: {"token_x": npu(4, 10, **HALF)}, "wk must have token_x's dtype, Half, but is BFloat16"),
        (lambda: {"token_x": npu(2, 2, 10, **BF16)}, r"token_x must be 2-dimensional, \(T, h\), .* \[2, 2, 10\]"),
        (lambda: {"token_x": npu(4, 0, **BF16)}, "token_x must have a size h of at least 1, but it is 0"),
        (lambda: {"token_x": npu(5, 10, **BF16)}, r"q_norm must have shape \(T, q_lora\) = \[5, 6\], but has \[4, 6\]"),
        (lambda: {"layout_query": "BSND"}, r"token_x must be 3-dimensional, \(B, S1, h\), .* \[4, 10\]"),
        (lambda: {"q_norm": npu(4, 6)}, "q_norm must be Char, but is Float"),
        (lambda: {"q_norm": npu(4, 0, **INT8)}, "q_norm must have a size q_lora of at least 1, but it is 0"),
        (lambda: {"q_norm": npu(4, 131072, **INT8)}, "size q_lora of at most 131071, .*, but it is 131072"),
        (lambda: {"q_norm_scale": npu(4)}, r"q_norm_scale must have shape \(T, 1\) = \[4, 1\], but has \[4\]"),
        (lambda: {"q_norm_scale": npu(4, 1, **HALF)}, "q_norm_scale must be Float, but is Half"),
        (lambda: {"wq_b": npu(6, 24)}, "wq_b must be Char, but is Float"),
        (lambda: {"wq_b": npu(6, 3, 8, **INT8)}, r"wq_b must be 2-dimensional, but has shape \[6, 3, 8\]"),
        (
            lambda: {"wq_b": npu(6, 25, **INT8)},
            r"wq_b must have shape \(q_lora, N \* D\) = \[6, 24\], but has \[6, 25\]",
        ),
        (lambda: {"wq_b_scale": npu(24)}, r"wq_b_scale must have shape \(N \* D, 1\) = \[24, 1\], but has \[24\]"),
        (lambda: {"wq_b_scale": npu(24, 1, **BF16)}, "wq_b_scale must be Float, but is BFloat16"),
        (lambda: {"wk": npu(9, 8, **BF16)}, r"wk must have shape \(h, D\) = \[10, 8\], but has \[9, 8\]"),
        (lambda: {"wk": npu(10, 0, **BF16)}, "wk must have a size D of at least 1, but it is 0"),
        (lambda: {"weights_proj": npu(10, 3)}, "weights_proj must have token_x's dtype, BFloat16, but is Float"),
        (lambda: {"weights_proj": npu(9, 3, **BF16)}, r"weights_proj must have shape \(h, N\) = \[10, 3\]"),
        (lambda: {"weights_proj": npu(10, 0, **BF16)}, "weights_proj must have a size N of at least 1"),
        (lambda: {"weights_proj": npu(10, 4, **BF16)}, r"wq_b must have shape .* \[6, 32\], but has \[6, 24\]"),
        (lambda: {"ln_gamma_k": npu(7, **BF16)}, r"ln_gamma_k must have shape \(D\) = \[8\], but has \[7\]"),
        (lambda: {"ln_beta_k": npu(8)}, "ln_beta_k must have token_x's dtype, BFloat16, but is Float"),
        (lambda: {"cos_idx_rope": npu(4, 3, **BF16)}, "cos_idx_rope must have an even last size R from 2 to D = 8"),
        (lambda: {"cos_idx_rope": npu(4, 10, **BF16)}, "cos_idx_rope must have an even last size R from 2 to D = 8"),
        (lambda: {"cos_idx_rope": npu(3, 4, **BF16)}, r"cos_idx_rope must have shape \(T, R\) = \[4, 4\], but has"),
        (lambda: {"sin_idx_rope": npu(4, 2, **BF16)}, r"sin_idx_rope must have shape \(T, R\) = \[4, 4\], but has"),
        (
            lambda: {"hadamard_q": npu(8, 7, **BF16)},
            r"hadamard_q must have shape \(D, D\) = \[8, 8\], but has \[8, 7\]",
        ),
        (lambda: {"hadamard_k": npu(8, 8)}, "hadamard_k must have token_x's dtype, BFloat16, but is Float"),
        (lambda: {"idx_k_cache": npu(2, 16, 1, 8)}, "idx_k_cache must be Char, but is Float"),
        (
            lambda: {"idx_k_cache": npu(32, 1, 8, **INT8)},
            r"idx_k_cache must be 4-dimensional, \(block_num, .* \[32, 1, 8\]",
        ),
        (lambda: {"idx_k_cache": npu(2, 16, 2, 8, **INT8)}, r"idx_k_cache must have shape .* \[2, 16, 1, 8\], but has"),
        (lambda: {"idx_k_cache": npu(2, 16, 1, 9, **INT8)}, r"idx_k_cache must have shape .* \[2, 16, 1, 8\], but has"),
        (lambda: {"layout_key": "TND"}, r"idx_k_cache must be 3-dimensional, \(T2, 1, D\), .* \[2, 16, 1, 8\]"),
        (lambda: {"idx_k_scale_cache": npu(2, 16, 1)}, "idx_k_scale_cache must be Half, but is Float"),
        (
            lambda: {"idx_k_scale_cache": npu(2, 16, 1, 1, **HALF)},
            r"idx_k_scale_cache must have shape \(block_num, block_size, 1\) = \[2, 16, 1\], but has \[2, 16, 1, 1\]",
        ),
        (lambda: {"idx_k_cache_index": npu(4)}, "idx_k_cache_index must be int64 or int32, but is Float"),
        (
            lambda: {"idx_k_cache_index": npu(3, **INT32)},
            r"idx_k_cache_index must have shape \(T\) = \[4\], but has \[3\]",
        ),
        (lambda: {"query": npu(4, 24, **INT8)}, r"query must have shape \(T, N, D\) = \[4, 3, 8\], but has \[4, 24\]"),
        (lambda: {"query": npu(4, 3, 8)}, "query must be Char, but is Float"),
        (lambda: {"query_scale": npu(4, 3, **HALF)}, r"query_scale must have shape \(T, N, 1\) = \[4, 3, 1\], but has"),
        (lambda: {"weights": npu(4, 3)}, "weights must be Half, but is Float"),
    ],
)
def test_the_prolog_rejects_what_does_not_fit(changes, message):
    expect_rejection("aclnnLightningIndexerPrologPto", prolog_arguments(**changes()).values(), INVALID, message)


def test_the_prolog_rejects_null_pointers():
    for position, (name, argument) in enumerate(prolog_arguments().items(), 1):
        if isinstance(argument, torch.Tensor):
            arguments = prolog_arguments(**{name: None}).values()
            expect_rejection(
                "aclnnLightningIndexerPrologPto", arguments, NULL_POINTER, f"argument {position} is a null pointer"
            )


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
    with pytest.raises(RuntimeError, match=r"aclnnLightningIndexerPrologPto: idx_k_cache_index\[3\] is 32"):
        call("aclnnLightningIndexerPrologPto", *arguments.values())
    assert all(torch.equal(arguments[name].cpu(), x) for name, x in before.items())


def layer_arguments(**changes):
    """Arguments that fit together, in the order of the C function, but for the changes."""
    inputs = goldens.sparse_attention_inputs(
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda: {"sparse_count": 0}, "sparse_count must be at least 1, but is 0"),
        (lambda: {"softmax_scale": -1.0}, "softmax_scale must be a finite number of at least 0, but is -1"),
        (lambda: {"softmax_scale": float("inf")}, "softmax_scale must be a finite number .*, but is inf"),
        (lambda: {"rms_norm_eps": float("nan")}, "rms_norm_eps must be a finite number of at least 0, but is nan"),
        (lambda: {"layer_norm_eps": -1e-9}, "layer_norm_eps must be a finite number of at least 0"),
        (lambda: {"rope_mode": "neox"}, "rope_mode must be interleave or half, but is 'neox'"),
        (lambda: {"indexer_rope_mode": ""}, "indexer_rope_mode must be interleave or half, but is ''"),
        (lambda: {"x": npu(2, 3, 10)}, "x must be bfloat16 or float16, but is Float"),
        (lambda: {"x": npu(6, 10, **BF16)}, r"x must be 3-dimensional, \(B, S1, hidden\), but has shape \[6, 10\]"),
        (lambda: {"x": npu(2, 3, 0, **BF16)}, "x must have a size hidden of at least 1, but it is 0"),
        (lambda: {"x": npu(1, 3, 10, **BF16)}, r"sin must have shape \(B, S1, R\) = \[1, 3, 2\], but has \[2, 3, 2\]"),
        (lambda: {"w_dq": npu(10, 6, 1, **BF16)}, r"w_dq must be 2-dimensional, .* \[10, 6, 1\]"),
        (lambda: {"w_dq": npu(9, 6, **BF16)}, r"w_dq must have shape \(hidden, q_lora\) = \[10, 6\], but has \[9, 6\]"),
        (lambda: {"w_uq_qr": npu(6, 13, **BF16)}, r"w_uq_qr must have shape \(q_lora, N \* \(Dn \+ R\)\) = \[6, 12\]"),
        (lambda: {"w_uk": npu(8, 8, **BF16)}, r"w_uk must be 3-dimensional, \(N, Dn, Dkv\), .* \[8, 8\]"),
        (lambda: {"w_uk": npu(2, 0, 8, **BF16)}, "w_uk must have a size Dn of at least 1, but it is 0"),
        (lambda: {"w_dkv_kr": npu(10, 8, **BF16)}, r"w_dkv_kr must have shape \(hidden, Dkv \+ R\) = \[10, 10\]"),
        (lambda: {"gamma_cq": npu(1, **BF16)}, r"gamma_cq must have shape \(q_lora\) = \[6\], but has \[1\]"),
        (lambda: {"gamma_ckv": npu(8, 1, **BF16)}, r"gamma_ckv must have shape \(Dkv\) = \[8\], but has \[8, 1\]"),
        (lambda: {"sin": npu(2, 1, 2, **BF16)}, r"sin must have shape .* \[2, 3, 2\], but has \[2, 1, 2\]"),
        (lambda: {"cos": npu(2, 3, 3, **BF16)}, r"cos must have an even last size R from 2 to D = 5, .* \[2, 3, 3\]"),
        (lambda: {"cos": npu(2, 3, 6, **BF16)}, r"cos must have an even last size R from 2 to D = 5, .* \[2, 3, 6\]"),
        (lambda: {"cache_index": npu(2, 3)}, "cache_index must be int64 or int32, but is Float"),
        (lambda: {"cache_index": npu(6, **INT32)}, r"cache_index must have shape \(B, S1\) = \[2, 3\], but has \[6\]"),
        (lambda: {"kv_cache": npu(7, 16, 8, **BF16)}, r"kv_cache must be 4-dimensional, .* \[7, 16, 8\]"),
        (lambda: {"kv_cache": npu(7, 16, 2, 8, **BF16)}, r"kv_cache must have shape .* \[7, 16, 1, 8\], but has"),
        (lambda: {"kv_cache": npu(7, 0, 1, 8, **BF16)}, "kv_cache must have a size block_size of at least 1"),
        (lambda: {"kr_cache": npu(7, 16, 1, 2)}, "kr_cache must have x's dtype, BFloat16, but is Float"),
        (lambda: {"kr_cache": npu(6, 16, 1, 2, **BF16)}, r"kr_cache must have shape .* \[7, 16, 1, 2\], but has"),
        (lambda: {"block_table": npu(2, 3)}, "block_table must be Int, but is Float"),
        (lambda: {"block_table": npu(6, **INT32)}, r"block_table must be 2-dimensional, \(B, max_blocks\)"),
        (lambda: {"block_table": npu(3, 4, **INT32)}, r"block_table must have shape .* \[2, 4\], but has \[3, 4\]"),
        (lambda: {"act_seqs": npu(2, dtype=torch.int64)}, "act_seqs must be Int, but is Long"),
        (lambda: {"act_seqs": npu(3, **INT32)}, r"act_seqs must have shape \(B\) = \[2\], but has \[3\]"),
        (lambda: {"w_idx_qb": npu(6, 14, **BF16)}, r"w_idx_qb must have shape \(q_lora, Ni \* D\) = \[6, 15\]"),
        (lambda: {"w_idx_k": npu(10, 5)}, "w_idx_k must have x's dtype, BFloat16, but is Float"),
        (lambda: {"w_idx_proj": npu(9, 3, **BF16)}, r"w_idx_proj must have shape \(hidden, Ni\) = \[10, 3\]"),
        (lambda: {"in_gamma_k": npu(4, **BF16)}, r"in_gamma_k must have shape \(D\) = \[5\], but has \[4\]"),
        (lambda: {"in_beta_k": npu(5, dtype=torch.half)}, "in_beta_k must have x's dtype, BFloat16, but is Half"),
        (lambda: {"index_k_cache": npu(7, 8, 1, 5, **BF16)}, r"index_k_cache must have shape .* \[7, 16, 1, 5\]"),
        (lambda: {"attn_out": npu(2, 3, 2, 7, **BF16)}, r"attn_out must have shape .* \[2, 3, 2, 8\], but has"),
    ],
)
def test_the_layer_rejects_what_does_not_fit(changes, message):
    expect_rejection("aclnnSparseAttentionPto", layer_arguments(**changes()).values(), INVALID, message)


def test_the_layer_rejects_null_pointers():
    for position, name in enumerate(layer_arguments(), 1):
        if name not in (
            "sparse_count",
            "softmax_scale",
            "rms_norm_eps",
            "layer_norm_eps",
            "rope_mode",
            "indexer_rope_mode",
        ):
            message = f"argument {position} is a null pointer"
            expect_rejection("aclnnSparseAttentionPto", layer_arguments(**{name: None}).values(), NULL_POINTER, message)


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
        with pytest.raises(RuntimeError, match=rf"aclnnSparseAttentionPto: {name}\[1\].* is {value}"):
            call("aclnnSparseAttentionPto", *arguments.values())
        assert all(torch.equal(arguments[name].cpu(), x) for name, x in before.items())


def write_arguments(**changes):
    """Arguments of 4 tokens that fit together, in the order of the C function, but for the changes."""
    inputs = goldens.reshape_and_cache_inputs(4, heads=2, depth=16, value_depth=32, cache=(3, 8))
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
            lambda: {"key": npu(5, 2, 16, **BF16)},
            TILING,
            r"key must have 4 tokens, as slot_mapping has, .* \[5, 2, 16\]",
        ),
        (lambda: {"key_cache": npu(24, 32, **BF16)}, TILING, r"key_cache must have shape .* \[24, 32\]"),
        (lambda: {"key_cache": npu(3, 8, 0, **BF16)}, TILING, "key_cache must have a size hidden of 1 or more"),
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
    expected, _ = goldens.reshape_and_cache(**on_host | {"key_cache": before})
    assert torch.equal(arguments["key_cache"].cpu(), expected)


@pytest.mark.parametrize("name", ["key", "key_cache", "slot_mapping"])
def test_writing_to_caches_rejects_null_pointers(name):
    arguments = write_arguments(**{name: None}).values()
    expect_rejection("aclnnReshapeAndCache", arguments, NULL_POINTER, f"{name} is null; it is required")


def step_arguments(**changes):
    """Arguments of 3 sequences and a row of padding, in the order of the C function, but for the changes."""
    inputs = goldens.advance_step_flashattn_inputs([5, 20, 31], padding=1, dtype=torch.int32)
    numbers = {name: inputs.pop(name) for name in ("num_seqs", "num_queries", "block_size")}
    return {name: x.npu() for name, x in inputs.items()} | numbers | changes


INT64 = {"dtype": torch.int64}


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        (lambda: {"num_queries": 5}, TILING, r"num_queries must lie between 0 and num_seqs \(4\), but is 5"),
        (lambda: {"num_queries": -1}, TILING, r"num_queries must lie between 0 and num_seqs \(4\), but is -1"),
        (lambda: {"block_size": 0}, TILING, "block_size must be 1 or more, but is 0"),
        (lambda: {"num_seqs": 5}, TILING, r"input_tokens must have shape \[5\], but has shape \[4\]"),
        (lambda: {"input_tokens": npu(4, **INT32)}, INVALID, "input_tokens is int32; expected int64"),
        (lambda: {"num_queries": 2}, TILING, r"sampled_token_ids must have shape \[2, 1\], but has shape \[3, 1\]"),
        (lambda: {"sampled_token_ids": npu(4, **INT64)}, TILING, r"sampled_token_ids must have shape \[3\], but has"),
        (lambda: {"input_positions": npu(4)}, INVALID, "input_positions is float32; expected int64"),
        (lambda: {"seq_lens": npu(4)}, INVALID, "seq_lens is float32; expected int32, int64"),
        (lambda: {"slot_mapping": npu(3, **INT64)}, TILING, r"slot_mapping must have shape \[4\], but has shape \[3\]"),
        (
            lambda: {"block_tables": npu(4, **INT32)},
            TILING,
            r"block_tables must have 2 dimensions, but has shape \[4\]",
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
