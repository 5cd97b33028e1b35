# SPDX-License-Identifier: Apache-2.0
"""Checks that an operator's schema and its prototype agree, and that all parts of the operator exist.

``python -m custom_pypto.graph.agreement PACKAGE FOLDER`` prints a line for each error in the operators of an
installed package, whose sources are in that folder, and then fails. The build runs it.
"""

import functools
import importlib
import inspect
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from .converters import ge_api
from .prototypes import (
    ABSENT,
    ATTRIBUTES,
    DTYPES,
    INPUTS,
    OUTPUTS,
    REQUIRED,
    Prototype,
    ge_type,
    has_schema,
    is_tensor,
    is_written,
    operators,
    same,
    snake_case,
    type_of,
)
from .python_operators import PYTHON_OPERATORS


def mismatches(schemas: Iterable[torch.FunctionSchema], prototype: Prototype) -> list[str]:
    """The disagreements between the schemas of an operator's overloads and its prototype, a sentence each.

    Names match arguments to inputs and attributes. Schemas and prototype agree if
    - tensors are the inputs and other arguments the attributes, each in the prototype's order, of its type and with its
      default (None stands for it);
    - each written input, and no other input, has an output of its name, after the outputs that are the results;
    - some overload has each optional input and attribute and all results, and every overload has the required ones and
      the first results.
    """
    schemas = [*schemas]
    of_each = [{argument.name for argument in schema.arguments} for schema in schemas]
    given = set().union(*of_each)
    left_out = given.difference(set.intersection(*of_each))
    found = [mismatch for schema in schemas for mismatch in _mismatches(schema, prototype, left_out)]
    for what, names in (("input", prototype.inputs), ("attribute", prototype.attributes)):
        absent = [name for name in names if name not in given and not prototype.requires(name)]
        found += [f"{what} '{name}' of the prototype is not an argument of the schema" for name in absent]
    outputs = [name for name in prototype.outputs if name not in prototype.inputs]
    results = max(len(schema.returns) for schema in schemas)
    if len(outputs) != results:
        found.append(f"the schema has {results} results, but the prototype {len(outputs)} outputs that are not inputs")
    elif list(prototype.outputs)[:results] != outputs:
        found.append(
            f"output '{outputs[-1]}' of the prototype must come before the outputs that have the names of inputs"
        )
    else:
        found += [mismatch for schema in schemas for mismatch in _result_mismatches(schema, outputs, prototype)]
    return [*dict.fromkeys(found)]


def _mismatches(schema: torch.FunctionSchema, prototype: Prototype, left_out: set[str]) -> Iterator[str]:
    tensors = [argument for argument in schema.arguments if is_tensor(argument)]
    others = [argument for argument in schema.arguments if not is_tensor(argument)]
    yield from _name_mismatches(tensors, prototype.inputs, "input")
    yield from _name_mismatches(others, prototype.attributes, "attribute")
    for argument in tensors:
        presence = prototype.inputs.get(argument.name)
        if presence not in (None, *INPUTS.get(type_of(argument), ())):
            yield f"argument '{argument.name}' is a {type_of(argument)}, but the input is {presence}"
    for argument in others:
        if argument.name in prototype.attributes:
            yield from _attribute_mismatches(argument, *prototype.attributes[argument.name], argument.name in left_out)
    given = {argument.name for argument in schema.arguments}
    for name in (*prototype.inputs, *prototype.attributes):
        if name not in given and prototype.requires(name):
            yield f"'{name}' of the prototype is not an argument of the schema, but required"
    yield from _output_mismatches(schema, prototype)


def _name_mismatches(arguments: list, declared: dict, what: str) -> Iterator[str]:
    names = [argument.name for argument in arguments]
    for name in names:
        if name not in declared:
            yield f"argument '{name}' of the schema is not an {what} of the prototype"
    here, there = [name for name in names if name in declared], [name for name in declared if name in names]
    if here != there:
        first = next(i for i, pair in enumerate(zip(here, there, strict=True)) if pair[0] != pair[1])
        yield f"{what} '{there[first]}' of the prototype comes before '{here[first]}', but after it in the schema"


def _attribute_mismatches(argument, kind: str, default, left_out: bool) -> Iterator[str]:
    """An argument that another overload leaves out needs no default: the attribute's is for that one."""
    of_schema = re.sub(r"^Optional\[(.*)\]$", r"\1", type_of(argument))
    if ATTRIBUTES.get(of_schema) != kind:
        yield f"argument '{argument.name}' is a {of_schema}, but the attribute is a {kind}"
    elif argument.has_default_value() != (default is not REQUIRED) and (default is REQUIRED or not left_out):
        with_it, without = ("schema", "prototype") if argument.has_default_value() else ("prototype", "schema")
        yield f"argument '{argument.name}' has a default in the {with_it} and none in the {without}"
    elif argument.has_default_value():
        given = argument.default_value
        number = DTYPES.get(given) if kind == "DataType" else given
        stands_for = ABSENT.get(kind, []) if given is None else number
        if not same(stands_for, default):
            named = (
                f"None by default, which stands for {stands_for!r}" if given is None else f"{stands_for!r} by default"
            )
            yield f"argument '{argument.name}' is {named}, but the attribute {default!r}"


