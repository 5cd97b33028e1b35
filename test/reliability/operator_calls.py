# SPDX-License-Identifier: Apache-2.0
"""Calls the operators of custom_pypto with arguments drawn from a seed: those of a sample, some of them spoilt.

Right is: an exception, from the call or from the next synchronisation, or a call that runs, which gives the same bits
when it is made again; no crash, no hang, no change of an argument that the schema does not declare as written, and the
next good call gives what it gave before.

    python test/reliability/operator_calls.py [--calls N] [--seed N] [--functions NAME ...] [--only CALL]
"""

import random
import sys
from pathlib import Path

import drawn_calls

OPERATORS = [
    "add_custom",
    "advance_step_flashattn",
    "npu_lightning_indexer_prolog_pto",
    "npu_lightning_indexer_pto",
    "npu_lightning_indexer_quant_pto",
    "npu_sparse_attention_pto",
    "npu_sparse_flash_attention_pto",
    "reshape_and_cache",
]
NUMBERS = [
    0,
    -1,
    1,
    2,
    3,
    17,
    1 << 31,
    -(1 << 31),
    (1 << 63) - 1,
    -(1 << 63),
    0.0,
    -1.0,
    1e30,
    float("nan"),
    float("inf"),
]
TEXTS = ["", "BSND", "TND", "PA_BSND", "PA_NZ", "half", "interleave", "x" * 4000, "%s%n", "日本"]
OTHERS = [None, True, [], [1], "text", 1, 0.5]
TENSORS = [
    "dtype",
    "size",
    "empty",
    "rank",
    "scalar",
    "strides",
    "expanded",
    "values",
    "device",
    "offset",
    "other",
    "none",
]


def drawn(seed: int, number: int, functions: list[str]):
    """The operator's name, and how to spoil which of its arguments."""
    draw = random.Random(f"{seed}:{number}")
    return draw.choice(functions), number, draw.randrange(1 << 30), draw.choice([1, 1, 2, 3])


def spoilt(draw: random.Random, value, others: list):
    """Another value for an argument."""
    import torch

    if not isinstance(value, torch.Tensor):
        same = {int: NUMBERS[:10], float: NUMBERS[10:], str: TEXTS, bool: [True, False]}.get(type(value), OTHERS)
        return draw.choice(same if draw.random() < 0.8 else OTHERS)
    match draw.choice(TENSORS):
        case "dtype":
            return value.to(
                draw.choice([torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8])
            )
        case "size" if value.numel():
            d = draw.randrange(value.dim()) if value.dim() else 0
            sizes = [1, value.size(d) + 1, 2 * value.size(d)] if value.dim() else [2]
            return torch.atleast_1d(value).index_select(
                d, torch.arange(draw.choice(sizes)) % torch.atleast_1d(value).size(d)
            )
        case "empty" if value.dim():
            return value.narrow(draw.randrange(value.dim()), 0, 0)
        case "rank":
            return value[None] if draw.random() < 0.5 or not value.dim() else value.flatten()
        case "scalar":
            return value.flatten()[0] if value.numel() else value
        case "strides" if value.dim() > 1:
            return value.transpose(0, -1).contiguous().transpose(0, -1)
        case "expanded" if value.dim():
            return value.narrow(0, 0, min(value.size(0), 1)).expand_as(value) if value.size(0) else value
        case "values" if value.numel():
            return other_values(draw, value)
        case "device":
            return value, "cpu"
        case "offset":
            memory = torch.zeros(value.numel() + 3, dtype=value.dtype)[3:].view(value.shape)
            return memory.copy_(value)
        case "other":
            return draw.choice(others)
        case "none":
            return None
    return value


def other_values(draw: random.Random, value):
    """Some elements are extreme."""
    import torch

    other = value.clone()
    places = torch.tensor([draw.randrange(value.numel()) for _ in range(draw.choice([1, 3, 100]))])
    if value.dtype.is_floating_point:
        extreme = draw.choice([float("nan"), float("inf"), -float("inf"), 1e30, 0.0])
    else:
        limits = torch.iinfo(value.dtype) if value.dtype != torch.bool else None
        extreme = draw.choice([-1, 0, 1, 1000, limits.min, limits.max]) if limits else 1
        extreme = max(min(extreme, limits.max), limits.min) if limits else extreme
    other.view(-1)[places] = extreme
    return other


def caller():
    """What makes such a call, and says what it did."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map_only

    from custom_pypto.authoring import check
    from custom_pypto.graph import prototypes

    torch.set_num_threads(1)
    samples = check.load_samples("custom_pypto", Path(__file__).parents[2])
    good, expected = {}, {}

    def on_npu(arguments: dict) -> dict:
        on_cpu = {
            name: value[0] for name, value in arguments.items() if isinstance(value, tuple) and value[1:] == ("cpu",)
        }
        rest = {name: value for name, value in arguments.items() if name not in on_cpu}
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to("npu"), rest) | on_cpu

    def run(name: str, arguments: dict):
        """The results and the written arguments, on the host."""
        operator = getattr(torch.ops.custom_pypto, name)
        results = operator(**arguments)
        torch.npu.synchronize()
        given = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        return [tensor.cpu() for tensor in (*tree_leaves(results), *given) if isinstance(tensor, torch.Tensor)]

    def written(name: str) -> set[str]:
        packet = getattr(torch.ops.custom_pypto, name)
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
        return {a.name for schema in schemas for a in schema.arguments if prototypes.is_written(a)}

    def same(left: list, right: list) -> bool:
        return len(left) == len(right) and all(map(check.same, left, right))

    def call(name: str, number: int, seed: int, faults: int) -> tuple[str, str]:
        draw = random.Random(seed)
        calls = samples[name][0].calls
        sample = draw.choice(sorted(calls))
        torch.manual_seed(0)
        if (name, sample) not in good:
            good[name, sample] = calls[sample]()
            expected[name, sample] = run(name, on_npu(good[name, sample]))
        arguments = dict(good[name, sample])
        tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        for argument in draw.sample(sorted(arguments), min(faults, len(arguments))):
            arguments[argument] = spoilt(draw, arguments[argument], tensors)
        device = on_npu(arguments)
        before = {key: value.clone() for key, value in device.items() if isinstance(value, torch.Tensor)}
        outcome, message = "ran", ""
        try:
            results = run(name, device)
        except Exception as error:
            outcome, message = "rejected", str(error)
            try:
                torch.npu.synchronize()
            except RuntimeError:
                outcome = "failed in the stream"
        for key, value in before.items():
            if key not in written(name) and not check.same(device[key], value):
                return "changed an input", key
        if outcome == "ran" and not same(run(name, on_npu(arguments)), results):
            return "broke the next call", "the same call gives something else"
        if number % 20 == 0 and not same(run(name, on_npu(good[name, sample])), expected[name, sample]):
            return "broke the next call", sample
        return outcome if outcome == "ran" or message else "no message", message

    return call


if __name__ == "__main__":
    sys.exit(drawn_calls.main(__file__, __doc__.split("\n")[0], OPERATORS, drawn, caller))
