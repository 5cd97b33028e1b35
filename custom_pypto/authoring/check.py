# SPDX-License-Identifier: Apache-2.0
"""Runs everything there is about one operator and prints a table: a line for each check, which names the file to fix.

``python -m custom_pypto check my_op``, or ``my_package::my_op``, in the folder of the package's sources, checks the
installed package; exit code 1 if a line failed. The calls of the operator and what it must compute are
`SAMPLES["my_op"]` of a file ``test/my_package/*_calls.py``, which the operator's tests use too.
"""

import argparse
import contextlib
import importlib
import itertools
import math
import os
import re
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck
from torch.utils._pytree import tree_leaves, tree_map_only
from torchair.ge._ge_graph import DataType, torch_type_to_ge_type

from .. import sources
from ..graph import agreement, prototypes
from ..graph.converters import ge_api
from ..modes import MODES, late_warnings
from . import tables

COLUMNS = "{:<16} {:<8} {}"


@dataclass(frozen=True)
class Samples:
    """Calls of an operator, and how to judge its results, for the checks and the tests of it."""

    calls: dict[str, Callable[[], dict[str, Any]]]
    """By name: functions that create the arguments by name, on the CPU, each time with other numbers."""
    judge: Callable[[tuple, tuple, dict[str, Any]], Any]
    """Takes the results, the written arguments after the call, and all arguments before it. Raises AssertionError."""


def close_to(reference: Callable) -> Callable[[tuple, tuple, dict[str, Any]], None]:
    """A judge: results, then written arguments, equal those of the reference within the precision of their dtypes."""

    def judge(results: tuple, written: tuple, arguments: dict[str, Any]) -> None:
        actual, expected = tree_leaves((results, written)), tree_leaves(reference(**arguments))
        assert len(actual) == len(expected), f"it gives {len(actual)} tensors, the reference {len(expected)}"
        names = _names(results, written)
        for name, got, want in zip(names, actual, expected, strict=True):
            found = difference(got, want.to(got.dtype), *TOLERANCES.get(got.dtype, (0.0, 0.0)))
            assert found is None, f"{name} {found}"

    return judge


# dtype: relative and absolute, those of torch.testing.assert_close
TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}


def difference(got: Tensor, want: Tensor, rtol: float = 0.0, atol: float = 0.0) -> str | None:
    """How a tensor is not the wanted one, in words: form, or how many elements, and the worst of them; or None."""
    if form(got) != form(want):
        return f"is {form(got)[0]}, and not {form(want)[0]}"
    got, want = got.detach().cpu(), want.detach().cpu()
    exact = rtol == atol == 0
    if exact:
        wrong = (got != want) & ~(got.isnan() & want.isnan())
    else:
        wrong = ~torch.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return None
    wide = torch.complex128 if got.is_complex() else torch.float64
    off = (got.to(wide) - want.to(wide)).abs().nan_to_num(math.inf, math.inf).where(wrong, torch.tensor(-1.0))
    worst = [int(i) for i in torch.unravel_index(off.argmax(), off.shape)]
    place = f" at {worst}" if worst else ""
    tolerance = "" if exact else f" by more than {got.dtype} allows (rtol {rtol:g}, atol {atol:g})"
    value, wanted = got[tuple(worst)].item(), want[tuple(worst)].item()
    return (
        f"({_dtype(got)}) differs in {int(wrong.sum())} of {got.numel()} elements{tolerance}, most{place}: "
        f"{value} instead of {wanted}"
    )


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _names(results: tuple, written: tuple, written_names: list[str] | None = None) -> list[str]:
    """What to call each tensor that a call has given and written."""
    parts = [(f"result {i}", value) for i, value in enumerate(results)]
    for i, value in enumerate(written):
        parts.append((f"argument '{written_names[i]}'" if written_names else f"written argument {i}", value))
    return [
        name if isinstance(value, Tensor) else f"{name}[{i}]"
        for name, value in parts
        for i, _ in enumerate(tree_leaves(value))
    ]