def _output_mismatches(schema: torch.FunctionSchema, prototype: Prototype) -> Iterator[str]:
    given = {argument.name: argument for argument in schema.arguments}
    for name, argument in given.items():
        if is_written(argument) and name in prototype.inputs and name not in prototype.outputs:
            yield f"argument '{name}' is written, but no output of the prototype has its name"
    for name in prototype.written:
        if name in given and not is_written(given[name]):
            yield f"output '{name}' of the prototype writes to that input, which the schema does not mark: (a!)"
    for result in schema.returns:
        if result.alias_info is not None:
            yield "a result is an argument: return nothing for what is written, or a new tensor"


def _result_mismatches(schema: torch.FunctionSchema, outputs: list[str], prototype: Prototype) -> Iterator[str]:
    for name, result in zip(outputs, schema.returns, strict=False):
        if OUTPUTS.get(type_of(result)) != prototype.outputs[name]:
            yield f"result '{name}' is a {type_of(result)}, but the output is {prototype.outputs[name]}"
        if result.name and result.name != name:
            yield f"result '{result.name}' of the schema is output '{name}' of the prototype"


# ---- the operators of a package


def disagreements(package: types.ModuleType, folder: Path) -> Iterator[str]:
    """What is missing or disagrees in a package's operators, a line each, with the file in `folder` to fix."""
    prototypes = {name: Prototype.of(ir) for name, ir in ge_api(package.__name__).IR.items()}
    found_all = operators(package.__name__).items()  # those in Python are nodes by their names
    defined = {name: found for name, found in found_all if f"{package.__name__}::{name}" not in PYTHON_OPERATORS}
    schemas = f"{package.__name__}/csrc/ops_def_registration.cpp"
    for name, overloads in defined.items():
        graph_type = ge_type(name)
        found = [*_missing_kernels(overloads, source(folder, package.__name__, name))]
        if graph_type not in prototypes:
            found.append(f"it has no definition: add OP_ADD({graph_type}) to {host_source(folder, graph_type)}")
        else:
            found += _misplaced(prototypes[graph_type], package, folder)
            found += _disagreements(
                overloads, prototypes[graph_type], f"{schemas} or {host_source(folder, graph_type)}"
            )
        if not any(_names(file, name) for file in (folder / "test").rglob("*.py")):
            found.append(f"no test names it: add one to test/{package.__name__}")
        yield from (f"{package.__name__}::{name}: {error}" for error in found)
    for full_name in sorted(torch._C._dispatch_get_all_op_names()):
        if full_name.startswith(f"{package.__name__}::") and not has_schema(full_name):
            yield f"{full_name}: it has functions, but no schema: add one to {schemas}"
    for surplus in prototypes.keys() - {ge_type(name) for name in defined}:
        yield f"{host_source(folder, surplus)}: {surplus} belongs to no operator: add a schema to {schemas}"


def _names(file: Path, operator: str) -> bool:
    return re.search(rf"\b{operator}\b", file.read_text()) is not None


def source(folder: Path, package: str, operator: str) -> Path:
    """The file with the operator's functions: one that registers a function for it, or that which should be there."""

    def registers(call: Call) -> bool:
        literals = [argument.strip('"') for argument in call.arguments[:2] if argument.startswith('"')]
        names = [literal.rpartition("::")[2].partition(".")[0] for literal in literals]
        return call.function.startswith("impl") and operator in names

    return _file_with(registers, operator, folder, Path(package, "csrc", f"{operator}.cpp"))


def host_source(folder: Path, graph_type: str) -> Path:
    """The file with an operator's definition, or that which should be there."""

    def defines(call: Call) -> bool:
        return call.function == "OP_ADD" and call.arguments == [graph_type]

    return _file_with(defines, graph_type, folder, Path("opp", "op_host", f"{snake_case(graph_type)}.cpp"))


@dataclass(frozen=True)
class Call:
    """A call in C++, or a call of a macro that is followed by a body."""

    function: str
    """Its last name, without templates' arguments."""
    arguments: list[str]
    line: int
    understood: bool


