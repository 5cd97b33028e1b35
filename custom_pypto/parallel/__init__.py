# SPDX-License-Identifier: Apache-2.0
"""The operators on several ranks. Importing it registers the rules by which DTensors divide them (sharding.py); it
offers the sparse attention of sequences whose pages lie on several ranks (context.py), and what each way of dividing a
decode step costs (costs.py)."""

from . import sharding as sharding
from .context import *  # noqa: F403
from .context import __all__  # noqa: F401