def gradients_of(reference: Callable, calls: dict[str, Callable], results: list[str], tensors: list[str]) -> Samples:
    """The samples of a backward. It takes gradients of the reference's results, by these names, and the arguments of
    the calls. It returns the gradients of these tensors, which PyTorch computes from the reference. A tensor that is
    not given, or not a floating-point tensor, has an empty or a zero gradient."""

    def call(make: Callable) -> dict[str, Any]:
        arguments = make()
        dtype = _floating(arguments)[0].dtype
        given = tree_leaves(reference(**arguments))
        grads = [torch.randn(result.shape).to(dtype) for result in given]
        named = dict(zip(results, grads, strict=True)) if len(results) == len(grads) else {results[0]: grads}
        return named | arguments

    def judge(actual: tuple, written: tuple, arguments: dict[str, Any]) -> None:
        given = {name: value for name, value in arguments.items() if name not in results}
        given = tree_map_only(Tensor, lambda t: t.double().requires_grad_() if t.is_floating_point() else t, given)
        outputs = tree_leaves(reference(**given))
        grads = tree_leaves([arguments[name] for name in results])
        torch.autograd.backward(outputs, [grad.to(out.dtype) for grad, out in zip(grads, outputs, strict=True)])
        for got, tensor in zip(tree_leaves(actual), tree_leaves(list(map(given.get, tensors))), strict=True):
            want = torch.empty(0) if tensor is None else tensor.grad
            want = (torch.zeros_like(tensor) if want is None else want).to(got.dtype)
            found = difference(got, want, *TOLERANCES.get(got.dtype, (0.0, 0.0)))
            assert found is None, f"gradient {found}"

    return Samples({name: partial(call, make) for name, make in calls.items()}, judge)


class CheckFailure(Exception):
    """What a check found, in a line with the file to fix."""


def load_samples(package: str, folder: Path) -> dict[str, tuple[Samples, str]]:
    """The samples of the operators of a package, of all files test/PACKAGE/*_calls.py in the folder, and their file."""
    tests = folder / "test" / package
    found = {}
    sys.path[:0] = [str(tests), str(tests.parent)]
    try:
        for file in sorted(tests.glob("*_calls.py")):
            samples = getattr(importlib.import_module(file.stem), "SAMPLES", {})
            found |= {name: (of_it, str(file.relative_to(folder))) for name, of_it in samples.items()}
    finally:
        del sys.path[:2]
    return found


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
        return agreement.kernel_source(self.folder, prototypes.ge_type(self.name))

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
            raise CheckFailure(f"call '{name}' cannot be made: {_described(error)}: fix {self.samples_file}") from error

    def calls(self) -> Iterator["Call"]:
        return map(self.call, self.samples.calls)


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
        return _names(*given, self.written)

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


def same(left, right) -> bool:
    """Whether tensors, or lists and tuples of them, are bitwise equal."""
    left, right = tree_leaves(left), tree_leaves(right)
    if len(left) != len(right):
        return False
    for a, b in zip(left, right, strict=True):
        if not isinstance(a, Tensor):
            if a != b:
                return False
        elif form(a) != form(b) or not torch.equal(_bits(a), _bits(b)):
            return False
    return True


