# SPDX-License-Identifier: Apache-2.0
"""Runs everything there is about one operator and prints a table: a line for each check, which names the file to mend.

``python -m custom_pypto.check my_op``, or ``my_package::my_op``, in the folder of the package's sources, checks the
installed package; exit code 1 if a line failed. The calls of the operator and what it must compute are
`SAMPLES["my_op"]` of a file ``test/my_package/*_calls.py``, which the operator's tests use too.
"""

import argparse
import contextlib
import importlib
import re
import sys
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

from . import definition
from .modes import MODES, late_warnings

COLUMNS = "{:<16} {:<8} {}"


@dataclass(frozen=True)
class Samples:
    """What the checks and the tests of an operator share: calls of it, and how to judge what it gives."""

    calls: dict[str, Callable[[], dict[str, Any]]]
    """By name: functions that make the arguments, by name and on the CPU, each time with other numbers."""
    judge: Callable[[tuple, tuple, dict[str, Any]], Any]
    """Of the results, the written arguments behind the call, and all as they were before it: raises AssertionError."""


def close_to(golden: Callable) -> Callable[[tuple, tuple, dict[str, Any]], None]:
    """A judge: results, then written arguments, are within their dtypes' precision what the golden gives."""

    def judge(results: tuple, written: tuple, arguments: dict[str, Any]) -> None:
        actual, expected = tree_leaves((results, written)), tree_leaves(golden(**arguments))
        assert len(actual) == len(expected), f"it gives {len(actual)} tensors, the golden {len(expected)}"
        for got, want in zip(actual, expected, strict=True):
            torch.testing.assert_close(got, want.to(got.dtype))

    return judge


def gradients_of(golden: Callable, calls: dict[str, Callable], results: list[str], tensors: list[str]) -> Samples:
    """The samples of a backward: it takes gradients of the golden's results, by these names, and the arguments of the
    calls; it gives the gradients of these tensors, which PyTorch computes of the golden. One that is not given, or is
    no floating-point tensor, has an empty or a zero gradient."""

    def call(make: Callable) -> dict[str, Any]:
        arguments = make()
        dtype = _floating(arguments)[0].dtype
        given = tree_leaves(golden(**arguments))
        grads = [torch.randn(result.shape).to(dtype) for result in given]
        named = dict(zip(results, grads, strict=True)) if len(results) == len(grads) else {results[0]: grads}
        return named | arguments

    def judge(actual: tuple, written: tuple, arguments: dict[str, Any]) -> None:
        given = {name: value for name, value in arguments.items() if name not in results}
        given = tree_map_only(Tensor, lambda t: t.double().requires_grad_() if t.is_floating_point() else t, given)
        outputs = tree_leaves(golden(**given))
        grads = tree_leaves([arguments[name] for name in results])
        torch.autograd.backward(outputs, [grad.to(out.dtype) for grad, out in zip(grads, outputs, strict=True)])
        for got, tensor in zip(tree_leaves(actual), tree_leaves(list(map(given.get, tensors))), strict=True):
            want = torch.empty(0) if tensor is None else tensor.grad
            torch.testing.assert_close(got, (torch.zeros_like(tensor) if want is None else want).to(got.dtype))

    return Samples({name: partial(call, make) for name, make in calls.items()}, judge)


