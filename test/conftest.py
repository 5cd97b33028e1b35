"""What all tests share."""

import sys

import pytest


@pytest.fixture(autouse=True)
def errors_show_in_their_own_test():
    """Kernels run behind the caller: waits for them, so that an error of a stream fails the test that caused it."""
    yield
    torch = sys.modules.get("torch")
    if "torch_npu" in sys.modules and torch.npu.is_initialized():
        for device in range(torch.npu.device_count()):
            torch.npu.synchronize(device)
