"""Custom operators for Ascend NPUs, as ``torch.ops.custom_pypto.*`` and as the functions below.

Importing it loads torch and torch_npu, registers the operators, and registers their converters with torchair for when a
graph is compiled; torchair itself is not needed.
"""

import importlib.machinery
import importlib.util
import os
import sys

import torch_npu  # noqa: F401

if importlib.util.find_spec(f"{__name__}.custom_pypto_lib") is None:
    # This is the source folder, which has no compiled library and comes before the installed package in sys.path.
    _here = os.path.realpath(os.path.dirname(__path__[0]))
    _others = [path for path in sys.path if os.path.realpath(path) != _here]
    _installed = importlib.machinery.PathFinder.find_spec(__name__, _others)
    if _installed is None:
        raise ImportError(f"{__path__[0]} is custom_pypto's source folder, and no compiled custom_pypto is installed")
    __path__[:] = _installed.submodule_search_locations

from . import converter, custom_pypto_lib  # noqa: F401  (loading the library registers the operators)
from .ops import *  # noqa: F403
from .ops import __all__  # noqa: F401

converter.register(__name__)
