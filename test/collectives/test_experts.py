# SPDX-License-Identifier: Apache-2.0
"""Experts on the ranks of a group: tokens to them, and their results back."""

import pytest


@pytest.mark.parametrize(
    "case, size",
    [
        ("there_and_back", 2),
        ("there_and_back", 3),
        ("masked", 3),
        ("shared_experts", 4),
        ("in_int8", 2),
        ("weights_travel", 2),
        ("experts_on_no_rank", 2),
        ("first_versions_and_norm", 2),
        ("captured", 2),
        ("in_graphs", 2),
        ("barrier", 2),
    ],
)
def test_experts_across_ranks(ranks, case, size):
    ranks.run_in_group(f"expert_cases.{case}", size)


def test_what_is_wrong_with_experts_is_said(ranks):
    expected = [
        "expert_ids[0, 0] is 4; expected 0 to 3",
        "ep_world_size is 3",
        "moe_expert_num is 5; expected a multiple of the 2 ranks",
        "quant_mode is 1; expected 0 or 2",
        "x_active_mask has a token that takes part behind one that does not",
        "tp_world_size is 2; expected 0 to 1",
        "world_size is 3; expected 2",
    ]
    for texts in ranks.run_in_group("expert_cases.rejected", 2):
        for text, part in zip(texts, expected, strict=True):
            assert part in text, text
