# SPDX-License-Identifier: Apache-2.0
"""Checks of one operator, for its author.

``python -m custom_pypto check my_op``, or ``my_package::my_op``, in the folder of the package's sources, checks the
installed package; exit code 1 if a line failed. The calls of the operator and what it must compute are
`SAMPLES["my_op"]` of a file ``test/my_package/*_calls.py``, which the operator's tests use too.
"""

from .operator import Operator
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
    "same",
]