def _bits(tensor: Tensor) -> Tensor:
    # Not contiguous(): a tensor of one element keeps its strides.
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def form(value) -> list[str]:
    """Shape and dtype of every tensor in it, in words."""
    return [f"{list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in _tensors(value)]


# ---- the checks: each returns what it has run, or raises


def build(operator: Operator) -> str:
    """The installed package was built from these sources."""
    package = operator.package
    changed = sources.changed_since_build(package.__name__, operator.folder, Path(package.__path__[0]))
    if changed:
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise CheckFailure(
            f"{changed[0]}{others} changed after the build that is installed, and that build is what the checks would "
            "run: build it again (pip install --no-build-isolation .), and see that this succeeds"
        )
    return "from these sources"


def registration(operator: Operator) -> str:
    """Schema, prototype, functions, converter and test are there and agree."""
    prefix = f"{operator.full_name}: "
    lines = agreement.disagreements(operator.package, operator.folder)
    found = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    if found:
        raise CheckFailure("; ".join(found))
    return f"{len(operator.overloads)} schemas, {len(operator.samples.calls)} calls"


def meta(operator: Operator) -> str:
    """On Meta it gives the shapes and dtypes that it gives on an NPU."""
    for call in operator.calls():
        there, _ = call.run(call.overload, call.on("npu"))
        torch.npu.synchronize()
        on_meta, _ = call.run(call.overload, call.on("meta"))
        if form(there) != form(on_meta):
            raise CheckFailure(
                f"on Meta it gives {', '.join(form(on_meta)) or 'nothing'}, on an NPU "
                f"{', '.join(form(there)) or 'nothing'} ({call.name}): fix one of both in {operator.source}"
            )
    return "shapes and dtypes as on an NPU"


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def prototype(operator: Operator) -> str:
    """A graph has the node for every dtype that the operator takes, and the results have the dtypes that it says."""
    ir = _ge_ir(operator)
    if ir is None or operator.converter != str(operator.definition):
        return "its own converter decides"
    declared = prototypes.Prototype.of(ir)
    allowed = {name: re.findall(r"DT_\w+", types) for _, name, types in (*ir.indexed_inputs, *ir.indexed_outputs)}
    for call in operator.calls():
        for what, arguments in _in_every_float(call):
            there = call.on("meta", arguments)
            try:
                results, _ = call.run(call.overload, there)
            except (RuntimeError, TypeError, ValueError):
                continue  # it does not take this dtype
            outputs = [name for name in declared.outputs if name not in declared.inputs]
            given = {name: _tensors(there.get(name)) for name in declared.inputs}
            given |= {name: _tensors(value) for name, value in zip(outputs, results, strict=False)}
            _check_dtypes(operator, f"{call.name}{what}", given, allowed)
    return "of the dtypes that the operator takes"


def _ge_ir(operator: Operator):
    """What the Graph Engine API has of its prototype; None of a package that has no such API."""
    try:
        return ge_api(operator.package.__name__).IR.get(prototypes.ge_type(operator.name))
    except ModuleNotFoundError:
        return None


def _in_every_float(call: "Call") -> Iterator[tuple[str, dict[str, Any]]]:
    """The call, and with all its floating-point tensors in each dtype."""
    yield "", call.arguments
    for dtype in FLOATS if _floating(call.arguments) else ():
        changed = tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, call.arguments)  # noqa: B023
        yield f", in {dtype}".replace("torch.", ""), changed


def _check_dtypes(operator: Operator, call: str, given: dict, allowed: dict) -> None:
    for name, tensors in given.items():
        for tensor in tensors:
            if allowed[name] and torch_type_to_ge_type(tensor.dtype) not in _ge_dtypes(allowed[name]):
                raise CheckFailure(
                    f"'{name}' is {_dtype(tensor)} ({call}), but the definition has it in {', '.join(allowed[name])}: "
                    f"fix {operator.definition}, or {operator.source}"
                )


def _ge_dtypes(names: list[str]) -> list[int]:
    return [getattr(DataType, name) for name in names]


CHECKS_OF_KERNELS = "ASCENDC_CPU_CHECKS"
GUARD = 4096  # bytes before a tensor and after it


def kernel(operator: Operator) -> str:
    """It writes to no memory beside its arguments; Ascend C kernels are checked instruction by instruction, and so is
    what they do with results."""
    before = os.environ.get(CHECKS_OF_KERNELS)
    os.environ[CHECKS_OF_KERNELS] = "1"
    try:
        for call in operator.calls():
            _check_kernel(call)
    finally:
        if before is None:
            del os.environ[CHECKS_OF_KERNELS]
        else:
            os.environ[CHECKS_OF_KERNELS] = before
    return "nothing beside its arguments is written"


def _check_kernel(call: "Call") -> None:
    guards: dict[str, list[Tensor]] = {}
    arguments = {
        name: tree_map_only(Tensor, partial(_guarded, guards.setdefault(name, [])), value)
        for name, value in call.arguments.items()
    }
    try:
        call.run(call.overload, arguments)
        torch.npu.synchronize()
    except RuntimeError as error:
        raise CheckFailure(f"{_line(error)} ({call.name}): fix {_kernel_of(call.operator, error)}") from error
    for name, of_it in guards.items():
        for i, guard in enumerate(of_it):
            written = (guard.cpu() != GUARD_BYTE).nonzero().flatten()
            if len(written):
                first = GUARD - 1 - int(written[-1]) if i % 2 == 0 else int(written[0])
                where = "before" if i % 2 == 0 else "after"
                raise CheckFailure(
                    f"it writes {len(written)} bytes {where} argument '{name}', from {first} bytes away on "
                    f"({call.name}): fix {_kernel_of(call.operator)}"
                )


