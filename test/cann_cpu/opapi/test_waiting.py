# SPDX-License-Identifier: Apache-2.0
"""A stream that sleeps."""

import time

import aclnn
import pytest
import torch
from aclnn import Rejected


def test_a_stream_sleeps_for_as_many_cycles():
    torch.ones(1, device="npu")
    begin = time.perf_counter()
    aclnn.call("libopapi.so", "aclnnSleep", [int(0.2 * 1.65e9)])
    assert time.perf_counter() - begin >= 0.2


@pytest.mark.parametrize("cycles", [[0], [-1], [1, 1]], ids=str)
def test_bad_input_is_named(cycles):
    with pytest.raises(Rejected, match="expected one number of more than 0"):
        aclnn.call("libopapi.so", "aclnnSleep", cycles)
