# SPDX-License-Identifier: Apache-2.0
"""Reads a header of REG_OP prototypes, and writes what is generated from it. It needs no torch.

    codegen.py header OP_PROTO OP_HOST OUT    the prototypes in one form, each below its comment in the files of OP_HOST
    codegen.py api HEADER OUT                 the Graph Engine API: a Python function for each prototype

Each error in the header is a line, "FILE:LINE: error: operator X: ...", and then nothing is written.
"""

import ctypes
import json
import keyword
import math
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

WIDTH = 120
DTYPES = """FLOAT FLOAT16 BF16 DOUBLE INT2 INT4 INT8 INT16 INT32 INT64 UINT1 UINT2 UINT8 UINT16 UINT32 UINT64 BOOL
STRING COMPLEX32 COMPLEX64 COMPLEX128 QINT8 QINT16 QINT32 QUINT8 QUINT16 RESOURCE VARIANT UNDEFINED HIFLOAT8 FLOAT8_E5M2
FLOAT8_E4M3FN FLOAT8_E8M0 FLOAT6_E3M2 FLOAT6_E2M3 FLOAT4_E2M1 FLOAT4_E1M2"""
DTYPES = [f"DT_{name}" for name in DTYPES.split()]
# type of an attribute: the class of torchair.ge.attr, the Python type
ATTRIBUTES = {"Int": ("Int", "int"), "Float": ("Float", "float"), "Bool": ("Bool", "bool"), "String": ("Str", "str")}
ATTRIBUTES |= {"Type": ("DataType", "int")}
ATTRIBUTES |= {f"List{kind}": (f"List{name}", f"Sequence[{hint}]") for kind, (name, hint) in ATTRIBUTES.items()}
ATTRIBUTES |= {
    f"ListList{kind}": (f"ListList{kind}", f"Sequence[Sequence[{kind.lower()}]]") for kind in ("Int", "Float")
}
# macro of an input or output: the Python type, a note for the docstring
TENSORS = {"INPUT": ("Tensor", ""), "OPTIONAL_INPUT": ("Tensor | None", "optional, "), "OUTPUT": ("Tensor", "")}
TENSORS |= dict.fromkeys(("DYNAMIC_INPUT", "DYNAMIC_OUTPUT"), ("list[Tensor]", "any number, "))
COUNTS = dict.fromkeys((*TENSORS, "DATATYPE", "REQUIRED_ATTR"), 2) | {"ATTR": 3, "OP_END_FACTORY_REG": 1}
KINDS = {"INPUT": "input", "OUTPUT": "output", "ATTR": "attribute", "DATATYPE": "data type"}  # by a macro's last word
RESERVED = ("dependencies", "node_name")
INFINITY = "std::numeric_limits<float>::infinity()"


class Invalid(Exception):
    """What is wrong with a header, a line for each error."""


class Part(NamedTuple):
    """An input, output, attribute or name for data types."""

    macro: str
    name: str
    type: str
    """Of an attribute; or data types, "DT_FLOAT16, DT_BF16", or what CANN calls a set of them, such as ALL."""
    default: Any = None

    @property
    def kind(self) -> str:
        return KINDS[self.macro.rpartition("_")[2]]


class Prototype(NamedTuple):
    type: str
    comment: list[str]
    parts: list[Part]

    def of(self, *kinds: str) -> list[Part]:
        return [part for kind in kinds for part in self.parts if part.kind == kind]


# ---- reading


def tokens(text: str) -> Iterator[tuple[str, int]]:
    """The words, numbers, strings, directives and signs of C++, each with its line, without comments."""
    at, line = 0, 1

    def skip(condition: Callable[[str, str], bool]) -> None:
        nonlocal at
        while at < len(text) and condition(text[at], text[at - 1]):
            at += 1

    while at < len(text):
        start, first = at, text[at]
        at += 1
        if first == "#" or text.startswith("//", start):
            skip(lambda sign, before: sign != "\n" or before == "\\")
        elif text.startswith("/*", start):
            end = text.find("*/", start + 2)
            at = len(text) if end < 0 else end + 2
        elif first in "\"'":
            while at < len(text) and text[at] not in (first, "\n"):
                at += 1 + (text[at] == "\\")
            at += text.startswith(first, at)
        elif first.isdigit() or (first == "." and text[at : at + 1].isdigit()):
            skip(lambda sign, before: sign.isalnum() or sign == "." or (sign in "+-" and before in "eE"))
        elif first.isalpha() or first == "_":
            skip(lambda sign, _: sign.isalnum() or sign == "_")
        if not first.isspace() and not text.startswith(("//", "/*"), start):
            yield text[start:at], line
        line += text.count("\n", start, at)