GUARD_BYTE = 0xA5


def _guarded(guards: list[Tensor], tensor: Tensor) -> Tensor:
    """The tensor on an NPU, between two guards."""
    size = tensor.numel() * tensor.element_size()
    memory = torch.full((GUARD + size + GUARD,), GUARD_BYTE, dtype=torch.uint8).npu()
    guards += [memory[:GUARD], memory[GUARD + size :]]
    inside = memory[GUARD : GUARD + size].view(tensor.dtype).view(tensor.shape)
    return inside.copy_(tensor)


def _kernel_of(operator: Operator, error: BaseException | None = None) -> Path | str:
    """The file of the kernel: the one that its checks name, or the operator's, or that which calls it."""
    named = re.search(r"(\S+\.(?:cpp|h)):\d+: ", str(error)) if error else None
    if named:
        file = Path(named[1])
        return file.relative_to(operator.folder.resolve()) if file.is_relative_to(operator.folder.resolve()) else file
    own = Path("opp", "op_kernel", f"{prototypes.snake_case(prototypes.ge_type(operator.name))}.cpp")
    return own if (operator.folder / own).exists() else operator.kernel


def mutations(operator: Operator) -> str:
    """It writes to no argument that the schema does not declare as written."""
    written: dict[str, None] = {}
    for call in operator.calls():
        arguments = call.on("npu")
        call.run(call.overload, arguments)
        torch.npu.synchronize()
        for name, before in call.arguments.items():
            if name not in call.written and not same(arguments[name], before):
                raise CheckFailure(
                    f"it writes to argument '{name}' ({call.name}), which the schema does not declare: fix "
                    f"{_kernel_of(operator)}, or where this is meant write Tensor(a!) in {operator.schemas}"
                )
        written |= dict.fromkeys(call.written)
    return f"no argument is written but {', '.join(written)}" if written else "no argument is written"


def aliases(operator: Operator) -> str:
    """No result lies in the memory of an argument or of another result."""
    for call in operator.calls():
        for device in ("npu", "meta"):
            arguments = call.on(device)
            results, _ = call.run(call.overload, arguments)
            owners = {
                _storage(tensor): f"argument '{name}'" for name in arguments for tensor in _tensors(arguments[name])
            }
            for i, result in enumerate(_tensors(results)):
                owner = owners.setdefault(_storage(result), f"result {i}")
                if owner != f"result {i}":
                    where = f"({call.name}, on {device})"
                    raise CheckFailure(f"result {i} lies in the memory of {owner} {where}: fix {operator.source}")
    return "the results are new tensors"


def _is_tensor(value) -> bool:
    return isinstance(value, Tensor)


def _tensors(value) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if _is_tensor(leaf)]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def opcheck(operator: Operator) -> str:
    """What PyTorch itself asks of an operator: torch.library.opcheck."""
    for call in operator.calls():
        arguments = call.on("npu")
        positional = []
        for argument in call.overload._schema.arguments:
            if argument.kwarg_only or argument.name not in arguments:
                break
            positional.append(arguments.pop(argument.name))
        try:
            torch.library.opcheck(call.overload, tuple(positional), arguments)
        except Exception as error:
            raise CheckFailure(f"{_line(error)} ({call.name}): fix {operator.source}") from error
    return "as torch.library.opcheck demands"


def eager(operator: Operator) -> str:
    """Its results and written arguments match its reference."""
    for call in operator.calls():
        results, written = tree_map_only(Tensor, Tensor.cpu, call.run(call.overload, call.on("npu")))
        try:
            operator.samples.judge(results, written, call.arguments)
        except AssertionError as error:
            raise CheckFailure(
                f"differs from the reference: {_line(error)} ({call.name}): fix {operator.kernel}"
            ) from error
        except Exception as error:
            fix = f"fix {operator.samples_file}"
            raise CheckFailure(f"its reference fails: {_described(error)} ({call.name}): {fix}") from error
    return "matches the reference"


