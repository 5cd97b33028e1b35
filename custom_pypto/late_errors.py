# SPDX-License-Identifier: Apache-2.0
"""Lets synchronisations raise the errors of operators whose calls have already returned.

torch_npu's task queue runs phase two of an operator after the call. The library keeps its error, and raises it at the
next call of one of our operators, where values leave the NPU (``.cpu()``, ``.item()``) and where a capture ends.
"""

import functools

import torch
import torch_npu

from . import custom_pypto_lib

SYNCHRONISATIONS = [
    (torch_npu._C, "_npu_synchronize"),
    (torch._C, "_accelerator_synchronizeDevice"),
    (torch_npu.npu.Stream, "synchronize"),
    (torch_npu.npu.SyncLaunchStream, "synchronize"),
    (torch_npu.npu.Event, "synchronize"),
    (torch_npu.npu.NPUGraph, "capture_end"),
]


def raise_at_synchronisations() -> None:
    for owner, name in SYNCHRONISATIONS:
        setattr(owner, name, _raising(getattr(owner, name)))


def _raising(function):
    @functools.wraps(function)
    def synchronize(*arguments):
        __tracebackhide__ = True  # reports name the caller
        result = function(*arguments)
        custom_pypto_lib.raise_late_errors()
        return result

    return synchronize
