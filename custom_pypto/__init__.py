"""Custom operators for Ascend NPUs, as ``torch.ops.custom_pypto.*`` and as the functions below.

Importing it loads torch and torch_npu, registers the operators, and registers their converters with torchair for when a
graph is compiled; torchair itself is not needed.
"""

# ---- activation: the one line that loads a CANN when none is found goes here, before torch

import torch_npu  # noqa: F401

from . import converter, custom_pypto_lib  # noqa: F401  (loading the library registers the operators)
from .ops import add_custom, npu_lightning_indexer_pto

__all__ = ["add_custom", "npu_lightning_indexer_pto"]

converter.register()
