# SPDX-License-Identifier: Apache-2.0
"""What judges results accepts those of the mathematics, and rejects every kind of wrong one."""

import sys
from pathlib import Path

import pytest
import references
import torch

sys.path.append(str(Path(__file__).parent / "custom_pypto"))
import add_custom_calls
import calls


def reference(operator, arguments):
    """(results, what is written) of an operator, in the dtypes that it gives them."""
    match operator:
        case "npu_lightning_indexer_pto":
            indices, values = references.lightning_indexer(**arguments | {"return_value": True})
            return [indices, *[values.to(arguments["weights"].dtype)] * arguments.get("return_value", False)], []
        case "npu_lightning_indexer_quant_pto":
            indices, values = references.lightning_indexer_quant(**arguments | {"return_value": True})
            return [indices, *[values.float()] * arguments.get("return_value", False)], []
        case "npu_sparse_flash_attention_pto":
            out, lse = references.sparse_flash_attention(**arguments | {"return_softmax_lse": True})
            return [out.to(arguments["query"].dtype), *[lse.float()] * arguments.get("return_softmax_lse", False)], []
        case "npu_lightning_indexer_prolog_pto":
            results = references.lightning_indexer_prolog(**arguments)
            return list(results[:3]), list(results[3:])
        case "npu_sparse_attention_pto":
            out, *caches = references.sparse_attention(**arguments)
            return [out.to(arguments["x"].dtype)], caches
        case "reshape_and_cache":
            return [], [cache for cache in references.reshape_and_cache(**arguments) if cache is not None]
        case "advance_step_flashattn":
            return [], list(references.advance_step_flashattn(**arguments))
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
    """Shifts rows as a wrong offset does."""
    return tensor.reshape(-1, tensor.shape[-1] if tensor.dim() > 1 else 1).roll(1, 0).view(tensor.shape)


ERRORS = {
    "a step": a_step_away,
    "NaN": with_a_nan,
    "rows": with_rows_shifted,
    "nothing": torch.zeros_like,
    "shape": lambda tensor: tensor[None],
}
# Results computed from rounded numbers: where those lie between two, the result is off by a step.
ROUNDED_BEFORE = [("npu_sparse_attention_pto", 0)]
SAMPLES = calls.SAMPLES | add_custom_calls.SAMPLES
SIZED = {
    operator: [call for call, arguments in samples.calls.items() if not call.startswith(("no ", "padding only"))]
    for operator, samples in SAMPLES.items()
}


@pytest.mark.parametrize(("operator", "call"), [(operator, call) for operator in SIZED for call in SIZED[operator]])
def test_the_judge_of_an_operator_rejects_every_error(operator, call):
    samples = SAMPLES[operator]
    arguments = samples.calls[call]()
    results, written = reference(operator, arguments)
    samples.judge(results, written, dict(arguments))
    for number, right in enumerate([*results, *written]):
        for name, wrongly in ERRORS.items():
            if name == "NaN" and not right.is_floating_point():
                continue
            if name == "a step" and right.dtype == torch.float32:
                continue  # a sum of rounded numbers, as this is, may be off by several
            if name == "a step" and (operator, number) in ROUNDED_BEFORE:
                wrongly = two_steps_away
            wrong = [*results, *written]
            wrong[number] = wrongly(right)
            with pytest.raises(AssertionError):
                samples.judge(wrong[: len(results)], wrong[len(results) :], dict(arguments))
                pytest.fail(f"output {number} of {operator} may be wrong by {name}", pytrace=False)


def without_keys(count):
    """A head that does not see some of its keys."""

    def change(arguments):
        arguments["sparse_indices"] = arguments["sparse_indices"][..., count:]

    return change


def with_another_value(arguments):
    position = arguments["sparse_indices"][0, 0, 0, 0]
    page = arguments["block_table"][0, position // 128]
    arguments["value"] = arguments["value"].clone()
    arguments["value"][page, position % 128] += 1


def with_another_page(arguments):
    arguments["block_table"] = arguments["block_table"].clone()
    arguments["block_table"][0, 3] = arguments["block_table"][0, 5]


@pytest.mark.parametrize("head", [0, 77])
@pytest.mark.parametrize(
    "change",
    [without_keys(1), without_keys(16), with_another_value, with_another_page],
    ids=["a key lost", "a tile lost", "a value", "a page"],
)
def test_the_judge_of_attention_rejects_one_wrong_head(change, head):
    """At DeepSeek's sizes, where a head has 2,048 keys, which weigh the same here."""
    arguments = references.sparse_flash_attention_inputs([4096]) | {"scale_value": 0.0}
    # Without the two indices past the end, so that every index is a key.
    arguments["sparse_indices"] = torch.randperm(4096, dtype=torch.int32)[:2048].view(1, 1, 1, -1)
    expected = references.sparse_flash_attention(**arguments)
    references.check_attention(expected.bfloat16(), expected)
    changed = dict(arguments)
    change(changed)
    actual = expected.clone()
    actual[:, :, head] = references.sparse_flash_attention(**changed)[:, :, head]
    with pytest.raises(AssertionError, match=rf"head \(0, 0, {head}\) is off by"):
        references.check_attention(actual.bfloat16(), expected)
