# SPDX-License-Identifier: Apache-2.0
"""Bad input: rejected with operator, argument, expectation and finding, eager and Meta alike; the process goes on."""

import itertools
import re

import aclnn
import cache_calls
import pytest
import torch
import torch_npu
from calls import CALLS as EVERY_OPERATORS_CALLS
from calls import WRITERS, caches_of, copied, on, overload, results, tensors_of, whole
from indexer_calls import int32
from kernels import VENDOR

import custom_pypto  # noqa: F401
from custom_pypto.arguments import checked
from custom_pypto.graph import prototypes
from custom_pypto.graph.converters import ge_api

LIBRARY = f"{VENDOR}/op_api/lib/libcust_opapi.so"

ops = torch.ops.custom_pypto


def half(*shape):
    return torch.zeros(shape, dtype=torch.float16)


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


# What is changed in a good call, and the message it gives, after "argument ".
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
    "too many dimensions": (
        (ones(*[1] * 26), ones(2)),
        f"'self' must have at most 25 dimensions, as CANN's tensors have, but its shape is {[1] * 26}",
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

INDEXER_CALLS, QUANT_CALLS, PROLOG_CALLS, LAYER_CALLS, ATTENTION_CALLS, RESHAPE_CALLS, ADVANCE_CALLS = (
    EVERY_OPERATORS_CALLS.values()
)

PADDED = INDEXER_CALLS["BSND on PA_BSND"]
PACKED = INDEXER_CALLS["TND on TND"]
UNPAGED = INDEXER_CALLS["BSND on BSND"]

MODES = "0 is no mask, 3 is causal, aligned to the last key"
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
        "'weights' must have size 6 in dimension 2 (N1, as of 'query'), but its shape is [2, 3, 5]",
    ),
    "key D": (
        PADDED,
        {"key": half(5, 8, 2, 32).bfloat16()},
        "'key' must have size 16 in dimension 3 (D, as of 'query'), but its shape is [5, 8, 2, 32]",
    ),
    "no N1": (
        PADDED,
        {"query": half(2, 3, 0, 16).bfloat16(), "weights": ones(2, 3, 0)},
        "'query' must have a size N1 of 1 or more, but that is 0",
    ),
    "no D": (
        PADDED,
        {"query": half(2, 3, 6, 0).bfloat16(), "key": half(5, 8, 2, 0).bfloat16()},
        "'query' must have a size D of 1 or more, but that is 0",
    ),
    "key heads": (
        PADDED,
        {"key": half(5, 8, 4, 16).bfloat16()},
        "'key' must have a size N2 that divides N1 of 'query' (6), but its shape is [5, 8, 4, 16]",
    ),
    "no key heads": (
        PADDED,
        {"key": half(5, 8, 0, 16).bfloat16()},
        "'key' must have a size N2 of 1 or more, but that is 0",
    ),
    "no block size": (
        PADDED,
        {"key": half(5, 0, 2, 16).bfloat16()},
        "'key' must have a size block_size of 1 or more, but that is 0",
    ),
    "key batch": (
        UNPAGED,
        {"key": half(3, 20, 2, 16).bfloat16()},
        "'key' must have size 2 in dimension 0 (B, as of 'query'), but its shape is [3, 20, 2, 16]",
    ),
    "sparse_count 0": (PADDED, {"sparse_count": 0}, "'sparse_count' must be 1 or more, but is 0"),
    "negative sparse_count": (PADDED, {"sparse_count": -5}, "'sparse_count' must be 1 or more, but is -5"),
    "sparse_mode": (
        PADDED,
        {"sparse_mode": 1},
        f"'sparse_mode' must be 0 or 3, but is 1; {MODES}",
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
        "'actual_seq_lengths_key' must be of dtype int32, but is int64",
    ),
    "lengths' rank": (
        PADDED,
        {"actual_seq_lengths_key": int32(20, 9).view(2, 1)},
        "'actual_seq_lengths_key' must have 1 dimensions, [B], but its shape is [2, 1]",
    ),
    "lengths' size": (
        PADDED,
        {"actual_seq_lengths_key": int32(20, 9, 1)},
        "'actual_seq_lengths_key' must have size 2 in dimension 0 (B, as of 'query'), but its shape is [3]",
    ),
    "query lengths' size": (
        UNPAGED,
        {"actual_seq_lengths_query": int32(1)},
        "'actual_seq_lengths_query' must have size 2 in dimension 0 (B, as of 'query'), but its shape is [1]",
    ),
    "packed lengths differ": (
        PACKED,
        {"actual_seq_lengths_key": int32(20)},
        "'actual_seq_lengths_key' must have size 2 in dimension 0 (B, as of 'actual_seq_lengths_query'), but its "
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
        "'block_table' must be of dtype int32, but is int64",
    ),
    "block table's rank": (
        PADDED,
        {"block_table": int32(1, 2)},
        "'block_table' must have 2 dimensions, [B, blocks per sequence], but its shape is [2]",
    ),
    "block table's size": (
        PADDED,
        {"block_table": int32(1, 2, 3).view(3, 1)},
        "'block_table' must have size 2 in dimension 0 (B, as of 'query'), but its shape is [3, 1]",
    ),
}


QUANT_PADDED = QUANT_CALLS["BSND on PA_BSND"]