class Mistake(Exception):
    """What a check found, in a line with the file to mend."""


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
        return definition.source(self.folder, self.package.__name__, self.name)

    @property
    def kernel(self) -> Path:
        """The file of its aclnn function, which calls the kernel."""
        return definition.aclnn_source(self.folder, definition.ge_type(self.name))

    @property
    def converter(self) -> str:
        """The file that its node in a graph follows from: that of a converter of its own, or the prototype."""
        own = [op._ge_converter for op in self.overloads if not getattr(op._ge_converter, "plain", False)]
        return own[0].__module__.replace(".", "/") + ".py" if own else definition.PROTOTYPES

    @cached_property
    def overloads(self) -> list[torch._ops.OpOverload]:
        packet = getattr(getattr(torch.ops, self.package.__name__), self.name)
        return [getattr(packet, name) for name in packet.overloads()]

    @cached_property
    def _found(self) -> tuple[Samples, str]:
        file = f"test/{self.package.__name__}/{self.name}_calls.py"
        samples, file = load_samples(self.package.__name__, self.folder).get(self.name, (None, file))
        if samples is None or not samples.calls:
            raise Mistake(f"there are no calls of it: add SAMPLES['{self.name}'] to {file}")
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
            raise Mistake(f"call '{name}' cannot be made: {_described(error)}: mend {self.samples_file}") from error

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
        mend = f"mend {self.operator.samples_file} or {self.operator.schemas}"
        raise Mistake(f"no overload of the schema has the arguments {names} of call '{self.name}': {mend}")

    @cached_property
    def written(self) -> list[str]:
        """The arguments that the schema declares as written and that are given."""
        arguments = self.overload._schema.arguments
        return [a.name for a in arguments if definition.is_written(a) and self.arguments.get(a.name) is not None]

    def on(self, device: str) -> dict[str, Any]:
        """The arguments in memory of their own on a device."""
        return tree_map_only(Tensor, lambda tensor: tensor.to(device), self.arguments)

    def run(self, function: Callable, arguments: dict[str, Any]) -> tuple[tuple, tuple]:
        """Results, and behind the call the written arguments."""
        value = function(**arguments)
        results = () if value is None else tuple(value) if isinstance(value, tuple | list) else (value,)
        return results, tuple(arguments[name] for name in self.written)


