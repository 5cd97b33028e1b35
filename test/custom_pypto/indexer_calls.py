# SPDX-License-Identifier: Apache-2.0
"""Calls of npu_lightning_indexer_pto, one of each layout, small; on the CPU, to be moved to where they are wanted."""

import goldens
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
    "no query tokens": lambda: query(BATCH, 0) | paged(),
    "no batch": lambda: (
        query(0, TOKENS) | paged() | {"actual_seq_lengths_key": int32(), "block_table": int32().view(0, 3)}
    ),
}


def judge(results, written, arguments):
    count = arguments.pop("sparse_count")
    assert results[0].shape[-1] == count
    goldens.check_lightning_indexer(*results, **arguments)


SAMPLES = {"npu_lightning_indexer_pto": Samples(CALLS, judge)}