# What the indexer on int8 checks beside what it shares with the other one.
QUANT = {
    "query dtype": (QUANT_PADDED, {"query": half(2, 3, 6, 16)}, "'query' must be of dtype int8, but is float16"),
    "key dtype": (QUANT_PADDED, {"key": half(5, 8, 2, 16)}, "'key' must be of dtype int8, but is float16"),
    "weights dtype": (
        QUANT_PADDED,
        {"weights": int32(1).expand(2, 3, 6)},
        "'weights' must be of dtype float16 or bfloat16 or float32, but is int32",
    ),
    "query scales' dtype": (
        QUANT_PADDED,
        {"query_dequant_scale": half(2, 3, 6, 1).bfloat16()},
        "'query_dequant_scale' must be of dtype float16 or float32, but is bfloat16",
    ),
    "query scales' rank": (
        QUANT_PADDED,
        {"query_dequant_scale": half(6, 6)},
        "'query_dequant_scale' must have 3 dimensions, [B, S1, N1], but its shape is [6, 6]",
    ),
    "query scales' size": (
        QUANT_PADDED,
        {"query_dequant_scale": half(2, 3, 6, 2)},
        "'query_dequant_scale' must have size 1 in dimension 3 ([B, S1, N1, 1]), but its shape is [2, 3, 6, 2]",
    ),
    "key scales' dtype": (
        QUANT_PADDED,
        {"key_dequant_scale": int32(1).expand(5, 8, 2)},
        "'key_dequant_scale' must be of dtype float16 or float32, but is int32",
    ),
    "key scales' rank": (
        QUANT_PADDED,
        {"key_dequant_scale": half(5, 8, 2, 1)},
        "'key_dequant_scale' must have 3 dimensions, [blocks, block_size, N2], but its shape is [5, 8, 2, 1]",
    ),
    "key scales' blocks": (
        QUANT_PADDED,
        {"key_dequant_scale": half(4, 8, 2)},
        "'key_dequant_scale' must have size 5 in dimension 0 (blocks, as of 'key'), but its shape is [4, 8, 2]",
    ),
    "packed key scales": (
        QUANT_CALLS["TND on TND"],
        {"key_dequant_scale": half(19, 2)},
        "'key_dequant_scale' must have size 20 in dimension 0 (T2, as of 'key'), but its shape is [19, 2]",
    ),
    "query_quant_mode": (
        QUANT_PADDED,
        {"query_quant_mode": 1},
        "'query_quant_mode' must be 0, but is 1; 0 is a scale for each token and head",
    ),
    "key_quant_mode": (
        QUANT_PADDED,
        {"key_quant_mode": -1},
        "'key_quant_mode' must be 0, but is -1; 0 is a scale for each token and head",
    ),
    "sparse_count": (QUANT_PADDED, {"sparse_count": 0}, "'sparse_count' must be 1 or more, but is 0"),
    "D": (
        QUANT_CALLS["BSND on BSND"],
        {
            "query": torch.zeros(1, dtype=torch.int8).expand(2, 3, 6, 131072),
            "key": torch.zeros(1, dtype=torch.int8).expand(2, 20, 2, 131072),
        },
        "'query' must have a size D of 131071 or less, whose products int32 can sum, but its shape is "
        "[2, 3, 6, 131072]",
    ),
    "no key lengths": (
        QUANT_PADDED,
        {"actual_seq_lengths_key": None},
        "'actual_seq_lengths_key' must be given with layout_key 'PA_BSND', but is None",
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
        "'value' must have 4 dimensions, [blocks, block_size, N2, Dv], but its shape is [40, 2, 12]",
    ),
    "value heads": (
        ATTENTION_PADDED,
        {"value": half(5, 8, 1, 12).bfloat16()},
        "'value' must have size 2 in dimension 2 (N2, as of 'key'), but its shape is [5, 8, 1, 12]",
    ),
    "value blocks": (
        ATTENTION_PADDED,
        {"value": half(4, 8, 2, 12).bfloat16()},
        "'value' must have size 5 in dimension 0 (blocks, as of 'key'), but its shape is [4, 8, 2, 12]",
    ),
    "no Dv": (
        ATTENTION_PADDED,
        {"value": half(5, 8, 2, 0).bfloat16()},
        "'value' must have a size Dv of 1 or more, but that is 0",
    ),
    "indices' dtype": (
        ATTENTION_PADDED,
        {"sparse_indices": torch.zeros(2, 3, 2, 7, dtype=torch.int64)},
        "'sparse_indices' must be of dtype int32, but is int64",
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
        "'sparse_indices' must have size 3 in dimension 1 (S1, as of 'query'), but its shape is [2, 4, 2, 7]",
    ),
    "indices' heads": (
        ATTENTION_PADDED,
        {"sparse_indices": int32(0).expand(2, 3, 6, 7)},
        "'sparse_indices' must have size 2 in dimension 2 (N2, as of 'key'), but its shape is [2, 3, 6, 7]",
    ),
    "sinks' dtype": (
        ATTENTION_PADDED,
        {"attention_sinks": half(6)},
        "'attention_sinks' must be of dtype float32, but is float16",
    ),
    "sinks' rank": (
        ATTENTION_PADDED,
        {"attention_sinks": ones(1, 6)},
        "'attention_sinks' must have 1 dimensions, [N1], but its shape is [1, 6]",
    ),
    "sinks' size": (
        ATTENTION_PADDED,
        {"attention_sinks": ones(2)},
        "'attention_sinks' must have size 6 in dimension 0 (N1, as of 'query'), but its shape is [2]",
    ),
    "no k": (
        ATTENTION_PADDED,
        {"sparse_indices": int32(0).expand(2, 3, 2, 1)[..., :0]},
        "'sparse_indices' must have a size k of 1 or more, but that is 0",
    ),
    "no N1": (
        ATTENTION_PADDED,
        {"query": half(2, 3, 0, 16).bfloat16(), "query_rope": half(2, 3, 0, 4).bfloat16()},
        "'query' must have a size N1 of 1 or more, but that is 0",
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
        "'query_rope' must have size 6 in dimension 2 (N1, as of 'query'), but its shape is [2, 3, 2, 4]",
    ),
    "key_rope size": (
        ATTENTION_PADDED,
        {"key_rope": half(5, 7, 2, 4).bfloat16()},
        "'key_rope' must have size 8 in dimension 1 (block_size, as of 'key'), but its shape is [5, 7, 2, 4]",
    ),
    "two Dr": (
        ATTENTION_PADDED,
        {"key_rope": half(5, 8, 2, 6).bfloat16()},
        "'key_rope' must have size 4 in dimension 3 (Dr, as of 'query_rope'), but its shape is [5, 8, 2, 6]",
    ),
    "no Dr": (
        ATTENTION_PADDED,
        {"query_rope": half(2, 3, 6, 0).bfloat16(), "key_rope": half(5, 8, 2, 0).bfloat16()},
        "'query_rope' must have a size Dr of 1 or more, but that is 0",
    ),
    "key dtype": (
        ATTENTION_PADDED,
        {"key": half(5, 8, 2, 16)},
        "'key' must be of dtype bfloat16, but is float16; 'query' and 'key' have the same dtype",
    ),
    "key size": (
        ATTENTION_PADDED,
        {"key": half(5, 8, 2, 32).bfloat16()},
        "'key' must have size 16 in dimension 3 (D, as of 'query'), but its shape is [5, 8, 2, 32]",
    ),
    "sparse_mode": (
        ATTENTION_PADDED,
        {"sparse_mode": 2},
        f"'sparse_mode' must be 0 or 3, but is 2; {MODES}",
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
        "'actual_seq_lengths_kv' must have size 2 in dimension 0 (B, as of 'query'), but its shape is [3]",
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


PROLOG_PAGED = PROLOG_CALLS["TND on PA_BSND"]  # T 4, h 56, q_lora 40, N 5, D 16, R 6, caches of 7 blocks of 8
PROLOG_PADDED = PROLOG_CALLS["BSND on PA_BSND"]
PROLOG_UNPAGED = PROLOG_CALLS["TND on TND"]


def bf16(*shape):
    return torch.zeros(shape, dtype=torch.bfloat16)


def int8(*shape):
    return torch.zeros(shape, dtype=torch.int8)


EPSILON = "must be a finite number of 0 or more, but is"
PROLOG = {
    "token_x dtype": (
        PROLOG_PAGED,
        {"token_x": ones(4, 56)},
        "'token_x' must be of dtype bfloat16 or float16, but is float32",
    ),
    "wk dtype": (
        PROLOG_PAGED,
        {"wk": half(56, 16)},
        "'wk' must be of dtype bfloat16, but is float16; 'token_x' and 'wk' have the same dtype",
    ),
    "key cache dtype": (
        PROLOG_PAGED,
        {"idx_k_cache": bf16(7, 8, 1, 16)},
        "'idx_k_cache' must be of dtype int8, but is bfloat16",
    ),
    "scale cache dtype": (
        PROLOG_PAGED,
        {"idx_k_scale_cache": ones(7, 8, 1)},
        "'idx_k_scale_cache' must be of dtype float16, but is float32",
    ),
    "slots' dtype": (
        PROLOG_PAGED,
        {"idx_k_cache_index": ones(4, dtype=torch.int16)},
        "'idx_k_cache_index' must be of dtype int64 or int32, but is int16",
    ),
    "packed token_x rank": (
        PROLOG_PAGED,
        {"token_x": bf16(1, 4, 56)},
        "'token_x' must have 2 dimensions, [T, h], but its shape is [1, 4, 56]",
    ),
    "padded token_x rank": (
        PROLOG_PADDED,
        {"token_x": bf16(6, 56)},
        "'token_x' must have 3 dimensions, [B, S1, h], but its shape is [6, 56]",
    ),
    "padded slots' rank": (
        PROLOG_PADDED,
        {"idx_k_cache_index": int32(1, 2, 3, 4, 5, 6)},
        "'idx_k_cache_index' must have 2 dimensions, [B, S1], but its shape is [6]",
    ),
    "paged cache rank": (
        PROLOG_PAGED,
        {"idx_k_cache": int8(56, 1, 16)},
        "'idx_k_cache' must have 4 dimensions, [blocks, block_size, 1, D], but its shape is [56, 1, 16]",
    ),
    "packed cache rank": (
        PROLOG_UNPAGED,
        {"idx_k_cache": int8(2, 10, 1, 16)},
        "'idx_k_cache' must have 3 dimensions, [T2, 1, D], but its shape is [2, 10, 1, 16]",
    ),
    "scale cache rank": (
        PROLOG_PAGED,
        {"idx_k_scale_cache": half(7, 8, 1, 1)},
        "'idx_k_scale_cache' must have 3 dimensions, [blocks, block_size, 1], but its shape is [7, 8, 1, 1]",
    ),
    "q_norm tokens": (
        PROLOG_PAGED,
        {"q_norm": int8(3, 40)},
        "'q_norm' must have size 4 in dimension 0 (T, as of 'token_x'), but its shape is [3, 40]",
    ),
    "wq_b depth": (
        PROLOG_PAGED,
        {"wq_b": int8(41, 80)},
        "'wq_b' must have size 40 in dimension 0 (q_lora, as of 'q_norm'), but its shape is [41, 80]",
    ),
    "wq_b and its scale": (
        PROLOG_PAGED,
        {"wq_b": int8(40, 79), "wq_b_scale": ones(79, 1)},
        "'wq_b' must have size 80 in dimension 1 (N of 'weights_proj' times D of 'wk'), but its shape is [40, 79]",
    ),
    "two key heads": (
        PROLOG_PAGED,
        {"idx_k_cache": int8(7, 8, 2, 16)},
        "'idx_k_cache' must have size 1 in dimension 2 ([blocks, block_size, 1, D]), but its shape is [7, 8, 2, 16]",
    ),
    "blocks of the scale cache": (
        PROLOG_PAGED,
        {"idx_k_scale_cache": half(6, 8, 1)},
        "'idx_k_scale_cache' must have size 7 in dimension 0 (blocks, as of 'idx_k_cache'), but its shape is [6, 8, 1]",
    ),
    "odd R": (
        PROLOG_PAGED,
        {"cos_idx_rope": bf16(4, 7), "sin_idx_rope": bf16(4, 7)},
        "'cos_idx_rope' must have a size R that is even and at most D (16), but its shape is [4, 7]",
    ),
    "R beyond D": (
        PROLOG_PAGED,
        {"cos_idx_rope": bf16(4, 18), "sin_idx_rope": bf16(4, 18)},
        "'cos_idx_rope' must have a size R that is even and at most D (16), but its shape is [4, 18]",
    ),
    "no R": (
        PROLOG_PAGED,
        {"cos_idx_rope": bf16(4, 0), "sin_idx_rope": bf16(4, 0)},
        "'cos_idx_rope' must have a size R of 1 or more, but that is 0",
    ),
    "no heads": (
        PROLOG_PAGED,
        {"weights_proj": bf16(56, 0), "wq_b": int8(40, 0), "wq_b_scale": ones(0, 1)},
        "'weights_proj' must have a size N of 1 or more, but that is 0",
    ),
    "negative epsilon": (PROLOG_PAGED, {"layernorm_epsilon_k": -1e-6}, f"'layernorm_epsilon_k' {EPSILON} -1e-06"),
    "epsilon nan": (PROLOG_PAGED, {"layernorm_epsilon_k": float("nan")}, f"'layernorm_epsilon_k' {EPSILON} nan"),
    "layout_query": (
        PROLOG_PAGED,
        {"layout_query": "PA_BSND"},
        "'layout_query' must be 'TND' or 'BSND', but is 'PA_BSND'",
    ),
    "layout_key": (
        PROLOG_PAGED,
        {"layout_key": "PA_NZ"},
        "'layout_key' must be 'PA_BSND' or 'BSND' or 'TND', but is 'PA_NZ'",
    ),
    "rope_mode": (PROLOG_PAGED, {"rope_mode": "neox"}, "'rope_mode' must be 'interleave' or 'half', but is 'neox'"),
}

# B 2, S1 3, h 56, q_lora 40, N 5, Dn 12, R 10, Dkv 24, Ni 7, Di 16, caches of 6 blocks of 8
LAYER_CALL = LAYER_CALLS["three tokens"]
LAYER = {
    "x dtype": (LAYER_CALL, {"x": ones(2, 3, 56)}, "'x' must be of dtype bfloat16 or float16, but is float32"),
    "cache dtype": (
        LAYER_CALL,
        {"kr_cache": half(6, 8, 1, 10)},
        "'kr_cache' must be of dtype bfloat16, but is float16; 'x' and 'kr_cache' have the same dtype",
    ),
    "slots' dtype": (
        LAYER_CALL,
        {"cache_index": ones(2, 3)},
        "'cache_index' must be of dtype int32 or int64, but is float32",
    ),
    "lengths' dtype": (
        LAYER_CALL,
        {"act_seqs": int32(20, 3).long()},
        "'act_seqs' must be of dtype int32, but is int64",
    ),
    "x rank": (LAYER_CALL, {"x": bf16(6, 56)}, "'x' must have 3 dimensions, [B, S1, h], but its shape is [6, 56]"),
    "columns of w_uq_qr": (
        LAYER_CALL,
        {"w_uq_qr": bf16(40, 109)},
        "'w_uq_qr' must have size 110 in dimension 1 (N and Dn of 'w_uk', R of 'sin'), but its shape is [40, 109]",
    ),
    "columns of w_dkv_kr": (
        LAYER_CALL,
        {"w_dkv_kr": bf16(56, 35)},
        "'w_dkv_kr' must have size 34 in dimension 1 (Dkv of 'w_uk', R of 'sin'), but its shape is [56, 35]",
    ),
    "columns of w_idx_qb": (
        LAYER_CALL,
        {"w_idx_qb": bf16(40, 48)},
        "'w_idx_qb' must have size 112 in dimension 1 (Ni of 'w_idx_proj', Di of 'w_idx_k'), but its shape is [40, 48]",
    ),
    "slots of another batch": (
        LAYER_CALL,
        {"cache_index": int32(1, 2, 3).view(1, 3)},
        "'cache_index' must have size 2 in dimension 0 (B, as of 'x'), but its shape is [1, 3]",
    ),
    "blocks of another cache": (
        LAYER_CALL,
        {"index_k_cache": bf16(7, 8, 1, 16)},
        "'index_k_cache' must have size 6 in dimension 0 (blocks, as of 'kv_cache'), but its shape is [7, 8, 1, 16]",
    ),
    "R beyond Di": (
        LAYER_CALL,
        {"w_idx_k": bf16(56, 4), "w_idx_qb": bf16(40, 28), "in_gamma_k": bf16(4), "in_beta_k": bf16(4)}
        | {"index_k_cache": bf16(6, 8, 1, 4)},
        "'sin' must have a size R that is even and at most Di (4), but its shape is [2, 3, 10]",
    ),
    "no block size": (
        LAYER_CALL,
        {"kv_cache": bf16(6, 0, 1, 24), "kr_cache": bf16(6, 0, 1, 10), "index_k_cache": bf16(6, 0, 1, 16)},
        "'kv_cache' must have a size block_size of 1 or more, but that is 0",
    ),
    "sparse_count": (LAYER_CALL, {"sparse_count": 0}, "'sparse_count' must be 1 or more, but is 0"),
    "scale 0": (
        LAYER_CALL,
        {"softmax_scale": 0.0},
        "'softmax_scale' must be None or a finite number greater than 0, but is 0",
    ),
    "negative scale": (
        LAYER_CALL,
        {"softmax_scale": -0.5},
        "'softmax_scale' must be None or a finite number greater than 0, but is -0.5",
    ),
    "rms_norm_eps": (LAYER_CALL, {"rms_norm_eps": -1.0}, f"'rms_norm_eps' {EPSILON} -1"),
    "layer_norm_eps": (LAYER_CALL, {"layer_norm_eps": float("inf")}, f"'layer_norm_eps' {EPSILON} inf"),
    "rope_mode": (LAYER_CALL, {"rope_mode": ""}, "'rope_mode' must be 'interleave' or 'half', but is ''"),
    "indexer_rope_mode": (
        LAYER_CALL,
        {"indexer_rope_mode": "Half"},
        "'indexer_rope_mode' must be 'interleave' or 'half', but is 'Half'",
    ),
}

# T 5, N 3, D 16, Dv 20, caches of 7 blocks of 8
WRITE = RESHAPE_CALLS["bfloat16"]
WRITE_INT8 = RESHAPE_CALLS["int8 keys"]
WRITE_SEQUENCES = RESHAPE_CALLS["sequences"]  # B 2, S 5, hidden 48 and 60; float16
WRITE_NZ = RESHAPE_CALLS["NZ"]  # T 5, N 2, D 24, Dv 40
RESHAPE = {
    "key dtype": (
        WRITE,
        {"key": ones(5, 3, 16, dtype=torch.int16)},
        "'key' must be of dtype float16 or bfloat16 or int8 or float32, but is int16",
    ),
    "cache dtype": (WRITE, {"key_cache": half(7, 8, 3, 16)}, "'key_cache' must be of dtype bfloat16, but is float16"),
    "value cache dtype": (
        WRITE_INT8,
        {"value_cache": int8(7, 8, 3, 20)},
        "'value_cache' must be of dtype float16, but is int8",
    ),
    "slots' dtype": (
        WRITE,
        {"slot_mapping": ones(5, dtype=torch.int16)},
        "'slot_mapping' must be of dtype int64 or int32, but is int16",
    ),
    "key rank": (WRITE, {"key": bf16(48)}, "'key' must have 2 dimensions, [T, hidden], but its shape is [48]"),
    "cache rank": (
        WRITE,
        {"key_cache": bf16(56, 48)},
        "'key_cache' must have 4 dimensions, [blocks, block_size, N, D], but its shape is [56, 48]",
    ),
    "slots of other tokens": (
        WRITE,
        {"slot_mapping": int32(1, 2, 3, 4, 5, 6)},
        "'slot_mapping' must have at most 5 slots, one for each token of 'key', but its shape is [6]",
    ),
    "slots of other sequences": (
        WRITE_SEQUENCES,
        {"slot_mapping": int32(*range(11))},
        "'slot_mapping' must have at most 10 slots, one for each token of 'key', but its shape is [11]",
    ),
    "slots of sequences for tokens": (
        WRITE,
        {"slot_mapping": int32(1, 2, 3, 4, 5).view(1, 5)},
        "'slot_mapping' must have 1 dimensions, [T or less], but its shape is [1, 5]",
    ),
    "slots of fewer sequences": (
        WRITE_SEQUENCES,
        {"slot_mapping": int32(*range(5)).view(1, 5)},
        "'slot_mapping' must have size 2 in dimension 0 (B, as of 'key'), but its shape is [1, 5]",
    ),
    "values of other tokens": (
        WRITE,
        {"value": bf16(4, 3, 20)},
        "'value' must have size 5 in dimension 0 (T, as of 'key'), but its shape is [4, 3, 20]",
    ),
    "heads of another cache": (
        WRITE,
        {"key_cache": bf16(7, 8, 2, 16)},
        "'key_cache' must have size 3 in dimension 2 (N, as of 'key'), but its shape is [7, 8, 2, 16]",
    ),
    "hidden of another cache": (
        WRITE,
        {"key": bf16(5, 47)},
        "'key' must have size 48 in dimension 1 (N times D of 'key_cache'), but its shape is [5, 47]",
    ),
    "hidden of a flat cache": (
        WRITE,
        {"value_cache": bf16(7, 8, 59)},
        "'value_cache' must have size 60 in dimension 2 (N times D of 'value'), but its shape is [7, 8, 59]",
    ),
    "blocks of another cache": (
        WRITE,
        {"value_cache": bf16(6, 8, 3, 20)},
        "'value_cache' must have size 7 in dimension 0 (blocks, as of 'key_cache'), but its shape is [6, 8, 3, 20]",
    ),
    "block size of another cache": (
        WRITE_NZ,
        {"value_cache": ones(7, 10, 16, 8)},
        "'value_cache' must have size 8 in dimension 2 (block_size, as of 'key_cache'), but its shape is "
        "[7, 10, 16, 8]",
    ),
    "c0": (
        WRITE_NZ,
        {"value_cache": ones(7, 5, 8, 16)},
        "'value_cache' must have size 8 in dimension 3 (c0, the elements of 32 bytes), but its shape is [7, 5, 8, 16]",
    ),
    "fractals": (
        WRITE_NZ,
        {"key_cache": bf16(7, 4, 8, 16)},
        "'key_cache' must have size 3 in dimension 1 (the elements of a token in 'key' / c0), but its shape is "
        "[7, 4, 8, 16]",
    ),
    "no multiple of c0": (
        WRITE_NZ,
        {"key": bf16(5, 50)},
        "'key' must have a multiple of c0 (16) elements a token with cache_layout 'NZ', but its shape is [5, 50]",
    ),
    "rank of NZ": (
        WRITE_NZ,
        {"key_cache": bf16(7, 8, 48)},
        "'key_cache' must have 4 dimensions, [blocks, hidden / c0, block_size, c0], but its shape is [7, 8, 48]",
    ),
    "no heads": (
        WRITE,
        {"key": bf16(5, 0, 16), "key_cache": bf16(7, 8, 0, 16)},
        "'key' must have a size N of 1 or more, but that is 0",
    ),
    "no block size": (
        WRITE,
        {"key_cache": bf16(7, 0, 3, 16), "value_cache": bf16(7, 0, 3, 20)},
        "'key_cache' must have a size block_size of 1 or more, but that is 0",
    ),
    "layout": (WRITE, {"cache_layout": "BSND"}, "'cache_layout' must be 'ND' or 'NZ', but is 'BSND'"),
    "no value cache": (WRITE, {"value_cache": None}, "'value_cache' must be given with 'value', but is None"),
    "no value": (WRITE, {"value": None}, "'value' must be given with 'value_cache', but is None"),
}

STEP = ADVANCE_CALLS["int32"]  # num_seqs 5, num_queries 3, block_size 16
ADVANCE = {
    "negative num_seqs": (STEP, {"num_seqs": -1}, "'num_seqs' must be 0 or more, but is -1"),
    "num_queries": (STEP, {"num_queries": 6}, "'num_queries' must lie between 0 and num_seqs (5), but is 6"),
    "negative num_queries": (STEP, {"num_queries": -1}, "'num_queries' must lie between 0 and num_seqs (5), but is -1"),
    "block_size": (STEP, {"block_size": 0}, "'block_size' must be 1 or more, but is 0"),
    "num_seqs": (
        STEP,
        {"num_seqs": 6},
        "'input_tokens' must have size 6 in dimension 0 (num_seqs), but its shape is [5]",
    ),
    "sampled tokens": (
        STEP,
        {"num_queries": 2},
        "'sampled_token_ids' must have size 2 in dimension 0 (num_queries), but its shape is [3, 1]",
    ),
    "tokens of speculation": (
        STEP,
        {"sampled_token_ids": torch.zeros(3, 2, dtype=torch.int64)},
        "'sampled_token_ids' must have size 1 in dimension 1 ([num_queries, 1]), but its shape is [3, 2]",
    ),
    "tokens' dtype": (STEP, {"input_tokens": int32(*range(5))}, "'input_tokens' must be of dtype int64, but is int32"),
    "lengths' dtype": (STEP, {"seq_lens": ones(5)}, "'seq_lens' must be of dtype int32 or int64, but is float32"),
    "block table of other rows": (
        STEP,
        {"block_tables": int32(1, 2, 3).view(3, 1)},
        "'block_tables' must have size 5 in dimension 0 (num_seqs, as of 'input_tokens'), but its shape is [3, 1]",
    ),
    "block table's rank": (
        STEP,
        {"block_tables": int32(*range(5))},
        "'block_tables' must have 2 dimensions, [num_seqs, blocks per sequence], but its shape is [5]",
    ),
}

CASES = {
    "npu_lightning_indexer_pto": INDEXER,
    "npu_lightning_indexer_quant_pto": QUANT,
    "npu_lightning_indexer_prolog_pto": PROLOG,
    "npu_sparse_attention_pto": LAYER,
    "npu_sparse_flash_attention_pto": ATTENTION,
    "reshape_and_cache": RESHAPE,
    "advance_step_flashattn": ADVANCE,
}
EVERY_CASE = [(operator, case) for operator, cases in CASES.items() for case in cases]
ACLNN_CASES = [each for each in EVERY_CASE if each != ("npu_sparse_attention_pto", "scale 0")]
"""0 stands for the default scale there."""


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
def test_add_custom_rejects(case, device):
    arguments, expected = ADD_CUSTOM[case]
    message = message_of(lambda: ops.add_custom(*(to(device, value) for value in arguments)))
    assert message == f"custom_pypto::add_custom: argument {expected}"
    assert_process_goes_on()


@pytest.mark.parametrize("device", ["npu", "meta"])
@pytest.mark.parametrize(("operator", "case"), EVERY_CASE)
def test_operators_on_caches_reject(operator, case, device):
    good, changes, expected = CASES[operator][case]
    arguments = on(device, good() | changes)
    assert message_of(lambda: overload(operator)(**arguments)) == f"custom_pypto::{operator}: argument {expected}"
    assert_process_goes_on()


def call_aclnn(operator, arguments, **changed_results):
    """Calls the aclnn function on the arguments and, as Meta says, on the results of the first call of the operator."""
    op, no_more = whole(operator)
    given = {a.name: a.default_value for a in op._schema.arguments} | no_more | arguments
    if "softmax_scale" in given:
        given["softmax_scale"] = given["softmax_scale"] or 0.0
    prototype = prototypes.Prototype.of(ge_api("custom_pypto").IR[prototypes.ge_type(operator)])
    made = results_of(operator) | changed_results
    order = [*prototype.inputs, *prototype.attributes]
    values = [*(to("npu", given[name]) for name in order), *made.values()]
    aclnn.call(LIBRARY, f"aclnn{prototype.type}", *values)


def results_of(operator):
    """Tensors for the results of the operator's first good call."""
    op, no_more = whole(operator)
    good = next(iter(EVERY_OPERATORS_CALLS[operator].values()))() | no_more
    rows = checked(lambda: op(**on("meta", good)))
    names = [row.argument for row in rows.values() if row.use == "result"]
    on_meta = results(op(**on("meta", good)))
    return {name: torch.empty_like(each, device="npu") for name, each in zip(names, on_meta, strict=True)}


def reason_of(operator, arguments, **changed_results):
    """Why the aclnn function rejects a call, by the definition or by its tiling, which is told all arguments."""
    with pytest.raises(aclnn.Rejected) as rejected:
        call_aclnn(operator, arguments, **changed_results)
    status, message = rejected.value.args
    function, _, reason = message.partition(": ")
    assert function == f"aclnn{prototypes.ge_type(operator)}"
    if status == aclnn.TILING:
        reason = re.fullmatch(r"tiling failed: the function of SetTiling returned \d+ for .*\]: (.*)", reason)[1]
    return reason


@pytest.mark.parametrize(("operator", "case"), ACLNN_CASES)
def test_the_aclnn_function_rejects_and_names_the_argument(operator, case):
    good, changes, expected = CASES[operator][case]
    reason, name = reason_of(operator, good() | changes), re.match(r"'(\w+)'", expected)[1]
    assert re.search(rf"\b{name}\b", reason.partition("; expected")[0]), reason


@pytest.mark.parametrize("operator", [operator for operator in CASES if operator.endswith("_pto")])
def test_the_aclnn_function_rejects_results_that_the_operator_does_not_give(operator):
    good = next(iter(EVERY_OPERATORS_CALLS[operator].values()))()
    for name, result in results_of(operator).items():
        wider = torch.cat([result, result.new_zeros(*result.shape[:-1], 1)], -1)
        assert reason_of(operator, good, **{name: result.to(torch.int64)}).startswith(f"{name} is int64; expected ")
        expected = f"{name} must have size {result.shape[-1]} in dimension {result.dim() - 1} "
        assert reason_of(operator, good, **{name: wider}).startswith(expected)


GOOD = dict(zip(WRITERS, (PROLOG_PADDED, LAYER_CALL, WRITE_INT8, STEP), strict=True))
FREE = {("block_table", 1), ("block_tables", 1)}
"""Dimensions that no other tensor shares."""
RANKS = {"key": "2 to 4"}
"""Tensors that may have other ranks."""


@pytest.mark.parametrize("device", ["npu", "meta"])
@pytest.mark.parametrize("operator", WRITERS)
def test_every_size_that_two_tensors_share_must_agree(operator, device):
    good = on(device, GOOD[operator]())
    for name in tensors_of(operator):
        for dim in range(good[name].dim()):
            if (name, dim) not in FREE:
                larger = torch.cat([good[name], good[name].narrow(dim, 0, 1)], dim)
                message = message_of(lambda: overload(operator)(**good | {name: larger}))  # noqa: B023
                expected = r"argument '\w+' must have (size \d+ in dimension \d|at most \d+ slots)"
                assert re.search(expected, message), (name, dim)
        if name not in RANKS:
            message = message_of(lambda: overload(operator)(**good | {name: good[name][None]}))  # noqa: B023
            assert f"argument '{name}' must have {good[name].dim()} dimensions, [" in message


@pytest.mark.parametrize("device", ["npu", "meta"])
@pytest.mark.parametrize("operator", WRITERS)
def test_every_tensor_has_its_dtype(operator, device):
    good = on(device, GOOD[operator]())
    for name in tensors_of(operator):
        message = message_of(lambda: overload(operator)(**good | {name: good[name].bool()}))  # noqa: B023
        assert message.startswith(f"custom_pypto::{operator}: argument '{name}' must be of dtype "), name
        assert message.split(";")[0].endswith(", but is bool")


@pytest.mark.parametrize("device", ["npu", "meta"])
@pytest.mark.parametrize("operator", WRITERS)
def test_a_cache_that_shares_memory_with_another_argument_is_rejected(operator, device):
    """The first elements of the cache as another argument."""
    good = on(device, GOOD[operator]())
    for cache in caches_of(operator):
        for name in tensors_of(operator):
            if name != cache and good[name].dtype == good[cache].dtype and good[name].numel() <= good[cache].numel():
                alias = good[cache].flatten()[: good[name].numel()].view(good[name].shape)
                message = message_of(lambda: overload(operator)(**good | {name: alias}))  # noqa: B023
                both = [n for n in tensors_of(operator) if n in (name, cache)]
                written, other = both if both[0] in caches_of(operator) else reversed(both)
                assert message == (
                    f"custom_pypto::{operator}: argument '{written}' must share no memory with '{other}', as it is "
                    "written to, but does; pass a separate tensor"
                )
    assert_process_goes_on()


OVERLAPPING = {
    "expanded": lambda tensor: tensor[:1].expand_as(tensor),
    "a window": lambda tensor: tensor.as_strided(tensor.shape, [1] * tensor.dim()),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("device", ["npu", "meta"])
@pytest.mark.parametrize("operator", WRITERS)
def test_what_is_written_must_not_overlap_itself(operator, device, inference):
    with torch.inference_mode(inference):
        good = on(device, GOOD[operator]())
        for name in caches_of(operator, good):
            views = [OVERLAPPING["expanded"]] if good[name].dim() == 1 else OVERLAPPING.values()
            for view in views:
                overlapping = view(good[name])
                assert message_of(lambda: overload(operator)(**good | {name: overlapping})) == (  # noqa: B023
                    f"custom_pypto::{operator}: argument '{name}' must not overlap itself, as it is written to, but "
                    f"its shape is {list(overlapping.shape)} with strides {list(overlapping.stride())}; copy it "
                    "with .contiguous()"
                )
    assert_process_goes_on()


@pytest.mark.parametrize("operator", WRITERS[:3])
def test_parts_of_one_buffer_that_do_not_overlap_are_taken(operator):
    """Caches that interleave row by row, as vLLM lays out latent and rotary part of a key, or block by block."""
    good = on("npu", GOOD[operator]())
    if operator == "reshape_and_cache":
        good = on("npu", cache_calls.write(5))
        both = torch.stack([good["key_cache"], good["value_cache"]], 1)
        parts = {"key_cache": both[:, 0], "value_cache": both[:, 1]}
    elif operator == "npu_sparse_attention_pto":
        both = torch.cat([good["kv_cache"], good["kr_cache"]], -1)
        latent = good["kv_cache"].shape[-1]
        parts = {"kv_cache": both[..., :latent], "kr_cache": both[..., latent:]}
    else:
        whole = torch.cat([good["idx_k_cache"], torch.zeros_like(good["idx_k_cache"])])
        parts = {"idx_k_cache": whole[: len(good["idx_k_cache"])]}
    expected = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in good.items()}
    overload(operator)(**expected)
    overload(operator)(**good | parts)
    for name, part in parts.items():
        assert torch.equal(part.cpu(), expected[name].cpu())


MATRICES = {
    "npu_lightning_indexer_prolog_pto": {"wq_b", "wk", "weights_proj"},
    "npu_sparse_attention_pto": {"w_dq", "w_uq_qr", "w_dkv_kr", "w_idx_qb", "w_idx_k", "w_idx_proj"},
}


READERS = {
    "add_custom": lambda: {"self": half(20, 40), "other": half(20, 40)},
    "npu_lightning_indexer_pto": EVERY_OPERATORS_CALLS["npu_lightning_indexer_pto"]["BSND on PA_BSND"],
    "npu_lightning_indexer_quant_pto": EVERY_OPERATORS_CALLS["npu_lightning_indexer_quant_pto"]["BSND on PA_BSND"],
    "npu_sparse_flash_attention_pto": EVERY_OPERATORS_CALLS["npu_sparse_flash_attention_pto"]["BSND on PA_BSND"],
}


@pytest.mark.parametrize("operator", [*READERS, *WRITERS])
def test_only_the_matrices_are_taken_in_fractal_nz(operator, internal_formats):
    good = on("npu", (GOOD | READERS)[operator]())
    expected = results(overload(operator)(**copied(good)))
    for name in tensors_of(operator):
        if good[name].dim() > 1 and good[name].dtype in (torch.int8, torch.float16, torch.bfloat16):
            in_blocks = copied(good) | {name: torch_npu.npu_format_cast(good[name].clone(), 29)}
            assert torch_npu.get_npu_format(in_blocks[name]) == 29
            if name in MATRICES.get(operator, ()):
                for got, want in zip(results(overload(operator)(**in_blocks)), expected, strict=True):
                    assert torch.equal(got.cpu(), want.cpu()), name
            else:
                assert message_of(lambda: overload(operator)(**in_blocks)) == (  # noqa: B023
                    f"custom_pypto::{operator}: argument '{name}' must be in format ND, but is in FRACTAL_NZ; "
                    f"cast it with torch_npu.npu_format_cast({name}, 2)"
                )


def test_backward_rejects_complex_gradients():
    for device in ("npu", "meta"):
        message = message_of(lambda: ops.add_custom_backward(torch.ones(3, dtype=torch.complex64, device=device)))  # noqa: B023
        assert "custom_pypto::add_custom_backward: argument 'self' must be of dtype" in message


# ---- devices


def test_tensors_on_the_cpu_are_rejected():
    expected = "custom_pypto::add_custom: argument 'self' must be on an NPU, but is on cpu; move it there with .npu()"
    assert message_of(lambda: ops.add_custom(torch.ones(3), torch.ones(3))) == expected
    message = message_of(lambda: ops.add_custom_backward(torch.ones(3)))
    assert message == expected.replace("add_custom:", "add_custom_backward:")
    for operator, calls in EVERY_OPERATORS_CALLS.items():
        message = message_of(lambda: overload(operator)(**next(iter(calls.values()))()))  # noqa: B023
        assert message == expected.replace("add_custom", operator).replace("self", tensors_of(operator)[0])


@pytest.mark.parametrize(("left", "right"), list(itertools.permutations(["cpu", "npu:0", "npu:1", "meta"], 2)))
def test_add_custom_rejects_tensors_on_different_devices(left, right):
    message = message_of(lambda: ops.add_custom(torch.ones(3, device=left), torch.ones(3, device=right)))
    assert message.startswith("custom_pypto::add_custom: argument '")
    assert " must be on " in message
    assert_process_goes_on()


@pytest.mark.parametrize("device", ["cpu", "npu:1", "meta"])
@pytest.mark.parametrize(
    ("operator", "call"),
    [(operator, call) for operator, calls in EVERY_OPERATORS_CALLS.items() for call in list(calls)[:2]],
)
def test_the_argument_on_another_device_is_named(operator, call, device):
    good = on("npu:0", EVERY_OPERATORS_CALLS[operator][call]())
    first, *_ = tensors_of(operator)
    for name, value in good.items():
        if isinstance(value, torch.Tensor) and name != first:
            message = message_of(lambda: overload(operator)(**good | {name: value.to(device)}))  # noqa: B023
            assert message == (
                f"custom_pypto::{operator}: argument '{name}' must be on npu:0 as '{first}' is, "
                f"but is on {device}; move it there with .to()"
            )
    assert_process_goes_on()


# ---- no data


def test_a_tensor_whose_memory_was_given_back_is_rejected():
    x = torch.ones(4).npu()
    x.untyped_storage().resize_(0)
    message = message_of(lambda: ops.add_custom(x, torch.ones(4).npu()))
    assert message == (
        "aclnnAddCustom: a tensor of shape [4] reaches 16 bytes into its storage, which has 0 "
        "(its data is null or was freed)"
    )
    assert_process_goes_on()


@pytest.mark.parametrize("device", ["npu", "meta"])
def test_none_is_rejected_where_a_tensor_is_needed(device):
    x = torch.ones(3, device=device)
    undefined = "must be a tensor, but is undefined (null)"
    assert message_of(lambda: ops.add_custom(x, None)) == f"custom_pypto::add_custom: argument 'other' {undefined}"
    assert message_of(lambda: ops.add_custom(None, x)) == f"custom_pypto::add_custom: argument 'self' {undefined}"
    for operator, calls in EVERY_OPERATORS_CALLS.items():
        good = on(device, next(iter(calls.values()))())
        for name in tensors_of(operator)[1:]:
            message = message_of(lambda: overload(operator)(**good | {name: None}))  # noqa: B023
            assert message == f"custom_pypto::{operator}: argument '{name}' {undefined}"
    assert_process_goes_on()


def test_sparse_tensors_are_rejected():
    sparse = torch.eye(3).to_sparse()
    with pytest.raises((RuntimeError, NotImplementedError)):
        ops.add_custom(sparse.to("meta"), torch.ones(3, device="meta"))
