"""Custom operators for Ascend NPUs, as ``torch.ops.my_ops.*`` and as the functions below."""

import custom_pypto

custom_pypto.load(__name__)

from .ops import *  # noqa: E402, F403
from .ops import __all__  # noqa: E402, F401
