# SPDX-License-Identifier: Apache-2.0
"""The kernels of the matrix operators on machines that have less than this one, and under the checks.

Each machine is emulated in a separate process, with the variables that restrict ATen, oneDNN and the kernels.
"""

import pytest
import references
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import in_a_process, same
from machines import THIS_CAN_BE, every_machine

from opp import (
    test_lightning_indexer,
    test_lightning_indexer_prolog,
    test_lightning_indexer_quant,
    test_sparse_attention,
    test_sparse_flash_attention,
)

KERNELS = [
    test_lightning_indexer,
    test_lightning_indexer_prolog,
    test_lightning_indexer_quant,
    test_sparse_attention,
    test_sparse_flash_attention,
]


def check_small_cases():
    for kernel in KERNELS:
        kernel.check_small_cases()
    print(len(KERNELS))


@every_machine
def test_small_cases(name):
    assert int(in_a_process(check_small_cases, **THIS_CAN_BE[name])) == len(KERNELS)


def test_the_checks_find_nothing_in_small_cases():
    assert int(in_a_process(check_small_cases, ASCENDC_CPU_CHECKS="1")) == len(KERNELS)


def test_limits():
    def attends(block_size=16, depth=16):
        inputs = references.sparse_flash_attention_inputs(
            [20], heads=1, count=20, block_size=block_size, depth=depth, rope_depth=0, values=torch.ones
        )
        test_sparse_flash_attention.run(inputs)

    attends(block_size=1 << 20)
    attends(depth=65520)
    for sizes, message in (
        ({"block_size": (1 << 20) + 1}, "key must have a size block_size of 1048576 or less, .* 1048577"),
        ({"depth": 65521}, "query must have a size D of 65520 or less, .* 65521"),
    ):
        with pytest.raises(RuntimeError, match=message):
            attends(**sizes)
    with pytest.raises(RuntimeError, match=r"wk must have a size D of 2048 or less, .* 2049"):
        test_lightning_indexer_prolog.run(test_lightning_indexer_prolog.small(1, heads=1, depth=2049))


def test_a_larger_sparse_count_changes_nothing():
    """No memory for more keys than there are, and the same bits."""
    for seed in range(24):  # of seven the last bit differed when the count decided how rows are divided
        torch.manual_seed(seed)
        inputs = references.sparse_attention_inputs([300, 64], queries=2, **test_sparse_attention.SMALL)
        all_of_them, *more = (
            test_sparse_attention.run(inputs | {"sparse_count": each}) for each in (300, 384, 512, 2**63 - 1)
        )
        assert all(same(all_of_them, each) for each in more)


def check_odd_shapes():
    """A few of the examples that the kernels' own tests draw many of."""
    drawn = [
        test for kernel in KERNELS for name, test in vars(kernel).items() if getattr(test, "is_hypothesis_test", False)
    ]
    for test in drawn:
        few = settings(deadline=None, max_examples=3, derandomize=True)
        few(given(data=st.data())(test.hypothesis.inner_test))()
    print(len(drawn))


@pytest.mark.nightly
def test_the_checks_find_nothing_in_odd_shapes():
    checked = in_a_process(check_odd_shapes, ASCENDC_CPU_CHECKS="1")
    assert int(checked) >= len(KERNELS)


@pytest.mark.nightly
def test_a_level_that_there_is_not_is_rejected():
    with pytest.raises(AssertionError, match="CANN_CPU_CAPABILITY is 'avx9', but this machine has: default"):
        in_a_process(test_lightning_indexer.check_small_cases, CANN_CPU_CAPABILITY="avx9")
