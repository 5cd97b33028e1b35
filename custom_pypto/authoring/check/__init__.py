# SPDX-License-Identifier: Apache-2.0
"""Checks of one operator, for its author.

``python -m custom_pypto check my_op``, or ``my_package::my_op``, in the folder of the package's sources, checks the
installed package; exit code 1 if a line failed. A file ``test/my_package/*_calls.py`` defines the
calls of the operator and their expected results as `SAMPLES["my_op"]`. The operator's tests also use them.
"""

from .operator import Operator, operator_of
from .samples import Samples, close_to, gradients_of, load_samples, same
from .table import BEHAVIOUR, FORM, check, main

__all__ = [
    "BEHAVIOUR",
    "FORM",
    "Operator",
    "Samples",
    "check",
    "close_to",
    "gradients_of",
    "load_samples",
    "main",
    "operator_of",
    "same",
]
