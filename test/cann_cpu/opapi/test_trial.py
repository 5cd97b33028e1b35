# SPDX-License-Identifier: Apache-2.0
"""Phase one of a built-in aclnn function tries a call, and rejects it with the names of the function and arguments."""

import pytest
import torch

LARGE = 1 << 20
CALLS = {
    "a dtype": (lambda: torch.ones(4, dtype=torch.uint16, device="npu") + 1, "aclnnAdds", "self uint16 [4]"),
    "a dtype of a large tensor": (
        lambda: torch.ones(LARGE, dtype=torch.uint16, device="npu") + 1,
        "aclnnAdds",
        "self uint16",
    ),
    "the dtypes of two": (
        lambda: torch.bitwise_and(torch.ones(4, device="npu"), torch.ones(4, device="npu")),
        "aclnnBitwiseAndTensor",
        "self float32 [4], other float32 [4]",
    ),
    "a dtype where values decide the shape": (
        lambda: torch.ones(4, dtype=torch.uint16, device="npu").repeat_interleave(torch.ones(4).long().npu()),
        "aclnnRepeatInterleave",
        "self uint16 [4]",
    ),
}


@pytest.mark.parametrize(("call", "function", "arguments"), CALLS.values(), ids=CALLS)
def test_a_call_that_no_data_makes_right_is_rejected_at_once(call, function, arguments):
    with pytest.raises(RuntimeError) as raised:
        call()
    assert f"{function}: " in str(raised.value) and arguments in str(raised.value), str(raised.value)
    torch.npu.synchronize()  # nothing was enqueued
    assert (torch.ones(2, device="npu") + 1).cpu().eq(2).all()


def test_what_is_right_for_some_data_is_computed():
    x = torch.arange(1, 7, device="npu")
    assert (x // torch.arange(1, 7, device="npu")).cpu().eq(1).all()
    repeats = torch.tensor([0, 3, 0, 1, 0, 0], device="npu")
    assert x.repeat_interleave(repeats).tolist() == [2, 2, 2, 4]
    assert x.bincount().tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert x[x > 3].tolist() == [4, 5, 6]
    draws = torch.multinomial(torch.tensor([0.0, 1.0], device="npu"), 4, replacement=True)
    assert draws.tolist() == [1, 1, 1, 1]
    assert torch.linalg.inv(2 * torch.eye(3, device="npu")).cpu().equal(torch.eye(3) / 2)


def test_a_trial_warns_of_nothing_and_is_in_no_profile():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(3, 5, device="npu").sinh()
    assert [event.key for event in profile.key_averages() if "sinh" in event.key] == ["aten::sinh"]
    assert sum(event.count for event in profile.key_averages() if event.key == "aten::sinh") == 1
