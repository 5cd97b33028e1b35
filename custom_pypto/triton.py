# SPDX-License-Identifier: Apache-2.0
"""Operators in Python, with Triton kernels (docs/triton.md): ``python -m custom_pypto new --triton`` writes one.

    from custom_pypto.triton import operator, tl, triton

On an NPU triton-ascend compiles the kernels; without one, they are interpreted.
"""

import functools
import re
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef
from torch.utils._pytree import tree_leaves

from .graph.prototypes import is_written, type_of
from .graph.python_operators import PythonOperator, register

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError as error:
    if error.name != "triton":
        raise
    raise ImportError(
        "operators in Python need Triton, which is not installed: pip install --no-deps triton-ascend==3.2.0 pybind11, "
        "or on a machine without an NPU pip install triton==3.9.0"
    ) from error

__all__ = ["operator", "tl", "triton"]


def operator(schema: str) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Defines an operator by a function for tensors on an NPU.

    It is ``torch.library.custom_op`` with a schema, ``"my_ops::scale(Tensor x, *, float by=2.0) -> Tensor"``. In
    addition the current device is that of the tensors while the function runs, a call with a tensor that is missing or
    not on the NPU of the others is an error that names the argument, and graphs of Graph Engine can have the operator
    as a node. The ``CustomOpDef`` that it returns registers a Meta function and a gradient: ``register_fake``,
    ``register_autograd``.

    Raises:
        ValueError: the schema has no namespace.
        NotImplementedError: the schema has a tensor that is keyword-only.
    """
    name, bracket, signature = schema.partition("(")
    if not re.fullmatch(r"\w+::\w+", name):
        raise ValueError(f"the schema '{schema}' does not begin with the operator's name, as namespace::name(")

    def define(function: Callable[..., Any]) -> CustomOpDef:
        @functools.wraps(function)
        def on_npu(*args: Any, **kwargs: Any) -> Any:
            with torch.npu.device(_device_of(op._opoverload, args)):
                return function(*args, **kwargs)

        def register_fake(on_meta: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(on_meta)
            def checked(*args: Any, **kwargs: Any) -> Any:
                _require_tensors(op._opoverload, args)
                return on_meta(*args, **kwargs)

            CustomOpDef.register_fake(op, checked)
            return on_meta

        arguments = torch._C.parse_schema(schema).arguments
        written = [each.name for each in arguments if is_written(each)]
        op = torch.library.custom_op(name, on_npu, mutates_args=written, device_types="npu", schema=bracket + signature)
        op.register_fake = register_fake
        functools.update_wrapper(op, function)
        register(PythonOperator(op._opoverload, sys.modules[function.__module__]))
        return op

    return define


def _require_tensors(op: torch._ops.OpOverload, args: tuple) -> None:
    """torch.library lets None pass for a tensor that is not optional."""
    for argument, value in zip(op._schema.arguments, args, strict=False):
        if value is None and type_of(argument) == "Tensor":
            raise RuntimeError(f"{op.name()}: argument '{argument.name}' must be a tensor; it is None")


def _device_of(op: torch._ops.OpOverload, args: tuple) -> torch.device:
    """The NPU that all tensors are on."""
    _require_tensors(op, args)
    named = [
        (argument.name, each)
        for argument, value in zip(op._schema.arguments, args, strict=False)
        for each in tree_leaves(value)
        if isinstance(each, Tensor)
    ]
    device = next(tensor.device for _, tensor in named if tensor.device.type == "npu")
    for name, tensor in named:
        if tensor.device != device:
            raise RuntimeError(f"{op.name()}: argument '{name}' must be on {device}; it is on {tensor.device}")
    return device