def separated(given: list[str]) -> list[list[str]]:
    """The tokens between the commas that are in no brackets."""
    parts: list[list[str]] = [[]] if given else []
    depth = 0
    for token in given:
        depth += (token in "({") - (token in ")}")
        if token == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def value(kind: str, given: list[str]) -> Any:
    """The value of a literal; raises ValueError if it is none of this type."""
    text = "".join(given).removeprefix("ge::")
    if kind.startswith("List") and text[:1] == "{" and text[-1:] == "}":
        return [value(kind.removeprefix("List"), part) for part in separated(given[1:-1])]
    if kind == "String" and given and all(token[0] == '"' == token[-1] for token in given):
        # An escape stands for a byte of UTF-8.
        return "".join(token[1:-1] for token in given).encode().decode("unicode_escape").encode("latin-1").decode()
    if kind == "Bool" and text in ("true", "false"):
        return text == "true"
    if kind == "Type" and text in DTYPES:
        return text
    if kind == "Int" and -(2**63) <= (whole := int(text.rstrip("lL"), 0)) < 2**63:
        return whole
    if kind == "Float" and text.removeprefix("-") == INFINITY:
        return float(text.replace(INFINITY, "inf"))
    if kind == "Float" and math.isfinite(number := float32(float(text.rstrip("fF")))):
        return next(short for digits in range(1, 10) if float32(short := float(f"{number:.{digits}g}")) == number)
    raise ValueError


def float32(number: float) -> float:
    return ctypes.c_float(number).value


