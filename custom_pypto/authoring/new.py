# SPDX-License-Identifier: Apache-2.0
"""Writes the files of a new operator from its schema, for NPUs and for the CPU.

``python -m custom_pypto new "my_op(Tensor x, Tensor? bias=None, *, float alpha=1.0) -> Tensor"`` in the folder of the
sources of a package. The written files build and pass every check: each result is a copy of the first tensor. In the
files that it names, write the checks, the kernel and the reference. The files are generated from the templates in
``templates/operator``. The kernel is in Ascend C, for both machines; with ``--aten`` it is for the CPU alone. With
``--triton`` the operator is in Python, all of it in one file, and its kernel in Triton (docs/triton.md).
"""

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..graph.python_operators import NODE
from .schema import EXAMPLE, Operator, Rejected, gradient_of, objections_in_python, parsed

REGISTRATION = "csrc/ops_def_registration.cpp"
LIST_OF_PYTHON_OPERATORS = (
    '"""Operators in Python, with Triton kernels, a module each. Importing this defines them."""\n\n'
)
WIDTH = 120
"""The width of a line in every file."""


def fill(before: str, items: Iterable[str], after: str) -> str:
    """A list in C++ between two texts. Further lines begin below its first item, or after an equals sign."""
    items = [*items]
    line = f"{before}{', '.join(items)}{after}"
    if len(line) <= WIDTH:
        return line
    target, equals, call = before.rpartition(" = ")
    indent = " " * (len(before) - len(before.lstrip()) + 4)
    if equals:
        return f"{target} =\n{fill(indent + call, items, after)}"
    pieces = [*(f"{item}," for item in items[:-1]), items[-1] + after]
    column = len(before) if max(map(len, pieces)) + len(before) <= WIDTH else len(indent)
    lines = [before] if column == len(before) else [before, indent]
    for piece in pieces:
        if len(lines[-1]) + 1 + len(piece) > WIDTH and len(lines[-1]) > column:
            lines.append(" " * column)
        lines[-1] += piece if len(lines[-1]) == column else f" {piece}"
    return "\n".join(lines)


def block(before: str, items: Iterable[str], after: str, statements: list[str]) -> str:
    """A function in C++: in a line if that is all."""
    head = fill(before, items, after)
    line = f"{head} {{ {statements[0]} }}"
    if len(statements) == 1 and len(line) <= WIDTH and "\n" not in line:
        return line
    return "\n".join([fill(before, items, f"{after} {{"), *(f"  {statement}" for statement in statements), "}"])


def python_list(before: str, items: list[str], after: str) -> str:
    """A list in Python: in one line, or each item in a separate line."""
    line = f"{before}{', '.join(items)}{after}"
    if len(line) <= WIDTH:
        return line
    indent = " " * (len(before) - len(before.lstrip()))
    return "\n".join([before, *(f"{indent}    {item}," for item in items), indent + after])


def environment() -> "jinja2.Environment":  # noqa: F821
    try:
        import jinja2
    except ModuleNotFoundError:
        raise Rejected("templates need jinja2: pip install 'custom_pypto[new]'") from None
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates" / "operator"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals |= {"fill": fill, "block": block, "python_list": python_list}
    return made


@dataclass(frozen=True)
class Package:
    """The sources of an operator package."""

    folder: Path
    name: str

    @staticmethod
    def of(folder: Path, name: str = "") -> "Package":
        """The one in a folder. One of this name may be without C++."""
        found = [*folder.glob(f"*/{REGISTRATION}")]
        if name and name not in [file.relative_to(folder).parts[0] for file in found]:
            return Package(folder, name)
        if len(found) != 1:
            reason = f"is not an operator package: run this where there is one */{REGISTRATION}"
            raise Rejected(f"{folder.resolve()} {reason}")
        return Package(folder, found[0].relative_to(folder).parts[0])

    @property
    def registration(self) -> Path:
        return self.folder / self.name / REGISTRATION

    @property
    def definitions(self) -> Path:
        return self.folder / "opp" / "op_host"

    @property
    def functions(self) -> Path:
        return self.folder / self.name / "ops.py"

    @property
    def licence(self) -> str:
        """What its files say of it in their first line, if they do: SPDX-License-Identifier: Apache-2.0."""
        first = self.registration.read_text().partition("\n")[0] if self.registration.exists() else ""
        return first.removeprefix("// ") if "SPDX-License-Identifier" in first else ""


