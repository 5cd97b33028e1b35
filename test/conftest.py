# SPDX-License-Identifier: Apache-2.0
"""What all tests share. CANN_CPU_CAPABILITY=avx2 bash run.sh test runs them on a machine that has no more."""

import os
import sys
import zlib

import pytest
from machines import held_to

if level := os.environ.get("CANN_CPU_CAPABILITY"):
    os.environ.update(held_to(level))  # before torch reads its own


def pytest_report_header():
    from kernels import machine

    return f"kernels: {machine()}"


@pytest.fixture(autouse=True)
def random_numbers_are_the_test_s_own(request):
    """The same whenever and beside whatever else the test runs."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed_of(request.node))


def seed_of(test):
    return zlib.crc32(test.nodeid.encode())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        report.sections.append(("Random numbers", f"torch.manual_seed({seed_of(item)})"))
    return report


@pytest.fixture(autouse=True)
def errors_show_in_their_own_test():
    """Kernels run behind the caller: waits for them, so that an error of a stream fails the test that caused it."""
    yield
    torch, torch_npu = sys.modules.get("torch"), sys.modules.get("torch_npu")
    if torch_npu is not None and torch.npu.is_initialized():
        for device in range(torch.npu.device_count()):
            # Not the others: a device that was synchronised but never used makes torch_npu abort in the next backward.
            if torch_npu._C._npu_hasPrimaryContext(device):
                torch.npu.synchronize(device)


@pytest.fixture
def internal_formats():
    """torch_npu makes tensors in FRACTAL_NZ only where the program has allowed it."""
    config = sys.modules["torch"].npu.config
    config.allow_internal_format = True
    yield
    config.allow_internal_format = False
