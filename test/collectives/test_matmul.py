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
