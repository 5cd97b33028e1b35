# SPDX-License-Identifier: Apache-2.0
"""The judge of examples/serve_vllm.py."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import serve_vllm


def counting(tokens):
    """Logits of a model whose next token is the last one and 1."""
    return 10.0 * torch.nn.functional.one_hot((torch.tensor(tokens) + 1) % 64, 64)


def served(*firsts):
    return [list(range(first, first + serve_vllm.NEW_TOKENS)) for first in firsts]


def test_the_right_tokens_have_no_difference():
    assert serve_vllm.first_difference(counting, [[1, 2], [7]], served(3, 8)) == ""


@pytest.mark.parametrize("place", [0, 5, serve_vllm.NEW_TOKENS - 1])
def test_the_first_wrong_token_is_named(place):
    tokens = served(3, 8)
    tokens[1][place] = 50
    wrong = serve_vllm.first_difference(counting, [[1, 2], [7]], tokens)
    assert wrong == f"prompt 1, token {place}: 50 instead of {8 + place}, whose logit is 10.00 higher"


def test_tokens_that_are_missing_are_named():
    tokens = served(3)
    tokens[0].pop()
    count = serve_vllm.NEW_TOKENS
    wrong = serve_vllm.first_difference(counting, [[1, 2]], tokens)
    assert wrong == f"prompt 0: {count - 1} tokens instead of {count}"


@pytest.mark.parametrize(("gap", "is_right"), [(0.5, True), (2, False)])
def test_only_tokens_that_rounding_cannot_tell_apart_are_taken_for_each_other(gap, is_right):
    def with_rival(tokens):
        logits = counting(tokens)
        logits[:, 60] = 10 - gap * serve_vllm.EQUAL_LOGITS
        return logits

    tokens = served(3)
    tokens[0][-1] = 60
    assert (serve_vllm.first_difference(with_rival, [[1, 2]], tokens) == "") == is_right
