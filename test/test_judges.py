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


def rows_of(tensor):
    """A copy, as a matrix: a row is a head, a token of a cache, or a number of a vector."""
    return tensor.reshape(-1, tensor.shape[-1] if tensor.dim() > 1 else 1).clone()


def with_a_wrong_row(tensor):
    """One row is the one before it, as a wrong offset gives."""
    rows = rows_of(tensor)
    before = rows.roll(1, 0)
    row = (rows.double() - before.double()).nan_to_num().abs().sum(-1).argmax()
    rows[row] = before[row]
    return rows.view(tensor.shape)


def with_a_wrong_tile(tensor):
    """At most 16 neighbouring numbers of one row are missing."""
    rows = rows_of(tensor)
    row = rows.double().nan_to_num().abs().sum(-1).argmax()
    rows[row, :16] = 0 if tensor.is_floating_point() else ~rows[row, :16]
    return rows.view(tensor.shape)


ERRORS = {
    "a step": a_step_away,
    "NaN": with_a_nan,
    "a row": with_a_wrong_row,
    "a tile": with_a_wrong_tile,
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
    with pytest.raises(AssertionError, match=rf"head \(0, 0, {head}\) is off by"):
        references.check_attention(with_a_wrong_head(head, expected, change, arguments).bfloat16(), expected)


def with_a_wrong_head(head, expected, change, arguments):
    """The expected result of an attention, except that one head is computed from changed arguments."""
    changed, actual = dict(arguments), expected.clone()
    change(changed)
    actual[:, :, head] = references.sparse_flash_attention(**changed)[:, :, head]
    return actual


def test_the_judge_of_the_layer_rejects_one_wrong_key_or_head():
    """A selection without its best key is rejected, one that differs at the last place is not."""
    torch.manual_seed(0)  # with which the last two lie close together
    inputs = references.sparse_attention_inputs([4000], hidden=256, q_lora=64, index_depth=64)
    count = inputs.pop("sparse_count")
    stages = references._sparse_attention_prologs(**inputs)
    best = references.lightning_indexer(**stages.indexer, sparse_count=count + 1)

    def attention(selection):
        return references.sparse_flash_attention(sparse_indices=selection, **stages.attention)

    def judge(out):
        references.check_sparse_attention(out.bfloat16(), stages.caches, sparse_count=count, **inputs)

    (row,) = references.lightning_indexer_rows(**stages.indexer)
    ranked = row.scores.sort(descending=True).values
    assert ranked[count - 1] - ranked[count] < references.score_error(stages.indexer) * row.magnitude
    judge(attention(torch.cat([best[..., : count - 1], best[..., count:]], -1)))
    with pytest.raises(AssertionError, match="times the tolerance"):
        judge(attention(best[..., 1:]))
    right = attention(best[..., :count])
    arguments = stages.attention | {"sparse_indices": best[..., :count]}
    for head, change in ((0, without_keys(16)), (77, with_another_page)):
        with pytest.raises(AssertionError, match=rf"head \(0, 0, {head}\) is off by"):
            judge(with_a_wrong_head(head, right, change, arguments))
