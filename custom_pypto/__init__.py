"""Custom operators for Ascend NPUs, as ``torch.ops.custom_pypto.*`` and as the functions below.

Importing it loads torch and torch_npu, registers the operators, and registers their converters with torchair for when a
graph is compiled; torchair itself is not needed.
"""

import importlib.util

import torch_npu  # noqa: F401

if importlib.util.find_spec(f"{__name__}.custom_pypto_lib") is None:
    raise ImportError(
        f"{__path__[0]} is custom_pypto's source folder, which has no compiled library, and hides the installed "
        "package: run from another folder, or with python -P"
    )

from . import converter, custom_pypto_lib  # noqa: F401  (loading the library registers the operators)
from .ops import *  # noqa: F403
from .ops import __all__  # noqa: F401

converter.register(__name__)
