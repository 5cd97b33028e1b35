# SPDX-License-Identifier: Apache-2.0
"""What an operator's schema and its prototype say of each other, and what of the operator is not there.

``python -m custom_pypto.authoring.definition PACKAGE FOLDER`` prints a line for each mistake in the operators of an
installed package, whose sources are in that folder, and then fails; the build runs it.
"""

import importlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

from ..prototypes import (
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


def mismatches(schemas: Iterable[torch.FunctionSchema], prototype: Prototype) -> list[str]:
    """What the schemas of an operator's overloads and its prototype do not agree in, a sentence each.

    Names say which belongs to which. They agree if tensors are the inputs and other arguments the attributes, each in
    the prototype's order, of its type and with its default (None stands for it); if what is written, and nothing else
    of the inputs, has an output of its name, behind the outputs that are the results; and if some overload has each
    optional input and attribute and all results, and all have the required ones and the first results.
    """
    schemas = [*schemas]
    of_each = [{argument.name for argument in schema.arguments} for schema in schemas]
    given = set().union(*of_each)
    left_out = given.difference(set.intersection(*of_each))
    found = [mismatch for schema in schemas for mismatch in _mismatches(schema, prototype, left_out)]
    for what, names in (("input", prototype.inputs), ("attribute", prototype.attributes)):
        absent = [name for name in names if name not in given and not prototype.requires(name)]
        found += [f"{what} '{name}' of the prototype is no argument of the schema" for name in absent]
    outputs = [name for name in prototype.outputs if name not in prototype.inputs]
    results = max(len(schema.returns) for schema in schemas)
    if len(outputs) != results:
        found.append(f"the schema has {results} results, but the prototype {len(outputs)} outputs that are no inputs")
    elif list(prototype.outputs)[:results] != outputs:
        found.append(
            f"output '{outputs[-1]}' of the prototype must come before the outputs that bear the names of inputs"
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
            yield f"'{name}' of the prototype is no argument of the schema, and required"
    yield from _output_mismatches(schema, prototype)


def _name_mismatches(arguments: list, declared: dict, what: str) -> Iterator[str]:
    names = [argument.name for argument in arguments]
    for name in names:
        if name not in declared:
            yield f"argument '{name}' of the schema is no {what} of the prototype"
    here, there = [name for name in names if name in declared], [name for name in declared if name in names]
    if here != there:
        first = next(i for i, pair in enumerate(zip(here, there, strict=True)) if pair[0] != pair[1])
        yield f"{what} '{there[first]}' of the prototype comes before '{here[first]}', in the schema behind it"


def _attribute_mismatches(argument, kind: str, default, left_out: bool) -> Iterator[str]:
    """An argument that another overload leaves out needs no default: the attribute's is for that one."""
    of_schema = re.sub(r"^Optional\[(.*)\]$", r"\1", type_of(argument))
    if ATTRIBUTES.get(of_schema) != kind:
        yield f"argument '{argument.name}' is a {of_schema}, but the attribute is a {kind}"
    elif argument.has_default_value() != (default is not REQUIRED) and (default is REQUIRED or not left_out):
        with_it, without = ("schema", "prototype") if argument.has_default_value() else ("prototype", "schema")
        yield f"argument '{argument.name}' has a default in the {with_it} and none in the {without}"
    elif argument.default_value is not None:
        given = DTYPES.get(argument.default_value) if kind == "DataType" else argument.default_value
        if not same(given, default):
            yield f"argument '{argument.name}' is {given!r} by default, but the attribute {default!r}"


def _output_mismatches(schema: torch.FunctionSchema, prototype: Prototype) -> Iterator[str]:
    given = {argument.name: argument for argument in schema.arguments}
    for name, argument in given.items():
        if is_written(argument) and name in prototype.inputs and name not in prototype.outputs:
            yield f"argument '{name}' is written, but no output of the prototype bears its name"
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


def mistakes(package: types.ModuleType, folder: Path) -> Iterator[str]:
    """What is missing or does not agree of a package's operators, a line each, with the file in `folder` to fix."""
    from ..converter import ge_api

    prototypes = {name: Prototype.of(ir) for name, ir in ge_api(package.__name__).IR.items()}
    defined = operators(package.__name__)
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
        yield from (f"{package.__name__}::{name}: {mistake}" for mistake in found)
    for full_name in sorted(torch._C._dispatch_get_all_op_names()):
        if full_name.startswith(f"{package.__name__}::") and not has_schema(full_name):
            yield f"{full_name}: it has functions, but no schema: add one to {schemas}"
    for surplus in prototypes.keys() - {ge_type(name) for name in defined}:
        yield f"{host_source(folder, surplus)}: {surplus} belongs to no operator: add a schema to {schemas}"


def _names(file: Path, operator: str) -> bool:
    return re.search(rf"\b{operator}\b", file.read_text()) is not None


def source(folder: Path, package: str, operator: str) -> Path:
    """The file with the operator's functions: one that registers a function for it, or that which should be there."""
    pattern = rf'(m\.impl\("|implement<.*>\(\s*m, "\w+::){operator}[".]'
    return _file_with(pattern, folder, Path(package, "csrc", f"{operator}.cpp"))


def host_source(folder: Path, graph_type: str) -> Path:
    """The file with an operator's definition, or that which should be there."""
    return _file_with(rf"\bOP_ADD\({graph_type}\)", folder, Path("opp", "op_host", f"{snake_case(graph_type)}.cpp"))


def kernel_source(folder: Path, graph_type: str) -> Path:
    """The file with an operator's kernel: that in C++ if there is one, as it is then called, or its Ascend C kernel."""
    in_cpp = re.compile(rf"^(CPU_KERNEL|ACLNN)\w*\({graph_type}\b", re.MULTILINE)
    files = sorted(folder.joinpath("opp").rglob("*.cpp"))
    found = next((file.relative_to(folder) for file in files if in_cpp.search(file.read_text())), None)
    return found or Path("opp", "op_kernel", f"{snake_case(graph_type)}.cpp")


def _file_with(pattern: str, folder: Path, expected: Path) -> Path:
    """The first C++ file beside the expected one whose text has the pattern, else the expected one, in the folder."""
    files = sorted(folder.joinpath(expected.parent).glob("*.cpp"))
    found = next((file for file in files if re.search(pattern, file.read_text())), folder / expected)
    return found.relative_to(folder)


def _missing_kernels(overloads: Iterable[torch._ops.OpOverload], source: Path) -> Iterator[str]:
    for key, what in {"Meta": "Meta function", "PrivateUse1": "function for tensors on an NPU"}.items():
        if not all(op.has_kernel_for_dispatch_key(getattr(torch._C.DispatchKey, key)) for op in overloads):
            yield f"it has no {what}: add one, for {key}, to {source}"


def _misplaced(prototype: Prototype, package: types.ModuleType, folder: Path) -> Iterator[str]:
    for file in sorted(folder.joinpath(package.__name__, "csrc").glob("*.cpp")):
        for misplaced in _misplaced_arguments(file.read_text(), prototype):
            yield f"{misplaced}: fix {file.relative_to(folder)}"


def _misplaced_arguments(text: str, prototype: Prototype) -> Iterator[str]:
    """The arguments of EXEC_NPU_CMD that bear the name of another parameter, as when two tensors are swapped."""
    names = [*dict.fromkeys((*prototype.inputs, *prototype.attributes, *prototype.outputs))]
    for call in re.finditer(rf"\bEXEC_NPU_CMD\(\s*aclnn{prototype.type}\s*,", text):
        given = [re.match(r"[\s*&]*(\w*)", argument)[1] for argument in _arguments(text[call.end() :])]
        in_place = {name for name, expected in zip(given, names, strict=False) if name == expected}
        for name, expected in zip(given, names, strict=False):
            if name in names and name != expected and name not in in_place:
                yield f"EXEC_NPU_CMD(aclnn{prototype.type}, ...) gives '{name}' where the function takes '{expected}'"
                break


def _arguments(text: str) -> Iterator[str]:
    """The arguments of a call in C++, of the text behind its opening parenthesis."""
    depth = start = 0
    for i, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0 or (depth == 0 and character == ","):
            yield text[start:i]
            start = i + 1
        if depth < 0:
            return


def _disagreements(overloads: list[torch._ops.OpOverload], prototype: Prototype, files: str) -> Iterator[str]:
    """What schemas, prototype and converters do not agree in, but for what a converter of its own says that it maps."""
    own = [op for op in overloads if not getattr(op._ge_converter, "plain", False)]
    mapped = [name for op in own for name in getattr(op._ge_converter, "mapped", ())]
    for mismatch in mismatches([op._schema for op in overloads], prototype):
        if not any(f"'{name}'" in mismatch for name in mapped):
            yield f"{mismatch}: fix {files}, or map it in a converter of its own"
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
    found = [*mistakes(importlib.import_module(name), Path(folder))]
    print(*(f"error: {mistake}" for mistake in found), sep="\n", end="\n" * bool(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
