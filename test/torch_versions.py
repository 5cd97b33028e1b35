# SPDX-License-Identifier: Apache-2.0
"""What the versions of torch and torch_npu that the tests may run with do not have."""

from importlib.metadata import version

import torch
from packaging.version import Version

TORCH, TORCH_NPU = Version(version("torch")), Version(version("torch_npu"))

UNTRACED = () if Version("2.13") <= TORCH else (torch.bfloat16, torch.float16)
"""The dtypes without torch.trace on the CPU: 2.10 has no kernel for them."""

FAILED_CAPTURE_IS_CLEARED = Version("2.10.0.post4") < TORCH_NPU
"""2.10.0.post4 goes on as if a capture that failed were underway: no memory is returned any more."""
