# SPDX-License-Identifier: Apache-2.0
"""Cube cores in groups: what they make of the messages of vector cores, and messages that go wrong."""

import numpy as np
import pytest
from cann_cpu.kernel import KernelError
from matmul_tiling import make

DEPTH, MESSAGE = 4, 64
WRONG = {
    "half_of_them": 1, "unposted": 2, "state": 3, "free_state": 4, "far_skip": 5, "no_queue": 6, "no_quit": 7,
    "unsynced": 8,
}  # fmt: skip


def shared():
    """The tiling of a product of [16, 16], and room for an address."""
    tiling, _ = make(shape=(16, 16, 16), org=(16, 16, 16, 16), type="float16", c_type="float32")
    raw = np.asarray(tiling).tobytes()
    return np.frombuffer(raw + bytes(-len(raw) % 8 + 8), np.uint8).copy()


def workspace(queues, cubes):
    return np.zeros(-(-queues // cubes) * cubes * DEPTH * MESSAGE, np.uint8)


def matrices(*shape):
    return np.random.default_rng(shape).integers(-8, 8, (*shape, 16, 16)).astype(np.float16)


def products(kernels, name="by_scalar", blocks=2, cubes=2, count=3, wrong=None, memory=None):
    a, b = matrices(2 * blocks, count), matrices()
    doubled, c = np.zeros_like(a), np.zeros(a.shape, np.float32)
    memory = workspace(2 * blocks, cubes) if memory is None else memory
    kernels("cube_group")[name](a, doubled, c, shared(), b, memory, count, cubes, WRONG.get(wrong, 0), blocks=blocks)
    assert np.array_equal(c, 2 * a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("name", ["by_scalar", "by_copies"])
@pytest.mark.parametrize(("blocks", "cubes", "count"), [(1, 1, 1), (2, 2, 9), (3, 2, 5), (5, 3, 4), (4, 1, 6)])
def test_a_group_makes_what_vector_cores_post(kernels, name, blocks, cubes, count):
    products(kernels, name, blocks, cubes, count)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_message_serves_for_those_that_are_faked(kernels, blocks):
    a, b, rounds = matrices(), matrices(1), 7
    c, offsets = np.zeros((rounds, 16, 16), np.float32), np.zeros(rounds, np.uint32)
    kernels("cube_group")["merged"](a, c, shared(), b, workspace(2 * blocks, 1), offsets, rounds, blocks=blocks)
    assert (c == a.astype(np.float32) @ b[0].astype(np.float32)).all()
    assert offsets.tolist() == [i % DEPTH * 2 * blocks for i in range(rounds)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("state", "FreeMessage waits for CubeMsgState 3; the message has 1"),
        ("free_state", "PostMessage: its head says CubeMsgState::FREE"),
        ("far_skip", r"SetSkipMsg\(9\): only [0-3] queues follow the message"),
        ("no_queue", "AllocMessage: the core has no queue; call AssignQueue first"),
        ("no_quit", "CreateCubeResGroup in line"),
        ("unsynced", r"block \d, AIC, and block \d, AIV [01]: block \d, AIC reads bytes .* of doubled"),
    ],
)
def test_messages_that_go_wrong_are_reported(kernels, wrong, message):
    with pytest.raises(KernelError, match=message):
        products(kernels, count=1, wrong=wrong)


def test_a_message_by_copies_is_behind_the_copies_before_it(kernels):
    products(kernels, "by_copies", count=1, wrong="unsynced")


@pytest.mark.parametrize(
    ("cubes", "blocks", "memory", "message"),
    [
        (3, 2, None, "CubeResGroupHandle: the cube cores 0 to 2; the launch has 2"),
        (0, 2, np.zeros(4096, np.uint8), "CubeResGroupHandle: blockStart 0, blockSize 0"),
        (2, 2, np.zeros(512, np.uint8), "CubeResGroupHandle"),
        (2, 2, np.ones(4096, np.uint8), "the workspace was not all 0"),
    ],
)
def test_groups_that_cannot_be_are_reported(kernels, cubes, blocks, memory, message):
    with pytest.raises(KernelError, match=message):
        products(kernels, blocks=blocks, cubes=cubes, memory=memory)
