# SPDX-License-Identifier: Apache-2.0
"""Calls of the operators of the paged KV cache, small; on the CPU, to be moved to where wanted."""

import references
import torch

from custom_pypto.authoring.check import Samples, same


# Sizes are all different: a tracer takes two that are equal to be one.
def write(tokens, heads=3, depth=16, cache=(7, 8), **options):
    return references.reshape_and_cache_inputs(tokens, heads=heads, depth=depth, cache=cache, **options)


def without_values():
    return write(5, keys_only=True)


def negative_slots():
    arguments = write((2, 5), slot_dtype=torch.int32)
    arguments["slot_mapping"][3:6] = torch.tensor([-1, -7, -(2**31)])
    return arguments


def padded():
    arguments = write(5)
    return arguments | {"slot_mapping": arguments["slot_mapping"][:3]}


RESHAPE_CALLS = {
    "int8 keys": lambda: write(5, value_depth=20, dtype=torch.int8, value_dtype=torch.float16),
    "bfloat16": lambda: write(5, value_depth=20),
    "sequences": lambda: write((2, 5), value_depth=20, dtype=torch.float16),
    "negative slots": negative_slots,
    "NZ": lambda: write(5, heads=2, depth=24, value_depth=40, cache_layout="NZ", value_dtype=torch.float32),
    "keys only": without_values,
    "keys only in NZ": lambda: write((2, 3), keys_only=True, cache_layout="NZ", dtype=torch.int8, heads=6),
    "padding": padded,
    "no tokens": lambda: write(0),
    "no batch": lambda: write((0, 3), keys_only=True),
}


def step(lengths, **options):
    return references.advance_step_flashattn_inputs(lengths, **options)


ADVANCE_CALLS = {
    "int32": lambda: step([5, 20, 31], padding=2, dtype=torch.int32),
    "int64": lambda: step([5, 20, 31], padding=2),
    "no padding": lambda: step([15, 16, 0]),
    "padding only": lambda: step([], padding=3, table_width=4),
    "past the block table": lambda: step([32, 500, 31], table_width=2),
    "no sequences": lambda: step([], table_width=2),
}


def judge_by(reference):
    """What is written is bitwise equal to the reference, except for the tensors that it omits."""

    def judge(results, written, arguments):
        expected = [tensor for tensor in reference(**arguments) if tensor is not None]
        assert same(written, expected), "something else is written"

    return judge


SAMPLES = {
    "reshape_and_cache": Samples(RESHAPE_CALLS, judge_by(references.reshape_and_cache)),
    "advance_step_flashattn": Samples(ADVANCE_CALLS, judge_by(references.advance_step_flashattn)),
}