def registration(package: Package, operators: list[Operator]) -> str:
    """The file of schemas, with the operators'."""
    text = package.registration.read_text()
    define = "define" if "using custom_pypto::define;" in text else "custom_pypto::define"
    library = re.search(rf"^TORCH_LIBRARY\({package.name}, (\w+)\) {{(?:\n|(?=}}))(?:.*\n)*?(?=}})", text, re.MULTILINE)
    if library is None:
        raise Rejected(f"{package.registration} has no TORCH_LIBRARY({package.name}, m) {{ ... }}: write one")
    before, after = text[: library.end()], text[library.end() :]
    lines = [definition_line(define, library[1], each.text) for each in operators]
    return "\n".join([before.removesuffix("\n"), *lines, after])


def definition_line(define: str, library: str, schema: str) -> str:
    """The line that defines an operator; a long schema is several strings."""
    escaped = schema.replace("\\", "\\\\").replace('"', '\\"')
    line = f'  {define}({library}, "{escaped}");'
    if len(line) <= WIDTH:
        return line
    before = " " * len(f"  {define}(")
    strings = [""]
    for part in re.split(r"(?<=, )", escaped):
        if len(f'{before}"{strings[-1]}{part}");') > WIDTH:
            strings.append("")
        strings[-1] += part
    return f"  {define}({library},\n" + "\n".join(f'{before}"{string}"' for string in strings) + ");"


def functions(package: Package, text: str) -> str:
    """The file of Python functions, with the function in `text` after the others."""
    there = package.functions.read_text()
    names = re.search(r"\n\n(# .*\n)*[^\n]*__all__", there)
    end = names.start() if names else len(there)
    return f"{there[:end].rstrip()}\n\n\n{text.rstrip()}\n{there[end:]}"


def files(package: Package, op: Operator, gradient: Operator | None) -> dict[Path, tuple[str, str]]:
    """What is written: {file: its text, and what is left to do there}."""
    operators = [op, *filter(None, [gradient])]
    reject_existing(package, operators)
    made = environment()

    def render(template: str, of: Operator = op) -> str:
        context = {"op": of, "gradient": gradient, "operators": operators, "package": package.name}
        text = made.get_template(f"{template}.jinja").render(context)
        comment = "#" if template.endswith(".py") else "//"
        return f"{comment} {package.licence}\n{text}" if package.licence else text

    opp = package.folder / "opp"
    written = {
        package.folder / package.name / "csrc" / f"{op.name}.cpp": (
            render("operator.cpp"),
            "the checks, and the results' shapes and dtypes",
        )
    }
    for each in operators:
        written[opp / "op_host" / f"{each.file}.cpp"] = (
            render("definition.cpp", each),
            "the same for graphs, the tiling",
        )
        if each.aten:
            written[opp / "cpu" / f"{each.file}.cpp"] = render("aten.cpp", each), "the kernel, for the CPU alone"
        else:
            written[opp / "op_kernel" / f"{each.file}_tiling.h"] = render("tiling.h", each), ""
            written[opp / "op_kernel" / f"{each.file}.cpp"] = render("kernel.cpp", each), "the vector instructions"
    written[package.folder / "test" / package.name / f"{op.name}_calls.py"] = (
        render("calls.py"),
        "the reference, and more calls",
    )
    for file in written:
        if file.exists():
            raise Rejected(f"{file} exists: remove it, or choose another name")
    written[package.registration] = registration(package, operators), ""
    if package.functions.exists():
        made_function = made.get_template("function.py.jinja").render(op=op, gradient=gradient, package=package.name)
        written[package.functions] = functions(package, made_function), "the documentation"
    return written


def strings(text: str) -> list[str]:
    """A text as a string in Python, or as several, one for each line."""
    lines = [""]
    for part in re.split(r"(?<=, )|(?= -> )", text):
        if len(lines[-1]) + len(part) > WIDTH - 8:
            lines.append("")
        lines[-1] += part
    return ["\n    ".join(json.dumps(line) for line in lines)]


