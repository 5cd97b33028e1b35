# SPDX-License-Identifier: Apache-2.0
"""The checks: each runs the calls of an operator and returns what it has run, or raises CheckFailure."""

import contextlib
import itertools
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck
from torch.utils._pytree import tree_leaves, tree_map_only
from torchair.ge._ge_graph import DataType, torch_type_to_ge_type

from ...arguments import checked
from ...graph import agreement, prototypes
from ...graph.converters import ge_api
from ...modes import MODES
from .. import bad_calls, sources
from .operator import Call, CheckFailure, Operator, described, line_of
from .samples import difference, dtype_name, floating_tensors, form, same, tensors_in


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
    return f"schemas: {len(operator.overloads)}, calls: {len(operator.samples.calls)}"


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
            given = {name: tensors_in(there.get(name)) for name in declared.inputs}
            given |= {name: tensors_in(value) for name, value in zip(outputs, results, strict=False)}
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
    for dtype in FLOATS if floating_tensors(call.arguments) else ():
        changed = tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, call.arguments)  # noqa: B023
        yield f", in {dtype}".replace("torch.", ""), changed


def _check_dtypes(operator: Operator, call: str, given: dict, allowed: dict) -> None:
    for name, tensors in given.items():
        for tensor in tensors:
            if allowed[name] and torch_type_to_ge_type(tensor.dtype) not in _ge_dtypes(allowed[name]):
                raise CheckFailure(
                    f"'{name}' is {dtype_name(tensor)} ({call}), but the definition has it in "
                    f"{', '.join(allowed[name])}: "
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
        raise CheckFailure(f"{line_of(error)} ({call.name}): fix {_kernel_of(call.operator, error)}") from error
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
    """No result shares memory with an argument or with another result."""
    for call in operator.calls():
        for device in ("npu", "meta"):
            arguments = call.on(device)
            results, _ = call.run(call.overload, arguments)
            owners = {
                _storage(tensor): f"argument '{name}'" for name in arguments for tensor in tensors_in(arguments[name])
            }
            for i, result in enumerate(tensors_in(results)):
                owner = owners.setdefault(_storage(result), f"result {i}")
                if owner != f"result {i}":
                    where = f"({call.name}, on {device})"
                    raise CheckFailure(f"result {i} shares memory with {owner} {where}: fix {operator.source}")
    return "the results are new tensors"


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
            raise CheckFailure(f"{line_of(error)} ({call.name}): fix {operator.source}") from error
    return "as torch.library.opcheck demands"


def eager(operator: Operator) -> str:
    """Its results and written arguments match its reference."""
    for call in operator.calls():
        results, written = tree_map_only(Tensor, Tensor.cpu, call.run(call.overload, call.on("npu")))
        try:
            operator.samples.judge(results, written, call.arguments)
        except AssertionError as error:
            raise CheckFailure(
                f"differs from the reference: {line_of(error)} ({call.name}): fix {operator.kernel}"
            ) from error
        except Exception as error:
            fix = f"fix {operator.samples_file}"
            raise CheckFailure(f"its reference fails: {described(error)} ({call.name}): {fix}") from error
    return "matches the reference"


def layouts(operator: Operator) -> str:
    """Tensors with gaps, at an offset, expanded, and on another NPU have results bitwise equal to contiguous ones."""
    run = 0
    for call in operator.calls():
        plain = _given(call, call.on("npu"))
        for name, value in call.arguments.items():
            tensors = tensors_in(value)
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
    devices = {str(tensor.device) for tensor in tensors_in(found)} - {device}
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
        for device in {tensor.device for tensor in tensors_in(arguments)}:
            torch.npu.synchronize(device)
    except (RuntimeError, TypeError, ValueError) as error:
        return line_of(error)
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
        floating = floating_tensors(call.arguments)
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
    for tensor in floating_tensors(arguments):
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
        missing = (f"derivative for {call.operator.full_name} is not implemented", "no autograd formula was registered")
        return any(each in str(error) for each in missing)
    return False


def _check_gradients(call: Call, floating: list[Tensor]) -> None:
    def function(*values):
        given = iter(values)
        arguments = tree_map_only(
            Tensor, lambda t: next(given).clone() if t.is_floating_point() else t.npu(), call.arguments
        )
        return tuple(floating_tensors(call.run(call.overload, arguments)))

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
        found = _gradient_that_differs(function, values, DIFFERENCES[dtype]) or line_of(error)
        gradient = call.operator.gradient
        fix = f"{gradient.kernel}, or " if gradient else ""
        raise CheckFailure(f"{found} ({call.name}): fix {fix}the backward in {call.operator.source}") from error


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
        raise CheckFailure(f"no graph: {described(error)} ({call.name}): fix {operator.converter}") from error
    if not same(found, expected):
        fix = f"fix {operator.kernel} or {operator.converter}"
        raise CheckFailure(f"something else than eagerly ({call.name}): {call.unlike(found, expected)}: {fix}")


def _with_another_size(call: Call) -> Call | None:
    """The call with one of its sizes doubled, in tensors and attributes; None if it takes none such."""
    sizes = {size for tensor in tensors_in(call.arguments) for size in tensor.shape if size > 1}
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
        rows = checked(partial(call.run, call.overload, call.on("meta")))
        required = {a.name for a in call.overload._schema.arguments if prototypes.type_of(a) == "Tensor"}
        if all(tensor.numel() for tensor in tensors_in(call.arguments)):
            for bad in bad_calls.bad_calls(call.arguments, rows, required):
                rejected += _is_rejected(call, bad, bool(rows))
                count += 1
        for name, value in call.arguments.items():
            if any(tensor.dim() > 0 for tensor in tensors_in(value)):
                eagerly = _outcome(lambda: call.run(call.overload, call.on("npu") | {name: value})[0])  # noqa: B023
                named = operator.name in eagerly and (name not in rows or f"'{name}'" in eagerly)
                if not isinstance(eagerly, str) or not named:
                    raise CheckFailure(f"'{name}' on the CPU ({call.name}) gives {eagerly}: fix {operator.source}")
    return f"{count} calls with one other argument, {rejected} rejected, all as on Meta"


def _is_rejected(call: Call, bad: bad_calls.Bad, names_arguments: bool) -> bool:
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
        return line_of(error)
    with contextlib.suppress(RuntimeError):
        torch.npu.synchronize()
    return form(results)
