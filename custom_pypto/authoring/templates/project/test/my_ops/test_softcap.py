"""softcap rejects what it cannot take, and says why."""

import my_ops
import pytest
import torch


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.ones(3)}, "my_ops::softcap: argument 'x' must be on an NPU, but is on cpu"),
        (
            {"x": torch.ones(3, dtype=torch.int32).npu()},
            "'x' must be of dtype float16 or bfloat16 or float32, but is int32",
        ),
        ({"x": torch.ones(3).npu(), "cap": 0.0}, "'cap' must be a finite number above 0, but is 0"),
        ({"x": torch.ones(3).npu(), "cap": float("inf")}, "'cap' must be a finite number above 0, but is inf"),
    ],
)
def test_rejects_what_it_cannot_take(arguments, message):
    with pytest.raises(RuntimeError, match=message):
        my_ops.softcap(**arguments)