def python_files(package: Package, op: Operator, gradient: Operator | None) -> dict[Path, tuple[str, str]]:
    """What is written for an operator in Python: the same as `files`."""
    for objection in objections_in_python(parsed(op.text)):
        raise Rejected(objection)
    operators = [op, *filter(None, [gradient])]
    reject_existing(package, operators)
    made = environment()
    made.globals |= {"strings": strings, "allocation": Operator.allocated_in_python}
    made.globals["unpacked"] = lambda names: f"({names[0]},)" if len(names) == 1 else ", ".join(names)
    made.globals["shaped"] = lambda names: f", {(*names,)!r}".replace("'", '"') if names else ""
    text = made.get_template("triton.py.jinja").render(
        op=op, gradient=gradient, operators=operators, package=package.name
    )
    head = f"# {package.licence}\n" if package.licence else ""
    folder = package.folder / package.name / "triton_ops"
    file = folder / f"{op.name}.py"
    if file.exists():
        raise Rejected(f"{file} exists: remove it, or choose another name")
    listed = folder / "__init__.py"
    before = listed.read_text() if listed.exists() else f"{head}{LIST_OF_PYTHON_OPERATORS}"
    documentation, _, imports = before.partition("\n\n")
    imports = sorted([*imports.splitlines(), f"from .{op.name} import {op.name} as {op.name}"])
    return {
        file: (head + text, "the checks, the kernel, the reference, and more calls"),
        listed: ("\n".join([documentation, "", *imports, ""]), ""),
    }


def reject_existing(package: Package, operators: list[Operator]) -> None:
    schemas = package.registration.read_text() if package.registration.exists() else ""
    defined = {file: file.read_text() for file in sorted(package.definitions.glob("*.cpp"))}
    builtin = builtin_operators()
    for each in operators:
        if re.search(rf'"{each.name}[.(]', schemas):
            raise Rejected(f"{package.name}::{each.name} exists, in {package.registration}: choose another name")
        for file, text in defined.items():
            if f"OP_ADD({each.type})" in text:
                raise Rejected(f"{file} has {each.type}, which {each.name} would be: choose another name")
        if f"def {each.type}(" in builtin:
            raise Rejected(f"CANN has an operator {each.type}, which {each.name} would hide: choose another name")


def builtin_operators() -> str:
    """The text of torchair's module of CANN's own operators, or nothing where there is no torchair."""
    found = importlib.util.find_spec("torch_npu")
    module = "dynamo/torchair/_ge_concrete_graph/auto_generated_ge_raw_ops.py"
    folders = [Path(folder) for folder in found.submodule_search_locations] if found else []
    return "".join((folder / module).read_text() for folder in folders if (folder / module).exists())


def create(
    folder: Path, schema: str, autograd: bool, aten: bool = False, triton: bool = False
) -> tuple[Package, Operator, dict[Path, str]]:
    """Writes an operator to the package in a folder, or raises Rejected; gives what is left to do in each file."""
    package = Package.of(folder, schema.partition("(")[0].rpartition("::")[0] if triton else "")
    op = Operator(schema.removeprefix(f"{package.name}::"), aten or triton)
    written = python_files if triton else files
    found = written(package, op, gradient_of(op) if autograd else None)
    for file, (text, _) in found.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return package, op, {file: task for file, (_, task) in found.items() if task}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m custom_pypto new", description=__doc__.splitlines()[0])
    parser.add_argument("schema", help=f'"{EXAMPLE}"')
    parser.add_argument("--autograd", action="store_true", help="with a gradient, as a separate operator")
    parser.add_argument("--aten", action="store_true", help="with a kernel for the CPU alone, of ATen's functions")
    parser.add_argument("--triton", action="store_true", help="in Python, in one file, with a Triton kernel")
    options = parser.parse_args(arguments)
    try:
        package, op, tasks = create(Path(), options.schema, options.autograd, options.aten, options.triton)
    except Rejected as rejection:
        print(f"error: {rejection}", file=sys.stderr)
        return 1
    in_a_graph = NODE if options.triton else op.type
    print(f"{package.name}::{op.name}, in a graph {in_a_graph}. It copies, until you fill in:")
    width = max(len(str(file)) for file in tasks)
    print(*(f"  {file!s:{width}}  {task}" for file, task in tasks.items()), sep="\n")
    name = op.name if package.name == "custom_pypto" else f"{package.name}::{op.name}"
    print(f"Then{' build, and' * package.registration.exists()}: python -m custom_pypto check {name}")
    return 0
