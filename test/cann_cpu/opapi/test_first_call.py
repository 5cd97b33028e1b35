# SPDX-License-Identifier: Apache-2.0
"""The first call of a function in a process gives the bits of the later ones."""

import os

import pytest
import torch
from kernels import in_a_process

PROCESSES = 800


def print_unlike_first_calls():
    """Counts the processes whose first call differs from their second: without first_call.cpp 1 in 60 to 1 in 1000, and
    more on a busy machine."""
    angles = torch.linspace(0.01, 6.3, 4240)  # enough for two threads
    unlike = 0
    for _ in range(PROCESSES):
        child = os.fork()
        if child == 0:
            os._exit(not torch.equal(angles.cos(), angles.cos()))
        unlike += os.waitpid(child, 0)[1] != 0
    print(unlike)


@pytest.mark.nightly
def test_first_calls_in_several_threads_give_the_bits_of_later_ones():
    assert in_a_process(print_unlike_first_calls, OMP_NUM_THREADS="2") == "0"