class Reader:
    """Reads a header, from its first token to its last."""

    def __init__(self, file: Path):
        text = file.read_text()
        self.file, self.lines, self.tokens = file, text.splitlines(), tokens(text)
        self.line, self.operator = 1, ""
        self.errors: list[str] = []

    def prototypes(self) -> list[Prototype]:
        found: list[Prototype] = []
        while token := self.next():
            if token == "REG_OP":
                found.append(self.prototype([each.type for each in found]))
            elif token in ("namespace", "using"):
                while self.next() not in ("{", ";", ""):
                    pass
            elif token not in "};" and not token.startswith(("#include", "#pragma", "#ifndef", "#define", "#endif")):
                self.fail(f"{token} begins no prototype")
            self.operator = ""
        if self.errors:
            raise Invalid("\n".join(self.errors))
        return found

    def next(self) -> str:
        """The next token, or nothing at the end."""
        token, self.line = next(self.tokens, ("", self.line))
        return token

    def error(self, text: str) -> None:
        self.errors.append(f"{self.file}:{self.line}: error: {self.operator}{' '.join(text.split())}")

    def fail(self, text: str) -> None:
        self.error(text)
        raise Invalid("\n".join(self.errors))

    def arguments(self, macro: str) -> list[list[str]]:
        """What a macro is given."""
        given, depth = [self.next()], 1
        while depth:
            token = self.next()
            if given[0] != "(" or token in ("", ";"):
                self.fail(f"{macro} needs arguments in brackets")
            depth += (token == "(") - (token == ")")
            given.append(token)
        found = separated(given[1:-1])
        count = 1 if macro == "REG_OP" else COUNTS.get(macro, len(found))
        if len(found) != count or [] in found:
            self.fail(f"{macro} takes {count} argument{'s' * (count > 1)}")
        return found

    def prototype(self, others: list[str]) -> Prototype:
        comment: list[str] = []  # directly above
        for line in reversed(self.lines[: self.line - 1]):
            if not line.startswith("//"):
                break
            comment.insert(0, line)
        made, macro = Prototype(" ".join(*self.arguments("REG_OP")), comment, []), ""
        self.operator = f"operator {made.type}: "
        if made.type in others:
            self.error("is registered a second time")
        while macro != "OP_END_FACTORY_REG":
            if (token := self.next()) != ".":
                self.fail(f"expected .OP_END_FACTORY_REG({made.type}), but found {token or 'the end of the file'}")
            macro = self.next()
            name, *given = self.arguments(macro) or [[]]
            if macro not in COUNTS:
                self.error(f"unknown macro {macro}")
            elif given:
                self.add(made, macro, " ".join(name), *given)
            elif name != [made.type]:
                self.error(f"ends as {' '.join(name)}")
        named = {each.name: each.type for each in made.of("data type")}
        for i, each in enumerate(made.parts):
            if each.type.startswith('"') and each.type.strip('"') not in named:
                self.error(f"data type {each.type} of '{each.name}' is not declared")
            if each.kind != "attribute":
                made.parts[i] = each._replace(type=named.get(each.type.strip('"'), each.type))
        return made

    def add(self, made: Prototype, macro: str, name: str, what: list[str], default: list[str] | None = None) -> None:
        part = Part(macro, name, self.types(what) if macro in TENSORS or macro == "DATATYPE" else " ".join(what))
        is_parameter = part.kind in ("input", "attribute")  # of one Python function
        if name in [each.name for each in made.of(*(("input", "attribute") if is_parameter else (part.kind,)))]:
            self.error(f"{part.kind} '{name}' is declared twice")
        if is_parameter and name in RESERVED:
            self.error(f"{part.kind} '{name}' has the name of a parameter of every operator")
        if not name.isidentifier():
            self.error(f"{part.kind} {name} has no name")
        if part.kind == "attribute" and part.type not in ATTRIBUTES:
            self.error(f"attribute '{name}' is of the unknown type {part.type}")
        elif default is not None:
            try:
                part = part._replace(default=value(part.type, default))
            except ValueError:
                self.error(f"attribute '{name}' has the default {' '.join(default)}, which is no {part.type}")
        made.parts.append(part)

    def types(self, given: list[str]) -> str:
        """TensorType({DT_A, ge::DT_B}) -> DT_A, DT_B; TensorType::ALL() -> ALL; "T" as it is."""
        braces = given.index("{") if "{" in given else 0
        names = [token for token in given[braces:] if token != "ge" and (token.isidentifier() or token[0] == '"')]
        for name in names:
            if name.startswith("DT_") and name not in DTYPES:
                self.error(f"unknown data type {name}")
        return ", ".join(names if braces else names[-1:])


# ---- the header


def header(op_proto: Path, op_host: Path) -> str:
    prototypes = {each.type: each for each in Reader(op_proto).prototypes()}
    licence, comments = "", {name: each.comment for name, each in prototypes.items()}
    for file in sorted(op_host.glob("*.cpp")):
        comment: list[str] | None = None
        for line in file.read_text().splitlines():
            name = line.removeprefix("// ").partition(":")[0]
            if not line.startswith("//"):
                comment = None
            elif name in prototypes:
                comments[name] = comment = [line]
            elif comment is not None:
                comment.append(line)
            elif "SPDX-License-Identifier" in line:
                licence = f"{line}\n"
    chains = []
    for name in sorted(prototypes):
        lines = [*comments[name], f"REG_OP({name})"]
        for each in prototypes[name].of("input", "output"):
            types = f"({{{each.type}}})" if each.type[:3] in ("", "DT_") else f"::{each.type}()"
            lines.append(f"    .{each.macro}({each.name}, TensorType{types})")
        for each in prototypes[name].of("attribute"):
            default = "" if each.default is None else f", {in_cpp(each.default, each.type)}"
            lines.append(f"    .{each.macro}({each.name}, {each.type}{default})")
        chains.append("\n".join([*lines, f"    .OP_END_FACTORY_REG({name});\n\n"]))
    return f"""{licence}// Generated by the build from the definitions in opp/op_host: edit them there.
// clang-format off
#pragma once

#include "graph/operator_reg.h"

namespace ge {{

{"".join(chains)}}}  // namespace ge
"""