def same(left, right) -> bool:
    """Whether tensors, or lists and tuples of them, are the same to the bit."""
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
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def form(value) -> list[str]:
    """Shape and dtype of every tensor in it, in words."""
    return [f"{list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for t in _tensors(value)]


# ---- the checks: each returns what it has run, or raises


def registration(operator: Operator) -> str:
    """Schema, prototype, functions, converter and test are there and agree."""
    prefix = f"{operator.full_name}: "
    mistakes = definition.mistakes(operator.package, operator.folder)
    found = [mistake.removeprefix(prefix) for mistake in mistakes if mistake.startswith(prefix)]
    if found:
        raise Mistake("; ".join(found))
    return f"{len(operator.overloads)} schemas, {len(operator.samples.calls)} calls"


def meta(operator: Operator) -> str:
    """On Meta it gives the shapes and dtypes that it gives on an NPU."""
    for call in operator.calls():
        there, _ = call.run(call.overload, call.on("npu"))
        torch.npu.synchronize()
        on_meta, _ = call.run(call.overload, call.on("meta"))
        if form(there) != form(on_meta):
            raise Mistake(
                f"on Meta it gives {', '.join(form(on_meta)) or 'nothing'}, on an NPU "
                f"{', '.join(form(there)) or 'nothing'} ({call.name}): mend one of both in {operator.source}"
            )
    return "shapes and dtypes as on an NPU"


def mutations(operator: Operator) -> str:
    """It writes to no argument that the schema does not declare as written."""
    written: dict[str, None] = {}
    for call in operator.calls():
        arguments = call.on("npu")
        call.run(call.overload, arguments)
        torch.npu.synchronize()
        for name, before in call.arguments.items():
            if name not in call.written and not same(arguments[name], before):
                raise Mistake(
                    f"it writes to argument '{name}' ({call.name}), which the schema does not declare: "
                    f"write Tensor(a!) in {operator.schemas}, or mend {operator.kernel}"
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
                    raise Mistake(f"result {i} lies in the memory of {owner} {where}: mend {operator.source}")
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
            raise Mistake(f"{_line(error)} ({call.name}): mend {operator.source}") from error
    return "as torch.library.opcheck demands"


def eager(operator: Operator) -> str:
    """What it gives and writes is what its golden says."""
    for call in operator.calls():
        results, written = tree_map_only(Tensor, Tensor.cpu, call.run(call.overload, call.on("npu")))
        try:
            operator.samples.judge(results, written, call.arguments)
        except AssertionError as error:
            raise Mistake(f"not as the golden: {_line(error)} ({call.name}): mend {operator.kernel}") from error
        except Exception as error:
            mend = f"mend {operator.samples_file}"
            raise Mistake(f"its golden fails: {_described(error)} ({call.name}): {mend}") from error
    return "as the golden"


AUTOGRAD = (torch._C.DispatchKey.AutogradPrivateUse1, torch._C.DispatchKey.Autograd)
# dtype of the arguments: how gradcheck takes differences; float32 is for operators that refuse float64
DIFFERENCES = {torch.float64: {}, torch.float32: {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2}}


def autograd(operator: Operator) -> str:
    """Its gradients are those that differences of its results give, of every call on floating-point tensors."""
    if not any(op.has_kernel_for_dispatch_key(key) for op in operator.overloads for key in AUTOGRAD):
        return "it has no gradient"
    checked = 0
    for call in operator.calls():
        floating = _floating(call.arguments)
        if floating and all(tensor.numel() for tensor in floating):
            try:
                _check_gradients(call, floating)
            except RuntimeError as error:
                if f"derivative for {operator.full_name} is not implemented" not in str(error):
                    raise
                return "it has no gradient, and says so"
            checked += 1
    if not checked:
        raise Mistake(f"no call has gradients: give one floating-point tensors in {operator.samples_file}")
    return f"gradcheck of {checked} calls"


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
        refusal = _outcome(lambda: function(*values))  # noqa: B023
        if not isinstance(refusal, str):
            break
    else:
        raise Mistake(f"it takes neither float64 nor float32, which gradcheck needs ({call.name}): {refusal}")
    try:
        gradcheck(function, values, **DIFFERENCES[dtype])
    except GradcheckError as error:
        raise Mistake(f"{_line(error)} ({call.name}): mend the backward in {call.operator.source}") from error


def in_mode(mode: str, operator: Operator) -> str:
    """In graphs of a mode it gives and writes what it does eagerly, to the bit, also when the graph is called again."""
    for name in operator.samples.calls:
        torch._dynamo.reset()
        function = None
        for _ in range(2):
            call = operator.call(name)
            function = function or MODES[mode](partial(call.overload))
            expected = call.run(call.overload, call.on("npu"))
            try:
                found = call.run(function, call.on("npu"))
                torch.npu.synchronize()
            except Exception as error:
                raise Mistake(f"no graph: {_described(error)} ({name}): mend {operator.converter}") from error
            if not same(found, expected):
                mend = f"mend {operator.kernel} or {operator.converter}"
                raise Mistake(f"something else than eagerly ({name}): {mend}")
    return "to the bit as eagerly"


def bad_input(operator: Operator) -> str:
    """Where one tensor has another dtype, rank or size, or is none, eager and Meta refuse with the same words or both
    take it. Refusals name the operator, and write nothing. On the CPU it is refused."""
    bad = [
        (f"{what} ({call.name})", changed)
        for call in operator.calls()
        if all(tensor.numel() for tensor in _tensors(call.arguments))
        for what, changed in _bad_calls(call)
    ]
    refused = 0
    for what, call in bad:
        arguments = call.on("npu")
        before = tree_map_only(Tensor, torch.clone, arguments)
        eagerly = _outcome(lambda: call.run(call.overload, arguments)[0])  # noqa: B023
        on_meta = _outcome(lambda: call.run(call.overload, call.on("meta"))[0])  # noqa: B023
        if eagerly != on_meta:
            raise Mistake(f"{what}: an NPU says {eagerly}, Meta {on_meta}: mend {operator.source}")
        if isinstance(eagerly, str):
            refused += 1
            if operator.name not in eagerly:
                raise Mistake(f"{what}: the error does not name the operator: {eagerly}: mend {operator.source}")
            if not same(arguments, before):
                raise Mistake(f"{what}: it is refused, but something is written: mend {operator.source}")
    for call in operator.calls():
        for name, value in call.arguments.items():
            if any(tensor.dim() > 0 for tensor in _tensors(value)):
                eagerly = _outcome(lambda: call.run(call.overload, call.on("npu") | {name: value})[0])  # noqa: B023
                if not isinstance(eagerly, str) or operator.name not in eagerly:
                    raise Mistake(f"'{name}' on the CPU ({call.name}) earns {eagerly}: mend {operator.source}")
    return f"{len(bad)} calls with one other argument, {refused} refused, all as on Meta"


def _bad_calls(call: Call) -> Iterator[tuple[str, Call]]:
    """Each argument of the call in turn: tensors with another dtype, rank and size, lists of them with one such, or
    shorter, and what is no list as none."""
    types_of = {argument.name: definition.type_of(argument) for argument in call.overload._schema.arguments}
    for name, value in call.arguments.items():
        others = {}
        if _is_tensor(value):
            others = _other_tensors(value)
        elif isinstance(value, list | tuple) and _tensors(value):
            others = {f"[0] {what}": [other, *value[1:]] for what, other in _other_tensors(value[0]).items()}
            others["without its last"] = [*value[:-1]]
        if types_of[name] == "Tensor":
            others["none"] = None
        for what, other in others.items():
            yield f"'{name}' {what}", Call(call.operator, call.name, call.arguments | {name: other})


def _other_tensors(tensor: Tensor) -> dict[str, Tensor]:
    """Tensors that are not what this one is, each in one thing, which is said."""
    others = {"of dtype torch.complex64": tensor.to(torch.complex64), "with a dimension more": tensor[None]}
    others |= {f"of dtype {t}": tensor.to(t) for t in (torch.int16, torch.float32) if t != tensor.dtype}
    for d, size in enumerate(tensor.shape):
        others[f"of size {size + 1} in dimension {d}"] = torch.cat([tensor, tensor.narrow(d, 0, 1)], d)
    return others


def _outcome(run: Callable[[], Any]) -> str | list[str]:
    """The message with which a call is refused, or the form of what it gives; what only the kernel refuses is taken."""
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
FORM = {"registration": registration, "Meta": meta, "mutations": mutations, "aliases": aliases}
BEHAVIOUR = {"opcheck": opcheck, "eager": eager, "autograd": autograd}
BEHAVIOUR |= {mode: partial(in_mode, mode) for mode in MODES if mode != "eager"}
BEHAVIOUR |= {"bad input": bad_input}


def check(operator: Operator) -> Iterator[tuple[str, str, str]]:
    """Runs the checks; yields a line each: its name, "ok", "FAILED" or "not run", and what it has found."""
    import torchair  # noqa: F401  (lets the package register its converters)

    malformed = False
    for name, run in (FORM | BEHAVIOUR).items():
        if malformed:
            yield name, "not run", "mend the above first"
            continue
        try:
            yield name, "ok", run(operator)
        except Exception as error:
            malformed = name in FORM
            if isinstance(error, Mistake):
                yield name, "FAILED", str(error)
            else:
                mend = operator.kernel if _line(error).startswith("aclnn") else operator.source
                yield name, "FAILED", f"{_described(error)}: mend {mend}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m custom_pypto.check", description=__doc__.splitlines()[0])
    parser.add_argument("operator", help="its name, with that of its package in front unless that is custom_pypto")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="of the package's sources; default: here")
    options = parser.parse_args()
    package, _, name = options.operator.rpartition("::")
    with contextlib.suppress(ValueError):
        sys.path.remove(str(Path.cwd()))  # of the sources: the installed package is checked
    operator = Operator(importlib.import_module(package or __package__), name, options.folder)
    names = definition.operators(operator.package.__name__)
    if name not in names:
        parser.error(f"{operator.full_name} is no operator: there are {', '.join(names)}")
    torch.manual_seed(0)
    print(operator.full_name)
    verdicts = []
    with late_warnings():
        for line in check(operator):
            print(COLUMNS.format(*line), flush=True)
            verdicts.append(line[1])
    print(f"{verdicts.count('ok')} of {len(verdicts)} lines passed")
    return 0 if set(verdicts) == {"ok"} else 1


if __name__ == "__main__":
    sys.exit(main())
