# SPDX-License-Identifier: Apache-2.0
"""An operator of a package and its calls, as the checks take them."""

import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from ...graph import agreement, prototypes
from ...graph.python_operators import PYTHON_OPERATORS, PythonOperator
from .samples import Samples, close_to, difference, gradients_of, load_samples, same, tensor_names


class CheckFailure(Exception):
    """What a check found, in a line with the file to fix."""


@dataclass(frozen=True)
class Operator:
    """An operator of a package, and where its sources are."""

    package: types.ModuleType
    name: str
    folder: Path

    @property
    def full_name(self) -> str:
        return f"{self.package.__name__}::{self.name}"

    @property
    def schemas(self) -> str:
        return f"{self.package.__name__}/csrc/ops_def_registration.cpp"

    @property
    def source(self) -> Path:
        """Its functions on tensors of an NPU and on Meta."""
        return agreement.source(self.folder, self.package.__name__, self.name)

    @property
    def kernel(self) -> Path:
        """The file of its kernel."""
        return kernel_source(self.folder, prototypes.ge_type(self.name))

    @property
    def gradient(self) -> "Operator | None":
        """The operator that computes its gradient, if that is one."""
        name = f"{self.name}_backward"
        return replace(self, name=name) if name in prototypes.operators(self.package.__name__) else None

    @property
    def definition(self) -> Path:
        """The file of its definition, from which its prototype is generated."""
        return agreement.host_source(self.folder, prototypes.ge_type(self.name))

    @property
    def converter(self) -> str:
        """The file that defines its node in a graph: its own converter's file, or the definition."""
        converters = [getattr(op, "_ge_converter", None) for op in self.overloads]
        own = [each for each in converters if each is not None and not getattr(each, "plain", False)]
        return own[0].__module__.replace(".", "/") + ".py" if own else str(self.definition)

    @cached_property
    def overloads(self) -> list[torch._ops.OpOverload]:
        packet = getattr(getattr(torch.ops, self.package.__name__), self.name)
        return [getattr(packet, name) for name in packet.overloads()]

    @cached_property
    def _found(self) -> tuple[Samples, str]:
        file = f"test/{self.package.__name__}/{self.name}_calls.py"
        samples, file = load_samples(self.package.__name__, self.folder).get(self.name, (None, file))
        if samples is None or not samples.calls:
            raise CheckFailure(f"there are no calls of it: add SAMPLES['{self.name}'] to {file}")
        return samples, file

    @property
    def samples(self) -> Samples:
        return self._found[0]

    @property
    def samples_file(self) -> str:
        return self._found[1]

    def call(self, name: str) -> "Call":
        try:
            return Call(self, name, self.samples.calls[name]())
        except Exception as error:
            raise CheckFailure(f"call '{name}' cannot be made: {described(error)}: fix {self.samples_file}") from error

    def calls(self) -> Iterator["Call"]:
        return map(self.call, self.samples.calls)


@dataclass(frozen=True)
class InPython(Operator):
    """An operator in Python: its file has all of it, and its calls as CALLS, which `reference` judges."""

    @property
    def _of(self) -> PythonOperator:
        return PYTHON_OPERATORS[self.full_name]

    @property
    def source(self) -> Path:
        return self._of.source

    kernel = definition = source

    @property
    def schemas(self) -> str:
        return str(self.source)

    @property
    def converter(self) -> str:
        return str(self.source)

    @cached_property
    def _found(self) -> tuple[Samples, str]:
        calls = getattr(self._of.module, "CALLS", None)
        reference = getattr(self._of.module, "reference", None)
        if not calls or reference is None:
            raise CheckFailure(f"there are no calls of it: add CALLS and reference to {self.source}")
        forward = PYTHON_OPERATORS.get(self.full_name.removesuffix("_backward"))
        if forward is None or forward is self._of:
            return Samples(calls, close_to(reference)), str(self.source)
        schema, of_forward = self._of.op._schema, {each.name for each in forward.op._schema.arguments}
        results = [each.name for each in schema.arguments if each.name not in of_forward]
        tensors = [each.name.removeprefix("grad_") for each in schema.returns]
        return gradients_of(reference, calls, results, tensors), str(self.source)


def operator_of(package: types.ModuleType, name: str, folder: Path) -> Operator:
    kind = InPython if f"{package.__name__}::{name}" in PYTHON_OPERATORS else Operator
    return kind(package, name, folder)


def kernel_source(folder: Path, graph_type: str) -> Path:
    """The file with an operator's kernel: that in C++ if there is one, as it is then called, or its Ascend C kernel."""

    def defines(call: agreement.Call) -> bool:
        return call.function.startswith(("CPU_KERNEL", "ACLNN")) and call.arguments[:1] == [graph_type]

    files = sorted(folder.joinpath("opp").rglob("*.cpp"))
    found = next((file.relative_to(folder) for file in files if agreement.has_call(defines, graph_type, file)), None)
    return found or Path("opp", "op_kernel", f"{prototypes.snake_case(graph_type)}.cpp")


@dataclass
class Call:
    """One call of an operator: its name, and its arguments, on the CPU, which stay as they are."""

    operator: Operator
    name: str
    arguments: dict[str, Any]

    @cached_property
    def overload(self) -> torch._ops.OpOverload:
        """The one that takes the arguments."""
        for op in self.operator.overloads:
            if self.arguments.keys() <= {argument.name for argument in op._schema.arguments}:
                return op
        names = ", ".join(self.arguments)
        fix = f"fix {self.operator.samples_file} or {self.operator.schemas}"
        raise CheckFailure(f"no overload of the schema has the arguments {names} of call '{self.name}': {fix}")

    @cached_property
    def written(self) -> list[str]:
        """The arguments that the schema declares as written and that are given."""
        arguments = self.overload._schema.arguments
        return [a.name for a in arguments if prototypes.is_written(a) and self.arguments.get(a.name) is not None]

    def on(self, device: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """The arguments, or others, in separate memory on a device."""
        return tree_map_only(Tensor, lambda tensor: tensor.to(device), arguments or self.arguments)

    def names(self, given: tuple[tuple, tuple]) -> list[str]:
        """What to call each tensor of what `run` gives."""
        return tensor_names(*given, self.written)

    def unlike(self, found: tuple[tuple, tuple], expected: tuple[tuple, tuple]) -> str:
        """Describes the first tensor in which two results of `run` are not bitwise equal."""
        left, right = tree_leaves(found), tree_leaves(expected)
        if len(left) != len(right):
            return f"it gives {len(left)} tensors, and not {len(right)}"
        for name, got, want in zip(self.names(expected), left, right, strict=True):
            if not same(got, want):
                return f"{name} {difference(got, want) or 'has other bits (of a zero or of a NaN)'}"
        raise ValueError("they are the same")

    def run(self, function: Callable, arguments: dict[str, Any]) -> tuple[tuple, tuple]:
        """Returns the results, and the written arguments after the call."""
        value = function(**arguments)
        results = () if value is None else value if isinstance(value, tuple) else (value,)
        return results, tuple(arguments[name] for name in self.written)


def line_of(error: BaseException) -> str:
    """The line of its message that says most: what an aclnn function says, or else the first."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    of_function = (re.sub(r"^acl\w+: .* failed: (?=aclnn)", "", line) for line in lines if "aclnn" in line)
    return next(of_function, lines[0] if lines else type(error).__name__)


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {line_of(error)}"
