# SPDX-License-Identifier: Apache-2.0
"""Writes what follows from schemas, prototypes, the docstrings of custom_pypto/ops.py and the examples: the operators'
pages, docs/operators/*.md, and the table of operators in README.md.

python docs/pages.py
"""

import inspect
import re
import textwrap
from pathlib import Path

import torch

import custom_pypto
from custom_pypto.graph import prototypes

DOCS = Path(__file__).parent
HEADINGS = {
    "Args:": "Arguments",
    "Returns:": "Result",
    "Raises:": "Errors",
    "Limits:": "Limits and speed",
    "Formula:": "Source of the formula",
}
LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"
INDENTED = ("Args:", "Returns:", "Raises:")


def example_of(operator: str) -> Path:
    return DOCS.parent / "examples" / f"{operator.removeprefix('npu_').removesuffix('_pto')}.py"


def sections(docstring: str) -> list[tuple[str, list[str]]]:
    """The lines under each heading of a docstring, in order; what is not indented under one has the heading ""."""
    found = [("", [])]
    for line in docstring.splitlines():
        heading, _, rest = line.partition(" ")
        if heading in HEADINGS:
            found.append((heading, [rest] if rest else []))
            continue
        if found[-1][0] in INDENTED and line and not line.startswith(" "):
            found.append(("", []))
        found[-1][1].append(line)
    return found


def inline(text: str) -> str:
    return text.replace("``", "`")


def prose(lines: list[str]) -> str:
    """Paragraphs; what is indented after "::" is a block of code."""
    text = textwrap.dedent("\n".join(lines)).strip("\n")
    blocks = re.split(r"\n\n+", text[:1].upper() + text[1:])
    return "\n\n".join(
        f"```text\n{textwrap.dedent(block)}\n```" if block.startswith(" ") else inline(re.sub(r" ?::$", ":", block))
        for block in blocks
    )


def errors(lines: list[str]) -> str:
    """What is written as "RuntimeError: when"."""
    return inline(re.sub(r"\b(\w+Error):", r"`\1`:", " ".join(" ".join(lines).split())))


def arguments(lines: list[str]) -> str:
    """A table of what is written as "name, name: description"."""
    entries = re.split(r"\n(?=\S)", textwrap.dedent("\n".join(lines)).strip())
    rows = ["| argument | what it is |", "|---|---|"]
    for entry in entries:
        names, description = entry.split(":", 1)
        code = ", ".join(f"`{name.strip()}`" for name in names.split(","))
        rows.append(f"| {code} | {inline(' '.join(description.split()))} |")
    return "\n".join(rows)


def signature(operator: str) -> str:
    """The schema, an argument on each line, and of an overload with more results, what it has beside."""
    packet = getattr(torch.ops.custom_pypto, operator)
    schema = packet.default._schema
    name, listed, result = re.fullmatch(r"(.*?)\((.*)\) -> (.*)", str(schema)).groups()
    listed = re.sub(r"[\d.]+e-\d+", lambda number: repr(float(number[0])), listed)
    lines = "".join(f"    {argument},\n" for argument in listed.split(", "))
    text = f"{name}(\n{lines}) -> {result}\n"
    for other in (getattr(packet, overload)._schema for overload in packet.overloads()):
        if len(other.returns) > len(schema.returns):
            *_, last = re.fullmatch(r".*\((.*)\) -> .*", str(other))[1].split(", ")
            results = ", ".join("Tensor" for _ in other.returns)
            text += f"{name}.{other.overload_name}(\n    ...,\n    {last},\n) -> ({results})\n"
    return f"```text\n{text}```"


WRITERS = {"Args:": arguments, "Raises:": errors}


def page(operator: str) -> str:
    parts = [f"# {operator}", signature(operator)]
    for heading, lines in sections(inspect.getdoc(getattr(custom_pypto, operator))):
        if heading:
            parts.append(f"## {HEADINGS[heading]}")
        parts.append(WRITERS.get(heading, prose)(lines))
    example = example_of(operator)
    if example.exists():
        parts.append(f"## Example\n\n[`examples/{example.name}`](../../examples/{example.name})")
        parts.append(f"```python\n{example.read_text().removeprefix(LICENCE).strip()}\n```")
    return "\n\n".join(parts) + "\n"


TABLE = re.compile(r"^\| operator \|.*?\n(?=\n)", re.MULTILINE | re.DOTALL)
"""The table of operators in README.md."""


def table() -> str:
    """A line per operator: its page, its type in a graph, what it writes to, and the first line of its docstring."""
    rows = ["| operator | in a graph | writes to | what it does |", "|---|---|---|---|"]
    for operator in custom_pypto.__all__:
        schema = getattr(torch.ops.custom_pypto, operator).default._schema
        written = ", ".join(f"`{argument.name}`" for argument in schema.arguments if prototypes.is_written(argument))
        summary = inspect.getdoc(getattr(custom_pypto, operator)).partition("\n")[0].rstrip(".:")
        page = f"[`{operator}`](docs/operators/{operator}.md)"
        rows.append(f"| {page} | `{prototypes.ge_type(operator)}` | {written} | {inline(summary)} |")
    return "\n".join(rows) + "\n"


def readme() -> str:
    return TABLE.sub(lambda _: table(), (DOCS.parent / "README.md").read_text())


def main() -> None:
    (DOCS.parent / "README.md").write_text(readme())
    for operator in custom_pypto.__all__:
        (DOCS / "operators" / f"{operator}.md").write_text(page(operator))


if __name__ == "__main__":
    main()
