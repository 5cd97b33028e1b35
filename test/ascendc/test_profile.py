# SPDX-License-Identifier: Apache-2.0
"""What a kernel asks of the device's pipes, counted by hand and by Kernel.profile."""

import re

import numpy as np
import pytest
from cann_cpu.kernel import PIPES
from test_tutorial import DESCRIPTION, SCALE, TUTORIAL, scale  # noqa: F401


def by_pipe(profile):
    """What the pipes did that did anything."""
    counts = {name: (profile.instructions[i], profile.work[i]) for i, name in enumerate(PIPES)}
    return {name: count for name, count in counts.items() if count != (0, 0)}


def steps(profile):
    return profile.steps_one_by_one, profile.steps, profile.steps_of_busiest


# With one buffer a queue's next copy waits until the addition has read, and the next addition until the copy out has.
@pytest.mark.parametrize(("depth", "expected"), [(1, (12, 9, 4)), (2, (12, 6, 4))])
def test_pipes_overlap_as_far_as_the_buffers_of_queues_let_them(kernels, depth, expected):
    kernel = kernels("profile")["tiles"]
    x, y = np.arange(1280, dtype=np.float32), np.zeros(1280, np.float32)
    kernel(x, y, depth, blocks=4)
    assert (y == x + 1).all()
    profile = kernel.profile
    assert by_pipe(profile) == {"V": (10, 20), "MTE2": (10, 5120), "MTE3": (10, 5120)}
    assert steps(profile) == expected, "of the last block, which has four tiles"
    assert profile.buffer_bytes == 2 * depth * 512


def test_each_instruction_of_the_vector_unit_counts_once(kernels):
    kernel = kernels("profile")["vectors"]
    y = np.zeros(16, np.float32)
    kernel(y)
    assert y[0] == 128
    # Three Duplicates and the copy of two repeats each, ReduceSum of two; a read of the sum, a write to y.
    assert by_pipe(kernel.profile) == {"S": (2, 2), "V": (5, 10)}
    assert steps(kernel.profile) == (7, 7, 5), "the scalar unit waits for the vector unit"


def test_a_call_without_checks_counts_nothing(kernels):
    kernel = kernels("profile")["vectors"]
    kernel(np.zeros(16, np.float32))
    kernel(np.zeros(16, np.float32), checks=False)
    assert steps(kernel.profile) == (0, 0, 0)


def test_the_command_prints_what_the_tutorial_shows(scale):  # noqa: F811
    done = scale(DESCRIPTION, SCALE, "--profile")
    shown = re.search(r"^what the device is asked for(?:.*\n)+?  y: as expected\n", TUTORIAL, flags=re.MULTILINE)[0]
    assert done.stdout.endswith(shown), done.stdout + done.stderr
    rejected = scale(DESCRIPTION, SCALE, "--profile", "--no-checks")
    assert rejected.returncode == 2
    assert "--profile counts while the checks run" in rejected.stderr
