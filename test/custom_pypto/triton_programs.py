# SPDX-License-Identifier: Apache-2.0
"""Programs that launch rms_norm, each run under a check: `triton_programs.py NAME`."""

import sys

import torch

import custom_pypto  # noqa: F401
from custom_pypto.triton_ops import rms_norm


def right():
    x, weight = torch.ones(4, 8).npu(), torch.ones(8).npu()
    y = rms_norm(x + 1, weight)
    other = torch.npu.Stream()
    other.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(other):
        z = rms_norm(y, weight)
    torch.npu.current_stream().wait_stream(other)
    assert torch.allclose(z.cpu(), torch.ones(4, 8))


def race():
    x, weight = torch.ones(4, 8).npu(), torch.ones(8).npu()
    torch.npu.synchronize()
    y = rms_norm(x, weight)  # launch
    with torch.npu.stream(torch.npu.Stream()):
        y.exp()
    torch.npu.synchronize()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