def in_cpp(value: Any, kind: str) -> str:
    if isinstance(value, list):
        return "{" + ", ".join(in_cpp(each, kind.removeprefix("List")) for each in value) + "}"
    if kind == "String":
        escapes = {sign: "".join(f"\\{byte:03o}" for byte in sign.encode()) for sign in value if not sign.isprintable()}
        return '"' + value.translate(str.maketrans(escapes | {'"': r"\"", "\\": r"\\"})) + '"'
    if kind == "Float":
        return str(value).replace("inf", INFINITY)
    return str(value).lower() if kind == "Bool" else str(value)


# ---- the Graph Engine API


def api(file: Path) -> str:
    functions = "\n\n".join(f"{ir(each)}\n\n{function(each)}" for each in Reader(file).prototypes())
    sequence = "from collections.abc import Sequence\n\n" if "Sequence[" in functions else ""
    return f'''"""The Graph Engine API of the custom operators: a function per prototype adds its node to the graph.

Generated by codegen.py from {file.name}.
"""

{sequence}from torchair._ge_concrete_graph.compat_ir import IrDef, ge_op
from torchair.ge import {"DataType, " if "DataType." in functions else ""}Tensor, attr
from torchair.ge._ge_graph import auto_convert_to_tensor

# What each operator type takes and gives.
IR: dict[str, IrDef] = {{}}

{functions}'''


def parameter(name: str) -> str:
    """A name as a Python parameter's: a keyword, or what the function uses itself, gets an underscore."""
    return f"{name}_" if keyword.iskeyword(name) or name in ("IR", "attr", "ge_op", "list") else name


def literal(value: Any, kind: str) -> str:
    if isinstance(value, list):  # a tuple, as parameters' defaults are
        items = [literal(each, kind.removeprefix("List")) for each in value]
        return f"({', '.join(items)}{',' * (len(items) == 1)})"
    if kind == "String":
        return json.dumps(value, ensure_ascii=False)
    if kind == "Type":
        return f"DataType.{value}"
    return f'float("{value}")' if "inf" in str(value) else repr(value)


def attr(kind: str, value: str) -> str:
    """The attribute of a value. A tuple becomes the list that IrDef's defaults are compared with."""
    if kind.startswith("List"):
        value = f"[list(row) for row in {value}]" if kind.startswith("ListList") else f"list({value})"
    return f"attr.{ATTRIBUTES[kind][0]}({value})"


def filled(text: str, width: int = WIDTH, first: str = "", further: str = "") -> str:
    indents = {"initial_indent": first, "subsequent_indent": further}
    return textwrap.fill(text, width, **indents, break_long_words=False, break_on_hyphens=False)


def wrapped(text: str, indent: int) -> str:
    return filled(text, first=" " * indent, further=" " * (indent + 4)) + "\n"


def call(name: str, arguments: list[str], indent: int) -> str:
    """A call on as many lines as it needs."""
    begin, joined = f"{' ' * indent}{name}(", ", ".join(arguments)
    if len(begin) + len(joined) < WIDTH:
        return f"{begin}{joined})\n"
    if indent + 4 + len(joined) <= WIDTH:
        lines = f"{' ' * (indent + 4)}{joined}\n"
    else:
        lines = "".join(
            wrapped(f"{each},", indent + 4) if each[0] == "[" else f"{' ' * (indent + 4)}{each},\n"
            for each in arguments
        )
    return f"{begin}\n{lines}{' ' * indent})\n"


def lines(items: list[str], indent: int) -> str:
    """Items in brackets, a line each, or nothing."""
    listed = "".join(f"{' ' * indent}    {item},\n" for item in items)
    return f"\n{listed}{' ' * indent}" if items else ""


def ir(prototype: Prototype) -> str:
    made = chain = f'IrDef("{prototype.type}")'
    for each in prototype.of("input", "attribute", "output"):
        what = f'"{each.type}"'
        if each.kind == "attribute":
            what = f"attr.{ATTRIBUTES[each.type][0]}"
            what = what if each.default is None else attr(each.type, literal(each.default, each.type))
        chain += f"\n{call(f'.{each.macro.lower()}', [f'{chr(34)}{each.name}{chr(34)}', what], 4)[:-1]}"
    return f'IR["{prototype.type}"] = ' + (made if chain == made else f"(\n    {chain}\n)") + "\n"


