# SPDX-License-Identifier: Apache-2.0
"""Calls of the operators that write caches, one of each layout, small; on the CPU, to be moved to where wanted."""

import references
import torch

from custom_pypto.authoring.check import Samples


# Sizes are all different: a tracer takes two that are equal to be one.
def prolog(tokens, cache=(7, 8), **options):
    small = {"hidden": 56, "q_lora": 40, "heads": 5, "depth": 16, "rope_depth": 6}
    return references.lightning_indexer_prolog_inputs(tokens, cache=cache, **small, **options)


def with_a_cache_for_each_sequence():
    return prolog((2, 3), cache=(4, 7)) | {"layout_key": "BSND"}


PROLOG_CALLS = {
    "TND on PA_BSND": lambda: prolog(4),
    "BSND on PA_BSND": lambda: prolog((2, 3), slot_dtype=torch.int32),
    "TND on TND": lambda: prolog(4, cache=(20,)) | {"rope_mode": "half"},
    "BSND on BSND": with_a_cache_for_each_sequence,
    "float16": lambda: prolog(4, dtype=torch.float16) | {"layout_query": None, "layout_key": None},
    "no tokens": lambda: prolog(0),
    "no batch": lambda: prolog((0, 3)),
}


def layer(lengths, **options):
    small = {"hidden": 56, "q_lora": 40, "heads": 5, "depth": 12, "rope_depth": 10, "kv_lora": 24, "index_heads": 7}
    small |= {"index_depth": 16, "count": 9, "block_size": 8}
    return references.sparse_attention_inputs(lengths, **small | options)


LAYER_CALLS = {
    "one token": lambda: layer([5, 20, 1]),
    "three tokens": lambda: layer([20, 3], queries=3, slot_dtype=torch.int64),
    "every attribute": lambda: (
        layer([30, 9], queries=2, count=3)
        | {"softmax_scale": 0.3, "rms_norm_eps": 0.5, "layer_norm_eps": 0.25}
        | {"rope_mode": "half", "indexer_rope_mode": "half"}
    ),
    "float16": lambda: layer([11], queries=2, dtype=torch.float16),
    "no tokens": lambda: layer([5, 4], queries=0),
    "no batch": lambda: layer([]),
}


def judge_prolog(results, written, arguments):
    references.check_lightning_indexer_prolog((*results, *written), **arguments)


def judge_layer(results, written, arguments):
    references.check_sparse_attention(*results, written, **arguments)


SAMPLES = {
    "npu_lightning_indexer_prolog_pto": Samples(PROLOG_CALLS, judge_prolog),
    "npu_sparse_attention_pto": Samples(LAYER_CALLS, judge_layer),
}
