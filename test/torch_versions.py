# SPDX-License-Identifier: Apache-2.0
"""What the versions of torch and torch_npu that the tests may run with do not have."""

import torch
from packaging.version import Version

TORCH = Version(torch.__version__).release

UNTRACED = () if TORCH >= (2, 13) else (torch.bfloat16, torch.float16)
"""The dtypes without torch.trace on the CPU: 2.10 has no kernel for them."""