def layouts(operator: Operator) -> str:
    """Tensors with gaps, at an offset, expanded, and on another NPU have results bitwise equal to contiguous ones."""
    run = 0
    for call in operator.calls():
        plain = _given(call, call.on("npu"))
        for name, value in call.arguments.items():
            tensors = _tensors(value)
            if not tensors or not all(tensor.numel() and tensor.dim() for tensor in tensors):
                continue
            for what, view in VIEWS.items():
                run += _is_in_view(call, plain, name, what, view)
            if name not in call.written:
                repeated = Call(operator, call.name, call.arguments | {name: tree_map_only(Tensor, _repeated, value)})
                expected = _given(repeated, repeated.on("npu"))
                run += _is_in_view(repeated, expected, name, "expanded", _expanded)
        if torch.npu.device_count() > 1:
            run += _is_as_on(call, plain, "npu:1")
    return f"{run} calls as with whole tensors"


BESIDE = 3  # what lies beside the elements of a view


def _with_gaps(tensor: Tensor) -> tuple[Tensor, Tensor]:
    memory = tensor.new_full((*tensor.shape, 2), BESIDE)
    memory[..., 0] = tensor
    return memory[..., 0], memory[..., 1]


def _at_an_offset(tensor: Tensor) -> tuple[Tensor, Tensor]:
    memory = torch.cat([tensor.new_full((7,), BESIDE), tensor.flatten()])
    return memory[7:].view(tensor.shape), memory[:7]


def _repeated(tensor: Tensor) -> Tensor:
    return tensor[:1].expand_as(tensor).contiguous()


def _expanded(tensor: Tensor) -> tuple[Tensor, Tensor]:
    return tensor[:1].expand_as(tensor), tensor.new_empty(0)


# The elements of a tensor in memory of another layout, and what else is in that memory.
VIEWS = {"with gaps between its elements": _with_gaps, "at an offset": _at_an_offset}


def _is_in_view(call: "Call", expected: tuple[tuple, tuple] | str, name: str, what: str, view: Callable) -> bool:
    """Whether it takes an argument in this view, as without; it may reject it by name."""
    if isinstance(expected, str):
        return False  # what the view holds is no good call
    arguments = call.on("npu")
    beside = []

    def viewed(tensor: Tensor) -> Tensor:
        elements, others = view(tensor)
        beside.append(others)
        return elements

    found = _given(call, arguments | {name: tree_map_only(Tensor, viewed, arguments[name])})
    if isinstance(found, str):
        if f"argument '{name}'" in found:
            return False
        raise CheckFailure(f"'{name}' {what} ({call.name}) gives {found}: fix {call.operator.source}")
    if not same(found, expected):
        unlike = call.unlike(found, expected)
        raise CheckFailure(f"'{name}' {what} ({call.name}): {unlike}: fix {_kernel_of(call.operator)}")
    if not all(same(others, torch.full_like(others, BESIDE)) for others in beside):
        raise CheckFailure(
            f"'{name}' {what} ({call.name}): it writes beside its elements: fix {_kernel_of(call.operator)}"
        )
    return True


def _is_as_on(call: "Call", expected: tuple[tuple, tuple] | str, device: str) -> bool:
    found = _given(call, call.on(device))
    if isinstance(found, str):
        raise CheckFailure(f"on {device} ({call.name}) it gives {found}: fix {call.operator.source}")
    devices = {str(tensor.device) for tensor in _tensors(found)} - {device}
    if devices:
        raise CheckFailure(f"on {device} ({call.name}) it gives tensors on {devices.pop()}: fix {call.operator.source}")
    if not same(found, expected):
        raise CheckFailure(
            f"on {device} ({call.name}): {call.unlike(found, expected)}: fix {_kernel_of(call.operator)}"
        )
    return True


def _given(call: "Call", arguments: dict[str, Any]) -> tuple[tuple, tuple] | str:
    """What a call gives and has written when the NPU is done with it, or the message with which it fails."""
    try:
        given = call.run(call.overload, arguments)
        for device in {tensor.device for tensor in _tensors(arguments)}:
            torch.npu.synchronize(device)
    except (RuntimeError, TypeError, ValueError) as error:
        return _line(error)
    return given