def function(prototype: Prototype) -> str:
    inputs, attributes, outputs = map(prototype.of, ("input", "attribute", "output"))
    sizes = {each.name: f"size_of_{each.name}" for each in outputs if each.macro == "DYNAMIC_OUTPUT"}
    flags = [str([each.macro == macro for each in inputs]) for macro in ("DYNAMIC_INPUT", "OPTIONAL_INPUT")]
    parameters = [f"{parameter(each.name)}: {TENSORS[each.macro][0]}" for each in inputs]
    parameters += ["*", *(f"{size}: int" for size in sizes.values())]
    for each in attributes:
        default = "" if each.default is None else f" = {literal(each.default, each.type)}"
        parameters.append(f"{parameter(each.name)}: {ATTRIBUTES[each.type][1]}{default}")
    parameters += [f"{RESERVED[0]}: list[Tensor] | None = None", f"{RESERVED[1]}: str | None = None"]
    hints = ", ".join(TENSORS[each.macro][0] for each in outputs)
    of_inputs = [f'"{each.name}": {parameter(each.name)}' for each in inputs]
    of_attributes = [f'"{each.name}": {attr(each.type, parameter(each.name))}' for each in attributes]
    names = [f'("{each.name}", {sizes[each.name]})' if each.name in sizes else f'"{each.name}"' for each in outputs]
    returned = f"tuple[{hints}]" if len(outputs) > 1 else hints or None
    return f"""{call("@auto_convert_to_tensor", flags, 0)}def {prototype.type}({lines(parameters, 0)}) -> {returned}:
    \"\"\"{docstring(prototype)}\"\"\"
    return ge_op(
        op_type="{prototype.type}",
        inputs={{{lines(of_inputs, 8)}}},
        attrs={{{lines(of_attributes, 8)}}},
        outputs=[{lines(names, 8)}],
        dependencies=dependencies,
        node_name=node_name,
        ir=IR["{prototype.type}"],
    )
"""


def narrow(paragraph: str) -> str:
    """It as it is, or filled anew where it is too wide for a docstring."""
    width = WIDTH - len('    """')
    return paragraph if max(map(len, paragraph.split("\n"))) <= width else filled(paragraph, width)


def docstring(prototype: Prototype) -> str:
    comment = [line[2:].removeprefix(" ") for line in prototype.comment] or [f"GE operator {prototype.type}."]
    comment = [line.replace("\\", r"\\").replace('"""', r"\"\"\"") for line in comment]
    paragraphs = map(narrow, "\n".join(comment).split("\n\n"))
    text = textwrap.indent("\n\n".join(paragraphs), " " * 4).lstrip(" ")
    entries: dict[str, list[str]] = {"Inputs": [], "Attributes": [], "Outputs": []}
    for each in prototype.of("input"):
        entries["Inputs"].append(f"{parameter(each.name)}: {TENSORS[each.macro][1]}{each.type}")
    for each in prototype.of("attribute"):
        default = "required" if each.default is None else f"default {literal(each.default, each.type)}"
        entries["Attributes"].append(f"{parameter(each.name)}: {default}".replace("\\", r"\\"))
    for each in prototype.of("output"):
        entries["Outputs"].append(f"{each.name}: {TENSORS[each.macro][1]}{each.type}")
    listed = "".join(
        f"    {heading}:\n" + "".join(wrapped(entry, 8) for entry in of_it)
        for heading, of_it in entries.items()
        if of_it
    )
    return f"{text}\n\n{listed}    " if listed else text + "\n    " * ("\n" in text or text.endswith('"'))


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["header", op_proto, op_host, out]:
                text = header(Path(op_proto), Path(op_host))
            case ["api", file, out]:
                text = api(Path(file))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
        if not Path(out).exists() or Path(out).read_text() != text:  # else its time stays
            Path(out).write_text(text)
    except (Invalid, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