@functools.lru_cache(maxsize=256)
def calls(text: str) -> list[Call]:
    """The calls in C++: tree-sitter parses it without headers and macros."""
    import tree_sitter
    import tree_sitter_cpp

    parser, found = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language())), []
    rest = [parser.parse(text.encode()).root_node]
    while rest:
        rest += reversed((node := rest.pop()).children)
        if node.type not in ("call_expression", "function_declarator"):
            continue
        fields = ("function", "arguments") if node.type == "call_expression" else ("declarator", "parameters")
        function, listed = map(node.child_by_field_name, fields)
        while inner := function.child_by_field_name("name") or function.child_by_field_name("field"):
            function = inner
        given = [each.text.decode() for each in listed.named_children if each.type != "comment"]
        found.append(Call(function.text.decode(), given, node.start_point[0] + 1, not node.has_error))
    return found


def has_call(wanted: Callable[[Call], bool], word: str, file: Path) -> bool:
    text = file.read_text()
    return word in text and any(map(wanted, calls(text)))


def _file_with(wanted: Callable[[Call], bool], word: str, folder: Path, expected: Path) -> Path:
    """The first C++ file beside the expected one that has such a call, else the expected one, in the folder."""
    files = sorted(folder.joinpath(expected.parent).glob("*.cpp"))
    return next((file for file in files if has_call(wanted, word, file)), folder / expected).relative_to(folder)


def _missing_kernels(overloads: Iterable[torch._ops.OpOverload], source: Path) -> Iterator[str]:
    for key, what in {"Meta": "Meta function", "PrivateUse1": "function for tensors on an NPU"}.items():
        if not all(op.has_kernel_for_dispatch_key(getattr(torch._C.DispatchKey, key)) for op in overloads):
            yield f"it has no {what}: add one, for {key}, to {source}"


def _misplaced(prototype: Prototype, package: types.ModuleType, folder: Path) -> Iterator[str]:
    """The arguments of EXEC_NPU_CMD that have the name of another parameter, as when two tensors are swapped."""
    names = [*dict.fromkeys((*prototype.inputs, *prototype.attributes, *prototype.outputs))]
    for file in sorted(folder.joinpath(package.__name__, "csrc").glob("*.cpp")):
        text = file.read_text()
        for call in calls(text) if f"aclnn{prototype.type}" in text else ():
            if call.function != "EXEC_NPU_CMD" or call.arguments[:1] != [f"aclnn{prototype.type}"]:
                continue
            what, where = f"EXEC_NPU_CMD(aclnn{prototype.type}, ...)", file.relative_to(folder)
            if not call.understood:
                yield f"{what} is not understood: fix {where}:{call.line}"
                continue
            given = [_name_of(argument) for argument in call.arguments[1:]]
            in_place = {name for name, expected in zip(given, names, strict=False) if name == expected}
            for name, expected in zip(given, names, strict=False):
                if name in names and name != expected and name not in in_place:
                    yield f"{what} gives '{name}' where the function takes '{expected}': fix {where}"
                    break


def _name_of(argument: str) -> str:
    """The variable that a call is given: x of *x, &x, x.contiguous()."""
    return "".join(itertools.takewhile(lambda sign: sign.isalnum() or sign == "_", argument.lstrip("*& \n")))


def _disagreements(overloads: list[torch._ops.OpOverload], prototype: Prototype, files: str) -> Iterator[str]:
    """The disagreements of schemas, prototype and converters, except for the names that an own converter maps."""
    own = [op for op in overloads if not getattr(op._ge_converter, "plain", False)]
    mapped = [name for op in own for name in getattr(op._ge_converter, "mapped", ())]
    for mismatch in mismatches([op._schema for op in overloads], prototype):
        if not any(f"'{name}'" in mismatch for name in mapped):
            yield f"{mismatch}: fix {files}, or map it in its own converter"
    for op in own:
        if not _takes(op._ge_converter, op._schema):
            file = "/".join(op._ge_converter.__module__.split("."))
            yield f"its converter's parameters are not the schema's arguments, or have other defaults: fix {file}.py"


def _takes(converter: Callable, schema: torch.FunctionSchema) -> bool:
    """Whether a converter takes a call's arguments as the schema has them."""
    parameters = {name: p for name, p in inspect.signature(converter).parameters.items() if name != "meta_outputs"}
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
        return True
    return [*parameters] == [argument.name for argument in schema.arguments] and all(
        p.default is p.empty if not argument.has_default_value() else same(p.default, argument.default_value)
        for p, argument in zip(parameters.values(), schema.arguments, strict=True)
    )


def main() -> int:
    import torchair  # noqa: F401  (lets the package register its converters)

    name, folder = sys.argv[1:]
    found = [*disagreements(importlib.import_module(name), Path(folder))]
    print(*(f"error: {error}" for error in found), sep="\n", end="\n" * bool(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