AUTOGRAD = (torch._C.DispatchKey.AutogradPrivateUse1, torch._C.DispatchKey.Autograd)
# dtype of the arguments: how gradcheck takes differences; float32 is for operators that reject float64
DIFFERENCES = {torch.float64: {}, torch.float32: {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2}}


def autograd(operator: Operator) -> str:
    """Its gradients match differences of its results, in every call on floating-point tensors."""
    if not any(op.has_kernel_for_dispatch_key(key) for op in operator.overloads for key in AUTOGRAD):
        fix = f"define it with custom_pypto::define in {operator.schemas}"
        raise CheckFailure(f"it has no gradient, and a backward must report that: {fix}")
    checked = without = 0
    for call in operator.calls():
        floating = _floating(call.arguments)
        if not floating or not all(tensor.numel() for tensor in floating):
            continue
        raises = _raises_in_a_backward(call)
        if raises:
            without += 1
        elif raises is not None:
            _check_gradients(call, floating)
            checked += 1
    if checked:
        return f"gradcheck of {checked} calls"
    if without:
        return "it has no gradient, and a backward reports that"
    if any(op.has_kernel_for_dispatch_key(AUTOGRAD[0]) for op in operator.overloads):
        raise CheckFailure(f"no call has gradients: give one floating-point tensors in {operator.samples_file}")
    return "nothing that it takes and gives could have one"


def _raises_in_a_backward(call: Call) -> bool | None:
    """Whether a backward through results and what is written says that the derivative is not implemented; None where
    nothing could have a gradient."""
    arguments = call.on("npu")
    for tensor in _floating(arguments):
        tensor.requires_grad_()
    for name in call.written:  # a leaf that requires a gradient cannot be written to
        arguments[name] = tree_map_only(Tensor, torch.clone, arguments[name])
    given = call.run(call.overload, arguments)
    outputs = zip(call.names(given), tree_leaves(given), strict=True)
    raises = {name: _raises(call, tensor) for name, tensor in outputs if tensor.is_floating_point()}
    silent = [name for name, raised in raises.items() if not raised]
    if silent and len(silent) < len(raises):
        raise CheckFailure(
            f"a backward through {silent[0]} ({call.name}) does not say that the derivative is not implemented, though "
            f"others do: define it with custom_pypto::define in {call.operator.schemas}"
        )
    return not silent if raises else None


def _raises(call: Call, output: Tensor) -> bool:
    try:
        if output.requires_grad:
            output.sum().backward(retain_graph=True)
    except RuntimeError as error:
        return f"derivative for {call.operator.full_name} is not implemented" in str(error)
    return False


def _floating(values) -> list[Tensor]:
    return [tensor for tensor in _tensors(values) if tensor.is_floating_point()]


def _check_gradients(call: Call, floating: list[Tensor]) -> None:
    def function(*values):
        given = iter(values)
        arguments = tree_map_only(
            Tensor, lambda t: next(given).clone() if t.is_floating_point() else t.npu(), call.arguments
        )
        return tuple(_floating(call.run(call.overload, arguments)))

    for dtype in DIFFERENCES:
        values = [tensor.to(dtype).to("npu").requires_grad_() for tensor in floating]
        rejection = _outcome(lambda: function(*values))  # noqa: B023
        if not isinstance(rejection, str):
            break
    else:
        raise CheckFailure(f"it takes neither float64 nor float32, which gradcheck needs ({call.name}): {rejection}")
    try:
        gradcheck(function, values, **DIFFERENCES[dtype])
    except GradcheckError as error:
        found = _gradient_that_differs(function, values, DIFFERENCES[dtype]) or _line(error)
        raise CheckFailure(f"{found} ({call.name}): fix the backward in {call.operator.source}") from error


def _gradient_that_differs(function: Callable, values: list[Tensor], options: dict[str, float]) -> str | None:
    """Where a gradient is not what differences of the results give, in numbers."""
    eps, rtol, atol = (options.get(*each) for each in (("eps", 1e-6), ("rtol", 1e-3), ("atol", 1e-5)))
    for i, value in enumerate(values):

        def of_value(x: Tensor, i: int = i) -> tuple[Tensor, ...]:
            return function(*values[:i], x, *values[i + 1 :])

        jacobians = torch.autograd.functional.jacobian(of_value, value)
        for j, jacobian in enumerate(jacobians):
            for place in itertools.product(*map(range, value.shape)):
                step = torch.zeros_like(value)
                step[place] = eps
                with torch.no_grad():
                    wanted = (of_value(value + step)[j] - of_value(value - step)[j]) / (2 * eps)
                if found := difference(jacobian[(..., *place)], wanted, rtol, atol):
                    return f"the gradient of result {j} by floating-point argument {i} at {[*place]} {found}"
    return None


