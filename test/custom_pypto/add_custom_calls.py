# SPDX-License-Identifier: Apache-2.0
"""Calls of add_custom and of its backward, small; on the CPU, to be moved to where they are wanted."""

import torch

from custom_pypto.authoring.check import Samples, same


def addends(left, right, left_dtype=torch.float32, right_dtype=torch.float32):
    return {"self": torch.randn(left).mul(9).to(left_dtype), "other": torch.randn(right).mul(9).to(right_dtype)}


CALLS = {
    "one shape": lambda: addends((3, 5), (3, 5)),
    "broadcast": lambda: addends((2, 1, 7), (3, 1)),
    "promoted": lambda: addends((3, 5), 5, torch.float16, torch.int32),
    "no elements": lambda: addends((0, 3), 3),
}


def judge(results, written, arguments):
    assert same(results, [arguments["self"] + arguments["other"]])


BACKWARD_CALLS = {
    "plain": lambda: {"self": torch.randn(3, 5)},
    "transposed": lambda: {"self": torch.randn(3, 5).half().t()},
}


def judge_backward(results, written, arguments):
    assert same(results, [arguments["self"]] * 2)


SAMPLES = {
    "add_custom": Samples(CALLS, judge),
    "add_custom_backward": Samples(BACKWARD_CALLS, judge_backward),
}
