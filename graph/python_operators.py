# SPDX-License-Identifier: Apache-2.0
"""Operators in Python (custom_pypto/triton.py): their registry, and their converters for Graph Engine's graphs.

A node TorchOperator calls the operator in Python, with its name and its arguments as attributes. A Graph Engine that
has no such node rejects the graph when it is compiled.
"""

import json
import math
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .converters import when_torchair
from .on_bases import on_bases_of
from .prototypes import is_tensor, is_written, type_of

NODE = "TorchOperator"
REMEDY = "compile with the mode 'reduce-overhead' or the backend 'npugraph_ex', which capture its kernels"


@dataclass(frozen=True)
class PythonOperator:
    """An operator, and the module that defines it."""

    op: torch._ops.OpOverload
    module: types.ModuleType

    @property
    def source(self) -> Path:
        """Its file, from the folder that holds its package."""
        return Path(*self.module.__name__.split(".")).with_suffix(".py")


PYTHON_OPERATORS: dict[str, PythonOperator] = {}
"""By full name, without the overload."""


def register(operator: PythonOperator) -> None:
    PYTHON_OPERATORS[operator.op.name().partition(".")[0]] = operator
    when_torchair(lambda: _register_converter(operator.op))
    for each in on_bases_of(operator.op):
        when_torchair(each.register_converter)


def _register_converter(op: torch._ops.OpOverload) -> None:
    from torchair import register_fx_node_ge_converter
    from torchair._ge_concrete_graph import compat_ir
    from torchair.ge import Tensor, attr

    name, parameters = op.name(), op._schema.arguments
    written = [each.name for each in parameters if is_written(each)]

    def convert(*args, meta_outputs=None, **kwargs):
        if compat_ir.is_cann_compat(NODE, (), ()):
            raise RuntimeError(
                f"{name} is an operator in Python, which Graph Engine of this CANN does not call: {REMEDY}"
            )
        for each in parameters:
            if is_written(each) and "List" in type_of(each):
                raise RuntimeError(f"{name} writes to the list '{each.name}', and its node cannot: {REMEDY}")
        given = dict(zip((each.name for each in parameters), args, strict=False)) | kwargs
        inputs: dict[str, Tensor] = {}

        def place(key: str, tensor: Tensor) -> int:
            inputs[key] = tensor
            return len(inputs) - 1

        def value_of(key: str, value: Any, kind: str) -> Any:
            if isinstance(value, Tensor):
                return {kind: place(key, value)}
            if isinstance(value, list | tuple):
                return [value_of(f"{key}.{i}", each, kind.rstrip("s")) for i, each in enumerate(value)]
            if isinstance(value, torch.dtype):
                return {"dtype": str(value).removeprefix("torch.")}
            if isinstance(value, float) and not math.isfinite(value):
                return {"float": str(value)}
            if value is None or isinstance(value, bool | int | float | str):
                return value
            raise RuntimeError(f"{name}: argument '{key}' is {value!r}, which its node does not take: {REMEDY}")

        arguments = {}
        for each in parameters:
            if each.name in given:
                kind = "tensor" if is_tensor(each) else "numbers" if "List" in type_of(each) else "number"
                arguments[each.name] = value_of(each.name, given[each.name], kind)
        outputs = [key for key in written if key in inputs]
        returns = op._schema.returns
        for i, each in enumerate(returns):
            results = meta_outputs[i] if len(returns) > 1 else meta_outputs
            outputs.append((f"result{i}_", len(results)) if "List" in type_of(each) else f"result{i}")
        attributes = {"operator": attr.Str(name), "arguments": attr.Str(json.dumps(arguments))}
        made = compat_ir.ge_op(op_type=NODE, inputs=inputs, outputs=outputs, attrs=attributes)
        made = [made] if len(outputs) == 1 else [*(made or ())]
        results = made[len(made) - len(returns) :]
        return None if not returns else results[0] if len(returns) == 1 else tuple(results)

    register_fx_node_ge_converter(op)(convert)
