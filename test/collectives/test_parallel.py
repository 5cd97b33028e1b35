# SPDX-License-Identifier: Apache-2.0
"""The operators divided among ranks, against the operators on one and against the mathematics."""

import re
from pathlib import Path

import pytest


def run(ranks, case, size, **arguments):
    return ranks.run_in_group(f"parallel_cases.{case}", size, **arguments)


@pytest.mark.parametrize(("size", "seed"), [(2, 1), (3, 2)])
def test_context_parallel_selects_what_one_rank_does_and_attends_to_it(ranks, size, seed):
    run(ranks, "context", size, seed=seed)


def test_an_attention_as_large_as_the_model_s_is_within_the_operator_s_tolerance(ranks):
    run(ranks, "attention_as_large_as_the_model_s", 2)


def test_quantised_keys_and_what_is_written(ranks):
    run(ranks, "quantised", 2)
    run(ranks, "written", 2)


@pytest.mark.parametrize("size", [2, 4])
def test_selections_are_merged_by_the_rule(ranks, size):
    run(ranks, "merged_rows", size, seed=4, rows=200)


def test_what_cannot_be_merged_is_rejected(ranks):
    for texts in run(ranks, "rejected", 2):
        assert "sparse_values must be float32, but are torch.bfloat16" in texts[0]
        assert "the 2 ranks divide, but attention_out has 3" in texts[1]


@pytest.mark.parametrize("mode", ["GE static", "GE dynamic", "reduce-overhead", "npugraph_ex"])
def test_context_parallel_in_graphs(ranks, mode):
    run(ranks, "in_graphs", 2, mode=mode)


def test_dtensors_divide_every_operator_in_every_way(ranks):
    from custom_pypto.parallel import sharding

    made = run(ranks, "divisions", 2)[0]
    ways = {
        (operator, "+".join(sorted(each.sizes)))
        for operator, divisions in sharding.DIVISIONS.items()
        for each in divisions
        if not operator.startswith("add_custom")
    }
    assert made.keys() == ways, ways - made.keys()


def test_dtensors_of_add_custom(ranks):
    run(ranks, "add_custom", 2)
    run(ranks, "two_dimensions", 4)


REJECTED = {
    "depth": r"npu_lightning_indexer_pto: 'query' is Shard\(dim=3\) over mesh dimension 0, by its D: the operator may",
    "packed": r"'query' is Shard\(dim=0\) over mesh dimension 0, by its T: the lengths of packed sequences are running",
    "running totals": r"'block_table' is Shard\(dim=0\) over mesh dimension 0, by its B: the lengths of packed",
    "tokens to whole caches": r"is written, and must be Shard\(dim=0\) .* but is Replicate\(\): what the tokens of",
    "scaled": r"'weights_proj' is Shard\(dim=1\) over mesh dimension 0, by its N: the weights are scaled",
    "both": r"'query' is Shard\(dim=0\) over mesh dimension 0, by its B, beside 'sparse_indices' by its S1",
    "fused blocks": r"'kv_cache' is Shard\(dim=0\) over mesh dimension 0, by its blocks: it selects and attends in one",
    "fused tokens": r"'kv_cache' is written, and must be Shard\(dim=0\) .*: what the tokens of other ranks write",
    "plain": r"'block_table' must be a DTensor, as the others are",
    "elsewhere": r"block_table\[\d\]\[\d\] is 2147483647, but must lie between",
}


def test_what_cannot_be_divided_is_rejected_with_the_reason(ranks):
    for texts in run(ranks, "rejections", 2):
        for name, pattern in REJECTED.items():
            assert re.search(pattern, texts[name]), f"{name}: {texts[name]}"


def test_the_table_of_costs_is_in_the_documentation():
    from custom_pypto.parallel import costs

    assert costs.table() in (Path(__file__).parents[2] / "docs" / "parallel.md").read_text()


def test_the_example_decodes_the_tokens_of_one_rank_and_finds_others(ranks):
    assert run(ranks, "example", 2) == [(0, 1), (0, 1)]