def in_mode(mode: str, operator: Operator) -> str:
    """In graphs of a mode, its results and written arguments are bitwise equal to eager, also when the graph is called
    again, and in a dynamic graph also with other sizes."""
    other_sizes = 0
    for name in operator.samples.calls:
        torch._dynamo.reset()
        function = None
        for _ in range(2):
            call = operator.call(name)
            function = function or MODES[mode](partial(call.overload))
            _end_by_signals()
            _compare_with_eager(function, call, operator)
        resized = _with_another_size(call) if getattr(MODES[mode], "dynamic", False) else None
        if resized is not None:
            _compare_with_eager(function, resized, operator)
            other_sizes += 1
    return "bitwise equal to eager" + f", also {other_sizes} of the calls with other sizes" * bool(other_sizes)


def _end_by_signals() -> None:
    """Lets Ctrl-C and a time-out end the process. torchair and npugraph_ex, as they are imported, let them reset dynamo
    first, which raises in a compilation ("Cannot clear callbacks while 1 are pending"), as if the graph were wrong."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _compare_with_eager(function: Callable, call: Call, operator: Operator) -> None:
    expected = call.run(call.overload, call.on("npu"))
    try:
        found = call.run(function, call.on("npu"))
        torch.npu.synchronize()
    except Exception as error:
        raise CheckFailure(f"no graph: {_described(error)} ({call.name}): fix {operator.converter}") from error
    if not same(found, expected):
        fix = f"fix {operator.kernel} or {operator.converter}"
        raise CheckFailure(f"something else than eagerly ({call.name}): {call.unlike(found, expected)}: {fix}")


def _with_another_size(call: Call) -> Call | None:
    """The call with one of its sizes doubled, in tensors and attributes; None if it takes none such."""
    sizes = {size for tensor in _tensors(call.arguments) for size in tensor.shape if size > 1}
    for size in sorted(sizes):

        def doubled(tensor: Tensor) -> Tensor:
            for dim, there in enumerate(tensor.shape):
                if there == size:  # noqa: B023
                    tensor = torch.cat([tensor, tensor], dim)
            return tensor

        arguments = {
            name: 2 * size if type(value) is int and value == size else tree_map_only(Tensor, doubled, value)
            for name, value in call.arguments.items()
        }
        resized = Call(call.operator, f"{call.name}, {2 * size} for {size}", arguments)
        if not isinstance(_given(resized, resized.on("npu")), str):
            return resized
    return None


def bad_input(operator: Operator) -> str:
    """Eager and Meta reject a call with one bad argument by the same message, or both accept it if it may be good.
    Rejections name the operator, and the argument if the operator has a table of them. They write nothing. A tensor on
    the CPU is rejected."""
    count = rejected = 0
    for call in operator.calls():
        rows = tables.checked(partial(call.run, call.overload, call.on("meta")))
        required = {a.name for a in call.overload._schema.arguments if prototypes.type_of(a) == "Tensor"}
        if all(tensor.numel() for tensor in _tensors(call.arguments)):
            for bad in tables.bad_calls(call.arguments, rows, required):
                rejected += _is_rejected(call, bad, bool(rows))
                count += 1
        for name, value in call.arguments.items():
            if any(tensor.dim() > 0 for tensor in _tensors(value)):
                eagerly = _outcome(lambda: call.run(call.overload, call.on("npu") | {name: value})[0])  # noqa: B023
                named = operator.name in eagerly and (name not in rows or f"'{name}'" in eagerly)
                if not isinstance(eagerly, str) or not named:
                    raise CheckFailure(f"'{name}' on the CPU ({call.name}) gives {eagerly}: fix {operator.source}")
    return f"{count} calls with one other argument, {rejected} rejected, all as on Meta"


def _is_rejected(call: Call, bad: tables.Bad, names_arguments: bool) -> bool:
    what, fix = f"'{bad.argument}' {bad.what} ({call.name})", f"fix {call.operator.source}"
    given = bad.arguments("npu")
    before = tree_map_only(Tensor, torch.clone, given)
    eagerly = _outcome(lambda: call.run(call.overload, given)[0])
    on_meta = _outcome(lambda: call.run(call.overload, bad.arguments("meta"))[0])
    if eagerly != on_meta:
        raise CheckFailure(f"{what}: an NPU says {eagerly}, Meta {on_meta}: {fix}")
    if not isinstance(eagerly, str):
        if bad.certain:
            raise CheckFailure(f"{what}: it is taken, though the table of arguments rejects it: {fix}")
        return False
    if call.operator.name not in eagerly:
        raise CheckFailure(f"{what}: the error does not name the operator: {eagerly}: {fix}")
    if names_arguments and bad.certain and f"'{bad.argument}'" not in eagerly:
        raise CheckFailure(f"{what}: the error does not name the argument: {eagerly}: {fix}")
    if not same(given, before):
        raise CheckFailure(f"{what}: it is rejected, but something is written: {fix}")
    return True


def _outcome(run: Callable[[], Any]) -> str | list[str]:
    """The message of a rejected call, or the form of what it gives; what only the kernel rejects is taken."""
    try:
        results = run()
    except (RuntimeError, TypeError, ValueError) as error:
        return _line(error)
    with contextlib.suppress(RuntimeError):
        torch.npu.synchronize()
    return form(results)


def _line(error: BaseException) -> str:
    """The line of its message that says most: what an aclnn function says, or else the first."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    of_function = (re.sub(r"^acl\w+: .* failed: (?=aclnn)", "", line) for line in lines if "aclnn" in line)
    return next(of_function, lines[0] if lines else type(error).__name__)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {_line(error)}"


