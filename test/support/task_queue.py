# SPDX-License-Identifier: Apache-2.0
"""torch_npu's task queue, whose thread sets operations up."""

RAISES = """
import time
end = time.monotonic() + 10
while time.monotonic() < end:  # torch_npu empties its queue before it notes that a task has failed
    torch.npu.synchronize()
"""
"""The end of a program in whose queue a task fails: raises its error."""
