# SPDX-License-Identifier: Apache-2.0
"""Calls of npu_lightning_indexer_pto, one of each layout, small; on the CPU, to be moved to where they are wanted."""

import references
import torch

from custom_pypto.authoring.check import Samples

BATCH, TOKENS, KEYS, HEADS, KEY_HEADS, DIM, BLOCK, PAGES = 2, 3, 20, 6, 2, 16, 8, 5


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def query(*tokens):
    return {
        "query": torch.randn(*tokens, HEADS, DIM).bfloat16(),
        "weights": torch.randn(*tokens, HEADS).bfloat16(),
        "sparse_count": 7,
    }


def padded():
    return query(BATCH, TOKENS) | {"layout_query": "BSND"}


def packed():
    return query(4) | {"layout_query": "TND", "actual_seq_lengths_query": int32(1, 4)}


def paged():
    return {
        "key": torch.randn(PAGES, BLOCK, KEY_HEADS, DIM).bfloat16(),
        "layout_key": "PA_BSND",
        "actual_seq_lengths_key": int32(KEYS, 9),
        "block_table": int32(3, 0, 4, 1, 2, -1).view(BATCH, 3),
    }


def padded_keys():
    return {"key": torch.randn(BATCH, KEYS, KEY_HEADS, DIM).bfloat16(), "layout_key": "BSND"}


def packed_keys():
    return {
        "key": torch.randn(KEYS, KEY_HEADS, DIM).bfloat16(),
        "layout_key": "TND",
        "actual_seq_lengths_key": int32(11, KEYS),
    }


CALLS = {
    "BSND on PA_BSND": lambda: padded() | paged(),
    "TND on PA_BSND": lambda: packed() | paged(),
    "BSND on BSND": lambda: padded() | padded_keys(),
    "BSND on BSND with lengths": lambda: (
        padded()
        | padded_keys()
        | {"actual_seq_lengths_query": int32(0, 3), "actual_seq_lengths_key": int32(KEYS, 1), "sparse_mode": 0}
    ),
    "TND on TND": lambda: packed() | packed_keys(),
    "float32 weights": lambda: padded() | paged() | {"weights": torch.randn(BATCH, TOKENS, HEADS)},
    "values": lambda: padded() | paged() | {"return_value": True},
    "float32 values": lambda: packed() | paged() | {"weights": torch.randn(4, HEADS), "return_value": True},
    "packed values": lambda: packed() | packed_keys() | {"return_value": True},
    "no values": lambda: padded() | padded_keys() | {"return_value": False},
    "no query tokens": lambda: query(BATCH, 0) | paged(),
    "no batch": lambda: (
        query(0, TOKENS) | paged() | {"actual_seq_lengths_key": int32(), "block_table": int32().view(0, 3)}
    ),
}


def quantised(call, as_prolog=True, weights=torch.float16, query_scale=torch.float16, key_scale=torch.float16):
    """A call of the indexer as one on int8."""
    arguments = CALLS[call]()
    query, key = (torch.randint(-128, 128, arguments[name].shape, dtype=torch.int8) for name in ("query", "key"))
    scale = torch.rand(*query.shape[:-1], *[1] * as_prolog) / 100
    return arguments | {
        "query": query,
        "key": key,
        "weights": arguments["weights"].to(weights),
        "query_dequant_scale": scale.to(query_scale),
        "key_dequant_scale": (torch.rand(key.shape[:-1]) / 100).to(key_scale),
    }


FLOAT = torch.float32
QUANT_CALLS = {
    "BSND on PA_BSND": lambda: quantised("BSND on PA_BSND"),
    "TND on PA_BSND": lambda: quantised("TND on PA_BSND"),
    "BSND on BSND": lambda: quantised("BSND on BSND", as_prolog=False),
    "BSND on BSND with lengths": lambda: quantised("BSND on BSND with lengths", key_scale=FLOAT),
    "TND on TND": lambda: quantised("TND on TND", as_prolog=False, weights=torch.bfloat16),
    "float32": lambda: quantised("BSND on PA_BSND", weights=FLOAT, query_scale=FLOAT, key_scale=FLOAT),
    "values": lambda: quantised("values"),
    "no values": lambda: quantised("no values"),
    "no query tokens": lambda: quantised("no query tokens"),
    "no batch": lambda: quantised("no batch"),
}


def judge_with(check, dtype_of_values, results, arguments):
    count, with_values = arguments.pop("sparse_count"), arguments.pop("return_value", None)
    assert results[0].shape[-1] == count
    values = results[1] if with_values else None
    assert values is None or values.dtype == dtype_of_values
    assert len(results) == 1 if with_values is None else with_values or results[1].shape == (0,)
    check(results[0], **arguments, values=values)


def judge(results, written, arguments):
    judge_with(references.check_lightning_indexer, arguments["weights"].dtype, results, arguments)


def judge_quantised(results, written, arguments):
    judge_with(references.check_lightning_indexer_quant, torch.float32, results, arguments)


SAMPLES = {
    "npu_lightning_indexer_pto": Samples(CALLS, judge),
    "npu_lightning_indexer_quant_pto": Samples(QUANT_CALLS, judge_quantised),
}