# What the others need comes first: where it fails, they are not run.
FORM = {"build": build, "registration": registration, "Meta": meta, "prototype": prototype}
FORM |= {"kernel": kernel, "mutations": mutations, "aliases": aliases}
BEHAVIOUR = {"opcheck": opcheck, "eager": eager, "layouts": layouts, "autograd": autograd}
BEHAVIOUR |= {mode: partial(in_mode, mode) for mode in MODES if mode != "eager"}
BEHAVIOUR |= {"bad input": bad_input}


def check(operator: Operator) -> Iterator[tuple[str, str, str]]:
    """Runs the checks; yields a line each: its name, "ok", "FAILED" or "not run", and what it has found."""
    import torchair  # noqa: F401  (lets the package register its converters)

    malformed = False
    for name, run in (FORM | BEHAVIOUR).items():
        if malformed:
            yield name, "not run", "fix the above first"
            continue
        try:
            yield name, "ok", run(operator)
        except Exception as error:
            malformed = name in FORM
            if isinstance(error, CheckFailure):
                yield name, "FAILED", str(error)
            else:
                fix = operator.kernel if _line(error).startswith("aclnn") else operator.source
                yield name, "FAILED", f"{_described(error)}: fix {fix}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m custom_pypto check", description=__doc__.splitlines()[0])
    parser.add_argument("operator", help="its name, with that of its package in front unless that is custom_pypto")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="of the package's sources; default: here")
    options = parser.parse_args(arguments)
    package, _, name = options.operator.rpartition("::")
    with contextlib.suppress(ValueError):
        sys.path.remove(str(Path.cwd()))  # of the sources: the installed package is checked
    try:
        operator = Operator(importlib.import_module(package or "custom_pypto"), name, options.folder)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            error = f"{package} is not installed: pip install --no-build-isolation FOLDER, that of its sources"
        parser.error(str(error))
    names = prototypes.operators(operator.package.__name__)
    if name not in names:
        parser.error(f"{operator.full_name} is not an operator; the operators are {', '.join(names)}")
    torch.manual_seed(0)
    print(operator.full_name)
    verdicts = []
    with late_warnings():
        for line in check(operator):
            print(COLUMNS.format(*line), flush=True)
            verdicts.append(line[1])
    print(f"{verdicts.count('ok')} of {len(verdicts)} lines passed")
    return 0 if set(verdicts) == {"ok"} else 1
