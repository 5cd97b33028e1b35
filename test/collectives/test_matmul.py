# SPDX-License-Identifier: Apache-2.0
"""Matrix products with a collective before or after them."""

import pytest


@pytest.mark.parametrize(
    "case",
    ["products", "quantised", "bits_of_the_two_calls", "order", "captured", "in_graphs", "types_of_a_node"],
)
def test_products_with_a_collective(ranks, case):
    ranks.run_in_group(f"matmul_cases.{case}", 2)


def test_what_is_wrong_is_said(ranks):
    for rank, texts in enumerate(ranks.run_in_group("matmul_cases.rejected", 2)):
        nobody, shape, counts = texts
        assert "the process has no communicator named 'nobody'" in nobody, nobody
        assert "output must be contiguous and have shape [2, 3], got [1, 3]" in shape, shape
        assert "the ranks disagree in the count: 20 on rank 0; 30 on rank 1" in counts, counts
        assert f"on rank {rank}" in counts and "aclnnAllGatherMatmul" in counts, counts


@pytest.mark.parametrize(
    "case, size",
    [
        ("blocks", 2),
        ("rows_of_experts", 3),
        ("reduced_int8", 2),
        ("reduced_weights_of_int8", 2),
        ("blocks_of_int8", 2),
        ("in_graphs", 2),
        ("rows_of_experts_in_float8", 2),
        ("float8_in_graphs", 2),
    ],
)
def test_products_with_an_exchange(ranks, case, size):
    ranks.run_in_group(f"exchange_cases.{case}", size)


def test_what_is_wrong_with_an_exchange_is_said(ranks):
    expected = [
        "gmm_x_scale has shape [4, 1, 2]; expected [4, 2, 2]",
        "group_size is 16; expected 0 or 4295032864",
        "send_counts has the sum 5; expected 4, the rows of gmm_x",
        "send_counts has 2 counts; expected 4, for each rank and expert",
        "x2 has shape [6, 5]; expected [12, 5]",
    ]
    for texts in ranks.run_in_group("exchange_cases.rejected", 2):
        for text, part in zip(texts, expected, strict=True):
            assert part in text, text
