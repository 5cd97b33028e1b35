# SPDX-License-Identifier: Apache-2.0
"""What judges results accepts those of the mathematics, and rejects every kind of wrong one."""

import sys
from pathlib import Path

import goldens
import pytest
import torch

sys.path.append(str(Path(__file__).parent / "custom_pypto"))
import add_custom_calls
import calls


def golden(operator, arguments):
    """(results, what is written) of an operator, in the dtypes that it gives them."""
    match operator:
        case "npu_lightning_indexer_pto":
            indices, values = goldens.lightning_indexer(**arguments | {"return_value": True})
            return [indices, *[values.to(arguments["weights"].dtype)] * arguments.get("return_value", False)], []
        case "npu_lightning_indexer_quant_pto":
            indices, values = goldens.lightning_indexer_quant(**arguments | {"return_value": True})
            return [indices, *[values.float()] * arguments.get("return_value", False)], []
        case "npu_sparse_flash_attention_pto":
            out, lse = goldens.sparse_flash_attention(**arguments | {"return_softmax_lse": True})
            return [out.to(arguments["query"].dtype), *[lse.float()] * arguments.get("return_softmax_lse", False)], []
        case "npu_lightning_indexer_prolog_pto":
            results = goldens.lightning_indexer_prolog(**arguments)
            return list(results[:3]), list(results[3:])
        case "npu_sparse_attention_pto":
            out, *caches = goldens.sparse_attention(**arguments)
            return [out.to(arguments["x"].dtype)], caches
        case "reshape_and_cache":
            return [], [cache for cache in goldens.reshape_and_cache(**arguments) if cache is not None]
        case "advance_step_flashattn":
            return [], list(goldens.advance_step_flashattn(**arguments))
        case "add_custom":
            return [arguments["self"] + arguments["other"]], []
        case "add_custom_backward":
            return [arguments["self"]] * 2, []


def a_step_away(tensor):
    """Every number the next one further from zero."""
    if not tensor.is_floating_point():
        return tensor + 1
    return torch.nextafter(tensor, torch.where(tensor < 0, -torch.inf, torch.inf).to(tensor.dtype))


def two_steps_away(tensor):
    return a_step_away(a_step_away(tensor))


def with_a_nan(tensor):
    changed = tensor.clone(memory_format=torch.contiguous_format)
    changed.view(-1)[tensor.numel() // 2] = torch.nan
    return changed


def with_rows_shifted(tensor):
    """As a wrong offset leaves them."""
    return tensor.reshape(-1, tensor.shape[-1] if tensor.dim() > 1 else 1).roll(1, 0).view(tensor.shape)


MISTAKES = {
    "a step": a_step_away,
    "NaN": with_a_nan,
    "rows": with_rows_shifted,
    "nothing": torch.zeros_like,
    "shape": lambda tensor: tensor[None],
}
# Results of numbers that are themselves rounded: where those lie between two, the result is off by a step.
ROUNDED_BEFORE = [("npu_sparse_attention_pto", 0)]
SAMPLES = calls.SAMPLES | add_custom_calls.SAMPLES
SIZED = {
    operator: [call for call, arguments in samples.calls.items() if not call.startswith(("no ", "padding only"))]
    for operator, samples in SAMPLES.items()
}


@pytest.mark.parametrize(("operator", "call"), [(operator, call) for operator in SIZED for call in SIZED[operator]])
def test_the_judge_of_an_operator_rejects_every_mistake(operator, call):
    samples = SAMPLES[operator]
    arguments = samples.calls[call]()
    results, written = golden(operator, arguments)
    samples.judge(results, written, dict(arguments))
    for number, right in enumerate([*results, *written]):
        for name, mistake in MISTAKES.items():
            if name == "NaN" and not right.is_floating_point():
                continue
            if name == "a step" and right.dtype == torch.float32:
                continue  # a sum of rounded numbers, as this is, may be off by several
            if name == "a step" and (operator, number) in ROUNDED_BEFORE:
                mistake = two_steps_away
            wrong = [*results, *written]
            wrong[number] = mistake(right)
            with pytest.raises(AssertionError):
                samples.judge(wrong[: len(results)], wrong[len(results) :], dict(arguments))
                pytest.fail(f"output {number} of {operator} may be wrong by {name}", pytrace=False)
