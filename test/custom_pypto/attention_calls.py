# SPDX-License-Identifier: Apache-2.0
"""Calls of npu_sparse_flash_attention_pto, one of each layout, small; on the CPU, to be moved as wanted."""

import indexer_calls
import references
import torch
from indexer_calls import KEY_HEADS

from custom_pypto.authoring.check import Samples

COUNT, VALUE_DIM, ROPE_DIM = 7, 12, 4
RENAMED = {"layout_key": "layout_kv", "actual_seq_lengths_key": "actual_seq_lengths_kv"}


def attention(call):
    """A call of the indexer as one of the attention: the same queries, keys and sequences."""
    arguments = {RENAMED.get(name, name): value for name, value in indexer_calls.CALLS[call]().items()}
    del arguments["sparse_count"]
    tokens = arguments.pop("weights").shape[:-1]
    key = arguments["key"]
    indices = torch.randint(0, 9, (*tokens, KEY_HEADS, COUNT), dtype=torch.int32)
    indices[..., 5:] = -1
    return arguments | {
        "value": torch.randn(*key.shape[:-1], VALUE_DIM).to(key.dtype),
        "sparse_indices": indices,
        "scale_value": 0.3,
    }


def rope(arguments):
    query, key = arguments["query"], arguments["key"]
    return {
        "query_rope": torch.randn(*query.shape[:-1], ROPE_DIM).to(query.dtype),
        "key_rope": torch.randn(*key.shape[:-1], ROPE_DIM).to(key.dtype),
    }


def with_rope(call):
    arguments = attention(call)
    return arguments | rope(arguments)


def with_sinks(call):
    arguments = with_rope(call)
    return arguments | {"attention_sinks": torch.randn(arguments["query"].shape[-2])}


CALLS = {
    "BSND on PA_BSND": lambda: with_rope("BSND on PA_BSND"),
    "TND on PA_BSND": lambda: attention("TND on PA_BSND"),
    "BSND on BSND": lambda: attention("BSND on BSND"),
    "BSND on BSND with lengths": lambda: with_rope("BSND on BSND with lengths"),
    "TND on TND": lambda: with_rope("TND on TND"),
    "sinks": lambda: with_sinks("TND on PA_BSND"),
    "logarithms": lambda: attention("BSND on PA_BSND") | {"return_softmax_lse": True},
    "sinks and logarithms": lambda: with_sinks("BSND on BSND with lengths") | {"return_softmax_lse": True},
    "no logarithms": lambda: attention("TND on TND") | {"return_softmax_lse": False},
    "no query tokens": lambda: with_rope("no query tokens"),
    "no query tokens, no logarithms": lambda: with_rope("no query tokens") | {"return_softmax_lse": True},
    "no batch": lambda: attention("no batch"),
}


def judge(results, written, arguments):
    out, lse = references.sparse_flash_attention(**arguments | {"return_softmax_lse": True})
    references.check_attention(results[0], out)
    if arguments.get("return_softmax_lse"):
        references.check_softmax_lse(results[1], lse)
    assert "return_softmax_lse" not in arguments or len(results) == 2
    assert arguments.get("return_softmax_lse", True) or results[1].shape == (0,)


SAMPLES = {"npu_sparse_flash_attention_pto": Samples(CALLS, judge)}
