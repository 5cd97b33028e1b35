# SPDX-License-Identifier: Apache-2.0
"""Custom operators for Ascend NPUs, as ``torch.ops.custom_pypto.*`` and as the functions below.

Importing it loads torch and torch_npu, registers the operators, and registers their converters with torchair for when a
graph is compiled; torchair itself is not needed.
"""

import torch_npu  # noqa: F401

from .loading import load

load(__name__)

from ._version import __version__ as __version__  # noqa: E402
from .ops import *  # noqa: E402, F403
from .ops import __all__  # noqa: E402, F401
